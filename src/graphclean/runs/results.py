"""The results that a finished training run leaves in its folder."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from .._files import write_json
from ..config import Config
from ..training.fit import Prepared, TrainingResult
from ..training.model import NetworkModel
from .callbacks import Metrics
from .folder import SUMMARY, write_config, write_table
from .projection import Points, write_points
from .route import Route
from .schema import SourceRecord


def sum_up(
    result: TrainingResult,
    prepared: Prepared,
    epochs: Sequence[Metrics],
    route: Route,
    notes: Sequence[str] = (),
    validation_accuracy: float | None = None,
) -> dict[str, Any]:
    """The content of summary.json: the cleaning summary, `detector` and `training`; `notes` come first."""
    config, notes = prepared.config, [*notes, *result.model.notes, *result.trained.notes]
    chosen = result.trained.selection
    found = set(chosen.labels[chosen.selected].tolist())
    empty = [str(name) for code, name in enumerate(result.model.classes) if code not in found]
    if found and empty:
        some = ", ".join(empty[:5]) + (", …" if len(empty) > 5 else "")
        notes.append(f"classes without a selected sample, and so without a prototype: {some}")
    last = epochs[-1] if epochs else {}
    summary = result.cleaning.summary.to_dict()
    summary["warnings"] = [*notes, *summary["warnings"]]
    summary["detector"] = {"name": result.model.detector_name, **asdict(result.model.found)}
    summary["training"] = {
        "preset": route.preset,
        "route": route.why,
        "network": config.training.network,
        "input_shape": list(result.model.input_shape),
        "device": prepared.trainer.device.type,
        "epochs": config.training.epochs,
        "seconds": sum(epoch["seconds"] for epoch in epochs) + result.seconds,
        "loss": last.get("loss"),
        "estimated_noise": last.get("estimated_noise"),
        "validation_accuracy": validation_accuracy,
    }
    return summary


def write_results(
    out: Path,
    config: Config,
    preset: str,
    described: SourceRecord,
    verdicts: pd.DataFrame,
    model: NetworkModel,
    summary: dict[str, Any],
    points: Points,
) -> None:
    """Write all files of a finished run; the summary comes last, as it marks the run as finished."""
    write_config(out, "train", described, config.to_dict(), preset)
    write_table(verdicts, out / "verdicts")
    model.save(out)
    write_points(points, out)
    write_json(out / SUMMARY, summary)
