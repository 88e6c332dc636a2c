"""Metrics of training for TensorBoard and MLflow: with stand-ins, and with the real ones where installed."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphclean
from graphclean.cli.app import main
from graphclean.data.digits import noisy_digits
from graphclean.errors import InputError
from graphclean.runs.trackers import open_callbacks, scalars

SHORT = {"training.epochs": 2, "method.warmup_epochs": 1, "training.network": "small-conv"}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """All calls of both tools."""
    calls: list[tuple[Any, ...]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            calls.append(("open", Path(folder)))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            calls.append((name, value, step))

        def close(self) -> None:
            calls.append(("close",))

    board, flow = ModuleType("torch.utils.tensorboard"), ModuleType("mlflow")
    board.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    flow.start_run = lambda run_name: calls.append(("start", run_name))  # type: ignore[attr-defined]
    flow.log_metrics = lambda found, step: calls.append(("log", found, step))  # type: ignore[attr-defined]
    flow.end_run = lambda status: calls.append(("end", status))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "mlflow", flow)
    return calls


def test_numbers_are_found_by_name() -> None:
    metrics = {
        "epoch": 3,
        "losses": {"ce": 0.5, "inst": None},
        "warmup": True,
        "lr": np.float32(0.1),
        "why": "x",
    }
    assert scalars(metrics) == {"losses/ce": 0.5, "lr": pytest.approx(0.1)}


def test_tensorboard_gets_every_epoch_next_to_the_run(written: list[Any]) -> None:
    with open_callbacks(["tensorboard"], Path("runs/x")) as call:
        assert written == []  # a run that is refused leaves nothing
        call({"epoch": 1, "lr": 0.5}, 2)
        call({"epoch": 2, "lr": 0.25}, 2)
    assert written == [("open", Path("runs/tensorboard/x")), ("lr", 0.5, 1), ("lr", 0.25, 2), ("close",)]


def test_mlflow_gets_a_run(written: list[Any]) -> None:
    with open_callbacks(["mlflow"], Path("runs/x")) as call:
        call({"epoch": 1, "lr": 0.5}, 1)
    assert written == [("start", "x"), ("log", {"lr": 0.5}, 1), ("end", "FINISHED")]


def test_mlflow_run_fails_with_training(written: list[Any]) -> None:
    opened = open_callbacks(["mlflow"], Path("runs/x"))
    opened.__enter__()({"epoch": 1, "lr": 0.5}, 1)
    stop = KeyboardInterrupt()
    assert not opened.__exit__(KeyboardInterrupt, stop, None)
    assert written[-1] == ("end", "FAILED")


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_extra_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, {"tensorboard": "torch.utils.tensorboard"}.get(name, name), None)
    with pytest.raises(InputError, match=rf'^log_to {name} needs the extra "{name}": pip install'):
        open_callbacks([name], Path("x")).__enter__()


def test_an_unknown_tracker_gets_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "x.npz", features=np.eye(4), labels=[0, 0, 1, 1])
    with pytest.raises(SystemExit) as stop:
        main(["train", str(tmp_path / "x.npz"), "--log-to", "tensorbord"])
    assert stop.value.code == 2
    assert "--log-to tensorbord: no such tracker; did you mean tensorboard" in capsys.readouterr().err


def train_with(tracker: str, out: Path) -> list[dict[str, float]]:
    """Train briefly with a tracker; the numbers in the metrics file by epoch."""
    digits = noisy_digits()
    images, labels = digits.images[:240], digits.labels[:240]
    run = graphclean.train(
        images, labels, preset="demo", settings=SHORT, out=out, log_to=[tracker], quiet=True
    )
    return [scalars(json.loads(line)) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the tool's own packages
def test_real_tensorboard_files_hold_the_metrics(tmp_path: Path, one_thread: None) -> None:
    del one_thread
    reason = 'needs the extra "tensorboard"'
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=reason)
    metrics = train_with("tensorboard", tmp_path / "runs/x")
    events = reading.EventAccumulator(str(tmp_path / "runs/tensorboard/x"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set().union(*metrics)
    for name in set().union(*metrics):
        found = {event.step: event.value for event in events.Scalars(name)}
        due = {epoch: values[name] for epoch, values in enumerate(metrics, 1) if name in values}
        assert found == pytest.approx(due, rel=1e-6)  # stored as float32


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the tool's own packages
def test_a_real_mlflow_run_holds_the_metrics(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del one_thread
    mlflow = pytest.importorskip("mlflow", reason='needs the extra "mlflow"')
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    metrics = train_with("mlflow", tmp_path / "runs/x")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
    assert (run.info.run_name, run.info.status) == ("x", "FINISHED")
    assert set(run.data.metrics) == set().union(*metrics)
    for name in run.data.metrics:
        found = {each.step: each.value for each in client.get_metric_history(run.info.run_id, name)}
        assert found == {epoch: values[name] for epoch, values in enumerate(metrics, 1) if name in values}


@pytest.mark.slow
def test_training_logs_what_its_metrics_file_holds(
    tmp_path: Path, written: list[Any], one_thread: None
) -> None:
    del one_thread
    digits, heard = noisy_digits(), []
    run = graphclean.train(
        digits.images[:240],
        digits.labels[:240],
        preset="demo",
        settings=SHORT,
        out=tmp_path / "run",
        log_to=["mlflow", lambda metrics, epochs: heard.append((metrics["epoch"], epochs))],
        quiet=True,
    )
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    logged = [call for call in written if call[0] == "log"]
    assert [step for _, _, step in logged] == [1, 2]
    assert [found for _, found, _ in logged] == [pytest.approx(scalars(line)) for line in lines]
    assert heard == [(1, 2), (2, 2)]


def test_devices_of_apple_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features, labels = np.eye(4), [0, 0, 1, 1]
    with pytest.raises(InputError, match=r"^device mps: GPUs of Apple are not supported; use cpu$"):
        graphclean.train(features, labels, device="mps", out=tmp_path / "run", quiet=True)
    np.savez(tmp_path / "x.npz", features=features, labels=labels)
    with pytest.raises(SystemExit) as stop:
        main(["train", str(tmp_path / "x.npz"), "--device", "mps"])
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "'mps' is not one of 'auto', 'cpu', 'cuda'" in err
