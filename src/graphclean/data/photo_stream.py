"""Photos that do not fit in memory, as squares by row: decoded by processes, and kept where there is room."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from copy import copy
from hashlib import sha256
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._files import reason_of
from ..errors import InputError, arg
from .image_folder import ImageSet
from .images import Decoder, Encoded, FilePart, UnreadableImage, decoder_version, find_decoder
from .measures import MEASURES, Measures
from .memory import photo_memory
from .photo_cache import NoRoomError, PackedPhotos, PackKey
from .photo_workers import Decoded, PhotoJob, PhotoWorkers
from .progress import Progress

Keeping: TypeAlias = Literal["disk", "encoded", "decode"]
"""Where photos are kept: their pixels on the `disk`, their files (`encoded`) in memory, or nowhere, so that
they are `decode`d in every epoch.
"""
AT_ONCE = 16
"""Photos that a worker takes at a time."""
STREAM_STAGE = "reading photos"


class _Taken(NamedTuple):
    """A chunk of photos that a worker decoded."""

    rows: list[int]
    photos: list[Encoded]
    decoded: Decoded
    written: bool
    """Whether the readable ones are in the packed file."""


class PhotoStream:
    """The readable photos of a set as uint8 squares (3, size, size), by row.

    `scan` reads all photos once; then `read` returns any rows, in any order, from several threads at once.
    The pixels of a photo depend on its file, `size` and the decoder alone: not on where it is kept, on the
    number of workers, or on what was read before. Like an array of all squares, it has a length and a shape.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self,
        images: ImageSet,
        size: int,
        *,
        place: str,
        keep: Keeping | None = None,
        decoder: Decoder | None = None,
        workers: int | None = None,
    ) -> None:
        """`place` names the set in the cache; `keep`: by default, the first place that has room.

        `workers`: by default, as many as torch has threads.
        """
        self.images, self.size, self.place = images, size, place
        self.decoder: Decoder = decoder if decoder is not None else find_decoder()
        count = len(images.ids)
        self.problems = dict(images.problems)
        """Photo -> why it can't be read."""
        self.rows: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """The photo of each row, in ascending order."""
        self._digests = np.zeros(count, dtype=np.uint64)
        self._measures: Measures = np.zeros(count, dtype=MEASURES)
        self._sources: dict[int, Encoded] = {}
        """Where photos whose pixels are not on the disk are read from."""
        self._free = photo_memory()
        self._workers = PhotoWorkers(workers if workers is not None else torch.get_num_threads())
        self._packed: PackedPhotos | None = None
        self._map: Tensor | None = None
        self._there = np.zeros(count, dtype=bool)
        """The photos whose pixels are on the disk."""
        self._why: list[str] = []
        self.keeping = self._choose(keep)

    def __len__(self) -> int:
        return len(self.rows)

    def __enter__(self) -> "PhotoStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of all squares."""
        return len(self), 3, self.size, self.size

    @property
    def nbytes(self) -> int:
        """The size of all squares."""
        return len(self) * 3 * self.size**2

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """A digest of the pixels of each row (`digest_of`)."""
        return self._digests[self.rows]

    @property
    def measures(self) -> Measures:
        """The measures of each row."""
        return self._measures[self.rows]

    @property
    def kept(self) -> int:
        """The number of photos whose pixels are on the disk."""
        return int(self._there.sum())

    @property
    def packed(self) -> bool:
        """Whether the pixels of all rows are on the disk, so that nothing is decoded again."""
        return bool(self._there[self.rows].all())

    @property
    def note(self) -> str:
        """Where photos are kept, and why not elsewhere, in one line."""
        place = self._packed.pixels.parent if self._packed is not None else None
        kept = {
            "disk": f"their pixels are kept in {place}",
            "encoded": "their files are kept in memory and decoded in every epoch",
            "decode": "they are decoded in every epoch",
        }[self.keeping]
        return "; ".join([f"photos are streamed at {self.size} px, and {kept}", *self._why])

    def close(self) -> None:
        """End the workers and write what is new; pixels on the disk can still be read."""
        self._workers.close()
        if self._packed is not None:
            self._flush()

    def scan(self, progress: Progress | None = None) -> None:
        """Read every photo once: whether it can be read, its digest and measures, its pixels to the disk.

        What an earlier scan, even an interrupted one, left on the disk is not read again.
        """
        known = frozenset(np.flatnonzero(self._there).tolist())
        total, done = len(self.images.ids) - len(known | self.problems.keys()), 0
        waiting: deque[Future[_Taken]] = deque()

        def enter() -> None:
            nonlocal done
            taken = waiting.popleft().result()
            self._enter(taken)
            done += len(taken.rows)
            if progress is not None:
                progress(STREAM_STAGE, done, total)

        try:
            for chunk in _chunks(self.images.items(known)) if total else ():
                waiting.append(self._workers.threads.submit(self._take, chunk))
                if len(waiting) > 2 * self._workers.count:
                    enter()
            while waiting:
                enter()
        except BaseException:
            self.close()
            raise
        readable = np.ones(len(self.images.ids), dtype=bool)
        readable[list(self.problems)] = False
        self.rows = np.flatnonzero(readable)
        if self._packed is not None:
            self._flush()
            self._map = self._packed.map()
        if self.packed:
            self.close()

    def read(self, rows: Tensor) -> Tensor:
        """The squares at these rows, (n, 3, size, size) on the CPU.

        A photo that is gone or has changed since the scan is an error, since the run could not be repeated.
        """
        photos = torch.from_numpy(self.rows)[rows.cpu()]
        there = torch.from_numpy(self._there)[photos]
        if self._map is not None and bool(there.all()):
            return self._map.index_select(0, photos)
        out = torch.empty((len(photos), *self.shape[1:]), dtype=torch.uint8)
        if self._map is not None:
            out[there] = self._map.index_select(0, photos[there])
        places = torch.nonzero(~there).flatten()
        parts = torch.split(places, AT_ONCE)
        waiting = [self._workers.threads.submit(self._again, photos[part].tolist()) for part in parts]
        try:
            for part, found in zip(parts, waiting, strict=True):
                out[part] = torch.from_numpy(found.result())
        finally:
            for found in waiting:
                found.cancel()
        return out

    def take(self, rows: npt.NDArray[np.int64]) -> "PhotoStream":
        """Some of the rows, in this order, of the same photos; call after `scan`."""
        part = copy(self)
        part.rows = self.rows[rows]
        return part

    def _choose(self, asked: Keeping | None) -> Keeping:
        if asked in (None, "disk"):
            try:
                self._packed = PackedPhotos(self._key())
            except NoRoomError as error:
                if asked is not None:
                    raise InputError(f"no room for the pixels of {self.place}: {error}") from error
                self._why.append(f"the disk has no room for their pixels ({error})")
            else:
                records = self._packed.records
                self._there = records["there"].astype(bool)
                self._digests, self._measures = records["digest"].copy(), records["measures"].copy()
                return "disk"
        if asked in (None, "encoded") and self._encoded_size() <= self._free:
            return "encoded"
        if asked == "encoded":
            raise InputError(f"the files of {self.place} need more than {_gigabytes(self._free)} of memory")
        return "decode"

    def _key(self) -> PackKey:
        stamps = repr(self.images.stamps()).encode("utf-8", "surrogateescape")
        return PackKey(
            self.place,
            len(self.images.ids),
            self.size,
            decoder_version(self.decoder),
            sha256(stamps).hexdigest(),
        )

    def _encoded_size(self) -> int:
        """The size of all files; 0 for photos in tables, which are counted while they are read."""
        total = 0
        for _, photo in self.images.items():
            if isinstance(photo, bytes):
                return 0
            with suppress(OSError):
                total += photo.size if isinstance(photo, FilePart) else photo.stat().st_size
        return total

    def _take(self, chunk: Sequence[tuple[int, Encoded]]) -> _Taken:
        """In a worker's thread: decode a chunk for the first time."""
        rows, photos = [row for row, _ in chunk], [photo for _, photo in chunk]
        if self.keeping == "encoded":
            photos = [_content(photo) for photo in photos]
        packed = self._packed if self.keeping == "disk" else None
        target = packed.pixels if packed is not None else None
        decoded = self._workers.decode(photos, rows, PhotoJob(self.size, self.decoder, target, discard=True))
        return _Taken(rows, photos, decoded, target is not None and decoded.unwritten is None)

    def _enter(self, taken: _Taken) -> None:
        """In the main thread: note what was read of a chunk, and where it is kept."""
        decoded = taken.decoded
        if decoded.unwritten is not None:
            self._give_up(decoded.unwritten)
        for row, photo, outcome in zip(taken.rows, taken.photos, decoded.outcomes, strict=True):
            if outcome.problem is not None:
                self.problems[row] = outcome.problem
                continue
            self._digests[row], self._measures[row] = outcome.digest, outcome.measures
            if taken.written:
                assert self._packed is not None
                self._there[row] = True
                self._packed.keep(row, outcome.digest, outcome.measures)
            if not isinstance(photo, bytes):
                self._sources[row] = photo
            elif not taken.written:
                self._hold(row, photo)
        if self._packed is not None and self._packed.waiting:
            self._flush()

    def _hold(self, row: int, content: bytes) -> None:
        """Keep the content of a file in memory."""
        self._free -= len(content)
        if self._free < 0:
            raise InputError(
                f"{self.place}: neither the disk of the cache has room for the pixels of the photos, nor the "
                "memory for their files; GRAPHCLEAN_CACHE names another folder for the cache"
            )
        self._sources[row] = content

    def _flush(self) -> None:
        assert self._packed is not None
        try:
            self._packed.flush()
        except OSError as error:
            lost = self._packed.forget_new()
            self._there[lost] = False
            self._give_up(reason_of(error))
            if any(row not in self._sources for row in lost):
                self._free = -1
                self._hold(lost[0], b"")

    def _give_up(self, reason: str) -> None:
        """Write no more pixels to the disk; what is there is used."""
        if self.keeping == "disk":
            self._why.append(f"the disk has no more room for pixels ({reason})")
            self.keeping = "decode"

    def _again(self, photos: list[int]) -> npt.NDArray[np.uint8]:
        """In a worker's thread: decode photos that are not on the disk."""
        job = PhotoJob(self.size, self.decoder, measured=False)
        decoded = self._workers.decode([self._sources[row] for row in photos], photos, job)
        for row, outcome in zip(photos, decoded.outcomes, strict=True):
            if outcome.problem is not None or outcome.digest != int(self._digests[row]):
                what = outcome.problem if outcome.problem is not None else "another picture"
                raise InputError(
                    f"{self.images.ids[row]}: {what}, but the run began with a photo there; put it back, and "
                    f"continue with {arg('resume')}"
                )
        assert decoded.pixels is not None
        return decoded.pixels


def _chunks(items: Iterable[tuple[int, Encoded]]) -> Iterator[list[tuple[int, Encoded]]]:
    rest = iter(items)
    while chunk := list(islice(rest, AT_ONCE)):
        yield chunk


def _content(photo: Encoded) -> Encoded:
    """The content of a file; the file itself where it can't be read, since decoding it tells why."""
    try:
        if isinstance(photo, bytes):
            return photo
        return photo.read() if isinstance(photo, FilePart) else photo.read_bytes()
    except (OSError, UnreadableImage):
        return photo


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
