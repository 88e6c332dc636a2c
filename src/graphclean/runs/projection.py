"""What a run keeps for the report: the detector's score of all samples, and some z in few dimensions."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .._files import write_tensors
from .folder import POINTS

MAPPED = 5000
"""Samples on the map; more would hide each other, and make t-SNE slow."""
PROJECTED_DIMENSIONS = 50
"""Of z that are kept: the directions in which the samples differ most, as is usual before t-SNE."""

Points = dict[str, Tensor]


def gather_points(z: Tensor, ood_score: Tensor | None) -> Points:
    """`rows` of the samples on the map, their `z`, and the score of all that the threshold was found on."""
    z = z.float().cpu()
    n = len(z)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.arange(n) if n <= MAPPED else torch.randperm(n, generator=generator)[:MAPPED].sort().values
    points = {"rows": chosen, "z": _principal(torch.nn.functional.normalize(z[chosen], dim=1))}
    if ood_score is not None:
        points["ood_score"] = ood_score.float().cpu()
    return points


def write_points(points: Points, folder: Path) -> None:
    """Into a run folder."""
    write_tensors(folder / POINTS, points, {})


def _principal(z: Tensor) -> Tensor:
    """At most DIMENSIONS columns: z along the directions in which it differs most."""
    from sklearn import config_context
    from sklearn.decomposition import PCA

    wanted = min(PROJECTED_DIMENSIONS, *z.shape)
    # Where all samples are alike, PCA divides by how they differ; and a user may have asked for DataFrames.
    with np.errstate(invalid="ignore"), config_context(transform_output="default"):
        return torch.as_tensor(PCA(wanted, random_state=0).fit_transform(z.numpy()), dtype=torch.float32)
