from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.sparse import csr_array
from scipy.special import softmax

from graphclean.cleaning.label_model import (
    START,
    LabelModel,
    _objective,
    class_signal,
    fit_label_model,
    is_worth,
    pieces,
    unmix,
)


def drawn(n: int, n_classes: int, noise: float, ood: float, seed: int) -> tuple[np.ndarray, ...]:
    """Evidence that points to the true class of known samples and nowhere for OOD, with labels and truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < ood, -1, rng.integers(0, n_classes, n))
    strength = np.where(truth[:, None] == np.arange(n_classes), 12.0, 1.0)
    evidence = rng.gamma(strength * 2)
    evidence /= evidence.sum(1, keepdims=True)
    labels = np.where((rng.random(n) < noise) | (truth < 0), rng.integers(0, n_classes, n), truth)
    return evidence, labels, truth


def test_gradient_is_right() -> None:
    evidence, labels, _ = drawn(80, 4, 0.3, 0.2, 0)
    rng = np.random.default_rng(1)
    arguments = (np.log(evidence), rng.normal(size=80), labels, rng.random((4, 4)), rng.random(4))
    for theta in (START, np.array([0.7, -0.3, 0.4])):
        numeric = approx_fprime(theta, lambda x: _objective(x, *arguments)[0], 1e-7)
        np.testing.assert_allclose(_objective(theta, *arguments)[1], numeric, atol=1e-5)


def test_posterior_is_bayes_rule_worked_by_hand() -> None:
    model = LabelModel(
        temperature=2.0,
        intercept=-1.0,
        slope=-0.5,
        centre=np.log(0.5),
        spread=2.0,
        transition=np.array([[0.8, 0.2], [0.1, 0.9]]),
        shares=np.array([0.4, 0.6]),
        log_likelihood=0.0,
    )
    evidence = np.array([[0.75, 0.25]])
    o = 1 / (1 + np.exp(1.0 + 0.5 * (np.log(0.75) - np.log(0.5)) / 2))
    q = np.array([0.75**2, 0.25**2]) / (0.75**2 + 0.25**2)
    for label in (0, 1):
        joint = np.array([*(1 - o) * q * model.transition[:, label], o * model.shares[label]])
        classes, ood = model.posterior(evidence, np.array([label]))
        np.testing.assert_allclose([*classes[0], ood[0]], joint / joint.sum())
    classes, ood = model.posterior(evidence, np.array([-1]))
    np.testing.assert_allclose([*classes[0], ood[0]], [*(1 - o) * q, o])


@pytest.mark.parametrize("noise", [0.0, 0.3, 0.6])
def test_finds_the_rates_that_made_the_labels(noise: float) -> None:
    evidence, labels, truth = drawn(4000, 5, noise, 0.2, 2)
    model = fit_label_model(evidence, labels, 5, undo=True)
    posterior = model.posterior(evidence, labels)
    np.testing.assert_allclose(posterior.classes.sum(1) + posterior.ood, 1)
    assert posterior.ood.mean() == pytest.approx(0.2, abs=0.07)
    assert np.diag(model.transition).mean() == pytest.approx(1 - 0.8 * noise, abs=0.06)
    known = truth >= 0
    assert (posterior.classes.argmax(1) == truth)[known].mean() > 0.97


def test_learns_which_class_is_taken_for_which() -> None:
    evidence, _, truth = drawn(3000, 4, 0.0, 0.0, 3)
    flipped = np.random.default_rng(4).random(3000) < 0.3
    labels = np.where(flipped, (truth + 1) % 4, truth)
    transition = fit_label_model(evidence, labels, 4, undo=True).transition
    expected = 0.7 * np.eye(4) + 0.3 * np.roll(np.eye(4), 1, axis=1)
    np.testing.assert_allclose(transition, expected, atol=0.06)


def heard_from_noisy_neighbours(
    n: int, transition: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The labels of thirty neighbours of the same class, drawn by `transition`; labels drawn alike; truth."""
    rng = np.random.default_rng(seed)
    n_classes = len(transition)
    truth = rng.integers(0, n_classes, n)
    evidence = np.stack([rng.multinomial(30, transition[c]) for c in truth]) / 30
    labels = np.array([rng.choice(n_classes, p=transition[c]) for c in truth])
    return evidence, labels, truth


def test_neighbours_that_are_mistaken_alike_are_not_believed() -> None:
    transition = np.eye(6)
    transition[0, :2] = transition[2, [2, 1]] = 0.6, 0.4
    transition[3, 3:5] = transition[4, [4, 3]] = 0.6, 0.4
    evidence, labels, truth = heard_from_noisy_neighbours(3000, transition, 10)
    posterior = fit_label_model(evidence, labels, 6, undo=True).posterior(evidence, labels)
    # The best that can be told from these labels, by one who knows how they came about.
    votes = 30 * evidence + np.eye(6)[labels]
    best = ((votes @ np.log(transition + 1e-9).T).argmax(1) == truth).mean()
    assert (labels == truth).mean() < 0.75
    assert best > 0.95
    assert (posterior.classes.argmax(1) == truth).mean() > best - 0.01


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_noise_that_is_alike_everywhere_changes_no_evidence(noise: float) -> None:
    evidence, labels, _ = heard_from_noisy_neighbours(3000, noise / 6 + (1 - noise) * np.eye(6), 11)
    model = fit_label_model(evidence, labels, 6, undo=True)
    assert model.preference is None
    assert unmix(evidence, None) is evidence


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_where_nothing_is_undone_the_model_is_the_plain_one(noise: float) -> None:
    evidence, labels, _ = heard_from_noisy_neighbours(3000, noise / 6 + (1 - noise) * np.eye(6), 11)
    undone, plain = (fit_label_model(evidence, labels, 6, undo=undo) for undo in (True, False))
    assert not undone.undid
    for field in fields(LabelModel):
        np.testing.assert_array_equal(getattr(undone, field.name), getattr(plain, field.name))


def test_what_was_undone_in_an_early_round_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last round finds no preference here, and the model is another than the plain one all the same."""
    found = iter([csr_array(np.array([[0.6, 0.4], [0.0, 1.0]])), None, None, None])
    monkeypatch.setattr("graphclean.cleaning.label_model._find_preference", lambda *_: next(found))
    evidence, labels, _ = drawn(500, 2, 0.2, 0.1, 5)
    undone, plain = (fit_label_model(evidence, labels, 2, undo=undo) for undo in (True, False))
    assert undone.undid
    assert undone.preference is None
    assert undone.log_likelihood != plain.log_likelihood


def test_unmixing_finds_the_mix_that_best_explains_the_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    preference = rng.dirichlet(np.full(5, 0.4), 5) * 0.4 + 0.6 * np.eye(5)
    evidence = rng.dirichlet(np.full(5, 0.5), 20)
    short = unmix(evidence, csr_array(preference))
    np.testing.assert_allclose(short.sum(1), 1)
    monkeypatch.setattr("graphclean.cleaning.label_model.STEPS", 20_000)
    found = unmix(evidence, csr_array(preference))

    def misfit(mix: np.ndarray, row: np.ndarray) -> float:
        return float(-row @ np.log(np.maximum(mix @ preference, 1e-300)))

    for row, begun, mix in zip(evidence, short, found, strict=True):
        best = min(
            minimize(lambda x, row=row: misfit(softmax(x), row), start, tol=1e-12).fun
            for start in (np.zeros(5), np.log(row + 1e-6))
        )
        assert misfit(mix, row) <= best + 1e-6
        assert misfit(mix, row) <= misfit(begun, row) <= misfit(row, row)


@pytest.mark.parametrize(
    ("before", "after", "worth"),
    [
        (-1.2, -1.189, False),
        (-1.2, -1.187, True),
        (-0.2, -0.1985, False),
        (-0.2, -0.1975, True),
        (-0.2, -0.3, False),
    ],
)
def test_undoing_must_make_labels_clearly_likelier(before: float, after: float, worth: bool) -> None:
    evidence, labels, _ = drawn(50, 3, 0.2, 0.0, 13)
    model = fit_label_model(evidence, labels, 3, undo=False)
    plain, undone = (replace(model, log_likelihood=value) for value in (before, after))
    assert is_worth(undone, plain) is worth


def test_unlabelled_samples_do_not_move_the_fit() -> None:
    evidence, labels, _ = drawn(500, 3, 0.2, 0.1, 5)
    more = np.vstack([evidence, np.full((50, 3), 1 / 3)])
    extended = fit_label_model(more, np.append(labels, np.full(50, -1)), 3, undo=True)
    plain = fit_label_model(evidence, labels, 3, undo=True)
    assert extended.log_likelihood == plain.log_likelihood
    np.testing.assert_array_equal(extended.transition, plain.transition)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, labels, _ = drawn(500, 3, 0.2, 0.1, 9)
    labels[::7] = -1
    whole = fit_label_model(evidence, labels, 3, undo=True)
    monkeypatch.setattr("graphclean.cleaning.label_model.CELLS", 50)
    assert len(list(pieces(500, 3))) == 32
    parted = fit_label_model(evidence, labels, 3, undo=True)
    assert parted.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(parted.transition, whole.transition, rtol=1e-9)
    for one, other in zip(parted.posterior(evidence, labels), whole.posterior(evidence, labels), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_signal_is_large_for_real_evidence_and_small_for_chance() -> None:
    evidence, labels, _ = drawn(1000, 5, 0.8, 0.0, 6)
    assert class_signal(evidence, labels) > 10
    shuffled = np.random.default_rng(7).permutation(labels)
    assert abs(class_signal(evidence, shuffled)) < 4
    assert class_signal(np.full((10, 5), 0.2), labels[:10]) == 0


def test_signal_is_in_standard_errors_also_for_unequal_classes() -> None:
    rng = np.random.default_rng(8)
    guess = rng.choice(3, 300, p=[0.8, 0.15, 0.05])
    evidence = np.where(guess[:, None] == np.arange(3), 0.8, 0.1)
    labels = rng.choice(3, 300, p=[0.9, 0.07, 0.03])
    drawn_scores = [class_signal(evidence, rng.permutation(labels)) for _ in range(2000)]
    assert np.mean(drawn_scores) == pytest.approx(0, abs=0.1)
    assert np.std(drawn_scores) == pytest.approx(1, abs=0.1)
