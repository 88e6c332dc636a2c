"""Samples as the page holds them."""

import numpy as np
import pandas as pd
import pytest

from graphclean.report import samples as room
from graphclean.report.samples import (
    Duplicates,
    as_columns,
    choose_classes,
    choose_rows,
    count_classes,
    count_pairs,
    cut_classes,
    rank,
    read_samples,
    rows_with_issues,
)

TABLE = pd.DataFrame(
    {
        "id": ["a", "b", "c", "d", "e", "f"],
        "given_label": ["cat", "cat", "dog", "dog", None, "emu"],
        "proposed_label": ["cat", "dog", "dog", "cat", "cat", None],
        "verdict": ["keep", "relabel", "ood", "uncertain", "unlabeled", "unreadable"],
        "confidence": [0.81, 0.6, 0.8, 0.4, 0.7, np.nan],
        "label_quality": [0.9, 0.1, 0.5, 0.5, np.nan, np.nan],
        "ood_score": [0.1, 0.2, 0.8, 0.2, 0.3, np.nan],
        "selected": [True, True, False, False, True, False],
        "neighbors": [["b", "c"], ["a"], [], ["zz", "e"], [], []],
        "duplicate_group": pd.array([1, None, 2, 1, 2, None], dtype="Int64"),
    }
)
DETECTOR_SCORE = np.array([0.1, 0.2, 0.9, 0.5, 0.4])


def test_labels_become_codes_and_an_unknown_label_a_class_of_its_own() -> None:
    samples = read_samples(TABLE, ["cat", "dog"], DETECTOR_SCORE)
    assert samples.classes == ["cat", "dog", "emu"]
    assert samples.given.tolist() == [0, 0, 1, 1, -1, 2]
    assert samples.proposed.tolist() == [0, 1, 1, 0, 0, -1]
    assert list(samples.near) == [[1, 2], [0], [], [4], [], []]


def test_the_detectors_score_skips_what_could_not_be_read_and_is_left_out_where_it_does_not_fit() -> None:
    found = read_samples(TABLE, ["cat", "dog"], DETECTOR_SCORE).detector_score
    assert found is not None
    assert found[:5].tolist() == DETECTOR_SCORE.tolist()
    assert np.isnan(found[5])
    assert read_samples(TABLE, ["cat", "dog"], DETECTOR_SCORE[:3]).detector_score is None


def test_numbers_as_labels_are_the_classes_of_the_summary() -> None:
    table = TABLE.iloc[:2].assign(given_label=[3, 7], proposed_label=[3, 3])
    samples = read_samples(table, [3, 7], None)
    assert (samples.classes, samples.given.tolist()) == (["3", "7"], [0, 1])


def test_the_surest_come_first_and_of_the_uncertain_the_least_likely_right() -> None:
    samples = read_samples(TABLE.assign(verdict="relabel"), ["cat", "dog"], None)
    assert rank(samples, "relabel").tolist() == [0, 2, 4, 1, 3, 5]
    samples = read_samples(TABLE.assign(verdict="uncertain"), ["cat", "dog"], None)
    assert rank(samples, "uncertain").tolist() == [3, 1, 4, 2, 0, 5]


def test_columns_are_thousandths_and_places_among_the_rows_chosen() -> None:
    columns = as_columns(read_samples(TABLE, ["cat", "dog"], DETECTOR_SCORE), np.array([0, 1, 5]))
    assert columns["id"] == ["a", "b", "f"]
    assert columns["quality"] == [900, 100, None]
    assert columns["detector_score"] == [100, 200, None]
    assert columns["near"] == [[1, -1], [0], []]


def test_pairs_and_classes_are_counted_over_all() -> None:
    samples = read_samples(TABLE, ["cat", "dog"], None)
    assert count_pairs(samples) == [[0, 0, 1], [0, 1, 1]]
    assert count_classes(samples)[:2] == [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0]]


def test_the_matrix_shows_the_classes_with_the_most_labels_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = read_samples(TABLE, ["cat", "dog"], None)
    pairs = [[0, 0, 9], [1, 1, 9], [0, 2, 1], [2, 1, 3], [2, -1, 50]]
    assert choose_classes(samples, pairs) == [0, 1, 2]
    monkeypatch.setattr(room, "MOST_IN_MATRIX", 2)
    assert choose_classes(samples, pairs) == [1, 2]
    assert choose_classes(samples, []) == [0, 1]


def test_too_many_rows_are_sampled_suspects_first(monkeypatch: pytest.MonkeyPatch) -> None:
    many = pd.concat([TABLE.iloc[[0]]] * 90 + [TABLE.iloc[[1]]] * 10, ignore_index=True)
    many["label_quality"] = np.linspace(0.9, 0.1, 100)
    samples = read_samples(many.assign(id=[f"n{i}" for i in range(100)]), ["cat", "dog"], None)
    assert choose_rows(samples, np.array([5])).tolist() == list(range(100))
    monkeypatch.setattr(room, "MOST_ROWS", 20)
    rows = choose_rows(samples, np.array([5]))
    assert len(rows) == 20
    assert sorted(set(rows.tolist())) == rows.tolist()
    # The row that was asked for, and the surest quarter of the suspects.
    assert {5, *rank(samples, "relabel")[:5].tolist()} <= set(rows.tolist())


def test_rows_with_long_names_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_TABLE_BYTES", 1000)
    for letters, most in (("abcdef", 2), ("<>&<>&", 0)):  # an escape takes six bytes
        samples = read_samples(TABLE.assign(id=[letter * 400 for letter in letters]), ["cat", "dog"], None)
        assert len(choose_rows(samples, np.zeros(0, dtype=np.int64))) == most


def test_photos_that_something_is_wrong_with() -> None:
    table = TABLE.assign(photo_issues=[[], ["dark"], ["blank", "dark"], ["blank"], [], []])
    samples = read_samples(table, ["cat", "dog"], None)
    assert as_columns(samples, np.array([1, 2, 5]))["issues"] == [[1], [0, 1], []]
    assert rows_with_issues(samples).tolist() == [2, 3, 1]  # most first, then the gravest
    assert rows_with_issues(read_samples(TABLE, ["cat", "dog"], None)).tolist() == []


def test_groups_with_conflicting_labels_come_first() -> None:
    """A label that is not there conflicts with none."""
    samples = read_samples(TABLE, ["cat", "dog"], None)
    assert Duplicates.find(samples) == Duplicates([[0, 3], [2, 4]], 1)
    other = TABLE.assign(given_label=["cat", "cat", "dog", "cat", "emu", "emu"])
    assert Duplicates.find(read_samples(other, ["cat", "dog"], None)) == Duplicates([[2, 4], [0, 3]], 1)
    unlabeled = TABLE.assign(given_label=[None, "cat", None, None, None, "emu"])
    assert Duplicates.find(read_samples(unlabeled, ["cat", "dog"], None)) == Duplicates([[0, 3], [2, 4]], 0)
    alone = TABLE.assign(duplicate_group=pd.array([None] * 6, dtype="Int64"))
    assert Duplicates.find(read_samples(alone, ["cat", "dog"], None)) == Duplicates([], 0)


def test_class_names_are_cut_where_they_would_not_fit_and_stay_different() -> None:
    assert cut_classes(["cat", "dog" * 5000]) == ["cat", "dog" * 5000]
    names = ["cat", *(f"{'x' * 700_000}{place}" for place in range(40)), "x" * 2000]
    cut = cut_classes(names)
    assert cut[0] == "cat"
    assert cut[1] == f"{'x' * 2000}… (2)"
    assert len(set(cut)) == len(names)
    many = [f"{place:06}{'<' * 30}" for place in range(60_000)]
    assert len(set(cut_classes(many))) == len(many)


def test_a_row_with_a_huge_name_does_not_take_the_room_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_TABLE_BYTES", 2000)
    table = pd.concat([TABLE.iloc[:1]] * 50, ignore_index=True)
    table["id"] = [f"{row}{'x' * (4000 if row == 7 else 0)}" for row in range(50)]
    chosen = choose_rows(read_samples(table, ["cat", "dog"], None), np.array([7, 3]))
    assert 3 in chosen
    assert 7 not in chosen
    assert len(chosen) > 5
    table = table.assign(id=["x" * 9000] * 50)
    assert len(choose_rows(read_samples(table, ["cat", "dog"], None), np.array([7, 3]))) == 0
