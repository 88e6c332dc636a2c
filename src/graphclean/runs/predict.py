"""`graphclean predict`: class or OOD for new data, from a run of either kind."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TextIO, cast

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from .._files import has_file, read_tensors, replaced
from ..cleaning import KnnModel
from ..cleaning.detection import FeatureDetector
from ..cleaning.evidence import Standardizer
from ..cleaning.inputs import encode_written
from ..cleaning.knn_model import MODEL, PROTOTYPES
from ..data.progress import Progress
from ..data.tables import PARQUET, Names
from ..distributed.group import current
from ..embed import Embedder
from ..errors import InputError, MissingLabels, arg, occupied
from ..ood import Threshold
from ..ood.model import Model
from ..training.model import check_classes, load_trained, named
from .device import choose_device
from .folder import (
    PREDICTIONS,
    read_config,
    refuse_own,
    require_finished,
    safe_csv,
)
from .inputs import Source, refuse_sources, source_name
from .leakage import read_samples
from .pieces import Pieces, stream_like
from .scoring import Predicted, Scoring

SCORE_BYTES = 16
"""Bytes of a sample for each class while it is scored."""


def predict(
    run: Path,
    data: Path,
    *,
    out: Path | TextIO | None = None,
    names: Names | None = None,
    evaluate: bool = False,
    device: str = "auto",
    embedder: Embedder | None = None,
    overwrite: bool = False,
    gather: list[pd.DataFrame] | None = None,
    progress: Progress | None = None,
) -> Predicted:
    """Predict for new data, and write the table part by part as .csv or .parquet, or as CSV to a stream.

    The parts of the table are appended to `gather`, if given.
    """
    described = read_config(run).get("source", {})
    target = None
    if out is None or isinstance(out, Path):
        target = out if out is not None else run / PREDICTIONS / f"{source_name(data)}.csv"
        if target.suffix.lower() not in (".csv", *PARQUET):
            raise InputError(f"{target}: predictions are written as .csv or .parquet")
        refuse_own(target, run)
        refuse_sources(target, [data, *(described.get(name) for name in ("data", "labels", "validation"))])
        if target.exists() and not overwrite and current().leads:
            raise occupied(target, "the file exists")
    scoring = prepare_scoring(
        run, data, names=names, evaluate=evaluate, device=device, embedder=embedder, progress=progress
    )
    parts = scoring.parts() if gather is None else _gathered(scoring.parts(), gather)
    if not current().leads:
        deque(parts, maxlen=0)  # ends this process once its part of the work is done
    parts = chain([next(parts)], parts)  # what can't be scored is refused before anything is written
    if target is None:
        write_csv(parts, cast(TextIO, out))
    else:
        with replaced(target) as draft:
            if target.suffix.lower() == ".csv":
                with draft.open("w", encoding="utf-8", newline="") as file:
                    write_csv(parts, file)
            else:
                write_parquet(parts, draft)
    scoring.found.out = target
    return scoring.found


def _gathered(parts: Iterator[pd.DataFrame], gather: list[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for part in parts:
        gather.append(part)
        yield part


def write_csv(parts: Iterator[pd.DataFrame], file: TextIO) -> None:
    """Write tables as one, as a spreadsheet may read it."""
    for number, part in enumerate(parts):
        safe_csv(part).to_csv(file, index=False, header=number == 0)


def write_parquet(parts: Iterator[pd.DataFrame], path: Path) -> None:
    """Write tables as one with a row group each; a single one is written as pandas does."""
    first, second = next(parts), next(parts, None)
    if second is None:
        first.to_parquet(path, index=False)
        return
    whole = pa.Schema.from_pandas(first, preserve_index=False)
    # A column without a value in the first part may have text in another.
    kinds = [column.with_type(pa.string()) if pa.types.is_null(column.type) else column for column in whole]
    schema = pa.schema(kinds, whole.metadata)
    with pq.ParquetWriter(path, schema) as writer:
        for part in chain([first, second], parts):
            writer.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))


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
    """Predict a class or OOD for new data, which may be in memory; returns the whole table."""
    scoring = prepare_scoring(
        run, data, names=names, evaluate=evaluate, device=device, embedder=embedder, progress=progress
    )
    return join_parts(list(scoring.parts()), scoring.found)


def join_parts(parts: list[pd.DataFrame], found: Predicted) -> pd.DataFrame:
    """The whole table of predictions.

    Its `.attrs["warnings"]` holds what users should know about the model, and `.attrs["promised"]` the
    fraction of good samples that is rejected, if known. If the labels of the data count as the truth,
    `.attrs["scores"]` compares the predictions with them.
    """
    table = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
    table.attrs = {name: getattr(found, name) for name in ("warnings", "scores", "promised")}
    return table


def prepare_scoring(
    run: Path,
    data: Path | Source,
    *,
    names: Names | None = None,
    evaluate: bool = False,
    device: str = "auto",
    embedder: Embedder | None = None,
    progress: Progress | None = None,
) -> Scoring:
    """The scoring of new data by a run's model, before anything is scored.

    `embedder` is that of a run on photos, if it can't be created from its name. With `evaluate`, the labels
    of the data count as the truth.
    """
    names = names if names is not None else Names()
    model = load_model(run, device)
    described = read_config(run).get("source", {})
    if embedder is not None and "embedder" not in described:
        raise InputError(f"{run}: this run embedded no photos, so leave {arg('embedder')} out")
    least_bytes = SCORE_BYTES * len(model.classes)
    try:
        pieces = (
            Pieces.whole(data, labeled=evaluate, least_bytes=least_bytes)
            if isinstance(data, Source)
            else stream_like(
                described,
                data,
                names,
                run=run,
                device=choose_device(device),
                labeled=evaluate,
                embedder=embedder,
                least_bytes=least_bytes,
                progress=progress,
            )
        )
    except MissingLabels as error:
        raise InputError(f"{error.missing}; {arg('evaluate')} needs labels in the data itself") from error
    given = encode_written(pieces.labels, len(pieces.ids)) if evaluate else None
    if given is not None and (given.codes < 0).all():
        raise InputError(f"{data}: not one label in it; {arg('evaluate')} needs them")
    return Scoring(model, pieces, given=given, leakage=read_samples(run, model), progress=progress)


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
