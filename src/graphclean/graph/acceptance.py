"""Whether a given label stands against the classes that are mistaken for it, by the estimated noise.

Eq. 3 keeps a given label y where its evidence e[y] is over 1/K. That is no arbitrary level. Of a sample of
class c that was labeled y, with the prior q = softmax(t · log e) of `noise_model`,

    P(c | e, y) ∝ q[c] T[c, y],

so that y is likelier than c where q[y] / q[c] > T[c, y] / T[y, y]. Where a share r of all labels is wrong at
random, T[c, y] / T[y, y] = r / ((K − 1)(1 − r)) for every c, and y is likelier than all others together where
q[y] > r / (r + (K − 1)(1 − r)): 1/12 with half of the labels drawn from 10 classes, 1/42 with a fifth, 1/3.1
with nine tenths. 1/K is about that for half of the labels and stricter for fewer. For more it is laxer, and
keeps samples that training can't do without: there acceptance by argmax, stricter still, lost accuracy.

Where class c is mistaken for y far more often than for others, T[c, y] is many times what it is for other
classes, and the neighbors of c are called y as well: with four of ten, e[y] is 0.4 for every one of them, far
over 1/K. So a label must besides be likelier than each class that is mistaken for it, or lead the evidence.
It is compared with no other class: noise that is the same for all classes leaves Eq. 3 as it is.

The evidence is what the step judges by, labels that were corrected before and the network's predictions in
it; it is not corrected for T here. Both evidence of the given labels alone and correcting it find more in one
step, but where samples are OOD, or a class is half mislabeled, they lost a class in training on digits.
"""

import torch
from torch import Tensor

from .noise_model import find_asymmetric_part, fit_noise_model

PROBABLE = 0.8
"""Probability that a pseudo-label other than the given one must pass: as a verdict's, to be selected."""


def find_mistaken(evidence: Tensor, given: Tensor) -> Tensor:
    """Whether a class that is mistaken for the given label is likelier, by leave-one-out `evidence` (N, K).

    T and t are fitted to the given labels; one below 0 means unlabeled, and is not mistaken.
    """
    labeled = given >= 0
    if evidence.shape[1] < 2 or not bool(labeled.any()):
        return torch.zeros_like(labeled)
    precise = evidence if evidence.dtype == torch.float64 else evidence.float()
    model = fit_noise_model(precise, given, correct=False, ood=False, grid=True)
    posterior = model.posterior(precise, given).classes
    return labeled & is_outdone(posterior, given, find_mistakes(model.transition, posterior[labeled].sum(0)))


def find_mistakes(transition: Tensor, sizes: Tensor) -> Tensor:
    """Which classes (rows) are mistaken for which labels (columns) more often than most."""
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
    """Whether `labels` are right with a probability over `PROBABLE`, by leave-one-out `evidence` (N, K).

    The model knows samples that are OOD, so that the probability means the same with them and without, with
    much noise and with little, where a share of the evidence does not.
    """
    if evidence.shape[1] < 2 or not bool((given >= 0).any()):
        return torch.zeros_like(given, dtype=torch.bool)
    precise = evidence if evidence.dtype == torch.float64 else evidence.float()
    model = fit_noise_model(precise, given, correct=False, ood=True)
    classes = model.posterior(precise, given).classes
    silent = (precise == precise[:, :1]).all(1)
    return (classes.gather(1, labels.unsqueeze(1)).squeeze(1) > PROBABLE) & ~silent
