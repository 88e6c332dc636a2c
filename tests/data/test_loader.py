import torch

from graphclean.data.loader import ResidentInputs, StreamedInputs, ordered_batches, shuffled_batches


def test_every_input_comes_once_and_the_last_batch_is_filled() -> None:
    generator = torch.Generator().manual_seed(0)
    batches = shuffled_batches(10, 4, generator)
    assert batches.shape == (3, 4)
    assert sorted(batches.flatten()[:10].tolist()) == list(range(10))
    assert batches.flatten()[10:].tolist() == batches.flatten()[:2].tolist()
    assert shuffled_batches(3, 8, generator).shape == (1, 8)
    assert not torch.equal(shuffled_batches(10, 4, generator), batches)


def test_ordered_batches_repeat_the_last() -> None:
    assert ordered_batches(5, 3, torch.device("cpu")).tolist() == [[0, 1, 2], [3, 4, 4]]


def test_streamed_inputs_equal_resident_ones() -> None:
    inputs = torch.arange(60, dtype=torch.uint8).view(20, 3, 1, 1)
    resident = ResidentInputs(inputs)
    streamed = StreamedInputs(lambda i: inputs[i], 20, (3, 1, 1), torch.device("cpu"))
    batches = shuffled_batches(20, 6, torch.Generator().manual_seed(1))
    assert len(resident) == len(streamed) == 20
    assert resident.shape == streamed.shape
    both = list(zip(resident.stream(batches), streamed.stream(batches), strict=True))
    assert len(both) == 4
    for one, other in both:
        assert torch.equal(one, other)


def test_a_failing_read_is_heard() -> None:
    import pytest

    def read(index: int) -> torch.Tensor:
        if index == 5:
            raise OSError("gone")
        return torch.zeros(1)

    streamed = StreamedInputs(read, 8, (1,), torch.device("cpu"))
    with pytest.raises(OSError, match="gone"):
        list(streamed.stream(ordered_batches(8, 2, torch.device("cpu"))))
