"""Noise-aware acceptance of given labels: compare each label with the classes that are mistaken for it.

Eq. 3 keeps a given label y if its evidence e[y] exceeds 1/K. This threshold has a meaning. For a sample of
class c labeled y, with the prior q = softmax(t · log e) of `noise_model`,

    P(c | e, y) ∝ q[c] T[c, y],

so y is more likely than c if q[y] / q[c] > T[c, y] / T[y, y]. If a fraction r of all labels is wrong at
random, T[c, y] / T[y, y] = r / ((K − 1)(1 − r)) for every c, and y is more likely than all other classes
together if q[y] > r / (r + (K − 1)(1 − r)): 1/12 if half of the labels are resampled from 10 classes, 1/42
for a fifth, 1/3.1 for nine tenths. 1/K is about right for a half and stricter for less noise. For more noise
it is more permissive and keeps samples that training needs: there, acceptance by argmax, which is stricter
still, lost accuracy.

If class c is mistaken for y far more often than for other classes, T[c, y] is many times larger than
elsewhere, and the neighbors of c carry the label y too: with four labels in ten, e[y] is 0.4 for every sample
of c, far above 1/K. So a label must also be more likely than each class that is mistaken for it, or lead the
evidence. It is compared with no other class: symmetric noise leaves Eq. 3 unchanged.

The evidence is what the step judges by, including previously corrected labels and the network's predictions;
it is not corrected for T here. Evidence from the given labels alone, and evidence corrected for T, both find
more wrong labels in a single step, but with OOD samples or a half-mislabeled class they lost a class when
training on digits.
"""

import torch
from torch import Tensor

from .noise_model import find_asymmetric_part, fit_noise_model

PROBABLE = 0.8
"""Probability that a pseudo-label other than the given one must exceed; verdicts use the same to select."""


def find_mistaken(evidence: Tensor, given: Tensor) -> Tensor:
    """Whether a class that is mistaken for the given label is more likely than it, by leave-one-out
    `evidence` (N, K).

    T and t are fitted to the given labels. Labels below 0 mean unlabeled and never count as mistaken.
    """
    labeled = given >= 0
    if evidence.shape[1] < 2 or not bool(labeled.any()):
        return torch.zeros_like(labeled)
    precise = evidence if evidence.dtype == torch.float64 else evidence.float()
    model = fit_noise_model(precise, given, correct=False, ood=False, grid=True)
    posterior = model.posterior(precise, given).classes
    return labeled & is_outdone(posterior, given, find_mistakes(model.transition, posterior[labeled].sum(0)))


def find_mistakes(transition: Tensor, sizes: Tensor) -> Tensor:
    """Which classes (rows) are mistaken for which labels (columns) more often than for most."""
    wrong = ~torch.eye(len(transition), dtype=torch.bool, device=transition.device)
    asymmetric = find_asymmetric_part(transition, sizes)
    return wrong & (asymmetric > 0) if asymmetric is not None else torch.zeros_like(wrong)


def is_outdone(posterior: Tensor, given: Tensor, mistakes: Tensor) -> Tensor:
    """Whether a class that is mistaken for the given label has a larger posterior than that label."""
    known = given.clamp(min=0)
    own = posterior.gather(1, known.unsqueeze(1)).squeeze(1)
    rivals = torch.where(mistakes.T[known], posterior, 0).amax(1)
    return rivals > own


def find_sure(evidence: Tensor, given: Tensor, labels: Tensor) -> Tensor:
    """Whether `labels` are right with a probability above `PROBABLE`, by leave-one-out `evidence` (N, K).

    The model accounts for OOD samples and for the noise rate, so this probability has the same meaning on
    every data set, which a share of the evidence has not.
    """
    if evidence.shape[1] < 2 or not bool((given >= 0).any()):
        return torch.zeros_like(given, dtype=torch.bool)
    precise = evidence if evidence.dtype == torch.float64 else evidence.float()
    model = fit_noise_model(precise, given, correct=False, ood=True)
    classes = model.posterior(precise, given).classes
    silent = (precise == precise[:, :1]).all(1)
    return (classes.gather(1, labels.unsqueeze(1)).squeeze(1) > PROBABLE) & ~silent
