"""Mistakes that neighbours share, found in the given labels and undone before anything is judged by them.

Noise that goes everywhere alike leaves the classes in a sample's evidence in their order. But where four of
ten trucks are called cars, so are the neighbours of a truck, and its evidence e can't tell that label from a
right one. With T[c, y], the chance that class c is labelled y, e is taken for a mix of classes π, labelled by
the part of T that prefers some labels to others. That is undone, and the given label has the chance

    p(y | e) = Σ_c q_c T[c, y],  q = softmax(t · log π)

T and t are those under which the given labels are likeliest. Classes that merely look alike could be taken
for such noise: mistakes count as shared only where undoing them makes the given labels clearly likelier. The
label model of the verdicts says the same, with a chance of being OOD besides; this one is fitted before every
epoch, on any device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

ROUNDS = 4
"""Times T and what else there is are fitted in turn."""
CONFIDENT_SHARE = 0.6
"""Share of the samples of each class by evidence, the most confident, that start T."""
PRIOR_COUNT = 2.0
"""Samples' worth of symmetric noise that each row of T is shrunk by."""
FLOOR = 1e-6
"""Evidence counts as at least this much, so that its logarithm is finite."""
COMMON = 2.0
"""Chances of a wrong label up to so many times their median count as noise that goes everywhere alike."""
BY_CHANCE = 3.0
"""As does a wrong label that no more than so many samples of a class have."""
STEPS = 10
"""Of unmixing."""
WORTH, SHARE = 0.004, 0.01
"""Mean log p that unmixing must gain, or this share of −log p if that is less.

With classes that look alike it gains less.
"""
TEMPERATURES = tuple(2 ** (step / 2) for step in range(-4, 7))
"""Among which t is chosen: a quarter to eight."""
FIT_SAMPLES = 20_000
"""Samples that fit t and the like, evenly spaced; a few numbers need no more."""


@dataclass(frozen=True)
class Mistakes:
    """How the given labels came about."""

    transition: Tensor
    """T: rows are classes, columns labels."""
    preference: Tensor | None
    """The part of T that prefers some labels to others, rows summing to 1; None where none does."""
    temperature: float
    log_likelihood: float
    """Mean log p of the given labels."""

    def prior(self, evidence: Tensor) -> Tensor:
        """q: the chance of each class by the evidence alone."""
        return (self.temperature * _log(unmix(evidence, self.preference))).softmax(1)

    def posterior(self, evidence: Tensor, labels: Tensor) -> Tensor:
        """The same with the given label taken into account; below 0 means unlabelled."""
        joint = self.prior(evidence) * torch.where(
            labels.unsqueeze(1) >= 0, self.transition.T[labels.clamp(min=0)], 1
        )
        return joint / joint.sum(1, keepdim=True)


def find_shared_mistakes(evidence: Tensor, labels: Tensor) -> Mistakes | None:
    """What mistakes neighbours share by leave-own-out `evidence` (N, K) of the given labels, if any.

    `labels` below 0 mean unlabelled.
    """
    labelled = labels >= 0
    if evidence.shape[1] < 2 or not bool(labelled.any()):
        return None
    evidence, labels = evidence[labelled], labels[labelled]
    undone = fit_mistakes(evidence, labels, undo=True)
    if undone.preference is None:
        return None
    plain = fit_mistakes(evidence, labels, undo=False).log_likelihood
    return undone if is_clearly_likelier(undone.log_likelihood, plain) else None


def is_clearly_likelier(undone: float, plain: float) -> bool:
    """Whether undoing shared mistakes makes the given labels so much likelier that there must be some."""
    return undone - plain > min(WORTH, -SHARE * plain)


def fit_mistakes(evidence: Tensor, labels: Tensor, *, undo: bool) -> Mistakes:
    """T and t for the given labels, all of them ≥ 0; with `undo`, from evidence without shared mistakes."""
    n, n_classes = evidence.shape
    top, guess = evidence.max(1)
    sure = most_confident(top, guess, n_classes)
    given = one_hot(labels, n_classes).to(evidence.dtype)
    counts = one_hot(guess[sure], n_classes).to(evidence.dtype).T @ given[sure]
    spaced = torch.linspace(0, n - 1, min(n, FIT_SAMPLES), dtype=torch.float64, device=labels.device)
    some = spaced.round().long()
    for _ in range(ROUNDS):
        transition = shrink(counts)
        preference = find_preference(transition, counts.sum(1)) if undo else None
        log_mix, to_given = _log(unmix(evidence, preference)), transition.T[labels]
        fits = [_mean_log((t * log_mix[some]).softmax(1) * to_given[some]) for t in TEMPERATURES]
        temperature = TEMPERATURES[int(torch.stack(fits).argmax())]
        joint = (temperature * log_mix).softmax(1) * to_given
        counts = (joint / joint.sum(1, keepdim=True)).T @ given
    return Mistakes(transition, preference, temperature, float(_mean_log(joint)))


def unmix(evidence: Tensor, preference: Tensor | None) -> Tensor:
    """The mix of classes whose labels, given by `preference`, would look like each row of `evidence`.

    Found by expectation maximisation from the evidence itself; rows keep their sums.
    """
    if preference is None:
        return evidence
    mix = evidence
    for _ in range(STEPS):
        mix = mix * ((evidence / (mix @ preference).clamp(min=FLOOR**2)) @ preference.T)
    return mix


def find_preference(transition: Tensor, sizes: Tensor) -> Tensor | None:
    """T without the wrong labels no likelier than most, rows to sum 1; None where no others are left.

    `sizes` says how many samples each row of T comes from.
    """
    right = torch.eye(len(transition), dtype=torch.bool, device=transition.device)
    most = COMMON * transition[~right].median()
    usual = torch.maximum(most, BY_CHANCE / sizes.clamp(min=1)).unsqueeze(1)
    preferred = torch.where(right, transition, (transition - usual).clamp(min=0))
    if not bool(preferred[~right].any()):
        return None
    return preferred / preferred.sum(1, keepdim=True)


def most_confident(top: Tensor, guess: Tensor, n_classes: int) -> Tensor:
    """The samples that start T: some of each class, or one that is half mislabelled would have none."""
    order = top.argsort(descending=True, stable=True)
    order = order[guess[order].argsort(stable=True)]
    sizes = torch.bincount(guess, minlength=n_classes)
    of_class = guess[order]
    rank = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[of_class]
    return order[rank < CONFIDENT_SHARE * sizes[of_class].double()]


def shrink(counts: Tensor) -> Tensor:
    """Rows to sum 1, each shrunk towards symmetric noise at the overall rate."""
    n_classes = len(counts)
    stay = (counts.trace() / counts.sum()).clamp(0.05, 0.999)
    right = torch.eye(n_classes, dtype=torch.bool, device=counts.device)
    symmetric = torch.where(right, stay, (1 - stay) / (n_classes - 1))
    return (counts + PRIOR_COUNT * symmetric) / (counts.sum(1, keepdim=True) + PRIOR_COUNT)


def _log(evidence: Tensor) -> Tensor:
    return evidence.clamp(min=FLOOR).log()


def _mean_log(joint: Tensor) -> Tensor:
    return joint.sum(1).log().mean()
