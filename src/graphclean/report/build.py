"""Build the report page of a run."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .._files import has_file, replaced
from ..data.progress import Progress
from ..data.verdict import Verdict
from ..embed.quality import ISSUES
from ..errors import InputError, occupied
from ..runs.decisions import read_decided
from ..runs.folder import (
    GROUP_COLUMN,
    LIST_COLUMNS,
    POINTS,
    REPORT,
    VERDICT_COLUMNS,
    VERDICTS_FILE,
    read_config,
    read_env,
    read_metrics,
    read_scores,
    read_summary,
    read_verdicts,
    require_finished,
)
from ..runs.schema import ConfigFile, SourceRecord, SummaryFile
from .cells import choose_cells, fit_cells
from .escape import count_bytes, to_json
from .kept import KeptParts
from .lists import Ints
from .map import draw_map, read_points
from .page import render_page
from .samples import (
    FLAGGED,
    MOST_ROWS,
    Duplicates,
    Samples,
    as_columns,
    choose_classes,
    choose_rows,
    count_classes,
    count_pairs,
    cut_classes,
    rank,
    read_samples,
    rows_with_issues,
)
from .text import describe_run, describe_things, run_again
from .thresholds import sweep_thresholds
from .thumbnails import Pictures, find_pictures

MOST_PAGE_BYTES = 23_000_000
"""Maximum size of the table and the pictures, so that the whole page stays under 25 MB."""
MOST_PICTURES = 3000
MOST_GROUPS, MOST_OF_GROUP = 200, 10
"""Maximum numbers of duplicate groups that get pictures, and of pictures per group, all that the page shows
of it.
"""
THUMBNAIL_SIDE = 144
"""Maximum side of a picture in pixels."""


@dataclass(frozen=True)
class Report:
    """A report that has been written."""

    out: Path
    size: int
    notes: list[str] = field(default_factory=list)
    """What the page omits, and why."""


class Page(NamedTuple):
    """A page that has not been written yet."""

    content: bytes
    notes: list[str]
    """What the page omits, and why."""
    pictures: Pictures | None
    """The source of the pictures."""
    cut: dict[str, str]
    """Shortened class name -> full name."""


class _Shown(NamedTuple):
    """The parts of a run that its page shows."""

    rows: Ints
    """The samples in the table."""
    place: dict[int, int]
    """Row of a sample -> its position in the table."""
    table: str
    plan: dict[str, Any] | None
    """The map, if there is one."""
    pictures: dict[int, str]
    """Pictures by position in the table."""
    gone: int
    """The number of pictures that can no longer be read."""
    direct: bool
    """Whether a review can show the photos themselves."""


def write_report(
    run: Path,
    *,
    out: Path | None = None,
    data: Path | None = None,
    show: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Write a run as one HTML file, RUN/report.html unless `out` is given.

    Pictures are read from the run's data; `data` is its current location if it has moved. The columns to
    `show` are displayed with each sample, in this and later reports.
    """
    target = out if out is not None else run / REPORT
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{target}: the report is an .html file")
    if out is not None and out.exists() and not overwrite:
        raise occupied(out, "the file exists")
    page = build_page(run, data=data, show=show, progress=progress)
    with replaced(target) as draft:
        draft.write_bytes(page.content)
    return Report(target, len(page.content), page.notes)


def build_page(
    run: Path,
    *,
    data: Path | None = None,
    show: Sequence[str] = (),
    progress: Progress | None = None,
    token: str | None = None,
) -> Page:
    """Build the page of a report, or of a review if given a `token`, which authorizes decisions."""
    tell = progress if progress is not None else lambda *_: None
    config = read_config(run)
    require_finished(run)
    summary, source = read_summary(run), config.get("source", SourceRecord())
    detector_score, mapped, z = read_points(run)
    verdicts = read_verdicts(run, VERDICT_COLUMNS | {GROUP_COLUMN, *LIST_COLUMNS}, arrow=True)
    samples = read_samples(verdicts, summary.get("classes", []), detector_score)
    del verdicts
    classes = cut_classes(samples.classes)
    cut = {short: name for short, name in zip(classes, samples.classes, strict=True) if short != name}
    cells = fit_cells(choose_cells(run, source, samples.ids, show, data), len(samples), MOST_ROWS)
    samples = replace(samples, classes=classes, cells=cells)
    groups, flawed = Duplicates.find(samples), rows_with_issues(samples)
    tell("drawing the map", 0, 1)
    kept = KeptParts(run)
    plan = draw_map(mapped, z, samples, kept)
    pictures, why = _find_pictures(run, source, samples, data)
    order = picture_order(samples, groups, flawed, np.asarray(plan["row"] if plan else [], dtype=np.int64))
    shown = _choose_shown(samples, plan, pictures, kept, order, tell)
    notes = _describe_gaps(run, source, samples, shown, pictures, why, reviewing=token is not None)
    page = render_page(
        facts=_gather_facts(run, config, summary, samples, shown, groups, len(flawed), token),
        table=shown.table,
        words=describe_run(run, config, summary, samples, reviewing=token is not None),
        notes=[*notes, *(str(note) for note in summary.get("warnings", []))],
        scores=read_scores(run),
        summary=summary,
        issue_meaning=ISSUES,
        config=config,
        env=read_env(run),
        token=token,
    )
    kept.save()
    return Page(page, notes, pictures, cut)


def _choose_shown(
    samples: Samples,
    plan: dict[str, Any] | None,
    pictures: Pictures | None,
    kept: KeptParts,
    order: Ints,
    tell: Progress,
) -> _Shown:
    rows = choose_rows(samples, order)
    place = {int(row): number for number, row in enumerate(rows)}
    table = to_json(as_columns(samples, rows))
    encoded: dict[int, str] = {}
    gone = 0
    if pictures is not None:
        room = MOST_PAGE_BYTES - count_bytes(table) - count_bytes(to_json(samples.classes))
        encoded, lost = _encode(pictures, kept, order, place, room, tell)
        gone = int((~samples.where(Verdict.UNREADABLE)[lost]).sum())
    within = _within(plan, place) if plan is not None else None
    direct = pictures is not None and pictures.direct
    return _Shown(rows, place, table, within, encoded, gone, direct)


def _describe_gaps(
    run: Path,
    source: SourceRecord,
    samples: Samples,
    shown: _Shown,
    pictures: Pictures | None,
    why: str | None,
    *,
    reviewing: bool,
) -> list[str]:
    """What the page omits, and why."""
    things = describe_things(str(source.get("kind")), 2)
    notes = []
    if not has_file(run / POINTS):
        notes.append(
            "The run was made by an earlier version, so there is neither a map nor a choice of threshold."
        )
    if why is not None and source.get("kind") != "features":
        notes.append(f"Pictures are not shown. {why}")
    if len(shown.rows) < len(samples):
        notes.append(
            f"This page holds {len(shown.rows):,} of {len(samples):,} {things}: the most confident suspects, "
            f"and a random sample of the others. All are in {VERDICTS_FILE}, and summary, classes and "
            "thresholds count all of them."
        )
    if shown.gone:
        are = "1 is" if shown.gone == 1 else f"{shown.gone:,} are"
        notes.append(f"Of the {things} {are} no longer there, or can't be read any more, and not shown.")
    readable = int((~samples.where(Verdict.UNREADABLE))[shown.rows].sum())
    if pictures is not None and len(shown.pictures) + shown.gone < readable:
        notes.append(
            f"{len(shown.pictures):,} pictures are in this file, those of the most confident suspects first."
        )
    if shown.plan is not None and len(shown.plan["row"]) < shown.plan["of"]:
        notes.append(f"The map shows {len(shown.plan['row']):,} {things}, chosen at random.")
    decided = read_decided(run)
    if decided and not reviewing:
        notes.append(f"Reviewed by people: {len(decided):,}. `graphclean apply` goes by what they decided.")
    return notes


def _gather_facts(
    run: Path,
    config: ConfigFile,
    summary: SummaryFile,
    samples: Samples,
    shown: _Shown,
    duplicates: Duplicates,
    flawed: int,
    token: str | None,
) -> dict[str, Any]:
    """The data for the page's scripts, except the table."""
    detector, pairs = summary.get("detector"), count_pairs(samples)
    matrix = choose_classes(samples, pairs)
    return {
        "mode": "report" if token is None else "review",
        "run": str(run),
        "things": describe_things(str(config.get("source", SourceRecord()).get("kind")), 2),
        "classes": samples.classes,
        "shown": list(samples.cells),
        "verdicts": list(Verdict),
        "meaning": {name: name.meaning.capitalize() for name in Verdict},
        "counts": {name: int(samples.where(name).sum()) for name in Verdict},
        "right": summary.get("expected_right", {}),
        "total": len(samples),
        "sampled": len(shown.rows) < len(samples),
        "map": shown.plan,
        "issues": list(ISSUES),
        "issue_counts": summary.get("photo_issues", {}),
        "with_issues": flawed,
        "groups": len(duplicates.groups),
        "conflicting": duplicates.conflicting,
        "duplicates": [
            held
            for group in duplicates.groups
            if (held := [shown.place[row] for row in group if row in shown.place])
        ],
        "matrix": matrix,
        "pairs": [pair for pair in pairs if pair[0] in matrix and pair[1] in matrix],
        "by_class": count_classes(samples),
        "border": sweep_thresholds(samples, detector) if detector else None,
        "trained": config.get("kind") == "train",
        "again": run_again(run, config),
        "curves": read_metrics(run),
        "pictures": shown.pictures,
        "large_pictures": shown.direct,
    }


def _within(plan: dict[str, Any], place: dict[int, int]) -> dict[str, Any]:
    """The map restricted to samples in the table, with rows replaced by positions in it."""
    held = [number for number, row in enumerate(plan["row"]) if row in place]
    kept = {name: [plan[name][number] for number in held] for name in ("row", "x", "y")}
    return plan | kept | {"row": [place[row] for row in kept["row"]]}


def _find_pictures(
    run: Path, source: SourceRecord, samples: Samples, data: Path | None
) -> tuple[Pictures | None, str | None]:
    """The pictures, or why there are none; this is an error if `data` was given."""
    try:
        return find_pictures(run, source, samples.ids, data), None
    except InputError as error:
        if data is not None:
            raise
        return None, str(error)


def picture_order(samples: Samples, duplicates: Duplicates, flawed: Ints, mapped: Ints) -> Ints:
    """Rows by how much their pictures are needed: suspects with their neighbors, duplicates, photos with
    quality issues, the map, and all others if the run is small.
    """

    def walk() -> Iterator[int]:
        ranked = [rank(samples, name)[:MOST_PICTURES].tolist() for name in FLAGGED]
        for number in range(max(map(len, ranked))):
            for rows in ranked:
                if number < len(rows):
                    yield rows[number]
                    yield from samples.near[rows[number]]
        for group in duplicates.groups[:MOST_GROUPS]:
            yield from group[:MOST_OF_GROUP]
        yield from flawed[:MOST_PICTURES].tolist()
        yield from mapped.tolist()
        if len(samples) <= MOST_PICTURES:
            yield from range(len(samples))

    return np.array(list(dict.fromkeys(walk())), dtype=np.int64)


def _encode(
    pictures: Pictures, kept: KeptParts, order: Ints, place: dict[int, int], room: int, tell: Progress
) -> tuple[dict[int, str], list[int]]:
    """Base64 pictures by position in the table, in order of need until the page is full; and the rows without
    a picture.
    """
    wanted = [row for row in order.tolist() if row in place][:MOST_PICTURES]
    stamps = {row: pictures.stamp(row) for row in wanted}
    held = {row: kept.find_picture(row, THUMBNAIL_SIDE, stamps[row]) for row in wanted}
    found = {row: content for row, content in held.items() if content is not None}
    for row, content in pictures.encode_many([row for row in wanted if row not in found], THUMBNAIL_SIDE):
        tell("reading pictures", len(found), len(wanted))
        found[row] = content
        kept.keep_picture(row, THUMBNAIL_SIDE, stamps[row], content)
    tell("reading pictures", len(wanted), len(wanted))
    shown: dict[int, str] = {}
    for row in wanted:
        if row in found:
            text = base64.b64encode(found[row]).decode()
            room -= len(text) + 16
            if room < 0:
                break
            shown[place[row]] = text
    return shown, [row for row in wanted if row not in found]
