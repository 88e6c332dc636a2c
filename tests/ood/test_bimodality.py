"""P(OOD) by s(x): its two modes, or nothing where it is not bimodal."""

import numpy as np
import pytest

from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import CleaningSettings, OodSettings, apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.methods import build_method
from graphclean.ood import bimodal_ood_probability, find_threshold
from graphclean.training.fit import fit


def closeness_of(ood: int, known: int = 4000, seed: int = 0) -> np.ndarray:
    """s(x) as training leaves it: known samples near 1 with a tail, OOD ones far off."""
    rng = np.random.default_rng(seed)
    near = 1 - rng.gamma(1.0, 0.1, known)
    return np.clip(np.concatenate([near, rng.normal(0.25, 0.1, ood)]), -1, 1)


def in_one_class(s: np.ndarray) -> np.ndarray | None:
    """By the modes alone: of one class some always lie in the upper one."""
    return bimodal_ood_probability(s, np.zeros(len(s), dtype=np.int64))


@pytest.mark.parametrize("ood", [800, 1600, 4000])
def test_the_lower_mode_is_ood(ood: int) -> None:
    s = closeness_of(ood)
    chance = in_one_class(s)
    assert chance is not None
    assert ((chance > 0.5) == (np.arange(len(s)) >= 4000)).mean() > 0.97
    assert chance.mean() == pytest.approx(ood / len(s), abs=0.03)
    order = s.argsort()
    assert (np.diff(chance[order]) <= 0).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("known", [20, 300, 4000])
def test_a_tail_is_no_mode(known: int, seed: int) -> None:
    assert in_one_class(closeness_of(0, known, seed)) is None


@pytest.mark.parametrize("s", [np.full(50, 0.9), np.array([0.9]), np.array([0.1, 0.9])], ids=str)
def test_too_little_to_tell(s: np.ndarray) -> None:
    assert in_one_class(s) is None


def test_two_values_are_two_modes() -> None:
    s = np.repeat([0.1, 0.9], [100, 300])
    np.testing.assert_array_equal(in_one_class(s), np.repeat([1.0, 0.0], [100, 300]))


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [(100, 1900, True), (99, 1901, False), (20, 380, True), (19, 361, False)],
)
def test_a_mode_holds_a_twentieth_and_twenty_at_its_peak(low: int, high: int, found: bool) -> None:
    """Fewer may be odd samples of a known class, or chance."""
    assert (in_one_class(np.repeat([0.1, 0.9], [low, high])) is not None) == found


@pytest.mark.parametrize(("between", "found"), [(24, True), (25, False)])
def test_between_modes_lies_a_valley(between: int, found: bool) -> None:
    """At the border there are fewer than half as many as at the lower peak."""
    s = np.repeat([0.1, 0.48, 0.52, 0.9], [100, between, between, 100])
    assert (in_one_class(s) is not None) == found


@pytest.mark.parametrize(("far", "found"), [(89, True), (90, False)])
def test_a_class_that_lies_far_off_was_not_learned(far: int, found: bool) -> None:
    """Its samples are no OOD samples; a class may be small, and have many of those taken for it."""
    s = np.repeat([0.9, 0.1, 0.9], [300, far, 100 - far])
    classes = np.repeat([0, 1], [300, 100])
    assert (bimodal_ood_probability(s, classes) is not None) == found
    few = np.append(classes, np.full(19, 2))
    assert (bimodal_ood_probability(np.append(s, np.full(19, 0.1)), few) is not None) == found


ALONE = CleaningSettings(near_duplicates=False, classifier="knn")
"""As where s(x) is known: samples that training drew together are no duplicates, and memorized labels don't
judge a classifier.
"""
LEARNED = 0.5
"""OOD samples whose label is that of their place."""


def memorized() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Embeddings with OOD samples beside others of the same label, often; labels, s(x), and who is OOD."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 200)
    given = np.where(rng.random(800) < 0.3, rng.integers(0, 4, 800), truth)
    known = np.eye(4, 24)[truth] + rng.normal(0, 0.08, (800, 24))
    places = rng.normal(0, 1, (30, 24)) * (np.arange(24) >= 4)
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    unknown = places.repeat(8, 0) + rng.normal(0, 0.08, (240, 24))
    theirs = np.where(rng.random(240) < LEARNED, rng.integers(0, 4, 30).repeat(8), rng.integers(0, 4, 240))
    labels = np.concatenate([given, theirs])
    z = np.concatenate([known, unknown]).astype(np.float32)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z, labels, z[:, :4].max(1).astype(np.float64), np.arange(1040) >= 800


def test_labels_memorized_do_not_hide_who_is_ood() -> None:
    z, labels, s, ood = memorized()
    blind = infer_verdicts(z, labels, settings=ALONE).verdicts
    assert (blind["ood_score"] > 0.5).mean() < 0.05
    seeing = infer_verdicts(z, labels, similarity=s)
    assert ((seeing.verdicts["verdict"] == "ood") == ood).mean() > 0.99
    assert any("memorized labels" in note for note in seeing.summary.warnings)
    found = find_threshold(1 - s, seeing.verdicts["ood_score"].to_numpy(), OodSettings(), learned=True)
    assert 0.3 < found.threshold < 0.7


def test_a_class_that_was_not_learned_is_not_ood() -> None:
    """Samples of the last class lie anywhere, under labels that are no worse than those of the others."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 300)
    labels = np.where(rng.random(1200) < 0.5, rng.integers(0, 4, 1200), truth)
    z = np.eye(4, 24)[truth] + rng.normal(0, 0.08, (1200, 24))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    s = np.where(truth < 3, z[:, :4].max(1), rng.normal(0.3, 0.05, 1200))
    assert in_one_class(s) is not None
    judged = infer_verdicts(z, labels, similarity=s)
    assert (judged.verdicts["verdict"] == "ood").sum() == 0
    assert (judged.verdicts["proposed_label"] == truth).mean() > 0.95
    assert not any("memorized" in note for note in judged.summary.warnings)


def test_where_labels_tell_s_is_not_asked() -> None:
    z, labels, s, ood = memorized()
    labels[ood] = np.random.default_rng(1).integers(0, 4, int(ood.sum()))
    by_labels = infer_verdicts(z, labels, settings=ALONE)
    assert (by_labels.verdicts["ood_score"] > 0.5).mean() > 0.2
    again = infer_verdicts(z, labels, similarity=s)
    np.testing.assert_array_equal(by_labels.verdicts["ood_score"], again.verdicts["ood_score"])
    assert again.summary.warnings == by_labels.summary.warnings


def test_few_odd_samples_are_no_mode() -> None:
    s = np.concatenate([closeness_of(0), np.full(150, 0.1)])
    assert in_one_class(s) is None
    assert in_one_class(np.append(s, np.full(300, 0.1))) is not None


@pytest.mark.slow
def test_without_ood_next_to_nothing_is_rejected() -> None:
    """With half of the labels wrong, neither by the labels nor by s(x)."""
    digits = noisy_digits(seed=8)
    rows = np.flatnonzero(~digits.is_ood)
    rows = rows[np.random.default_rng(8).permutation(len(rows))]
    train, test = rows[:1200], rows[1200:]
    config = apply_settings(load_preset("demo"), ["training.seed=8"])
    result = fit(digits.images[train], encode_labels(digits.labels[train]), config, build_method(config))
    by_labels = infer_verdicts(result.trained.z, digits.labels[train]).verdicts
    assert (by_labels["verdict"] == "ood").mean() < 0.005
    assert (result.cleaning.verdicts["verdict"] == "ood").mean() < 0.005
    new = result.model.predict(digits.images[test])
    assert (new["verdict"] == "ood").mean() < 0.05


def test_equal_values_have_no_modes() -> None:
    """Their mean may be rounded to more than any of them."""
    for n in range(3, 60):
        assert in_one_class(np.full(n, 0.1)) is None
