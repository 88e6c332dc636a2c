"""The training loop: every epoch embeds, cleans by the graph, and trains on what was selected."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.loader import Inputs, ordered_batches, shuffled_batches
from ..graph import Cleaned, GraphCleaner, GraphSettings
from ..ood import class_prototypes
from .augment import augmix, crop_and_flip, draw_beta, mixup
from .checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from .losses import contrastive_losses, mixup_cross_entropy, total_loss
from .networks import build_network
from .settings import LearnSettings

TERMS = ("ce", "inst", "subgraph")
BUCKET = 64
"""Selected samples a step are padded to a multiple of this, so that few shapes occur."""


class DivergedError(RuntimeError):
    """A loss is NaN or infinite; the message says which. The last checkpoint is from before."""


class InterruptedRun(Exception):  # noqa: N818 – it was asked for
    """Training stopped because `Trainer.request_stop` was called; `saved`: a checkpoint lets it go on."""

    def __init__(self, *, saved: bool) -> None:
        super().__init__("training was stopped")
        self.saved = saved


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

    All randomness comes from one generator on the inputs' device; its state is part of a checkpoint, so that
    a resumed run equals one that was never interrupted.
    """

    def __init__(
        self,
        inputs: Inputs,
        labels: Tensor,
        n_classes: int,
        settings: LearnSettings,
        graph: GraphSettings,
        *,
        checkpoint: Path | None = None,
        on_epoch: Callable[[EpochReport, Cleaned], None] | None = None,
    ) -> None:
        self.inputs, self.settings, self.graph = inputs, settings, graph
        self.device, self.n_classes = inputs.device, n_classes
        self.labels = labels.to(self.device).long()
        self.checkpoint, self.on_epoch = checkpoint, on_epoch
        torch.manual_seed(settings.seed)
        self.network = build_network(
            settings.network, n_classes, input_shape=inputs.shape, **_network_options(settings)
        ).to(self.device)
        if self.device.type == "cuda":
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = torch.optim.SGD(
            self.network.parameters(),
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        self.cleaner = GraphCleaner(self.labels, n_classes, graph)
        self.epoch = 0
        self.batch = min(settings.batch, len(inputs))
        self._stop = False

    def request_stop(self) -> None:
        """Save and raise `InterruptedRun` as soon as may be; safe to call from a signal handler."""
        self._stop = True

    def train(self, *, resume: bool = False) -> Trained:
        """All epochs, or those that are left."""
        if resume:
            self._resume()
        while self.epoch < self.settings.epochs:
            self._run_epoch()
            self.epoch += 1
            if self.checkpoint is not None:
                save_checkpoint(self.checkpoint, self._state())
            if self._stop:
                raise InterruptedRun(saved=self.checkpoint is not None)
        z, logits = self.embed()
        cleaned = self.cleaner.step(z, logits)
        prototypes = class_prototypes(z, cleaned.labels, cleaned.selected, self.n_classes)
        return Trained(self.network, z, logits, cleaned, prototypes)

    @torch.no_grad()
    def embed(self, inputs: Inputs | None = None) -> tuple[Tensor, Tensor]:
        """z and logits of every input (of the training set unless others are given), in evaluation mode."""
        inputs = inputs if inputs is not None else self.inputs
        self.network.eval()
        n = len(inputs)
        z, logits = [], []
        for batch in inputs.stream(ordered_batches(n, max(self.batch, 1024), self.device)):
            with self._precision():
                out = self.network(self._scale(batch))
            z.append(out.z.float())
            logits.append(out.logits.float())
        self.network.train()
        return torch.cat(z)[:n], torch.cat(logits)[:n]

    def _run_epoch(self) -> None:
        started = time.perf_counter()
        s = self.settings
        warm = s.method == "ce" or self.epoch < s.warmup
        cleaned = self.cleaner.step(*self.embed())
        self._wait()
        clean_seconds = time.perf_counter() - started
        targets = self.labels.clamp(min=0) if warm else cleaned.labels
        trusted = self.labels >= 0 if warm else cleaned.selected
        batches = shuffled_batches(len(self.inputs), self.batch, self.generator)
        # One look at the selection for the whole epoch: how many places a step needs for it.
        largest = int(trusted[batches].sum(1).max())
        places = min(self.batch, max(BUCKET, -(-largest // BUCKET) * BUCKET))
        totals = torch.zeros(len(TERMS), device=self.device)
        for step, (indices, batch) in enumerate(zip(batches, self.inputs.stream(batches), strict=True)):
            self._set_lr(self.epoch + step / len(batches))
            totals += self._step(batch, targets[indices], trusted[indices], places, contrast=not warm)
        losses = dict(zip(TERMS, (totals / len(batches)).tolist(), strict=True))
        bad = [name for name, value in losses.items() if not math.isfinite(value)]
        if bad:
            raise DivergedError(f"the loss is no longer a number in epoch {self.epoch + 1}: {', '.join(bad)}")
        if self.on_epoch is not None:
            moved = cleaned.selected & (cleaned.labels != self.labels)
            report = EpochReport(
                epoch=self.epoch + 1,
                warmup=warm,
                losses=losses,
                lr=self.optimiser.param_groups[0]["lr"],
                selected=int(cleaned.selected.sum()),
                confident=int(cleaned.confident.sum()),
                relabelled=int(moved.sum()),
                seconds=time.perf_counter() - started,
                clean_seconds=clean_seconds,
            )
            self.on_epoch(report, cleaned)

    def _step(
        self, batch: Tensor, targets: Tensor, trusted: Tensor, places: int, *, contrast: bool
    ) -> Tensor:
        """One update; returns the three terms, detached."""
        s = self.settings
        weak, strong = self._views(batch)
        zero = torch.zeros((), device=self.device)
        inst = subgraph = zero
        with self._precision():
            if contrast:
                out = self.network(torch.cat([weak, strong]))
                z_weak, z_strong = out.z.float().chunk(2)
                inst, subgraph = contrastive_losses(
                    z_weak,
                    z_strong,
                    targets,
                    trusted,
                    tau_inst=s.tau_inst,
                    tau_subgraph=s.tau_subgraph,
                    positives=s.subgraph_positives,
                )
            ce = self._mixup_loss(weak, strong, targets, trusted, places)
        total = total_loss(ce, inst, subgraph, s.lambda_inst, s.lambda_subgraph)
        self.optimiser.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return torch.stack([ce, inst, subgraph]).detach()

    def _mixup_loss(
        self, weak: Tensor, strong: Tensor, targets: Tensor, trusted: Tensor, places: int
    ) -> Tensor:
        """Mixup cross-entropy over both views of the batch's trusted samples, in a fixed number of places.

        Places that are left over repeat trusted samples with weight 0: blank images would spoil the batch
        statistics. Without a trusted sample every weight is 0, and so is the term.
        """
        first = trusted.to(torch.uint8).argsort(descending=True, stable=True)
        count = trusted.sum()
        place = torch.arange(places, device=self.device)
        chosen = first[place % count.clamp(min=1)]
        weight = (place < count).float().repeat(2)
        images = torch.cat([weak[chosen], strong[chosen]])
        labels = targets[chosen].repeat(2)
        if self.settings.mixup <= 0:
            lam, partner = torch.ones((), device=self.device), torch.arange(2 * places, device=self.device)
        else:
            lam = draw_beta(self.settings.mixup, self.settings.mixup, self.generator)
            partner = torch.randperm(2 * places, generator=self.generator, device=self.device)
        mixed = mixup(images, labels, lam, partner)
        logits = self.network(mixed.images).logits
        return mixup_cross_entropy(logits, mixed.targets, mixed.partner_targets, lam, weight)

    def _views(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """A weak and a strong view of every input, scaled."""
        s = self.settings
        if batch.is_floating_point():
            return self._jitter(batch), self._jitter(batch)
        views = []
        for strong in (False, True):
            view = batch
            if s.crop > 0 or s.flip:
                view = crop_and_flip(batch, self.generator, pad=s.crop, flip=s.flip)
            if strong and s.augmix != "off":
                views.append(self._scale(augmix(view, self.generator, variant=s.augmix)))
            else:
                views.append(self._scale(view))
        return views[0], views[1]

    def _jitter(self, batch: Tensor) -> Tensor:
        if self.settings.noise == 0:
            return batch
        noise = torch.empty_like(batch).normal_(generator=self.generator)
        return batch + self.settings.noise * noise

    def _scale(self, batch: Tensor) -> Tensor:
        """Images from 0..255 to about −2..2; features as they are."""
        if len(self.inputs.shape) == 1:
            return batch
        x = (batch.float() - 127.5) / 64
        return x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x

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
        size = {"samples": len(self.inputs), "classes": self.n_classes}
        learn = {f"learn.{key}": value for key, value in asdict(self.settings).items()}
        return {**learn, **{f"graph.{key}": value for key, value in asdict(self.graph).items()}, **size}

    def _state(self) -> Checkpoint:
        tensors = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            buffer = self.optimiser.state[parameter].get("momentum_buffer")
            if buffer is not None:
                tensors[f"momentum.{name}"] = buffer
        cleaner = self.cleaner.state_dict()
        tensors |= {f"cleaner.{key}": value for key, value in cleaner.items() if isinstance(value, Tensor)}
        tensors |= {"rng.own": self.generator.get_state(), "rng.global": torch.get_rng_state()}
        return Checkpoint(
            tensors, {"epoch": self.epoch, "config": self._config(), "cleaner_epoch": self.cleaner.epoch}
        )

    def _resume(self) -> None:
        found = load_checkpoint(self.checkpoint, self._config()) if self.checkpoint is not None else None
        if found is None:
            return
        part: dict[str, dict[str, Tensor]] = {"network": {}, "momentum": {}, "cleaner": {}, "rng": {}}
        for name, tensor in found.tensors.items():
            prefix, _, rest = name.partition(".")
            part[prefix][rest] = tensor
        self.network.load_state_dict(part["network"])
        for name, parameter in self.network.named_parameters():
            if name in part["momentum"]:
                self.optimiser.state[parameter]["momentum_buffer"] = part["momentum"][name].to(parameter)
        facts = {"settings": asdict(self.graph), "epoch": found.facts["cleaner_epoch"]}
        self.cleaner.load_state_dict({**facts, **part["cleaner"]})
        self.generator.set_state(part["rng"]["own"])
        torch.set_rng_state(part["rng"]["global"])
        self.epoch = int(found.facts["epoch"])


def _network_options(settings: LearnSettings) -> dict[str, Any]:
    return {"final_norm": settings.final_norm} if settings.network == "preact-resnet18" else {}
