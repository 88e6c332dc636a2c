"""Training in several processes: the same as in one, for every method, and resumed in any number."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphclean.distributed.group import ALONE, Group, use
from graphclean.errors import InputError
from graphclean.graph import knn, propagation
from graphclean.methods import method_names
from graphclean.methods.ngc import NGC
from graphclean.training import InterruptedRun, Trained, Trainer
from graphclean.training.batches import ResidentInputs, StreamedInputs
from graphclean.training.state import follow_state
from tests.methods.test_registry import EVERY_PART, HEAVY, LEARN, UNLIKE, build, digits, prepare, run
from tests.processes import together

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

ROUNDING = 1e-3
"""How far outputs in single precision may differ after three epochs: training amplifies rounding.

Most methods stay below 1e-6, those that fit mixtures to losses below 1e-4.
"""
EXACT = 1e-9
"""The same in double precision."""
SINGLE = ("dividemix", "dividemix-1", "c2d", "f-correction")
"""Methods whose stores or tables are in single precision, whatever the network's is."""
DOUBLE = [name for name in (*method_names(), EVERY_PART) if name not in SINGLE]


@dataclasses.dataclass
class Result:
    """What training gave, without what can't be sent."""

    weights: list[Tensor]
    z: Tensor
    logits: Tensor
    labels: Tensor
    selected: Tensor
    losses: list[float]

    @classmethod
    def of(cls, trained: Trained, losses: list[float]) -> "Result":
        chosen, weights = trained.selection, list(trained.network.state_dict().values())
        return cls(weights, trained.z, trained.logits, chosen.labels, chosen.selected, losses)


def train_each(group: Group, names: list[str], settings: Any, double: bool) -> list[Result]:  # noqa: ARG001
    """Each method once, in a process that may compute everything in double precision from here on."""
    if double:
        torch.set_default_dtype(torch.float64)
        torch.Tensor.float = torch.Tensor.double  # type: ignore[assignment, method-assign]
    found = []
    for name in names:
        trained, reports, _ = run(prepare(build(name), settings=settings))
        found.append(Result.of(trained, [report.loss for report in reports]))
    return found


def assert_close(ours: Result, theirs: Result, name: str, atol: float = ROUNDING) -> None:
    for part in ("z", "logits", "weights"):
        both = getattr(ours, part), getattr(theirs, part)
        torch.testing.assert_close(*both, atol=atol, rtol=atol, msg=lambda text: f"{name}: {text}")
    assert torch.equal(ours.labels, theirs.labels), name
    assert torch.equal(ours.selected, theirs.selected), name
    np.testing.assert_allclose(ours.losses, theirs.losses, rtol=atol, atol=atol, err_msg=name)


@pytest.mark.parametrize(
    ("size", "names", "settings", "double"),
    [
        (2, DOUBLE, LEARN, True),
        (3, [EVERY_PART, "elr", "mlnt"], LEARN, True),
        (2, [name for name in UNLIKE if name not in SINGLE], HEAVY, True),
        (2, SINGLE, LEARN, False),
    ],
    ids=["two", "three", "two with all that training may use", "two in single precision"],
)
def test_every_method_trains_as_in_one_process(
    size: int, names: list[str], settings: Any, double: bool
) -> None:
    (alone,) = together(1, train_each, names, settings, double)
    everyone = together(size, train_each, names, settings, double)
    for number, name in enumerate(names):
        assert_close(everyone[0][number], alone[number], name, atol=EXACT if double else ROUNDING)
        for other in everyone[1:]:  # to the bit: they would drift apart otherwise
            assert_close(other[number], everyone[0][number], name, atol=0)


def no_norm(group: Group, batch_size: int) -> Result:  # noqa: ARG001
    """On features, with a network that has no batch statistics."""
    pixels, labels, _ = digits(150)
    settings = dataclasses.replace(LEARN, network="embedding-head", batch_size=batch_size)
    made = Trainer(ResidentInputs(pixels.flatten(1).float() / 255), labels, 8, settings, build("ngc"))
    trained, reports, _ = run(made)
    return Result.of(trained, [report.loss for report in reports])


@pytest.mark.parametrize("batch_size", [32, 31])
def test_without_batch_statistics_it_agrees_to_a_millionth(batch_size: int) -> None:
    alone = no_norm(ALONE, batch_size)
    for found in together(3, no_norm, batch_size):
        assert_close(found, alone, "ngc", atol=1e-6)


def stop_or_go_on(
    group: Group, name: str, folder: Path, stop: tuple[int, int] | None, resume: bool
) -> Result | int:
    """Only the leading process hears the request to stop, and only it has the folder."""
    method = build(name, stop=stop if group.leads else None)
    made = prepare(method, folder if group.leads else folder / "elsewhere")
    try:
        trained, reports, _ = run(made, resume=resume)
    except InterruptedRun as stopped:
        return stopped.epoch
    return Result.of(trained, [report.loss for report in reports])


@pytest.mark.parametrize("name", [EVERY_PART, "elr", "dividemix"])
def test_a_run_resumes_in_another_number_of_processes(name: str, tmp_path: Path) -> None:
    """In the middle of an epoch, also with a store per sample."""
    whole, _, _ = run(prepare(build(name)))
    expected = Result.of(whole, [])
    assert together(2, stop_or_go_on, name, tmp_path, (1, 1), False) == [2, 2]
    (saved,) = tmp_path.iterdir()
    assert "epoch-00001-step" in saved.name
    three = together(3, stop_or_go_on, name, tmp_path, (2, 0), True)
    assert three == [3, 3, 3]
    found = stop_or_go_on(ALONE, name, tmp_path, None, True)
    assert isinstance(found, Result)
    assert len(found.losses) == 1
    found.losses = []
    assert_close(found, expected, name)
    assert not (tmp_path / "elsewhere").exists()


def stream(group: Group) -> tuple[Result, int]:  # noqa: ARG001
    """Inputs that are read: how many rows this process has read, too."""
    pixels, labels, _ = digits(120)
    rows = 0

    def read(indices: Tensor) -> Tensor:
        nonlocal rows
        rows += len(indices)
        return pixels[indices]

    inputs = StreamedInputs(read, 120, (1, 8, 8), torch.device("cpu"))
    trained, reports, _ = run(Trainer(inputs, labels, 8, LEARN, build("ngc")))
    return Result.of(trained, [report.loss for report in reports]), rows


def test_each_process_reads_its_part_alone() -> None:
    alone, all_rows = stream(ALONE)
    (first, ours), (second, theirs) = together(2, stream)
    assert_close(first, alone, "ngc")
    assert_close(second, first, "ngc", atol=0)
    # A pass over fewer batches than processes is not divided.
    passes = (LEARN.epochs + 1) * 120
    assert ours == theirs == (all_rows - passes) // 2 + passes


def graph_step(group: Group, divided: bool) -> tuple[Tensor, Tensor, Tensor]:
    least = (0, 0) if divided else (10**9, 10**12)
    knn.LEAST_DIVIDED_ROWS, propagation.LEAST_DIVIDED = least
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(301, 8, generator=generator, dtype=torch.float64)
    Y = torch.nn.functional.one_hot(torch.randint(0, 5, (301,), generator=generator), 5).double()
    near = knn.divide_neighbors(z, 7, group)
    S = propagation.normalize_graph(propagation.weight_graph(knn.knn_graph(near)))
    soft = propagation.gather_evidence(S, Y, alpha=0.8, leave_one_out=True, group=group)
    return near.indices, near.similarities, soft


@pytest.mark.parametrize("divided", [True, False])
def test_the_graph_step_is_divided_exactly(divided: bool) -> None:
    try:
        expected = graph_step(ALONE, divided)
    finally:
        knn.LEAST_DIVIDED_ROWS, propagation.LEAST_DIVIDED = 4096, 2_000_000
    for found in together(3, graph_step, divided):
        assert torch.equal(found[0], expected[0])
        torch.testing.assert_close(found[1:], expected[1:], atol=1e-12, rtol=1e-12)


def decide_otherwise(group: Group) -> tuple[list[int], bool]:
    """What a process takes over that had decided otherwise, also in what is no tensor."""
    method = build("ngc")
    made = prepare(method)
    streams = method.begin_epoch(made)
    assert isinstance(method, NGC)
    if not group.leads:
        method.mixup.sizes = [1 for _ in method.mixup.sizes]
        method.cleaned.selected.logical_not_()
    follow_state(group, streams, method)
    return method.mixup.sizes, bool(method.cleaned.selected.any())


def test_a_process_that_decided_otherwise_follows() -> None:
    first, *others = together(2, decide_otherwise)
    assert others == [first]
    assert max(first[0]) > 1


def test_more_processes_than_samples_of_a_batch_are_refused() -> None:
    with (
        use(Group(0, 33)),
        pytest.raises(InputError, match="a batch of 32 samples can't be divided among 33"),
    ):
        prepare(build("ngc"))
