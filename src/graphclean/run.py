"""Jobs from a source to a run folder: what the front doors call."""

import hashlib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from .audit import Audit, Predictor, audit_embeddings, with_unreadable
from .audit.embeddings import Progress, require_search
from .audit.evidence import Standardiser
from .audit.predictor import Calibration, Detector
from .config import Config
from .data.digits import noisy_digits
from .data.embeddings import EmbeddingSet, Names, read_embeddings
from .errors import InputError
from .evaluate import VerdictScores, score_verdicts
from .photos import EmbeddedPhotos, are_photos, embed_photos, save_cache
from .runfolder import (
    check_target,
    new_run,
    read_config,
    read_tensors,
    replaced,
    safe_csv,
    write_config,
    write_env,
    write_json,
    write_table,
    write_tensors,
)

MODEL, PROTOTYPES = "model.safetensors", "prototypes.safetensors"


def clean(
    data: Path,
    out: Path,
    config: Config,
    *,
    labels: Path | None = None,
    names: Names | None = None,
    embedder: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Audit:
    """Audit embeddings or photos and write the run folder `out`."""
    check_target(out, overwrite=overwrite)
    require_search(config.audit)
    names = names if names is not None else Names()
    described: dict[str, Any] = {"data": str(data), "labels": str(labels) if labels is not None else None}
    described |= {name: value for name, value in asdict(names).items() if value is not None}
    if not are_photos(data, names, embedder):
        source = read_embeddings(data, labels=labels, names=names)
        audit = _audit(source, config, progress)
        described["columns"] = source.columns
        _write_run(audit, source, out, config, described, overwrite=overwrite)
        return audit
    if labels is not None:
        raise InputError(
            f"{data}: --labels is for embeddings; photos have theirs in folder names or in the table"
        )
    photos = embed_photos(data, names, embedder=embedder, cache=out, progress=progress)
    source = EmbeddingSet(photos.features, photos.labels, photos.ids, _photo_notes(photos))
    audit = _add_unreadable(_audit(source, config, progress), photos)
    described["embedder"] = photos.embedder
    _write_run(audit, source, out, config, described, overwrite=overwrite, photos=photos)
    return audit


def demo(
    out: Path, config: Config, *, seed: int = 0, overwrite: bool = False, progress: Progress | None = None
) -> tuple[Audit, VerdictScores, dict[str, int]]:
    """Clean the noisy digits, and score the verdicts against the truth that is known here."""
    check_target(out, overwrite=overwrite)
    digits = noisy_digits(seed=seed)
    source = EmbeddingSet(digits.pixels, digits.labels)
    audit = _audit(source, config, progress)
    scores = score_verdicts(audit.verdicts, digits.truth, digits.is_ood)
    known = ~digits.is_ood
    facts = {
        "samples": len(digits.labels),
        "ood": int(digits.is_ood.sum()),
        "known": int(known.sum()),
        "wrong": int((digits.labels != digits.truth)[known].sum()),
    }
    described = {"data": "digits", "seed": seed}
    _write_run(audit, source, out, config, described, overwrite=overwrite, scores=scores)
    return audit, scores, facts


def predict(
    run: Path,
    data: Path,
    *,
    out: Path | None = None,
    names: Names | None = None,
    detector: Detector = "graph",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, Path]:
    """Class or OOD for new embeddings or photos, as .csv or .parquet; returns the table and where it is."""
    names = names if names is not None else Names()
    predictor = load_predictor(run)
    described = read_config(run).get("source", {})
    made_by = described.get("embedder")
    target = out if out is not None else run / "predictions" / f"{data.stem}.csv"
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{target}: predictions are written as .csv or .parquet")
    if target.exists() and not overwrite:
        raise InputError(f"{target}: the file exists; use --overwrite to replace it, or another --out")

    def search(done: int, total: int) -> None:
        if progress is not None:
            progress("finding neighbours", done, total)

    if are_photos(data, names, None):
        if made_by is None:
            raise InputError(f"{run}: this run was made from embeddings, so photos can't be compared with it")
        photos = embed_photos(data, names, embedder=made_by, labelled=False, progress=progress)
        table = predictor.predict(photos.features, photos.ids, detector, search)
        table = with_unreadable(table, photos.images.ids, photos.rows)
    else:
        columns = described.get("columns") if data.suffix.lower() in (".csv", ".tsv", ".parquet") else None
        source = read_embeddings(data, names=names, labelled=False, columns=columns)
        table = predictor.predict(source.features, source.ids, detector, search)
    with replaced(target) as draft:
        if target.suffix.lower() == ".csv":
            safe_csv(table).to_csv(draft, index=False)
        else:
            table.to_parquet(draft, index=False)
    return table, target


def _audit(source: EmbeddingSet, config: Config, progress: Progress | None) -> Audit:
    audit = audit_embeddings(
        source.features, source.labels, ids=source.ids, settings=config.audit, progress=progress
    )
    summary = replace(audit.summary, warnings=[*source.notes, *audit.summary.warnings])
    return replace(audit, summary=summary)


def _photo_notes(photos: EmbeddedPhotos) -> list[str]:
    if not photos.problems:
        return []
    some = [f"{photos.images.ids[row]} ({reason})" for row, reason in list(photos.problems.items())[:3]]
    count = f"{len(photos.problems)} photo{'s' if len(photos.problems) > 1 else ''}"
    return [f"{count} can't be read, listed in unreadable.csv: {', '.join(some)}"]


def _add_unreadable(audit: Audit, photos: EmbeddedPhotos) -> Audit:
    """The photos that could not be read, in their places in the table, and counted."""
    verdicts = {**audit.summary.verdicts, "unreadable": len(photos.problems)}
    summary = replace(audit.summary, samples=len(photos.images.ids), verdicts=verdicts)
    table = with_unreadable(audit.verdicts, photos.images.ids, photos.rows, photos.images.labels)
    return replace(audit, verdicts=table, summary=summary)


def _write_run(
    audit: Audit,
    source: EmbeddingSet,
    out: Path,
    config: Config,
    described: dict[str, Any],
    *,
    overwrite: bool,
    scores: VerdictScores | None = None,
    photos: EmbeddedPhotos | None = None,
) -> None:
    with new_run(out, overwrite=overwrite) as folder:
        write_config(folder, "clean", described, {"audit": asdict(config.audit)})
        write_env(folder, _fingerprint(source))
        write_json(folder / "summary.json", audit.summary.to_dict())
        write_table(audit.verdicts, folder / "verdicts")
        if scores is not None:
            write_json(folder / "scores.json", asdict(scores))
        if photos is not None:
            save_cache(photos, folder)
        if photos is not None and photos.problems:
            rows = [(photos.images.ids[row], reason) for row, reason in sorted(photos.problems.items())]
            listed = pd.DataFrame(rows, columns=["id", "reason"])
            safe_csv(listed).to_csv(folder / "unreadable.csv", index=False)
        if audit.predictor is not None:
            _write_predictor(audit.predictor, folder)


def _fingerprint(source: EmbeddingSet) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(source.features).tobytes())
    digest.update("\n".join(str(label) for label in source.labels).encode())
    return digest.hexdigest()


def _write_predictor(predictor: Predictor, folder: Path) -> None:
    write_tensors(
        folder / MODEL,
        {
            "mean": torch.as_tensor(predictor.standardiser.mean),
            "scale": torch.as_tensor(predictor.standardiser.scale),
            "nodes": predictor.nodes,
            "posterior": predictor.posterior,
        },
        {"classes": predictor.classes, "calibration": list(predictor.calibration)},
    )
    write_tensors(folder / PROTOTYPES, {"prototypes": predictor.prototypes}, {"zeta": predictor.zeta})


def load_predictor(run: Path) -> Predictor:
    """What predicts for new data, from a run folder."""
    read_config(run)
    for name in (MODEL, PROTOTYPES):
        if not (run / name).is_file():
            raise InputError(f"{run}: no {name} in it: the run found no class signal, or files are missing")
    tensors, metadata = read_tensors(run / MODEL)
    prototypes, more = read_tensors(run / PROTOTYPES)
    try:
        return Predictor(
            classes=metadata["classes"],
            standardiser=Standardiser(tensors["mean"].numpy(), tensors["scale"].numpy()),
            nodes=tensors["nodes"],
            posterior=tensors["posterior"],
            calibration=Calibration(*metadata["calibration"]),
            prototypes=prototypes["prototypes"],
            zeta=more["zeta"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{run}: the model files are not those of a clean run: {error}") from error
