"""`graphclean predict`: class or OOD for new data, from a run of either kind."""

from pathlib import Path

import pandas as pd

from ..audit import Predictor, with_unreadable
from ..audit.embeddings import Progress
from ..audit.evidence import Standardiser
from ..audit.predictor import Calibration, Detector
from ..data.files import Names
from ..errors import InputError
from ..runfolder import (
    MODEL,
    PROTOTYPES,
    read_config,
    read_tensors,
    replaced,
    require_finished,
    safe_csv,
)
from ..sources import read_like
from ..trained import TrainedModel, load_trained
from .device import choose_device


def predict(
    run: Path,
    data: Path,
    *,
    out: Path | None = None,
    names: Names | None = None,
    detector: Detector | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> tuple[pd.DataFrame, Path]:
    """Class or OOD for new data, as .csv or .parquet; returns the table and where it is."""
    names = names if names is not None else Names()
    model = load_predictor(run, device)
    described = read_config(run).get("source", {})
    if isinstance(model, TrainedModel) and detector is not None:
        raise InputError(f"{run}: --detector is for runs of `clean`; a trained run has a detector of its own")
    target = out if out is not None else run / "predictions" / f"{data.stem}.csv"
    if target.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{target}: predictions are written as .csv or .parquet")
    if target.exists() and not overwrite:
        raise InputError(f"{target}: the file exists; use --overwrite to replace it, or another --out")

    def told(stage: str, done: int, total: int) -> None:
        if progress is not None:
            progress(stage, done, total)

    source = read_like(described, data, names, run=run, progress=progress)
    if isinstance(model, TrainedModel):
        table = model.predict(source.inputs, source.ids, lambda *step: told("predicting", *step))
    else:
        table = model.predict(
            source.inputs, source.ids, detector or "graph", lambda *step: told("finding neighbours", *step)
        )
    if source.photos is not None:
        table = with_unreadable(table, source.photos.images.ids, source.photos.rows)
    with replaced(target) as draft:
        if target.suffix.lower() == ".csv":
            safe_csv(table).to_csv(draft, index=False)
        else:
            table.to_parquet(draft, index=False)
    return table, target


def load_predictor(run: Path, device: str = "cpu") -> Predictor | TrainedModel:
    """What predicts for new data, from a run folder."""
    trained = read_config(run).get("kind") == "train"
    require_finished(run)
    for name in (MODEL, PROTOTYPES):
        if not (run / name).is_file():
            why = "files are missing" if trained else "the run found no class signal, or files are missing"
            raise InputError(f"{run}: no {name} in it: {why}")
    if trained:
        return load_trained(run, choose_device(device))
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
