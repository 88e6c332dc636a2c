"""Whether either half of the labels makes the same proposals.

The labels around a sample are as mixed where its class is hard to see as where many labels are wrong: the
noise model can take one for the other, and be sure of proposals that are not right. But where a class can be
seen, labels that share no sample lead to the same one.
"""

import numpy as np
import torch

from ..graph.noise_model import NoiseModel
from ..metrics import Bools
from .evidence import Copies, Propagated, propagate_labels
from .inputs import Labels

FEWEST_PROPOSALS = 20
"""Under so many their agreement is chance."""


def measure_agreement(
    propagated: Propagated, model: NoiseModel, labels: Labels, proposing: Bools
) -> float | None:
    """At how many of the `proposing` nodes two random halves of their labels find the same class.

    None for too few nodes. Two that are right with probability r, and wrong in different ways, agree at r² of
    them.
    """
    if proposing.sum() < FEWEST_PROPOSALS:
        return None
    codes, alone = labels.reviewed, Copies.none(len(labels.codes))
    half = np.random.default_rng(0).permutation(len(codes)) % 2
    found = []
    for held in (0, 1):
        Y = alone.spread_labels(np.where(half == held, codes, -1), len(labels.classes))
        evidence = propagate_labels(propagated.graph, Y, propagated.k).evidence
        found.append(model.prior(evidence[torch.from_numpy(proposing)]).classes.argmax(1))
    return float((found[0] == found[1]).double().mean())
