"""Class-balanced batches: quotas by hand and by search, and what is drawn."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.config import Config, apply_settings
from graphclean.errors import InputError
from graphclean.methods import build_method
from graphclean.methods.blocks.balanced import balanced_batches, class_quotas
from graphclean.training import EpochReport
from tests.training.test_trainer import TINY, ngc, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("counts", "total", "cap", "expected"),
    [
        ([5, 5], 10, 1, [5, 5]),
        ([9, 1], 10, 5, [5, 5]),
        ([9, 1], 10, 3, [7, 3]),  # 10 places for 10 samples: the lone one comes 3 times at most
        ([9, 1], 20, 3, [14, 6]),  # twice as many places: 3 times as often as the average of 2
        ([9, 1], 10, 1, [9, 1]),
        ([0, 4, 4], 9, 4, [0, 4, 5]),  # an empty class has no part in it, and what is left goes to the last
        ([98, 1, 1], 100, 100, [34, 33, 33]),
        ([98, 1, 1], 100, 10, [80, 10, 10]),
        ([3], 10, 1, [10]),
    ],
)
def test_quotas_by_hand(counts: list[int], total: int, cap: float, expected: list[int]) -> None:
    assert class_quotas(counts, total, cap) == expected


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=12).filter(any),
    total=st.integers(1, 500),
    cap=st.floats(1, 20),
)
def test_quotas_are_as_equal_as_the_cap_lets_them(counts: list[int], total: int, cap: float) -> None:
    """The level is found by search here: classes are at it, or at all that they may have."""
    quotas = class_quotas(counts, total, cap)
    assert sum(quotas) == total
    room = [cap * count * total / sum(counts) for count in counts]
    low, high = 0.0, float(total)
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if sum(min(level, most) for most in room) < total else (low, level)
    for count, quota, most in zip(counts, quotas, room, strict=True):
        assert quota == pytest.approx(min(high, most), abs=len(counts) + 1e-6)
        assert count or quota == 0


def test_classes_come_equally_often_and_nothing_that_is_not_selected() -> None:
    labels = torch.tensor([0] * 50 + [1] * 10 + [2] * 4 + [3] * 6)
    selected = labels < 3
    selected[:10] = False
    found = balanced_batches(labels, selected, 5, (6, 15), 20.0, torch.Generator().manual_seed(0))
    assert found.shape == (6, 15)
    assert selected[found].all()
    assert torch.bincount(labels[found.flatten()], minlength=5).tolist() == [30, 30, 30, 0, 0]
    times = torch.bincount(found.flatten(), minlength=len(labels))
    for label, often in ((0, {0, 1}), (1, {3}), (2, {7, 8})):
        assert set(times[selected & (labels == label)].tolist()) == often
    each = torch.stack([torch.bincount(labels[row], minlength=3) for row in found])
    assert (each == 5).all(), "each step has its part of every class"


def test_the_cap_bounds_how_often_a_sample_comes() -> None:
    labels = torch.tensor([0] * 38 + [1] * 2)
    everything = torch.ones(40, dtype=torch.bool)
    found = balanced_batches(labels, everything, 2, (4, 20), 3.0, torch.Generator().manual_seed(0))
    times = torch.bincount(found.flatten(), minlength=40)
    assert times[38:].tolist() == [6, 6], "three times the average of 2"
    assert set(times[:38].tolist()) == {1, 2}


def test_nothing_selected_gives_indices_that_are_not_selected() -> None:
    nothing = torch.zeros(9, dtype=torch.bool)
    found = balanced_batches(torch.arange(9) % 3, nothing, 3, (2, 5), 2.0, torch.Generator().manual_seed(0))
    assert found.tolist() == [[0] * 5] * 2


def test_training_survives_an_empty_selection_and_classifies_full_batches_else() -> None:
    method = ngc(warmup_epochs=1, balance_cap=4.0)
    reports = list[EpochReport]()
    made = trainer(dataclasses.replace(TINY, epochs=3), method, n=96)
    made.train(on_epoch=lambda report, _: reports.append(report))
    assert all(size == made.batch_size for size in method.mixup.sizes)
    excluded = torch.ones(96, dtype=torch.bool)
    empty = ngc(warmup_epochs=0, balance_cap=4.0)
    without = trainer(dataclasses.replace(TINY, epochs=1), empty, n=96)
    step = empty.cleaner.step
    empty.cleaner.step = lambda z, logits: step(z, logits, excluded=excluded)  # type: ignore[assignment,method-assign]
    without.train(on_epoch=lambda report, _: reports.append(report))
    assert reports[-1].losses["ce"] == 0
    assert reports[-1].own["empty_steps"] == len(empty.mixup.sizes)


@pytest.mark.parametrize("value", ["0.5", "-1", "nan"])
def test_a_cap_under_one_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=r"method\.balance_cap"):
        build_method(apply_settings(Config(), [f"method.balance_cap={value}"]))
