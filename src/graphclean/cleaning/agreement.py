"""Whether the two halves of the labels lead to the same proposals.

The labels around a sample are mixed if its class is hard to recognize, and also if many labels are wrong: the
noise model can mistake one for the other, and be confident of wrong proposals. But if classes can be
recognized, disjoint sets of labels lead to the same class.
"""

import numpy as np
import torch

from ..graph.noise_model import NoiseModel
from ..metrics import Bools
from .evidence import Copies, Propagated, propagate_labels
from .inputs import Labels

FEWEST_PROPOSALS = 20
"""With fewer proposals, agreement is up to chance."""


def measure_agreement(
    propagated: Propagated, model: NoiseModel, labels: Labels, proposing: Bools
) -> float | None:
    """The fraction of the `proposing` nodes for which two random halves of the labels find the same class.

    None if there are too few nodes. Two halves that are right with probability r, and make different errors,
    agree on r² of them.
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
