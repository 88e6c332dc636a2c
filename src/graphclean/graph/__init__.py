"""Eq. 1-4 of the paper as functions on tensors, the same on CPU and CUDA."""

from .cleaner import Cleaned, GraphCleaner
from .components import connected_components
from .csr import Graph, as_csr, to_scipy
from .knn import Neighbors, knn_graph, nearest_neighbors
from .propagation import gather_evidence, normalize_graph, propagate, self_influence, weight_graph
from .selection import (
    confident_edges,
    confident_labels,
    largest_components,
    mutual_edges,
    select_components,
)

__all__ = [
    "Cleaned",
    "Graph",
    "GraphCleaner",
    "Neighbors",
    "as_csr",
    "confident_edges",
    "confident_labels",
    "connected_components",
    "gather_evidence",
    "knn_graph",
    "largest_components",
    "mutual_edges",
    "nearest_neighbors",
    "normalize_graph",
    "propagate",
    "select_components",
    "self_influence",
    "to_scipy",
    "weight_graph",
]
