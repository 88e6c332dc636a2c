"""How labels came about: fit, transition matrix and correction, against a model made a sample at a time."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize
from scipy.special import softmax

from graphclean.config import GraphSettings
from graphclean.graph.noise_model import (
    PRIOR_WEIGHT,
    START,
    TEMPERATURES,
    TRAINING_GAIN,
    NoiseModel,
    _move_floor,
    _objective,
    correct_evidence,
    find_asymmetric_part,
    find_class_dependent_noise,
    fit_noise_model,
    gains_enough,
    most_confident,
    pieces,
)


def mixed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Evidence of neighbors of which four in ten of class 0 are called 1, as of 3 and 4 in turn; labels."""
    rng = np.random.default_rng(seed)
    T = np.eye(5)
    T[0, :2], T[3, 3:], T[4, 3:] = (0.6, 0.4), (0.6, 0.4), (0.4, 0.6)
    truth = rng.integers(0, 5, n)
    pure = np.array([rng.dirichlet(0.3 + 6 * np.eye(5)[c]) for c in truth])
    evidence = np.array([rng.multinomial(12, row @ T) for row in pure]) + rng.uniform(0.01, 0.1, (n, 5))
    labels = np.array([rng.choice(5, p=T[c]) for c in truth])
    return evidence / evidence.sum(1, keepdims=True), labels


def brute_transition(counts: np.ndarray) -> np.ndarray:
    """Rows of counts shrunk towards symmetric noise, an entry at a time."""
    k, stay = len(counts), np.trace(counts) / counts.sum()
    T = np.zeros((k, k))
    for c in range(k):
        prior = [stay if y == c else (1 - stay) / (k - 1) for y in range(k)]
        T[c] = (counts[c] + 2 * np.array(prior)) / (counts[c].sum() + 2)
    return T


def brute_fit(
    evidence: np.ndarray, labels: np.ndarray, correct: bool, decided: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """T, t, the mean log-likelihood, and the posterior, a sample at a time."""
    n, k = evidence.shape
    decided = decided if decided is not None else np.full(n, -1)
    now = [d if 0 <= d < k else y for d, y in zip(decided, labels, strict=True)]
    guess, counts, seen = evidence.argmax(1), np.zeros((k, k)), np.zeros((k, k))
    for c in range(k):
        mine = sorted((i for i in range(n) if guess[i] == c), key=lambda i: -evidence[i].max())
        for rank, i in enumerate(mine):
            counts[c, labels[i]] += rank < 0.6 * len(mine)
            seen[c, now[i]] += rank < 0.6 * len(mine)
    for _ in range(4):
        T, S = brute_transition(counts), brute_transition(seen)
        off = sorted(S[c, y] for c in range(k) for y in range(k) if c != y)
        P = np.eye(k)
        for c in range(k):
            usual = max(2 * off[(len(off) - 1) // 2], 3 / seen[c].sum())
            row = np.array([S[c, y] if y == c else max(S[c, y] - usual, 0) for y in range(k)])
            P[c] = row / row.sum() if correct else P[c]
        pi = np.zeros_like(evidence)
        for i, e in enumerate(evidence):
            pi[i] = e
            for _ in range(10):
                pi[i] = pi[i] * (P @ (e / (pi[i] @ P)))
        fits = []
        for t in TEMPERATURES:
            q = np.maximum(pi, 1e-6) ** t
            joint = q / q.sum(1, keepdims=True) * T[:, labels].T
            fits.append((np.log(joint.sum(1)).mean(), t, joint / joint.sum(1, keepdims=True)))
        likelihood, t, posterior = max(fits, key=lambda fit: fit[0])
        held = np.array(
            [row if d < 0 else np.eye(k + 1)[d, :k] for row, d in zip(posterior, decided, strict=True)]
        )
        counts = np.array([[held[labels == y, c].sum() for y in range(k)] for c in range(k)])
        seen = np.array([[held[np.array(now) == y, c].sum() for y in range(k)] for c in range(k)])
    return T, np.array(t), np.array(likelihood), posterior


def drawn(n: int, n_classes: int, noise: float, ood: float, seed: int) -> tuple[torch.Tensor, ...]:
    """Evidence that points to the true class of known samples and nowhere for OOD, with labels and truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < ood, -1, rng.integers(0, n_classes, n))
    strength = np.where(truth[:, None] == np.arange(n_classes), 12.0, 1.0)
    evidence = rng.gamma(strength * 2)
    evidence /= evidence.sum(1, keepdims=True)
    labels = np.where((rng.random(n) < noise) | (truth < 0), rng.integers(0, n_classes, n), truth)
    return torch.as_tensor(evidence), torch.as_tensor(labels), torch.as_tensor(truth)


@pytest.mark.parametrize("correct", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_equals_one_made_a_sample_at_a_time(seed: int, correct: bool) -> None:
    evidence, labels = mixed(300, seed)
    e, y = torch.as_tensor(evidence), torch.as_tensor(labels)
    found = fit_noise_model(e, y, correct=correct, ood=False, grid=True)
    T, t, likelihood, posterior = brute_fit(evidence, labels, correct)
    np.testing.assert_allclose(found.transition.numpy(), T, rtol=1e-9)
    assert found.temperature == t
    assert found.log_likelihood == pytest.approx(float(likelihood), rel=1e-9)
    assert not found.posterior(e, y).ood.any()
    np.testing.assert_allclose(found.posterior(e, y).classes.numpy(), posterior, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_decided_samples_count_as_what_they_are(seed: int) -> None:
    """Four in ten of class 0 were called 1; a person put half of these right, and found some to be OOD."""
    evidence, labels = mixed(300, seed)
    rng = np.random.default_rng(seed)
    decided = np.where(rng.random(300) < 0.3, evidence.argmax(1), np.where(rng.random(300) < 0.1, 5, -1))
    e, y, d = (torch.as_tensor(part) for part in (evidence, labels, decided))
    found = fit_noise_model(e, y, correct=True, ood=False, grid=True, decided=d)
    T, t, likelihood, posterior = brute_fit(evidence, labels, True, decided)
    np.testing.assert_allclose(found.transition.numpy(), T, rtol=1e-9)
    assert found.temperature == t
    assert found.log_likelihood == pytest.approx(float(likelihood), rel=1e-9)
    np.testing.assert_allclose(found.posterior(e, y).classes.numpy(), posterior, rtol=1e-7, atol=1e-12)


def test_a_decision_of_nobody_changes_nothing() -> None:
    evidence, labels, _ = drawn(500, 3, 0.2, 0.1, 5)
    plain = fit_noise_model(evidence, labels, correct=True, ood=True)
    nobody = torch.full((500,), -1)
    again = fit_noise_model(evidence, labels, correct=True, ood=True, decided=nobody)
    assert torch.equal(again.transition, plain.transition)
    assert again.log_likelihood == plain.log_likelihood


def test_every_class_has_its_confident_samples() -> None:
    top, guess = torch.tensor([9, 8, 7, 6, 5, 0.1, 0.3, 0.2]), torch.tensor([0, 0, 0, 0, 0, 2, 2, 2])
    assert sorted(most_confident(top, guess, 3).tolist()) == [0, 1, 2, 6, 7]


def test_asymmetric_part_is_what_is_left_of_unequal_noise() -> None:
    transition = torch.tensor(
        [[0.58, 0.4, 0.01, 0.01], [0.03, 0.91, 0.03, 0.03], [0.02, 0.02, 0.94, 0.02], [0.01, 0.01, 0.2, 0.78]]
    )
    many = torch.full((4,), 1000.0)
    found = find_asymmetric_part(transition, many)
    wanted = torch.tensor([[0.58, 0.36, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.16, 0.78]])
    torch.testing.assert_close(found, wanted / wanted.sum(1, keepdim=True))
    few = torch.tensor([5.0, 1000.0, 1000.0, 1000.0])  # 0.4 of five samples are two: nothing to go by
    assert find_asymmetric_part(transition, few)[0].tolist() == [1, 0, 0, 0]
    assert find_asymmetric_part(transition, torch.full((4,), 4.0)) is None


@pytest.mark.parametrize("dense_classes", [32, 2])
def test_correction_equals_one_made_a_sample_at_a_time(
    dense_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dense and with sparse matrices."""
    monkeypatch.setattr("graphclean.graph.noise_model.DENSE_CLASSES", dense_classes)
    rng = np.random.default_rng(0)
    for _ in range(5):
        asymmetric = 0.5 * np.eye(6) + 0.5 * rng.dirichlet(np.full(6, 0.3), 6)
        asymmetric[asymmetric < 0.05] = 0
        evidence = rng.dirichlet(np.full(6, 0.5), 40)
        found = correct_evidence(torch.as_tensor(evidence), torch.as_tensor(asymmetric)).numpy()
        for row, mix in zip(evidence, found, strict=True):
            wanted = row
            for _ in range(10):
                wanted = wanted * (asymmetric @ (row / np.maximum(wanted @ asymmetric, 1e-12)))
            np.testing.assert_allclose(mix, wanted, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("ood", [False, True])
def test_sparse_matrices_change_nothing(ood: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, labels = map(torch.as_tensor, mixed(500, 0))
    dense = fit_noise_model(evidence, labels, correct=True, ood=ood, grid=not ood)
    monkeypatch.setattr("graphclean.graph.noise_model.DENSE_CLASSES", 2)
    sparse = fit_noise_model(evidence, labels, correct=True, ood=ood, grid=not ood)
    assert dense.asymmetric is not None
    torch.testing.assert_close(sparse.transition, dense.transition, rtol=1e-6, atol=1e-9)
    assert sparse.temperature == pytest.approx(dense.temperature, rel=1e-5)
    assert sparse.log_likelihood == pytest.approx(dense.log_likelihood, rel=1e-9)


@pytest.mark.parametrize("decided", [False, True])
def test_gradient_is_right(decided: bool) -> None:
    evidence, labels, _ = drawn(80, 4, 0.3, 0.2, 0)
    generator = torch.Generator().manual_seed(1)
    m, to_label, shares = (torch.rand(*size, generator=generator).double() for size in ((80,), (4, 4), (4,)))
    share = shares[labels]
    arguments: tuple[Any, ...] = (evidence.log(), 4 * m - 2, labels, to_label, share)
    if decided:
        possible = torch.ones(80, 4)
        possible[:10], possible[10:30] = torch.eye(4)[labels[:10]], 0
        arguments = (*arguments[:-1], torch.where(torch.arange(80) < 10, 0, share), possible)
    for theta in (np.array(START), np.array([0.7, -0.3, 0.4])):
        numeric = approx_fprime(theta, lambda x: _objective(x, *arguments)[0], 1e-7)
        np.testing.assert_allclose(_objective(theta, *arguments)[1], numeric, atol=1e-5)


def test_posterior_is_bayes_rule_worked_by_hand() -> None:
    model = NoiseModel(
        temperature=2.0,
        intercept=-1.0,
        slope=-0.5,
        center=np.log(0.5),
        spread=2.0,
        transition=torch.tensor([[0.8, 0.2], [0.1, 0.9]], dtype=torch.float64),
        shares=torch.tensor([0.4, 0.6], dtype=torch.float64),
    )
    evidence = torch.tensor([[0.75, 0.25]], dtype=torch.float64)
    o = 1 / (1 + np.exp(1.0 + 0.5 * (np.log(0.75) - np.log(0.5)) / 2))
    q = np.array([0.75**2, 0.25**2]) / (0.75**2 + 0.25**2)
    for label in (0, 1):
        joint = np.array([*(1 - o) * q * model.transition[:, label].numpy(), o * model.shares[label]])
        classes, ood = model.posterior(evidence, torch.tensor([label]))
        np.testing.assert_allclose([*classes[0], ood[0]], joint / joint.sum())
    classes, ood = model.posterior(evidence, torch.tensor([-1]))
    np.testing.assert_allclose([*classes[0], ood[0]], [*(1 - o) * q, o])


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6])
def test_finds_the_rates_that_made_the_labels(noise: float) -> None:
    evidence, labels, truth = drawn(4000, 5, noise, 0.2, 2)
    model = fit_noise_model(evidence, labels, correct=True, ood=True)
    posterior = model.posterior(evidence, labels)
    np.testing.assert_allclose(posterior.classes.sum(1) + posterior.ood, 1)
    assert float(posterior.ood.mean()) == pytest.approx(0.2, abs=0.07)
    assert float(model.transition.diagonal().mean()) == pytest.approx(1 - 0.8 * noise, abs=0.06)
    known = truth >= 0
    assert (posterior.classes.argmax(1) == truth)[known].double().mean() > 0.97


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("noise", [0.1, 0.4])
def test_noise_alone_is_not_taken_for_ood(classes: int, noise: float) -> None:
    evidence, labels, _ = drawn(2000, classes, noise, 0.0, 4)
    model = fit_noise_model(evidence, labels, correct=True, ood=True)
    assert float(model.posterior(evidence, labels).ood.mean()) < 0.04
    assert float(model.transition.diagonal().mean()) == pytest.approx(1 - noise + noise / classes, abs=0.03)


def test_the_floor_moves_ood_to_noise_and_leaves_every_label_as_likely() -> None:
    evidence, labels, _ = drawn(500, 4, 0.3, 0.1, 6)
    margin = evidence.amax(1).log()
    shares = torch.bincount(labels).double() / 500
    transition = 0.6 * torch.eye(4).double() + 0.1
    before = NoiseModel(transition, shares, 1.5, -1.0, -0.7, float(margin.mean()), float(margin.std()))
    after = _move_floor(before, margin)
    sure = margin > margin.quantile(0.9)
    assert not after.prior(evidence).ood[sure].any()
    assert (after.prior(evidence).ood < before.prior(evidence).ood).all()
    torch.testing.assert_close(after.transition.sum(1), torch.ones(4).double())
    some = ~sure
    torch.testing.assert_close(
        after.log_p(evidence[some], labels[some]), before.log_p(evidence[some], labels[some])
    )
    assert not _move_floor(replace(before, slope=0.3), margin).prior(evidence).ood.any()


def test_without_ood_the_temperature_is_the_most_likely_one() -> None:
    evidence, labels, _ = drawn(500, 4, 0.3, 0.0, 7)
    found = fit_noise_model(evidence, labels, correct=False, ood=False)
    assert not found.prior(evidence).ood.any()

    def value(t: float) -> float:
        """With the prior on log t."""
        likely = replace(found, temperature=t).log_p(evidence, labels).mean()
        return float(likely) - PRIOR_WEIGHT * np.log(t) ** 2 / 500

    best = minimize(lambda log_t: -value(float(np.exp(log_t[0]))), [0.0], method="Nelder-Mead").x
    assert found.temperature == pytest.approx(float(np.exp(best[0])), rel=0.01)


def test_learns_which_class_is_taken_for_which() -> None:
    evidence, _, truth = drawn(3000, 4, 0.0, 0.0, 3)
    flipped = np.random.default_rng(4).random(3000) < 0.3
    labels = torch.where(torch.as_tensor(flipped), (truth + 1) % 4, truth)
    transition = fit_noise_model(evidence, labels, correct=True, ood=True).transition
    expected = 0.7 * np.eye(4) + 0.3 * np.roll(np.eye(4), 1, axis=1)
    np.testing.assert_allclose(transition, expected, atol=0.06)


def heard_from_noisy_neighbors(n: int, transition: np.ndarray, seed: int) -> tuple[torch.Tensor, ...]:
    """The labels of thirty neighbors of the same class, drawn by `transition`; labels drawn alike; truth."""
    rng = np.random.default_rng(seed)
    n_classes = len(transition)
    truth = rng.integers(0, n_classes, n)
    evidence = np.stack([rng.multinomial(30, transition[c]) for c in truth]) / 30
    labels = np.array([rng.choice(n_classes, p=transition[c]) for c in truth])
    return torch.as_tensor(evidence), torch.as_tensor(labels), torch.as_tensor(truth)


def test_neighbors_that_are_mistaken_alike_are_not_believed() -> None:
    transition = np.eye(6)
    transition[0, :2] = transition[2, [2, 1]] = 0.6, 0.4
    transition[3, 3:5] = transition[4, [4, 3]] = 0.6, 0.4
    evidence, labels, truth = heard_from_noisy_neighbors(3000, transition, 10)
    posterior = fit_noise_model(evidence, labels, correct=True, ood=True).posterior(evidence, labels)
    # The best that can be told from these labels, by one who knows how they came about.
    votes = 30 * evidence.numpy() + np.eye(6)[labels]
    best = ((votes @ np.log(transition + 1e-9).T).argmax(1) == truth.numpy()).mean()
    assert (labels == truth).double().mean() < 0.75
    assert best > 0.95
    assert (posterior.classes.argmax(1) == truth).double().mean() > best - 0.01


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_noise_that_is_alike_everywhere_changes_no_evidence(noise: float) -> None:
    evidence, labels, _ = heard_from_noisy_neighbors(3000, noise / 6 + (1 - noise) * np.eye(6), 11)
    model = fit_noise_model(evidence, labels, correct=True, ood=True)
    assert model.asymmetric is None
    assert correct_evidence(evidence, None) is evidence


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_where_nothing_is_corrected_the_model_is_the_plain_one(noise: float) -> None:
    evidence, labels, _ = heard_from_noisy_neighbors(3000, noise / 6 + (1 - noise) * np.eye(6), 11)
    corrected, plain = (
        fit_noise_model(evidence, labels, correct=correct, ood=True) for correct in (True, False)
    )
    assert not corrected.corrected
    for field in fields(NoiseModel):
        np.testing.assert_array_equal(getattr(corrected, field.name), getattr(plain, field.name))


def test_what_was_corrected_in_an_early_round_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last round finds no asymmetric part here, and still the model is another than the plain one."""
    found = iter([torch.tensor([[0.6, 0.4], [0.0, 1.0]], dtype=torch.float64), None, None, None])
    monkeypatch.setattr("graphclean.graph.noise_model.find_asymmetric_part", lambda *_: next(found))
    evidence, labels, _ = drawn(500, 2, 0.2, 0.1, 5)
    corrected, plain = (
        fit_noise_model(evidence, labels, correct=correct, ood=True) for correct in (True, False)
    )
    assert corrected.corrected
    assert corrected.asymmetric is None
    assert corrected.log_likelihood != plain.log_likelihood


def test_correction_finds_the_mix_that_best_explains_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    asymmetric = rng.dirichlet(np.full(5, 0.4), 5) * 0.4 + 0.6 * np.eye(5)
    evidence = rng.dirichlet(np.full(5, 0.5), 20)
    short = correct_evidence(torch.as_tensor(evidence), torch.as_tensor(asymmetric)).numpy()
    np.testing.assert_allclose(short.sum(1), 1)
    monkeypatch.setattr("graphclean.graph.noise_model.STEPS", 20_000)
    found = correct_evidence(torch.as_tensor(evidence), torch.as_tensor(asymmetric)).numpy()

    def misfit(mix: np.ndarray, row: np.ndarray) -> float:
        return float(-row @ np.log(np.maximum(mix @ asymmetric, 1e-300)))

    for row, begun, mix in zip(evidence, short, found, strict=True):
        best = min(
            minimize(lambda x, row=row: misfit(softmax(x), row), start, tol=1e-12).fun
            for start in (np.zeros(5), np.log(row + 1e-6))
        )
        assert misfit(mix, row) <= best + 1e-6
        assert misfit(mix, row) <= misfit(begun, row) <= misfit(row, row)


@pytest.mark.parametrize(
    ("before", "after", "in_training", "in_verdicts"),
    [
        (-1.2, -1.197, False, False),
        (-1.2, -1.195, True, False),
        (-1.2, -1.189, True, False),
        (-1.2, -1.187, True, True),
        (-0.2, -0.1985, False, False),
        (-0.2, -0.1975, True, True),
        (-0.2, -0.3, False, False),
    ],
)
def test_correction_must_make_labels_clearly_likelier(
    before: float, after: float, in_training: bool, in_verdicts: bool
) -> None:
    evidence, labels, _ = drawn(50, 3, 0.2, 0.0, 13)
    model = fit_noise_model(evidence, labels, correct=False, ood=True)
    plain, corrected = (replace(model, log_likelihood=value) for value in (before, after))
    assert gains_enough(corrected, plain, TRAINING_GAIN) is in_training
    assert gains_enough(corrected, plain) is in_verdicts


def test_unlabeled_samples_do_not_move_the_fit() -> None:
    evidence, labels, _ = drawn(500, 3, 0.2, 0.1, 5)
    more = torch.cat([evidence, torch.full((50, 3), 1 / 3)])
    gaps = torch.cat([labels, torch.full((50,), -1)])
    extended = fit_noise_model(more, gaps, correct=True, ood=True)
    plain = fit_noise_model(evidence, labels, correct=True, ood=True)
    assert extended.log_likelihood == plain.log_likelihood
    np.testing.assert_array_equal(extended.transition, plain.transition)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, labels, _ = drawn(500, 3, 0.2, 0.1, 9)
    labels[::7] = -1
    whole = fit_noise_model(evidence, labels, correct=True, ood=True)
    monkeypatch.setattr("graphclean.graph.noise_model.BLOCK_CELLS", 50)
    assert len(list(pieces(500, 3))) == 32
    parted = fit_noise_model(evidence, labels, correct=True, ood=True)
    assert parted.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(parted.transition, whole.transition, rtol=1e-9)
    for one, other in zip(parted.posterior(evidence, labels), whole.posterior(evidence, labels), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_one_class_or_no_labels_need_no_correction() -> None:
    assert find_class_dependent_noise(torch.ones(4, 1), torch.zeros(4, dtype=torch.long)) is None
    assert find_class_dependent_noise(torch.full((4, 3), 1 / 3), torch.full((4,), -1)) is None
    assert find_class_dependent_noise(torch.full((4, 3), 1 / 3), torch.tensor([0, 1, 2, 0])) is None


def test_labels_must_spread() -> None:
    with pytest.raises(ValueError, match="class_dependent_noise needs correct"):
        GraphSettings(class_dependent_noise=True, correct=False)


def test_log_p_of_each_label_is_the_formula_by_hand() -> None:
    rng = np.random.default_rng(0)
    evidence = torch.as_tensor(rng.dirichlet(np.ones(3), 40))
    labels = torch.as_tensor(rng.integers(0, 3, 40))
    model = fit_noise_model(evidence, labels, correct=False, ood=True)
    power = evidence.clamp(min=1e-6) ** model.temperature
    q = power / power.sum(1, keepdim=True)
    m = (evidence.amax(1).log() - model.center) / model.spread
    o = 1 / (1 + torch.exp(-model.intercept - model.slope * m))
    assert model.floor > 0
    o = ((o - model.floor) / (1 - model.floor)).clamp(min=0)
    fits = (q * model.transition[:, labels].T).sum(1)
    p = (1 - o) * fits + o * model.shares[labels]
    found = model.log_p(evidence, labels)
    torch.testing.assert_close(found, p.log())
    assert float(found.mean()) == pytest.approx(model.log_likelihood)
    unlabeled = labels.clone()
    unlabeled[:5] = -1
    assert model.log_p(evidence, unlabeled)[:5].abs().max() < 1e-12
