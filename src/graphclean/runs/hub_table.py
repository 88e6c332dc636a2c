"""A cleaned data set as on the Hugging Face hub: a parquet file with its feature types as metadata."""

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from .._files import replaced, sweep
from ..data.images import Encoded, FilePart, UnreadableImage
from ..data.progress import Progress
from ..data.tables import PARQUET
from ..errors import InputError, arg, occupied
from .cleaned_parquet import OURS, read_mark
from .formats import Outcome, kept_rows, plain_cell

ROWS_IN_MEMORY = 64
"""Number of rows in memory at once, with photos at full size."""
PHOTO = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
Content: TypeAlias = Callable[[int], Any]
"""Maps a row of the run to its photo, as in `PHOTO`, or its features."""


def of_files(photos: Sequence[Encoded | None]) -> Content:
    """Photos as stored in their files, or in shards."""

    def read(row: int) -> Any:
        photo = photos[row]
        try:
            if isinstance(photo, FilePart):
                return {"bytes": photo.read(), "path": str(row)}
            return {"bytes": photo.read_bytes(), "path": photo.name} if isinstance(photo, Path) else None
        except OSError as error:
            raise InputError(f"{error.filename}: can't be read: {error.strerror}") from error
        except UnreadableImage as error:
            raise InputError(f"a photo in a shard can't be read: {error}") from error

    return read


def of_images(images: npt.NDArray[np.uint8]) -> Content:
    """Image arrays (N, C, H, W) as PNG."""

    def encode(row: int) -> Any:
        channels = images[row]
        pixels = channels[0] if len(channels) == 1 else channels.transpose(1, 2, 0)
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "PNG")
        return {"bytes": buffer.getvalue(), "path": f"{row}.png"}

    return encode


def of_features(features: npt.NDArray[Any]) -> Content:
    """Embeddings (N, d)."""
    return lambda row: features[row].tolist()


def write_hub_table(
    outcome: Outcome,
    content: Content,
    target: Path,
    *,
    photos: bool,
    fingerprint: Any,
    dry_run: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the remaining samples with corrected labels; returns 1 if the file changed, else 0.

    `fingerprint` is a value that changes with the content.
    """
    if target.suffix.lower() not in PARQUET or target.is_dir():
        raise InputError(f"{target}: a data set for Hugging Face is a .parquet; name one with {arg('out')}")
    rows = list(kept_rows(outcome))
    labels = [str(outcome.table["label"].iloc[row]) for row in rows]
    described = json.dumps([fingerprint, rows, labels, outcome.classes], default=str).encode()
    mark = hashlib.sha256(described).hexdigest().encode()
    if not dry_run:
        sweep(target.parent)  # leftovers of killed processes, even if nothing changes
    if target.exists():
        if read_mark(target) == mark:
            return 0
        if not overwrite:
            raise occupied(target, "the file differs")
    if dry_run:
        return 1
    schema = _schema(outcome.classes, photos=photos, mark=mark)
    with replaced(target) as draft, pq.ParquetWriter(draft, schema) as writer:
        done = 0
        for batch in _batches(outcome, rows, labels, content, schema):
            writer.write_batch(batch)
            done += len(batch)
            if progress is not None:
                progress("copying", done, len(rows))
    return 1


def _batches(
    outcome: Outcome, rows: list[int], labels: list[str], content: Content, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    number = {name: place for place, name in enumerate(outcome.classes)}
    left = iter(zip(rows, labels, strict=True))
    while chunk := list(islice(left, ROWS_IN_MEMORY)):
        taken = [row for row, _ in chunk]
        facts = [outcome.facts(row) for row in taken]
        columns: list[list[Any]] = [
            [content(row) for row in taken],
            [number[label] for _, label in chunk],
            [str(outcome.table["id"].iloc[row]) for row in taken],
            [None if fact["given_label"] is None else str(fact["given_label"]) for fact in facts],
            [fact["verdict"] for fact in facts],
            [plain_cell(outcome.confidence[row]) for row in taken],
        ]
        arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


def _schema(classes: list[str], *, photos: bool, mark: bytes) -> pa.Schema:
    text = {"dtype": "string", "_type": "Value"}
    number = {"dtype": "float64", "_type": "Value"}
    listed = {"feature": {"dtype": "float64", "_type": "Value"}, "_type": "Sequence"}
    fields: list[tuple[str, pa.DataType, Any]] = [
        ("image", PHOTO, {"_type": "Image"}) if photos else ("features", pa.list_(pa.float64()), listed),
        ("label", pa.int64(), {"names": classes, "_type": "ClassLabel"}),
        ("id", pa.string(), text),
        ("given_label", pa.string(), text),
        ("verdict", pa.string(), text),
        ("confidence", pa.float64(), number),
    ]
    features = {name: feature for name, _, feature in fields}
    told = {b"huggingface": json.dumps({"info": {"features": features}}).encode(), OURS: mark}
    return pa.schema([(name, kind) for name, kind, _ in fields], metadata=told)
