"""Whether anything shows that there is OOD at all.

The label of an OOD sample says nothing, and its neighbors' labels are mixed. So are those of a sample
between two classes, whose own label is one of the two: with ten classes they can be told apart, with two or
three hardly, and with few samples not at all. Then the chance of OOD is a guess, and `ood` a wrong verdict.
"""

from dataclasses import replace

import numpy as np
import torch

from ..graph.noise_model import NoiseModel, fit_noise_model
from ..metrics import Bools
from .evidence import Propagated, nearest_nodes
from .inputs import Codes, Labels

SURE_GAIN = 1.5
"""Standard errors by which OOD must make the labels likelier.

On digits, tables, clouds and images of CIFAR-10 without OOD the largest gain was 1.0.
"""
TOGETHER = 0.25
"""Or the share of suspects among the nearest of suspects: OOD samples lie among their like, samples between
classes among samples of these. Without OOD at most 0.19 on the same sets, with a fifth of it mostly over 0.4.
"""
FEWEST_SUSPECTS = 20
"""Suspects under which their share among each other's nearest is chance, and not worth a note."""
DOUBT = 0.1
"""What the chance of OOD is multiplied by where nothing shows it: its order stays, hardly a verdict does."""


def doubt_ood(model: NoiseModel, propagated: Propagated, labels: Labels, notes: list[str]) -> NoiseModel:
    """The model, with little OOD where neither the labels of the nodes nor the graph show that there is any.

    What people found to be OOD shows it.
    """
    if labels.decided is not None and len(labels.classes) in labels.decided:
        return model
    evidence, codes = propagated.evidence, torch.from_numpy(labels.codes)
    suspects = (model.posterior(evidence, codes).ood > 0.5).numpy()
    if lie_together(suspects, nearest_nodes(propagated.graph)):
        return model
    decided = torch.from_numpy(labels.decided) if labels.decided is not None else None
    correct = model.asymmetric is not None
    known = fit_noise_model(evidence, codes, correct=correct, ood=False, decided=decided)
    gain = (model.log_p(evidence, codes) - known.log_p(evidence, codes))[codes >= 0].numpy()
    shown = gain.mean() > SURE_GAIN * gain.std() / np.sqrt(len(gain))
    if shown:
        return model
    if suspects.sum() >= FEWEST_SUSPECTS:
        notes.append(
            f"{suspects.sum()} samples might be of no class, but nothing shows that there is any such: "
            "the verdict is uncertain, or relabel"
        )
    return replace(model, doubt=DOUBT)


def lie_together(suspects: Bools, nearest: Codes) -> bool:
    """Whether enough of those nearest to suspects are suspects too; −1 in `nearest` is nobody."""
    if suspects.sum() < FEWEST_SUSPECTS:
        return False
    near = nearest[suspects]
    return bool(suspects[near][near >= 0].mean() >= TOGETHER)
