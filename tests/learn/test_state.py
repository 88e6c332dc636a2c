"""Random numbers that are PyTorch's own: seeded, kept by checkpoints, and given back as they were."""

import functools
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphclean.data.loader import ResidentInputs
from graphclean.graph import GraphSettings
from graphclean.learn import DivergedError, EpochReport, InterruptedRun, LearnSettings, Trainer, engine, state

from .test_engine import after_each_step, assert_same, stop_after_epoch

pytestmark = pytest.mark.usefixtures("one_thread")

HEAD = LearnSettings(network="embedding-head", epochs=4, warmup=1, batch=32, lr=0.05)


class Dropped(nn.Module):
    """Dropout by a generator of its own."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand(x.shape, generator=self.generator) > 0.5) if self.training else x


@pytest.fixture(params=["global", "gpu"])
def drawn_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.Generator:
    """One of PyTorch's generators, from which the networks of a test draw; a GPU's is stood in for."""
    every = {"global": torch.default_generator, "gpu": torch.Generator()}
    monkeypatch.setattr(state, "global_generators", lambda _: every)
    build = engine.build_network

    @functools.wraps(build)
    def with_dropout(*args, **options):  # type: ignore[no-untyped-def]
        network = build(*args, **options)
        network.trunk.append(Dropped(every[request.param]))
        return network

    monkeypatch.setattr(engine, "build_network", with_dropout)
    return every[request.param]


def make(place: torch.device | str = "cpu", **options) -> Trainer:  # type: ignore[no-untyped-def]
    labels = torch.arange(120) % 3
    features = torch.eye(3).repeat(1, 4)[labels]
    features += 0.5 * torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    return Trainer(ResidentInputs(features.to(place)), labels, 3, HEAD, GraphSettings(k=5), **options)


def test_a_resumed_run_draws_on_where_it_was(drawn_from: torch.Generator, tmp_path: Path) -> None:
    expected = make().train()

    def stop(report: EpochReport, _: object) -> None:
        stop_after_epoch(first, report, 2)

    first = make(checkpoint=tmp_path, on_epoch=stop)
    with pytest.raises(InterruptedRun):
        first.train()
    drawn_from.manual_seed(7)
    assert_same(make(checkpoint=tmp_path).train(resume=True), expected)


def test_the_caller_has_his_own_back(drawn_from: torch.Generator) -> None:
    drawn_from.manual_seed(7)
    before = drawn_from.get_state()
    made = make()
    made.train()
    assert torch.equal(drawn_from.get_state(), before)
    made = make()
    after_each_step(made, lambda _, terms: terms * torch.nan)
    with pytest.raises(DivergedError):
        made.train()
    assert torch.equal(drawn_from.get_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_gpus_generator_is_one_of_them() -> None:
    for name in ("cuda", "cuda:0"):
        torch.cuda.manual_seed(7)
        before = torch.cuda.get_rng_state()
        with state.seeded(3, torch.device(name)):
            assert torch.cuda.initial_seed() == 3
            torch.rand(5, device=name)
        assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_on_a_gpu_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its generators' states go through a file, and back into the GPU."""
    place, seen = torch.device("cuda"), []

    def on_gpu(**options) -> Trainer:  # type: ignore[no-untyped-def]
        made = make(place=place, **options)
        made.network.trunk.append(nn.Dropout(0.3))
        return made

    def stop(report: EpochReport, _: object) -> None:
        seen.append(report.epoch)
        stop_after_epoch(first, report, 2)

    expected = on_gpu().train()
    first = on_gpu(checkpoint=tmp_path, on_epoch=stop)
    with pytest.raises(InterruptedRun):
        first.train()
    torch.cuda.manual_seed(7)
    resumed = on_gpu(checkpoint=tmp_path).train(resume=True)
    assert seen == [1, 2]
    torch.testing.assert_close(resumed.z, expected.z, atol=1e-2, rtol=0)
