import pytest
import torch

from graphclean.config import GraphSettings, TrainingSettings
from graphclean.methods.ngc import NGC, NgcSettings
from graphclean.training import Trainer
from graphclean.training.batches import (
    ResidentInputs,
    StreamedInputs,
    ordered_batches,
    place_inputs,
    shuffled_batches,
)

NONE = torch.zeros(20, dtype=torch.bool)


def test_every_input_comes_once_and_the_last_places_are_filled() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = shuffled_batches(10, 4, generator, NONE)
    assert batches.shape == (3, 4)
    order = batches.T.flatten().tolist()
    assert sorted(order[:10]) == list(range(10))
    assert order[10:] == order[:2]
    assert shuffled_batches(3, 8, generator, NONE).shape == (1, 8)
    assert not torch.equal(shuffled_batches(10, 4, generator, NONE), batches)


@pytest.mark.parametrize(("n", "size"), [(10, 4), (200, 64), (200, 199), (201, 200), (18, 4), (3, 2)])
def test_no_row_holds_a_sample_twice(n: int, size: int) -> None:
    mask = torch.arange(n) < n // 2
    batches = shuffled_batches(n, size, torch.Generator().manual_seed(0), mask)
    assert set(batches.flatten().tolist()) == set(range(n))
    assert all(len(row.unique()) == size for row in batches)
    counts = mask[batches].sum(1)
    assert counts.max() - counts.min() <= 2


@pytest.mark.parametrize("selected", [0, 1, 13, 50, 99])
def test_marked_inputs_are_dealt_out_evenly(selected: int) -> None:
    mask = torch.zeros(100, dtype=torch.bool)
    mask[torch.randperm(100, generator=torch.Generator().manual_seed(selected))[:selected]] = True
    batches = shuffled_batches(100, 20, torch.Generator().manual_seed(0), mask)
    counts = mask[batches].sum(1)
    assert sorted(batches.flatten().tolist()) == list(range(100))
    assert counts.sum() == selected
    assert counts.max() - counts.min() <= 1


def test_ordered_batches_repeat_the_last() -> None:
    assert ordered_batches(5, 3, torch.device("cpu")).tolist() == [[0, 1, 2], [3, 4, 4]]


def test_streamed_inputs_equal_resident_ones() -> None:
    inputs = torch.arange(60, dtype=torch.uint8).view(20, 3, 1, 1)
    resident = ResidentInputs(inputs)
    streamed = StreamedInputs(lambda rows: inputs[rows], 20, (3, 1, 1), torch.device("cpu"))
    batches = shuffled_batches(20, 6, torch.Generator().manual_seed(1), NONE)
    assert len(resident) == len(streamed) == 20
    assert resident.shape == streamed.shape
    both = list(zip(resident.stream(batches), streamed.stream(batches), strict=True))
    assert len(both) == 4
    for one, other in both:
        assert torch.equal(one, other)


def test_a_failing_read_is_heard() -> None:
    def read(indices: torch.Tensor) -> torch.Tensor:
        if 5 in indices:
            raise OSError("gone")
        return torch.zeros(len(indices), 1)

    streamed = StreamedInputs(read, 8, (1,), torch.device("cpu"))
    with pytest.raises(OSError, match="gone"):
        list(streamed.stream(ordered_batches(8, 2, torch.device("cpu"))))


def test_what_does_not_fit_on_a_gpu_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = torch.zeros(10, 3, 8, 8, dtype=torch.uint8)
    assert isinstance(place_inputs(inputs, torch.device("cpu")), ResidentInputs)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (3 * 1024, 1 << 20))
    streamed = place_inputs(inputs, torch.device("cuda"))
    assert isinstance(streamed, StreamedInputs)
    assert (len(streamed), streamed.shape) == (10, (3, 8, 8))


def test_training_on_streamed_inputs_equals_training_on_resident_ones() -> None:
    torch.manual_seed(0)
    inputs = torch.randint(0, 256, (60, 1, 8, 8), dtype=torch.uint8)
    labels = torch.arange(60) % 3
    streamed = StreamedInputs(lambda rows: inputs[rows], 60, (1, 8, 8), torch.device("cpu"))
    settings = TrainingSettings(network="small-conv", epochs=2, batch_size=16, crop_padding=1)
    both = [
        Trainer(source, labels, 3, settings, NGC(NgcSettings(warmup_epochs=1), GraphSettings(k=5))).train()
        for source in (ResidentInputs(inputs), streamed)
    ]
    assert torch.equal(both[0].z, both[1].z)
