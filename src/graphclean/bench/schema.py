"""The schema of a recorded result, checked when it is written and when it is read."""

from typing import Required, TypedDict

from .._shapes import JsonObject


class Machine(TypedDict, total=False):
    """The machine that a measurement was made on."""

    time: str
    commit: str | None
    cpu: str
    cores: int | None
    threads: int
    gpu: str | None
    python: str
    packages: dict[str, str | None]


class Cleaning(TypedDict):
    """Scores of the selected set and pseudo-labels against the truth; null if that is unknown."""

    selected: int
    wrong_known: int | None
    ood: int | None
    noise_rate: float | None
    label_accuracy: float | None
    given_right: float | None


class Strategy(TypedDict):
    """Scores of one selection strategy."""

    selected: int
    noise_rate: float | None


class EpochRecord(TypedDict, total=False):
    """The record of one epoch, possibly incomplete."""

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
    """One run: how to reproduce it, its scores, and every epoch. Older results lack some fields."""

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
    """Further detectors on the same network, by name: `auroc`, `fpr95`, `f_auto`, `f_best`, `threshold`."""
    also: dict[str, dict[str, float | None]]
    """Other validation sets scored in the same run, by the names of their cells: `accuracy`, `top5`, and the
    number of `images`.
    """
    cleaning: Required[Cleaning]
    verdicts: JsonObject
    notes: list[str]
    seconds: Required[float]
    epoch_seconds: float | None
    sharing: int
    """The number of runs that shared the device, which makes their times incomparable; 1 if missing."""
    peak_gib: float | None
    """Peak allocated GPU memory."""
    peak_host_gib: float | None
    """Peak resident memory of the process; None if the system doesn't report it."""
    epochs: Required[list[EpochRecord]]
