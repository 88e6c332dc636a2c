import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler

from graphclean import CleaningSettings
from graphclean.cleaning import choice, infer_verdicts


def noisy(truth: np.ndarray, rate: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(len(truth)) < rate, rng.integers(0, truth.max() + 1, len(truth)), truth)


def agreement(z: np.ndarray, truth: np.ndarray) -> float:
    """How often the nearest by cosine is of the same class, by scikit-learn."""
    near = NearestNeighbors(n_neighbors=2, metric="cosine").fit(z).kneighbors(z)[1][:, 1]
    return float((truth[near] == truth).mean())


@pytest.mark.parametrize(("load", "scaling"), [(load_digits, "raw"), (load_wine, "standardized")])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_better_scaling_is_found_from_noisy_labels(load: object, scaling: str, seed: int) -> None:
    z, truth = load(return_X_y=True)  # type: ignore[operator]
    by_truth = {
        "raw": agreement(z, truth),
        "standardized": agreement(StandardScaler().fit_transform(z), truth),
    }
    assert max(by_truth, key=lambda name: by_truth[name]) == scaling
    summary = infer_verdicts(z, noisy(truth, 0.3, seed)).summary
    assert summary.scaling == scaling
    alone = infer_verdicts(z, noisy(truth, 0.3, seed), settings=CleaningSettings(scaling=scaling)).summary
    assert alone == summary


def test_a_sample_decides_for_a_large_set_which_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    find = choice.find_nodes

    def count(array: np.ndarray, *rest: object) -> object:
        searched.append(len(array))
        return find(array, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(choice, "find_nodes", count)
    monkeypatch.setattr(choice, "SCALING_SAMPLE", 600)
    z, truth = load_digits(return_X_y=True)
    assert infer_verdicts(z, noisy(truth, 0.3, 0)).summary.scaling == "raw"
    assert searched == [600, 600, len(z)]


def test_raw_features_are_compared_as_they_are() -> None:
    z, truth = load_digits(return_X_y=True)
    cleaning = infer_verdicts(z[:300], truth[:300], settings=CleaningSettings(scaling="raw"))
    unit = z[:300] / np.linalg.norm(z[:300], axis=1, keepdims=True)
    near = np.argsort(-(unit @ unit.T - 9 * np.eye(300)), axis=1)[:, :5]
    assert [list(map(int, row)) for row in cleaning.verdicts.neighbors] == near.tolist()
    assert cleaning.predictor is not None
    np.testing.assert_allclose(cleaning.predictor.standardizer(z[:300].astype(np.float32)), unit, atol=1e-6)


def test_a_gain_within_a_standard_error_is_none() -> None:
    worse = np.zeros(100)
    better = np.tile([1.0, -0.9], 50)  # on average 0.05, with a deviation of 0.95
    assert not choice.is_likelier(better, worse)
    assert choice.is_likelier(np.tile([1.0, -0.7], 50), worse)  # 0.15 and 0.85
    assert not choice.is_likelier(worse, worse)
