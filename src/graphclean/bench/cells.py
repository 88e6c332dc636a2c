"""The benchmark cells, the paper's and others, and the names of methods derived from their settings."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..config import Config, MethodChoice, apply_settings, change_settings, differing_settings, load_preset
from ..config.overrides import METHOD, named_settings, with_choice
from ..config.settings import PER_DATA_SET, PLAIN, SEEDS
from ..errors import InputError, arg, suggest
from ..methods import complete_settings, load_method
from ..training.networks import require_network, takes_features
from .ablations import ABLATIONS
from .human import HUMAN
from .noise import NoiseKind, Protocol, Split
from .registry import get_set
from .webvision import WebVisionClasses

OOD_SOURCES = {
    "cifar10": ("cifar100", "tinyimagenet", "places365"),
    "cifar100": ("tinyimagenet", "places365"),
}
"""The OOD sources that the paper mixes into each base set."""
OOD_SIZES = {"10k": 10_000, "20k": 20_000}
EVAL_OOD = 10_000
OOD_RATE = 0.5
"""Rate of symmetric noise in every cell with OOD."""
SYM_RATES = (20, 50, 80, 90)
ASYM_RATE = 40
PAIR_RATE = 45
INSTANCE_RATE = 40
CIFAR80N = 80
"""Number of known classes of CIFAR-100 in `cifar80n`; images of the others are its OOD."""
CIFAR80N_NOISE: dict[str, tuple[NoiseKind, float]] = {
    "sym20": ("sym", 0.2), "sym80": ("sym", 0.8), "asym40": ("pair", 0.4),
}  # fmt: skip

OURS_ALONE = ("training.prototype_ensemble=false", "training.flip_tta=false")
"""How NGC's presets predict, which other methods do only on request."""
NOT_OF_CELLS = {
    "verdicts": "embeddings; the cells are of images",
    "trusted samples": "samples with trusted labels, which no cell has",
}
"""Needs of methods that the cells can't satisfy."""
OF_PHOTOS = (
    "training.network", "training.pretrained", "training.normalization", "training.image_size",
    "training.crop_size", "training.crop_scale", "training.crop_padding", "training.epochs",
    "training.batch_size", "training.lr", "training.lr_warmup_epochs", "training.weight_decay",
    "method.mixup_alpha", "method.mixup_views",
)  # fmt: skip
"""Chosen by the paper or its release for photos, instead of what all other cells share."""
SPEED_ONLY = ("training.compile", "training.photo_storage")
"""Settings that affect speed but not results, and hence are not part of a method's name."""


@dataclass(frozen=True)
class Cell:
    """The data of one column or row of the paper's tables, and the preset used on it."""

    name: str
    base: str
    """The named set of the known classes."""
    preset: str
    noise: NoiseKind = "sym"
    rate: float = OOD_RATE
    ood: str | None = None
    """The named set of the OOD images."""
    n_ood: int = 0
    """OOD images in the training set."""
    n_eval_ood: int = 0
    """OOD images in the test set."""
    known: int | None = None
    """Number of known classes (the first ones), if not all are known."""
    photos: WebVisionClasses | None = None
    """For WebVision, which is no named set: the classes that are used."""
    scored_by: str | None = None
    """The cell whose runs score this one too, for another validation set of the same training set."""

    @property
    def n_classes(self) -> int:
        """Number of known classes."""
        if self.photos is not None:
            return self.photos.count
        return self.known if self.known is not None else get_set(self.base).n_classes

    def protocol(self, seed: int, split: Split) -> Protocol:
        """The protocol for one seed."""
        return Protocol(
            noise=self.noise,
            rate=self.rate,
            n_ood=self.n_ood,
            n_eval_ood=self.n_eval_ood,
            n_classes=self.n_classes,
            seed=seed,
            split=split,
        )


def _paper_cells() -> list[Cell]:
    mixed = [
        Cell(f"{base}/{ood}/{size}", base, f"{base}-lond", ood=ood, n_ood=count, n_eval_ood=EVAL_OOD)
        for base, sources in OOD_SOURCES.items()
        for ood in sources
        for size, count in OOD_SIZES.items()
    ]
    wrong = [
        Cell(f"{base}/sym{rate}", base, f"{base}-lcnl", rate=rate / 100)
        for base in OOD_SOURCES
        for rate in SYM_RATES
    ]
    similar = Cell(f"cifar10/asym{ASYM_RATE}", "cifar10", "cifar10-asym", noise="asym", rate=ASYM_RATE / 100)
    return [*mixed, *wrong, similar]


def _further_cells() -> list[Cell]:
    """Noise beyond the paper: between consecutive classes, instance-dependent, human, and open sets."""
    kinds: tuple[tuple[NoiseKind, int], ...] = (("pair", PAIR_RATE), ("instance", INSTANCE_RATE))
    drawn = [
        Cell(f"{base}/{noise}{rate}", base, f"{base}-lcnl", noise=noise, rate=rate / 100)
        for base in OOD_SOURCES
        for noise, rate in kinds
    ]
    people = [Cell(name, base, f"{base}-lcnl", noise="human", rate=0) for name, (base, _) in HUMAN.items()]
    others = get_set("cifar100").n_classes - CIFAR80N
    counts = {split: count * others // 100 for split, count in get_set("cifar100").splits.items()}
    open_set = [
        Cell(
            f"cifar80n/{name}",
            "cifar100",
            "cifar100-lond",
            noise=noise,
            rate=rate,
            ood="cifar100",
            n_ood=counts["train"],
            n_eval_ood=counts["test"],
            known=CIFAR80N,
        )
        for name, (noise, rate) in CIFAR80N_NOISE.items()
    ]
    return [*drawn, *people, *open_set]


def _photo_cells() -> list[Cell]:
    """WebVision-50, and ILSVRC12's validation set, which the same run scores."""
    first = Cell("webvision50", "webvision50", "webvision50", noise="web", rate=0, photos=WebVisionClasses())
    return [first, replace(first, name=f"{first.name}/ilsvrc12", scored_by=first.name)]


PAPER_CELLS = tuple(cell.name for cell in _paper_cells())
CELLS: dict[str, Cell] = {cell.name: cell for cell in (*_paper_cells(), *_photo_cells(), *_further_cells())}


def get_cell(name: str) -> Cell:
    """A cell by name; an unknown name raises `InputError` with the nearest valid one."""
    if name not in CELLS:
        raise InputError(f"no cell is called {name}; {suggest(name, CELLS)}")
    return CELLS[name]


def scored_with(cell: Cell) -> list[Cell]:
    """The cells that a run of this one scores too, if their validation sets are there."""
    return [other for other in CELLS.values() if other.scored_by == cell.name]


@dataclass(frozen=True)
class Recipe:
    """What is run on a cell: a preset with changes, and the name its results are filed under."""

    name: str
    preset: str
    changes: tuple[str, ...]
    """Settings that differ from the preset, as `section.name=value`, sorted."""
    config: Config


def make_method(
    cell: Cell,
    settings: Sequence[str] = (),
    *,
    method: str | None = None,
    ablate: Sequence[str] = (),
    preset: str | None = None,
    name: str | None = None,
) -> Recipe:
    """The cell's preset, or another one, with changes; `method` is short for the setting `method.name`.

    The name is `[METHOD--]PRESET[--CHANGE…]`: METHOD is omitted for `ngc`, and so are settings without effect
    and those `PER_DATA_SET` that another preset leaves to the cell; of photos also `OF_PHOTOS`, if that
    preset names no network. A method other than the preset's predicts
    by its classifier alone, and `cross-entropy` is plain: NGC's extras (for cross-entropy AugMix too) are not
    used unless requested.
    """
    settings = with_choice(METHOD, "method", method, settings)
    for part in ablate:
        if part not in ABLATIONS:
            raise InputError(f"{arg('ablate')} {part}: no such part; {suggest(part, ABLATIONS)}")
    if any(setting.partition("=")[0].strip() == "training.seed" for setting in settings):
        raise InputError(f"training.seed: the seed of a run is named with {arg('seeds')}")
    chosen = preset if preset is not None else cell.preset
    of_cell = differing_settings(load_preset(cell.preset), Config())
    names_network = "training.network" in named_settings(chosen)
    left = PER_DATA_SET if cell.photos is None or names_network else (*PER_DATA_SET, *OF_PHOTOS)
    fitted = {key: value for key, value in of_cell.items() if key in left}
    start = load_preset(chosen, change_settings(Config(), fitted))
    wanted = [*settings, *(ABLATIONS[part] for part in ablate)]
    config = apply_settings(start, wanted)
    for part in ablate:
        key = ABLATIONS[part].partition("=")[0]
        same = [setting for setting in settings if setting.partition("=")[0].strip() == key]
        if apply_settings(config, same) != config:
            raise InputError(
                f"{arg('ablate')} {part} is {ABLATIONS[part]}, and the setting {same[-1]} another; drop one"
            )
    if config.method.name != start.method.name:
        start = apply_settings(start, PLAIN if config.method.name == "cross-entropy" else OURS_ALONE)
        config = apply_settings(start, wanted)
    config = complete_settings(config)
    for need in load_method(config.method.name).info.needs:
        if need in NOT_OF_CELLS:
            raise InputError(f"method.name={config.method.name} takes {NOT_OF_CELLS[need]}")
    require_network(config.training.network)
    if takes_features(config.training.network):
        raise InputError(
            f"training.network={config.training.network} takes embeddings; the cells are of images"
        )
    ablated = {setting: f"without-{part}" for part, setting in ABLATIONS.items()}
    named = [change for change in _changes(config, start) if change.partition("=")[0] not in SPEED_ONLY]
    parts = sorted(ablated.get(change, change.replace("=", "-").replace(",", "+")) for change in named)
    heads = [chosen] if config.method.name == "ngc" else [config.method.name, chosen]
    made = name if name is not None else "--".join([*heads, *parts])
    if not re.fullmatch(r"[A-Za-z0-9_+][A-Za-z0-9._+-]*", made):
        raise InputError(f"{made!r} can't be the name of a folder of results; choose one with {arg('name')}")
    changes, own = _changes(config, load_preset(chosen)), load_preset(chosen).method.name
    if config.method.name != own:
        changes = tuple(sorted([*changes, f"{METHOD}={config.method.name}"]))
    return Recipe(made, chosen, changes, config)


def parse_seed(word: str) -> int:
    """Parse a seed."""
    if not word.isdecimal() or int(word) >= SEEDS:
        raise InputError(f"{arg('seeds')} {word}: a seed is a whole number from 0 to {SEEDS - 1:,}")
    return int(word)


def _changes(config: Config, start: Config) -> tuple[str, ...]:
    """The changes that `apply_settings` needs to turn `start` into `config` with the same method, sorted."""
    if start.method.name != config.method.name:
        start = replace(start, method=MethodChoice(config.method.name))
    start = complete_settings(start)
    return tuple(sorted(f"{key}={_show(value)}" for key, value in differing_settings(config, start).items()))


def _show(value: Any) -> str:
    """A setting as typed on the command line: 0 rather than 0.0, false rather than False."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0")
