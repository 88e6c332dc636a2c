"""What a finished training run leaves in its folder."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from ..config import Config
from ..runfolder import SUMMARY, write_config, write_json, write_table
from ..trained import TrainedModel
from ..training import Prepared, TrainingResult
from .points import Points, write_points
from .route import Route
from .watcher import Metrics


def sum_up(
    result: TrainingResult,
    prepared: Prepared,
    epochs: Sequence[Metrics],
    route: Route,
    notes: Sequence[str] = (),
    trusted_accuracy: float | None = None,
) -> dict[str, Any]:
    """What summary.json holds: the audit's summary, `detector` and `training`; `notes` come first."""
    config, notes = prepared.config, [*notes, *result.model.notes]
    learn = config.learn
    if learn.method == "ngc" and learn.warmup >= learn.epochs:
        notes.append(
            f"all {learn.epochs} epochs were warm-up on the labels as given (learn.warmup={learn.warmup}): "
            "the graph never chose what was trained on"
        )
    cleaned = result.trained.cleaned
    found = set(cleaned.labels[cleaned.selected].tolist())
    empty = [str(name) for code, name in enumerate(result.model.classes) if code not in found]
    if found and empty:
        some = ", ".join(empty[:5]) + (", …" if len(empty) > 5 else "")
        notes.append(f"classes without a selected sample, and so without a prototype: {some}")
    last = epochs[-1] if epochs else {}
    if last.get("empty_steps"):
        notes.append(
            f"{last['empty_steps']} steps of the last epoch had no selected sample, and left out the "
            "cross-entropy"
        )
    summary = result.audit.summary.to_dict()
    del summary["rejects"]  # of neighbours, where new data is judged by the detector below
    summary["warnings"] = [*notes, *summary["warnings"]]
    summary["detector"] = asdict(result.model.threshold)
    summary["training"] = {
        "preset": route.preset,
        "route": route.why,
        "network": config.learn.network,
        "input_shape": list(result.model.input_shape),
        "device": prepared.trainer.device.type,
        "epochs": config.learn.epochs,
        "seconds": sum(epoch["seconds"] for epoch in epochs) + result.seconds,
        "loss": last.get("loss"),
        "estimated_noise": last.get("estimated_noise"),
        "trusted_accuracy": trusted_accuracy,
    }
    return summary


def write_results(
    out: Path,
    config: Config,
    preset: str,
    described: dict[str, Any],
    verdicts: pd.DataFrame,
    model: TrainedModel,
    summary: dict[str, Any],
    points: Points,
) -> None:
    """All files of a finished run; the summary last, as it marks the run as finished."""
    write_config(out, "train", described, config.to_dict(), preset)
    write_table(verdicts, out / "verdicts")
    model.save(out)
    write_points(points, out)
    write_json(out / SUMMARY, summary)
