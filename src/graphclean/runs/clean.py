"""`graphclean clean`: verdicts without training."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pandas as pd
import torch

from .._files import replaced, write_json
from ..cleaning import CleaningResult, infer_verdicts, with_unreadable
from ..cleaning.evidence import Standardizer
from ..cleaning.inputs import check_embeddings
from ..cleaning.scale import is_large
from ..config import Config
from ..data.progress import Progress
from ..data.tables import Names
from ..data.verdict import Verdict
from ..distributed.group import ALONE, current, use
from ..embed import Embedder, EmbeddingCache
from ..embed.quality import ISSUES, quality_columns
from ..errors import InputError
from .cells import write_cells
from .device import choose_device
from .folder import (
    LEAKAGE,
    SUMMARY,
    check_target,
    new_run,
    safe_csv,
    write_config,
    write_env,
    write_table,
)
from .inputs import (
    IN_PYTHON,
    Source,
    complete_names,
    is_there,
    path_or,
    read_like,
    read_source,
    refuse_sources,
    usual_embedder,
)
from .interrupts import telling_what_is_kept
from .leakage import Leaks, from_cleaning, write_samples
from .photos import Photos, are_photos
from .projection import Points, mapped_rows, place_points, write_points
from .rerun import read_earlier
from .schema import SourceRecord


def clean(
    data: Path | Source,
    out: Path,
    config: Config,
    *,
    labels: Path | None = None,
    names: Names | None = None,
    embedder: str | Embedder | None = None,
    device: str = "auto",
    against: Path | None = None,
    show: Sequence[str] = (),
    overwrite: bool = False,
    progress: Progress | None = None,
) -> CleaningResult:
    """Clean embeddings or photos and write the run folder `out`; photos are embedded on `device`.

    `data` is a path, or arrays in memory. If it is a run, its data is cleaned again, with its review
    decisions held fixed. Samples of other data, `against`, that are also in `data` are listed in leakage.csv.
    The report will show the columns `show`.
    """
    group = current()
    if group.leads:
        check_target(out, overwrite=overwrite)
    if not isinstance(data, Source):
        refuse_sources(out, [data, labels, against])
    if against is not None and not is_there(against):
        raise InputError(f"{against}: no such file or folder")
    if config.ood.detector != "auto":
        raise InputError(
            f"ood.detector={config.ood.detector}: that is for trained networks; features have "
            "their own; leave it auto"
        )
    rerun = read_earlier(data)
    told = rerun.source if rerun is not None else SourceRecord()
    if rerun is not None:
        data = rerun.data
        refuse_sources(out, [data])
    labels, names = path_or(labels, told.get("labels")), complete_names(names, told)
    embedder = embedder if embedder is not None else usual_embedder(told)
    place = choose_device(device)
    if not isinstance(data, Source) and not are_photos(data, names, embedder):
        group.follow_only()  # only photos are worth dividing
    cache = EmbeddingCache()
    with telling_what_is_kept(cache), ExitStack() as alone:
        source = (
            data
            if isinstance(data, Source)
            else read_source(
                data,
                names,
                labels=labels,
                embedder=embedder,
                device=place,
                cache=cache,
                show=show or (rerun.shown if rerun is not None else ()),
                progress=progress,
            )
        )
        group.follow_only()
        alone.enter_context(use(ALONE))
        if rerun is not None:
            source = rerun.hold(source)
        cleaning = infer_verdicts(
            source.array,
            source.encode(),
            ids=source.ids,
            settings=config.cleaning,
            ood=config.ood,
            progress=progress,
        )
        cleaning = complete(cleaning, source)
        described = describe_request(data, labels, names) | source.describe()
        check, leaks = from_cleaning(cleaning, source), None
        if against is not None:
            new = read_like(
                described, against, names, run=out, device=place, embedder=embedder, progress=progress
            )
            leaks = Leaks.find(check, new)
            notes = leaks.notes(f"samples of {against}", f" ({LEAKAGE})")
            summary = replace(cleaning.summary, warnings=[*cleaning.summary.warnings, *notes])
            cleaning = replace(cleaning, summary=summary)
        changes = rerun.compare(cleaning, source) if rerun is not None else None
        compared = {"rerun": changes.record} if changes is not None else {}
        if progress is not None and is_large(len(cleaning.verdicts)):
            progress("writing", 0, 1)
        with new_run(out, overwrite=overwrite) as folder:
            write_config(
                folder, "clean", described, {"cleaning": asdict(config.cleaning), "ood": asdict(config.ood)}
            )
            write_env(folder, source.fingerprint(), decisions=source.decisions_fingerprint())
            write_json(folder / SUMMARY, cleaning.summary.to_dict() | compared)
            if changes is not None:
                changes.write(folder)
            write_table(cleaning.verdicts, folder / "verdicts")
            write_unreadable(source, folder)
            write_cells(source.cells, folder)
            write_points(_gather_points(source, cleaning), folder)
            if leaks is not None:
                leaks.write(folder)
            if cleaning.predictor is not None:
                cleaning.predictor.save(folder)
                write_samples(check, folder)
    return cleaning


def describe_request(data: Path | Source, labels: Path | None, names: Names) -> SourceRecord:
    """The request as recorded in config.json."""
    place = IN_PYTHON if isinstance(data, Source) else str(data)
    described: SourceRecord = {"data": place, "labels": str(labels) if labels is not None else None}
    named = {name: value for name, value in asdict(names).items() if value is not None}
    return described | cast(SourceRecord, named)


def complete(cleaning: CleaningResult, source: Source) -> CleaningResult:
    """Add the notes of the source and, for photos, unreadable photos and quality issues."""
    summary = replace(cleaning.summary, warnings=[*source.notes, *cleaning.summary.warnings])
    cleaning = replace(cleaning, summary=summary)
    return cleaning if source.photos is None else _add_quality(cleaning, source.photos)


def write_unreadable(source: Source, folder: Path) -> None:
    """List the unreadable photos of a source, if any."""
    if source.photos is not None and source.photos.problems:
        ids = source.photos.images.ids
        rows = [(ids[row], reason) for row, reason in sorted(source.photos.problems.items())]
        with replaced(folder / "unreadable.csv") as draft:
            safe_csv(pd.DataFrame(rows, columns=["id", "reason"])).to_csv(draft, index=False)


def _add_quality(cleaning: CleaningResult, photos: Photos) -> CleaningResult:
    """Add unreadable photos, and the quality issues of the others."""
    cleaning = _add_unreadable(cleaning, photos)
    found = quality_columns(photos.measures)
    counts = found["photo_issues"].explode().value_counts()
    summary = replace(
        cleaning.summary, photo_issues={name: int(counts[name]) for name in ISSUES if name in counts}
    )
    wide = found.set_index(photos.rows).reindex(range(len(cleaning.verdicts)))
    wide["photo_issues"] = [names if isinstance(names, list) else [] for names in wide["photo_issues"]]
    table = pd.concat([cleaning.verdicts.reset_index(drop=True), wide], axis=1)
    return replace(cleaning, verdicts=table, summary=summary)


def _add_unreadable(cleaning: CleaningResult, photos: Photos) -> CleaningResult:
    verdicts = {**cleaning.summary.verdicts, Verdict.UNREADABLE: len(photos.problems)}
    summary = replace(cleaning.summary, samples=len(photos.images.ids), verdicts=verdicts)
    table = with_unreadable(cleaning.verdicts, photos.images.ids, photos.rows, photos.images.labels)
    return replace(cleaning, verdicts=table, summary=summary)


def _gather_points(source: Source, cleaning: CleaningResult) -> Points:
    if cleaning.predictor is None or cleaning.detection is None:
        array = check_embeddings(source.array)
        chosen, standardizer = mapped_rows(len(array)), Standardizer.fit(array)
        return place_points(chosen, standardizer(array[chosen.numpy()]), None)
    chosen, standardizer = mapped_rows(len(source.array)), cleaning.predictor.standardizer
    array = check_embeddings(source.array[chosen.numpy()], double=standardizer.double)
    return place_points(chosen, standardizer(array), torch.as_tensor(cleaning.detection.score))
