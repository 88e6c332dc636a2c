"""Noisy Graph Cleaning: in every epoch, the graph decides which samples and labels to train on."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..config.settings import Auto
from ..errors import check_choice
from ..graph import Cleaned, GraphCleaner
from ..ood import bimodal_ood_probability, class_prototypes, max_prototype_similarity
from ..training.losses import Positives, contrastive_losses
from ..training.method import Batch, Method, MethodInfo, Selection, TrainerContext, join_state, split_state
from .blocks.balanced import balanced_batches
from .blocks.classification import Mix, MixedViews, MixupClassification
from .blocks.consistency import Consistency

LONGEST_WARMUP = 0.1
"""Maximum warm-up as a fraction of all epochs, if it is `auto`."""
DECISION = ("selected", "labels", "soft_labels", "confident", "degrees")
"""Fields of an epoch's cleaning that a checkpoint saves."""


@dataclass(frozen=True)
class NgcSettings:
    """Eq. 5-7 of the paper, and when the graph begins to decide. The defaults are those for CIFAR-10."""

    warmup_epochs: int | Auto = 5
    """Epochs of mixup cross-entropy on the given labels before the graph decides what is trained on.

    `auto`, with graph.k=auto: until the largest allowed k suffices to tell the classes apart; at least one
    epoch, and at most a tenth of all, as in the paper for CIFAR-100.
    """
    mixup_alpha: float = 8.0
    """λ ~ Beta(alpha, alpha) per batch; 0 turns mixup off."""
    mixup_views: MixedViews = "both"
    """Classify `both` views, or the `weak` one alone, as the authors' release does on WebVision."""
    lambda_inst: float = 1.0
    """Weight of the instance contrastive loss, λ1 of Eq. 7."""
    lambda_subgraph: float = 1.0
    """Weight of the subgraph contrastive loss, λ2 of Eq. 7."""
    lambda_consistency: float = 0.0
    """Weight of a consistency loss of the two views (SimSiam), which, unlike L_inst, has no negatives."""
    tau_inst: float = 0.3
    """Temperature of the instance contrastive loss, τ1 of Eq. 5."""
    tau_subgraph: float = 1.0
    """Temperature of the subgraph contrastive loss, τ2 of Eq. 6."""
    subgraph_positives: Positives = "release"
    """`release`: a sample's own strong view is always a positive; `paper`: Eq. 6 as written."""
    joint_batch_norm: bool = True
    """Batch norm over weak and strong views together, or over each separately, in warm-up too (release)."""
    balance_cap: float = 0.0
    """Classify classes equally often, but no sample over this many times as often as the average one.

    0: every selected sample once (paper). If most labels are wrong, a class that falls behind is otherwise
    lost.
    """
    ood_gate_start: float = 1.0
    """Fraction of the epochs after which the lower mode of a bimodal s(x) is excluded; 1: never (paper)."""

    def __post_init__(self) -> None:
        check_choice("subgraph_positives", self.subgraph_positives, Positives)
        check_choice("mixup_views", self.mixup_views, MixedViews)
        if not 0 <= self.ood_gate_start <= 1:
            raise ValueError("ood_gate_start must be from 0 to 1")
        for name in ("tau_inst", "tau_subgraph"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0")
        if self.balance_cap and not self.balance_cap >= 1:
            raise ValueError("balance_cap must be 0, or at least 1")
        for name in ("warmup_epochs", "mixup_alpha", "lambda_inst", "lambda_subgraph", "lambda_consistency"):
            if getattr(self, name) != "auto" and not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")


class NGC(Method):
    """Clean with the k-NN graph of z at every epoch; classify and contrast the samples that it selects."""

    info = MethodInfo(
        name="ngc",
        title="Noisy Graph Cleaning (NGC)",
        kind="contrastive",
        paper="Wu et al., NGC: A Unified Framework for Learning with Open-World Noisy Data, ICCV 2021",
        cost=3.3,
        follows="the paper, or the release if settings say so (`graphclean presets paper`, `release`)",
    )
    Settings = NgcSettings
    settings: NgcSettings
    cleaned: Cleaned

    def setup(self, run: TrainerContext) -> None:
        """Create the network, the graph's state, and the OOD gate, open."""
        super().setup(run)
        s = self.settings
        self.weights = {"ce": 1.0, "inst": s.lambda_inst, "subgraph": s.lambda_subgraph}
        self.consistency: Consistency | None = None
        if s.lambda_consistency > 0:
            dim = self.networks["main"].embedding_dim
            assert isinstance(dim, int)
            self.consistency = Consistency(dim, run.settings).to(run.device)
            self.weights |= {"consistency": s.lambda_consistency}
        self.cleaner = GraphCleaner(
            run.given, run.n_classes, self.graph, decided=run.decided, group=run.group
        )
        self.mixup = MixupClassification(s.mixup_alpha, s.mixup_views)
        self.excluded: Tensor | None = None
        self.warmup_end = s.warmup_epochs if s.warmup_epochs != "auto" else run.settings.epochs
        """The first epoch after warm-up, counted from 0; with `auto`, none until the graph suffices."""
        self._given = run.given.clamp(min=0), run.given >= 0

    def optimizers(self) -> dict[str, Optimizer]:
        """The optimizer of the predictor for consistency, if there is one."""
        return {"consistency": self.consistency.optimizer()} if self.consistency is not None else {}

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Clean; then all samples in random order, with the classified ones spread evenly.

        With `balance_cap`, the samples classified after warm-up are a separate stream.
        """
        self.cleaned = self.decide(run)
        if self.settings.warmup_epochs == "auto" and self._warming_up(run) and self._suffices(run):
            self.warmup_end = run.epoch
        labels, selected = self._targets(run)
        batches = run.shuffle(selected)
        cap = self.settings.balance_cap
        if not cap or self._warming_up(run):
            self.mixup.begin_epoch(run, selected[batches])
            return (batches,)
        steps, size = batches.shape
        balanced = balanced_batches(labels, selected, run.n_classes, (steps, size), cap, run.generator)
        self.mixup.begin_epoch(run, selected[balanced])
        return batches, balanced

    def decide(self, run: TrainerContext) -> Cleaned:
        """The graph's decision on the whole set."""
        out = run.embed()
        return self._clean(run, out.z, out.logits)

    def _clean(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Cleaned:
        """One step of the cleaner, without the samples that the gate excludes."""
        if not self._warming_up(run) and self._gate_is_closed(run):
            if self.excluded is None:
                self.excluded = self._find_far(z, run.n_classes)
            return self.cleaner.step(z, logits, excluded=self.excluded)
        return self.cleaner.step(z, logits)

    def _find_far(self, z: Tensor, n_classes: int) -> Tensor | None:
        """The lower mode of s(x), found only once.

        Found again at every epoch, it would leak: prototypes follow what the network memorizes.
        """
        prototypes = class_prototypes(z, self.cleaner.labels, self.cleaner.selected, n_classes)
        far = bimodal_ood_probability(
            max_prototype_similarity(z, prototypes), self.cleaner.labels.cpu().numpy()
        )
        return torch.as_tensor(far > 0.5, device=z.device) if far is not None else None

    def _gate_is_closed(self, run: TrainerContext) -> bool:
        start = self.settings.ood_gate_start
        return start < 1 and run.epoch >= first_epoch(start, run.settings.epochs)

    def _warming_up(self, run: TrainerContext) -> bool:
        return run.epoch < self.warmup_end

    def _suffices(self, run: TrainerContext) -> bool:
        """Whether the graph can decide, or must because the warm-up has its maximum length."""
        longest = max(math.ceil(LONGEST_WARMUP * run.settings.epochs), 1)
        return run.epoch >= longest or (run.epoch > 0 and self.cleaner.suffices)

    def _takes_strong(self, run: TrainerContext) -> bool:
        """No AutoAugment while wrong labels are trained on: with it they are learned before the classes."""
        return not self._warming_up(run) or run.settings.strong_augmentation != "autoaugment"

    def _targets(self, run: TrainerContext) -> tuple[Tensor, Tensor]:
        """Every sample's label, and whether it is classified: as given in warm-up, then by the graph."""
        return self._given if self._warming_up(run) else (self.cleaned.labels, self.cleaned.selected)

    def losses(self, run: TrainerContext, batch: Batch, balanced: Batch | None = None) -> dict[str, Tensor]:
        """Eq. 7; in warm-up, only cross-entropy. `balanced`, if given, is classified instead of `batch`."""
        s = self.settings
        labels, chosen = self._targets(run)
        targets, selected = labels[batch.index], chosen[batch.index]
        augmented = self._takes_strong(run)
        views = run.views(batch.inputs, strong=augmented)
        if balanced is None:
            mix = self.mixup.mix(run, views, targets, selected)
        else:
            own, more = balanced.index, run.views(balanced.inputs, strong=augmented)
            mix = self.mixup.mix(run, more, labels[own], chosen[own])
        passes = self._passes(views, mix, contrast=not self._warming_up(run))
        outputs = dict(zip(passes, run.forward(*passes.values()), strict=True))
        found: dict[str, Tensor] = {}
        if mix is not None:
            found["ce"] = mix.loss(outputs.pop("mixed").logits)
        if not self._warming_up(run):
            # At λ = 0 the contrastive pass is kept: it feeds batch statistics, and its losses are reported.
            weak, strong = torch.cat([out.z for out in outputs.values()]).chunk(2)
            found["inst"], found["subgraph"] = contrastive_losses(
                weak,
                strong,
                targets,
                selected,
                tau_inst=s.tau_inst,
                tau_subgraph=s.tau_subgraph,
                positives=s.subgraph_positives,
            )
            if self.consistency is not None:
                found["consistency"] = self.consistency(weak, strong)
        return found

    def _passes(self, views: Tensor, mix: Mix | None, *, contrast: bool) -> dict[str, Tensor]:
        """The inputs of the network's passes, in order; batch norm treats each separately.

        The release has weak, mixed and strong views, and passes weak ones in warm-up too, without a loss.
        """
        mixed = {"mixed": mix.images} if mix is not None else {}
        if self.settings.joint_batch_norm:
            return {**({"views": views} if contrast else {}), **mixed}
        weak, strong = views.chunk(2)
        return {"weak": weak, **mixed, **({"strong": strong} if contrast else {})}

    def selection(self, run: TrainerContext) -> Selection:  # noqa: ARG002
        """The last decision."""
        return self.cleaned

    def conclude(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Selection:
        """One more step of the graph, with the final network."""
        return self._clean(run, z, logits)

    def metrics(self, run: TrainerContext) -> dict[str, Any]:
        """Whether this is warm-up, the number of confident samples and of steps without a selected one."""
        return {
            "warmup": self._warming_up(run),
            "confident": int(self.cleaned.confident.sum()),
            "empty_steps": self.mixup.empty_steps,
            **({"next_k": self.cleaner.k} if self.graph.k == "auto" else {}),
        }

    def notes(self, run: TrainerContext) -> list[str]:
        """Report if the graph never decided or selected too little."""
        found, epochs = [], run.settings.epochs
        if self.warmup_end >= epochs:
            found.append(
                f"all {epochs} epochs were warm-up on the labels as given (method.warmup_epochs="
                f"{self.settings.warmup_epochs}): the graph never selected the training samples"
            )
        if self.mixup.empty_steps:
            found.append(
                f"{self.mixup.empty_steps} steps of the last epoch had no selected sample, and skipped the "
                "cross-entropy"
            )
        return found

    def save_state(self) -> dict[str, Tensor]:
        """Networks, the graph's state and last decision, the gate, and the batch shapes of this epoch."""
        memory = {
            name: value for name, value in self.cleaner.state_dict().items() if isinstance(value, Tensor)
        }
        memory["epoch"] = torch.tensor(self.cleaner.epoch)
        decision = {name: getattr(self.cleaned, name) for name in DECISION}
        gate = {"excluded": self.excluded} if self.excluded is not None else {}
        parts = {"mixup": self.mixup.save_state(), "cleaner": memory, "decision": decision, "gate": gate}
        if self.settings.warmup_epochs == "auto":
            parts["warmup"] = {"end": torch.tensor(self.warmup_end)}
        return super().save_state() | join_state(parts)

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the saved state."""
        parts = split_state(state)
        self.networks.load_state_dict(parts["networks"])
        if self.consistency is not None:
            self.consistency.load_state_dict(parts["consistency"])
        self.mixup.load_state(parts["mixup"])
        self.cleaner.load_state_dict({**parts["cleaner"], "settings": asdict(self.cleaner.settings)})
        device = self.cleaner.given.device
        self.cleaned = Cleaned(**{name: parts["decision"][name].to(device) for name in DECISION})
        if "warmup" in parts:
            self.warmup_end = int(parts["warmup"]["end"])
        if "gate" in parts:
            self.excluded = parts["gate"]["excluded"].to(device)


def first_epoch(fraction: float, epochs: int) -> int:
    """The first epoch, counted from 0, after a fraction of them."""
    return math.ceil(round(fraction * epochs, 6))  # 0.55 * 100 is a little over 55
