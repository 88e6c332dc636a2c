"""The route of large sets, on small ones."""

import numpy as np
import pandas as pd
import pytest

from graphclean.cleaning import infer_verdicts, nodes, scale
from graphclean.cleaning.evidence import Copies, Standardizer
from graphclean.cleaning.inputs import check_embeddings, encode_labels
from graphclean.config import CleaningSettings
from graphclean.errors import InputError

N = 3000


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of over a thousand samples are large, and processed in blocks of 700."""
    monkeypatch.setattr(scale, "LARGE", 1000)
    monkeypatch.setattr(scale, "CHOSEN_ON", 900)
    monkeypatch.setattr(scale, "FITTED_ON", 2000)
    monkeypatch.setattr(scale, "BLOCK_ROWS", 700)


def blobs(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Twenty clusters in five classes, three in ten labels resampled, float16, without copies."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(20, 24))[np.arange(n) % 20] + 0.5 * rng.normal(size=(n, 24))
    labels = np.where(rng.random(n) < 0.3, rng.integers(0, 5, n), np.arange(n) % 5)
    return z.astype(np.float16), labels


@pytest.mark.parametrize("search", ["exact", "approx"])
@pytest.mark.parametrize("classifier", ["knn", "knn+class-means"])
def test_the_route_of_large_sets_agrees_with_the_plain_one(
    monkeypatch: pytest.MonkeyPatch, search: str, classifier: str
) -> None:
    z, labels = blobs()
    settings = CleaningSettings(k=(20,), classifier=classifier)  # type: ignore[arg-type]
    plain = infer_verdicts(z, labels, settings=settings)
    monkeypatch.setattr(scale, "LARGE", 1000)
    monkeypatch.setattr(scale, "FITTED_ON", 2000)
    monkeypatch.setattr(scale, "BLOCK_ROWS", 700)
    routed = infer_verdicts(
        z,
        labels,
        settings=CleaningSettings(k=(20,), classifier=classifier, search=search),  # type: ignore[arg-type]
    )
    one, other = plain.verdicts, routed.verdicts
    assert (one["verdict"] == other["verdict"]).mean() >= 0.99
    assert (one["proposed_label"] == other["proposed_label"]).mean() >= 0.995
    assert (one["confidence"] - other["confidence"]).abs().mean() < 0.01
    assert routed.summary.noise_rate == pytest.approx(plain.summary.noise_rate, abs=0.01)
    named = [list(row) for row in other["neighbors"]]
    same = [set(a) == set(b) for a, b in zip(one["neighbors"], named, strict=True)]
    assert np.mean(same) > (0.999 if search == "exact" else 0.8)
    assert list(other["id"]) == list(one["id"])
    assert routed.posterior is not None
    assert routed.posterior.dtype == np.float32


@pytest.mark.usefixtures("large")
def test_choices_are_made_on_a_sample_and_said() -> None:
    z, labels = blobs()
    summary = infer_verdicts(z, labels).summary
    assert "chosen on 900 of 3000 samples: k, scaling, classifier" in summary.warnings
    assert set(summary.k_tried) == {10, 20, 50, 100}
    assert summary.k in summary.k_tried
    fixed = CleaningSettings(k=(20,), scaling="raw", classifier="knn")
    summary = infer_verdicts(z, labels, settings=fixed).summary
    assert not any("chosen on" in note for note in summary.warnings)
    assert (summary.k, summary.scaling) == (20, "raw")


def test_copies_of_large_sets_are_those_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    z, _ = blobs()
    z[5], z[2000:2100], z[2999] = z[4], z[:100], -0.0
    z[2998] = 0.0
    for kind in (np.float16, np.float32, np.float64):
        plain = Copies.find(z.astype(kind))
        with monkeypatch.context() as patch:
            patch.setattr(scale, "LARGE", 1000)
            patch.setattr(scale, "BLOCK_ROWS", 700)
            found = Copies.find(z.astype(kind))
        np.testing.assert_array_equal(found.first, plain.first)
        np.testing.assert_array_equal(found.node, plain.node)
    assert len(plain.first) == N - 102


def test_scalings_of_large_sets_are_those_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    z, _ = blobs()
    for fit in (Standardizer.fit, Standardizer.rescale_only):
        plain = fit(z.astype(np.float32))
        with monkeypatch.context() as patch:
            patch.setattr(scale, "LARGE", 1000)
            patch.setattr(scale, "BLOCK_ROWS", 700)
            found = fit(z)
        np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.scale, plain.scale, rtol=1e-4)
        assert found.mean.dtype == np.float32


@pytest.mark.usefixtures("large")
def test_bad_rows_of_large_sets_are_named() -> None:
    z, labels = blobs()
    assert check_embeddings(z) is z
    z[1500, 3] = np.nan
    with pytest.raises(InputError, match=r"NaN or infinite values in 1 row of 3000 \(counted from 0: 1500\)"):
        infer_verdicts(z, labels)
    z[1500], z[2999] = 1, 0
    with pytest.raises(InputError, match=r"all zero in 1 row of 3000 \(counted from 0: 2999\)"):
        infer_verdicts(z, labels)
    with pytest.raises(InputError, match="there are 2999 labels for 3000 samples"):
        infer_verdicts(blobs()[0], labels[:-1])


def test_whole_numbers_are_encoded_as_before() -> None:
    values = np.array([7, -1, 3, 7, 12])
    for given in (values, values.astype(object), pd.Series(values, dtype="Int64")):
        found = encode_labels(given)
        assert (found.codes.tolist(), found.classes) == ([1, -1, 0, 1, 2], [3, 7, 12])


def test_a_long_exact_search_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = blobs(600)
    settings, stages = CleaningSettings(k=(20,)), []

    def tell(stage: str, *_: int) -> None:
        stages.append(stage)

    summary = infer_verdicts(z, labels, settings=settings, progress=tell).summary
    assert not any("minutes" in said for said in [*stages, *summary.warnings])
    monkeypatch.setattr(nodes, "PAIRS_PER_MINUTE", 600**2 * (24 / 64) / 40)
    summary = infer_verdicts(z, labels, settings=settings, progress=tell).summary
    hint = "exact, about 40 minutes on two cores; cleaning.search=approx is faster"
    assert f"finding neighbors ({hint})" in stages
    assert f"neighbors of 600 samples: {hint}, and reports its recall" in summary.warnings
