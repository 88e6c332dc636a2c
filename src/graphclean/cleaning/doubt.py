"""Whether there is evidence of OOD at all.

The label of an OOD sample is uninformative, and its neighbors' labels are mixed. So are those of a sample
between two classes, but its own label is one of the two: with ten classes the cases can be told apart, with
two or three hardly, and with few samples not at all. Then P(OOD) is a guess, and `ood` a wrong verdict.
"""

from dataclasses import replace

import numpy as np
import torch

from ..graph.noise_model import NoiseModel, fit_noise_model
from ..metrics import Bools
from .evidence import Copies, Propagated
from .inputs import Codes, Labels
from .scale import fitted_on

SURE_GAIN = 1.5
"""Standard errors by which OOD must make the labels more likely. On digits, tables, point clouds and images
of CIFAR-10 without OOD, the largest gain was 1.0.
"""
TOGETHER = 0.25
"""Alternatively, the fraction of suspects among the nearest neighbors of suspects: OOD samples are neighbors
of each other, samples between classes are neighbors of those classes. At most 0.19 without OOD on the same
sets; mostly above 0.4 with 20 % OOD.
"""
FEWEST_SUSPECTS = 20
"""With fewer suspects, this fraction is up to chance, and not worth a note."""
DOUBT = 0.1
"""Factor on P(OOD) if there is no evidence of OOD: it preserves the ranking, but leaves hardly any `ood`
verdict.
"""


def doubt_ood(model: NoiseModel, propagated: Propagated, labels: Labels, notes: list[str]) -> NoiseModel:
    """The noise model, with P(OOD) reduced if neither the labels nor the graph show that there is OOD.

    Human decisions for OOD count as evidence.
    """
    if labels.decided is not None and len(labels.classes) in labels.decided:
        return model
    evidence, codes = propagated.evidence, torch.from_numpy(labels.codes)
    suspects = (model.posterior(evidence, codes).ood > 0.5).numpy()
    if lie_together(suspects, propagated.graph.nearest):
        return model
    some = fitted_on(len(codes))
    evidence, codes = evidence[some], codes[some]
    decided = torch.from_numpy(labels.decided)[some] if labels.decided is not None else None
    correct = model.asymmetric is not None
    known = fit_noise_model(evidence, codes, correct=correct, ood=False, decided=decided)
    gain = (model.log_p(evidence, codes) - known.log_p(evidence, codes))[codes >= 0].numpy()
    shown = gain.mean() > SURE_GAIN * gain.std() / np.sqrt(len(gain))
    if shown:
        return model
    if suspects.sum() >= FEWEST_SUSPECTS:
        notes.append(
            f"{suspects.sum()} samples might be OOD, but nothing shows that there are any OOD samples: "
            "their verdict is uncertain, or relabel"
        )
    return replace(model, doubt=DOUBT)


def undoubted_rate(model: NoiseModel, propagated: Propagated, copies: Copies, labels: Labels) -> float | None:
    """The OOD rate that labels alone would allow; None if OOD shows."""
    if model.doubt == 1:
        return None
    free = replace(model, doubt=1.0)
    return float(free.posterior(propagated.by_sample(copies), torch.from_numpy(labels.codes)).ood.mean())


def lie_together(suspects: Bools, nearest: Codes) -> bool:
    """Whether enough of the nearest neighbors of suspects are suspects too; −1 in `nearest` means none."""
    if suspects.sum() < FEWEST_SUSPECTS:
        return False
    near = nearest[suspects]
    return bool(suspects[near][near >= 0].mean() >= TOGETHER)
