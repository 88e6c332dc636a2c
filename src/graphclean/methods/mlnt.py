"""MLNT: after a step on synthetic wrong labels, predictions must still agree with a teacher's."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ..training.method import Batch, Method, MethodInfo, TrainerContext
from .blocks.supervised import given_losses, labeled_mean
from .blocks.teacher import copy_as_teacher, ramp_up, update_teacher

EARLY_DECAY, LATE_DECAY = 0.99, 0.999
"""Decay of the teacher, while the weight of the meta loss ramps up, and after that."""
PAPER_STEPS = 390
"""Steps per epoch that the decays are for; with fewer, they are scaled to the same decay per epoch."""
RAMP = 20 / 120
"""Fraction of the meta-learning epochs over which the weight of the meta loss ramps up."""


@dataclass(frozen=True)
class MlntSettings:
    """The defaults are the paper's for CIFAR-10, except for `meta_from`."""

    meta_from: float = 0.83
    """Fraction of the epochs with cross-entropy alone, after which the learning rate schedule restarts: a
    step of meta-learning costs as much as nearly 30 others. The paper has no such epochs.
    """
    trials: int = 10
    """Number of sets of synthetic wrong labels per step."""
    perturbed: float = 0.5
    """Fraction of a batch that gets a neighbor's label."""
    k: int = 10
    """Number of nearest neighbors to take that label from, by features after the cross-entropy epochs."""
    meta_lr: float = 0.2
    """Learning rate of the trial step."""
    alpha: float = 1.0
    """Weight of the divergence from the teacher after a trial step."""

    def __post_init__(self) -> None:
        for name in ("meta_from", "perturbed"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1")
        for name in ("trials", "k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name in ("meta_lr", "alpha"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")


class MLNT(Method):
    """Cross-entropy, and the divergence from a teacher after a trial step on wrong labels."""

    info = MethodInfo(
        name="mlnt",
        title="Meta-Learning based Noise-Tolerant training (MLNT)",
        kind="loss",
        paper="Li et al., Learning to Learn from Noisy Labeled Data, CVPR 2019",
        networks=3,
        cost=5.7,
        follows="the paper, with second-order gradients and a divergence summed over classes, where the "
        "release averages over them; one round, without a mentor that drops samples; the teacher's decay "
        "depends on epochs, not steps; cross-entropy comes first, and yields the features to find neighbors",
    )
    Settings = MlntSettings
    detector = "msp"
    settings: MlntSettings
    started: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the student, its teacher, and its copy from the end of cross-entropy."""
        self.weights = {"ce": 1.0, "meta": self.settings.alpha}
        student = run.new_network()
        copies = {name: copy_as_teacher(student) for name in ("teacher", "start")}
        self.networks = nn.ModuleDict({"main": student, **copies})
        self.register_buffer("started", torch.tensor(False))

    @property
    def _student(self) -> nn.Module:
        return self.networks["main"]

    def phases(self, epochs: int) -> tuple[int, ...]:
        """Cross-entropy, then meta-learning; a single phase if there is no cross-entropy."""
        return tuple(sorted({0, min(round(self.settings.meta_from * epochs), epochs)}))

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Copy the student when meta-learning starts."""
        if run.epoch == self.phases(run.settings.epochs)[-1]:
            self.started.fill_(True)
            for name in ("teacher", "start"):
                self.networks[name].load_state_dict(self._student.state_dict())
        return super().begin_epoch(run)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy and the meta loss, whose gradient is added here, trial by trial to save memory."""
        labeled, views = batch.given >= 0, run.weak_view(batch.inputs)
        (out,) = run.forward(views)
        ce = labeled_mean(given_losses(out.logits, batch.given), labeled)
        start, epochs = self.phases(run.settings.epochs)[-1], run.settings.epochs
        if run.epoch < start or self.settings.alpha == 0:
            return {"ce": ce}
        ramp = ramp_up((run.epoch - start) / (RAMP * (epochs - start)))
        return {"ce": ce, "meta": ramp * self._meta(run, views, batch.given, ramp)}

    def _meta(self, run: TrainerContext, views: Tensor, given: Tensor, ramp: float) -> Tensor:
        """The mean divergence over the trials; its weighted gradient is added to those of the student."""
        s = self.settings
        with torch.no_grad():
            (told,) = run.forward(views, network="teacher")
            self.networks["start"].eval()
            (known,) = run.forward(views, network="start")
        assert known.features is not None
        near, count = nearest_labeled(known.features, given >= 0, s.k)
        trial = Trial(self._student, views, told.logits.float().softmax(1), s.meta_lr)
        total = torch.zeros((), device=run.device)
        for _ in range(s.trials):
            labels = perturb(given, near, count, s.perturbed, run.generator)
            divergence = trial.divergence(labels)
            weight = s.alpha * ramp / s.trials
            (weight * divergence).backward(inputs=trial.weights, retain_graph=True)  # type: ignore[no-untyped-call]
            total += divergence.detach() / s.trials
        return total

    def after_step(self, run: TrainerContext, *batches: Batch) -> None:  # noqa: ARG002
        """Update the teacher."""
        start, epochs = self.phases(run.settings.epochs)[-1], run.settings.epochs
        if run.epoch < start:
            return
        decay = EARLY_DECAY if run.epoch - start < RAMP * (epochs - start) else LATE_DECAY
        steps = -(-len(run.given) // run.batch_size)
        update_teacher(self.networks["teacher"], self._student, decay ** (PAPER_STEPS / steps))

    def predictor(self) -> nn.Module:
        """The teacher once meta-learning has started, otherwise the student."""
        return self.networks["teacher" if bool(self.started) else "main"]

    def notes(self, run: TrainerContext) -> list[str]:  # noqa: ARG002
        """Report if all epochs were cross-entropy."""
        return (
            [] if bool(self.started) else ["no epoch was left for meta-learning: this is cross-entropy alone"]
        )


class Trial:
    """A network's predictions after a step on some labels; the network itself is unchanged."""

    def __init__(self, network: nn.Module, views: Tensor, target: Tensor, lr: float) -> None:
        self.network, self.views, self.target, self.lr = network, views, target, lr
        self.logits = self._predict({})
        learned = {name: weights for name, weights in network.named_parameters() if weights.requires_grad}
        used = torch.autograd.grad(
            self.logits.sum(), list(learned.values()), retain_graph=True, allow_unused=True
        )
        self._learned = {
            name: weights for (name, weights), by in zip(learned.items(), used, strict=True) if by is not None
        }
        self.weights = list(self._learned.values())

    def _predict(self, weights: dict[str, Tensor]) -> Tensor:
        """Logits with other weights; batch statistics are discarded."""
        buffers = {name: value.clone() for name, value in self.network.named_buffers()}
        logits: Tensor = functional_call(self.network, buffers | weights, (self.views,)).logits.float()
        return logits

    def divergence(self, labels: Tensor) -> Tensor:
        """KL divergence of the predictions after a step on `labels` from the target."""
        loss = labeled_mean(given_losses(self.logits, labels), labels >= 0)
        slopes = torch.autograd.grad(loss, self.weights, create_graph=True)
        stepped = {
            name: weights - self.lr * slope
            for (name, weights), slope in zip(self._learned.items(), slopes, strict=True)
        }
        log_p = self._predict(stepped).log_softmax(1)
        return (torch.xlogy(self.target, self.target) - self.target * log_p).sum(1).mean()


@torch.no_grad()
def nearest_labeled(features: Tensor, labeled: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Indices (n, k) of the nearest other labeled samples of a batch, and how many of them are valid (n,)."""
    own = torch.eye(len(features), dtype=torch.bool, device=features.device)
    distances = torch.cdist(features.float(), features.float())
    near = distances.masked_fill(own | ~labeled, torch.inf).topk(min(k, len(features)), largest=False).indices
    return near, (labeled.sum() - labeled.long()).clamp(max=k)


def perturb(given: Tensor, near: Tensor, count: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Replace a fraction `share` of labels with that of a random one of the nearest, if there is any."""
    n = len(given)
    keys, place = torch.rand(2, n, generator=generator, device=given.device)
    column = (place * count).long().clamp(max=near.shape[1] - 1)
    other = given[near.gather(1, column.unsqueeze(1)).squeeze(1)]
    chosen = keys.argsort().argsort() < round(share * n)
    return torch.where(chosen & (count > 0) & (given >= 0), other, given)
