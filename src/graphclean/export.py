"""A model as ONNX with its pre-processing inside, and the check that it says what PyTorch says."""

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
from torch.nn.functional import interpolate, normalize

from .audit.evidence import Standardiser
from .audit.predictor import FLOOR, NEIGHBOURS, Predictor
from .embed import load_embedder
from .errors import InputError
from .learn.views import scale
from .ood import judge_by_both, prototype_similarity
from .trained import TrainedModel

Judged = tuple[Tensor, Tensor, Tensor]
Arrays = list[npt.NDArray[Any]]

OUTPUTS = ("probabilities", "ood_score", "rejected")
OPSET = 18
TOLERANCE = 1e-4
"""The most by which a number may differ from PyTorch's."""
BATCHES = (1, 2, 30)
"""Sizes of the batches that are compared."""
LIMIT = 2**31 - 2**24
"""Bytes of weights that fit into one ONNX file, with room for the rest of it."""
TIE = 1e-5
"""Similarities closer than this may change places by rounding."""


class Standardise(nn.Module):
    """Raw features to mean 0 and deviation 1, as over the training set."""

    mean: Tensor
    scale: Tensor

    def __init__(self, standardiser: Standardiser) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(standardiser.mean))
        self.register_buffer("scale", torch.as_tensor(standardiser.scale))

    def forward(self, features: Tensor) -> Tensor:
        """As `Standardiser.rescale`."""
        return (features - self.mean) * self.scale

    def undo(self, standard: Tensor) -> Tensor:
        """Features that would be rescaled to `standard`; the mean for those that are constant."""
        live = self.scale > 0
        return self.mean + torch.where(live, standard / torch.where(live, self.scale, 1), 0)


class NetworkJudge(nn.Module):
    """A trained network with its detector: the outputs of `TrainedModel.predict`, as one graph."""

    prototypes: Tensor

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.standardise = Standardise(model.standardiser) if model.standardiser is not None else None
        self.network = model.network
        self.register_buffer("prototypes", model.prototypes)
        self.panel = model.panel
        self.near = Near(model.panel.nodes, model.panel.posterior) if model.panel is not None else None
        self.input_shape = model.input_shape
        self.by_both = model.by_both
        self.border = 1 - model.threshold.zeta
        self.zeta = model.threshold.zeta

    def forward(self, inputs: Tensor) -> Judged:
        """Probabilities of the classes, 1 − s(x), and whether s(x) < ζ."""
        prepared = inputs if self.standardise is None else self.standardise(inputs)
        out = self.network(scale(prepared))
        if self.panel is not None and self.near is not None:
            unit = normalize(prepared, dim=1)
            known, ood = self.panel.weigh(unit, self.near(unit))
            return ((out.logits.log_softmax(1) + known) / 2).softmax(1), ood, 1 - ood < self.zeta
        cosines = prototype_similarity(out.z, self.prototypes)
        logits = judge_by_both(out.logits, cosines) if self.by_both else out.logits
        similarity = cosines.amax(1)
        return logits.softmax(1), 1 - similarity, similarity < self.zeta

    def steady(self, inputs: Tensor) -> Tensor:
        """Which inputs rounding can't change: all, as a network is continuous, but for the panel's ties."""
        if self.near is None or self.standardise is None:
            return torch.ones(len(inputs), dtype=torch.bool)
        return self.near.steady(normalize(self.standardise(inputs), dim=1))

    def examples(self, count: int) -> Tensor:
        """Inputs such as the network takes: random features, or pictures of random patches."""
        if self.standardise is None:
            return random_pictures(count, self.input_shape)
        standard = torch.randn(count, *self.input_shape, generator=_generator())
        return self.standardise.undo(standard if self.near is None else self.near.approach(standard))


class Near(nn.Module):
    """What the nearest training samples of unit rows are: `neighbour_shares`, as a part of a graph."""

    nodes: Tensor
    """As columns."""
    posterior: Tensor

    def __init__(self, nodes: Tensor, posterior: Tensor) -> None:
        super().__init__()
        self.register_buffer("nodes", normalize(nodes, dim=1).T.contiguous())
        self.register_buffer("posterior", posterior)
        self.k = min(NEIGHBOURS, len(nodes))

    def forward(self, unit: Tensor) -> Tensor:
        """The shares of every class, then of OOD."""
        similarity, nearest = (unit @ self.nodes).topk(self.k)
        weights = similarity.clamp(min=0)
        total = weights.sum(1, keepdim=True)
        weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), 1 / self.k)
        return (weights.unsqueeze(2) * self.posterior[nearest]).sum(1)

    def steady(self, unit: Tensor) -> Tensor:
        """Which rows rounding can't change: those whose last neighbour is no tie with the next one."""
        if self.nodes.shape[1] == self.k:
            return torch.ones(len(unit), dtype=torch.bool)
        last = (unit @ self.nodes).topk(self.k + 1).values[:, -2:]
        return last[:, 0] - last[:, 1] > TIE

    def approach(self, standard: Tensor) -> Tensor:
        """Standardised features with every other row moved near to a training sample."""
        width, n = self.nodes.shape
        some = torch.linspace(0, n - 1, len(standard[::2])).long()
        moved = standard.clone()
        moved[::2] += 2 * width**0.5 * self.nodes.T[some]
        return moved


class NeighbourJudge(nn.Module):
    """The nearest training samples as judges: the outputs of `Predictor.predict`, as one graph."""

    border = 0.5

    def __init__(self, model: Predictor) -> None:
        super().__init__()
        self.standardise = Standardise(model.standardiser)
        self.near = Near(model.nodes, model.posterior)
        self.calibration = model.calibration

    def forward(self, features: Tensor) -> Judged:
        """P(class | known), P(OOD), and whether that is at least a half."""
        shares = self.near(self._unit(features))
        temperature, intercept, slope = self.calibration
        known = (temperature * shares[:, :-1].clamp(min=FLOOR).log()).softmax(1)
        ood = shares[:, -1].clamp(FLOOR, 1 - FLOOR)
        score = torch.sigmoid(intercept + slope * (ood / (1 - ood)).log())
        return known, score, score >= self.border

    def steady(self, features: Tensor) -> Tensor:
        """Which inputs rounding can't change."""
        return self.near.steady(self._unit(features))

    def examples(self, count: int) -> Tensor:
        """Random features, every other one near a training sample."""
        standard = torch.randn(count, len(self.near.nodes), generator=_generator())
        return self.standardise.undo(self.near.approach(standard))

    def _unit(self, features: Tensor) -> Tensor:
        return normalize(self.standardise(features), dim=1)


class Served(nn.Module):
    """All of an exported model, from what the user has to the outputs."""

    def __init__(self, model: TrainedModel | Predictor, embedder: str | None) -> None:
        super().__init__()
        self.judge = NetworkJudge(model) if isinstance(model, TrainedModel) else NeighbourJudge(model)
        loaded = load_embedder(embedder) if embedder is not None else None
        self.embedder = loaded.network if loaded is not None else None
        self.size = loaded.size if loaded is not None else 0

    def forward(self, inputs: Tensor) -> Judged:
        """The outputs by name are `OUTPUTS`."""
        judged: Judged = self.judge(self.embed(inputs))
        return judged

    def embed(self, inputs: Tensor) -> Tensor:
        """Photos to features; anything else as it is."""
        return inputs if self.embedder is None else self.embedder(inputs)

    def examples(self, count: int) -> Tensor:
        """Inputs to trace and to check by; the same ones each time."""
        if self.embedder is None:
            return self.judge.examples(count)
        return random_pictures(count, (3, self.size, self.size))


@dataclass(frozen=True)
class Agreement:
    """What came of a check."""

    inputs: int
    largest_difference: float


def require_onnx() -> None:
    """Refuse to export without the extra, before any long work is done."""
    try:
        for name in ("onnx", "onnxscript", "onnxruntime"):
            import_module(name)
    except ImportError as error:
        raise InputError('export needs the extra "onnx": pip install "graphclean[onnx]"') from error


def to_onnx(served: Served, metadata: dict[str, Any]) -> bytes:
    """The model as the content of one ONNX file, for batches of any size; metadata but text as JSON."""
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
        node.metadata_props.clear()  # where the code stood on this machine
    program.model.graph.metadata_props.clear()
    for name, value in metadata.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        program.model.metadata_props[name] = text
    content: bytes = program.model_proto.SerializeToString()
    return content


def check(content: bytes, served: Served, predict: Callable[[npt.NDArray[Any]], pd.DataFrame]) -> Agreement:
    """Compare a model under onnxruntime with PyTorch and with `predict`, which judges what `embed` gives.

    An `InputError` where a number is off by more than `TOLERANCE`. Inputs that are not `steady` don't count:
    of two training samples equally near, either may be the one that is heard.
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
    found: Arrays = [np.concatenate(part) for part in zip(*parts, strict=True)]
    table = predict(features.numpy())
    pairs = [
        (found[0], expected[0]),
        (found[1], expected[1]),
        (found[0].max(1), table["probability"].to_numpy()),
        (found[1], table["ood_score"].to_numpy()),
    ]
    largest = max(float(np.abs(ours - theirs)[steady].max()) for ours, theirs in pairs)
    unclear = np.abs(found[1] - served.judge.border) <= TOLERANCE
    verdicts = found[2] == (table["verdict"] == "ood").to_numpy()
    if not largest <= TOLERANCE or not (verdicts | unclear | ~steady).all():
        raise InputError(
            f"the exported model disagrees with PyTorch (by up to {largest:.1g}, {TOLERANCE:g} is allowed), "
            "so it was not written; please report it"
        )
    return Agreement(int(steady.sum()), largest)


def input_name(inputs: Tensor) -> str:
    """What the model calls its input."""
    return "images" if inputs.ndim == 4 else "features"


def random_pictures(count: int, shape: tuple[int, ...]) -> Tensor:
    """uint8 pictures of soft patches, which differ more from each other than plain noise does."""
    coarse = torch.rand(count, shape[0], 4, 4, generator=_generator())
    return (255 * interpolate(coarse, size=shape[1:], mode="bilinear")).round().to(torch.uint8)


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Without what torch's exporter says of itself: a deprecation inside it, and operators we don't use."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # Older versions of onnxscript print what they optimise.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)
            yield
    finally:
        logger.setLevel(before)
