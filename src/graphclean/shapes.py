"""What the JSON files of a run hold, as far as it is used: checked as they are read, and nowhere else."""

import math
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Required, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from .errors import InputError

Table = dict[str, Any]
"""Whatever has names."""


class Scale(TypedDict, total=False):
    """How pixels were scaled."""

    kind: str
    low: float
    high: float


class Source(TypedDict, total=False):
    """What a run was made from, and what it was told of it."""

    data: str | None
    labels: str | None
    kind: str
    columns: list[str] | None
    embedder: str
    size: int
    pixels: Scale
    images_key: str | None
    features_key: str | None
    labels_key: str | None
    label_column: str | None
    id_column: str | None
    path_column: str | None
    trusted: str | None
    class_type: str


class ConfigFile(TypedDict, total=False):
    """config.json."""

    graphclean: Required[str]
    format: Required[int]
    kind: str
    preset: str | None
    source: Source
    settings: dict[str, Table]


class Border(TypedDict):
    """The detector: in summary.json, and beside the prototypes."""

    zeta: float


class Network(TypedDict, total=False):
    """What a network is built from; whether the options fit is found out there."""

    name: str
    options: Table
    mirrored: bool


class Trained(TypedDict, total=False):
    """Beside the weights of a training run."""

    network: Network
    input_shape: list[int]
    classes: list[int | str]
    by_both: bool
    panel: list[float]


class SummaryFile(TypedDict, total=False):
    """summary.json; null stands for what could not be told."""

    classes: list[int | str]
    k: int
    k_tried: dict[str, float | None]
    noise_rate: float | None
    ood_rate: float | None
    expected_right: dict[str, float]
    selected: int
    warnings: list[str]
    detector: Border
    training: Table


class DemoFacts(TypedDict):
    """How many labels of the demo are wrong."""

    known: int
    wrong: int


class DemoClassifier(TypedDict):
    """How good a classifier of the demo is."""

    accuracy: float | None


class DemoVerdicts(TypedDict):
    """How good its verdicts are."""

    labels_right: float | None
    ood_auroc: float | None


class ScoresFile(TypedDict):
    """scores.json."""

    facts: DemoFacts
    ce: DemoClassifier
    ngc: DemoClassifier
    verdicts: DemoVerdicts


class Epoch(TypedDict, total=False):
    """A line of metrics.jsonl."""

    epoch: Required[int]
    seconds: Required[float]
    warmup: bool
    losses: dict[str, float | None]
    selected: int
    samples: int
    loss: float | None
    estimated_noise: float | None
    trusted_accuracy: float | None
    empty_steps: int


WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    list: "a list",
    dict: "a table",
}


def check_shape(value: Any, shape: Any, path: Path) -> Any:
    """The value, where it is of its shape; otherwise the file and the field are named."""
    wrong = _find_wrong(value, shape, "")
    if wrong is not None:
        raise InputError(f"{path}: damaged: {wrong}")
    return value


def _find_wrong(value: Any, shape: Any, field: str) -> str | None:
    """What is wrong with the first field that is not as it should be."""
    if shape is Any:
        return None
    if isinstance(shape, UnionType):
        fits = any(_find_wrong(value, one, field) is None for one in get_args(shape))
        return None if fits else f"{field or 'it'} is not {_describe(shape)}"
    if not _is_one(value, _outer(shape)):
        return f"{field or 'it'} is not {_describe(shape)}"
    inner: list[tuple[Any, Any]] = []
    if is_typeddict(shape):
        missing = sorted(shape.__required_keys__ - value.keys())
        if missing:
            return f"no {_below(field, missing[0])} in it"
        inner = [(name, kind) for name, kind in get_type_hints(shape).items() if name in value]
    elif get_args(shape):
        keys = value if isinstance(value, dict) else range(len(value))
        inner = [(key, get_args(shape)[-1]) for key in keys]
    found = (_find_wrong(value[key], kind, _below(field, key)) for key, kind in inner)
    return next((wrong for wrong in found if wrong is not None), None)


def _is_one(value: Any, kind: type) -> bool:
    if kind is float:
        return _is_one(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _outer(shape: Any) -> Any:
    return dict if is_typeddict(shape) else get_origin(shape) or shape


def _below(field: str, key: Any) -> str:
    return f"{field}.{key}" if field else str(key)


def _describe(shape: Any) -> str:
    shapes = get_args(shape) if isinstance(shape, UnionType) else (shape,)
    return " or ".join(WORDS[_outer(one)] for one in shapes)
