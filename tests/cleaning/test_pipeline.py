import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from graphclean import CleaningSettings, GraphSettings, clean_embeddings
from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.evidence import Copies
from graphclean.cleaning.inputs import Labels, encode_classes
from graphclean.data.digits import noisy_digits
from graphclean.errors import DataWarning, InputError
from graphclean.graph import knn_graph, nearest_neighbors, to_scipy
from graphclean.graph.noise_model import NoiseModel, fit_noise_model
from graphclean.metrics import score_verdicts


def blobs(
    sizes: list[int], noise: float = 0.0, ood: int = 0, seed: int = 0, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian clusters, and OOD points between them: features, noisy labels, truth (−1: OOD)."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(ood, -1)])
    centers = rng.normal(size=(len(sizes), 16)) * 1.2
    features = np.where(truth[:, None] >= 0, centers[truth], 0) + spread * rng.normal(size=(len(truth), 16))
    replaced = (rng.random(len(truth)) < noise) | (truth < 0)
    labels = np.where(replaced, rng.integers(0, len(sizes), len(truth)), truth)
    return features, labels, truth


def test_finds_wrong_labels_and_ood() -> None:
    z, labels, truth = blobs([120] * 5, noise=0.3, ood=100)
    cleaning = infer_verdicts(z, labels)
    assert cleaning.summary.warnings == []
    scores = score_verdicts(cleaning.verdicts, truth, truth < 0)
    assert scores.mislabel_f1 > 0.95
    assert scores.label_accuracy > 0.97
    assert scores.ood_auroc > 0.9
    wrong = (labels != truth)[truth >= 0].mean()
    assert cleaning.summary.noise_rate == pytest.approx(wrong, abs=0.05)
    assert cleaning.summary.ood_rate == pytest.approx(100 / 700, abs=0.02)
    relabeled = (cleaning.verdicts.verdict == "relabel").to_numpy()
    right = (cleaning.verdicts.proposed_label.to_numpy() == truth)[relabeled].mean()
    assert cleaning.verdicts.confidence[relabeled].mean() == pytest.approx(right, abs=0.05)
    assert cleaning.summary.expected_right["keep"] == pytest.approx(1, abs=0.05)
    chosen = cleaning.verdicts.selected.to_numpy()
    assert (cleaning.verdicts.proposed_label.to_numpy() == truth)[chosen].mean() > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "spread", "seed", "share"),
    [(150, 0.8, 0, 0.2), (150, 0.8, 0, 0.4), pytest.param(800, 1.1, 3, 0.4, id="at a small k alone")],
)
def test_finds_labels_that_are_wrong_alike(size: int, spread: float, seed: int, share: float) -> None:
    z, _, truth = blobs([size] * 6, spread=spread, seed=seed)
    taken_for = np.array([1, 1, 3, 2, 4, 5])
    wrong = np.random.default_rng(seed).random(len(truth)) < share
    labels = np.where(wrong, taken_for[truth], truth)
    scores = score_verdicts(infer_verdicts(z, labels).verdicts, truth, truth < 0)
    assert scores.mislabel_f1 > 0.95
    assert scores.label_accuracy > 0.97


def test_a_k_that_hides_class_dependent_noise_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """However likely the given labels are under it."""
    z, _, truth = blobs([150] * 6, spread=0.8)
    wrong = np.random.default_rng(0).random(len(truth)) < 0.4
    labels = np.where(wrong, np.array([1, 1, 3, 2, 4, 5])[truth], truth)
    settings = CleaningSettings(scaling="standardized")
    first = infer_verdicts(z, labels, settings=settings).summary
    hidden = iter(k == first.k for k in first.k_tried)

    def fit(*args: Any, correct: bool, **rest: Any) -> NoiseModel:
        if correct and next(hidden):
            return replace(fit_noise_model(*args, correct=False, **rest), log_likelihood=-0.01)
        return fit_noise_model(*args, correct=correct, **rest)

    monkeypatch.setattr("graphclean.cleaning.choice.fit_noise_model", fit)
    cleaning = infer_verdicts(z, labels, settings=settings)
    assert cleaning.summary.k != first.k
    assert score_verdicts(cleaning.verdicts, truth, truth < 0).mislabel_f1 > 0.95


def test_one_noise_model_does_where_noise_is_symmetric(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted twice or once for each k, the audit is the same."""
    fitted: list[bool] = []

    def fit(*args: Any, correct: bool, twice: bool, **rest: Any) -> NoiseModel:
        fitted.append(correct)
        model = fit_noise_model(*args, correct=correct, **rest)
        return replace(model, corrected=True) if twice else model

    z, labels, _ = blobs([120] * 5, noise=0.3, ood=100)
    results = []
    for twice in (True, False):
        monkeypatch.setattr("graphclean.cleaning.choice.fit_noise_model", partial(fit, twice=twice))
        results.append(infer_verdicts(z, labels, settings=CleaningSettings(scaling="standardized")))
    ks = len(results[0].summary.k_tried)
    assert fitted == [True, False] * ks + [True] * ks
    pd.testing.assert_frame_equal(results[0].verdicts, results[1].verdicts, check_exact=True)
    assert results[0].summary == results[1].summary


def decide_some(labels: np.ndarray, truth: np.ndarray, rows: np.ndarray) -> Labels:
    """Labels of which a person looked at some `rows`, and found the truth."""
    encoded = encode_classes(labels, len(labels))
    decided = np.full(len(labels), -1)
    decided[rows] = np.where(truth[rows] < 0, len(encoded.classes), truth[rows])
    return replace(encoded, decided=decided)


@pytest.mark.parametrize("classifier", ["knn", "knn+class-means"])
def test_decisions_are_held(classifier: Any) -> None:
    """Also those that no neighbor would agree with, and of samples that had no label."""
    z, labels, truth = blobs([80] * 5, noise=0.3, ood=60)
    labels[:10] = -1
    odd = truth.copy()
    odd[100:110] = (truth[100:110] + 1) % 5
    odd[200:205] = -1
    rows = np.concatenate([np.arange(0, 40), np.arange(100, 130), np.arange(200, 210), np.arange(400, 430)])
    given = decide_some(labels, odd, rows)
    settings = CleaningSettings(classifier=classifier)
    cleaning = infer_verdicts(z, given, settings=settings)
    table, known = cleaning.verdicts, odd[rows] >= 0
    wanted = np.where(odd[rows] == labels[rows], "keep", "relabel").astype(object)
    wanted[labels[rows] < 0], wanted[~known] = "unlabeled", "ood"
    assert table.verdict.to_numpy()[rows].tolist() == wanted.tolist()
    assert (table.proposed_label.to_numpy()[rows] == odd[rows])[known].all()
    assert (table.ood_score.to_numpy()[rows] == ~known).all()
    assert (table.selected.to_numpy()[rows] == known).all()
    assert cleaning.posterior is not None
    assert cleaning.predictor is not None
    assert set(cleaning.posterior[rows].ravel()) == {0.0, 1.0}
    # What predicts for new data knows them for certain too.
    nearest = cleaning.predictor.posterior.numpy()[rows]
    assert (nearest == cleaning.posterior[rows].astype(np.float32)).all()


def test_decisions_speak_for_their_neighbors() -> None:
    """Most of a cluster was given another name; once half of that is put right, the rest is found."""
    z, labels, truth = blobs([60, 60, 60], spread=0.7)
    labels[:40] = 1
    before = infer_verdicts(z, labels).verdicts
    after = infer_verdicts(z, decide_some(labels, truth, np.arange(20))).verdicts
    rest = np.arange(20, 40)
    assert (before.verdict[rest] == "keep").all()
    assert (after.verdict[rest] == "relabel").all()
    assert (after.proposed_label[rest] == 0).all()


def test_ood_decisions_make_their_like_more_ood() -> None:
    z, labels, truth = blobs([80] * 4, ood=80)
    rows = np.flatnonzero(truth < 0)[:40]
    rest = np.flatnonzero(truth < 0)[40:]
    before = infer_verdicts(z, labels).verdicts.ood_score[rest]
    after = infer_verdicts(z, decide_some(labels, truth, rows)).verdicts.ood_score[rest]
    assert after.mean() > before.mean()


def test_decisions_are_held_where_features_say_nothing() -> None:
    rng = np.random.default_rng(0)
    z, labels = rng.normal(size=(200, 8)), rng.integers(0, 3, 200)
    truth = np.where(np.arange(200) < 5, -1, (labels + 1) % 3)
    cleaning = infer_verdicts(z, decide_some(labels, truth, np.arange(10)))
    assert cleaning.predictor is None
    assert cleaning.verdicts.verdict.tolist() == ["ood"] * 5 + ["relabel"] * 5 + ["uncertain"] * 190


def test_decided_proposals_do_not_make_weak_features_strong() -> None:
    """Of 100 proposals too few would be right: those that a person made count for nothing in that."""
    z, labels, truth = blobs([100] * 5, noise=0.4, spread=1.8)
    settings = CleaningSettings(strength=0.99)
    rows = np.flatnonzero(labels != truth)[:60]
    cleaning = infer_verdicts(z, decide_some(labels, truth, rows), settings=settings)
    relabeled = np.flatnonzero(cleaning.verdicts.verdict == "relabel")
    assert relabeled.tolist() == rows.tolist()
    assert "too weak to relabel by" in " ".join(cleaning.summary.warnings)


@pytest.mark.slow
def test_classes_that_merely_look_alike_are_not_taken_for_noise() -> None:
    """Four numbers a digit tell many of them badly apart, and all labels are right."""
    digits = noisy_digits(0.0)
    scaled = (digits.pixels - digits.pixels.mean(0)) / (digits.pixels.std(0) + 1e-6)
    for seed in (1, 2):
        weak = scaled @ np.random.default_rng(seed).normal(size=(scaled.shape[1], 4))
        verdicts = infer_verdicts(weak.astype(np.float32), digits.truth).verdicts.verdict
        assert (verdicts == "relabel").mean() < 0.05


def test_table_keeps_its_contract() -> None:
    z, labels, _ = blobs([60, 60, 60], noise=0.2, ood=30)
    names = np.array(["ant", "bee", "cat"])[labels]
    with pytest.warns(DataWarning, match="with 3 classes a wrong label and an OOD sample look alike"):
        table = clean_embeddings(z, names, ids=[f"photo {i}" for i in range(len(z))])
    columns = "id given_label proposed_label verdict confidence label_quality ood_score selected neighbors"
    columns = f"{columns} duplicate_group"
    assert list(table.columns) == columns.split()
    assert table.id.tolist() == [f"photo {i}" for i in range(len(z))]
    assert table.given_label.tolist() == names.tolist()
    assert set(table.proposed_label) <= {"ant", "bee", "cat"}
    assert set(table.verdict) <= {"keep", "relabel", "ood", "uncertain"}
    kept = table[table.verdict == "keep"]
    assert (kept.given_label == kept.proposed_label).all()
    assert table.label_quality.between(0, 1).all()
    assert table.ood_score.between(0, 1).all()
    p_keep = table.label_quality * (1 - table.ood_score)
    right = {"keep": p_keep, "ood": table.ood_score, "uncertain": p_keep}
    for verdict, expected in right.items():
        rows = table.verdict == verdict
        np.testing.assert_allclose(table.confidence[rows], expected[rows], atol=1e-9)
    moved = table.verdict == "relabel"
    assert (table.confidence[moved] <= (1 - table.ood_score - p_keep)[moved] + 1e-9).all()
    assert (p_keep[table.verdict == "keep"] >= 0.6 - 1e-9).all()
    assert (p_keep[table.verdict.isin(["relabel", "ood"])] <= 0.4 + 1e-9).all()
    assert p_keep[table.verdict == "uncertain"].between(0.4, 0.6).all()
    assert not table.selected[table.verdict.isin(["ood", "uncertain"])].any()
    summary = table.attrs["summary"]
    assert sum(summary["verdicts"].values()) == len(z)
    assert summary["selected"] == table.selected.sum()
    moved = table[table.verdict == "relabel"].groupby(["given_label", "proposed_label"]).size()
    assert {(p["given"], p["proposed"]): p["count"] for p in summary["confused"]} == moved.to_dict()


def test_verdicts_lie_beside_the_rows_of_a_data_frame() -> None:
    """A table that was shuffled or split keeps its old row numbers; masks of pandas go by these."""
    z, labels, _ = blobs([60] * 4, noise=0.2)
    frame = pd.DataFrame(z).assign(label=labels).sample(frac=1, random_state=0)
    features = frame.drop(columns="label")
    table = clean_embeddings(features, frame["label"])
    assert (table.given_label == frame["label"]).all()
    plain = clean_embeddings(features.to_numpy(), frame["label"].to_numpy())
    assert plain.index.tolist() == list(range(240))
    pd.testing.assert_frame_equal(table.reset_index(drop=True), plain)
    assert clean_embeddings(features.to_numpy(), frame["label"]).index.equals(frame.index)


def test_neighbors_are_the_nearest_samples() -> None:
    z, labels, _ = blobs([40, 80])
    table = clean_embeddings(z, labels, settings=CleaningSettings(scaling="standardized"))
    standard = (z - z.mean(0)) / z.std(0)
    unit = standard / np.linalg.norm(standard, axis=1, keepdims=True)
    similarity = unit @ unit.T - 9 * np.eye(120)
    for row in (0, 17, 119):
        assert table.neighbors[row] == [str(j) for j in np.argsort(-similarity[row])[:5]]


@pytest.mark.slow
def test_same_input_same_verdicts() -> None:
    digits = noisy_digits()
    tables = [clean_embeddings(digits.pixels, digits.labels) for _ in range(2)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_clean_data_is_left_alone() -> None:
    z, labels, _ = blobs([150] * 4)
    counts = clean_embeddings(z, labels).verdict.value_counts()
    assert counts.get("keep", 0) >= 0.99 * len(z)


def test_features_without_signal_are_refused_a_verdict() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(DataWarning, match="no class signal"):
        table = clean_embeddings(rng.normal(size=(600, 8)), rng.integers(0, 4, 600))
    assert (table.verdict == "uncertain").all()
    assert (table.proposed_label == table.given_label).all()
    assert table.ood_score.isna().all()
    assert table.attrs["summary"]["noise_rate"] is None


@pytest.mark.slow
def test_weak_features_relabel_nothing() -> None:
    """All labels are right, and the features hardly tell: noise and weakness look alike."""
    rng = np.random.default_rng(0)
    labels = np.arange(3000) % 10
    z = 0.12 * rng.normal(size=(10, 16))[labels] + rng.normal(size=(3000, 16))
    with pytest.warns(DataWarning, match="too weak to relabel by|no class signal"):
        table = clean_embeddings(z, labels)
    assert not (table.verdict == "relabel").any()
    assert (table.proposed_label == table.given_label)[table.verdict == "uncertain"].all()


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [50, 200])
def test_an_echo_of_the_own_label_is_no_signal(n_classes: int) -> None:
    """Random labels in small tight groups, as frames of a film: more of the own label comes back there."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(200, 32))
    z = centers[rng.integers(0, 200, 2000)] + 0.05 * rng.normal(size=(2000, 32))
    cleaning = infer_verdicts(z, rng.integers(0, n_classes, 2000))
    assert cleaning.summary.signal < 5
    assert set(cleaning.verdicts.verdict) == {"uncertain"}


def test_identical_samples_have_no_signal_and_do_not_crash() -> None:
    with pytest.warns(DataWarning, match="no class signal|copies|at most 0|one group") as caught:
        table = clean_embeddings(np.ones((50, 3)), np.arange(50) % 2)
    assert (table.verdict == "uncertain").all()
    assert "k is at most 0, as there is 1 distinct sample" in [str(w.message) for w in caught]


def test_copies_do_not_vote_for_each_other() -> None:
    """Thirty copies of one mislabeled sample would outvote its true neighbors; as one node they can't."""
    z, labels, _ = blobs([80] * 4)
    labels[0] = 1
    alone = infer_verdicts(z, labels).verdicts.iloc[0]
    z, labels = np.vstack([z, np.repeat(z[:1], 30, 0)]), np.append(labels, np.full(30, 1))
    with pytest.warns(DataWarning, match="30 rows are exact copies"):
        table = clean_embeddings(z, labels)
    copies = table.iloc[[0, *range(320, 350)]]
    assert (copies.proposed_label == 0).all()
    for column in ("verdict", "label_quality", "ood_score"):
        assert (copies[column] == alone[column]).all(), "judged as the one sample that they are"
    assert alone.verdict in ("relabel", "ood")
    assert copies.duplicate_group.eq(1).all()
    assert table.duplicate_group[1:320].isna().all()


def test_conflicting_copies_are_named_and_judged_by_the_others() -> None:
    z, labels, truth = blobs([80, 80, 80], noise=0.2)
    labels[0] = truth[0]
    z, labels = np.vstack([z, z[:1]]), np.append(labels, 2)
    names = [f"s{i}" for i in range(241)]
    expected = r"1 group of exact copies carries conflicting labels, such as s0 \(0\), s240 \(2\)"
    with pytest.warns(DataWarning) as caught:
        table = clean_embeddings(z, labels, ids=names)
    assert any(pd.Series([str(w.message)]).str.contains(expected)[0] for w in caught)
    assert table.verdict[0] == "keep"
    assert (table.verdict[240], table.proposed_label[240]) == ("relabel", 0)


def test_unlabeled_samples_get_a_proposal() -> None:
    z, labels, truth = blobs([60] * 4, noise=0.1)
    hidden = np.arange(0, 240, 6)
    labels[hidden] = -1
    with pytest.warns(DataWarning, match="40 samples are unlabeled"):
        table = clean_embeddings(z, labels)
    rows = table.iloc[hidden]
    assert set(rows.verdict) <= {"unlabeled", "ood"}
    assert (rows.proposed_label.to_numpy() == truth[hidden]).mean() > 0.95
    assert rows.given_label.isna().all()
    assert rows.label_quality.isna().all()


def test_classes_that_differ_in_capitals_alone_are_named() -> None:
    z, labels, _ = blobs([40] * 3)
    with pytest.warns(DataWarning, match="differ in capitals alone are different classes: Cat and cat$"):
        clean_embeddings(z, np.array(["Cat", "cat", "dog"])[labels])


def test_strong_imbalance_warns_and_spares_the_small_class() -> None:
    z, labels, truth = blobs([600, 25])
    with pytest.warns(DataWarning, match="strong imbalance: 0 has 600 samples, 1 has 25"):
        table = clean_embeddings(z, labels)
    small = truth == 1
    assert (table.verdict[small] == "keep").mean() > 0.8
    assert (table.verdict[~small] == "keep").mean() > 0.98


def test_small_classes_and_repeated_ids_warn() -> None:
    z, labels, _ = blobs([60, 12])
    with pytest.warns(DataWarning) as caught:
        clean_embeddings(z, labels, ids=["same"] * 72)
    messages = " / ".join(str(w.message) for w in caught)
    assert "1 class has under 20 samples, whose verdicts are weak: 1 (12)" in messages
    assert "71 ids are repeats" in messages
    assert "k is at most" not in messages, "of the usual four, 10 to 50 can be tried"


def test_k_beyond_the_data_is_the_data() -> None:
    z, labels, _ = blobs([40, 40])
    with pytest.warns(DataWarning, match="k is at most 79, as there are 80 distinct samples"):
        table = clean_embeddings(z, labels, settings=CleaningSettings(k=(500,)))
    assert list(table.attrs["summary"]["k_tried"]) == [79]


def test_an_own_graph_stands_for_embeddings() -> None:
    import torch

    z, labels, _ = blobs([80, 80, 80], noise=0.2)
    standard = torch.as_tensor((z - z.mean(0)) / z.std(0), dtype=torch.float32)
    graph = to_scipy(knn_graph(nearest_neighbors(standard, 20)))
    from_graph = infer_verdicts(None, labels, graph=graph)
    from_z = infer_verdicts(z, labels, settings=CleaningSettings(k=(20,), scaling="standardized"))
    assert from_graph.summary.k == 20
    assert from_graph.predictor is None
    pd.testing.assert_frame_equal(from_graph.verdicts, from_z.verdicts, rtol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"z": np.ones((4, 2)), "labels": [1, 1, 1, 1]}, r"the labels name one class \(1\); at least"),
        ({"z": np.ones((4, 2)), "labels": [0, 1, 0]}, "there are 3 labels for 4 samples"),
        ({"z": np.ones((2, 2)), "labels": [0, 1], "ids": ["a"]}, "there are 1 ids for 2 samples"),
        ({"z": None, "labels": [0, 1]}, "give either embeddings or a graph"),
    ],
)
def test_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        clean_embeddings(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"certainty": 0.7}, GraphSettings()])
def test_settings_of_another_kind_are_refused(settings: object) -> None:
    with pytest.raises(TypeError, match=r"settings are CleaningSettings\(.*not (dict|GraphSettings)"):
        clean_embeddings(np.ones((4, 2)), [0, 1, 0, 1], settings=settings)  # type: ignore[arg-type]


def test_copies_keep_input_order_and_fold_signed_zeros() -> None:
    z = np.array([[2, 0], [1, 1], [2, -0.0], [1, 1], [0, 3]], dtype=np.float32)
    copies = Copies.find(z)
    assert copies.first.tolist() == [0, 1, 4]
    assert copies.node.tolist() == [0, 1, 0, 1, 2]
    Y = copies.spread_labels(np.array([0, 1, 1, -1, -1]), 2)
    assert Y.tolist() == [[0.5, 0.5], [0, 1], [0, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 100])
def test_two_and_many_classes(n_classes: int) -> None:
    z, labels, truth = blobs([40] * n_classes, noise=0.2, spread=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        table = clean_embeddings(z, labels)
    assert (table.proposed_label.to_numpy() == truth).mean() > 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": ()}, "k must be"),
        ({"k": (0,)}, "k must be"),
        ({"k": 10}, r"k must be whole numbers of at least 1, such as \(10, 20\)"),
        ({"k": (2.5,)}, "k must be whole numbers"),
        ({"certainty": 1.0}, "certainty"),
        ({"eta": 0}, "eta"),
    ],
)
def test_impossible_settings(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CleaningSettings(**settings)  # type: ignore[arg-type]


LABELS_AS_GIVEN = {
    "text of digits": lambda y: y.astype(str),
    "minus one": lambda y: np.array(["0", "-1", "b", "7", "c"])[y],
    "booleans": lambda y: y > 0,
    "booleans with gaps": lambda y: pd.Series(y > 0, dtype="boolean").mask(np.arange(len(y)) < 3),
    "categories": lambda y: pd.Series(pd.Categorical(np.array(list("vwxyz"))[y], list("zyxwvu"))),
    "categories of numbers": lambda y: pd.Series(pd.Categorical(y)),
    "dates": lambda y: np.datetime64("2026-01-01") + y,
    "floats": lambda y: y.astype(float),
}


@pytest.mark.filterwarnings("ignore::graphclean.errors.DataWarning")
@pytest.mark.parametrize("kind", LABELS_AS_GIVEN)
def test_labels_come_back_as_they_came(kind: str) -> None:
    z, noisy, _ = blobs([60] * 5, noise=0.2)
    labels = LABELS_AS_GIVEN[kind](noisy)
    found = clean_embeddings(z, labels)
    given, present = pd.Series(labels), pd.notna(pd.Series(labels))
    assert bool((found.given_label == labels)[present].all())
    assert found.given_label[~present].isna().all()
    if kind.partition(" ")[0] in ("booleans", "categories"):
        assert found.given_label.dtype == given.dtype
    kinds = {type(label) for label in found.given_label.dropna()}
    assert {type(label) for label in found.proposed_label.dropna()} == kinds
    assert set(found.proposed_label.dropna()) <= set(given.dropna())
    assert kind.startswith("booleans") or (found.verdict == "relabel").any()


def test_features_far_from_zero_are_judged_as_near_ones() -> None:
    z, labels, _ = blobs([80] * 5, noise=0.2)
    near, far = infer_verdicts(z, labels), infer_verdicts(z + 1e8, labels)
    assert near.predictor is not None
    assert far.predictor is not None
    assert far.verdicts.verdict.tolist() == near.verdicts.verdict.tolist()
    np.testing.assert_allclose(far.verdicts.label_quality, near.verdicts.label_quality, atol=1e-3)
    there, here = far.predictor.score(z + 1e8), near.predictor.score(z)
    np.testing.assert_allclose(there.probabilities, here.probabilities, atol=1e-3)


def test_read_only_arrays_give_no_warning() -> None:
    z, labels, _ = blobs([60] * 5)
    z = z.astype(np.float32)
    graph = to_scipy(knn_graph(nearest_neighbors(torch.nn.functional.normalize(torch.tensor(z), dim=1), 10)))
    for array in (z, labels, graph.data, graph.indices, graph.indptr):
        array.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean_embeddings(z, labels)
        clean_embeddings(None, labels, graph=graph)
