"""Parquet tables of encoded images in the layout of the Hugging Face hub."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError, parse_json
from .decode import LabeledImages, decode_images
from .progress import Progress
from .tables import PARQUET, listed, open_parquet, read_batches

IMAGE_COLUMNS = ("img", "image")
HUB_LABEL_COLUMNS = ("fine_label", "label")
SPLIT_NAMES = {"validation": "val", "valid": "val"}
"""Alternative names of splits in file names."""
ROWS_AT_ONCE = 1000


def find_tables(folder: Path) -> dict[str, list[Path]]:
    """Split -> its parts, in the folder or one level below; the split is the first word of
    train-00000-of-00002.

    If the parts are only numbered, the split is the name of their folder.
    """
    found: dict[str, list[Path]] = {}
    patterns = [place + suffix for suffix in PARQUET for place in ("*", "*/*")]
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        if not path.name.startswith("."):
            word = re.split(r"[-_.]", path.name)[0].lower()
            word = path.parent.name.lower() if word.isdigit() else word
            found.setdefault(SPLIT_NAMES.get(word, word), []).append(path)
    return found


def check_parts(parts: Sequence[Path]) -> None:
    """Refuse a split with missing parts, according to the count in the file names."""
    numbers = [re.search(r"-(\d+)-of-(\d+)", path.name) for path in parts]
    if not all(numbers):
        return
    have = [(int(found[1]), int(found[2])) for found in numbers if found is not None]
    wanted = have[0][1]
    if sorted(have) != [(i, wanted) for i in range(wanted)]:
        raise InputError(
            f"{parts[0].parent}: {len(have)} of {wanted} parts of {parts[0].name}, or mixed ones"
        )


def count_rows(parts: Sequence[Path]) -> int:
    """Total rows of all parts, read from the footers."""
    total = 0
    for path in parts:
        with open_parquet(path) as file:
            total += file.metadata.num_rows
    return total


def read_tables(parts: Sequence[Path], progress: Progress | None = None) -> LabeledImages:
    """All rows of a split's parts: a column of images with their bytes, and one of class numbers.

    Class names come from the hub's metadata; without it there are none.
    """
    check_parts(parts)
    labels: list[int] = []
    classes = {path: _classes(path) for path in parts}
    if len(set(classes.values())) > 1:
        raise InputError(f"{parts[0].parent}: the parts name different classes")
    images = decode_images(_rows(parts, labels), count_rows(parts), progress)
    names = classes[parts[0]]
    numbers = np.array(labels, dtype=np.int64)
    if len(numbers) == 0:
        raise InputError(f"{parts[0]}: no rows")
    if numbers.min() < 0 or (names and numbers.max() >= len(names)):
        wrong = f"labels from {numbers.min()} to {numbers.max()}"
        raise InputError(f"{parts[0].parent}: {wrong} for {len(names)} classes")
    return LabeledImages(images, numbers, names)


def _rows(parts: Sequence[Path], labels: list[int]) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each image; its label is appended to `labels`."""
    for path in parts:
        image, label = _columns(path)
        row = 0
        for batch in read_batches(path, [image, label], ROWS_AT_ONCE):
            for cell, number in zip(batch[image].to_pylist(), batch[label].to_pylist(), strict=True):
                labels.append(_number(number, path, row))
                yield f"{path}, row {row}", _bytes(cell, path, row)
                row += 1


def _number(value: Any, path: Path, row: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{path}, row {row}: the label is {value!r}, not the number of a class")
    return value


def _bytes(cell: Any, path: Path, row: int) -> bytes:
    content = cell.get("bytes") if isinstance(cell, dict) else cell
    if not isinstance(content, bytes):
        raise InputError(f"{path}, row {row}: no bytes of an image")
    return content


def _columns(path: Path) -> tuple[str, str]:
    """The columns of images and of labels, found by their usual names."""
    with open_parquet(path) as file:
        names = file.schema_arrow.names
    image, label = (
        next((name for name in usual if name in names), None) for usual in (IMAGE_COLUMNS, HUB_LABEL_COLUMNS)
    )
    if image is None or label is None:
        need = f"a column {' or '.join(IMAGE_COLUMNS)} and one {' or '.join(HUB_LABEL_COLUMNS)}"
        raise InputError(f"{path}: {need} are needed; there are: {listed(names)}")
    return image, label


def _classes(path: Path) -> tuple[str, ...]:
    with open_parquet(path) as file:
        return schema_class_names(file.schema_arrow, _columns(path)[1])


def schema_class_names(schema: pa.Schema, column: str) -> tuple[str, ...]:
    """The class names of a column from the hub's metadata, if present."""
    try:
        features = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return tuple(str(name) for name in features[column]["names"])
    except (ValueError, KeyError, TypeError):
        return ()
