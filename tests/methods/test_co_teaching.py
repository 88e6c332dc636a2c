"""Co-teaching and co-teaching on disagreement against their formulas, a sample at a time."""

import dataclasses

import numpy as np
import pytest
import torch

from graphclean.methods.co_teaching import (
    CoTeaching,
    CoTeachingPlus,
    CoTeachingPlusSettings,
    CoTeachingSettings,
)
from tests.methods.pairs import K, N, draw, gradient, oracle_disagreement, oracle_losses, start, step
from tests.methods.test_conditions import SHORT, given, make


def smallest(losses: np.ndarray, among: np.ndarray, drop: float) -> np.ndarray:
    """The places of floor((1 − drop) n) smallest losses, at least one."""
    places = np.flatnonzero(among)
    count = max(1, int(np.floor((1 - drop) * len(places) + 1e-9)))
    return np.array(sorted(places[np.argsort(losses[places], kind="stable")][:count]))


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45, 0.9])
def test_each_network_learns_from_what_the_other_one_keeps(rate: float) -> None:
    logits, labels = draw()
    method = CoTeaching(CoTeachingSettings(noise_rate=rate))
    run = start(method, labels)
    found = step(method, run, logits)
    a, b = oracle_losses(logits, labels)
    of_a, of_b = smallest(a, labels >= 0, rate), smallest(b, labels >= 0, rate)
    assert len(of_a) == len(of_b) == max(1, int(np.floor((1 - rate) * (N - 3) + 1e-9)))
    assert float(found["ce"]) == pytest.approx(a[of_b].mean(), rel=1e-5)
    assert float(found["ce_second"]) == pytest.approx(b[of_a].mean(), rel=1e-5)
    assert method.selection(run).selected.nonzero().flatten().tolist() == sorted({*of_a} & {*of_b})


def test_what_is_dropped_has_no_gradient() -> None:
    logits, labels = draw()
    method = CoTeaching(CoTeachingSettings(noise_rate=0.5))
    slopes = gradient(method, start(method, labels), logits)
    a, b = oracle_losses(logits, labels)
    for half, kept in (
        (slopes[:, :K], smallest(b, labels >= 0, 0.5)),
        (slopes[:, K:], smallest(a, labels >= 0, 0.5)),
    ):
        assert np.flatnonzero(np.abs(half).sum(1)).tolist() == kept.tolist()


def test_equal_networks_keep_the_same() -> None:
    logits, labels = draw()
    logits[:, K:] = logits[:, :K]
    method = CoTeaching(CoTeachingSettings(noise_rate=0.4))
    run = start(method, labels)
    found = step(method, run, logits)
    assert torch.equal(found["ce"], found["ce_second"])
    assert int(method.kept.sum()) == int(np.floor(0.6 * (N - 3)))


def test_the_dropped_part_grows_over_a_fraction_of_the_epochs() -> None:
    """As R(e) = τ min(e / T, 1), with T = 3 of 60 epochs as with 10 of 200."""
    _, labels = draw()
    for epochs, ramp in ((60, 3), (200, 10)):
        method = CoTeaching(CoTeachingSettings(noise_rate=0.4))
        run = start(method, labels, epochs=epochs)
        for run.epoch in range(12):
            method.begin_epoch(run)
            assert float(method.drop) == pytest.approx(0.4 * min(run.epoch / ramp, 1))
            assert method.metrics(run)["drop_rate"] == float(method.drop)


@pytest.mark.parametrize("rate", [0.2, 0.45])
def test_later_it_learns_from_disagreement_alone(rate: float) -> None:
    logits, labels = draw()
    method = CoTeachingPlus(CoTeachingPlusSettings(noise_rate=rate))
    run = start(method, labels)
    found = step(method, run, logits)
    a, b = oracle_losses(logits, labels)
    among = (labels >= 0) & oracle_disagreement(logits)
    assert 0 < among.sum() < N - 3
    of_a, of_b = smallest(a, among, rate), smallest(b, among, rate)
    assert float(found["ce"]) == pytest.approx(a[of_b].mean(), rel=1e-5)
    assert float(found["ce_second"]) == pytest.approx(b[of_a].mean(), rel=1e-5)
    kept = {*smallest(a, labels >= 0, rate)} & {*smallest(b, labels >= 0, rate)}
    assert {*method.selection(run).selected.nonzero().flatten().tolist()} == kept, "of all, not of those"
    assert method.metrics(run)["disagreement"] == pytest.approx(oracle_disagreement(logits).mean())


def test_networks_that_agree_on_everything_learn_from_all() -> None:
    logits, labels = draw()
    logits[:, K:] = 2 * logits[:, :K]
    method = CoTeachingPlus(CoTeachingPlusSettings(noise_rate=0.4))
    found = step(method, start(method, labels), logits)
    for name, losses in zip(("ce", "ce_second"), oracle_losses(logits, labels), strict=True):
        assert float(found[name]) == pytest.approx(losses[labels >= 0].mean(), rel=1e-5)


def test_a_batch_without_labels_teaches_nothing() -> None:
    logits, labels = draw(unlabeled=N)
    for method in (CoTeaching(CoTeachingSettings(0.3)), CoTeachingPlus(CoTeachingPlusSettings(0.3))):
        found = step(method, start(method, labels), logits)
        assert [float(loss) for loss in found.values()] == [0, 0]
        assert not method.kept.any()


def test_the_estimated_rate_is_told() -> None:
    """And is the one that is dropped, here of labels at random."""
    settings = dataclasses.replace(SHORT, batch_size=64)
    made = make(CoTeaching(), given(200), settings=settings)
    trained = made.train()
    method = made.method
    assert isinstance(method, CoTeaching)
    (note,) = trained.notes
    assert f"{float(method.drop):.3f}" in note
    assert float(method.drop) > 0.5, "labels at random are mostly wrong"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"noise_rate": 1.0}, "noise_rate must be auto, or"),
        ({"ramp": -0.1}, "ramp must be from 0 to 1"),
        ({"disagreement_from": 1.5}, "disagreement_from must be from 0 to 1"),
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CoTeachingPlusSettings(**bad)  # type: ignore[arg-type]
