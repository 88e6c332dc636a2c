"""What a recorded result holds: checked when it is written, and when it is read."""

from typing import Required, TypedDict

from .._shapes import JsonObject


class Machine(TypedDict, total=False):
    """What a measurement was made on."""

    time: str
    commit: str | None
    cpu: str
    cores: int | None
    threads: int
    gpu: str | None
    python: str
    packages: dict[str, str | None]


class Cleaning(TypedDict):
    """Selected set and pseudo-labels against the truth."""

    selected: int
    wrong_known: int
    ood: int
    noise_rate: float | None
    label_accuracy: float | None
    given_right: float | None


class Strategy(TypedDict):
    """What one selection strategy would select."""

    selected: int
    noise_rate: float | None


class EpochRecord(TypedDict, total=False):
    """One epoch, as far as it is written down yet."""

    epoch: Required[int]
    seconds: float
    clean_seconds: float
    warmup: bool
    losses: dict[str, float | None]
    lr: float
    selected: int
    confident: int
    relabeled: int
    cleaning: Cleaning
    degrees: dict[str, float | None] | None
    strategies: dict[str, Strategy] | None
    accuracy: float | None


class Result(TypedDict, total=False):
    """One run: what it takes to make it again, its scores, and every epoch. Older ones lack some of it."""

    format: Required[int]
    cell: Required[str]
    split: Required[str]
    method: Required[str]
    seed: Required[int]
    preset: Required[str]
    changes: Required[list[str]]
    config: Required[dict[str, JsonObject]]
    draw: Required[str]
    sizes: dict[str, int]
    machine: Required[Machine]
    threshold: Required[JsonObject | None]
    scores: Required[dict[str, float | None]]
    detectors: dict[str, dict[str, float | None]]
    """More detectors on the same network, by name: `auroc`, `fpr95`, `f_auto`, `f_best`, `threshold`."""
    cleaning: Required[Cleaning]
    verdicts: JsonObject
    notes: list[str]
    seconds: Required[float]
    epoch_seconds: float | None
    sharing: int
    """Runs that shared the device, so that seconds are no measure of one alone; 1 where it is left out."""
    peak_gib: float | None
    """Of memory on the GPU that was allocated at once."""
    peak_host_gib: float | None
    """Of memory of the process that was resident at once; None where the system doesn't tell."""
    epochs: Required[list[EpochRecord]]
