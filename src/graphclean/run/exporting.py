"""`graphclean export`: the model of a run as an ONNX file that needs no graphclean to serve."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._version import __version__
from ..audit import Predictor
from ..errors import InputError
from ..export import OUTPUTS, Agreement, Served, check, input_name, require_onnx, to_onnx
from ..runfolder import EXPORTED, read_config, replaced
from ..sources import recorded_pixels
from ..trained import TrainedModel
from .prediction import load_predictor, model_notes


@dataclass(frozen=True)
class Exported:
    """An exported model: where it is, what goes in and comes out, and how near it is to PyTorch."""

    path: Path
    size: int
    """Bytes."""
    input_name: str
    input_text: str
    """What the input is, in words."""
    outputs: dict[str, str]
    """Name -> meaning."""
    agreement: Agreement
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "out": str(self.path),
            "bytes": self.size,
            "input": {"name": self.input_name, "expects": self.input_text},
            "outputs": self.outputs,
            "checked": vars(self.agreement),
            "warnings": self.notes,
        }


def export(
    run: Path, *, out: Path | None = None, overwrite: bool = False, say: Callable[[str], None] | None = None
) -> Exported:
    """Write the model of a run as ONNX, once onnxruntime and PyTorch agree on what it says.

    `say` is told when all is in order and the work begins.
    """
    require_onnx()
    target = out if out is not None else run / EXPORTED
    described = read_config(run).get("source", {})
    model = load_predictor(run)
    _check_target(target, overwrite=overwrite)
    served = Served(model, described.get("embedder"))
    example = served.examples(1)
    text = _input_text(tuple(example.shape[1:]), described, run)
    outputs = dict(zip(OUTPUTS, _meanings(model), strict=True))
    metadata = {
        "graphclean": __version__,
        "kind": "train" if isinstance(model, TrainedModel) else "clean",
        "classes": model.classes,
        "input": text,
        "outputs": outputs,
        "ood_threshold": served.judge.border,
    }
    metadata |= {name: described[name] for name in ("pixels", "columns", "embedder") if name in described}
    if _of_photos(described):
        metadata["fit"] = "squash" if "embedder" in described else "crop"
    if isinstance(model, TrainedModel):
        metadata["zeta"] = model.threshold.zeta
    if say is not None:
        say("exporting, and comparing with PyTorch …")
    content = to_onnx(served, metadata)
    agreement = check(content, served, model.predict)
    with replaced(target) as draft:
        draft.write_bytes(content)
    notes = model_notes(model)
    return Exported(target, len(content), input_name(example), text, outputs, agreement, notes)


def _check_target(target: Path, *, overwrite: bool) -> None:
    if target.suffix.lower() != ".onnx":
        raise InputError(f"{target}: the model is written as .onnx; choose such a name with --out")
    try:
        if target.is_dir():
            raise InputError(f"{target}: there is a folder of that name; choose another with --out")
        if target.exists() and not overwrite:
            raise InputError(f"{target}: the file exists; use --overwrite to replace it, or another --out")
    except OSError as error:
        raise InputError(f"{target}: can't be written: {error.strerror}") from error


def _of_photos(described: dict[str, Any]) -> bool:
    return "embedder" in described or "size" in described


def _meanings(model: TrainedModel | Predictor) -> tuple[str, str, str]:
    """Of the outputs, in their order."""
    count = len(model.classes)
    if isinstance(model, TrainedModel):
        zeta = model.threshold.zeta
        score = "1 − s(x)" if model.panel is None else "1 − s(x), the chance of being OOD"
        rejected = f"s(x) < ζ = {zeta:.3f}"
    else:
        score, rejected = "chance of being OOD", "ood_score ≥ 0.5"
    return (
        f"float32 (N, {count}), of the classes in the metadata's order",
        f"float32 (N,), {score}: larger is more OOD",
        f"bool (N,), {rejected}: of no known class",
    )


def _input_text(shape: tuple[int, ...], described: dict[str, Any], run: Path) -> str:
    """What a user has to give, beyond type and shape."""
    sizes = ", ".join(map(str, ("N", *shape)))
    if _of_photos(described):
        fit = "squashed" if "embedder" in described else "their centre square resized"
        return (
            f"uint8 ({sizes}): photos upright, RGB, on white where transparent, "
            f"{fit} to {shape[-1]} × {shape[-1]} by Pillow's bicubic filter"
        )
    if len(shape) == 1:
        return f"float32 ({sizes}): features as they were given in training, not scaled"
    pixels = recorded_pixels(described, run)
    colours = "grey" if shape[0] == 1 else "RGB"
    if pixels.kind == "bytes":
        return f"uint8 ({sizes}): {colours}, 0 to 255"
    return (
        f"uint8 ({sizes}): {colours}, 0 to 255; the training images' {pixels.low:g} to {pixels.high:g}, "
        "scaled to that and rounded"
    )
