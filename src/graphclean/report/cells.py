"""Source columns shown with each sample, as far as the page has room."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..runs.cells import Cells, Shown, read_texts, write_cells
from ..runs.inputs import IN_PYTHON, find_data, find_labels, recorded_names
from ..runs.schema import SourceRecord
from .escape import count_bytes, to_json
from .lists import Ints

CELL_LENGTHS = (2000, 600, 200, 80)
"""Maximum lengths of a cell to try: the largest that fits for all samples is used."""
MOST_CELL_BYTES = 8_000_000


@dataclass(frozen=True)
class ShownCells:
    """Cells of all samples, in Arrow; those that the page shows become text."""

    columns: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    length: int = CELL_LENGTHS[0]
    """Longer texts are cut."""

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def take(self, rows: Ints) -> Cells:
        """The texts of some samples."""
        return {
            name: [_cut(text or "", self.length) for text in texts.take(pa.array(rows)).to_pylist()]
            for name, texts in self.columns.items()
        }


def choose_cells(
    run: Path, source: SourceRecord, ids: list[str], show: Sequence[str] = (), data: Path | None = None
) -> ShownCells:
    """Values of the columns to `show`, which the run stores from then on; by default the stored ones."""
    if not show:
        return ShownCells(read_texts(run, len(ids)))
    in_python = data is None and source.get("data") == IN_PYTHON
    place = Path(IN_PYTHON) if in_python else find_data(run, source, data)
    labels, photos = find_labels(run, source), source.get("kind") == "photos"
    cells = Shown(show, place, recorded_names(source), labels=labels, photos=photos).read(ids)
    write_cells(cells, run)
    return ShownCells({name: pa.chunked_array([texts], pa.large_string()) for name, texts in cells.items()})


def fit_cells(cells: ShownCells, samples: int, most: int) -> ShownCells:
    """Truncate so that the page can hold those of `most` of the samples."""
    count = min(samples, most)
    rows = np.linspace(0, samples - 1, count).astype(np.int64) if count else np.zeros(0, dtype=np.int64)
    for length in CELL_LENGTHS:
        cut = replace(cells, length=length)
        if not cells.columns or count_bytes(to_json(cut.take(rows))) <= MOST_CELL_BYTES:
            break
    return cut


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip('…')}…"
