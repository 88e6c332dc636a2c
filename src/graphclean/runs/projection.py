"""What a run stores for the report: the OOD scores of all samples, and a projection of z for some."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .._files import write_tensors
from .folder import POINTS

MAPPED = 5000
"""Maximum number of samples on the map; more would overlap and slow down t-SNE."""
PROJECTED_DIMENSIONS = 50
"""Number of principal components of z that are kept, as is usual before t-SNE."""

Points = dict[str, Tensor]


def gather_points(z: Tensor, ood_score: Tensor | None) -> Points:
    """`rows` and `z` of the samples on the map, and `ood_score` of all that the threshold was found on."""
    chosen = mapped_rows(len(z))
    return place_points(chosen, z[chosen], ood_score)


def mapped_rows(n: int) -> Tensor:
    """The samples on the map, of `n`."""
    generator = torch.Generator().manual_seed(0)
    return torch.arange(n) if n <= MAPPED else torch.randperm(n, generator=generator)[:MAPPED].sort().values


def place_points(chosen: Tensor, z: Tensor, ood_score: Tensor | None) -> Points:
    """`gather_points` for those who have z of the `chosen` samples only."""
    points = {"rows": chosen, "z": _principal(torch.nn.functional.normalize(z.float().cpu(), dim=1))}
    if ood_score is not None:
        points["ood_score"] = ood_score.float().cpu()
    return points


def write_points(points: Points, folder: Path) -> None:
    """Write the points to a run folder."""
    write_tensors(folder / POINTS, points, {})


def _principal(z: Tensor) -> Tensor:
    """The leading principal components of z, at most PROJECTED_DIMENSIONS."""
    from sklearn import config_context
    from sklearn.decomposition import PCA

    wanted = min(PROJECTED_DIMENSIONS, *z.shape)
    # PCA divides by the variance, which is 0 for equal samples; scikit-learn may be set to use DataFrames.
    with np.errstate(invalid="ignore"), config_context(transform_output="default"):
        return torch.as_tensor(PCA(wanted, random_state=0).fit_transform(z.numpy()), dtype=torch.float32)
