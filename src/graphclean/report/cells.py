"""Source columns shown with each sample, as far as the page has room."""

from collections.abc import Sequence
from pathlib import Path

from ..runs.cells import Cells, Shown, read_cells, write_cells
from ..runs.inputs import IN_PYTHON, find_data, find_labels, recorded_names
from ..runs.schema import SourceRecord
from .escape import count_bytes, to_json

CELL_LENGTHS = (2000, 600, 200, 80)
"""Maximum lengths of a cell to try: the largest that fits for all samples is used."""
MOST_CELL_BYTES = 8_000_000


def choose_cells(
    run: Path, source: SourceRecord, ids: list[str], show: Sequence[str] = (), data: Path | None = None
) -> Cells:
    """Values of the columns to `show`, which the run stores from then on; by default the stored ones."""
    if not show:
        return read_cells(run, len(ids))
    in_python = data is None and source.get("data") == IN_PYTHON
    place = Path(IN_PYTHON) if in_python else find_data(run, source, data)
    labels, photos = find_labels(run, source), source.get("kind") == "photos"
    cells = Shown(show, place, recorded_names(source), labels=labels, photos=photos).read(ids)
    write_cells(cells, run)
    return cells


def fit_cells(cells: Cells) -> Cells:
    """Truncate so that the page can hold them."""
    for length in CELL_LENGTHS:
        cut = {name: [_cut(text, length) for text in texts] for name, texts in cells.items()}
        if count_bytes(to_json(cut)) <= MOST_CELL_BYTES:
            break
    return cut


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length].rstrip('…')}…"
