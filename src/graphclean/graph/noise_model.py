"""How the given labels came about: a model fitted to nothing but those labels and the graph's evidence.

    p(y | e) = (1 − o) Σ_c q_c T[c, y] + o · u[y],  q = softmax(t · log π)

q is the probability of each class by the leave-one-out evidence e of a sample's neighbors, T the transition
matrix: the probability that class c was labeled y. o = sigmoid(a + b · m) is the probability that the sample
is OOD (m: how strongly the evidence points anywhere), and u the label fractions, which the label of such a
sample follows.

The neighbors' labels are no better than any others. Noise that is the same for all classes leaves their
order in e as it is; but where four of ten trucks are labeled car, so are the neighbors of a truck. π is e
corrected for such class-dependent noise: the mix of classes which, labeled by the asymmetric part of T, gives
e. Classes that merely look alike could be taken for it, so the correction must make the given labels clearly
more likely.

A share of OOD that is the same for all evidence can't be told from uniform noise by labels: it counts as
noise, and o is what is left of the sigmoid.

Verdicts fit t, a and b by L-BFGS. Training fits before every epoch, on any device: it knows OOD samples by
other means, and takes t from a grid, which a GPU evaluates without waiting for an optimizer on the host.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from scipy.optimize import minimize
from torch import Tensor
from torch.nn.functional import one_hot

from .csr import from_edges

ROUNDS = 4
"""Times T and what else there is are fitted in turn."""
CONFIDENT_SHARE = 0.6
"""Share of the samples of each class by evidence, the most confident, that start T."""
PRIOR_COUNT = 2.0
"""Samples' worth of symmetric noise that each row of T is shrunk by."""
FLOOR = 1e-6
"""Evidence counts as at least this much, so that its logarithm is finite."""
COMMON = 2.0
"""Probabilities of a wrong label up to so many times their median count as symmetric noise."""
BY_CHANCE = 3.0
"""As does a wrong label that no more than so many samples of a class have."""
STEPS = 10
"""Of expectation maximization, to correct evidence."""
GAIN_SHARE = 0.01
"""Share of −log p that the correction must gain on average."""
TRAINING_GAIN = 0.004
"""Mean log p that is enough in training, if less: the next epoch asks again, a verdict is final.

With classes that look alike the correction gains less.
"""
TEMPERATURES = tuple(2 ** (step / 2) for step in range(-4, 7))
"""Among which t is chosen in training: a quarter to eight."""
START = (0.0, -1.5, -1.0)
"""log t, a, b before any data: evidence as it is, few OOD, less evidence means more of them."""
PRIOR_WEIGHT = 1.5
"""Weight of the squared distance from START against the log-likelihood: a prior of deviation 0.6."""
FIT_SAMPLES = 20_000
"""Samples that fit t and the like, evenly spaced; a few numbers need no more."""
NEVER = -30.0
"""a where no sample counts as OOD: so small a probability is none."""
SURE_QUANTILE = 0.9
"""Quantile of the evidence at which no sample counts as OOD.

Uniform noise and a share of OOD that is the same for all evidence make any label as likely, so that it is
taken for noise, which is more common; what is left is OOD because less evidence means more of it. Of 0.5,
0.9 and 1 the one with the least error of the OOD rate on digits, clouds and images of CIFAR-10 with 0 to
20 % of OOD.
"""
BLOCK_CELLS = 2**17
"""Samples times classes that the CPU works on at a time: few enough that its cache holds them."""
DENSE_CLASSES = 32
"""Of more, each is taken for few others: the CPU multiplies sparse matrices."""


class Probabilities(NamedTuple):
    """What each sample is: rows of `classes` plus `ood` sum to 1."""

    classes: Tensor
    ood: Tensor


@dataclass(frozen=True)
class NoiseModel:
    """The fitted model, as in the formula above."""

    transition: Tensor
    """T: rows are classes, columns labels. Fastest where a column lies together in memory."""
    shares: Tensor
    """u."""
    temperature: float
    intercept: float = -math.inf
    """a; −∞ where no sample counts as OOD."""
    slope: float = 0.0
    center: float = 0.0
    spread: float = 1.0
    """With `center`: mean and deviation of the log of the largest evidence, which standardize m."""
    floor: float = 0.0
    """What all samples share of sigmoid(a + b · m): it counts as noise in T."""
    doubt: float = 1.0
    """What o is multiplied by: less than 1 where nothing shows that there is OOD."""
    asymmetric: Tensor | None = None
    """The asymmetric part of T, rows summing to 1; None where there is none."""
    corrected: bool = False
    """Whether any round of the fit corrected evidence: if not, it is the same model without `correct`."""
    log_likelihood: float = -math.inf
    """Mean log p of the given labels."""

    def prior(self, evidence: Tensor, ood: Tensor | None = None) -> Probabilities:
        """What each sample is by its evidence alone; `ood` replaces o where it is known from elsewhere."""
        log_mix = _log(correct_evidence(evidence, self.asymmetric))
        return self._prior(log_mix, self._ood(_log(evidence.amax(1))) if ood is None else ood)

    def posterior(self, evidence: Tensor, labels: Tensor, ood: Tensor | None = None) -> Probabilities:
        """What each sample is, its given label taken into account; below 0 means unlabeled."""
        whole = Probabilities(torch.empty_like(evidence), torch.empty_like(evidence[:, 0]))
        for part in _parts(evidence):
            prior = self.prior(evidence[part], ood[part] if ood is not None else None)
            whole.classes[part], whole.ood[part] = self.update(prior, labels[part])
        return whole

    def log_p(self, evidence: Tensor, labels: Tensor) -> Tensor:
        """log p of each given label; 0 where there is none."""
        parts = [self.log_p_of(self.prior(evidence[part]), labels[part]) for part in _parts(evidence)]
        return torch.cat(parts)

    def log_p_of(self, prior: Probabilities, labels: Tensor) -> Tensor:
        """The same by any probabilities that do not know the given labels."""
        return self._join(prior, labels)[1].log()

    def update(self, prior: Probabilities, labels: Tensor) -> Probabilities:
        """The same from any probabilities that do not know the given labels yet."""
        joint, total = self._join(prior, labels)
        return Probabilities(joint.classes / total.unsqueeze(1), joint.ood / total)

    def _ood(self, margin: Tensor) -> Tensor:
        o = torch.sigmoid(self.intercept + self.slope * (margin - self.center) / self.spread)
        return ((o - self.floor) / (1 - self.floor)).clamp_(min=0) * self.doubt

    def _prior(self, log_mix: Tensor, ood: Tensor) -> Probabilities:
        return Probabilities((1 - ood).unsqueeze(1) * (self.temperature * log_mix).softmax(1), ood)

    def _join(self, prior: Probabilities, labels: Tensor) -> tuple[Probabilities, Tensor]:
        """The probability of each class or OOD together with the given label, and their sum p."""
        labeled, given = labels >= 0, labels.clamp(min=0)
        to_given = torch.where(labeled.unsqueeze(1), self.transition.T.index_select(0, given), 1)
        classes, ood = prior.classes * to_given, prior.ood * torch.where(labeled, self.shares[given], 1)
        return Probabilities(classes, ood), classes.sum(1) + ood


def find_class_dependent_noise(evidence: Tensor, labels: Tensor) -> NoiseModel | None:
    """The model for training where leave-one-out `evidence` (N, K) of the given labels must be corrected.

    `labels` below 0 mean unlabeled.
    """
    if evidence.shape[1] < 2 or not bool((labels >= 0).any()):
        return None
    corrected = fit_noise_model(evidence, labels, correct=True, ood=False, grid=True)
    if corrected.asymmetric is None:
        return None
    plain = fit_noise_model(evidence, labels, correct=False, ood=False, grid=True)
    return corrected if gains_enough(corrected, plain, TRAINING_GAIN) else None


def gains_enough(corrected: NoiseModel, plain: NoiseModel, enough: float = math.inf) -> bool:
    """Whether the correction makes the given labels so much more likely that noise depends on the class."""
    gain = corrected.log_likelihood - plain.log_likelihood
    return gain > min(enough, -GAIN_SHARE * plain.log_likelihood)


def fit_noise_model(
    evidence: Tensor,
    labels: Tensor,
    *,
    correct: bool,
    ood: bool,
    decided: Tensor | None = None,
    grid: bool = False,
) -> NoiseModel:
    """Fit all parameters to the given labels; those below 0 mean unlabeled, and are left out.

    `correct` takes class-dependent noise out of the evidence; whether that is called for, likelihood must
    tell. Without `ood` no sample counts as OOD. With `grid`, t is one of TEMPERATURES. `decided` holds what
    a person found a sample to be, a class or OOD (the number of classes), and −1 elsewhere: T counts it as
    that, and a and b are fitted to it.
    """
    labeled = labels >= 0
    if not bool(labeled.all()):
        evidence, labels = evidence[labeled], labels[labeled]
        decided = decided[labeled] if decided is not None else None
    n, n_classes = evidence.shape
    # T is of the labels as given; evidence comes from what they are by now.
    now = labels
    if decided is not None:
        now = torch.where((decided >= 0) & (decided < n_classes), decided, labels)
    top, guess = evidence.max(1)
    sure = most_confident(top, guess, n_classes)
    pairs = (guess[sure] * n_classes + codes[sure] for codes in (labels, now))
    counts, seen = (
        torch.bincount(pair, minlength=n_classes**2).reshape(n_classes, n_classes).to(evidence.dtype)
        for pair in pairs
    )
    margin = _log(top)
    shares = torch.bincount(labels, minlength=n_classes).to(evidence.dtype) / n
    model = NoiseModel(shrink(counts), shares, temperature=1.0)
    if ood:
        center, spread = float(margin.mean()), float(margin.std(correction=0))
        _, intercept, slope = START
        model = replace(
            model,
            intercept=intercept,
            slope=slope,
            center=center,
            spread=spread if spread > 1e-9 else 1.0,
        )
    some = slice(None) if n <= FIT_SAMPLES else evenly_spaced(n, evidence.device)
    possible = None
    if decided is not None:
        anything = Probabilities(torch.ones_like(evidence[some]), torch.ones_like(top[some]))
        possible = hold_decided(anything, decided[some])
    log_mix, log_p = torch.empty_like(evidence), torch.empty_like(top)
    for _ in range(ROUNDS):
        transition = shrink(counts).T.contiguous().T
        asymmetric = None
        if correct:
            asymmetric = find_asymmetric_part(shrink(seen).T.contiguous().T, seen.sum(1))
        model = replace(
            model,
            transition=transition,
            asymmetric=asymmetric,
            corrected=model.corrected or asymmetric is not None,
        )
        for part in _parts(evidence):
            log_mix[part] = _log(correct_evidence(evidence[part], asymmetric))
        fit = _choose_temperature if grid else _fit_by_gradient
        model = fit(model, log_mix[some], margin[some], labels[some], possible)
        for part in _parts(log_mix):
            prior = model._prior(log_mix[part], model._ood(margin[part]))
            joint, total = model._join(prior, labels[part])
            log_p[part] = total.log()
            log_mix[part] = joint.classes / total.unsqueeze(1)  # the posterior, where memory is at hand
        if decided is not None:
            log_mix = hold_decided(Probabilities(log_mix, top), decided).classes
        counts = _count(log_mix, labels)
        seen = counts if decided is None else _count(log_mix, now)
    return replace(model, log_likelihood=float(log_p.mean()))


def hold_decided(inferred: Probabilities, decided: Tensor) -> Probabilities:
    """What was inferred, but for the samples that a person `decided` on: these are what was decided."""
    n_classes = inferred.classes.shape[1]
    certain = one_hot(decided.clamp(min=0), n_classes + 1).to(inferred.classes)
    held = (decided >= 0).unsqueeze(1)
    return Probabilities(
        torch.where(held, certain[:, :-1], inferred.classes),
        torch.where(held[:, 0], certain[:, -1], inferred.ood),
    )


def correct_evidence(evidence: Tensor, asymmetric: Tensor | None) -> Tensor:
    """The mix of classes whose labels, given by the `asymmetric` part of T, would look like each row.

    Found by expectation maximization from the evidence itself; rows keep their sums.
    """
    if asymmetric is None:
        return evidence
    to_classes, to_labels = _for_products(asymmetric), _for_products(asymmetric.T)
    wanted = evidence.T.contiguous()
    mix = wanted
    for _ in range(STEPS):
        mix = mix * (to_classes @ (wanted / (to_labels @ mix).clamp_(min=FLOOR**2)))
    return mix.T.contiguous()


def find_asymmetric_part(transition: Tensor, sizes: Tensor) -> Tensor | None:
    """T without the wrong labels no likelier than most, rows to sum 1; None where no others are left.

    `sizes` says how many samples each row of T comes from.
    """
    right = torch.eye(len(transition), dtype=torch.bool, device=transition.device)
    most = COMMON * transition[~right].median()
    usual = torch.maximum(most, BY_CHANCE / sizes.clamp(min=1)).unsqueeze(1)
    asymmetric_part = torch.where(right, transition, (transition - usual).clamp(min=0))
    if not bool(asymmetric_part[~right].any()):
        return None
    return asymmetric_part / asymmetric_part.sum(1, keepdim=True)


def most_confident(top: Tensor, guess: Tensor, n_classes: int) -> Tensor:
    """The samples that start T: some of each class, or one that is half mislabeled would have none."""
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


def evenly_spaced(n: int, device: torch.device | None = None) -> Tensor:
    """The samples of `n` that fit a few numbers."""
    spaced = torch.linspace(0, n - 1, min(n, FIT_SAMPLES), dtype=torch.float64, device=device)
    return spaced.round().long()


def pieces(n: int, n_classes: int) -> Iterator[slice]:
    """Slices of `n` samples, so few each that a row of `n_classes` for every one stays in the cache."""
    step = max(BLOCK_CELLS // n_classes, 1)
    return (slice(start, start + step) for start in range(0, n, step))


def _choose_temperature(
    model: NoiseModel, log_mix: Tensor, _: Tensor, labels: Tensor, __: Probabilities | None
) -> NoiseModel:
    """t of the grid, under which the given labels are most likely."""
    to_given = model.transition.T.index_select(0, labels)
    fits = [((t * log_mix).softmax(1) * to_given).sum(1).log().mean() for t in TEMPERATURES]
    return replace(model, temperature=TEMPERATURES[int(torch.stack(fits).argmax())])


def _fit_by_gradient(
    model: NoiseModel, log_mix: Tensor, margin: Tensor, labels: Tensor, possible: Probabilities | None
) -> NoiseModel:
    """t, a and b, from where the last round left them; `possible` is 0 where a sample is known not to be.

    Without OOD t alone.
    """
    m = (margin - model.center) / model.spread
    shifted = log_mix - log_mix.amax(1, keepdim=True)
    to_label, share = model.transition.T, model.shares[labels]
    classes = None
    if possible is not None:
        classes, share = possible.classes, share * possible.ood
    ood = math.isfinite(model.intercept)
    begin = (math.log(model.temperature), model.intercept if ood else NEVER, model.slope)
    bounds = [(None, None), *((at, at) if not ood else (None, None) for at in begin[1:])]
    arguments = (shifted, m, labels, to_label, share, classes)
    log_t, a, b = minimize(
        _objective, begin, args=arguments, jac=True, method="L-BFGS-B", bounds=bounds
    ).x.tolist()
    model = replace(model, temperature=math.exp(log_t))
    return _move_floor(replace(model, intercept=a, slope=b, floor=0.0), margin) if ood else model


def _move_floor(model: NoiseModel, margin: Tensor) -> NoiseModel:
    """The same probability of every label, with the part of o that all samples share moved to T.

    (1 − o) Σ q T + o u stays as it is for o = f + (1 − f) o', T' = (1 − f) T + f u.
    """
    o = model._ood(margin)
    sure = torch.quantile(margin, SURE_QUANTILE)
    floor = float(model._ood(sure) if model.slope < 0 else o.max())
    return replace(model, floor=floor, transition=(1 - floor) * model.transition + floor * model.shares)


def _objective(
    theta: object,
    log_mix: Tensor,
    m: Tensor,
    labels: Tensor,
    to_label: Tensor,
    share: Tensor,
    possible: Tensor | None = None,
) -> tuple[float, list[float]]:
    """Negative mean log p with its penalty, and the gradient in (log t, a, b).

    A row of `log_mix` may be shifted: with its largest at 0, nothing overflows.
    """
    at = torch.as_tensor(theta, dtype=torch.float64)
    t, a, b = float(at[0].exp()), float(at[1]), float(at[2])
    o = torch.sigmoid(a + b * m)
    fit, slope_t = torch.empty_like(m), torch.empty_like(m)
    ones = m.new_ones(log_mix.shape[1])
    for part in _parts(log_mix):
        x, to_given = log_mix[part], to_label.index_select(0, labels[part])
        if possible is not None:
            to_given *= possible[part]
        weights = (t * x).exp_()
        sloping = weights * x
        total = weights @ ones
        alone = sloping @ ones / total
        fit[part] = weights.mul_(to_given) @ ones / total
        slope_t[part] = sloping.mul_(to_given) @ ones / total - fit[part] * alone
    p = (1 - o) * fit + o * share
    slope_o = o * (1 - o) * (share - fit)
    slopes = torch.stack([(1 - o) * slope_t * t / p, slope_o / p, slope_o * m / p]).mean(1).to(at)
    away, penalty = at - at.new_tensor(START), PRIOR_WEIGHT / len(m)
    value = penalty * (away @ away) - p.log().mean().to(at)
    return float(value), (2 * penalty * away - slopes).tolist()


def _count(classes: Tensor, labels: Tensor) -> Tensor:
    """How many samples of each class, a row each, have each label."""
    n_classes = classes.shape[1]
    if _is_sparse(classes):
        return classes.new_zeros(n_classes, n_classes).index_add_(0, labels, classes).T
    return classes.T @ torch.zeros_like(classes).scatter_(1, labels.unsqueeze(1), 1)


def _for_products(matrix: Tensor) -> Tensor:
    """In the layout that multiplies fastest."""
    if not _is_sparse(matrix):
        return matrix
    rows, cols = matrix.nonzero(as_tuple=True)
    return from_edges(rows, cols, matrix[rows, cols], len(matrix))


def _is_sparse(of_classes: Tensor) -> bool:
    return of_classes.device.type == "cpu" and of_classes.shape[1] > DENSE_CLASSES


def _parts(rows: Tensor) -> Iterator[slice]:
    """On the CPU as many rows at a time as its cache holds, elsewhere all."""
    return pieces(*rows.shape) if rows.device.type == "cpu" else iter([slice(None)])


def _log(evidence: Tensor) -> Tensor:
    return evidence.clamp(min=FLOOR).log_()
