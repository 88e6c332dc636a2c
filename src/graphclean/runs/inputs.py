"""Reading arrays, tables and folders of photos as inputs of one kind, with labels and ids."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import torch

from ..cleaning.inputs import Labels, encode_classes, encode_written
from ..data.arrays import PixelKind, Pixels, holds_images, read_images
from ..data.embeddings import read_embeddings
from ..data.hub import names_hub
from ..data.image_folder import ImageFiles, ImageSet, empty_folders
from ..data.photo_stream import PhotoStream
from ..data.progress import Progress
from ..data.shards import RANGE, names_shards, shards_exist
from ..data.tables import TABLES, Names, check_file
from ..embed import Embedder, EmbeddingCache, FunctionEmbedder, weights_sha256
from ..embed.quality import is_blank
from ..errors import ELSEWHERE, InputError, arg
from .cells import Cells, Shown
from .decisions import Decision
from .folder import brings_data, check_origin, recorded_data
from .photos import (
    DEFAULT_EMBEDDER,
    Cropping,
    Embedding,
    Photos,
    Reading,
    are_photos,
    find_photos,
    locate,
    read_photos,
    recorded_decoder,
)
from .schema import Scale, SourceRecord

InputKind = Literal["features", "images", "photos"]
LABELS_AT_ONCE = 2**20
"""Labels that are hashed at once."""
IN_PYTHON = "arrays in Python"
"""Stands for the path in config.json."""


@dataclass(frozen=True)
class Source:
    """Inputs with their labels, and what is needed to read more data in the same way."""

    inputs: npt.NDArray[Any] | PhotoStream
    """Features (N, d), or uint8 images (N, C, H, W), which may be streamed."""
    labels: Any = None
    ids: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    columns: list[str] | None = None
    """Names of the features, if they are columns of a table."""
    pixels: Pixels | None = None
    """How image arrays were scaled; None for features."""
    photos: Photos | None = None
    """The photos, if the inputs come from photos."""
    decisions: list[Decision] = field(default_factory=list)
    """Review decisions, by rows of `all_ids`."""
    cells: Cells = field(default_factory=dict)
    """Text to show with each sample, by column, in the order of `all_ids`."""

    @property
    def all_ids(self) -> list[str]:
        """Ids of all samples, including photos that can't be read."""
        if self.photos is not None:
            return self.photos.images.ids
        return self.ids if self.ids is not None else [str(row) for row in range(len(self.inputs))]

    def encode(self) -> Labels:
        """The labels as class numbers, with the review decisions."""
        labels = encode_classes(encode_written(self.labels), len(self.inputs))
        if self.photos is not None:
            measures = self.photos.measures
            labels = replace(labels, blank=is_blank(measures), hashes=measures["hash"])
        if not self.decisions:
            return labels
        codes: dict[str | None, int] = {str(name): code for code, name in enumerate(labels.classes)}
        codes[None] = len(labels.classes)
        decided = np.full(len(self.all_ids), -1)
        for decision in self.decisions:
            if decision.label not in codes:
                raise InputError(
                    f"{decision.id} was decided to be {decision.label}, which is no longer a class"
                )
            decided[decision.row] = codes[decision.label]
        return replace(labels, decided=decided if self.photos is None else decided[self.photos.rows])

    @property
    def array(self) -> npt.NDArray[Any]:
        """The inputs, which are not streamed."""
        assert not isinstance(self.inputs, PhotoStream)
        return self.inputs

    def close(self) -> None:
        """End what reads streamed inputs."""
        if isinstance(self.inputs, PhotoStream):
            self.inputs.close()

    @property
    def kind(self) -> InputKind:
        """The kind of input: `photos` if the features or images come from photos."""
        if self.photos is not None:
            return "photos"
        return "images" if self.pixels is not None else "features"

    def describe(self) -> SourceRecord:
        """What is needed to read new data in the same way."""
        described: SourceRecord = {"kind": self.kind}
        if self.columns is not None:
            described["columns"] = self.columns
        if self.photos is not None:
            described |= cast(SourceRecord, self.photos.reading.describe())
        if self.pixels is not None:
            described["pixels"] = Scale(kind=self.pixels.kind, low=self.pixels.low, high=self.pixels.high)
        return described

    def decisions_fingerprint(self) -> str | None:
        """SHA-256 of the review decisions; None if there are none."""
        text = "\n".join(f"{decision.row} {decision.label}" for decision in self.decisions)
        return hashlib.sha256(text.encode()).hexdigest() if text else None

    def fingerprint(self) -> str:
        """SHA-256 of inputs and labels."""
        array = self.inputs.digests if isinstance(self.inputs, PhotoStream) else self.inputs
        digest = hashlib.sha256(np.ascontiguousarray(array).data)
        for start in range(0, len(self.labels), LABELS_AT_ONCE):
            part = self.labels[start : start + LABELS_AT_ONCE]
            digest.update(("\n" if start else "").encode() + "\n".join(map(str, part)).encode())
        return digest.hexdigest()


def read_source(
    data: Path,
    names: Names,
    *,
    labels: Path | None = None,
    embedder: str | Embedder | None = None,
    choose: Callable[[int], Reading] | None = None,
    images: bool = False,
    device: torch.device = torch.device("cpu"),
    cache: EmbeddingCache | None = None,
    show: Sequence[str] = (),
    progress: Progress | None = None,
) -> Source:
    """Read labeled data: embeddings or photos, and with `images` also arrays of images.

    Photos are embedded by `embedder` (or the default one) on `device`, unless `choose` decides by their
    number how to read them. The columns `show` of the data's table are read as well.
    """
    photographed = are_photos(data, names, embedder)
    # Misspelled columns are reported before photos are read.
    shown = Shown(show, data, names, labels=labels, photos=photographed) if show else None
    if photographed:
        if labels is not None:
            raise InputError(
                f"{data}: {arg('labels')} is for arrays and embeddings; photos have theirs in folder names "
                "or in the table"
            )
        found_photos = find_photos(data, names)
        reading = choose(len(found_photos.ids)) if choose is not None else embedding(embedder, device)
        photos = read_photos(found_photos, reading, data, cache=cache, progress=progress)
        notes = _photo_notes(photos) + _folder_notes(data, found_photos)
        if cache is not None and cache.problem is not None:
            notes.append(cache.problem)
        source = Source(photos.inputs, photos.labels, photos.ids, notes, photos=photos)
    elif images and holds_images(data, names):
        arrays = read_images(data, labels=labels, names=names)
        source = Source(arrays.images, arrays.labels, notes=arrays.notes, pixels=arrays.pixels)
    else:
        found = read_embeddings(data, labels=labels, names=names)
        source = Source(found.features, found.labels, found.ids, found.notes, found.columns)
    return source if shown is None else replace(source, cells=shown.read(source.all_ids))


def read_like(
    described: SourceRecord,
    data: Path,
    names: Names,
    *,
    run: Path,
    device: torch.device,
    labeled: bool = False,
    embedder: str | Embedder | None = None,
    progress: Progress | None = None,
) -> Source:
    """Read more data of the kind that a run was made from; other kinds are refused.

    `embedder` is that of the run, if it can't be created from its name.
    """
    kind = find_kind(described, run)
    if holds_photos(data, names, kind):
        reading = recorded_reading(described, run, device, embedder)
        found_photos = find_photos(data, names, labeled=labeled, least=1)
        photos = read_photos(found_photos, reading, data, progress=progress)
        return Source(photos.inputs, photos.labels if labeled else None, photos.ids, photos=photos)
    if holds_images(data, names) and (kind == "images" or names.features_key is None):
        if kind != "images":
            raise InputError(f"{data}: it holds images, but {run} was made from {NAMED[kind]}")
        pixels = recorded_pixels(described, run)
        arrays = read_images(data, names=names, labeled=labeled, pixels=pixels)
        return Source(arrays.images, arrays.labels, notes=arrays.notes, pixels=pixels)
    if kind == "images":
        check_file(data)
        raise InputError(f"{data}: {run} was made from images, so an array of images (.npz, .npy) is needed")
    columns = described.get("columns") if data.suffix.lower() in TABLES else None
    found = read_embeddings(data, names=names, labeled=labeled, columns=columns)
    return Source(found.features, found.labels, found.ids, found.notes, found.columns)


def embedding(embedder: str | Embedder | None, device: torch.device) -> Embedding:
    """Reading by the given embedder, or the default one."""
    return Embedding(embedder if embedder is not None else DEFAULT_EMBEDDER, device)


def recorded_reading(
    described: SourceRecord, run: Path, device: torch.device, embedder: str | Embedder | None = None
) -> Reading:
    """How the photos of a run were read, by its config.json; other kinds of runs are refused.

    A given `embedder` must be that of the run.
    """
    kind = find_kind(described, run)
    if kind != "photos":
        raise InputError(f"{run}: this run was made from {NAMED[kind]}, so photos can't be compared with it")
    if isinstance(described.get("embedder"), str):
        if described.get("weights") != weights_sha256(described["embedder"]):
            raise InputError(f"{run}: {described['embedder']} has other weights by now; make the run again")
        given = Embedding(embedder if embedder is not None else described["embedder"], device)
        _check_embedder(given, described, run)
        return given
    if isinstance(described.get("size"), int):
        shrunk = bool(described.get("shrunk"))
        return Cropping(described["size"], shrunk, recorded_decoder(described) if shrunk else "pillow")
    raise InputError(f"{run}: damaged: config.json does not record how photos are read")


def _check_embedder(given: Embedding, described: SourceRecord, run: Path) -> None:
    """Refuse an embedder that gives other features than the run's."""
    embedder, recorded = given.embedder, described["embedder"]
    if isinstance(embedder, FunctionEmbedder):
        same = embedder.embeds_like(described.get("probe", []))
    else:
        same = given.name == recorded
    if not same:
        raise InputError(
            f"{run}: its photos were embedded by {recorded}, and {given.name} gives other features; "
            f"pass the same {arg('embedder')}"
        )


def recorded_names(described: SourceRecord) -> Names:
    """The names of arrays and columns in a run's config.json."""
    told: dict[str, Any] = dict(described)
    return Names(**{name.name: told.get(name.name) for name in fields(Names)})


def recorded_options(described: SourceRecord) -> dict[str, str]:
    """The options about its data in a run's config.json, apart from the path."""
    names = ("labels", *(name.name for name in fields(Names)), "embedder", "validation")
    told = dict(described)
    return {name: str(told[name]) for name in names if told.get(name) is not None}


def usual_embedder(described: SourceRecord) -> str | None:
    """The embedder of a run, as an option: `none` if its data was embeddings, None if it embedded nothing."""
    return "none" if described.get("kind") == "features" else described.get("embedder")


def complete_names(given: Names | None, before: SourceRecord) -> Names:
    """The given names, completed with those of an earlier run."""
    named = asdict(given if given is not None else Names()).items()
    return replace(recorded_names(before), **{name: value for name, value in named if value is not None})


def path_or(given: Path | None, before: str | None) -> Path | None:
    """The given path, or else that of an earlier run."""
    return Path(before) if given is None and before is not None else given


def is_there(data: Path) -> bool:
    """Whether the file or folder exists; sets on the hub are not checked until they are fetched."""
    return names_hub(data) or locate(data)[0].exists() or shards_exist(data)


def find_data(run: Path, source: SourceRecord, data: Path | None) -> Path:
    """The path of a run's data: the given one, or the recorded one if the run was made here."""
    if data is None and not brings_data(run, source):
        check_origin(run, source, f"name its place with {arg('data')}")
    path = data if data is not None else recorded_data(run, source)
    if not is_there(path):
        raise InputError(
            f"{path}: not found; run this from the folder where the run was made, or name "
            f"its place now with {arg('data')}"
        )
    return path


def find_labels(run: Path, source: SourceRecord) -> Path | None:
    """The separate label file of a run, if it had one; refused for a run made elsewhere."""
    if source.get("labels") is None:
        return None
    check_origin(run, source, "its labels are in a separate file, so make a run of that data here")
    return Path(str(source["labels"]))


def match_photos(images: ImageSet, ids: list[str], path: Path) -> dict[int, int]:
    """Map the samples of a run to rows of `images`; by id if the data has changed since the run."""
    if images.ids == ids:
        return {row: row for row in range(len(ids))}
    by_id = {name: number for number, name in enumerate(images.ids)}
    if len(by_id) < len(images.ids):
        raise InputError(f"{path}: has changed since the run, and ids stand in it more than once")
    found = {row: by_id[name] for row, name in enumerate(ids) if name in by_id}
    if not found:
        raise InputError(f"{path}: not one of the run's photos is in it")
    return found


def refuse_sources(target: Path, sources: Iterable[Any]) -> None:
    """Refuse to write to the data, in its place, or into its folder, where the next run would read it."""
    real = Path(os.path.realpath(target))
    for source in sources:
        if source is None:
            continue
        place = locate(Path(str(source)))[0]
        data = Path(os.path.realpath(place))
        if real.is_relative_to(data):
            raise InputError(f"{target}: lies in {place}, which is never written to; {ELSEWHERE}")
        if data.is_relative_to(real):
            raise InputError(f"{target}: {place} lies in it, and is never replaced; {ELSEWHERE}")


def source_name(data: Path) -> str:
    """The name of a run or a table of predictions, derived from its data."""
    place, split = locate(data)
    place = place.with_name(RANGE.sub("", place.name).replace("-.", ".")) if names_shards(place) else place
    whole = Path(os.path.abspath(place))  # `.` and `..` have names too
    name = whole.name if whole.is_dir() else whole.stem
    return "-".join(name.removeprefix("hf:").split(":") + ([split] if split is not None else []))


def holds_photos(data: Path, names: Names, kind: InputKind) -> bool:
    """Whether new data is photos; for runs on embeddings, a table is embeddings even with paths in it."""
    table = kind == "features" and data.suffix.lower() in TABLES and names.path_column is None
    return are_photos(data, names, "none" if table else None)


def find_kind(described: SourceRecord, run: Path) -> InputKind:
    """The kind of data that a run was made from, by its config.json."""
    kind = described.get("kind", "photos" if "embedder" in described else "features")
    if kind not in NAMED:
        raise InputError(f"{run}: damaged: config.json does not record the kind of its data")
    return cast(InputKind, kind)


def recorded_pixels(described: SourceRecord, run: Path) -> Pixels:
    """How the images of a run were scaled, by its config.json."""
    scale = described.get("pixels", {})
    kind = scale.get("kind")
    if kind not in get_args(PixelKind) or "low" not in scale or "high" not in scale:
        raise InputError(f"{run}: damaged: config.json does not record how pixels are scaled")
    return Pixels(cast(PixelKind, kind), scale["low"], scale["high"])


NAMED = {"features": "embeddings", "images": "images", "photos": "photos"}


def _photo_notes(photos: Photos) -> list[str]:
    if not photos.problems:
        return []
    some = [f"{photos.images.ids[row]} ({reason})" for row, reason in list(photos.problems.items())[:3]]
    count = f"{len(photos.problems)} photo{'s' if len(photos.problems) > 1 else ''}"
    return [f"{count} can't be read, listed in unreadable.csv: {', '.join(some)}"]


def _folder_notes(data: Path, images: ImageSet) -> list[str]:
    if not data.is_dir() or not isinstance(images, ImageFiles):
        return []
    empty = empty_folders(data, set(images.labels or []))
    if not empty:
        return []
    some = f"{', '.join(empty[:3])}{' …' if len(empty) > 3 else ''}"
    return [f"no photos in {len(empty)} folder{'s' if len(empty) > 1 else ''}, so not a class: {some}"]
