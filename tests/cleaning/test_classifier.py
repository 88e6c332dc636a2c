import numpy as np
import pytest
from sklearn.datasets import load_digits

from graphclean import CleaningSettings
from graphclean.cleaning import classifier, infer_verdicts
from graphclean.metrics import score_verdicts
from tests.cleaning.test_choice import noisy


def round_classes(seed: int, n: int = 800) -> tuple[np.ndarray, np.ndarray]:
    """Classes that are round in the directions in which samples differ least."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 5, n)
    shared = 2 * rng.normal(size=(n, 5)) @ rng.normal(size=(5, 60))
    return shared + rng.normal(size=(n, 60)) + 1.1 * rng.normal(size=(5, 60))[truth], truth


@pytest.mark.parametrize("seed", [0, 1])
def test_round_classes_are_left_to_class_means_which_are_right_more_often(seed: int) -> None:
    z, truth = round_classes(seed)
    labels = noisy(truth, 0.3, seed)
    auto, knn = (infer_verdicts(z, labels, settings=CleaningSettings(classifier=c)) for c in ("auto", "knn"))
    assert auto.class_means is not None
    ood = np.zeros(len(z), bool)
    ours, theirs = (score_verdicts(found.verdicts, truth, ood).label_accuracy for found in (auto, knn))
    assert ours > theirs


def test_classes_of_several_clouds_are_left_to_neighbors() -> None:
    rng = np.random.default_rng(0)
    corner = rng.integers(0, 2, (600, 2))
    z = 3 * (2 * corner - 1) @ rng.normal(size=(2, 8)) + rng.normal(size=(600, 8))
    truth = corner[:, 0] ^ corner[:, 1]
    assert infer_verdicts(z, noisy(truth, 0.2, 0)).class_means is None


def test_digits_with_all_labels_right_are_left_to_neighbors() -> None:
    z, truth = load_digits(return_X_y=True)
    auto = infer_verdicts(z, truth)
    assert auto.class_means is None
    knn = infer_verdicts(z, truth, settings=CleaningSettings(classifier="knn"))
    assert auto.verdicts.equals(knn.verdicts)


def test_held_out_labels_are_hidden_from_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels without any class signal: what has seen them would find them likelier than the other."""
    seen: list[np.ndarray] = []
    propagate = classifier.propagate_labels

    def spy(graph: object, Y: object, k: int) -> object:
        seen.append((Y.sum(1) > 0).numpy())  # type: ignore[attr-defined]
        return propagate(graph, Y, k)  # type: ignore[arg-type]

    monkeypatch.setattr(classifier, "propagate_labels", spy)
    z, truth = round_classes(0, 500)
    infer_verdicts(z, noisy(truth, 0.3, 0))
    assert len(seen) == classifier.JUDGED
    assert [int((~labeled).sum()) for labeled in seen] == [100, 100]
    assert not (~seen[0] & ~seen[1]).any()
