import math

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, f1_score

from graphclean.metrics import score_verdicts


def test_worked_by_hand() -> None:
    table = pd.DataFrame(
        [
            # given, proposed, verdict, quality, ood
            ("a", "a", "keep", 0.9, 0.0),  # right
            ("a", "b", "relabel", 0.1, 0.1),  # truth b: found
            ("b", "b", "keep", 0.8, 0.2),  # truth a: missed
            ("b", "a", "relabel", 0.2, 0.3),  # truth b: false alarm
            ("a", "a", "ood", 0.3, 0.9),  # OOD: found
            ("b", "b", "uncertain", 0.5, 0.25),  # OOD: not flagged
        ],
        columns=["given_label", "proposed_label", "verdict", "label_quality", "ood_score"],
    )
    scores = score_verdicts(table, ["a", "b", "a", "b", "", ""], [False] * 4 + [True] * 2)
    assert scores.mislabel_f1 == pytest.approx(0.5)  # 1 found, 1 false, 1 missed
    assert scores.issue_f1 == pytest.approx(4 / 7)  # 2 found, 1 false, 2 missed
    assert scores.label_accuracy == pytest.approx(0.5)
    assert scores.ood_auroc == pytest.approx(7 / 8)  # 0.9 beats 4, 0.25 beats 3 of 4
    # Most likely: keep, relabel, keep, relabel, ood, keep against clean, wrong, wrong, clean, ood, ood.
    assert scores.three_way_f1 == pytest.approx((2 / 5 + 2 / 4 + 2 / 3) / 3)
    assert scores.confusion == {
        "right": {"keep": 1, "relabel": 1, "ood": 0, "uncertain": 0},
        "wrong": {"keep": 1, "relabel": 1, "ood": 0, "uncertain": 0},
        "ood": {"keep": 0, "relabel": 0, "ood": 1, "uncertain": 1},
    }


def test_confusion_is_scikit_learn_s() -> None:
    """Rows without a label, or that could not be read, are in neither."""
    rng = np.random.default_rng(0)
    given, truth, ood = rng.integers(0, 3, 500), rng.integers(0, 3, 500), rng.random(500) < 0.3
    names = np.array(["keep", "relabel", "ood", "uncertain", "unlabeled", "unreadable"])
    verdict = names[rng.integers(0, 6, 500)]
    table = pd.DataFrame({"given_label": given, "proposed_label": 0, "verdict": verdict})
    table["given_label"] = table["given_label"].where(verdict != "unlabeled")
    scores = score_verdicts(table.assign(label_quality=0.5, ood_score=rng.random(500)), truth, ood)
    kinds = np.where(ood, 2, np.where(given != truth, 1, 0))
    cases = np.isin(verdict, names[:4])
    said = (verdict[cases, None] == names).argmax(1)
    expected = confusion_matrix(kinds[cases], said, labels=range(6))[:3, :4]
    found = pd.DataFrame(scores.confusion).T
    assert list(found.columns) == list(names[:4])
    np.testing.assert_array_equal(found.to_numpy(), expected)


def test_three_way_f1_is_scikit_learn_s() -> None:
    """Of the most likely of three: the label is right, it is another's, there is none."""
    rng = np.random.default_rng(1)
    given, truth, ood = rng.integers(0, 3, 400), rng.integers(0, 3, 400), rng.random(400) < 0.3
    quality, far = rng.random(400), rng.random(400)
    table = pd.DataFrame(
        {"given_label": given, "proposed_label": 0, "verdict": "keep", "label_quality": quality}
    ).assign(ood_score=far)
    chances = zip(quality, far, strict=True)
    most_likely = [max(((1 - o) * q, 0), ((1 - o) * (1 - q), 1), (o, 2))[1] for q, o in chances]
    kinds = np.where(ood, 2, np.where(given != truth, 1, 0))
    expected = f1_score(kinds, most_likely, average="macro")
    assert score_verdicts(table, truth, ood).three_way_f1 == pytest.approx(expected)


def test_false_alarms_and_misses_alone_score_nothing() -> None:
    table = pd.DataFrame(
        {
            "given_label": [0, 1],
            "proposed_label": [0, 0],
            "verdict": ["keep", "relabel"],
            "label_quality": [0.9, 0.1],
            "ood_score": 0.0,
        }
    )
    false_alarm = score_verdicts(table, [0, 1], [False, False])
    assert (false_alarm.mislabel_f1, false_alarm.issue_f1) == (0, 0)
    kept = table.assign(proposed_label=[0, 1], verdict="keep")
    missed = score_verdicts(kept, [0, 0], [False, False])
    assert (missed.mislabel_f1, missed.issue_f1) == (0, 0)


def test_nothing_to_find_is_not_scored() -> None:
    table = pd.DataFrame(
        {
            "given_label": [0, 1],
            "proposed_label": [0, 1],
            "verdict": ["keep"] * 2,
            "label_quality": 1.0,
            "ood_score": 0.0,
        }
    )
    scores = score_verdicts(table, [0, 1], [False, False])
    assert scores.label_accuracy == 1
    assert math.isnan(scores.mislabel_f1)
    assert math.isnan(scores.issue_f1)
    assert math.isnan(scores.ood_auroc)


def test_rows_without_label_score_or_image_are_no_cases() -> None:
    columns = ["given_label", "proposed_label", "verdict", "label_quality", "ood_score"]
    rows = [
        ("a", "a", "keep", 0.9, 0.0),
        ("a", "b", "relabel", 0.1, 0.1),
        ("b", "b", "keep", 0.8, 0.2),
        ("a", "a", "ood", 0.3, 0.9),
    ]
    truth, ood = ["a", "b", "a", ""], [False, False, False, True]
    more = [
        (None, "b", "unlabeled", math.nan, 0.1),
        (None, "a", "unlabeled", math.nan, 0.95),
        ("a", "a", "unreadable", math.nan, math.nan),
    ]
    plain = score_verdicts(pd.DataFrame(rows, columns=columns), truth, ood)
    table = pd.DataFrame(rows + more, columns=columns)
    scores = score_verdicts(table, [*truth, "b", "a", "b"], [*ood, False, False, False])
    assert (scores.mislabel_f1, scores.issue_f1, scores.three_way_f1) == (
        plain.mislabel_f1, plain.issue_f1, plain.three_way_f1,
    )  # fmt: skip
    assert scores.label_accuracy == pytest.approx(4 / 5)  # also of those that had none
    assert scores.ood_auroc == pytest.approx(4 / 5)
