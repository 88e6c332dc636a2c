"""The metrics of each training epoch, for TensorBoard and MLflow; each is an extra."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import InputError, arg, extra, suggest
from .callbacks import Metrics

Callback: TypeAlias = Callable[[Metrics, int], None]
"""Called after every epoch with its metrics (those of `metrics.jsonl`) and the number of epochs."""


@contextmanager
def open_callbacks(chosen: Sequence[str | Callback], run: Path) -> Iterator[Callback]:
    """Combine callbacks into one; named trackers are opened here, before data is read, and always closed."""
    with ExitStack() as open_ones:
        called: list[Callback] = []
        for one in chosen:
            if not isinstance(one, str):
                called.append(one)
            elif one in TRACKERS:
                called.append(open_ones.enter_context(TRACKERS[one](run)))
            else:
                raise InputError(f"{arg('log_to')} {one}: no such tracker; {suggest(one, TRACKERS)}")

        def call(metrics: Metrics, epochs: int) -> None:
            for one in called:
                one(metrics, epochs)

        yield call


def scalars(metrics: Metrics, prefix: str = "") -> dict[str, float]:
    """The numbers among metrics, by name; those in a group as `group/name`, as both tools show groups."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, dict):
            found |= scalars(value, f"{prefix}{name}/")
        elif isinstance(value, Real) and not isinstance(value, bool) and name != "epoch":
            found[f"{prefix}{name}"] = float(value)
    return found


@contextmanager
def _tensorboard(run: Path) -> Iterator[Callback]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(f"{arg('log_to')} tensorboard needs {extra('tensorboard')}") from error
    writer: Any = None

    def write(metrics: Metrics, _: int) -> None:
        nonlocal writer
        if writer is None:  # a run that is refused writes nothing
            writer = SummaryWriter(str(run.parent / "tensorboard" / run.name))
        for name, value in scalars(metrics).items():
            writer.add_scalar(name, value, metrics["epoch"])

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()


@contextmanager
def _mlflow(run: Path) -> Iterator[Callback]:
    try:
        import mlflow
    except ImportError as error:
        raise InputError(f"{arg('log_to')} mlflow needs {extra('mlflow')}") from error
    began = False

    def write(metrics: Metrics, _: int) -> None:
        nonlocal began
        if not began:
            mlflow.start_run(run_name=run.name)
            began = True
        mlflow.log_metrics(scalars(metrics), step=metrics["epoch"])

    status = "FAILED"
    try:
        yield write
        status = "FINISHED"
    finally:
        if began:
            mlflow.end_run(status)


TRACKERS = {"tensorboard": _tensorboard, "mlflow": _mlflow}
