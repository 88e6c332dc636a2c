"""What a run keeps of its samples for the report: s(x) of all, and of some z in few dimensions."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..runfolder import POINTS, write_tensors

MAPPED = 5000
"""Samples on the map; more would hide each other, and make t-SNE slow."""
DIMENSIONS = 50
"""Of z that are kept: the directions in which the samples differ most, as is usual before t-SNE."""

Points = dict[str, Tensor]


def gather_points(z: Tensor, similarity: Tensor | None) -> Points:
    """`rows` of the samples on the map and their `z`; and s(x) of every sample, by which ζ was found."""
    z = z.float().cpu()
    n = len(z)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.arange(n) if n <= MAPPED else torch.randperm(n, generator=generator)[:MAPPED].sort().values
    points = {"rows": chosen, "z": _principal(torch.nn.functional.normalize(z[chosen], dim=1))}
    if similarity is not None:
        points["similarity"] = similarity.float().cpu()
    return points


def write_points(points: Points, folder: Path) -> None:
    """Into a run folder."""
    write_tensors(folder / POINTS, points, {})


def _principal(z: Tensor) -> Tensor:
    """At most DIMENSIONS columns: z along the directions in which it differs most."""
    from sklearn import config_context
    from sklearn.decomposition import PCA

    wanted = min(DIMENSIONS, *z.shape)
    # Where all samples are alike, PCA divides by how they differ; and a user may have asked for DataFrames.
    with np.errstate(invalid="ignore"), config_context(transform_output="default"):
        return torch.as_tensor(PCA(wanted, random_state=0).fit_transform(z.numpy()), dtype=torch.float32)
