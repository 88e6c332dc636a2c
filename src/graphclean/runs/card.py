"""The model card next to an exported model: its origin, scores and limitations."""

import hashlib
import re
from pathlib import Path
from typing import Any

from .._version import __version__
from ..embed import Embedder
from ..ood.model import Model
from .decisions import read_decided
from .folder import read_config, read_env, read_summary
from .schema import SourceRecord, SummaryFile

UNKNOWN = "not known to graphclean; ask its makers"
LIMITS = (
    "Its classes and scores come from labels that were not all checked. No score here was measured on "
    "checked labels unless stated.",
    "It knows only the classes below, and photos, images or features like those it was trained on. It "
    "rejects inputs that look unlike all of them; other things that look alike will pass.",
    "Neither fairness between groups of people nor robustness to attacks was examined.",
)


def describe_model(
    run: Path, model: Model, embedder: Embedder | None, content: bytes, about: dict[str, Any]
) -> str:
    """The card as Markdown; `about` is the metadata of the ONNX file, `content` its bytes."""
    config, summary, env = read_config(run), read_summary(run), read_env(run)
    source = config.get("source", SourceRecord())
    training: dict[str, Any] = dict(summary.get("training", {}))
    parts = [
        "# Model card\n",
        _section(
            "Model",
            {
                "kind": "k-NN on features"
                if model.kind == "clean"
                else f"network {code(training.get('network'))}",
                "made by": f"graphclean {__version__}, `graphclean {model.kind}`",
                "input": about["input"],
                **{f"output {code(name)}": meaning for name, meaning in about["outputs"].items()},
                "SHA-256 of the file": code(hashlib.sha256(content).hexdigest()),
                "license": "yours to choose; respect those of the data and the embedder",
            },
        ),
        _section("Data", _data(source, summary, env, run)),
    ]
    if "embedder" in source:
        parts.append(
            _section(
                "Embedder",
                {
                    "name": code(source["embedder"]),
                    "trained on": getattr(embedder, "trained_on", None) or UNKNOWN,
                    "license of its weights": getattr(embedder, "license", None) or UNKNOWN,
                },
            )
        )
    if training:
        told = {name: training.get(name) for name in ("preset", "epochs", "device", "validation_accuracy")}
        parts.append(
            _section("Training", {name.replace("_", " "): _value(value) for name, value in told.items()})
        )
    parts.append(_section("Threshold", _threshold(model, summary)))
    parts.append(_section("Scores", _scores(summary, training)))
    warnings = [f"- {plain(note)}" for note in summary.get("warnings", [])]
    parts.append("## Limits\n\n" + "\n".join([*(f"- {limit}" for limit in LIMITS), *warnings]) + "\n")
    parts.append("## Classes\n\n" + "\n".join(f"- {code(name)}" for name in model.classes) + "\n")
    return "\n".join(parts)


def _data(source: SourceRecord, summary: SummaryFile, env: dict[str, Any], run: Path) -> dict[str, str]:
    counts: dict[str, Any] = dict(summary).get("verdicts", {})  # type: ignore[assignment]
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    reviewed = len(read_decided(run))
    return {
        "source": code(source.get("data")),
        "samples": f"{sum(counts.values()):,} in {len(summary.get('classes', []))} classes",
        "verdicts on their labels": found,
        "estimated wrong labels": _percent(summary.get("noise_rate")),
        "estimated OOD samples": _percent(summary.get("ood_rate")),
        "reviewed by people": f"{reviewed:,} samples" if reviewed else "none",
        "SHA-256 of what it was made from": code(env.get("data_sha256")),
    }


def _threshold(model: Model, summary: SummaryFile) -> dict[str, str]:
    shown = {"OOD score": model.describe_score(), "rejected above": f"{model.threshold:.3f}"}
    found = summary.get("detector")
    if found is None:
        return shown
    promised, ood = found["promised"], found["rejected_ood"]
    return shown | {
        "rejected of inputs of its classes": f"{_percent(found['rejected_known'])} by its own estimate"
        if promised is None
        else f"{_percent(promised)} as promised",
        "OOD inputs rejected": "unknown: the training data has no OOD samples"
        if ood is None
        else f"{_percent(ood)} by its own estimate, if they are like those in the training data",
    }


def _scores(summary: SummaryFile, training: dict[str, Any]) -> dict[str, str]:
    shown = {
        f"verdicts `{name}` that are right": f"{_percent(share)} by its own estimate"
        for name, share in summary.get("expected_right", {}).items()
    }
    accuracy = training.get("validation_accuracy")
    shown["accuracy on samples with checked labels"] = (
        f"{_percent(accuracy)}"
        if accuracy is not None
        else "not measured; `graphclean predict --evaluate` does"
    )
    return shown


def _section(title: str, facts: dict[str, str]) -> str:
    rows = [f"| {name} | {text} |" for name, text in facts.items()]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *rows]) + "\n"


def _percent(value: Any) -> str:
    return "not known" if value is None else f"{100 * float(value):.1f} %"


def _value(value: Any) -> str:
    return "none" if value is None else code(f"{value:.4g}" if isinstance(value, float) else value)


def plain(text: Any) -> str:
    """Escape text from data, so that it stays on one line and is neither HTML nor Markdown."""
    line = " ".join(str(text).split())
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", line)


def code(text: Any) -> str:
    """Text from data as inline code, which has no escapes: characters that would end it are replaced."""
    line = " ".join(str(text).split()).replace("`", "'").replace("|", "¦")
    return f"`{line or ' '}`"
