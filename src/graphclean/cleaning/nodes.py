"""The nodes of the graph: the distinct samples in one scaling of their features, and their neighbors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..config import CleaningSettings
from ..data.progress import Progress
from ..errors import InputError
from ..graph import Graph, Neighbors, as_csr, nearest_neighbors
from ..graph.ann import RECALL, approximate_neighbors
from .duplicates import REACH
from .evidence import Copies, NodeGraph, Standardizer
from .inputs import Codes, Floats
from .knn_model import NEIGHBORS
from .scale import is_large

SPARE_NEIGHBORS = 5
"""Additional neighbors, so that lists that lose a few duplicates need no new search."""
PAIRS_PER_MINUTE = 5e10
"""Similarities that an exact search computes in a minute on two cores, of features with 64 columns."""
SEVERAL = 3
"""Minutes from which the time of an exact search is announced."""
LARGE_RECALL = 0.96
"""Recall of an approximate search of a large set."""


@dataclass(frozen=True)
class Nodes:
    """Distinct samples as unit rows, and the nearest neighbors of each."""

    standardizer: Standardizer
    unit: Tensor
    neighbors: Neighbors | None
    """Enough for every k and for prediction; None if there is only one distinct sample."""

    @property
    def near(self) -> Neighbors | None:
        """The neighbors that vote in prediction."""
        if self.neighbors is None:
            return None
        return Neighbors(*(part[:, :NEIGHBORS] for part in self.neighbors))

    def graphs(self, settings: CleaningSettings, tell: Progress) -> Iterator[tuple[int, NodeGraph]]:
        """One graph for each k, from a single search."""
        if self.neighbors is None:
            return
        ks = sorted({min(k, self.neighbors.indices.shape[1]) for k in settings.k})
        for step, k in enumerate(ks):
            tell("propagating labels", step, len(ks))
            yield k, NodeGraph.prefix(self.neighbors, k)
        tell("propagating labels", len(ks), len(ks))

    def keep(self, rows: Codes, settings: CleaningSettings, tell: Progress) -> "Nodes":
        """A subset of the nodes: the others are removed from neighbor lists, which are searched again if too
        short.
        """
        unit, wanted = self.unit[torch.as_tensor(rows)], _list_length(settings, len(rows))
        if self.neighbors is None or wanted < 1:
            return Nodes(self.standardizer, unit, _search(unit, settings, [], tell))
        place = torch.full((len(self.unit),), -1)
        place[torch.as_tensor(rows)] = torch.arange(len(rows))
        indices, similarities = (part[torch.as_tensor(rows)] for part in self.neighbors)
        indices = place[indices]
        left, order = (indices < 0).sort(dim=1, stable=True)
        indices, similarities = (
            indices.gather(1, order)[:, :wanted],
            similarities.gather(1, order)[:, :wanted],
        )
        short = left[:, wanted - 1].nonzero().squeeze(1)
        if len(short):
            exact = _without_self(nearest_neighbors(unit, wanted + 1, queries=unit[short]), short)
            indices[short], similarities[short] = exact
        return Nodes(self.standardizer, unit, Neighbors(indices, similarities))


def find_nodes(
    array: Floats,
    fit: Callable[[Floats], Standardizer],
    copies: Copies,
    settings: CleaningSettings,
    notes: list[str],
    tell: Progress,
) -> Nodes:
    """The distinct rows of checked embeddings, standardized by `fit`, and their neighbors."""
    distinct = array if copies.alone else array[copies.first]
    standardizer = fit(distinct)
    unit = standardizer(distinct)
    if min(settings.k) >= len(unit):
        many = "is 1 distinct sample" if len(unit) == 1 else f"are {len(unit)} distinct samples"
        notes.append(f"k is at most {len(unit) - 1}, as there {many}")
    return Nodes(standardizer, unit, _search(unit, settings, notes, tell))


def check_graph(graph: Graph) -> Tensor:
    """A similarity graph on the CPU in place of embeddings."""
    try:
        csr = as_csr(graph, device=torch.device("cpu"))
        if csr.shape[0] == 0:
            raise ValueError("the graph has no nodes")
        return csr
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def nearest_rows(graph: NodeGraph, copies: Copies) -> Codes:
    """The rows listed as neighbors of each sample: the first copy of each neighboring node."""
    near = graph.nearest
    if copies.alone:
        return near
    return np.asarray(np.where(near >= 0, copies.first[near], -1)[copies.node])


def _list_length(settings: CleaningSettings, n: int) -> int:
    """Neighbors per node needed for every k, for prediction and for detecting duplicates."""
    return min(max(*settings.k, NEIGHBORS, REACH), n - 1)


def _without_self(found: Neighbors, own: Tensor) -> Neighbors:
    """Lists shortened by one: without the node itself or, if copies displaced it, without the last entry."""
    mine = found.indices == own.unsqueeze(1)
    order = mine.long().sort(dim=1, stable=True).indices[:, :-1]
    return Neighbors(found.indices.gather(1, order), found.similarities.gather(1, order))


def _search(unit: Tensor, settings: CleaningSettings, notes: list[str], tell: Progress) -> Neighbors | None:
    limit = len(unit) - 1
    if limit < 1:
        return None
    k = min(_list_length(settings, len(unit)) + SPARE_NEIGHBORS, limit)

    stage = "finding neighbors"

    def progress(done: int, total: int) -> None:
        tell(stage, done, total)

    if settings.search == "approx":
        wanted = LARGE_RECALL if is_large(len(unit)) else RECALL
        neighbors, recall = approximate_neighbors(unit, k, recall=wanted, progress=progress)
        notes.append(f"neighbors are approximate: {100 * recall:.1f} % of the true ones, by a sample")
        return neighbors
    minutes = len(unit) ** 2 * unit.shape[1] / 64 / PAIRS_PER_MINUTE
    if minutes > SEVERAL and unit.device.type == "cpu":
        hint = f"exact, about {minutes:.0f} minutes on two cores; cleaning.search=approx is faster"
        stage = f"finding neighbors ({hint})"
        notes.append(f"neighbors of {len(unit)} samples: {hint}, and reports its recall")
    return nearest_neighbors(unit, k, progress=progress)
