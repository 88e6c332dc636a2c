"""Near-duplicates: which samples are joined, and that a group has one voice."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from graphclean.cleaning import CleaningResult, choice, infer_verdicts
from graphclean.cleaning.duplicates import (
    BEYOND,
    HASH_BITS,
    LARGEST_ALONE,
    MOST,
    MOST_HASHED,
    TOLERANCE,
    Limits,
    TrainingSamples,
    distance_ratio,
    find_duplicates,
)
from graphclean.cleaning.evidence import Copies
from graphclean.cleaning.inputs import encode_labels
from graphclean.cleaning.nodes import Nodes
from graphclean.config import CleaningSettings
from graphclean.graph import nearest_neighbors

WIDE = 64
"""Dimensions in which mere neighbors are never as close as duplicates."""


def clouds(n: int, seed: int = 0, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Classes that overlap a little, as features of photos."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % classes
    return (0.5 * rng.normal(size=(classes, WIDE))[truth] + rng.normal(size=(n, WIDE))), truth


def near_copies(z: np.ndarray, rows: list[int], seed: int = 1, apart: float = 0.15) -> np.ndarray:
    return np.asarray(z[rows] + apart * np.random.default_rng(seed).normal(size=(len(rows), z.shape[1])))


def search(z: np.ndarray, hashes: np.ndarray | None = None, k: int = 50) -> np.ndarray | None:
    unit = normalize(torch.as_tensor(z, dtype=torch.float32), dim=1)
    return find_duplicates(unit, nearest_neighbors(unit, k), hashes)


def test_pairs_and_bursts_are_found_and_nothing_else() -> None:
    z, _ = clouds(300)
    assert search(z) is None
    sources = [7, 7, 40, *[99] * 7]
    group = search(np.vstack([z, near_copies(z, sources)]))
    assert group is not None
    expected = np.append(np.arange(300), sources)
    assert group.tolist() == expected.tolist()


@pytest.mark.parametrize(("dimension", "joined"), [(3, False), (64, True)])
def test_how_close_duplicates_must_be_depends_on_the_dimension(dimension: int, joined: bool) -> None:
    """A tenth of the usual distance is nothing special where space is narrow."""
    z = np.random.default_rng(0).normal(size=(400, dimension))
    z = np.vstack([z, near_copies(z, [5])])
    group = search(z)
    assert (group is not None and group[400] == 5) == joined


def cosine(distances: torch.Tensor) -> torch.Tensor:
    """Of unit vectors at these distances."""
    return 1 - distances.double() ** 2 / 2


@pytest.mark.parametrize("dimension", [4, 8])
def test_the_ratio_is_where_mere_neighbors_are_as_rare_as_the_tolerance(dimension: int) -> None:
    """On a ball the chance that one neighbor is within r of another's distance is r^D."""
    rng = np.random.default_rng(0)
    z = np.zeros((4000, dimension + 1))
    z[:, :dimension], z[:, -1] = 0.02 * rng.uniform(-1, 1, size=(4000, dimension)), 1  # flat, of that many
    unit = normalize(torch.as_tensor(z), dim=1)
    near = nearest_neighbors(unit, 30)
    middle = (unit[:, :-1].abs() < 0.01).all(1)  # away from the edges
    assert distance_ratio(near.similarities[middle], hashed=False) == pytest.approx(
        TOLERANCE ** (1 / dimension), rel=0.15
    )


def test_the_ratio_stays_under_its_bound_in_any_number_of_dimensions() -> None:
    flat = cosine(torch.ones(50, 30))
    assert distance_ratio(flat, hashed=False) == MOST
    assert distance_ratio(flat, hashed=True) == MOST_HASHED
    assert distance_ratio(cosine(torch.zeros(50, 30)), hashed=False) == 0


def test_limits_are_taken_beyond_the_last_duplicate() -> None:
    """Worked by hand: three close, then mere neighbors at 1; nobody close; and a list of copies."""
    near = torch.tensor([[0.1, 0.12, 0.13], [1.0, 1.0, 1.0]])
    distances = torch.cat([near, torch.linspace(1.0, 1.1, 22).expand(2, -1)], 1)
    unit = normalize(torch.randn(100, 64, generator=torch.Generator().manual_seed(0)), dim=1)
    r = distance_ratio(cosine(distances), hashed=False)
    limits = Limits.find(unit, cosine(distances), hashed=False)
    assert limits.ratio == r
    assert limits.beyond.tolist() == pytest.approx(distances[[0, 1], [2 + BEYOND, BEYOND]].tolist())
    assert limits.allow(torch.tensor([0.99, 1.01]) * r * limits.beyond, torch.arange(2), None).tolist() == [
        True,
        False,
    ]
    packed, one = torch.full((1, 25), 0.2), torch.zeros(1, dtype=torch.int64)
    alone, hashed = (Limits.find(unit, cosine(packed), hashed=how) for how in (False, True))
    assert not alone.allow(packed[0, :1], one, None), "features alone: a class may be as tight"
    assert hashed.allow(packed[0, :1], one, torch.tensor([64])), "with hashes any number may be joined"


def test_a_tight_class_is_no_group_of_duplicates() -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), 2 * LARGEST_ALONE)
    assert search(10 * rng.normal(size=(5, WIDE))[truth] + rng.normal(size=(len(truth), WIDE))) is None


@pytest.mark.parametrize("hashed", [False, True])
def test_linkage_is_complete(hashed: bool) -> None:
    """A chain of samples, each near the next: of every group all pairs must be near, by brute force."""
    z, _ = clouds(300)
    turn = 0.4 * np.arange(1, 13)[:, None]  # each as far from the next, on a circle
    across = np.random.default_rng(2).normal(size=WIDE)
    across -= (across @ z[10]) / (z[10] @ z[10]) * z[10]
    chain = np.cos(turn) * z[10] + np.sin(turn) * across * np.linalg.norm(z[10]) / np.linalg.norm(across)
    z = np.vstack([z, chain])
    hashes = np.zeros(len(z), dtype=np.int64) if hashed else None
    unit = normalize(torch.as_tensor(z, dtype=torch.float32), dim=1)
    near = nearest_neighbors(unit, 50)
    group = find_duplicates(unit, near, hashes)
    assert group is not None
    limits = Limits.find(unit, near.similarities, hashed=hashed).beyond.numpy()
    apart = np.linalg.norm(unit.numpy()[:, None] - unit.numpy()[None], axis=2)
    for name in np.unique(group):
        members = np.flatnonzero(group == name)
        assert members[0] == name
        for a, b in combinations(members, 2):
            assert apart[a, b] <= min(limits[a], limits[b]) + 1e-4
    assert len(np.unique(group[300:])) > 1, "the ends of the chain have nothing in common"


def test_hashes_must_agree_and_allow_for_more_distance() -> None:
    z, _ = clouds(300)
    z = np.vstack([z, near_copies(z, [3, 4], apart=0.15), near_copies(z, [5], apart=1.3)])
    hashes = np.random.default_rng(0).integers(0, 2**63, len(z))
    changed = (1 << np.arange(HASH_BITS + 1, dtype=np.int64)).cumsum()
    hashes[300] = hashes[3] ^ changed[HASH_BITS - 1]
    hashes[301] = hashes[4] ^ changed[HASH_BITS]
    hashes[302] = hashes[5]
    group, alone = search(z, hashes), search(z)
    assert group is not None
    assert alone is not None
    assert group[300:].tolist() == [3, 301, 5]
    assert alone[300:].tolist() == [3, 4, 302]


def test_equal_hashes_allow_for_the_distance_of_mere_neighbors() -> None:
    z, _ = clouds(300)
    z = np.vstack([z, near_copies(z, [5, 6], apart=1.75)])
    hashes = np.random.default_rng(0).integers(0, 2**63, len(z))
    hashes[300], hashes[301] = hashes[5] ^ 0b11110, hashes[6] ^ 0b111110  # 4 bits and 5
    group = search(z, hashes)
    assert group is not None
    assert group[300:].tolist() == [5, 301]


def test_any_number_is_joined_where_hashes_agree() -> None:
    z, _ = clouds(120)
    hashes = np.append(np.random.default_rng(0).integers(0, 2**63, 120), np.full(200, 9))
    z = np.vstack([z, near_copies(z, [0] * 200)])
    hashes[0] = 9
    group = search(z, hashes)
    assert group is not None
    assert group[120:].tolist() == [0] * 200
    assert group[:120].tolist() == list(range(120))


def test_lists_without_the_joined_are_those_of_a_new_search() -> None:
    z, _ = clouds(200)
    settings = CleaningSettings(k=(10, 20))
    unit = normalize(torch.as_tensor(z, dtype=torch.float32), dim=1)
    whole = Nodes(choice.Standardizer.fit(z), unit, nearest_neighbors(unit, 30))
    rows = np.setdiff1d(np.arange(200), np.random.default_rng(0).choice(200, 30, replace=False))
    kept = whole.keep(rows, settings, lambda *_: None).neighbors
    again = nearest_neighbors(unit[rows], 30)
    assert kept is not None
    assert torch.equal(kept.indices, again.indices)
    torch.testing.assert_close(kept.similarities, again.similarities)


def wrong_groups(size: int, seed: int = 0) -> tuple[CleaningResult, np.ndarray, np.ndarray]:
    """A noisy set in which 40 right samples come `size` times, all with one wrong label."""
    z, truth = clouds(600, seed)
    labels = np.where(np.random.default_rng(seed).random(600) < 0.2, (truth + 2) % 5, truth)
    rows = np.arange(40)
    labels[rows] = (truth[rows] + 1) % 5
    sources = np.repeat(rows, size - 1)
    z = np.vstack([z, near_copies(z, sources.tolist())])
    return infer_verdicts(z, np.append(labels, labels[sources])), rows, truth


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 5, 8])
def test_a_group_with_one_wrong_label_is_judged_as_a_single_sample(size: int) -> None:
    """Nothing may depend on how often a sample was saved."""
    single, rows, _ = wrong_groups(1)
    many, _, _ = wrong_groups(size)
    assert many.verdicts.duplicate_group.nunique() == 40
    of_first = many.verdicts.iloc[:600]
    wanted = single.verdicts.iloc[rows]
    assert wanted.verdict.isin(["relabel", "ood"]).mean() > 0.8
    assert (of_first.verdict == single.verdicts.verdict).all()
    np.testing.assert_allclose(of_first.label_quality, single.verdicts.label_quality, atol=0.01)
    for _, group in many.verdicts.groupby("duplicate_group"):
        assert group.verdict.nunique() == group.proposed_label.nunique() == 1


def test_without_joining_they_vouch_for_each_other() -> None:
    """What the joining is for: eight alike with one wrong label are kept without it."""
    z, truth = clouds(400)
    labels = truth.copy()
    labels[0] = (truth[0] + 1) % 5
    z, labels = np.vstack([z, near_copies(z, [0] * 7)]), np.append(labels, [labels[0]] * 7)
    burst = [0, *range(400, 407)]
    apart, joined = (
        infer_verdicts(z, labels, settings=CleaningSettings(k=(8,), near_duplicates=on))
        for on in (False, True)
    )
    assert (apart.verdicts.verdict[burst] == "keep").all()
    assert joined.verdicts.verdict[burst].isin(["relabel", "ood"]).all()
    assert (joined.verdicts.proposed_label[burst] == truth[0]).all()
    assert "7 samples are near-duplicates of an earlier one" in " / ".join(joined.summary.warnings)


def test_labels_in_conflict_are_judged_by_the_one_that_fits() -> None:
    z, truth = clouds(400)
    wrong = (truth[0] + 1) % 5
    z, labels = np.vstack([z, near_copies(z, [0, 0])]), np.append(truth, [wrong, -1])
    table = infer_verdicts(z, labels).verdicts.iloc[[0, 400, 401]]
    assert table.verdict.tolist()[::2] == ["keep", "unlabeled"]
    assert table.verdict.iloc[1] == "relabel"
    assert (table.proposed_label == truth[0]).all()
    assert table.ood_score.nunique() == 1
    assert table.duplicate_group.tolist() == [1, 1, 1]


def test_one_label_stands_for_a_node() -> None:
    copies = Copies(np.array([0, 1]), np.array([0, 1, 0, 1, 0]))
    labels = encode_labels([-1, 2, 1, 0, 0])
    assert copies.one_each(labels).codes.tolist() == [1, 2]
    decided = copies.share_decisions(type(labels)(labels.codes, labels.classes, np.array([-1, -1, -1, 3, 1])))
    assert decided.decided is not None
    assert decided.decided.tolist() == [1, 3, 1, 3, 1]
    assert copies.one_each(decided).reviewed.tolist() == [1, -1]
    assert copies.join(np.array([0, 0])).node.tolist() == [0] * 5
    assert Copies.none(3).groups().isna().all()
    assert copies.groups().tolist() == [1, 2, 1, 2, 1]


def test_most_of_the_data_may_be_one_group() -> None:
    """300 of 500 rows show one thing, next to exact copies; the others are judged as without them."""
    z, truth = clouds(200)
    labels = truth.copy()
    labels[1] = (truth[1] + 1) % 5
    some = np.vstack([z, np.repeat(z[:1], 150, 0), near_copies(z, [0] * 150)])
    given = np.append(labels, np.full(300, truth[0]))
    hashes = np.append(np.random.default_rng(0).integers(0, 2**63, 200), np.zeros(300, dtype=np.int64))
    hashes[0] = 0
    found, without = (
        infer_verdicts(some, replace(encode_labels(given), hashes=hashes)),
        infer_verdicts(z, labels),
    )
    assert (found.verdicts.verdict[:200] == without.verdicts.verdict).mean() > 0.97
    assert found.verdicts.duplicate_group.eq(1).sum() == 301
    assert "one group of duplicates holds 301 of 500 samples" in " / ".join(found.summary.warnings)
    assert found.verdicts.label_quality.notna().all()


def test_nothing_but_near_duplicates_gives_no_verdict() -> None:
    """There are no mere neighbors to tell them from; what differs among them says nothing of labels."""
    z = np.ones((60, WIDE)) + 1e-3 * np.random.default_rng(0).normal(size=(60, WIDE))
    for hashes in (None, np.zeros(60, np.int64)):
        found = infer_verdicts(z, replace(encode_labels(np.arange(60) % 2), hashes=hashes))
        assert "no class signal" in " / ".join(found.summary.warnings)
        assert (found.verdicts.verdict == "uncertain").all()


def test_a_class_that_is_one_group_is_named() -> None:
    z, truth = clouds(300)
    z = np.vstack([z, near_copies(z, [0] * 6)])
    labels = np.append(truth, [5] * 6)
    labels[0] = 5
    found = infer_verdicts(z, labels)
    assert "1 class is one group of duplicates, so no other sample speaks for the label: 5" in (
        " / ".join(found.summary.warnings)
    )
    assert found.verdicts.verdict.iloc[300:].nunique() == 1


@pytest.mark.parametrize("more", [2 * LARGEST_ALONE, 200])
def test_groups_that_features_alone_do_not_join_are_named(more: int) -> None:
    """A class of near-copies, or most of the set: what features can't tell from a tight class."""
    z, truth = clouds(200)
    z, labels = np.vstack([z, near_copies(z, [0] * more, apart=1e-3)]), np.append(truth, [5] * more)
    found = infer_verdicts(z, labels)
    assert f"{more + 1} samples lie close together" in " / ".join(found.summary.warnings)
    assert found.verdicts.verdict.notna().all()
    tight = 10 * np.random.default_rng(0).normal(size=(5, WIDE))[truth] + z[:200]
    for other in (tight, clouds(200)[0]):
        assert "lie close" not in " / ".join(infer_verdicts(other, truth).summary.warnings)


def test_new_samples_are_known_by_distance_and_hash() -> None:
    z, _ = clouds(300)
    unit = normalize(torch.as_tensor(z, dtype=torch.float32), dim=1)
    near, rows = nearest_neighbors(unit, 50), np.arange(300) + 1000
    hashes = np.random.default_rng(0).integers(0, 2**63, 300)
    new = np.vstack([z[3], near_copies(z, [4, 5]), clouds(2, seed=9)[0]])
    queries = normalize(torch.as_tensor(new, dtype=torch.float32), dim=1)
    queries[0] = unit[3]
    assert TrainingSamples.gather(unit, near, rows, None).find(queries).tolist() == [1003, 1004, 1005, -1, -1]
    photos = TrainingSamples.gather(unit, near, rows, hashes)
    theirs = np.array([0, hashes[4], ~hashes[5], hashes[6], 0])
    assert photos.find(queries, theirs).tolist() == [1003, 1004, -1, -1, -1]
    assert photos.find(queries).tolist() == [1003, -1, -1, -1, -1], "without hashes only what is equal"
