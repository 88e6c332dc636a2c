"""Whether class means make held-out labels more likely than neighbors alone."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..graph import Neighbors
from ..graph.noise_model import NoiseModel, Probabilities
from .choice import is_likelier
from .class_means import Whitening, fit_class_means
from .evidence import Copies, Propagated, propagate_labels
from .inputs import Labels
from .verdicts import Posterior

FOLDS = 5
"""Folds of the samples; one at a time is unlabeled."""
JUDGED = 2
"""Number of folds evaluated: each costs as much as a graph."""


def class_means_help(
    nodes: Tensor,
    near: Neighbors,
    propagated: Propagated,
    labels: Labels,
    model: NoiseModel,
    whitening: Whitening,
) -> bool:
    """Whether k-NN with class means predicts labels better than k-NN alone, by more than one standard error.

    Judged on held-out labels: otherwise a node's own label would return through the posterior of its
    neighbors.
    """
    codes, alone = torch.from_numpy(labels.codes), Copies.none(len(nodes))
    fold = np.random.default_rng(0).permutation(len(nodes)) % FOLDS
    with_means, without = [], []
    for held in range(JUDGED):
        out = fold == held
        hidden = replace(labels, codes=np.where(out, -1, labels.codes))
        if hidden.decided is not None:
            hidden = replace(hidden, decided=np.where(out, -1, hidden.decided))
        Y = alone.spread_labels(hidden.reviewed, len(labels.classes))
        evidence = propagate_labels(propagated.graph, Y, propagated.k).evidence
        posterior = model.posterior(evidence, torch.from_numpy(hidden.codes))
        believed = Posterior(*(part.numpy() for part in posterior))
        fitted = fit_class_means(nodes, near, alone, believed, hidden.codes, model, whitening)
        prior = Probabilities(*map(torch.from_numpy, fitted.prior))
        rows = torch.from_numpy(out & (labels.codes >= 0))
        with_means.append(model.log_p_of(prior, codes)[rows])
        without.append(model.log_p(evidence, codes)[rows])
    return is_likelier(torch.cat(with_means).numpy(), torch.cat(without).numpy())
