"""A cache of the expensive parts of a page, the map and the pictures, between starts."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch

from .._files import has_file, read_tensors, write_tensors
from ..errors import InputError
from ..runs.folder import KEPT
from .samples import Floats

DIGEST = 16
"""Bytes of a cache key, which covers everything that the cached part depends on."""


class _About(TypedDict):
    """Metadata stored with the tensors."""

    map: str
    how: str


class KeptParts:
    """The map and pictures of a run; unreadable or outdated parts are ignored."""

    def __init__(self, run: Path) -> None:
        self.path = run / KEPT
        self._map: tuple[str, str, Floats] | None = None
        self._pictures: dict[bytes, bytes] = {}
        self._used: dict[bytes, bytes] = {}
        self._new = False
        with suppress(InputError, KeyError, ValueError, RuntimeError, TypeError):
            if has_file(self.path):
                self._read()

    def _read(self) -> None:
        tensors, about = read_tensors(self.path, _About)
        keys, ends = tensors["keys"].numpy(), tensors["ends"].tolist()
        content = tensors["content"].numpy().tobytes()
        places = zip(keys, [0, *ends][:-1], ends, strict=True)
        self._pictures = {key.tobytes(): content[start:end] for key, start, end in places}
        if "places" in tensors:
            self._map = about["map"], about["how"], tensors["places"].double().numpy()

    def find_map(self, key: str, length: int) -> tuple[Floats, str] | None:
        """The cached positions of the given number of samples, and how they were computed."""
        if self._map is None or self._map[0] != key or self._map[2].shape != (length, 2):
            return None
        return self._map[2], self._map[1]

    def keep_map(self, key: str, places: Floats, how: str) -> None:
        """Cache for the next start."""
        self._map, self._new = (key, how, places), True

    def find_picture(self, row: int, side: int, stamp: str | None) -> bytes | None:
        """The picture of a row, unless its `stamp`, which identifies its source, has changed."""
        key = _key(row, side, stamp)
        content = self._pictures.get(key)
        if content is not None and stamp is not None:
            self._used[key] = content
            return content
        return None

    def keep_picture(self, row: int, side: int, stamp: str | None, content: bytes) -> None:
        """Cache for the next start, unless changes could not be detected."""
        if stamp is not None:
            self._used[_key(row, side, stamp)] = content
            self._new = True

    def save(self) -> None:
        """Write what was used, if some of it is new; nothing is cached if the run is not writable."""
        if not self._new:
            return
        contents = list(self._used.values())
        tensors = {
            "keys": torch.tensor(list(b"".join(self._used)), dtype=torch.uint8).reshape(
                len(contents), DIGEST
            ),
            "ends": torch.tensor(np.cumsum([len(content) for content in contents], dtype=np.int64)),
            "content": torch.from_numpy(np.frombuffer(bytearray(b"".join(contents)), dtype=np.uint8)),
        }
        about = _About(map="", how="")
        if self._map is not None:
            about = _About(map=self._map[0], how=self._map[1])
            tensors["places"] = torch.from_numpy(self._map[2])
        with suppress(InputError, OSError):
            write_tensors(self.path, tensors, dict(about))


def _key(row: int, side: int, stamp: str | None) -> bytes:
    return hashlib.sha256(f"{row} {side} {stamp}".encode("utf-8", "surrogatepass")).digest()[:DIGEST]
