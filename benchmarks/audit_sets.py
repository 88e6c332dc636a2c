"""Further noisy sets: look-alike or imbalanced classes, few samples, no OOD, no noise, text."""

import ast
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

Array = np.ndarray
SEEDS = range(2)
PER_CLASS = 100
FEW_PER_CLASS = 15
PACKAGES = ("numpy", "scipy", "sklearn", "pandas", "matplotlib", "torch")
"""Packages whose docstrings make up the text set, 200 each: always installed, with weak features."""


@dataclass(frozen=True)
class Draw:
    """A noisy set; truth is −1 for OOD."""

    group: str
    name: str
    features: Array
    labels: Array
    truth: Array


def flip(truth: Array, rate: float, seed: int, to: Array | None = None) -> Array:
    """Replace a fraction `rate` of the labels by random classes, or by those in `to`; OOD samples get random
    ones.
    """
    rng = np.random.default_rng(seed)
    known, n_classes = np.flatnonzero(truth >= 0), int(truth.max()) + 1
    labels = np.where(truth >= 0, truth, rng.integers(0, n_classes, len(truth)))
    chosen = rng.choice(known, round(rate * len(known)), replace=False)
    labels[chosen] = rng.integers(0, n_classes, len(chosen)) if to is None else to[truth[chosen]]
    return labels


def further_draws(cifar: dict[str, Array], pairs: dict[str, Array] | None) -> Iterator[Draw]:
    """All noisy labelings of these sets."""
    z, truth = cifar["features"], cifar["truth"]
    known = truth >= 0
    digits, digit = load_digits(return_X_y=True)
    text, package = embed_docstrings()
    for seed in SEEDS:
        if pairs is not None:
            yield Draw(
                "pairs", f"seed {seed}", pairs["features"], flip(pairs["truth"], 0.3, seed, pairs["partner"]),
                pairs["truth"],
            )  # fmt: skip
        some = thin_out(truth, seed)
        yield Draw("imbalanced", f"seed {seed}", z[some], flip(truth[some], 0.2, seed), truth[some])
        few = take_each(truth, FEW_PER_CLASS, seed)
        yield Draw("15 a class", f"seed {seed}", z[few], flip(truth[few], 0.2, seed), truth[few])
        yield Draw("no OOD", f"seed {seed}", z[known], flip(truth[known], 0.3, seed), truth[known])
        yield Draw("digits", f"seed {seed}", digits, flip(digit, 0.3, seed), digit)
        yield Draw("text", f"seed {seed}", text, flip(package, 0.2, seed), package)
    yield Draw("no noise", "as they are", z[known], truth[known].copy(), truth[known])


def take_each(truth: Array, count: int, seed: int) -> Array:
    """Rows of `count` random samples per class, without OOD."""
    rng = np.random.default_rng(seed)
    classes = range(int(truth.max()) + 1)
    return np.concatenate([rng.choice(np.flatnonzero(truth == c), count, replace=False) for c in classes])


def thin_out(truth: Array, seed: int) -> Array:
    """Rows of an imbalanced set: class sizes decrease to a tenth of the first, with a tenth of the OOD
    samples.
    """
    rng, n_classes = np.random.default_rng(seed), int(truth.max()) + 1
    parts = [rng.choice(np.flatnonzero(truth < 0), len(truth) // 20, replace=False)]
    for c in range(n_classes):
        rows = np.flatnonzero(truth == c)
        parts.append(rng.choice(rows, round(len(rows) * 0.1 ** (c / (n_classes - 1))), replace=False))
    return np.sort(np.concatenate(parts))


def choose_pairs(root: Path) -> dict[str, Any] | None:
    """Two classes of every other superclass of CIFAR-100, 100 training images each, paired as look-alikes.

    The remaining superclasses were used while choosing settings. None if the data is missing.
    """
    files = sorted((root / "cifar100").glob("train-*.parquet"))
    if not files:
        return None
    tables = [pq.read_table(file) for file in files]
    fine, coarse = (
        np.concatenate([table[name].to_numpy() for table in tables])
        for name in ("fine_label", "coarse_label")
    )
    rng, rows, partner = np.random.default_rng(0), [], []
    for c in range(0, 20, 2):
        for which in np.unique(fine[coarse == c])[:2]:
            rows.append(rng.choice(np.flatnonzero(fine == which), PER_CLASS, replace=False))
        partner += [len(partner) + 1, len(partner)]
    places = [(part, row) for part, table in enumerate(tables) for row in range(len(table))]
    images = [
        tables[part]["img"][row].as_py()["bytes"] for part, row in (places[i] for i in np.concatenate(rows))
    ]
    return {
        "images": images,
        "truth": np.repeat(np.arange(len(rows)), PER_CLASS),
        "partner": np.array(partner),
    }


def embed_docstrings() -> tuple[Array, Array]:
    """TF-IDF of docstrings reduced to 100 dimensions, and the number of the package of each."""
    texts: list[str] = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        found = dict.fromkeys(read_docstrings(Path(spec.origin).parent))
        own = [text.replace(name, "") for text in found]
        chosen = np.random.default_rng(0).permutation(len(own))[:200]
        texts += [own[i] for i in chosen]
    z = TfidfVectorizer(sublinear_tf=True, min_df=2).fit_transform(texts)
    return TruncatedSVD(100, random_state=0).fit_transform(z), np.repeat(np.arange(len(PACKAGES)), 200)


def read_docstrings(folder: Path, enough: int = 2000) -> list[str]:
    """The beginnings of a package's docstrings, in file order."""
    found: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        if "test" in str(path.relative_to(folder)) or len(found) >= enough:
            continue
        try:
            tree = ast.parse(path.read_text())
        except (SyntaxError, UnicodeDecodeError):
            continue
        nodes = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef))
        found += [text[:300] for node in nodes if (text := ast.get_docstring(node)) and len(text) > 80]
    return found
