"""A model of how the given labels came about, fitted to nothing but those labels and the graph's evidence.

    p(y | e) = (1 − o) Σ_c q_c T[c, y] + o · u[y]

q = softmax(t · log π) is the chance of each class by the evidence e of a sample's neighbours, T the chance
that class c was labelled y, o = sigmoid(a + b · m) the chance that the sample is of no class at all (m:
how strongly the evidence points anywhere), and u the label shares, which such a sample's label follows.

The neighbours' labels are no better than any others. Noise that goes everywhere alike leaves their order as
it is; but where four of ten trucks are called cars, the neighbours of a truck say so too. π is e with that
undone: the mix of classes which, labelled by the part of T that prefers some labels to others, gives e.
Classes that merely look alike could be taken for such noise; so it is done only where it makes the given
labels clearly likelier.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import expit, softmax

from ..graph.noise_model import (
    FIT_SAMPLES,
    FLOOR,
    ROUNDS,
    SHARE,
    STEPS,
    find_preference,
    most_confident,
    shrink,
)
from .inputs import Codes

Array: TypeAlias = npt.NDArray[np.float64]

START = np.array([0.0, -1.5, -1.0])
"""log t, a, b before any data: evidence as it is, few OOD, less evidence means more of them."""
PRIOR_WEIGHT = 1.5
"""Weight of the squared distance from START against the log-likelihood: a prior of deviation 0.6."""
CELLS = 2**17
"""Samples times classes that are worked on at a time: few enough that a cache holds them."""


class Posterior(NamedTuple):
    """What each sample is, given its evidence and its label: rows of `classes` plus `ood` sum to 1."""

    classes: Array
    ood: Array


@dataclass(frozen=True)
class LabelModel:
    """The fitted model; arrays as in the formula above."""

    temperature: float
    intercept: float
    slope: float
    centre: float
    spread: float
    transition: Array
    """Fastest where a column lies together in memory: one is looked up for every label."""
    shares: Array
    log_likelihood: float
    """Mean log p of the given labels: what k is chosen by."""
    preference: csr_array | None = None
    """The part of T that prefers some labels to others, or None where none does."""
    undid: bool = False
    """Whether any round of the fit undid something: if not, it is the same model without `undo`."""

    def prior(self, evidence: Array, ood: Array | None = None) -> Posterior:
        """What each sample is by its evidence alone; `ood` stands for o where it is known from elsewhere."""
        q = softmax(self.temperature * _log(unmix(evidence, self.preference)), axis=1)
        o = ood
        if o is None:
            margin = _log(evidence.max(1))
            o = expit(self.intercept + self.slope * (margin - self.centre) / self.spread)
        return Posterior((1 - o)[:, None] * q, o)

    def posterior(self, evidence: Array, labels: Codes, ood: Array | None = None) -> Posterior:
        """What each sample is, its given label taken into account; −1 means unlabelled."""
        whole = Posterior(np.empty(evidence.shape), np.empty(len(labels)))
        for part in pieces(*evidence.shape):
            prior = self.prior(evidence[part], ood[part] if ood is not None else None)
            whole.classes[part], whole.ood[part] = self.update(prior, labels[part])
        return whole

    def update(self, prior: Posterior, labels: Codes) -> Posterior:
        """The same from any belief that does not know the given labels yet."""
        given = np.maximum(labels, 0)
        classes = prior.classes * self.transition.T[given]
        ood = prior.ood * self.shares[given]
        total = classes.sum(1) + ood
        unlabelled = labels < 0
        return Posterior(
            np.where(unlabelled[:, None], prior.classes, classes / total[:, None]),
            np.where(unlabelled, prior.ood, ood / total),
        )


def pieces(n: int, n_classes: int) -> Iterator[slice]:
    """Slices of `n` samples, so few each that a row of `n_classes` for every one stays in the cache."""
    step = max(CELLS // n_classes, 1)
    return (slice(start, start + step) for start in range(0, n, step))


def fit_label_model(evidence: Array, labels: Codes, n_classes: int, *, undo: bool) -> LabelModel:
    """Fit T, t, a and b to the given labels of the labelled samples (`labels` ≥ 0).

    With `undo`, mistakes that neighbours share are undone; whether that is called for, likelihood must say.
    """
    labelled = labels >= 0
    e, y = (evidence, labels) if labelled.all() else (evidence[labelled], labels[labelled])
    margin = _log(e.max(1))
    centre, spread = float(margin.mean()), float(margin.std())
    m = (margin - centre) / spread if spread > 1e-9 else np.zeros_like(margin)
    shares = np.bincount(y, minlength=n_classes) / len(y)
    guess = e.argmax(1)
    confident = most_confident(torch.from_numpy(margin), torch.from_numpy(guess), n_classes).numpy()
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (guess[confident], y[confident]), 1)
    by_label = csr_array((np.ones(len(y)), (y, np.arange(len(y)))), shape=(n_classes, len(y)))
    theta, undid = START, False
    some = np.unique(np.linspace(0, len(y) - 1, min(len(y), FIT_SAMPLES)).round().astype(np.int64))
    heard = e if len(some) == len(e) else e[some]
    classes = np.empty_like(e)
    for _ in range(ROUNDS):
        transition = np.asfortranarray(shrink(torch.from_numpy(counts)).numpy())
        preference = _find_preference(transition, counts.sum(1)) if undo else None
        undid |= preference is not None
        log_mix = _log(unmix(heard, preference))
        log_mix -= log_mix.max(1, keepdims=True)
        arguments = (log_mix, m[some], y[some], transition, shares)
        theta = minimize(_objective, theta, args=arguments, jac=True, method="L-BFGS-B").x
        model = LabelModel(
            temperature=float(np.exp(theta[0])),
            intercept=float(theta[1]),
            slope=float(theta[2]),
            centre=centre,
            spread=spread if spread > 1e-9 else 1.0,
            transition=transition,
            shares=shares,
            log_likelihood=0.0,
            preference=preference,
            undid=undid,
        )
        for part in pieces(*e.shape):
            classes[part] = model.posterior(e[part], y[part]).classes
        counts = np.asarray((by_label @ classes).T)
    likelihood = np.empty(len(y))
    for part in pieces(*e.shape):
        prior = model.prior(e[part])
        likelihood[part] = (prior.classes * transition.T[y[part]]).sum(1) + prior.ood * shares[y[part]]
    return replace(model, log_likelihood=float(np.log(likelihood).mean()))


def is_worth(undone: LabelModel, plain: LabelModel) -> bool:
    """Whether undoing shared mistakes makes the given labels so much likelier that there must be some.

    In training less will do: what was undone in vain is judged anew in the next epoch, a verdict is final.
    """
    return undone.log_likelihood - plain.log_likelihood > -SHARE * plain.log_likelihood


def unmix(evidence: Array, preference: csr_array | None) -> Array:
    """The mix of classes whose labels, given by `preference`, would look like each row of `evidence`.

    Found by expectation maximisation from the evidence itself; rows keep their sums.
    """
    if preference is None:
        return evidence
    back = csr_array(preference.T)
    mixes = np.empty_like(evidence)
    for part in pieces(*evidence.shape):
        heard = np.ascontiguousarray(evidence[part].T)
        mix = heard
        for _ in range(STEPS):
            mix = mix * (preference @ (heard / np.maximum(back @ mix, FLOOR**2)))
        mixes[part] = mix.T
    return mixes


def class_signal(evidence: Array, labels: Codes) -> float:
    """How far the neighbours' majority agrees with the given labels beyond chance, in standard errors."""
    heard = (labels >= 0) & (evidence.max(1) > 1 / evidence.shape[1] + 1e-9)
    if not heard.any():
        return 0.0
    y, guess = labels[heard], evidence[heard].argmax(1)
    n_classes = evidence.shape[1]
    given, guessed = (np.bincount(part, minlength=n_classes) for part in (y, guess))
    n = len(y)
    chance = float(given @ guessed) / n**2
    # Mean and variance of the agreement when the labels are shuffled over the samples.
    away = np.eye(n_classes) - (given / n)[:, None] - (guessed / n)[None, :] + chance
    variance = float(guessed @ away**2 @ given) / max(n - 1, 1)
    return float((int((y == guess).sum()) - n * chance) / np.sqrt(variance)) if variance > 0 else 0.0


def _log(evidence: Array) -> Array:
    floored = np.maximum(evidence, FLOOR)
    return np.asarray(np.log(floored, out=floored))


def _find_preference(transition: Array, sizes: Array) -> csr_array | None:
    """As `find_preference`; sparse, as of many classes each is taken for few."""
    found = find_preference(torch.from_numpy(transition), torch.from_numpy(sizes))
    return csr_array(found.numpy()) if found is not None else None


def _objective(
    theta: Array, log_mix: Array, m: Array, labels: Codes, transition: Array, shares: Array
) -> tuple[float, Array]:
    """Negative mean log-likelihood with its penalty, and the gradient in (log t, a, b).

    A row of `log_mix` may be shifted: with its largest at 0, nothing overflows.
    """
    t, share = np.exp(theta[0]), shares[labels]
    o = expit(theta[1] + theta[2] * m)
    fit, slope_t = np.empty(len(m)), np.empty(len(m))
    for part in pieces(*log_mix.shape):
        x = log_mix[part]
        weights = np.exp(t * x)
        to_given = weights * transition.T[labels[part]]
        total = weights.sum(1)
        fit[part] = to_given.sum(1) / total
        joint, alone = (np.einsum("nc,nc->n", factor, x) / total for factor in (to_given, weights))
        slope_t[part] = joint - fit[part] * alone
    p = (1 - o) * fit + o * share
    slope_o = o * (1 - o) * (share - fit)
    gradient = -np.array([np.mean((1 - o) * slope_t * t / p), np.mean(slope_o / p), np.mean(slope_o * m / p)])
    away, penalty = theta - START, PRIOR_WEIGHT / len(m)
    return float(penalty * (away @ away) - np.log(p).mean()), gradient + 2 * penalty * away
