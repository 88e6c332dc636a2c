"""Predictions for new data in pieces: the same as of the whole, in bounded memory, and all or nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import graphclean
from graphclean.cleaning import KnnModel
from graphclean.data import streams
from graphclean.data.digits import noisy_digits
from graphclean.runs.predict import judge_new, predict
from tests.builders import Cli, Refuse
from tests.runs.tiny import TINY, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")

NEW = 500
ROWS = 64
"""Rows of a piece."""


@pytest.fixture
def features(tmp_path: Path) -> np.ndarray[Any, Any]:
    """New embeddings, some of them of the training set; `run` is a run to score them with."""
    digits = noisy_digits()
    np.savez(tmp_path / "z.npz", z=digits.pixels[:300], y=digits.labels[:300])
    graphclean.clean(tmp_path / "z.npz", out=tmp_path / "run", quiet=True)
    return np.asarray(digits.pixels[200 : 200 + NEW], dtype=np.float32)


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pieces of a few rows; the number of rows of each that a model of embeddings scores."""
    for name in ("STEP", "LEAST_ROWS"):
        monkeypatch.setattr(streams, name, ROWS)
    monkeypatch.setattr(streams, "PIECE_BYTES", 1)
    scored: list[int] = []
    score = KnnModel.score

    def count(model: KnnModel, z: Any, progress: Any = None) -> Any:
        scored.append(len(z))
        return score(model, z, progress)

    monkeypatch.setattr(KnnModel, "score", count)
    return scored


def write(folder: Path, z: np.ndarray[Any, Any]) -> dict[str, Path]:
    """The same features in every format that is read in pieces."""
    ids = [f"n{row}" for row in range(len(z))]
    columns = {f"f{place}": values for place, values in enumerate(z.T)}
    paths = {
        name: folder / name for name in ("new.npy", "new.npz", "packed.npz", "new.parquet", "lists.parquet")
    }
    np.save(paths["new.npy"], z)
    np.savez(paths["new.npz"], features=z, other=np.zeros(3))
    np.savez_compressed(paths["packed.npz"], z=z)
    pd.DataFrame({"id": ids, **columns}).to_parquet(paths["new.parquet"], index=False, row_group_size=90)
    pd.DataFrame({"id": ids, "z": list(z)}).to_parquet(paths["lists.parquet"], row_group_size=90)
    return paths


def test_predictions_in_pieces_are_those_of_the_whole(
    features: np.ndarray[Any, Any], in_pieces: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write(tmp_path, features)
    with monkeypatch.context() as whole_at_once:
        whole_at_once.setattr(streams, "PIECE_BYTES", 2**26)
        whole = judge_new(tmp_path / "run", tmp_path / "new.npy")
    assert in_pieces == [NEW]
    assert whole["duplicate_of"].notna().sum() >= 100
    for name, path in paths.items():
        in_pieces.clear()
        out = tmp_path / f"{name}.out.parquet"
        found = predict(tmp_path / "run", path, out=out)
        assert (max(in_pieces), sum(in_pieces)) == (ROWS, NEW)
        assert pq.ParquetFile(out).num_row_groups == -(-NEW // ROWS)
        named = whole.assign(id=[f"n{row}" for row in range(NEW)]) if "parquet" in name else whole
        table = pd.read_parquet(out)
        exact = ["id", "predicted_label", "verdict", "duplicate_of"]
        assert table[exact].astype(object).fillna("").equals(named[exact].astype(object).fillna(""))
        pd.testing.assert_frame_equal(
            table[["probability", "ood_score"]], named[["probability", "ood_score"]], rtol=1e-5
        )
        assert (found.samples, found.ood) == (NEW, int((whole["verdict"] == "ood").sum()))
    whole_notes, notes = (
        whole.attrs["warnings"],
        judge_new(tmp_path / "run", paths["new.npz"]).attrs["warnings"],
    )
    assert notes == whole_notes
    assert "500 samples also lie in the training set" in notes[-1]


def test_a_table_on_standard_output_and_in_memory_is_that_of_the_file(
    features: np.ndarray[Any, Any], in_pieces: list[int], tmp_path: Path, cli: Cli
) -> None:
    write(tmp_path, features)
    assert cli("predict", "run", "new.parquet", "--out", "p.csv", "--quiet").code == 0
    assert max(in_pieces) == ROWS
    printed = cli("predict", "run", "new.parquet", "--out", "-", "--quiet")
    assert printed.out == (tmp_path / "p.csv").read_text()
    assert printed.out.count("predicted_label") == 1
    run = graphclean.Run(tmp_path / "run")
    kept = run.predict(tmp_path / "new.parquet", out=tmp_path / "kept.csv", quiet=True)
    assert (tmp_path / "kept.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()
    assert kept["id"].tolist() == pd.read_csv(tmp_path / "p.csv")["id"].tolist()
    in_memory = run.predict(features, quiet=True)
    assert max(in_pieces) == ROWS
    assert in_memory["predicted_label"].tolist() == kept["predicted_label"].tolist()


def test_scores_in_pieces_are_those_of_the_whole(
    features: np.ndarray[Any, Any],
    in_pieces: list[int],
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth = noisy_digits().truth[200 : 200 + NEW].astype(str)
    truth[:7], truth[450:] = "", "none of them"
    np.savez(tmp_path / "new.npz", z=features, y=truth)
    found = json.loads(cli("predict", "run", "new.npz", "--evaluate", "--json").out)
    assert max(in_pieces) == ROWS
    monkeypatch.setattr(streams, "PIECE_BYTES", 2**26)
    whole = json.loads(cli("predict", "run", "new.npz", "--evaluate", "--json", "--overwrite").out)
    others = [told["scores"].pop("other_labels") for told in (found, whole)]
    assert others == [["8", "9", "none of them"]] * 2
    assert found["scores"] == pytest.approx(whole["scores"])
    assert {name: found[name] for name in ("samples", "ood", "known")} == {
        name: whole[name] for name in ("samples", "ood", "known")
    }


def test_what_can_not_be_scored_is_refused_before_anything_is_scored(
    features: np.ndarray[Any, Any], in_pieces: list[int], tmp_path: Path, refuse: Refuse
) -> None:
    z = features.copy()
    z[[70, 300, 301, 499], 3] = np.nan
    z[10] = 0  # of all reasons, the first is reported
    for path in write(tmp_path, z).values():
        refuse(
            f"predict run {path.name}",
            "NaN or infinite values in 4 rows of 500 (counted from 0: 70, 300, 301, …)",
        )
    z = features.copy()
    z[10] = z[490] = 0
    np.save(tmp_path / "zeros.npy", z)
    refuse("predict run zeros.npy", "embeddings are all zero in 2 rows of 500 (counted from 0: 10, 490)")
    np.save(tmp_path / "narrow.npy", features[:, :5])
    refuse("predict run narrow.npy", "these embeddings have 5 columns, the run was made with 64")
    assert in_pieces == []
    pd.DataFrame({"z": [*features[:400], *features[400:, :9]]}).to_parquet(tmp_path / "ragged.parquet")
    refuse("predict run ragged.parquet", "the lists in column 'z' are not all of one length")


@pytest.mark.usefixtures("in_pieces")
def test_damaged_arrays_are_refused_as_ever(
    features: np.ndarray[Any, Any], tmp_path: Path, refuse: Refuse
) -> None:
    paths = write(tmp_path, features)
    content = bytearray(paths["new.npz"].read_bytes())
    content[60_000] ^= 1
    (tmp_path / "changed.npz").write_bytes(content)
    refuse("predict run changed.npz", "changed.npz: can't be read: Bad CRC-32")
    for name in ("new.npy", "new.npz", "packed.npz", "new.parquet"):
        short = tmp_path / f"short-{name}"
        short.write_bytes(paths[name].read_bytes()[: -len(paths[name].read_bytes()) // 4])
        refuse(f"predict run {short.name}", f"{short.name}: can't be read: ")
    np.savez(tmp_path / "two.npz", a=features, b=features)
    refuse("predict run two.npz", "more than one 2-D float array in it")
    np.save(tmp_path / "objects.npy", features.astype(object), allow_pickle=True)
    refuse("predict run objects.npy", "it holds pickled objects, which are never loaded")


def test_arrays_that_can_not_be_read_by_row_are_read_as_a_whole(
    features: np.ndarray[Any, Any], in_pieces: list[int], tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", features)
    np.save(tmp_path / "columns.npy", np.asfortranarray(features))
    tables = [judge_new(tmp_path / "run", tmp_path / name) for name in ("rows.npy", "columns.npy")]
    pd.testing.assert_frame_equal(*tables)
    assert max(in_pieces) == ROWS


def test_a_full_disk_midway_leaves_nothing(
    features: np.ndarray[Any, Any],
    tmp_path: Path,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    in_pieces: list[int],
) -> None:
    write(tmp_path, features)
    before = sorted((tmp_path / "run").rglob("*"))
    real, parts = pd.DataFrame.to_csv, []

    def full(table: pd.DataFrame, *values: Any, **options: Any) -> Any:
        parts.append(len(table))
        if len(parts) == 3:
            raise OSError(28, "No space left on device")
        return real(table, *values, **options)

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    done = cli("predict", "run", "new.npy")
    assert (done.code, done.err) == (
        2,
        "graphclean: run/predictions/new.csv: can't be written: No space left on device\n",
    )
    assert len(in_pieces) == len(parts) == 3  # written as they are scored
    assert sorted((tmp_path / "run").rglob("*")) == before


@pytest.mark.slow
def test_images_in_pieces_are_scored_as_the_whole(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY, "--out", "run", "--quiet").code == 0
    images = noisy_digits().images[160:400]
    np.savez(tmp_path / "new.npz", images=images, labels=noisy_digits().truth[160:400])
    np.save(tmp_path / "last.npy", np.moveaxis(images, 1, 3))
    whole = judge_new(tmp_path / "run", tmp_path / "new.npz", evaluate=True)
    for name in ("STEP", "LEAST_ROWS"):
        monkeypatch.setattr(streams, name, ROWS)
    monkeypatch.setattr(streams, "PIECE_BYTES", 1)
    parts: list[pd.DataFrame] = []
    found = predict(tmp_path / "run", tmp_path / "new.npz", evaluate=True, gather=parts)
    assert [len(part) for part in parts] == [64, 64, 64, 48]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole, rtol=1e-4)
    assert found.scores is not None
    assert found.scores.pop("other_labels") == whole.attrs["scores"].pop("other_labels")
    assert found.scores == pytest.approx(whole.attrs["scores"], rel=1e-4)
    last = judge_new(tmp_path / "run", tmp_path / "last.npy")
    assert last["predicted_label"].tolist() == whole["predicted_label"].tolist()
