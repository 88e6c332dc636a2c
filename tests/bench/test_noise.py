"""Rates, the paper's rules of injection, disjoint OOD sets, and draws that never change."""

import math
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import truncnorm

from graphclean.bench.noise import (
    CIFAR10_CLASSES,
    DRAW_ARRAYS,
    Draw,
    Protocol,
    check_draw,
    instance_dependent,
    load_draw,
    make_draw,
    save_draw,
)
from graphclean.errors import InputError

SMALL = Protocol(rate=0.5, n_ood=400, n_eval_ood=200, seed=3)
TRUTH = np.arange(1000) % 10
TEST = np.arange(300) % 10


def small(**changes: object) -> Draw:
    protocol = replace(SMALL, **changes)  # type: ignore[arg-type]
    return make_draw(protocol, TRUTH, 700, TEST if protocol.split == "test" else None)


def same(one: Draw, other: Draw) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in DRAW_ARRAYS)


def test_symmetric_noise_has_its_rate_and_spares_some() -> None:
    truth = np.arange(50_000) % 10
    draw = make_draw(Protocol(rate=0.5, seed=1), truth, 30_000, TEST)
    wrong = draw.labels[:50_000] != truth
    # Half are drawn for a new label; a tenth of those draw their own again.
    assert wrong.mean() == pytest.approx(0.45, abs=0.005)
    counts = np.bincount(draw.labels[:50_000][wrong], minlength=10)
    assert counts.min() > 0.9 * counts.mean()


def test_of_ten_thousand_drawn_labels_a_tenth_survive() -> None:
    truth = np.zeros(10_000, dtype=int)
    draw = make_draw(Protocol(rate=1.0, n_ood=0, n_eval_ood=0), truth, 0, TEST)
    assert (draw.labels == 0).mean() == pytest.approx(0.1, abs=0.01)


def test_no_noise_leaves_the_labels_alone() -> None:
    assert np.array_equal(small(rate=0.0).labels[:1000], TRUTH)


def test_asymmetric_noise_follows_the_map() -> None:
    draw = small(noise="asym", rate=1.0)
    taken = {CIFAR10_CLASSES[t]: CIFAR10_CLASSES[g] for t, g in zip(TRUTH, draw.labels, strict=False)}
    assert taken == {
        "airplane": "airplane",
        "automobile": "automobile",
        "bird": "airplane",
        "cat": "dog",
        "deer": "horse",
        "dog": "cat",
        "frog": "frog",
        "horse": "horse",
        "ship": "ship",
        "truck": "automobile",
    }


def test_asymmetric_rate_is_over_all_samples() -> None:
    truth = np.arange(50_000) % 10
    draw = make_draw(Protocol(noise="asym", rate=0.4), truth, 30_000, TEST)
    wrong = draw.labels[:50_000] != truth
    # 40 % are drawn, and half of the classes change.
    assert wrong.mean() == pytest.approx(0.2, abs=0.005)
    assert not wrong[np.isin(truth, [0, 1, 6, 7, 8])].any()


def test_pair_noise_takes_the_next_class() -> None:
    draw = small(noise="pair", rate=0.4)
    wrong = draw.labels[:1000] != TRUTH
    assert wrong.mean() == 0.4
    assert np.array_equal(draw.labels[:1000][wrong], (TRUTH[wrong] + 1) % 10)


def test_instance_noise_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    images = rng.integers(0, 4, (60, 3, 2, 2), dtype=np.uint8)  # dark, so that no class takes all
    truth = np.arange(60) % 4
    noisy = instance_dependent(truth, 0.3, 4, images, np.random.default_rng(7))
    rng = np.random.default_rng(7)
    wrong = rng.normal(0.3, 0.1, 60)
    assert 0 < wrong.min() < wrong.max() < 1
    place = rng.random(60)
    turned = set()
    for label in range(4):
        weights = rng.standard_normal((12, 4))
        for i in np.flatnonzero(truth == label):
            q = wrong[i]
            scores = [
                sum(float(v) * w for v, w in zip(images[i].flat, col, strict=True)) for col in weights.T
            ]
            others = [math.exp(score) if j != label else 0.0 for j, score in enumerate(scores)]
            p = [q * other / sum(others) if j != label else 1 - q for j, other in enumerate(others)]
            drawn = next(j for j in range(4) if sum(p[: j + 1]) >= place[i])
            assert noisy[i] == drawn
            turned.add((label, drawn))
    assert len(turned) > 8


def test_instance_rates_are_a_truncated_normal() -> None:
    """At 10 % the normal loses its lower sixth: the mean of what is left is that of SciPy's."""
    images, truth = np.zeros((40_000, 1), dtype=np.uint8), np.zeros(40_000, dtype=np.int64)
    noisy = instance_dependent(truth, 0.1, 2, images, np.random.default_rng(0))
    assert (noisy == 1).mean() == pytest.approx(truncnorm.mean(-1, 9, loc=0.1, scale=0.1), abs=0.005)


def test_instance_noise_has_its_rate_and_depends_on_the_image() -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    kind, truth = rng.integers(0, 5, 20_000), rng.integers(0, 10, 20_000)
    protocol = Protocol(noise="instance", rate=0.4, n_ood=0, n_eval_ood=0)
    draw = make_draw(protocol, truth, 0, TEST, basis=kinds[kind])
    wrong = draw.labels != truth
    assert wrong.mean() == pytest.approx(0.4, abs=0.01)
    shares = []
    for label in range(10):
        for k in range(5):
            counts = np.bincount(draw.labels[wrong & (truth == label) & (kind == k)], minlength=10)
            shares.append((counts.max() / counts.sum(), counts.argmax()))
    assert np.mean([share for share, _ in shares]) > 0.95, "an image looks like one other class"
    assert any(len({taken for _, taken in shares[i : i + 5]}) > 1 for i in range(0, 50, 5))
    dev = make_draw(replace(protocol, split="dev"), truth, 0, basis=kinds[kind])
    assert (dev.labels != dev.truth).mean() == pytest.approx(0.4, abs=0.01)


def test_labels_of_people_are_taken_as_they_are() -> None:
    protocol = replace(SMALL, noise="human", rate=0.0, n_ood=0, n_eval_ood=0)
    people = (TRUTH + (np.arange(1000) % 7 == 0)) % 10
    assert np.array_equal(make_draw(protocol, TRUTH, 0, TEST, basis=people).labels, people)
    dev = make_draw(replace(protocol, split="dev"), TRUTH, 0, basis=people)
    assert np.array_equal(dev.labels, people[dev.train_ind])
    with pytest.raises(InputError, match="rests on the labels that people gave"):
        make_draw(protocol, TRUTH, 0, TEST)
    with pytest.raises(InputError, match="given labels go from 1 to 10"):
        make_draw(protocol, TRUTH, 0, TEST, basis=people + 1)


def test_a_pool_that_is_split_already_stays_so() -> None:
    draw = make_draw(SMALL, TRUTH, 700, TEST, trained_pool=400)
    assert np.array_equal(np.sort(draw.train_ood), np.arange(400))
    assert np.array_equal(draw.eval_ood, np.arange(400, 600))


def test_ood_labels_are_uniform_over_all_classes_and_their_truth_is_none() -> None:
    draw = make_draw(Protocol(n_classes=100), np.arange(50_000) % 100, 30_000, np.arange(100))
    counts = np.bincount(draw.labels[50_000:], minlength=100)
    assert len(counts) == 100
    assert 130 < counts.min() <= counts.max() < 270
    assert (draw.truth[50_000:] == -1).all()
    assert (draw.eval_truth[100:] == -1).all()


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), ood=st.integers(0, 400), rate=st.floats(0, 1))
def test_development_and_test_ood_are_disjoint(seed: int, ood: int, rate: float) -> None:
    test = small(seed=seed, n_ood=ood, rate=rate)
    dev = small(seed=seed, n_ood=ood, rate=rate, split="dev")
    assert not set(test.train_ood) & set(test.eval_ood)
    assert not set(dev.train_ood) & set(dev.eval_ood)
    assert not (set(dev.train_ood) | set(dev.eval_ood)) & set(test.eval_ood)
    assert (set(dev.train_ood) | set(dev.eval_ood)) <= set(test.train_ood)


def test_development_split_has_the_sizes_of_the_method() -> None:
    truth = np.arange(50_000) % 10
    dev = make_draw(Protocol(split="dev"), truth, 30_000)
    sizes = len(dev.train_ind), len(dev.eval_ind), len(dev.train_ood), len(dev.eval_ood)
    assert sizes == (45_000, 5_000, 10_000, 5_000)
    assert np.array_equal(np.sort(np.concatenate([dev.train_ind, dev.eval_ind])), np.arange(50_000))
    assert np.array_equal(dev.eval_truth[:5_000], truth[dev.eval_ind])
    assert np.array_equal(dev.truth[:45_000], truth[dev.train_ind])
    assert (dev.labels[:45_000] != dev.truth[:45_000]).mean() == pytest.approx(0.45, abs=0.01)


def test_a_development_draw_is_never_given_the_test_set() -> None:
    with pytest.raises(InputError, match="dev split is made without"):
        make_draw(replace(SMALL, split="dev"), TRUTH, 700, TEST)
    with pytest.raises(InputError, match="test split is made with the test"):
        make_draw(SMALL, TRUTH, 700)


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        ({}, "fb60554dea68ec36c417574b1ccb1aa6f2896fe4683644b85ac88c12691a46cf"),
        ({"split": "dev"}, "50d25fdcb9a8505f72b53afac4b2bd1747a228383fa66011190c101dacde9365"),
        ({"noise": "asym", "rate": 0.4}, "9b7fb35c09511567c3229dd6562078fc39237634e2f3f425b36d9549cfc2e584"),
    ],
    ids=["sym", "dev", "asym"],
)
def test_draws_stay_as_they_were(changes: dict[str, object], digest: str) -> None:
    assert small(**changes).digest() == digest


def test_the_recorded_cell_stays_as_it_was() -> None:
    draw = make_draw(Protocol(), np.arange(50_000) % 10, 30_000, np.arange(10_000) % 10)
    assert draw.digest() == "ce9f4f0f824332125ee58b076cd4e9347d8bacce2df81732f4ccc24afd419cd1"


def test_another_seed_is_another_draw() -> None:
    assert same(small(), small())
    assert not same(small(), small(seed=4))


def test_a_saved_draw_comes_back_whole(tmp_path: Path) -> None:
    draw = small(split="dev")
    save_draw(draw, tmp_path / "draw.npz")
    back = load_draw(tmp_path / "draw.npz")
    assert back.protocol == draw.protocol
    assert back.sizes == draw.sizes
    assert same(back, draw)
    assert [p.name for p in tmp_path.iterdir()] == ["draw.npz"]


def rewrite(path: Path, **changes: np.ndarray) -> None:
    with np.load(path) as file:
        arrays = {**file, **changes}
    np.savez(path, **arrays)


def test_damaged_draws_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "draw.npz"
    with pytest.raises(InputError, match="no such file"):
        load_draw(path)
    save_draw(small(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"draw\.npz: damaged, or not a noise file"):
        load_draw(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="damaged, or not a noise file"):
        load_draw(path)
    for where in range(100, len(whole) - 100, 100):
        changed = bytearray(whole)
        changed[where] ^= 0xFF
        path.write_bytes(changed)
        with suppress(InputError):  # or it was a byte that nobody reads
            assert same(load_draw(path), small())
    path.write_bytes(whole)
    rewrite(path, labels=small().labels[::-1])
    with pytest.raises(InputError, match="not what was saved"):
        load_draw(path)
    path.write_bytes(whole)
    rewrite(path, about=np.array('{"format": 2}'))
    with pytest.raises(InputError, match="newer"):
        load_draw(path)
    path.write_bytes(whole)
    rewrite(path, labels=np.array([None, 1], dtype=object))
    with pytest.raises(InputError, match="damaged, or not a noise file"):
        load_draw(path)


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/draw\.npz: can't be written"):
        save_draw(small(), tmp_path / "file" / "draw.npz")


def test_a_draw_for_other_data_is_refused() -> None:
    draw, dev = small(), small(split="dev")
    check_draw(draw, TRUTH, 700, TEST)
    check_draw(dev, TRUTH, 700)
    with pytest.raises(InputError, match=r"1,000, 300, 700 .* hold 1,000, 300, 701"):
        check_draw(draw, TRUTH, 701, TEST)
    with pytest.raises(InputError, match="hold 999, 300"):
        check_draw(draw, TRUTH[1:], 700, TEST)
    with pytest.raises(InputError, match="another order"):
        check_draw(draw, TRUTH[::-1], 700, TEST)
    with pytest.raises(InputError, match="another order"):
        check_draw(draw, TRUTH, 700, TEST[::-1])
    with pytest.raises(InputError, match="another order"):
        check_draw(dev, TRUTH[::-1], 700)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"noise": "pairs"}, "it can be sym or asym or pair"),
        ({"noise": "instance"}, "instance noise rests on the training images"),
        ({"split": "validation"}, "it can be test or dev"),
        ({"rate": 1.5}, "between 0 and 1"),
        ({"rate": float("nan")}, "between 0 and 1"),
        ({"n_ood": -1}, "can't be negative"),
        ({"n_classes": 1}, "at least two"),
        ({"noise": "asym", "n_classes": 100}, "CIFAR-10 alone"),
        ({"n_ood": 501}, "holds 700 images, and 701 are needed"),
        ({"n_classes": 9}, "go from 0 to 9, and there are 9"),
    ],
)
def test_impossible_protocols_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        small(**changes)


@pytest.mark.parametrize("labels", [[], [[1, 2]], [0.5, 1.0], ["a"]])
def test_labels_must_be_whole_numbers(labels: list[object]) -> None:
    with pytest.raises(InputError, match="one whole number a sample"):
        make_draw(SMALL, labels, 700, TEST)  # type: ignore[arg-type]


def test_labels_of_the_web_are_taken_as_they_are() -> None:
    """Their truth is unknown, in the held-out tenth too."""
    labels = np.random.default_rng(0).integers(0, 5, 200)
    protocol = Protocol(noise="web", rate=0, n_ood=0, n_eval_ood=0, n_classes=5)
    draw = make_draw(protocol, labels, 0, np.arange(40) % 5)
    assert np.array_equal(draw.labels, labels)
    assert (draw.eval_truth == np.arange(40) % 5).all()
    dev = make_draw(replace(protocol, split="dev"), labels, 0)
    assert np.array_equal(dev.labels, labels[dev.train_ind])
    assert np.array_equal(dev.eval_truth, labels[dev.eval_ind])
    assert len(dev.eval_ind) == 20
    assert not draw.truth_known
    assert not dev.truth_known
    assert make_draw(replace(protocol, noise="sym"), labels, 0, labels).truth_known
