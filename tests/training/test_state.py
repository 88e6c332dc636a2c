"""Random numbers that are PyTorch's own: seeded, kept by checkpoints, and given back as they were."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphclean.config import GraphSettings, TrainingSettings
from graphclean.methods.ngc import NGC, NgcSettings
from graphclean.training import DivergedError, Trainer, state
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch, TrainerContext
from tests.training.test_trainer import assert_same, train_until

pytestmark = pytest.mark.usefixtures("one_thread")

HEAD = TrainingSettings(network="embedding-head", epochs=4, batch_size=32, lr=0.05)


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
    return every[request.param]


class Dropping(NGC):
    """NGC on a network with another layer, and with losses times a factor."""

    def __init__(self, layer: nn.Module, factor: float = 1.0) -> None:
        super().__init__(NgcSettings(warmup_epochs=1), GraphSettings(k=5))
        self.layer, self.factor = layer, factor

    def setup(self, run: TrainerContext) -> None:
        super().setup(run)
        network: Any = self.networks["main"]
        network.trunk.append(self.layer)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        return {name: self.factor * loss for name, loss in super().losses(run, batch).items()}


def make(method: NGC, place: torch.device | str = "cpu", checkpoint: Path | None = None) -> Trainer:
    labels = torch.arange(120) % 3
    features = torch.eye(3).repeat(1, 4)[labels]
    features += 0.5 * torch.randn(features.shape, generator=torch.Generator().manual_seed(0))
    return Trainer(ResidentInputs(features.to(place)), labels, 3, HEAD, method, checkpoint=checkpoint)


def test_a_resumed_run_draws_on_where_it_was(drawn_from: torch.Generator, tmp_path: Path) -> None:

    def dropping() -> NGC:
        return Dropping(Dropped(drawn_from))

    expected = make(dropping()).train()
    train_until(make(dropping(), checkpoint=tmp_path), 2)
    drawn_from.manual_seed(7)
    assert_same(make(dropping(), checkpoint=tmp_path).train(resume=True), expected)


def test_the_caller_has_his_own_back(drawn_from: torch.Generator) -> None:
    drawn_from.manual_seed(7)
    before = drawn_from.get_state()
    make(Dropping(Dropped(drawn_from))).train()
    assert torch.equal(drawn_from.get_state(), before)
    made = make(Dropping(Dropped(drawn_from), factor=math.nan))
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

    def on_gpu(checkpoint: Path | None = None) -> Trainer:
        return make(Dropping(nn.Dropout(0.3)), "cuda", checkpoint)

    expected = on_gpu().train()
    first = on_gpu(tmp_path)
    train_until(first, 2)
    assert first.epoch == 2
    torch.cuda.manual_seed(7)
    resumed = on_gpu(tmp_path).train(resume=True)
    torch.testing.assert_close(resumed.z, expected.z, atol=1e-2, rtol=0)
