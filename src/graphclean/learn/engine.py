"""The training loop: every epoch embeds, cleans by the graph, and trains on what was selected."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..backbones import PREFIX
from ..data.loader import Inputs, ordered_batches, shuffled_batches
from ..errors import InputError
from ..graph import Cleaned, GraphCleaner, GraphSettings
from ..ood import class_prototypes, measure_closeness, ood_by_humps
from .augment import Mixed, draw_beta, mixup
from .beliefs import DrawnLabels
from .checkpoint import Checkpoint, CheckpointWriter, load_checkpoint
from .compiling import Compiled, trying_convolutions
from .losses import contrastive_losses, mixup_cross_entropy, total_loss
from .networks import Output, build_network
from .settings import LearnSettings
from .state import EpochUnderWay, gather_tensors, restore_tensors, seeded, sort_tensors
from .views import Views, scale

TERMS = ("ce", "inst", "subgraph")
SIZES = 8
"""Compiled, the selected samples of a step are filled up to one of so many parts of the batch."""
WORTH = 2_000_000
"""Images that another size must save a run to be compiled for: what a GPU does in the 20 s that it takes."""
EVAL_BATCHES = 4
"""Training batches that an evaluation pass takes at once: without gradients they fit."""
COMPILE_FROM = 4_000_000
"""Samples trained on in all from which compiling saves more time than it takes, a minute and a half."""


class DivergedError(RuntimeError):
    """A loss is NaN or infinite; the message says which. The last checkpoint is from before.

    Or the network itself is, where no loss was yet.
    """


class InterruptedRun(Exception):  # noqa: N818 - not an error
    """Training stopped because it was asked to."""

    def __init__(self, epoch: int, *, saved: bool) -> None:
        super().__init__(f"interrupted in epoch {epoch}")
        self.epoch = epoch
        self.saved = saved
        """There is a checkpoint to go on from."""


@dataclass(frozen=True)
class EpochReport:
    """What one epoch did."""

    epoch: int
    """Counted from 1."""
    warmup: bool
    losses: dict[str, float]
    lr: float
    selected: int
    confident: int
    relabelled: int
    """Selected under another label than the given one."""
    empty_classes: int
    """Classes of which nothing was selected."""
    empty_steps: int
    """Steps without a sample to classify, which left the cross-entropy out."""
    seconds: float
    clean_seconds: float
    """Of them, for embedding and the graph."""


@dataclass(frozen=True)
class Trained:
    """The result: the last epoch's network, and one more pass of it over the training set."""

    network: nn.Module
    z: Tensor
    logits: Tensor
    cleaned: Cleaned
    prototypes: Tensor


class Trainer:
    """Trains a network on inputs with labels that can't be trusted.

    All randomness comes from one generator on the inputs' device (that of dropout, from PyTorch's own); their
    states are part of a checkpoint, so that a resumed run equals one that was never interrupted.
    """

    def __init__(
        self,
        inputs: Inputs,
        labels: Tensor,
        n_classes: int,
        settings: LearnSettings,
        graph: GraphSettings,
        *,
        beliefs: Tensor | None = None,
        checkpoint: Path | None = None,
        on_epoch: Callable[[EpochReport, Cleaned], None] | None = None,
        on_clean: Callable[[int, Tensor, Cleaned], None] | None = None,
    ) -> None:
        """`on_clean` hears of an epoch when its graph has decided (its number, z), `on_epoch` at its end.

        With `beliefs` (N, K + 1) the labels of an epoch are drawn from them, and no graph is built.
        """
        _check_views(inputs.shape, settings)
        self.inputs, self.settings, self.graph = inputs, settings, graph
        self.device, self.n_classes = inputs.device, n_classes
        self.labels = labels.to(self.device).long()
        self.checkpoint, self.on_epoch, self.on_clean = checkpoint, on_epoch, on_clean
        with seeded(settings.seed, self.device):
            self.network = build_network(
                settings.network, n_classes, input_shape=inputs.shape, **network_options(settings)
            ).to(self.device)
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = torch.optim.SGD(
            self.network.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=on_gpu,
        )
        for parameter in self.network.parameters():
            # Warm-up leaves the projector without gradients, and the fused optimiser wants all or none.
            self.optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        self.cleaner: GraphCleaner | DrawnLabels
        if beliefs is not None:
            self.cleaner = DrawnLabels(beliefs.to(self.device), settings.seed)
        else:
            self.cleaner = GraphCleaner(self.labels, n_classes, graph)
        self.epoch = 0
        self._gate = first_epoch(settings.gate_from, settings.epochs)
        self._barred: Tensor | None = None
        self.batch = min(settings.batch, len(inputs))
        work = settings.epochs * len(inputs)
        long = on_gpu and len(inputs.shape) == 3 and work >= COMPILE_FROM
        wanted = settings.compile == "on" or (settings.compile == "auto" and long)
        self._compiled = wanted and settings.epochs > 1
        self._forward: Callable[[Tensor], Output] = self.network
        self._views = Views(settings, self.generator)
        self._sizes = [self.batch]
        self._under_way: EpochUnderWay | None = None
        self._stop = False

    def request_stop(self) -> None:
        """Ask a run under way to save its place and end with `InterruptedRun`; safe in a signal handler."""
        self._stop = True

    def train(self, *, resume: bool = False) -> Trained:
        """All epochs, or those that are left; the caller's random numbers and flags are left alone."""
        with seeded(self.settings.seed, self.device), trying_convolutions(self._compiled):
            if resume:
                self._resume()
            return self._train()

    def _train(self) -> Trained:
        writer = CheckpointWriter(self.checkpoint) if self.checkpoint is not None else None
        try:
            while self.epoch < self.settings.epochs:
                self._run_epoch()
                self.epoch += 1
                if writer is not None:
                    writer.save(self._state())
            if self.settings.mirrored:
                # As it is: code for so few passes would take longer to make than they do.
                self.network.mirrored, self._forward = True, self.network
            else:
                self._compile()
            z, logits = self.embed()
        except InterruptedRun:
            if writer is not None and self._under_way is not None:
                writer.save(self._state())
            raise
        finally:
            if writer is not None:
                writer.wait()
        cleaned = self._clean(z, logits)
        prototypes = class_prototypes(z, cleaned.labels, cleaned.selected, self.n_classes)
        return Trained(self.network, z, logits, cleaned, prototypes)

    @torch.no_grad()
    def embed(self, inputs: Inputs | None = None) -> tuple[Tensor, Tensor]:
        """z and logits of every input (of the training set unless others are given), in evaluation mode."""
        inputs = inputs if inputs is not None else self.inputs
        self.network.eval()
        n = len(inputs)
        z, logits = [], []
        for batch in inputs.stream(ordered_batches(n, min(n, EVAL_BATCHES * self.batch), self.device)):
            # Others are scored at the end of an epoch, which is to be saved first.
            if self._stop and inputs is self.inputs:
                epoch = min(self.epoch + 1, self.settings.epochs)
                raise InterruptedRun(epoch, saved=self.checkpoint is not None and self.epoch > 0)
            with self._precision():
                out = self._forward(scale(batch))
            # Copies, since the next batch may be written where this one's results are.
            z.append(out.z.clone())
            logits.append(out.logits.to(torch.float32, copy=True))
        self.network.train()
        return torch.cat(z)[:n], torch.cat(logits)[:n]

    def _begin_epoch(self) -> EpochUnderWay:
        """Embed and clean; then a random order of everything."""
        started = time.perf_counter()
        z, logits = self.embed()
        cleaned = self._clean(z, logits)
        _, trusted = self._lesson(cleaned)
        batches = shuffled_batches(len(self.inputs), self.batch, self.generator, trusted)
        totals = torch.zeros(len(TERMS), device=self.device)
        self._wait()
        seconds = time.perf_counter() - started
        if self.on_clean is not None:
            self.on_clean(self.epoch + 1, z, cleaned)
        return EpochUnderWay(cleaned, batches, totals, seconds=seconds, clean_seconds=seconds)

    def _clean(self, z: Tensor, logits: Tensor) -> Cleaned:
        """A step of the cleaner; with a gate, without what lay far from every prototype as it closed.

        Judged anew at every epoch it would leak: prototypes follow what is learned by heart.
        """
        if not bool(z.isfinite().all() & logits.isfinite().all()):
            raise DivergedError(f"the network's outputs are no longer numbers after epoch {self.epoch}")
        cleaner = self.cleaner
        shut = self._gate <= self.epoch and self.settings.gate_from < 1
        if self._warm or not shut or not isinstance(cleaner, GraphCleaner):
            return cleaner.step(z, logits)
        if self._barred is None:
            prototypes = class_prototypes(z, cleaner.labels, cleaner.selected, self.n_classes)
            far = ood_by_humps(measure_closeness(z, prototypes), cleaner.labels.cpu().numpy())
            self._barred = torch.as_tensor(far > 0.5, device=self.device) if far is not None else None
        return cleaner.step(z, logits, barred=self._barred)

    @property
    def _warm(self) -> bool:
        return self.settings.method == "ce" or self.epoch < self.settings.warmup

    def _lesson(self, cleaned: Cleaned) -> tuple[Tensor, Tensor]:
        """The label of every sample, and whether it is trained on: the given ones at first, then ŷ."""
        if self._warm:
            return self.labels.clamp(min=0), self.labels >= 0
        return cleaned.labels, cleaned.selected

    def _compile(self) -> None:
        """From the second epoch on: the first is over before its code would be made."""
        if self._compiled and self.epoch > 0 and not isinstance(self._forward, Compiled):
            self._forward = Compiled(self.network, graphs=self.device.type == "cuda")
            self._views = Views(self.settings, self.generator, compiled=True)

    def _run_epoch(self) -> None:
        self._compile()
        epoch = self._under_way if self._under_way is not None else self._begin_epoch()
        started = time.perf_counter()
        targets, trusted = self._lesson(epoch.cleaned)
        batches = epoch.batches
        # One look at the selection for the whole epoch: how many places each step needs for it.
        places = self._places(trusted[batches].sum(1).tolist())
        left = batches[epoch.step :]
        for indices, batch in zip(left, self.inputs.stream(left), strict=True):
            if self._stop:
                self._check(epoch)
                epoch.seconds += time.perf_counter() - started
                self._under_way = epoch
                raise InterruptedRun(self.epoch + 1, saved=self.checkpoint is not None)
            self._set_lr(self.epoch + epoch.step / len(batches))
            terms = self._step(batch, targets[indices], trusted[indices], places[epoch.step])
            # The first bad step is the last that counts: it spoils the network, and then every term is bad.
            epoch.totals = torch.where(epoch.totals.isfinite().all(), epoch.totals + terms, epoch.totals)
            epoch.step += 1
        self._check(epoch)
        losses = dict(zip(TERMS, (epoch.totals / len(batches)).tolist(), strict=True))
        self._under_way = None
        epoch.seconds += time.perf_counter() - started
        if self.on_epoch is not None:
            self.on_epoch(self._report(epoch, losses, places.count(0)), epoch.cleaned)

    def _check(self, epoch: EpochUnderWay) -> None:
        """Refuse to go on, or to save, where a loss was no number, or the last update left none."""
        bad = [
            name for name, total in zip(TERMS, epoch.totals.tolist(), strict=True) if not math.isfinite(total)
        ]
        if bad:
            raise DivergedError(f"the loss is no longer a number in epoch {self.epoch + 1}: {', '.join(bad)}")
        if not bool(torch.stack([weights.isfinite().all() for weights in self.network.parameters()]).all()):
            raise DivergedError(f"the network's weights are no longer numbers in epoch {self.epoch + 1}")

    def _places(self, counts: list[int]) -> list[int]:
        """Places for so many selected samples a step: as many, or as there is compiled code for."""
        if not self._compiled or not any(counts):
            return counts
        part = -(-self.batch // SIZES)
        enough = min(self.batch, -(-max(counts) // part) * part)
        size = min(size for size in self._sizes if size >= enough)
        steps = (self.settings.epochs - self.epoch) * len(counts)
        if 2 * (size - enough) * steps >= WORTH:
            size = enough
            self._sizes.append(size)
        return [size if count else 0 for count in counts]

    def _report(self, epoch: EpochUnderWay, losses: dict[str, float], empty_steps: int) -> EpochReport:
        cleaned = epoch.cleaned
        sizes = torch.bincount(cleaned.labels[cleaned.selected], minlength=self.n_classes)
        return EpochReport(
            epoch=self.epoch + 1,
            warmup=self._warm,
            losses=losses,
            lr=self.optimiser.param_groups[0]["lr"],
            selected=int(cleaned.selected.sum()),
            confident=int(cleaned.confident.sum()),
            relabelled=int((cleaned.selected & (cleaned.labels != self.labels)).sum()),
            empty_classes=int((sizes == 0).sum()),
            empty_steps=empty_steps,
            seconds=epoch.seconds,
            clean_seconds=epoch.clean_seconds,
        )

    def _step(self, batch: Tensor, targets: Tensor, trusted: Tensor, places: int) -> Tensor:
        """One update; returns the three terms, detached."""
        s = self.settings
        views = self._views(batch)
        batches: list[Tensor] = []
        if not self._warm:
            batches += [views] if s.batch_stats == "together" else views.chunk(2)
        if places:
            mixed, lam, weight = self._mix(views, targets, trusted, places)
            batches.append(mixed.images)
        ce = inst = subgraph = torch.zeros((), device=self.device)
        if not batches:
            return torch.stack([ce, inst, subgraph])
        with self._precision():
            # One after the other: each is normalised by its own batch statistics.
            outputs = [self._forward(batch) for batch in batches]
        if places:
            logits = outputs.pop().logits
            ce = mixup_cross_entropy(logits, mixed.targets, mixed.partner_targets, lam, weight)
        if outputs:
            weak, strong = torch.cat([out.z for out in outputs]).chunk(2)
            inst, subgraph = contrastive_losses(
                weak,
                strong,
                targets,
                trusted,
                tau_inst=s.tau_inst,
                tau_subgraph=s.tau_subgraph,
                positives=s.subgraph_positives,
            )
        # At λ = 0 the contrastive pass stays: it feeds the batch statistics, and its losses are reported.
        total_loss(ce, inst, subgraph, s.lambda_inst, s.lambda_subgraph).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return torch.stack([ce, inst, subgraph]).detach()

    def _mix(
        self, views: Tensor, targets: Tensor, trusted: Tensor, places: int
    ) -> tuple[Mixed, Tensor, Tensor]:
        """Mixup of both views of the batch's trusted samples, its λ, and the weight of each image.

        There may be more places than samples: the rest repeat some with weight 0, since blank images would
        spoil the batch statistics.
        """
        first = trusted.to(torch.uint8).argsort(descending=True, stable=True)
        count = trusted.sum()
        place = torch.arange(places, device=self.device)
        chosen = first[place % count]
        weight = (place < count).float().repeat(2)
        images = views[torch.cat([chosen, chosen + len(targets)])]
        labels = targets[chosen].repeat(2)
        if self.settings.mixup <= 0:
            lam, partner = torch.ones((), device=self.device), torch.arange(2 * places, device=self.device)
        else:
            lam = draw_beta(self.settings.mixup, self.settings.mixup, self.generator)
            partner = torch.randperm(2 * places, generator=self.generator, device=self.device)
        return mixup(images, labels, lam, partner), lam, weight

    def _precision(self) -> Any:
        """bf16 on CUDA, fp32 on the CPU."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _set_lr(self, epoch: float) -> None:
        """Cosine over the epochs, with a linear ramp at the start."""
        s = self.settings
        lr = s.lr_end + (s.lr - s.lr_end) * (1 + math.cos(math.pi * epoch / s.epochs)) / 2
        if epoch < s.ramp:
            lr *= max(epoch / s.ramp, 1e-3)
        for group in self.optimiser.param_groups:
            group["lr"] = lr

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _config(self) -> dict[str, Any]:
        """What a checkpoint must agree with to be resumed."""
        # A generator of one kind of device can't take up another's state.
        size = {"samples": len(self.inputs), "classes": self.n_classes, "device": self.device.type}
        size["labels drawn"] = isinstance(self.cleaner, DrawnLabels)
        learn = {f"learn.{key}": value for key, value in asdict(self.settings).items()}
        return {**learn, **{f"graph.{key}": value for key, value in asdict(self.graph).items()}, **size}

    def _state(self) -> Checkpoint:
        tensors = gather_tensors(self.network, self.optimiser, self.cleaner, self.generator)
        facts = {"epoch": self.epoch, "config": self._config(), "cleaner_epoch": self.cleaner.epoch}
        facts["sizes"] = list(self._sizes)
        if self._barred is not None:
            tensors["gate.barred"] = self._barred
        now = self._under_way
        if now is not None:
            facts |= now.facts()
            tensors |= now.tensors()
        return Checkpoint(tensors, facts)

    def _resume(self) -> None:
        found = load_checkpoint(self.checkpoint, self._config()) if self.checkpoint is not None else None
        if found is None:
            return
        try:
            self._take_up(found)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.checkpoint}: damaged checkpoint: {error}; remove it to start anew"
            ) from error

    def _take_up(self, found: Checkpoint) -> None:
        """Everything as it was when the checkpoint was made."""
        part = sort_tensors(found.tensors)
        where = self.network, self.optimiser, self.cleaner, self.generator
        restore_tensors(part, found.facts["cleaner_epoch"], *where)
        if part["gate"]:
            self._barred = part["gate"]["barred"].to(self.device)
        self.epoch = int(found.facts["epoch"])
        self._sizes = found.facts["sizes"]
        if part["now"]:
            self._under_way = EpochUnderWay.restore(part, found.facts, self.device)


def _check_views(shape: tuple[int, ...], settings: LearnSettings) -> None:
    """Refuse images too small for the views that are asked for, and mirror images of what has none."""
    if settings.mirrored and (len(shape) != 3 or not settings.flip):
        raise InputError("learn.mirrored is for images that are mirrored in training too (learn.flip)")
    if len(shape) != 3:
        return
    size = "×".join(map(str, shape[1:]))
    if settings.crop >= min(shape[1:]):
        raise InputError(f"learn.crop = {settings.crop}: a crop could miss an image of {size} pixels")
    if settings.augmix != "off" and min(shape[1:]) < 3:
        raise InputError(f"learn.augmix = {settings.augmix} needs 3×3 pixels or more, not {size}")


def first_epoch(share: float, epochs: int) -> int:
    """The first epoch, from 0 on, that lies after a share of them."""
    return math.ceil(round(share * epochs, 6))  # 0.55 * 100 is a little over 55


def network_options(settings: LearnSettings) -> dict[str, Any]:
    """What the settings say about the network besides its name."""
    if settings.network.startswith(PREFIX):
        return {"pretrained": settings.pretrained}
    return {"trunk": settings.trunk} if settings.network == "preact-resnet18" else {}
