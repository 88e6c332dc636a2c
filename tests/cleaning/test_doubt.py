import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from graphclean.cleaning import doubt, infer_verdicts, pipeline
from graphclean.cleaning.doubt import lie_together
from tests.cleaning.test_choice import noisy


def digits(known: tuple[int, ...], ood: int | None, rate: float, seed: int) -> tuple[np.ndarray, ...]:
    """Features, noisy labels, and whether a digit is of no class."""
    z, digit = load_digits(return_X_y=True)
    rows = np.isin(digit, [*known, *([ood] if ood is not None else [])])
    z, digit = z[rows], digit[rows]
    truth = np.searchsorted(known, np.where(digit == ood, known[0], digit))
    rng = np.random.default_rng(seed)
    labels = np.where(digit == ood, rng.integers(0, len(known), len(digit)), noisy(truth, rate, seed))
    return z, labels, digit == ood


@pytest.mark.parametrize("load", [load_wine, load_iris, load_breast_cancer])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3])
def test_a_table_of_two_or_three_classes_without_ood_has_none(load: object, rate: float) -> None:
    z, truth = load(return_X_y=True)  # type: ignore[operator]
    cleaning = infer_verdicts(z, noisy(truth, rate, 0))
    assert cleaning.summary.verdicts["ood"] == 0
    rate, possible = cleaning.summary.ood_rate, cleaning.summary.possible_ood_rate
    assert possible is not None if rate is None else rate < 0.02


def test_an_ood_rate_that_nothing_shows_is_unknown() -> None:
    """Between classes that overlap, an OOD sample and one of two classes have the same labels around them."""
    rng = np.random.default_rng(0)
    truth = np.arange(400) % 3
    z = 1.2 * np.eye(3)[truth] + rng.normal(size=(400, 3))
    summary = infer_verdicts(z, truth).summary
    assert summary.verdicts["ood"] == 0
    assert summary.ood_rate is None
    assert summary.possible_ood_rate is not None
    assert summary.possible_ood_rate > 0.02
    assert summary.noise_rate is not None


@pytest.mark.parametrize("known", [(3, 8), (0, 1, 2)])
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_ood_is_found_where_it_lies_together_and_only_there(known: tuple[int, ...], rate: float) -> None:
    z, labels, _ = digits(known, None, rate, 0)
    assert infer_verdicts(z, labels).summary.verdicts["ood"] == 0
    z, labels, ood = digits(known, 5, rate, 0)
    found = infer_verdicts(z, labels).verdicts.verdict.to_numpy() == "ood"
    assert found[ood].mean() > 0.5
    assert found[~ood].mean() < 0.05


def test_how_many_proposals_are_right_is_told_where_halves_of_the_labels_agree_and_ood_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    z, truth = (part[:700] for part in load_digits(return_X_y=True))
    labels = noisy(truth, 0.3, 0)
    cleaning = infer_verdicts(z, labels)
    told = cleaning.summary.expected_right
    assert set(told) == {"keep", "relabel"}
    proposed = cleaning.verdicts.query("verdict == 'relabel'")
    assert told["relabel"] == pytest.approx(
        (proposed.proposed_label == truth[proposed.index]).mean(), abs=0.05
    )
    monkeypatch.setattr(pipeline, "measure_agreement", lambda *_: 0.8)
    assert set(infer_verdicts(z, labels).summary.expected_right) == {"keep"}
    monkeypatch.setattr(pipeline, "measure_agreement", lambda *_: 1.0)
    monkeypatch.setattr(pipeline, "undoubted_rate", lambda *_: 0.2)
    found = infer_verdicts(z, labels).summary
    assert found.ood_rate is None
    assert found.possible_ood_rate == 0.2
    assert set(found.expected_right) == {"keep"}


def test_what_might_be_ood_is_noted() -> None:
    z, truth = load_wine(return_X_y=True)
    notes = infer_verdicts(z, noisy(truth, 0.3, 0)).summary.warnings
    z, labels, _ = digits((3, 8), 5, 0.0, 0)
    assert not any("nothing shows" in note for note in infer_verdicts(z, labels).summary.warnings)
    assert all("the verdict is uncertain, or relabel" in note for note in notes if "nothing shows" in note)


def test_suspects_lie_together_where_a_quarter_of_their_nearest_are_suspects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doubt, "FEWEST_SUSPECTS", 2)
    suspects = np.array([True, True, False, False])
    assert (
        lie_together(suspects, np.array([[1, 2, 3, -1], [2, 3, -1, -1], [0, 1, -1, -1], [0, 1, -1, -1]]))
        is False
    )
    assert lie_together(suspects, np.array([[1, 2], [2, 3], [0, 1], [0, 1]]))
    assert not lie_together(np.array([True, False, False, False]), np.array([[0], [0], [0], [0]]))
