"""Photos to embeddings, with those of an earlier run used again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .data.files import Names
from .data.images import (
    ImageSet,
    UnreadableImage,
    looks_like_manifest,
    open_image,
    read_image_folder,
    read_manifest,
)
from .embed import embed_images, load_embedder
from .errors import InputError
from .runfolder import read_tensors, write_tensors

CACHE = "embeddings.safetensors"
DEFAULT_EMBEDDER = "efficientnet-lite0"


@dataclass(frozen=True)
class EmbeddedPhotos:
    """Photos, the features of those that could be read, and what was wrong with the others."""

    images: ImageSet
    embedder: str
    features: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    """Which photo each row of `features` is, in rising order."""
    problems: dict[int, str]
    """Photo -> why it can't be read."""
    stamps: list[list[Any]]
    """Id, size and time of change of the photo behind each row of `features`."""

    @property
    def ids(self) -> list[str]:
        """Of the photos that could be read."""
        return [self.images.ids[row] for row in self.rows]

    @property
    def labels(self) -> list[str]:
        """Of the photos that could be read."""
        return [self.images.labels[row] for row in self.rows] if self.images.labels is not None else []


def are_photos(data: Path, names: Names, embedder: str | None) -> bool:
    """Whether DATA is photos (a folder, or a table that names them) rather than embeddings."""
    if embedder == "none":
        return False
    if data.is_dir():
        return True
    table = data.suffix.lower() in (".csv", ".tsv", ".parquet")
    asked = embedder is not None or names.path_column is not None
    if asked and not table and data.exists():
        raise InputError(
            f"{data}: --embedder and --path-column are for photos: a folder, or a table of paths"
        )
    return table and data.is_file() and (asked or looks_like_manifest(data))


def embed_photos(
    data: Path,
    names: Names,
    *,
    embedder: str | None = None,
    labelled: bool = True,
    cache: Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> EmbeddedPhotos:
    """Read and embed photos; those that `cache`, an earlier run, holds unchanged are not embedded again."""
    if data.is_dir():
        images = read_image_folder(data, labelled=labelled)
    else:
        columns = {"path_column": names.path_column, "label_column": names.label_column if labelled else None}
        images = read_manifest(data, **columns, id_column=names.id_column, labelled=labelled)
    name = embedder if embedder is not None else DEFAULT_EMBEDDER
    stamps = [_stamp(row, path) for row, path in zip(images.ids, images.paths, strict=True)]
    known = _load_cache(cache, name) if cache is not None else {}
    found = {row: known[tuple(stamp)] for row, stamp in enumerate(stamps) if stamp and tuple(stamp) in known}
    wanted = [None if row in found else path for row, path in enumerate(images.paths)]
    problems = dict(images.problems)
    if any(path is not None for path in wanted):
        tell = progress if progress is not None else lambda *_: None
        done = embed_images(
            wanted,
            open_image,
            load_embedder(name),
            refusal=UnreadableImage,
            progress=lambda count, total: tell("embedding photos", count, total),
        )
        problems.update(done.problems)
        found.update(zip(done.rows.tolist(), done.features, strict=True))
    rows = np.array(sorted(found), dtype=np.int64)
    if len(rows) == 0:
        row, reason = next(iter(problems.items()))
        raise InputError(f"{data}: not one photo can be read, such as {images.ids[row]}: {reason}")
    features = np.stack([found[row] for row in rows.tolist()])
    return EmbeddedPhotos(images, name, features, rows, problems, [stamps[row] for row in rows.tolist()])


def save_cache(photos: EmbeddedPhotos, folder: Path) -> None:
    """Keep the embeddings in a run folder for the next time."""
    metadata = {"embedder": photos.embedder, "stamps": photos.stamps}
    write_tensors(folder / CACHE, {"features": torch.as_tensor(photos.features)}, metadata)


def _load_cache(run: Path, embedder: str) -> dict[tuple[Any, ...], npt.NDArray[np.float32]]:
    """Features by stamp; nothing where there is no cache, or it is of another embedder or damaged."""
    if not (run / CACHE).is_file():
        return {}
    try:
        tensors, metadata = read_tensors(run / CACHE)
        features = tensors["features"].numpy()
        if metadata["embedder"] != embedder or len(metadata["stamps"]) != len(features):
            return {}
        return {tuple(stamp): row for stamp, row in zip(metadata["stamps"], features, strict=True)}
    except (InputError, KeyError, TypeError):
        return {}


def _stamp(name: str, path: Path | None) -> list[Any]:
    if path is None:
        return []
    try:
        status = path.stat()
    except OSError:
        return []
    return [name, status.st_size, status.st_mtime_ns]
