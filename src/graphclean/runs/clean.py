"""`graphclean clean`: verdicts without training."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pandas as pd

from .._files import replaced, write_json
from ..cleaning import Audit, KnnModel, audit_embeddings, with_unreadable
from ..cleaning.evidence import Standardiser
from ..cleaning.inputs import check_embeddings
from ..cleaning.pipeline import require_search
from ..config import Config
from ..data.progress import Progress
from ..data.tables import Names
from ..data.verdict import Verdict
from ..embed import Embedder, EmbeddingCache
from ..ood import prototype_similarity
from .device import choose_device
from .folder import (
    SUMMARY,
    check_target,
    new_run,
    safe_csv,
    write_config,
    write_env,
    write_table,
)
from .inputs import Source, read_source, refuse_sources
from .interrupts import telling_what_is_kept
from .photos import Photos
from .projection import Points, gather_points, write_points
from .schema import SourceRecord


def clean(
    data: Path,
    out: Path,
    config: Config,
    *,
    labels: Path | None = None,
    names: Names | None = None,
    embedder: str | Embedder | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Audit embeddings or photos and write the run folder `out`; `device` is where photos are embedded."""
    check_target(out, overwrite=overwrite)
    refuse_sources(out, [data, labels])
    require_search(config.audit)
    names = names if names is not None else Names()
    place = choose_device(device)
    cache = EmbeddingCache()
    with telling_what_is_kept(cache):
        source = read_source(
            data, names, labels=labels, embedder=embedder, device=place, cache=cache, progress=progress
        )
        audit = audit_embeddings(
            source.inputs, source.labels, ids=source.ids, settings=config.audit, progress=progress
        )
        audit = complete(audit, source)
        described = describe_request(data, labels, names) | source.describe()
        with new_run(out, overwrite=overwrite) as folder:
            write_config(folder, "clean", described, {"audit": asdict(config.audit)})
            write_env(folder, source.fingerprint())
            write_json(folder / SUMMARY, audit.summary.to_dict())
            write_table(audit.verdicts, folder / "verdicts")
            write_unreadable(source, folder)
            write_points(_gather_points(source, audit.predictor), folder)
            if audit.predictor is not None:
                audit.predictor.save(folder)
    return audit


def describe_request(data: Path, labels: Path | None, names: Names) -> SourceRecord:
    """What was asked for, as config.json has it."""
    described: SourceRecord = {"data": str(data), "labels": str(labels) if labels is not None else None}
    named = {name: value for name, value in asdict(names).items() if value is not None}
    return described | cast(SourceRecord, named)


def complete(audit: Audit, source: Source) -> Audit:
    """An audit with the notes of its source, and with photos that can't be read in their places."""
    summary = replace(audit.summary, warnings=[*source.notes, *audit.summary.warnings])
    audit = replace(audit, summary=summary)
    return audit if source.photos is None else _add_unreadable(audit, source.photos)


def write_unreadable(source: Source, folder: Path) -> None:
    """Of a source of photos: those that can't be read."""
    if source.photos is not None and source.photos.problems:
        ids = source.photos.images.ids
        rows = [(ids[row], reason) for row, reason in sorted(source.photos.problems.items())]
        with replaced(folder / "unreadable.csv") as draft:
            safe_csv(pd.DataFrame(rows, columns=["id", "reason"])).to_csv(draft, index=False)


def _add_unreadable(audit: Audit, photos: Photos) -> Audit:
    verdicts = {**audit.summary.verdicts, Verdict.UNREADABLE: len(photos.problems)}
    summary = replace(audit.summary, samples=len(photos.images.ids), verdicts=verdicts)
    table = with_unreadable(audit.verdicts, photos.images.ids, photos.rows, photos.images.labels)
    return replace(audit, verdicts=table, summary=summary)


def _gather_points(source: Source, predictor: KnnModel | None) -> Points:
    array = check_embeddings(source.inputs)
    if predictor is None:
        return gather_points(Standardiser.fit(array)(array), None)
    z = predictor.standardiser(array)
    return gather_points(z, 1 - prototype_similarity(z, predictor.prototypes).amax(1))
