import pytest
import torch

from graphclean.data.loader import ResidentInputs, StreamedInputs, ordered_batches, shuffled_batches

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
    streamed = StreamedInputs(lambda i: inputs[i], 20, (3, 1, 1), torch.device("cpu"))
    batches = shuffled_batches(20, 6, torch.Generator().manual_seed(1), NONE)
    assert len(resident) == len(streamed) == 20
    assert resident.shape == streamed.shape
    both = list(zip(resident.stream(batches), streamed.stream(batches), strict=True))
    assert len(both) == 4
    for one, other in both:
        assert torch.equal(one, other)


def test_a_failing_read_is_heard() -> None:
    def read(index: int) -> torch.Tensor:
        if index == 5:
            raise OSError("gone")
        return torch.zeros(1)

    streamed = StreamedInputs(read, 8, (1,), torch.device("cpu"))
    with pytest.raises(OSError, match="gone"):
        list(streamed.stream(ordered_batches(8, 2, torch.device("cpu"))))
