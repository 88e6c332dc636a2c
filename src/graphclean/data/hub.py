"""Hugging Face data sets, by name or saved by `save_to_disk`; behind the extra `hf`."""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import InputError, extra, parse_json
from .parquet import Rows, choose_split

HUB_PREFIX = "hf:"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


@dataclass(frozen=True)
class HubTable:
    """A split of a Hugging Face data set, as rows of Arrow."""

    name: str
    dataset: Any
    roots: tuple[Path, ...] = ()
    """Folders that may contain photos outside of the table: where the library stores its downloads."""

    @property
    def schema(self) -> pa.Schema:
        """The schema with the library's metadata, which names the classes."""
        return self.dataset.features.arrow_schema

    def batches(self, columns: list[str] | None, size: int) -> Iterator[Rows]:
        """Batches as stored by Arrow, undecoded."""
        chosen = self.dataset
        if columns is not None:
            # Memory-mapped: what is next to a part of a column is not read.
            chosen = chosen.select_columns([name.removesuffix(".path") for name in columns])
        yield from chosen.with_format("arrow").iter(size)

    def stamps(self) -> Iterator[list[Any]]:
        """The library's fingerprint of the split, and the row."""
        return ([str(self.dataset._fingerprint), row] for row in range(len(self.dataset)))

    def find_file(self, path: str) -> Path | None:
        """A file in one of the `roots`; None for any other path."""
        target = Path(os.path.realpath(path))
        return target if any(target.is_relative_to(root) for root in self.roots) else None


def names_hub(data: Path) -> bool:
    """Whether the argument names a data set of the hub: `hf:HUB_NAME` or `hf:NAME:SPLIT`."""
    return str(data).startswith(HUB_PREFIX)


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    alone = (folder / "state.json").is_file() and (folder / "dataset_info.json").is_file()
    return alone or (folder / "dataset_dict.json").is_file()


def load_hub(name: str, split: str | None) -> HubTable:
    """A data set of the hub, downloaded unless cached."""
    source = f"{HUB_PREFIX}{name}"
    if not HUB_NAME.fullmatch(name):
        raise InputError(f"{source}: a data set is named as hf:NAME, hf:OWNER/NAME or hf:OWNER/NAME:SPLIT")
    library = _library()
    found = _guard(source, lambda: library.load_dataset(name, split=split))
    caches = ("HF_CACHE_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE")
    places = [getattr(library.config, cache, None) for cache in caches]
    roots = tuple(Path(os.path.realpath(place)) for place in places if place is not None)
    return HubTable(source, _one_split(source, found, split), roots)


def load_saved(folder: Path, split: str | None) -> HubTable:
    """A data set saved by `save_to_disk`; the files it names must be inside the folder."""
    library = _library()
    for state in (folder / "state.json", *sorted(folder.glob("*/state.json"))):
        if state.is_file():
            _check_files(state)
    found = _guard(str(folder), lambda: library.load_from_disk(str(folder)))
    return HubTable(str(folder), _one_split(str(folder), found, split))


def _check_files(state: Path) -> None:
    try:
        named = [entry["filename"] for entry in parse_json(state.read_text("utf-8"))["_data_files"]]
        outside = [name for name in named if Path(name).name != name or (state.parent / name).is_symlink()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{state}: damaged, or not by save_to_disk") from error
    if outside:
        raise InputError(f"{state}: names a file that is not in its folder: {outside[0]}")


def _one_split(source: str, found: Any, split: str | None) -> Any:
    """The data set itself, or the requested split."""
    if isinstance(found, dict):
        return found[choose_split(source, split, list(found))]
    alone = str(found.split) if found.split is not None else None
    if split is not None and alone not in (None, split):
        raise InputError(f"{source}: no split {split} in it; it holds {alone} alone")
    return found


def _library() -> Any:
    try:
        library = import_module("datasets")
    except ImportError as error:
        raise InputError(f"Hugging Face data sets need {extra('hf')}") from error
    library.disable_progress_bars()
    for name in ("datasets", "huggingface_hub"):  # the one line that says what is wrong is ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return library


def _guard(source: str, load: Any) -> Any:
    try:
        return load()
    except Exception as error:  # the library raises nearly anything, some of it not exported
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{source}: can't be loaded: {reason}") from error
