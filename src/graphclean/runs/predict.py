"""`graphclean predict`: class or OOD for new data, from a run of either kind."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from .._files import has_file, read_tensors, replaced
from ..cleaning import KnnModel, with_unreadable
from ..cleaning.detection import FeatureDetector
from ..cleaning.evidence import Standardizer
from ..cleaning.inputs import Labels, encode_written
from ..cleaning.knn_model import MODEL, PROTOTYPES
from ..data.progress import Progress
from ..data.tables import PARQUET, Names, listed
from ..data.verdict import Verdict
from ..distributed.group import current
from ..embed import Embedder
from ..errors import InputError, MissingLabels, arg, occupied
from ..metrics import score_new
from ..ood import Threshold
from ..ood.model import Model, predict_table
from ..training.model import check_classes, load_trained, named
from .device import choose_device
from .folder import (
    PREDICTIONS,
    read_config,
    refuse_own,
    require_finished,
    safe_csv,
)
from .inputs import Pieces, Source, refuse_sources, source_name, stream_like
from .leakage import Leaks, read_samples


def predict(
    run: Path,
    data: Path,
    *,
    out: Path | None = None,
    names: Names | None = None,
    evaluate: bool = False,
    device: str = "auto",
    embedder: Embedder | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, Path]:
    """`judge_new`, with its table written as .csv or .parquet; returns the table and its path."""
    described = read_config(run).get("source", {})
    target = out if out is not None else run / PREDICTIONS / f"{source_name(data)}.csv"
    if target.suffix.lower() not in (".csv", *PARQUET):
        raise InputError(f"{target}: predictions are written as .csv or .parquet")
    refuse_own(target, run)
    refuse_sources(target, [data, *(described.get(name) for name in ("data", "labels", "validation"))])
    if target.exists() and not overwrite and current().leads:
        raise occupied(target, "the file exists")
    table = judge_new(
        run, data, names=names, evaluate=evaluate, device=device, embedder=embedder, progress=progress
    )
    told, table.attrs = table.attrs, {}
    with replaced(target) as draft:
        if target.suffix.lower() == ".csv":
            safe_csv(table).to_csv(draft, index=False)
        else:
            table.to_parquet(draft, index=False)
    table.attrs = told
    return table, target


def judge_new(
    run: Path,
    data: Path | Source,
    *,
    names: Names | None = None,
    evaluate: bool = False,
    device: str = "auto",
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Predict a class or OOD for new data, which may be in memory.

    `embedder` is that of a run on photos, if it can't be created from its name.

    The table's `.attrs["warnings"]` holds what users should know about the model, and `.attrs["promised"]`
    the fraction of good samples that is rejected, if known. With `evaluate`, the labels of the data count as
    the truth, and `.attrs["scores"]` compares the predictions with them.
    """
    names = names if names is not None else Names()
    model = load_model(run, device)
    described = read_config(run).get("source", {})
    if embedder is not None and "embedder" not in described:
        raise InputError(f"{run}: this run embedded no photos, so leave {arg('embedder')} out")

    def report(stage: str, done: int, total: int) -> None:
        if progress is not None and not pieces.streamed:
            progress(stage, done, total)

    try:
        pieces = (
            Pieces.whole(data, labeled=evaluate)
            if isinstance(data, Source)
            else stream_like(
                described,
                data,
                names,
                run=run,
                device=choose_device(device),
                labeled=evaluate,
                embedder=embedder,
                progress=progress,
            )
        )
    except MissingLabels as error:
        raise InputError(f"{error.missing}; {arg('evaluate')} needs labels in the data itself") from error
    given = encode_written(pieces.labels, len(pieces.ids)) if evaluate else None
    if given is not None and (given.codes < 0).all():
        raise InputError(f"{data}: not one label in it; {arg('evaluate')} needs them")
    columns = _Columns(len(pieces.ids), model.classes)
    leakage, leaked = read_samples(run, model), np.full(len(pieces.ids), None, dtype=object)
    for piece in pieces.parts:
        ids = [pieces.ids[row] for row in piece.rows]
        columns.add(piece.rows, predict_table(model, piece.inputs, ids, report))
        if leakage is not None:
            leaked[piece.rows] = leakage.find(piece.inputs, piece.hashes)
    current().follow_only()
    table = columns.to_table(pieces.ids)
    table["duplicate_of"] = pd.Series(leaked, index=table.index, dtype=object)
    scores = None
    if given is not None:
        table.insert(1, "given_label", given.names(given.codes))
        scores = _score(table, given, model.classes)
    notes = Leaks(pieces.ids, leaked.tolist()).notes("samples", " (column duplicate_of)")
    table.attrs["warnings"] = model.notes + _score_notes(scores, model.classes) + notes
    table.attrs["scores"] = scores
    table.attrs["promised"] = model.found.promised
    return table


def _score(table: pd.DataFrame, given: Labels, classes: Sequence[Any]) -> dict[str, Any]:
    """Score all samples that have a label and can be read; labels that are no class of the run mean OOD."""
    scored = (given.codes >= 0) & (table["verdict"] != Verdict.UNREADABLE).to_numpy()
    table = table[scored]
    labels = np.array([str(given.classes[code]) for code in given.codes[scored]], dtype=object)
    is_ood = ~np.isin(labels, [str(name) for name in classes])
    scores = score_new(
        right=labels == table["predicted_label"].map(str).to_numpy(dtype=object),
        rejected=(table["verdict"] == Verdict.OOD).to_numpy(),
        ood_score=table["ood_score"].to_numpy(dtype=np.float64),
        is_ood=is_ood,
    )
    return asdict(scores) | {"other_labels": sorted(set(labels[is_ood]))}


def _score_notes(scores: dict[str, Any] | None, classes: Sequence[Any]) -> list[str]:
    """Warn if no label is a class of the run: labels with another spelling would silently count as OOD."""
    if scores is None or scores["known"] > 0 or scores["ood"] == 0:
        return []
    there = listed([str(name) for name in classes])
    return [f"not one label is a class of the run, so all samples are taken for OOD; its classes: {there}"]


class _Columns:
    """Predictions, collected in arrays that are allocated once.

    Tables of the pieces, kept side by side, would fragment the heap: memory use would grow by more than their
    size.
    """

    def __init__(self, count: int, classes: Sequence[Any]) -> None:
        self.classes = list(classes)
        self.codes = np.full(count, -1)
        self.numbers = {name: np.full(count, np.nan) for name in ("probability", "ood_score")}
        self.rejected = np.zeros(count, dtype=bool)
        self.kinds: dict[Any, Any] = {}

    def add(self, rows: list[int], table: pd.DataFrame) -> None:
        """Add a model's predictions for these samples."""
        self.kinds = table.dtypes.to_dict()
        self.codes[rows] = pd.Categorical(table["predicted_label"], categories=self.classes).codes
        for name, values in self.numbers.items():
            values[rows] = table[name]
        self.rejected[rows] = table["verdict"] == Verdict.OOD

    def to_table(self, ids: list[str]) -> pd.DataFrame:
        """One table like those added, with the unreadable samples in their places."""
        rows = np.flatnonzero(self.codes >= 0)
        codes = self.codes[rows]
        table = pd.DataFrame(
            {
                "id": [ids[row] for row in rows],
                "predicted_label": Labels(codes, self.classes).names(codes),
                **{name: values[rows] for name, values in self.numbers.items()},
                "verdict": np.where(self.rejected[rows], "ood", "known").astype(object),
            }
        )
        return with_unreadable(table.astype(self.kinds), ids, rows)


def load_model(run: Path, device: str = "cpu") -> Model:
    """Load the model of a run folder."""
    trained = read_config(run).get("kind") == "train"
    require_model(run, trained=trained)
    if trained:
        return load_trained(run, choose_device(device))
    tensors, metadata = read_tensors(run / MODEL)
    try:
        found = Threshold(**metadata["found"])
        _check_fit(tensors, [metadata["temperature"], found.threshold], metadata["classes"])
        return KnnModel(
            classes=metadata["classes"],
            standardizer=Standardizer(tensors["mean"].numpy(), tensors["scale"].numpy()),
            nodes=tensors["nodes"],
            posterior=tensors["posterior"],
            temperature=metadata["temperature"],
            detector=FeatureDetector.restore(named(tensors, "detector."), metadata["detector"]),
            found=found,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{run}: the model files are not those of a clean run: {error}") from error


def require_model(run: Path, *, trained: bool) -> None:
    """Refuse a run that is unfinished or lacks model files."""
    require_finished(run)
    for name in (MODEL, PROTOTYPES) if trained else (MODEL,):
        if not has_file(run / name):
            why = "files are missing" if trained else "the run found no class signal, or files are missing"
            raise InputError(f"{run}: no {name} in it: {why}")


def _check_fit(tensors: dict[str, Tensor], numbers: Sequence[Any], classes: Any) -> None:
    """Refuse inconsistent shapes, and NaN, which would make every input known and of the first class."""
    check_classes(classes)
    if not all(isinstance(number, float | int) and math.isfinite(number) for number in numbers):
        raise ValueError("temperature or threshold are no numbers")
    rows, width, count = len(tensors["nodes"]), tensors["mean"].numel(), len(classes)
    shapes = {
        "nodes": (rows, width),
        "posterior": (rows, count + 1),
        "mean": (width,),
        "scale": (width,),
        "detector.mean": (width,),
    }
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != shape or not tensor.is_floating_point() or not tensor.isfinite().all():
            raise ValueError(f"{name} has not the shape {shape}, or holds other than numbers")
