"""`graphclean export`: the model of a run as an ONNX file that can be served without graphclean."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._files import replaced
from .._version import __version__
from ..errors import ELSEWHERE, InputError, arg, occupied
from ..ood.model import Model, predict_table
from .card import describe_model
from .folder import EXPORTED, read_config
from .inputs import recorded_pixels
from .onnx import (
    OUTPUTS,
    Agreement,
    Served,
    check,
    input_name,
    require_onnx,
    to_onnx,
)
from .predict import load_model
from .schema import SourceRecord


@dataclass(frozen=True)
class Exported:
    """An exported model: its path, inputs and outputs, and how closely it agrees with PyTorch."""

    path: Path
    size: int
    """Size in bytes."""
    input_name: str
    input_text: str
    """A description of the input."""
    outputs: dict[str, str]
    """Name -> meaning."""
    agreement: Agreement
    notes: list[str]
    card: Path
    """The model card next to the model."""

    def to_dict(self) -> dict[str, Any]:
        """The values as a dict for scripts."""
        return {
            "out": str(self.path),
            "card": str(self.card),
            "bytes": self.size,
            "input": {"name": self.input_name, "expects": self.input_text},
            "outputs": self.outputs,
            "checked": vars(self.agreement),
            "warnings": self.notes,
        }


def export(
    run: Path, *, out: Path | None = None, overwrite: bool = False, say: Callable[[str], None] | None = None
) -> Exported:
    """Write the model of a run as ONNX, once onnxruntime and PyTorch agree on its outputs.

    `say` is called when everything has been validated and the work begins.
    """
    require_onnx()
    target = out if out is not None else run / EXPORTED
    described = read_config(run).get("source", {})
    if "probe" in described:
        raise InputError(
            f"{run}: {described['embedder']} was a function in Python, which ONNX can't hold; embed photos "
            "by a subclass of Embedder, or clean the features themselves and export that run"
        )
    model = load_model(run)
    if model.obstacle is not None:
        raise InputError(f"{run}: {model.obstacle}")
    _check_target(target, overwrite=overwrite)
    served = Served(model, described.get("embedder"))
    example = served.examples(1)
    text = _input_text(tuple(example.shape[1:]), described, run)
    outputs = dict(zip(OUTPUTS, _meanings(model), strict=True))
    metadata: dict[str, Any] = {
        "graphclean": __version__,
        "kind": model.kind,
        "classes": model.classes,
        "input": text,
        "outputs": outputs,
        "ood_threshold": model.threshold,
    }
    metadata |= {name: described[name] for name in ("pixels", "columns", "embedder") if name in described}
    if _of_photos(described):
        metadata["fit"] = "squash" if "embedder" in described else "crop"
    if say is not None:
        say("exporting, and comparing with PyTorch …")
    content = to_onnx(served, metadata)
    agreement = check(content, served, lambda inputs: predict_table(model, inputs))
    card = describe_model(run, model, served.embedder, content, metadata)
    with replaced(_card_of(target)) as draft:
        draft.write_text(card, "utf-8", "backslashreplace")
    with replaced(target) as draft:
        draft.write_bytes(content)
    return Exported(
        target, len(content), input_name(example), text, outputs, agreement, model.notes, _card_of(target)
    )


def _card_of(target: Path) -> Path:
    return target.with_suffix(".md")


def _check_target(target: Path, *, overwrite: bool) -> None:
    if target.suffix.lower() != ".onnx":
        raise InputError(f"{target}: the model is written as .onnx; choose such a name with {arg('out')}")
    try:
        for path in (target, _card_of(target)):
            if path.is_dir():
                raise InputError(f"{path}: there is a folder of that name; {ELSEWHERE}")
            if path.exists() and not overwrite:
                raise occupied(path, "the file exists")
    except OSError as error:
        raise InputError(f"{target}: can't be written: {error.strerror}") from error


def _of_photos(described: SourceRecord) -> bool:
    return "embedder" in described or "size" in described


def _meanings(model: Model) -> tuple[str, str, str]:
    """Descriptions of the outputs, in order."""
    return (
        f"float32 (N, {len(model.classes)}), of the classes in the metadata's order",
        f"float32 (N,), {model.describe_score()}: larger is more OOD",
        f"bool (N,), ood_score > {model.threshold:.3f}: OOD",
    )


def _input_text(shape: tuple[int, ...], described: SourceRecord, run: Path) -> str:
    """A description of the input: shape, type and how to prepare it."""
    sizes = ", ".join(map(str, ("N", *shape)))
    if _of_photos(described):
        fit = "squashed" if "embedder" in described else "their center square resized"
        return (
            f"uint8 ({sizes}): photos upright, RGB, on white where transparent, "
            f"{fit} to {shape[-1]} × {shape[-1]} by Pillow's bicubic filter"
        )
    if len(shape) == 1:
        return f"float32 ({sizes}): features as they were given in training, not scaled"
    pixels = recorded_pixels(described, run)
    colors = "gray" if shape[0] == 1 else "RGB"
    if pixels.kind == "bytes":
        return f"uint8 ({sizes}): {colors}, 0 to 255"
    return (
        f"uint8 ({sizes}): {colors}, 0 to 255; the training images' {pixels.low:g} to {pixels.high:g}, "
        "scaled to that and rounded"
    )
