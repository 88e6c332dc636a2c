"""Eq. 1-4 of the paper as functions on tensors, the same on CPU and CUDA."""

from .cleaner import Cleaned, GraphCleaner
from .components import connected_components
from .csr import Graph, as_csr, to_scipy
from .knn import Neighbours, knn_graph, nearest_neighbours
from .propagation import gather_evidence, normalise_graph, own_weight, propagate, weight_graph
from .selection import (
    confident_edges,
    judge_confidence,
    largest_components,
    mutual_edges,
    select_components,
)

__all__ = [
    "Cleaned",
    "Graph",
    "GraphCleaner",
    "Neighbours",
    "as_csr",
    "confident_edges",
    "connected_components",
    "gather_evidence",
    "judge_confidence",
    "knn_graph",
    "largest_components",
    "mutual_edges",
    "nearest_neighbours",
    "normalise_graph",
    "own_weight",
    "propagate",
    "select_components",
    "to_scipy",
    "weight_graph",
]
