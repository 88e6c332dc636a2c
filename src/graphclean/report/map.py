"""A two-dimensional map of the samples."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .._files import has_file, read_tensors
from ..data.verdict import Verdict
from ..errors import InputError
from ..runs.folder import POINTS
from .kept import KeptParts
from .lists import Ints
from .samples import Floats, Samples

LEAST_MAPPED = 10
"""With fewer samples, a map is not informative."""
ITERATIONS = 500
"""Iterations of t-SNE: enough for a few thousand points, in seconds."""
LARGEST_Z = 1e6
"""Magnitude of z, which comes from unit vectors; far beyond it, t-SNE does not converge."""
MAP_SCALE = 10_000
"""Map coordinates are integers from 0 to this."""


def read_points(run: Path) -> tuple[Floats | None, Ints, npt.NDArray[np.float32]]:
    """The detector's scores of the readable samples, and the rows and z of those on the map."""
    if not has_file(run / POINTS):
        return None, np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.float32)
    tensors, _ = read_tensors(run / POINTS)
    try:
        rows, z = tensors["rows"], tensors["z"]
    except KeyError as error:
        raise InputError(f"{run / POINTS}: damaged: no {error}") from error
    score = tensors.get("ood_score")
    whole = rows.dtype == torch.int64 and rows.ndim == 1 and (rows.numel() == 0 or int(rows.min()) >= 0)
    fits = z.is_floating_point() and z.ndim == 2 and z.shape[:1] == rows.shape
    small = fits and bool((z.abs() <= LARGEST_Z).all())  # NaN is not
    told = score is None or (score.ndim == 1 and not bool(score.isinf().any()))  # NaN means no score
    if not whole or not small or not told:
        raise InputError(f"{run / POINTS}: damaged: rows, places and scores do not fit together")
    return score.double().numpy() if score is not None else None, rows.numpy(), z.float().numpy()


def draw_map(
    rows: Ints, z: npt.NDArray[np.float32], samples: Samples, kept: KeptParts | None = None
) -> dict[str, Any] | None:
    """Positions that put samples with similar z close together; None if there are too few.

    A cached map (`kept`) is reused if it was made from the same z.
    """
    readable = np.flatnonzero(~samples.where(Verdict.UNREADABLE))
    if len(rows) < LEAST_MAPPED or rows.max() >= len(readable) or not np.isfinite(z).all():
        return None
    places, how = _find_places(z, kept)
    low, high = places.min(0), places.max(0)
    scaled = np.rint((places - low) / max(float((high - low).max()), 1e-9) * MAP_SCALE).astype(int)
    return {
        "how": how,
        "row": readable[rows].tolist(),
        "x": scaled[:, 0].tolist(),
        "y": scaled[:, 1].tolist(),
        "size": scaled.max(0).tolist(),
        "of": len(readable),
    }


def _find_places(z: npt.NDArray[np.float32], kept: KeptParts | None) -> tuple[Floats, str]:
    draw = _by_umap if importlib.util.find_spec("umap") else _by_tsne
    key = hashlib.sha256(f"{draw.__name__} {ITERATIONS} {z.shape}".encode() + z.tobytes()).hexdigest()
    found = kept.find_map(key, len(z)) if kept is not None else None
    if found is None:
        found = draw(z)
        if kept is not None:
            kept.keep_map(key, *found)
    return found


def _by_tsne(z: npt.NDArray[np.float32]) -> tuple[Floats, str]:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(z) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", max_iter=ITERATIONS, random_state=0)
    # A constant axis, as of identical points, would make the PCA initialization divide by zero.
    spread = z if (z.std(0)[:2] > 0).all() else z + np.random.default_rng(0).normal(0, 1e-4, z.shape)
    return np.asarray(tsne.fit_transform(spread.astype(np.float32)), dtype=np.float64), "t-SNE"


def _by_umap(z: npt.NDArray[np.float32]) -> tuple[Floats, str]:
    from umap import UMAP

    return np.asarray(UMAP(random_state=0, n_jobs=1).fit_transform(z), dtype=np.float64), "UMAP"
