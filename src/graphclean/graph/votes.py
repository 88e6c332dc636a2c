"""How many neighbors are needed to tell a sample's class, given the label noise: k, and the end of warm-up.

A neighbor belongs to the sample's class with probability ρ, the purity, and otherwise to any class. With K
classes and a fraction r of the labels wrong, it carries the right label with probability a and a particular
wrong label with probability b:

    a = ρ (1 − r) + (1 − ρ) / K        b = ρ r / (K − 1) + (1 − ρ) / K

Among n votes the right label leads a wrong one by n (a − b) in expectation, with a variance of at most n (a +
b). So it leads all K − 1 with probability at least 1 − δ if n = 2 ln(K / δ) (a + b) / (a − b)².

Propagation uses more votes than k: the neighbors have 1 − α of the evidence, and nodes beyond them the rest,
spread so thin that the evidence of k neighbors weighs like k / (1 − α)² equal votes. ρ is unknown, but
observable: two neighbors share a label with probability ρ s + (1 − ρ) Σ u², where s = (1 − r)² + r² / (K − 1)
and u are the label fractions.

k does not help against class-dependent noise: the fraction of such mistakes among the neighbors does not fall
as k grows.
"""

import math

import torch
from torch import Tensor

from .csr import edge_rows
from .noise_model import fit_noise_model

RISK = 0.05
"""δ: the fraction of samples whose class may be told wrongly."""
OF_CLASS = 0.2
"""Maximum number of neighbors as a fraction of the average class: beyond it, ever fewer belong to the class.
On digits with nine tenths of noise, two fifths lost accuracy with each of three seeds.
"""
FEWEST, MOST = 30, 200
"""k stays within the paper's values, or within `OF_CLASS`; fewer would break classes into components."""
SMALLEST_K = 10
"""Lower bound on k for very small classes."""


def votes_needed(noise: float, purity: float, n_classes: int) -> float:
    """n of the formula above; infinite if neighbors are uninformative."""
    by_chance = (1 - purity) / n_classes
    right = purity * (1 - noise) + by_chance
    wrong = purity * noise / (n_classes - 1) + by_chance
    if right <= wrong:
        return math.inf
    return 2 * math.log(n_classes / RISK) * (right + wrong) / (right - wrong) ** 2


def most_neighbors(n: int, n_classes: int) -> int:
    """The largest sensible k for `n` samples of `n_classes` classes."""
    return max(SMALLEST_K, min(MOST, round(OF_CLASS * n / n_classes)))


def choose_k(votes: float, n: int, n_classes: int, alpha: float) -> int:
    """The k whose evidence weighs like `votes` equal votes, within the bounds of the set."""
    most = most_neighbors(n, n_classes)
    return int(min(most, max(min(FEWEST, most), math.ceil(min(votes * (1 - alpha) ** 2, most)))))


def estimate_votes(evidence: Tensor, given: Tensor, neighbors: Tensor) -> float:
    """The votes needed, with r and ρ estimated from leave-one-out `evidence` and the graph of `neighbors`."""
    labeled, n_classes = given >= 0, evidence.shape[1]
    if n_classes < 2 or not bool(labeled.any()):
        return math.inf
    precise = evidence if evidence.dtype == torch.float64 else evidence.float()
    model = fit_noise_model(precise, given, correct=False, ood=False, grid=True)
    posterior = model.posterior(precise, given).classes
    noise = 1 - float(posterior[labeled].gather(1, given[labeled].unsqueeze(1)).mean())
    return votes_needed(noise, estimate_purity(given, neighbors, noise, n_classes), n_classes)


def estimate_purity(given: Tensor, neighbors: Tensor, noise: float, n_classes: int) -> float:
    """ρ: how often neighbors share a class, estimated from how often they share a label."""
    a, b = given[edge_rows(neighbors)], given[neighbors.col_indices().long()]
    both = (a >= 0) & (b >= 0)
    shared = float((a[both] == b[both]).double().mean()) if bool(both.any()) else 0.0
    shares = torch.bincount(given[given >= 0], minlength=n_classes).double()
    by_chance = float((shares / shares.sum()).square().sum())
    of_class = (1 - noise) ** 2 + noise**2 / (n_classes - 1)
    if of_class <= by_chance:
        return 0.0
    return min(max((shared - by_chance) / (of_class - by_chance), 0.0), 1.0)
