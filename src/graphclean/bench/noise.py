"""Noise protocols: which labels become wrong, and which OOD images are added."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from .._files import replaced
from ..data.tables import READING
from ..errors import InputError, parse_json

LabelArray: TypeAlias = npt.NDArray[np.int64]
NoiseKind: TypeAlias = Literal["sym", "asym", "pair", "instance", "human", "web"]
Split: TypeAlias = Literal["test", "dev"]

OOD_LABEL = -1
"""The truth of an OOD image."""

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
ASYM = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}
"""Asymmetric noise on CIFAR-10: class -> label; the other classes keep theirs."""

RESTS_ON = {"instance": "the training images", "human": "the labels that people gave"}
"""Inputs of some kinds of noise besides the true labels, one row per training sample."""
RATE_SPREAD = 0.1
"""Standard deviation of the rate between images under `instance` noise, as published."""
DEV_SHARE = 0.1
"""Fraction of the training set held out for the development split: 5,000 of 50,000."""
DRAW_FORMAT = 1
"""Version of the file format; incremented if older versions can't read it."""


@dataclass(frozen=True)
class Protocol:
    """One cell of the paper with one seed, scored on the test or development set."""

    noise: NoiseKind = "sym"
    rate: float = 0.5
    """Fraction of the in-distribution samples whose label is resampled (possibly to the true one); for
    `instance` noise the mean rate; ignored for `human` and `web` labels.
    """
    n_ood: int = 20_000
    """OOD images in the training set; the development split takes its own from these."""
    n_eval_ood: int = 10_000
    """Other OOD images of the same source in the test set."""
    n_classes: int = 10
    seed: int = 0
    split: Split = "test"

    def __post_init__(self) -> None:
        """Refuse inconsistent protocols."""
        for name, value, known in (("noise", self.noise, NoiseKind), ("split", self.split, Split)):
            if value not in get_args(known):
                raise InputError(f"{name} is {value!r}; it can be {' or '.join(get_args(known))}")
        if not 0 <= self.rate <= 1:
            raise InputError(f"the noise rate is {self.rate}; it must lie between 0 and 1")
        if self.n_classes < 2:
            raise InputError(f"there are {self.n_classes} classes; noise needs at least two")
        for name in ("n_ood", "n_eval_ood", "seed"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}; it can't be negative")
        if self.noise == "asym" and self.n_classes != len(CIFAR10_CLASSES):
            raise InputError(f"asym noise is defined for CIFAR-10 alone, not for {self.n_classes} classes")


@dataclass(frozen=True, eq=False)
class Draw:
    """A noisy split: indices into the base set and the OOD pool, labels, and the truth.

    Training samples are the in-distribution ones first, then the OOD ones; so are evaluation samples.
    """

    protocol: Protocol
    sizes: tuple[int, int, int]
    """Sizes of the base training set, the base test set (0 for the development split) and the OOD pool."""
    train_ind: LabelArray
    """Indices into the base training set."""
    train_ood: LabelArray
    """Indices into the pool."""
    labels: LabelArray
    """The labels to train on."""
    truth: LabelArray
    """Their true classes, -1 for OOD; the labels themselves where nobody knows them (`truth_known`)."""
    eval_ind: LabelArray
    """Indices into the base test set, or into the base training set for the development split."""
    eval_ood: LabelArray
    """Indices into the pool."""
    eval_truth: LabelArray
    """True classes of the evaluation samples, -1 for OOD."""

    @property
    def truth_known(self) -> bool:
        """Whether it is known which labels are wrong: not of `web` labels, which are as they were found."""
        return self.protocol.noise != "web"

    def digest(self) -> str:
        """SHA-256 of the content, the same on every machine."""
        found = hashlib.sha256(_describe(self).encode())
        for name in DRAW_ARRAYS:
            found.update(np.ascontiguousarray(getattr(self, name), dtype="<i8").tobytes())
        return found.hexdigest()


DRAW_ARRAYS = tuple(field.name for field in fields(Draw) if field.name not in ("protocol", "sizes"))


def symmetric(labels: LabelArray, rate: float, n_classes: int, rng: np.random.Generator) -> LabelArray:
    """Resample a random fraction `rate` of the labels uniformly from all classes, including the true one."""
    noisy = labels.copy()
    chosen = rng.choice(len(labels), round(rate * len(labels)), replace=False)
    noisy[chosen] = rng.integers(0, n_classes, len(chosen))
    return noisy


def asymmetric(labels: LabelArray, rate: float, rng: np.random.Generator) -> LabelArray:
    """Map a fraction `rate` of CIFAR-10's labels through `ASYM`, which leaves five classes unchanged."""
    table = np.arange(len(CIFAR10_CLASSES))
    for true, taken in ASYM.items():
        table[CIFAR10_CLASSES.index(true)] = CIFAR10_CLASSES.index(taken)
    noisy = labels.copy()
    chosen = rng.choice(len(labels), round(rate * len(labels)), replace=False)
    noisy[chosen] = table[noisy[chosen]]
    return noisy


def pair(labels: LabelArray, rate: float, n_classes: int, rng: np.random.Generator) -> LabelArray:
    """Move a random fraction `rate` of the labels to the next class."""
    noisy = labels.copy()
    chosen = rng.choice(len(labels), round(rate * len(labels)), replace=False)
    noisy[chosen] = (noisy[chosen] + 1) % n_classes
    return noisy


def instance_dependent(
    labels: LabelArray, rate: float, n_classes: int, images: npt.NDArray[Any], rng: np.random.Generator
) -> LabelArray:
    """Corrupt labels depending on the images (Xia et al., NeurIPS 2020).

    An image x of class y keeps its label with probability 1 − q, where q is normal around `rate`, truncated
    to [0, 1]. Otherwise it gets another class j with a probability given by the softmax of x W_y, where W_y
    is normal. As in the authors' code, pixels range from 0 to 255, so one class nearly always receives all of
    q.
    """
    wrong = rng.normal(rate, RATE_SPREAD, len(labels))
    while (outside := (wrong < 0) | (wrong > 1)).any():
        wrong[outside] = rng.normal(rate, RATE_SPREAD, outside.sum())
    place = rng.random(len(labels))
    noisy = labels.copy()
    for label in range(n_classes):
        of_class = np.flatnonzero(labels == label)
        pixels = images[of_class].reshape(len(of_class), int(np.prod(images.shape[1:]))).astype(np.float64)
        others = pixels @ rng.standard_normal((pixels.shape[1], n_classes))
        others[:, label] = -np.inf
        likely = np.exp(others - others.max(1, keepdims=True))
        p = wrong[of_class, None] * likely / likely.sum(1, keepdims=True)
        p[:, label] = 1 - wrong[of_class]
        drawn = (p.cumsum(1) < place[of_class, None]).sum(1)
        noisy[of_class] = np.minimum(drawn, n_classes - 1)
    return noisy


def check_pool(protocol: Protocol, pool_size: int) -> None:
    """Refuse an OOD source that is too small."""
    need = protocol.n_ood + protocol.n_eval_ood
    if pool_size < need:
        raise InputError(f"the OOD source holds {pool_size:,} images, and {need:,} are needed")


def make_draw(
    protocol: Protocol,
    train_labels: npt.ArrayLike,
    pool_size: int,
    test_labels: npt.ArrayLike | None = None,
    *,
    basis: npt.NDArray[Any] | None = None,
    trained_pool: int | None = None,
) -> Draw:
    """The noisy split of a protocol: deterministic given protocol, labels and pool size.

    `test_labels` are those of the base test set, which a development split never sees. Its OOD images are
    taken from those that the test split of the same protocol trains on, so it never sees the scored ones.
    `basis` is the additional input of the noise (`RESTS_ON`). If the pool's images are already split, the
    first `trained_pool` are for training only and the others for scoring.
    """
    truth = _check_labels(train_labels, protocol.n_classes, "training")
    if protocol.noise in RESTS_ON and (basis is None or len(basis) != len(truth)):
        raise InputError(f"{protocol.noise} noise rests on {RESTS_ON[protocol.noise]}, a row a sample")
    if trained_pool is None:
        check_pool(protocol, pool_size)
    if (test_labels is None) != (protocol.split == "dev"):
        raise InputError(f"noise of the {protocol.split} split is made with{_TEST_LABELS[protocol.split]}")
    # Recorded runs depend on the order of these calls.
    rng = np.random.default_rng(protocol.seed)
    labels = _spoil(truth, protocol, rng, basis)
    if trained_pool is None:
        order = rng.permutation(pool_size)
        train_ood, eval_ood = order[: protocol.n_ood], order[protocol.n_ood :][: protocol.n_eval_ood]
    else:
        train_ood = rng.permutation(trained_pool)[: protocol.n_ood]
        eval_ood = np.arange(trained_pool, pool_size)[: protocol.n_eval_ood]
    ood_labels = rng.integers(0, protocol.n_classes, protocol.n_ood)
    train_ind = np.arange(len(truth))
    if test_labels is not None:
        eval_labels = _check_labels(test_labels, protocol.n_classes, "test")
        eval_ind = np.arange(len(eval_labels))
    else:
        mixed = rng.permutation(len(truth))
        held = round(DEV_SHARE * len(truth))
        eval_ind, train_ind = np.sort(mixed[:held]), np.sort(mixed[held:])
        eval_labels, truth = truth[eval_ind], truth[train_ind]
        labels = _spoil(truth, protocol, rng, basis[train_ind] if basis is not None else None)
        half, quarter = protocol.n_ood // 2, protocol.n_ood // 4
        train_ood, eval_ood = train_ood[:half], train_ood[half : half + quarter]
        ood_labels = rng.integers(0, protocol.n_classes, half)
    return Draw(
        protocol=protocol,
        sizes=(np.size(train_labels), 0 if test_labels is None else len(eval_labels), pool_size),
        train_ind=train_ind,
        train_ood=train_ood,
        labels=np.concatenate([labels, ood_labels]),
        truth=np.concatenate([truth, np.full(len(train_ood), OOD_LABEL)]),
        eval_ind=eval_ind,
        eval_ood=eval_ood,
        eval_truth=np.concatenate([eval_labels, np.full(len(eval_ood), OOD_LABEL)]),
    )


_TEST_LABELS = {"test": " the test set's labels", "dev": "out the test set's labels"}


def _spoil(
    truth: LabelArray, protocol: Protocol, rng: np.random.Generator, basis: npt.NDArray[Any] | None
) -> LabelArray:
    if protocol.noise == "asym":
        return asymmetric(truth, protocol.rate, rng)
    if protocol.noise == "pair":
        return pair(truth, protocol.rate, protocol.n_classes, rng)
    if protocol.noise == "instance":
        assert basis is not None
        return instance_dependent(truth, protocol.rate, protocol.n_classes, basis, rng)
    if protocol.noise == "web":
        return truth.copy()
    if protocol.noise == "human":
        return _check_labels(basis, protocol.n_classes, "given")  # type: ignore[arg-type]
    return symmetric(truth, protocol.rate, protocol.n_classes, rng)


def _check_labels(given: npt.ArrayLike, n_classes: int, which: str) -> LabelArray:
    """Whole numbers from 0 to K - 1, one per sample."""
    labels = np.asarray(given)
    if labels.ndim != 1 or labels.dtype.kind not in "ui" or len(labels) == 0:
        raise InputError(f"the {which} labels must be one whole number a sample")
    if labels.min() < 0 or labels.max() >= n_classes:
        found = f"{labels.min()} to {labels.max()}"
        raise InputError(f"the {which} labels go from {found}, and there are {n_classes} classes")
    return labels.astype(np.int64)


def save_draw(draw: Draw, path: Path) -> None:
    """Save as one .npz file, atomically."""
    arrays = {name: getattr(draw, name) for name in DRAW_ARRAYS}
    with replaced(path) as draft, draft.open("wb") as file:
        np.savez_compressed(file, about=np.array(_describe(draw)), digest=np.array(draw.digest()), **arrays)


def load_draw(path: Path) -> Draw:
    """Load a file of `save_draw`; anything else, or a modified file, is refused."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            about: dict[str, Any] = parse_json(str(file["about"]))
            if about["format"] > DRAW_FORMAT:
                raise InputError(f"{path}: written by a newer graphclean; upgrade to read it")
            protocol, sizes = Protocol(**about["protocol"]), about["sizes"]
            arrays = {name: file[name] for name in DRAW_ARRAYS}
            draw = Draw(protocol=protocol, sizes=(sizes[0], sizes[1], sizes[2]), **arrays)
            whole = str(file["digest"]) == draw.digest()
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"no such file: {path}") from error
    except READING as error:
        raise InputError(f"{path}: damaged, or not a noise file; make it again from its seed") from error
    if not whole:
        raise InputError(f"{path}: damaged: what it holds is not what was saved; make it again from its seed")
    return draw


def check_draw(
    draw: Draw, train_labels: npt.ArrayLike, pool_size: int, test_labels: npt.ArrayLike | None = None
) -> None:
    """Refuse a split made for other data: other sizes, or other labels at its indices."""
    train = np.asarray(train_labels)
    scored = train if draw.protocol.split == "dev" else np.asarray(test_labels)
    sizes = (train.size, 0 if draw.protocol.split == "dev" else scored.size, pool_size)
    if sizes != draw.sizes:
        made, have = (", ".join(f"{size:,}" for size in counts) for counts in (draw.sizes, sizes))
        raise InputError(f"the noise was made for sets of {made} (training, test, OOD), these hold {have}")
    same = np.array_equal(train[draw.train_ind], draw.truth[: len(draw.train_ind)])
    if not same or not np.array_equal(scored[draw.eval_ind], draw.eval_truth[: len(draw.eval_ind)]):
        raise InputError("the noise was made for a set in another order: its true labels differ")


def _describe(draw: Draw) -> str:
    about = {"format": DRAW_FORMAT, "protocol": asdict(draw.protocol), "sizes": list(draw.sizes)}
    return json.dumps(about, sort_keys=True)
