"""The content of a run's JSON files, as far as it is used: validated when read, and nowhere else."""

from typing import Required, TypedDict

from .._shapes import JsonObject
from ..training.model import DetectorRecord


class Scale(TypedDict, total=False):
    """How pixels were scaled."""

    kind: str
    low: float
    high: float


class SourceRecord(TypedDict, total=False):
    """What a run was made from, and the options given about it."""

    data: str | None
    labels: str | None
    kind: str
    columns: list[str] | None
    embedder: str
    weights: str
    probe: list[float]
    size: int
    shrunk: bool
    """Whether JPEGs were decoded at a smaller scale, by which decoder."""
    decoder: str
    pixels: Scale
    images_key: str | None
    features_key: str | None
    labels_key: str | None
    label_column: str | None
    id_column: str | None
    path_column: str | None
    validation: str | None
    class_type: str
    route: str
    seed: int
    seal: str
    """Proof that a run is the user's own."""


class ConfigFile(TypedDict, total=False):
    """config.json."""

    graphclean: Required[str]
    format: Required[int]
    kind: str
    preset: str | None
    source: SourceRecord
    settings: dict[str, JsonObject]


class ChangeCount(TypedDict):
    """How many samples changed from one verdict to another."""

    before: str
    after: str
    samples: int
    decided: int
    """How many of these were decided in a review."""


class RerunRecord(TypedDict):
    """How verdicts changed since the run that this one was made from."""

    run: str
    decided: int
    changed: int
    changed_undecided: int
    """How many of these were not decided in a review."""
    verdicts: list[ChangeCount]


class SummaryFile(TypedDict, total=False):
    """summary.json; null means unknown."""

    classes: list[int | str]
    k: int
    scaling: str | None
    k_tried: dict[str, float | None]
    noise_rate: float | None
    ood_rate: float | None
    possible_ood_rate: float | None
    expected_right: dict[str, float]
    selected: int
    warnings: list[str]
    photo_issues: dict[str, int]
    rerun: RerunRecord
    detector: DetectorRecord | None
    training: JsonObject


class DemoFacts(TypedDict):
    """The numbers of known samples and of wrong labels in the demo."""

    known: int
    wrong: int


class DemoClassifier(TypedDict):
    """The accuracy of one of the demo's classifiers."""

    accuracy: float | None


class DemoVerdicts(TypedDict):
    """The scores of the demo's verdicts."""

    label_accuracy: float | None
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
    validation_accuracy: float | None
    empty_steps: int
