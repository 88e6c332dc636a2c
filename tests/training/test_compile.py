"""Compiled training: the same as without, resumed exactly, and no end of a run."""

import contextlib
import dataclasses
import functools
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphclean.errors import DataWarning
from graphclean.training import (
    DivergedError,
    EpochReport,
    Trainer,
)
from graphclean.training.batches import ResidentInputs
from graphclean.training.compile import SHAPES, Compiled
from graphclean.training.method import Selection, TrainerContext
from graphclean.training.views import scale
from tests.training.test_trainer import (
    TINY,
    Losses,
    Watched,
    assert_same,
    digits,
    ngc,
    train_until,
    trainer,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_a_compiled_run_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places filled up, as on a GPU; traced, but not made into machine code."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    reports: dict[str, EpochReport] = {}
    for compile_ in ("on", "off"):
        settings = dataclasses.replace(TINY, epochs=6, compile=compile_)  # type: ignore[arg-type]

        def keep(report: EpochReport, _: Selection, name: str = compile_) -> None:
            reports[name] = report

        trainer(settings, n=400).train(on_epoch=keep)
    for term, value in reports["off"].losses.items():
        assert reports["on"].losses[term] == pytest.approx(value, rel=0.1)


def test_a_compiled_run_that_only_lacks_its_end_resumes_exactly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last pass over the training set is compiled in both."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    settings = dataclasses.replace(TINY, epochs=2, compile="on")
    trainer(settings, checkpoint=tmp_path).train()
    resumed = trainer(settings, checkpoint=tmp_path)
    resumed.train(resume=True)
    assert isinstance(resumed._forwards["main"], Compiled)


@pytest.mark.slow
def test_compiled_with_all_that_is_for_heavy_noise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One compiled network serves steps and judging by the average, and a resumed run is the same."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    settings = dataclasses.replace(
        TINY, compile="on", strong_augmentation="autoaugment", ema_decay=0.8, self_supervised_epochs=2
    )
    whole = trainer(settings).train()
    made = trainer(settings, checkpoint=tmp_path)
    train_until(made, 2)
    resumed = trainer(settings, checkpoint=tmp_path)
    assert_same(resumed.train(resume=True), whole)
    assert isinstance(resumed._forwards["main"], Compiled)


@pytest.mark.parametrize("ends_well", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_convolutions_are_tried_from_the_first_step_to_the_last(
    monkeypatch: pytest.MonkeyPatch, before: bool, ends_well: bool
) -> None:
    """Those of the uncompiled first epoch serve the compiled ones too; the caller's flag is put back."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", before)
    for compile_ in ("off", "on"):
        seen: list[bool] = []

        def look(_: TrainerContext, losses: Losses, seen: list[bool] = seen) -> Losses:
            seen.append(torch.backends.cudnn.benchmark)
            factor = 1.0 if ends_well or len(seen) < 6 else math.nan
            return {name: loss * factor for name, loss in losses.items()}

        settings = dataclasses.replace(TINY, epochs=2, compile=compile_)  # type: ignore[arg-type]
        made = trainer(settings, Watched(look))
        with contextlib.nullcontext() if ends_well else pytest.raises(DivergedError):
            made.train()
        assert set(seen) == {before or compile_ == "on"}
        assert torch.backends.cudnn.benchmark is before


@pytest.mark.parametrize("limit", [3, 100])
def test_code_is_made_for_many_shapes_and_the_limit_put_back(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """That of the process: other code that is compiled in it keeps its own, and a higher one is kept."""
    config, seen = torch._dynamo.config, []

    def make(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        seen.append(config.recompile_limit)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=make))
    with config.patch(recompile_limit=limit):
        double = Compiled(lambda x: 2 * x)
        assert config.recompile_limit == limit
        for size in [*range(1, 13), *range(1, 13)]:
            assert len(double(torch.ones(size))) == size
            assert config.recompile_limit == limit
    assert seen == [max(limit, SHAPES)] * 12


def test_where_compiling_fails_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=refuse))
    trainer(dataclasses.replace(TINY, epochs=1, compile="on")).train()  # not asked to in the first epoch
    settings = dataclasses.replace(TINY, epochs=2, compile="on")
    with pytest.warns(DataWarning, match="uncompiled, and slower: .*no compiler here"):
        trainer(settings).train()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_graphs_change_nothing() -> None:
    """Compiled and replayed: losses as without, and every row of an evaluation is its own."""
    warnings.simplefilter("ignore")  # of PyTorch's compiler
    warnings.simplefilter("error", DataWarning)
    pixels, labels, _ = digits(400)
    inputs = ResidentInputs(pixels.cuda())
    reports: dict[str, list[EpochReport]] = {"on": [], "off": []}
    for compile_, found in reports.items():
        settings = dataclasses.replace(TINY, epochs=6, compile=compile_)  # type: ignore[arg-type]
        made = Trainer(inputs, labels, 8, settings, ngc())
        result = made.train(on_epoch=lambda r, _, found=found: found.append(r))  # type: ignore[misc]
        network = made.method.predictor().eval()
        with torch.no_grad(), made._precision():
            out = network(scale(pixels.cuda()))
        torch.testing.assert_close(result.z, out.z, atol=0.03, rtol=0)
        torch.testing.assert_close(result.logits, out.logits.float(), atol=0.1, rtol=0.03)
    for on, off in zip(*reports.values(), strict=True):
        assert on.losses == pytest.approx(off.losses, rel=0.15)
