import numpy as np
import pandas as pd
import pytest

from graphclean.cleaning.inputs import Labels
from graphclean.cleaning.verdicts import (
    Posterior,
    can_be_reported,
    decide,
    hold_posterior,
    verdict_table,
    with_unreadable,
    withhold_relabels,
)
from graphclean.data.verdict import Verdict, describe_rates


def judge(keep: float, relabel: float, ood: float, certainty: float = 0.6) -> tuple[str, int]:
    """A sample labeled 0 of two classes."""
    posterior = Posterior(np.array([[keep, relabel]]), np.array([ood]))
    decision = decide(posterior, np.array([0]), certainty)
    return str(decision.verdict[0]), int(decision.proposed[0])


def test_the_label_is_judged_first() -> None:
    assert judge(0.61, 0.39, 0.0) == ("keep", 0)
    assert judge(0.5, 0.3, 0.2) == ("uncertain", 0)
    assert judge(0.45, 0.5, 0.05) == ("uncertain", 1)
    assert judge(0.3, 0.5, 0.2) == ("relabel", 1)
    assert judge(0.3, 0.2, 0.5) == ("ood", 0)


def test_a_surely_wrong_label_is_never_uncertain() -> None:
    assert judge(0.01, 0.5, 0.49) == ("relabel", 1)
    assert judge(0.01, 0.49, 0.5) == ("ood", 1)


def test_no_label_is_replaced_by_itself() -> None:
    """P(keep) is low, but no single other class is likelier."""
    posterior = Posterior(np.array([[0.3, 0.2, 0.2]]), np.array([0.3]))
    decision = decide(posterior, np.array([0]), 0.6)
    assert (decision.verdict[0], decision.proposed[0]) == ("uncertain", 0)


def test_certainty_moves_the_borders() -> None:
    assert judge(0.7, 0.3, 0.0, certainty=0.8) == ("uncertain", 0)
    assert judge(0.55, 0.45, 0.0, certainty=0.5) == ("keep", 0)


def test_quality_is_the_chance_of_the_label_among_known_classes() -> None:
    posterior = Posterior(np.array([[0.3, 0.1], [0.0, 0.0], [0.5, 0.1]]), np.array([0.6, 1.0, 0.4]))
    decision = decide(posterior, np.array([0, 1, -1]), 0.6)
    np.testing.assert_allclose(decision.quality, [0.75, 0, np.nan])
    assert decision.verdict.tolist() == ["ood", "ood", "unlabeled"]


def test_confidence_is_the_probability_of_what_is_stated() -> None:
    classes = [[0.8, 0.1, 0.0], [0.1, 0.5, 0.2], [0.1, 0.2, 0.1], [0.5, 0.4, 0.0], [0.1, 0.2, 0.4]]
    posterior = Posterior(np.array(classes), np.array([0.1, 0.2, 0.6, 0.1, 0.3]))
    decision = decide(posterior, np.array([0, 0, 0, 0, -1]), 0.6)
    assert decision.verdict.tolist() == ["keep", "relabel", "ood", "uncertain", "unlabeled"]
    np.testing.assert_allclose(decision.confidence, [0.8, 0.5, 0.6, 0.5, 0.4])
    # A proposal that is withheld leaves the given label.
    withheld = withhold_relabels(decision, np.array([0, 0, 0, 0, -1]))
    np.testing.assert_allclose(withheld.confidence, [0.8, 0.1, 0.6, 0.5, 0.4])


@pytest.mark.parametrize(
    ("unread", "given", "proposed"),
    [("1", [0, 1, 1], [1, None, 1]), ("x", ["0", "x", "1"], ["1", None, "1"])],
)
def test_numbers_stay_numbers_beside_what_cant_be_read(
    unread: str, given: list[object], proposed: list[object]
) -> None:
    labels = Labels(np.array([0, 1]), [0, 1])
    decision = decide(Posterior(np.array([[0.1, 0.9], [0.1, 0.9]]), np.zeros(2)), labels.codes, 0.6)
    none = pd.Series([pd.NA, pd.NA], dtype="Int64")
    read = verdict_table(decision, labels, ["a", "c"], np.ones(2, bool), np.zeros((2, 0), np.int64), none)
    table = with_unreadable(read, ["a", "b", "c"], np.array([0, 2]), ["0", unread, "1"])
    assert table.given_label.tolist() == given
    assert table.proposed_label.astype(object).where(table.proposed_label.notna(), None).tolist() == proposed
    assert table.verdict.tolist() == ["relabel", "unreadable", "keep"]


def test_nothing_speaks_for_another_class_of_what_is_blank() -> None:
    """Rows: blank with a label, blank without one, not blank, and blank but decided by a person."""
    codes, decided = np.array([0, -1, 0, 0]), np.array([-1, -1, -1, 1])
    posterior = Posterior(np.tile([0.2, 0.7], (4, 1)), np.full(4, 0.1))
    labels = Labels(codes, ["a", "b"], decided, np.array([True, True, False, True]))
    held = hold_posterior(posterior, labels)
    np.testing.assert_allclose(held.classes, [[0.2, 0], [0, 0], [0.2, 0.7], [0, 1]])
    np.testing.assert_allclose(held.ood, [0.8, 1, 0.1, 0])
    assert decide(held, codes, 0.6).verdict.tolist() == ["ood", "ood", "relabel", "relabel"]
    assert labels.take(np.array([3, 0])).blank is not None


@pytest.mark.parametrize(
    ("fraction", "count", "reported"),
    [(0.8, 255, False), (0.8, 257, True), (0.98, 31, False), (0.98, 32, True), (1.0, 1, True)],
)
def test_a_fraction_is_reported_where_two_standard_errors_are_five_points(
    fraction: float, count: int, reported: bool
) -> None:
    assert can_be_reported(Verdict.KEEP, fraction, count) is reported


def test_low_confidence_is_not_reported_however_many_there_are() -> None:
    for verdict, least in ((Verdict.KEEP, 0.8), (Verdict.RELABEL, 0.8), (Verdict.OOD, 0.9)):
        assert can_be_reported(verdict, least, 10_000)
        assert not can_be_reported(verdict, least - 0.01, 10_000)


def test_rates_in_words() -> None:
    assert describe_rates(None, None, None) is None
    assert describe_rates(0.1, 0.2, None, "photos") == (
        "10.0 % of the labels of known classes are wrong, 20.0 % of the photos belong to no class"
    )
    assert describe_rates(0.1, None, 0.04) == (
        "10.0 % of the labels of known classes are wrong; whether any samples belong to no class is unknown "
        "(labels would allow about 4 %)"
    )
