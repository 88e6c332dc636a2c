"""A model as ONNX including its preprocessing, and the check that it agrees with PyTorch."""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from ..data.verdict import Verdict
from ..embed import load_embedder
from ..errors import InputError, extra
from ..ood.model import Judged, Model
from ..training.model import random_pictures

OnnxOutputs = list[npt.NDArray[Any]]

OUTPUTS = ("probabilities", "ood_score", "rejected")
OPSET = 18
EXPORT_TOLERANCE = 1e-4
"""Maximum difference from PyTorch; relative for numbers above 1."""
BATCHES = (1, 2, 30)
"""Sizes of the batches that are compared."""
LIMIT = 2**31 - 2**24
"""Maximum bytes of weights in one ONNX file, with room for the rest of it."""


class Served(nn.Module):
    """A complete exported model, from the user's inputs to the outputs."""

    def __init__(self, model: Model, embedder: str | None) -> None:
        super().__init__()
        self.judge = model.module()
        self.embedder = load_embedder(embedder) if embedder is not None else None

    def forward(self, inputs: Tensor) -> Judged:
        """The outputs named in `OUTPUTS`."""
        judged: Judged = self.judge(self.embed(inputs))
        return judged

    def embed(self, inputs: Tensor) -> Tensor:
        """Embed photos; other inputs are unchanged."""
        if self.embedder is None:
            return inputs
        features: Tensor = self.embedder(inputs)
        return features

    def examples(self, count: int) -> Tensor:
        """Inputs for tracing and checking, the same ones each time."""
        if self.embedder is None:
            return self.judge.examples(count)
        return random_pictures(count, (3, self.embedder.size, self.embedder.size))


@dataclass(frozen=True)
class Agreement:
    """The result of a check."""

    inputs: int
    largest_difference: float


def require_onnx() -> None:
    """Refuse to export without the extra, before any long work."""
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            import_module(name)
    except ImportError as error:
        raise InputError(f"export needs {extra('onnx')}") from error


def to_onnx(served: Served, metadata: dict[str, Any]) -> bytes:
    """The model as one ONNX file for batches of any size; metadata other than text is stored as JSON."""
    require_onnx()
    weights = sum(t.numel() * t.element_size() for t in [*served.parameters(), *served.buffers()])
    if weights > LIMIT:
        raise InputError(
            f"the model has {weights / 2**30:.1f} GiB of training samples or weights, and an ONNX file holds "
            "less than 2; make the run from fewer samples"
        )
    example = served.eval().examples(2)
    with _quiet_exporter():
        program = torch.onnx.export(
            served,
            (example,),
            input_names=[input_name(example)],
            output_names=list(OUTPUTS),
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # paths of source code on this machine
    program.model.graph.metadata_props.clear()
    for name, value in metadata.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        program.model.metadata_props[name] = text
    content: bytes = program.model_proto.SerializeToString()
    return content


def check(content: bytes, served: Served, predict: Callable[[npt.NDArray[Any]], pd.DataFrame]) -> Agreement:
    """Compare a model under onnxruntime with PyTorch and with `predict`, which takes the outputs of `embed`.

    A difference above `EXPORT_TOLERANCE` raises `InputError`. Inputs that are not `steady` are ignored: of
    two equally near training samples, either may be the one that votes.
    """
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    inputs = served.examples(sum(BATCHES))
    with torch.no_grad():
        features = served.embed(inputs)
        steady = served.judge.steady(features).numpy()
        expected = [output.numpy() for output in served.judge(features)]
    if steady.sum() < len(inputs) / 2:
        raise InputError(
            "the training samples lie so that their order of nearness is left to rounding, and no check "
            "is possible; give features that tell the samples apart"
        )
    parts = [session.run(None, {input_name(x): x.numpy()}) for x in torch.split(inputs, list(BATCHES))]
    found: OnnxOutputs = [np.concatenate(part) for part in zip(*parts, strict=True)]
    table = predict(features.numpy())
    pairs = [
        (found[0], expected[0]),
        (found[1], expected[1]),
        (found[0].max(1), table["probability"].to_numpy()),
        (found[1], table["ood_score"].to_numpy()),
    ]
    largest = max(float(_difference(ours, theirs)[steady].max()) for ours, theirs in pairs)
    unclear = _difference(found[1], np.asarray(served.judge.threshold)) <= EXPORT_TOLERANCE
    verdicts = found[2] == (table["verdict"] == Verdict.OOD).to_numpy()
    if not largest <= EXPORT_TOLERANCE or not (verdicts | unclear | ~steady).all():
        raise InputError(
            f"the exported model disagrees with PyTorch (by up to {largest:.1g}, {EXPORT_TOLERANCE:g} is "
            "allowed), so it was not written; please report it"
        )
    return Agreement(int(steady.sum()), largest)


def _difference(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The difference of numbers; relative for large ones, such as squared distances."""
    return np.asarray(np.abs(ours - theirs) / np.maximum(1, np.abs(theirs)))


def input_name(inputs: Tensor) -> str:
    """The name of the model's input."""
    return "images" if inputs.ndim == 4 else "features"


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silence messages of torch's exporter: a deprecation in its own code, and unused operators."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # Older versions of onnxscript print what they optimize.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            yield
    finally:
        logger.setLevel(before)
