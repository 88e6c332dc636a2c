"""The training loop: epochs, learning rate, precision, compilation and checkpoints; methods do the rest."""

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config import TrainingSettings
from ..distributed.group import Group, current
from ..distributed.norm import share_batch_norm
from ..errors import InputError, arg
from ..ood import class_prototypes
from .average import NetworkAverages
from .batches import Inputs, SharedInputs, SomeInputs, check_division, shuffled_batches
from .checkpoint import Checkpoint, CheckpointWriter, load_shared
from .code_cache import keeping_code
from .compile import Compiled, trying_convolutions
from .method import Batch, Method, Prior, Trusted, hold_decided, join_state, split_state
from .networks import Network, Output, build_network, network_options
from .optimizers import Optimizers
from .outcome import (
    DivergedError,
    EpochReport,
    InterruptedRun,
    OnEpoch,
    OnSelection,
    OnStart,
    Trained,
    check_finite,
)
from .passes import divide, evaluate
from .schedule import learning_rate, phase_around, total_loss
from .self_supervised import SelfSupervisedStart
from .state import (
    EpochState,
    follow_state,
    gather_generators,
    gather_optimizers,
    own_randomness,
    restore_generators,
    restore_optimizers,
    seeded,
)
from .views import Views, check_views

EVAL_BATCHES = 4
"""Training batches that one evaluation batch holds: without gradients they fit into memory."""
COMPILE_FROM = 4_000_000
"""Total number of training samples from which compiling saves more than the minute and a half it costs."""


class Trainer:
    """Trains with a method on inputs with unreliable labels.

    All randomness comes from one generator on the inputs' device, except for dropout, which uses PyTorch's
    own; their states are part of a checkpoint, so that a resumed run equals an uninterrupted one. In a group,
    each process makes the same decisions on whole batches, and networks are applied by parts. The trainer is
    also the `TrainerContext` passed to the method.
    """

    def __init__(
        self,
        inputs: Inputs,
        labels: Tensor,
        n_classes: int,
        settings: TrainingSettings,
        method: Method,
        *,
        prior: Prior | None = None,
        trusted: Trusted | None = None,
        decided: Tensor | None = None,
        checkpoint: Path | None = None,
        group: Group | None = None,
    ) -> None:
        """`prior`: verdicts on the inputs, if the method needs them; for `decided` see `TrainerContext`."""
        self.group = group if group is not None else current()
        check_views(inputs.shape, settings)
        if "trusted samples" in method.info.needs and trusted is None:
            raise InputError(
                f"method.name={method.info.name} learns from samples whose labels are known to be right; "
                f"`graphclean train` takes them as {arg('validation')}"
            )
        self.trusted = trusted
        self.inputs, self.settings, self.method, self.prior = inputs, settings, method, prior
        self.device, self.n_classes = inputs.device, n_classes
        self.given = labels.to(self.device).long()
        self.decided = decided.to(self.device) if decided is not None else None
        self.checkpoint = checkpoint
        on_gpu = self.device.type == "cuda"
        self.batch_size = min(settings.batch_size, len(inputs))
        check_division(self.batch_size, self.group)
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        work = (settings.self_supervised_epochs + settings.epochs) * len(inputs)
        long = on_gpu and len(inputs.shape) == 3 and work >= COMPILE_FROM
        wanted = settings.compile == "on" or (settings.compile == "auto" and long)
        self.compiled = wanted and settings.epochs > 1 and not self.group.several
        with seeded(settings.seed, self.device):
            method.setup(self)
        self.group.follow(list(method.state_dict().values()))
        self.optimizers = Optimizers(method, settings, self.group, fused=on_gpu)
        learning = {
            name: network
            for name, network in method.networks.items()
            if any(weights.requires_grad for weights in network.parameters())
        }
        self._start = SelfSupervisedStart(tuple(learning))
        self._averages = NetworkAverages(learning, settings.ema_decay)
        self.epoch = self.part = 0
        self.started = 0
        """Completed self-supervised epochs."""
        self._start_seconds = 0.0
        self._forwards: dict[str, Callable[[Tensor], Output]] = dict(method.networks.items())
        self._views = Views(settings, self.generator, group=self.group)
        self._state: EpochState | None = None
        """State of the current epoch."""
        self._stop = False

    @property
    def step(self) -> int:
        """Number of completed steps of this part of the epoch."""
        return self._state.step if self._state is not None else 0

    @property
    def _starting(self) -> bool:
        """Whether self-supervised epochs remain."""
        return self.started < self.settings.self_supervised_epochs

    @property
    def _leader(self) -> Method | SelfSupervisedStart:
        """Decides what is trained on at present, and with which losses."""
        return self._start if self._starting else self.method

    def new_network(self) -> Network:
        """A network as configured in the settings."""
        options = network_options(self.settings)
        network = build_network(
            self.settings.network, self.n_classes, input_shape=self.inputs.shape, **options
        )
        network = share_batch_norm(network, self.group).to(self.device)
        if self.device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return network

    def shuffle(self, even: Tensor | None = None) -> Tensor:
        """All samples in random order, in batches."""
        even = even if even is not None else self.given >= 0
        return shuffled_batches(len(self.inputs), self.batch_size, self.generator, even)

    def views(self, inputs: Tensor, *, strong: bool = True, smallest: float = 1) -> Tensor:
        """Weak views followed by strong ones, or by other weak ones."""
        return self._views(inputs, strong=strong, smallest=smallest)

    def weak_view(self, inputs: Tensor) -> Tensor:
        """One weak view of each input."""
        return self._views.weak(inputs)

    def forward(self, *batches: Tensor, network: str = "main") -> Sequence[Output]:
        """Apply a network to each batch separately, so that each is normalized by its own statistics.

        Without gradients the outputs are copies, because compiled code overwrites its own.
        """
        forward = self._forwards[network]
        with self._precision():
            if isinstance(forward, Compiled) and not torch.is_grad_enabled():
                return [Output(*map(torch.clone, forward(batch))) for batch in batches]
            return [divide(forward, batch, self.group) for batch in batches]

    def request_stop(self) -> None:
        """Ask a running job to save a checkpoint and raise `InterruptedRun`; safe in a signal handler."""
        self._stop = True

    def train(
        self,
        *,
        resume: bool = False,
        on_epoch: OnEpoch | None = None,
        on_selection: OnSelection | None = None,
        on_start: OnStart | None = None,
    ) -> Trained:
        """Run all epochs, or the remaining ones; the caller's random state and flags are restored.

        `on_selection` is called when an epoch has decided what to train on, `on_epoch` at the end of an
        epoch, and `on_start` at the end of a self-supervised epoch.
        """
        with (
            seeded(self.settings.seed, self.device),
            trying_convolutions(self.compiled),
            keeping_code(self.device, wanted=self.compiled),
        ):
            if resume:
                self._resume()
            return self._train(on_epoch, on_selection, on_start)

    def _train(
        self, on_epoch: OnEpoch | None, on_selection: OnSelection | None, on_start: OnStart | None
    ) -> Trained:
        folder = self.checkpoint if self.group.leads else None
        writer = CheckpointWriter(folder) if folder is not None else None
        try:
            while self._starting:
                self._run_start()
                if on_start is not None:
                    on_start(self.started, self.settings.self_supervised_epochs)
                if writer is not None:
                    writer.save(self._make_checkpoint())
            while self.epoch < self.settings.epochs:
                report = self._run_epoch(on_selection)
                if on_epoch is not None:
                    on_epoch(report, self.method.selection(self))
                self.epoch += 1
                if writer is not None:
                    writer.save(self._make_checkpoint())
            self._prepare_prediction()
            self.method.fit_predictor(self)
            out = self.embed()
        except InterruptedRun:
            if writer is not None and self._state is not None:
                writer.save(self._make_checkpoint())
            raise
        finally:
            if writer is not None:
                writer.wait()
        for average in self._averages.values():
            average.settle()
        concluded = self.method.conclude(self, out.z, out.logits)
        selection = hold_decided(concluded, self.decided, self.n_classes)
        prototypes = class_prototypes(out.z, selection.labels, selection.selected, self.n_classes)
        return Trained(
            self.method.predictor(), out.z, out.logits, selection, prototypes, self.method.notes(self)
        )

    def _prepare_prediction(self) -> None:
        """Compile the networks, except with flip TTA: compiling again would take longer than the passes."""
        if not self.settings.flip_tta:
            self._compile()
            return
        for name, network in self.method.networks.items():
            network.flip_tta, self._forwards[name] = True, network  # type: ignore[assignment]

    def embed(
        self,
        network: str | Callable[[Tensor], Output] | None = None,
        *,
        weak: bool = False,
        features: bool = False,
        rows: Tensor | None = None,
        inputs: Inputs | None = None,
    ) -> Output:
        """z and logits of all inputs in evaluation mode: the training set, or `inputs` if given.

        `network` defaults to the predictor. The pass can use a `weak` view of each input, return the trunk's
        `features`, and be limited to some `rows`.
        """
        forward = self._forwards[network] if isinstance(network, str) else network or self._predictor()
        given = inputs if inputs is not None else self.inputs
        given = given if rows is None else SomeInputs(given, rows)
        with torch.no_grad(), self._averages.judging():
            out = self._embed(forward, given, weak=weak, features=features)
        if inputs is None and not bool(out.z.isfinite().all() & out.logits.isfinite().all()):
            raise DivergedError(f"the network's outputs are no longer numbers after epoch {self.epoch}")
        return out

    def _predictor(self) -> Callable[[Tensor], Output]:
        """The predictor, in compiled form if it is one of the networks."""
        predictor = self.method.predictor()
        named = (name for name, network in self.method.networks.items() if network is predictor)
        name = next(named, None)
        return self._forwards[name] if name is not None else predictor

    def _embed(
        self, forward: Callable[[Tensor], Output], inputs: Inputs, *, weak: bool, features: bool
    ) -> Output:
        def pause() -> None:
            # Other inputs are scored at the end of an epoch, which must be saved before stopping.
            if inputs is self.inputs and self._stopping():
                epoch = min(self.epoch + 1, self.settings.epochs)
                raise InterruptedRun(
                    epoch, saved=self.checkpoint is not None and self.epoch + self.started > 0
                )

        def run(batch: Tensor) -> Output:
            with self._precision():
                return forward(batch)

        self.method.eval()
        size = min(len(self.inputs), EVAL_BATCHES * self.batch_size)
        views = self._views if weak else None
        out = evaluate(run, inputs, size, self.group, views=views, features=features, pause=pause)
        self.method.train()
        return out

    def _stopping(self) -> bool:
        """Whether to stop, which the leading process decides."""
        return self.group.agree(self._stop)

    def _compile(self) -> None:
        """Compile from the second epoch on: the first takes less time than compiling."""
        if (
            self.compiled
            and self.epoch + self.started > 0
            and not isinstance(self._forwards["main"], Compiled)
        ):
            for name, network in self.method.networks.items():
                self._forwards[name] = Compiled(network, graphs=self.device.type == "cuda")
            self._views = Views(self.settings, self.generator, compiled=True)

    def _begin_part(self, before: EpochState | None, on_selection: OnSelection | None) -> EpochState:
        """Ask the method for the next part of the epoch."""
        started = time.perf_counter()
        self._state = None
        self.part = before.part + 1 if before is not None else 0
        streams = self._leader.begin_epoch(self)
        follow_state(self.group, streams, None if self._starting else self.method)
        phases = self.method.phases(self.settings.epochs)
        if before is None and not self._starting and self.epoch in phases[1:]:
            self._begin_again()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - started
        state = EpochState.begin(streams, before, len(self._leader.weights), seconds)
        if before is None and self.epoch == 0:
            state.seconds += self._start_seconds
        if on_selection is not None and before is None:
            on_selection(self.epoch + 1, self.method.selection(self))
        return state

    def _run_start(self) -> None:
        """One self-supervised epoch; after the last one, training starts as from initial weights."""
        self._compile()
        self._state = self._state if self._state is not None else self._begin_part(None, None)
        self._run_part(self._state, 1)
        self._start_seconds = self._state.seconds
        self._state = None
        self.started += 1
        if not self._starting:
            self._begin_again()

    def _begin_again(self) -> None:
        """Treat the current weights as initial ones: reset momentum and weight averages."""
        self.optimizers.forget()
        for average in self._averages.values():
            average.restart()

    def _run_epoch(self, on_selection: OnSelection | None) -> EpochReport:
        self._compile()
        parts = self.method.parts(self.epoch)
        state = self._state if self._state is not None else self._begin_part(None, on_selection)
        while True:
            self._state = state
            self._run_part(state, parts)
            if state.part + 1 == parts:
                break
            state = self._begin_part(state, None)
        report = self._report(state)
        self._state = None
        return report

    def _run_part(self, state: EpochState, parts: int) -> None:
        started = time.perf_counter()
        count = len(state.streams[0])
        left = [stream[state.step :] for stream in state.streams]
        shared = SharedInputs(self.inputs, self.group)
        inputs = zip(*(shared.stream(stream) for stream in left), strict=True)
        for indices, found in zip(zip(*left, strict=True), inputs, strict=True):
            if self._stopping():
                self._check(state)
                state.seconds += time.perf_counter() - started
                raise InterruptedRun(self.epoch + 1, saved=self.checkpoint is not None)
            self._set_lr((state.part + state.step / count) / parts)
            terms = self._step(
                [Batch(rows, batch, self.given[rows]) for rows, batch in zip(indices, found, strict=True)]
            )
            # Stop adding after the first non-finite step: it spoils the network, so all later losses are bad.
            state.totals = torch.where(state.totals.isfinite().all(), state.totals + terms, state.totals)
            state.step += 1
        self._check(state)
        state.seconds += time.perf_counter() - started

    def _step(self, batches: list[Batch]) -> Tensor:
        """One update; returns all losses, detached."""
        leader = self._leader
        key = (self.settings.seed, self.started, self.epoch, self.part, self.step)
        with own_randomness(self.group, self.device, *key):
            losses = leader.losses(self, *batches)
        if losses:
            total_loss(losses, leader.weights).backward()  # type: ignore[no-untyped-call]
            self.optimizers.average_gradients()
            averages = self._averages.of_step()
            self.optimizers.step()
            if leader is self.method:
                for average in averages:
                    average.update()
            leader.after_step(self, *batches)
        none = torch.zeros((), device=self.device)
        return torch.stack([losses.get(name, none) for name in leader.weights]).detach()

    def _check(self, state: EpochState) -> None:
        """Refuse to continue or save if a loss or a weight is not finite."""
        where = f"self-supervised epoch {self.started + 1}" if self._starting else f"epoch {self.epoch + 1}"
        totals = dict(zip(self._leader.weights, state.totals.tolist(), strict=True))
        check_finite(where, totals, self.method.networks.parameters())

    def _report(self, state: EpochState) -> EpochReport:
        chosen, weights = self.method.selection(self), self.method.weights
        sizes = torch.bincount(chosen.labels[chosen.selected], minlength=self.n_classes)
        losses = dict(zip(weights, (state.totals / state.steps).tolist(), strict=True))
        return EpochReport(
            epoch=self.epoch + 1,
            losses=losses,
            loss=sum(weights[name] * value for name, value in losses.items()),
            lr=self.optimizers.lr,
            selected=int(chosen.selected.sum()),
            relabeled=int((chosen.selected & (chosen.labels != self.given)).sum()),
            empty_classes=int((sizes == 0).sum()),
            seconds=state.seconds,
            clean_seconds=state.clean_seconds,
            own=self.method.metrics(self),
        )

    def _precision(self) -> Any:
        """bf16 on CUDA, fp32 on the CPU."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")

    def _set_lr(self, past: float) -> None:
        """Set the learning rate: a cosine over each phase, and over the self-supervised epochs."""
        if self._starting:
            epoch, epochs = self.started + past, self.settings.self_supervised_epochs
        else:
            start, end = phase_around(
                self.epoch, self.method.phases(self.settings.epochs), self.settings.epochs
            )
            epoch, epochs = self.epoch - start + past, end - start
        self.optimizers.set_lr(learning_rate(self.settings, epoch, epochs))

    def _config(self) -> dict[str, Any]:
        """The configuration that a checkpoint must match to be resumed."""
        # The state of a generator can't be restored on another kind of device.
        size = {"samples": len(self.inputs), "classes": self.n_classes, "device": self.device.type}
        size["verdicts on features"] = self.prior is not None
        if self.trusted is not None:
            size["trusted samples"] = zlib.crc32(self.trusted.labels.cpu().numpy().tobytes())
        training = {f"training.{key}": value for key, value in asdict(self.settings).items()}
        return {**training, **self.method.describe(), **size}

    def _make_checkpoint(self) -> Checkpoint:
        parts = {"optimizer": gather_optimizers(self.optimizers), "rng": gather_generators(self.generator)}
        if self.epoch == 0 and (self._starting or self._state is None):
            parts["networks"] = self.method.networks.state_dict()  # the method has not started
        else:
            parts["method"] = self.method.save_state()
        if self._averages:
            parts["average"] = self._averages.save_state()
        facts = {
            "epoch": self.epoch,
            "started": self.started,
            "start_seconds": self._start_seconds,
            "config": self._config(),
        }
        if self._state is not None:
            facts |= self._state.facts()
            parts["now"] = self._state.tensors()
        return Checkpoint(join_state(parts), facts)

    def _resume(self) -> None:
        if self.checkpoint is None:
            return
        found = load_shared(self.checkpoint, self._config(), self.group)
        if found is None:
            return
        try:
            self._restore(found)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"{self.checkpoint}: damaged checkpoint: {reason}; remove it to start again"
            ) from error

    def _restore(self, found: Checkpoint) -> None:
        """Restore the state at the time of the checkpoint."""
        parts = split_state(found.tensors)
        if "networks" in parts:
            self.method.networks.load_state_dict(parts["networks"])
        else:
            self.method.load_state(parts["method"])
        if self._averages:
            self._averages.load_state(parts["average"])
        restore_optimizers(self.optimizers, parts["optimizer"])
        restore_generators(self.generator, parts["rng"])
        self.epoch, self.started = int(found.facts["epoch"]), int(found.facts["started"])
        self._start_seconds = float(found.facts["start_seconds"])
        if "now" in parts:
            self._state = EpochState.restore(parts["now"], found.facts, self.device)
            self.part = self._state.part
