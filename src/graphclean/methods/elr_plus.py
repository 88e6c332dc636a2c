"""ELR+: Early-Learning Regularization with mixup and two networks, each with a teacher for the other."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..training.augment import draw_beta
from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from ..training.networks import Ensemble
from .blocks.label_store import clipped_softmax, early_learning, update_rows
from .blocks.supervised import given_losses, labeled_mean, labeled_partners
from .blocks.teacher import copy_as_teacher, ramp_up, update_teacher

STUDENTS = "main", "second"
TEACHERS = "main-teacher", "second-teacher"
RELEASE_STEPS = 390
"""Steps per epoch in the release, which its decay refers to."""
TEACHER_RAMP = 0.5
"""Fraction of the run over which the teachers' decay ramps up: 40,000 of 78,000 steps."""


@dataclass(frozen=True)
class ElrPlusSettings:
    """The defaults are the release's for CIFAR-10 with symmetric noise."""

    beta: float = 0.7
    """Decay of the moving average of predictions; 0.9 for asymmetric noise and CIFAR-100."""
    lambda_elr: float = 3.0
    """Weight of the regularization; 1 for asymmetric noise, 7 for CIFAR-100."""
    lambda_ramp: float = 0.0
    """Fraction of the run over which that weight ramps up from nearly 0; 0.4 for CIFAR-100."""
    mixup_alpha: float = 1.0
    """λ ~ Beta(alpha, alpha) per batch, replaced by 1 − λ if that is larger; 0 turns mixup off."""
    teacher_decay: float = 0.997
    """Decay of the teachers' weights per step, for epochs of 390 steps as in the release.

    For epochs of s steps it is raised to the power 390 / s, so that a teacher averages over as much of an
    epoch.
    """

    def __post_init__(self) -> None:
        for name in ("beta", "teacher_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1")
        for name in ("lambda_elr", "mixup_alpha"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")
        if not 0 <= self.lambda_ramp <= 1:
            raise ValueError("lambda_ramp must be from 0 to 1")


class ELRPlus(Method):
    """ELR with mixup, in which each sample's average prediction is that of the other network's teacher."""

    info = MethodInfo(
        name="elr-plus",
        title="Early-Learning Regularization with two networks, weight averaging and mixup (ELR+)",
        kind="loss",
        paper="Liu et al., Early-Learning Regularization Prevents Memorization of Noisy Labels, NeurIPS 2020",
        networks=4,
        cost=2.7,
        follows="the release; two of the networks are teachers, and both students predict, as in the release "
        "on one GPU; ramps and the teachers' decay depend on epochs, not steps; without reweighted targets "
        "for CIFAR-100; network, optimizer and schedule are those of the training settings",
    )
    Settings = ElrPlusSettings
    settings: ElrPlusSettings
    detector = "msp"
    targets: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create two networks with a teacher each, and two average predictions for every sample."""
        students = {name: run.new_network() for name in STUDENTS}
        teachers = {
            name: copy_as_teacher(student) for name, student in zip(TEACHERS, students.values(), strict=True)
        }
        self.networks = nn.ModuleDict(students | teachers)
        self.weights = {"ce": 1.0, "elr": self.settings.lambda_elr}
        self.register_buffer("targets", torch.zeros(2, len(run.given), run.n_classes, device=run.device))

    def parts(self, epoch: int) -> int:  # noqa: ARG002
        """The networks are trained one after the other, each on all samples."""
        return 2

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the mixed labeled samples, and the regularization of all samples."""
        s, labeled, view = self.settings, batch.given >= 0, run.weak_view(batch.inputs)
        with torch.no_grad():
            (taught,) = run.forward(view, network=TEACHERS[1 - run.part])
        t = update_rows(self.targets[run.part], batch.index, clipped_softmax(taught.logits), s.beta)
        lam, partner = torch.ones((), device=run.device), torch.arange(len(view), device=run.device)
        if s.mixup_alpha > 0:
            lam = draw_beta(s.mixup_alpha, s.mixup_alpha, run.generator)
            lam = torch.maximum(lam, 1 - lam)
            partner = labeled_partners(labeled, run.generator)
        (out,) = run.forward(lam * view + (1 - lam) * view[partner], network=STUDENTS[run.part])
        first, second = (given_losses(out.logits, labels) for labels in (batch.given, batch.given[partner]))
        ramp = ramp_up(self._progress(run) / s.lambda_ramp) if s.lambda_ramp else 1.0
        return {
            "ce": labeled_mean(lam * first + (1 - lam) * second, labeled),
            "elr": ramp * early_learning(lam * t + (1 - lam) * t[partner], clipped_softmax(out.logits)),
        }

    def after_step(self, run: TrainerContext, *batches: Batch) -> None:  # noqa: ARG002
        """Update the teacher of the network that was trained."""
        teacher, student = self.networks[TEACHERS[run.part]], self.networks[STUDENTS[run.part]]
        update_teacher(teacher, student, self.decay(run))

    def decay(self, run: TrainerContext) -> float:
        """Decay of the teachers' weights, which grows as they become better than those of a single step."""
        full: float = self.settings.teacher_decay ** (RELEASE_STEPS / _steps(run))
        return full * ramp_up(self._progress(run) / TEACHER_RAMP)

    def _progress(self, run: TrainerContext) -> float:
        """The completed fraction of the run."""
        return (run.epoch + run.step / _steps(run)) / run.settings.epochs

    def selection(self, run: TrainerContext) -> Selection:
        """The class with the highest average prediction of the teachers; selected if it is the given one."""
        labels = self.targets.mean(0).argmax(1)
        return Selected(labels, labels == run.given)

    def predictor(self) -> nn.Module:
        """An ensemble of both students."""
        return Ensemble(self.networks[name] for name in STUDENTS)


def _steps(run: TrainerContext) -> int:
    return -(-len(run.given) // run.batch_size)
