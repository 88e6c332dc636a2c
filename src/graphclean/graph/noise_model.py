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
"""Alternations between T and the other parameters."""
CONFIDENT_SHARE = 0.6
"""Fraction of the samples of each class, the most confident by evidence, that initialize T."""
PRIOR_COUNT = 2.0
"""Pseudo-count of symmetric noise towards which each row of T is shrunk."""
FLOOR = 1e-6
"""Lower bound on evidence, so that its logarithm is finite."""
COMMON = 2.0
"""Wrong labels with up to this many times the median probability count as symmetric noise."""
BY_CHANCE = 3.0
"""So do wrong labels that no more than this many samples of a class have."""
STEPS = 10
"""Expectation-maximization steps of the correction."""
GAIN_SHARE = 0.01
"""Fraction of the mean −log p that the correction must gain."""
TRAINING_GAIN = 0.004
"""Gain in mean log p that suffices in training, if smaller: the next epoch decides again, whereas a verdict
is final. With similar classes the correction gains less.
"""
TEMPERATURES = tuple(2 ** (step / 2) for step in range(-4, 7))
"""Candidates for t in training: a quarter to eight."""
START = (0.0, -1.5, -1.0)
"""Initial log t, a, b: evidence unchanged, few OOD samples, and weaker evidence means OOD."""
PRIOR_WEIGHT = 1.5
"""Weight of the squared distance from START against the log-likelihood: a prior with standard deviation 0.6.
"""
FIT_SAMPLES = 20_000
"""Evenly spaced samples used to fit the few scalar parameters."""
NEVER = -30.0
"""Value of a at which no sample counts as OOD."""
SURE_QUANTILE = 0.9
"""Quantile of the evidence at which no sample counts as OOD.

Uniform noise and a share of OOD that is the same for all evidence make any label as likely, so that it is
taken for noise, which is more common; what is left is OOD because less evidence means more of it. Of 0.5,
0.9 and 1 the one with the least error of the OOD rate on digits, clouds and images of CIFAR-10 with 0 to
20 % of OOD.
"""
BLOCK_CELLS = 2**17
"""Samples times classes processed at once on the CPU, so that they fit its cache."""
DENSE_CLASSES = 32
"""With more classes, each is confused with few others, and the CPU uses sparse products."""


class Probabilities(NamedTuple):
    """Class probabilities (`classes`) and P(`ood`) of each sample; together they sum to 1."""

    classes: Tensor
    ood: Tensor


@dataclass(frozen=True)
class NoiseModel:
    """The fitted model with the parameters of the formula above."""

    transition: Tensor
    """T: rows are classes, columns labels. Fastest if columns are contiguous in memory."""
    shares: Tensor
    """u."""
    temperature: float
    intercept: float = -math.inf
    """a; −∞ if no sample counts as OOD."""
    slope: float = 0.0
    center: float = 0.0
    spread: float = 1.0
    """With `center`: mean and standard deviation of the log of the largest evidence, which standardize m."""
    floor: float = 0.0
    """The part of sigmoid(a + b · m) that all samples share; it counts as noise in T."""
    doubt: float = 1.0
    """Factor on o: less than 1 if nothing shows that there is OOD."""
    asymmetric: Tensor | None = None
    """The asymmetric part of T, rows summing to 1; None if there is none."""
    corrected: bool = False
    """Whether any round corrected evidence; if not, the model equals the one fitted without `correct`."""
    log_likelihood: float = -math.inf
    """Mean log p of the given labels."""

    def prior(self, evidence: Tensor, ood: Tensor | None = None) -> Probabilities:
        """Class and OOD probabilities from the evidence alone; `ood` replaces o if it is known from
        elsewhere.
        """
        log_mix = _log(correct_evidence(evidence, self.asymmetric))
        return self._prior(log_mix, self._ood(_log(evidence.amax(1))) if ood is None else ood)

    def posterior(self, evidence: Tensor, labels: Tensor, ood: Tensor | None = None) -> Probabilities:
        """Class and OOD probabilities given the label as well; labels below 0 mean unlabeled."""
        whole = Probabilities(torch.empty_like(evidence), torch.empty_like(evidence[:, 0]))
        for part in _parts(evidence):
            prior = self.prior(evidence[part], ood[part] if ood is not None else None)
            whole.classes[part], whole.ood[part] = self.update(prior, labels[part])
        return whole

    def log_p(self, evidence: Tensor, labels: Tensor) -> Tensor:
        """log p of each given label; 0 where unlabeled."""
        parts = [self.log_p_of(self.prior(evidence[part]), labels[part]) for part in _parts(evidence)]
        return torch.cat(parts)

    def log_p_of(self, prior: Probabilities, labels: Tensor) -> Tensor:
        """The same for given probabilities that do not take the label into account."""
        return self._join(prior, labels)[1].log()

    def update(self, prior: Probabilities, labels: Tensor) -> Probabilities:
        """The posterior for given probabilities that do not take the label into account yet."""
        joint, total = self._join(prior, labels)
        return Probabilities(joint.classes / total.unsqueeze(1), joint.ood / total)

    def _ood(self, margin: Tensor) -> Tensor:
        o = torch.sigmoid(self.intercept + self.slope * (margin - self.center) / self.spread)
        return ((o - self.floor) / (1 - self.floor)).clamp_(min=0) * self.doubt

    def _prior(self, log_mix: Tensor, ood: Tensor) -> Probabilities:
        return Probabilities((1 - ood).unsqueeze(1) * (self.temperature * log_mix).softmax(1), ood)

    def _join(self, prior: Probabilities, labels: Tensor) -> tuple[Probabilities, Tensor]:
        """The joint probability of each class, or OOD, and the given label, and their sum p."""
        labeled, given = labels >= 0, labels.clamp(min=0)
        to_given = torch.where(labeled.unsqueeze(1), self.transition.T.index_select(0, given), 1)
        classes, ood = prior.classes * to_given, prior.ood * torch.where(labeled, self.shares[given], 1)
        return Probabilities(classes, ood), classes.sum(1) + ood


def find_class_dependent_noise(evidence: Tensor, labels: Tensor) -> NoiseModel | None:
    """The noise model for training if leave-one-out `evidence` (N, K) of the given labels needs correction,
    else None.

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
    """Whether the correction makes the given labels so much more likely that the noise must be
    class-dependent.
    """
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
    """Fit all parameters to the given labels; samples with labels below 0 (unlabeled) are left out.

    `correct` removes class-dependent noise from the evidence; whether that is warranted must be decided by
    likelihood. Without `ood`, no sample counts as OOD. With `grid`, t is one of TEMPERATURES. `decided` holds
    human decisions: a class or OOD (the number of classes), and −1 elsewhere: T counts the sample as such,
    and a and b are fitted to it.
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
    """The inferred probabilities, replaced by certainty for samples that a person has `decided` on."""
    n_classes = inferred.classes.shape[1]
    certain = one_hot(decided.clamp(min=0), n_classes + 1).to(inferred.classes)
    held = (decided >= 0).unsqueeze(1)
    return Probabilities(
        torch.where(held, certain[:, :-1], inferred.classes),
        torch.where(held[:, 0], certain[:, -1], inferred.ood),
    )


def correct_evidence(evidence: Tensor, asymmetric: Tensor | None) -> Tensor:
    """The mix of classes whose labels, given by the `asymmetric` part of T, would produce each row of
    evidence.

    Found by expectation maximization from the evidence itself; row sums are preserved.
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
    """T without wrong labels that are no more likely than most, rows summing to 1; None if no others remain.

    `sizes` is the number of samples behind each row of T.
    """
    right = torch.eye(len(transition), dtype=torch.bool, device=transition.device)
    most = COMMON * transition[~right].median()
    usual = torch.maximum(most, BY_CHANCE / sizes.clamp(min=1)).unsqueeze(1)
    asymmetric_part = torch.where(right, transition, (transition - usual).clamp(min=0))
    if not bool(asymmetric_part[~right].any()):
        return None
    return asymmetric_part / asymmetric_part.sum(1, keepdim=True)


def most_confident(top: Tensor, guess: Tensor, n_classes: int) -> Tensor:
    """The samples that initialize T: some of each class, since a half-mislabeled class would otherwise have
    none.
    """
    order = top.argsort(descending=True, stable=True)
    order = order[guess[order].argsort(stable=True)]
    sizes = torch.bincount(guess, minlength=n_classes)
    of_class = guess[order]
    rank = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[of_class]
    return order[rank < CONFIDENT_SHARE * sizes[of_class].double()]


def shrink(counts: Tensor) -> Tensor:
    """Normalize rows to sum 1, each shrunk towards symmetric noise at the overall rate."""
    n_classes = len(counts)
    stay = (counts.trace() / counts.sum()).clamp(0.05, 0.999)
    right = torch.eye(n_classes, dtype=torch.bool, device=counts.device)
    symmetric = torch.where(right, stay, (1 - stay) / (n_classes - 1))
    return (counts + PRIOR_COUNT * symmetric) / (counts.sum(1, keepdim=True) + PRIOR_COUNT)


def evenly_spaced(n: int, device: torch.device | None = None) -> Tensor:
    """Evenly spaced samples out of `n`, enough to fit a few scalars."""
    spaced = torch.linspace(0, n - 1, min(n, FIT_SAMPLES), dtype=torch.float64, device=device)
    return spaced.round().long()


def pieces(n: int, n_classes: int) -> Iterator[slice]:
    """Slices of `n` samples small enough that (slice, `n_classes`) stays in the cache."""
    step = max(BLOCK_CELLS // n_classes, 1)
    return (slice(start, start + step) for start in range(0, n, step))


def _choose_temperature(
    model: NoiseModel, log_mix: Tensor, _: Tensor, labels: Tensor, __: Probabilities | None
) -> NoiseModel:
    """The t of the grid under which the given labels are most likely."""
    to_given = model.transition.T.index_select(0, labels)
    fits = [((t * log_mix).softmax(1) * to_given).sum(1).log().mean() for t in TEMPERATURES]
    return replace(model, temperature=TEMPERATURES[int(torch.stack(fits).argmax())])


def _fit_by_gradient(
    model: NoiseModel, log_mix: Tensor, margin: Tensor, labels: Tensor, possible: Probabilities | None
) -> NoiseModel:
    """Fit t, a and b, starting from the last round; `possible` is 0 for classes that are ruled out. Without
    OOD, t alone.
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
    """Move the part of o that all samples share to T, without changing the probability of any label.

    (1 − o) Σ q T + o u is unchanged for o = f + (1 − f) o', T' = (1 − f) T + f u.
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

    Rows of `log_mix` may be shifted: with a maximum of 0 nothing overflows.
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
    """Number of samples of each class (rows) with each label (columns)."""
    n_classes = classes.shape[1]
    if _is_sparse(classes):
        return classes.new_zeros(n_classes, n_classes).index_add_(0, labels, classes).T
    return classes.T @ torch.zeros_like(classes).scatter_(1, labels.unsqueeze(1), 1)


def _for_products(matrix: Tensor) -> Tensor:
    """The memory layout that multiplies fastest."""
    if not _is_sparse(matrix):
        return matrix
    rows, cols = matrix.nonzero(as_tuple=True)
    return from_edges(rows, cols, matrix[rows, cols], len(matrix))


def _is_sparse(of_classes: Tensor) -> bool:
    return of_classes.device.type == "cpu" and of_classes.shape[1] > DENSE_CLASSES


def _parts(rows: Tensor) -> Iterator[slice]:
    """On the CPU, as many rows at a time as fit its cache; elsewhere all rows."""
    return pieces(*rows.shape) if rows.device.type == "cpu" else iter([slice(None)])


def _log(evidence: Tensor) -> Tensor:
    return evidence.clamp(min=FLOOR).log_()
