"""Exports of a run to other tools: which of its data they need, and where they are written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.image_folder import ImageFiles, ImageSet
from ..data.images import Encoded
from ..data.parquet import ImageTable
from ..data.progress import Progress
from ..errors import InputError, arg
from .cleaned_parquet import write_cleaned
from .formats import Format, Outcome, as_cleanlab, as_fiftyone, as_label_studio, write_files
from .hub_table import Content, of_features, of_files, of_images, write_hub_table
from .inputs import (
    IN_PYTHON,
    find_data,
    find_labels,
    match_photos,
    read_source,
    recorded_names,
)
from .photos import find_photos
from .schema import SourceRecord


@dataclass(frozen=True)
class HandOver:
    """An export to another tool."""

    run: Path
    source: SourceRecord
    outcome: Outcome
    data: Path | None
    """The current location of the data, if it has moved."""
    out: Path
    dry_run: bool
    overwrite: bool
    progress: Progress | None

    def carry_out(self, form: Format) -> tuple[int, list[str]]:
        """Write the export; returns the number of changed files, and notes for the user."""
        if form == "cleanlab":
            return self._write(as_cleanlab(self.outcome, self.out)), []
        if form == "hf":
            return self._write_hub_table(), []
        photos = self._find_photos(form) if self.source.get("kind") == "photos" else None
        if form == "label-studio":
            root = self._root(photos)
            files = as_label_studio(self.outcome, photos, root, self.out)
            return self._write(files), self._serving_notes(photos, root)
        if photos is None:
            raise InputError(
                f"{self.run}: made from arrays or embeddings, so there are no photos for fiftyone; "
                f"{arg('form')} cleanlab has the same columns for all data"
            )
        return self._write(as_fiftyone(self.outcome, photos, self.out)), []

    def _write(self, files: dict[Path, bytes]) -> int:
        return write_files(files, dry_run=self.dry_run, overwrite=self.overwrite)

    def _find_photos(self, form: Format) -> list[Path | None]:
        path = find_data(self.run, self.source, self.data)
        images = find_photos(path, recorded_names(self.source), labeled=False)
        if not isinstance(images, ImageFiles):
            raise InputError(
                f"{path}: the photos are in a table or in shards, and {form} takes files; {arg('form')} hf "
                "writes a table"
            )
        return find_files(images, path, self.outcome.table["id"].tolist())

    def _root(self, photos: list[Path | None] | None) -> Path:
        """The parent of the folder of photos: Label Studio requires photos in a subfolder of its root."""
        if photos is None:
            return Path()
        place = find_data(self.run, self.source, self.data).absolute()
        return place.parent if place.is_dir() else place.parent.parent

    def _serving_notes(self, photos: list[Path | None] | None, root: Path) -> list[str]:
        if photos is None:
            return []
        return [
            "Label Studio finds the photos with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and "
            f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={root}; its labeling configuration is "
            f"{self.out.with_suffix('.xml').name}"
        ]

    def _write_hub_table(self) -> int:
        if self.source.get("data") == IN_PYTHON and self.data is None:
            raise InputError(
                f"{self.run}: made from arrays in Python, which are not kept; {arg('form')} cleanlab has the "
                "labels alone"
            )
        path = find_data(self.run, self.source, self.data)
        photos = self.source.get("kind") == "photos"
        fingerprint: Any
        if photos:
            images = find_photos(path, recorded_names(self.source))
            if isinstance(images, ImageTable):
                return write_cleaned(
                    images,
                    self.outcome.table,
                    self.out,
                    dry_run=self.dry_run,
                    overwrite=self.overwrite,
                    progress=self.progress,
                )
            content: Content = of_files(find_encoded(images, path, self.outcome.table["id"].tolist()))
            fingerprint = images.stamps()
        else:
            labels = find_labels(self.run, self.source)
            found = read_source(
                path, recorded_names(self.source), labels=labels, embedder="none", images=True
            )
            if found.all_ids != self.outcome.table["id"].map(str).tolist():
                raise InputError(f"{path}: has changed since the run; make the run again")
            photos = found.pixels is not None
            content = of_images(found.array) if photos else of_features(found.array)
            fingerprint = found.fingerprint()
        return write_hub_table(
            self.outcome,
            content,
            self.out,
            photos=photos,
            fingerprint=fingerprint,
            dry_run=self.dry_run,
            overwrite=self.overwrite,
            progress=self.progress,
        )


def find_files(images: ImageFiles, path: Path, ids: list[str]) -> list[Path | None]:
    """The file of each id, which may be a link; None if it is gone or may not be opened."""
    return [photo if isinstance(photo, Path) else None for photo in find_encoded(images, path, ids)]


def find_encoded(images: ImageSet, path: Path, ids: list[str]) -> list[Encoded | None]:
    """The same for photos of any set that has them in files."""
    place, there = match_photos(images, ids, path), dict(images.items())
    return [there.get(place[row]) if row in place else None for row in range(len(ids))]
