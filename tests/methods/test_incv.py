"""Iterative noisy cross-validation against its rules, and the phases of a run."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import Tensor

from graphclean.methods.blocks.cross_validation import CrossValidation, draw_batches
from graphclean.methods.incv import INCV, IncvSettings
from graphclean.training.method import Batch, TrainerContext
from tests.methods.pairs import K, N, draw, oracle_losses, start
from tests.methods.test_conditions import SHORT, given, make


def halved(labels: np.ndarray, rate: float | None = None) -> CrossValidation:
    found = CrossValidation(torch.as_tensor(labels), K, rate)
    found.halve(torch.Generator().manual_seed(0))
    return found


def predictions(seed: int, n: int = 2) -> list[tuple[Tensor, Tensor]]:
    rng = np.random.default_rng(seed)
    drawn = torch.tensor(rng.normal(0, 2, (n, 2, N, K)), dtype=torch.float32)
    return [(each[0], each[1]) for each in drawn]


def test_halves_are_of_one_size_and_share_what_is_chosen() -> None:
    _, labels = draw(unlabeled=5)
    found = halved(labels)
    found.chosen[7], found.left[7] = True, False
    found.halve(torch.Generator().manual_seed(1))
    first, second = found.members()
    assert (first & second).nonzero().flatten().tolist() == [7]
    assert (first | second).tolist() == (labels >= 0).tolist()
    assert int(first.sum()) == int(second.sum()) == 18


@pytest.mark.parametrize("last", [False, True])
def test_each_network_judges_what_the_other_one_learned(last: bool) -> None:
    """Over three epochs, of which the one that agrees with most labels counts, or the last one."""
    _, labels = draw()
    found, given_ = halved(labels), torch.as_tensor(labels)
    epochs = predictions(0, 3)
    for logits in epochs:
        found.judge(logits, given_, last=last)
    agrees, loss = np.zeros(N, dtype=bool), np.zeros(N)
    learned = [each.numpy() for each in found.members()]
    for place in (0, 1):
        held = (labels >= 0) & ~learned[place]
        right = [(each[place].numpy().argmax(1) == labels)[held].mean() for each in epochs]
        epoch = 2 if last else int(np.argmax(right))
        logits_ = epochs[epoch][place].double().numpy()
        agrees[held] = (logits_.argmax(1) == labels)[held]
        loss[held] = -log_softmax(logits_, axis=1)[np.arange(N), labels][held]
    assert found.agrees.tolist() == agrees.tolist()
    np.testing.assert_allclose(found.loss, loss, atol=1e-5)


@pytest.mark.parametrize("rate", [None, 0.2, 0.9])
@pytest.mark.parametrize("remove", [False, True])
def test_agreeing_samples_are_chosen_and_large_losses_removed(rate: float | None, remove: bool) -> None:
    _, labels = draw()
    found = halved(labels, rate)
    found.judge(predictions(1)[0], torch.as_tensor(labels), last=False)
    agrees, loss = found.agrees.numpy().copy(), found.loss.numpy().copy()
    found.choose(remove=remove)
    share = agrees.sum() / (labels >= 0).sum()
    roots = np.roots([1 + 1 / (K - 1), -2, 1 - share])
    expected = rate if rate is not None else roots.real.min()
    assert float(found.rate) == pytest.approx(expected, abs=1e-5)
    assert found.chosen.tolist() == agrees.tolist()
    rest = np.flatnonzero((labels >= 0) & ~agrees)
    n = int(min(2, expected / (1 - expected)) * agrees.sum() + 1e-4) if remove else 0
    removed = rest[np.argsort(-loss[rest], kind="stable")][:n]
    assert found.left.nonzero().flatten().tolist() == sorted({*rest} - {*removed})
    assert not (found.chosen & found.left).any()


def test_a_perfect_predictor_of_clean_labels_chooses_all_at_once() -> None:
    labels = np.arange(N) % K
    found = halved(labels)
    logits = 9 * torch.eye(K)[torch.as_tensor(labels)]
    found.judge((logits, logits), torch.as_tensor(labels), last=False)
    found.choose(remove=True)
    assert found.chosen.all()
    assert not found.left.any()
    assert float(found.rate) == 0


def test_batches_hold_every_member_equally_often_and_none_but_them() -> None:
    members = torch.arange(10) % 3 > 0
    often = torch.bincount(
        draw_batches(members, 5, 4, torch.Generator().manual_seed(0)).flatten(), minlength=10
    )
    assert often.sum() == 20
    assert not often[~members].any()
    assert set(often[members].tolist()) == {3, 4}
    assert not draw_batches(members & False, 5, 4, torch.Generator()).any()


@pytest.mark.parametrize(
    ("epochs", "phases"), [(60, (0, 5, 10, 15, 20)), (200, (0, 16, 33, 49, 66)), (3, (0, 1)), (1, (0, 1))]
)
def test_phases_are_fractions_of_the_epochs(epochs: int, phases: tuple[int, ...]) -> None:
    assert INCV().phases(epochs) == phases


@pytest.mark.parametrize(
    ("noise", "rate", "takes"),
    [
        ("symmetric", 0.2, [False, False, False, False]),
        ("symmetric", 0.4, [False, False, True, True]),
        ("symmetric", 0.7, [False, True, True, True]),
        ("asymmetric", 0.2, [False, True, True, True]),
    ],
)
def test_with_much_noise_the_last_epoch_judges(noise: Any, rate: float, takes: list[bool]) -> None:
    method = INCV(IncvSettings(noise=noise, noise_rate=rate))
    start(method, draw()[1], epoch=9)
    assert [method.takes_last(iteration) for iteration in range(4)] == takes


@pytest.mark.parametrize("noise", ["symmetric", "asymmetric"])
@pytest.mark.parametrize("more", [False, True])
def test_co_teaching_keeps_as_many_as_are_right_among_the_chosen(noise: Any, more: bool) -> None:
    """Of these, and of what is left as well where that is learned too."""
    logits, labels = draw()
    method = INCV(IncvSettings(noise=noise, noise_rate=0.4))
    run = start(method, labels, epoch=9)
    method.validation.chosen[:] = torch.as_tensor(labels >= 0) & (torch.arange(N) < 24)
    method.begin_epoch(run)
    ways = K - 1 if noise == "symmetric" else 1
    assert float(method.drop) == pytest.approx(0.16 / (0.16 + ways * 0.36))
    cut = 24 if more else N
    rows = torch.arange(3, N)
    parts = [rows[rows < cut], rows[rows >= cut]] if more else [rows]
    batches = [Batch(part, torch.as_tensor(logits)[part], run.given[part]) for part in parts]
    found = method.losses(run, *batches)
    keep = int((1 - float(method.drop)) * len(parts[0]))
    a, b = oracle_losses(logits, labels)
    kept = [np.argsort(each, kind="stable")[:keep] for each in (a, b)]
    assert float(found["ce"]) == pytest.approx(a[kept[1]].mean(), rel=1e-5)
    assert float(found["ce_second"]) == pytest.approx(b[kept[0]].mean(), rel=1e-5)


def test_what_is_left_comes_in_proportion_to_what_is_chosen() -> None:
    """After a fifth of the epochs of co-teaching; at most half as much."""
    _, labels = draw(unlabeled=0)
    for n_chosen, more in ((30, N * 10 // 30), (10, N // 2), (N, 0)):
        method = INCV(IncvSettings(noise_rate=0.2))
        run = start(method, labels, epoch=29, epochs=30)
        method.validation.chosen = torch.arange(N) < n_chosen
        method.validation.left = ~method.validation.chosen
        sizes = []
        for run.epoch in (11, 13, 14, 15, 29):
            batches = method.begin_epoch(run)
            assert batches[0].max() < n_chosen
            sizes.append([batch.shape[1] for batch in batches])
        assert sizes == [[N], [N], *[[N, more] if more else [N]] * 3]


def test_where_nothing_is_chosen_all_labels_are_learned() -> None:
    _, labels = draw()
    method = INCV(IncvSettings(noise_rate=0.2))
    run = start(method, labels, epoch=9)
    (batch,) = method.begin_epoch(run)
    assert {*batch.flatten().tolist()} == {*np.flatnonzero(labels >= 0)}
    assert "nothing was chosen: all labels were learned" in method.notes(run)[0]


class Watched(INCV):
    """Keeps what the networks are when each phase begins, and what was learned from."""

    def setup(self, run: TrainerContext) -> None:
        super().setup(run)
        self.begun: list[Tensor] = []
        self.seen: list[tuple[set[int], ...]] = []

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        batches = super().begin_epoch(run)
        if run.epoch in self.phases(run.settings.epochs):
            self.begun.append(
                torch.cat([weights.detach().flatten() for weights in self.networks.parameters()])
            )
        self.seen.append(tuple({*batch.flatten().tolist()} for batch in batches))
        return batches


def test_every_phase_begins_with_the_first_weights() -> None:
    settings = dataclasses.replace(SHORT, epochs=8, batch_size=16)
    made = make(Watched(IncvSettings(selection_fraction=0.5, iterations=2)), given(60), settings=settings)
    method = made.method
    assert isinstance(method, Watched)
    assert made.train().notes[0].startswith(f"{int(method.validation.chosen.sum())} samples were chosen")
    assert len(method.begun) == 3
    assert all(torch.equal(method.begun[0], weights) for weights in method.begun)
    for first, second in method.seen[:2]:
        assert not first & second
        assert first | second == set(range(60))
    for first, second in method.seen[2:4]:
        assert 0 < len(first & second) < 60, "what was chosen"
    assert method.seen[4][0] == set(method.validation.chosen.nonzero().flatten().tolist())


@pytest.mark.parametrize(
    "bad",
    [
        {"noise_rate": -1.0},
        {"noise": "pair"},
        {"iterations": 0},
        {"selection_fraction": 1.0},
        {"chosen_alone": 1.1},
        {"ramp": -0.1},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        IncvSettings(**bad)
