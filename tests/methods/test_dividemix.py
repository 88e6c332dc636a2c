"""DivideMix: its split, its guessed labels and its losses against their formulas."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import Tensor, nn

from graphclean.methods.blocks.gaussian_mixture import small_loss_probability
from graphclean.methods.dividemix import DivideMix, DivideMix1, DivideMix1Settings, DivideMixSettings
from graphclean.training import Trainer
from graphclean.training.augment import draw_beta
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch
from graphclean.training.networks import Ensemble, Output
from tests.methods.test_conditions import SHORT, given, make
from tests.training.test_trainer import TINY, digits

pytestmark = pytest.mark.usefixtures("one_thread")
N, K = 40, 4
SLOPE = {"main": 1.0, "second": 0.5}
"""What each network makes of its input: logits that many times it."""


def start(method: DivideMix1, **more: Any) -> Any:
    """A run whose inputs are logits, and whose views are these and twice these."""
    labels = torch.randint(0, K, (N,), generator=torch.Generator().manual_seed(0))
    labels[::9] = -1
    outputs = 3 * torch.randn(N, K, generator=torch.Generator().manual_seed(1))
    run: Any = SimpleNamespace(given=labels, n_classes=K, device=torch.device("cpu"), decided=None)
    run.settings, run.epoch, run.part, run.step, run.batch_size = TINY, 1, 0, 0, 12
    run.generator = torch.Generator().manual_seed(2)
    run.new_network = nn.Identity
    run.inputs = outputs
    run.embed = lambda name: Output(SLOPE[name] * outputs, outputs)
    run.weak_view = lambda inputs: inputs
    run.views = lambda inputs, strong: "strong" if strong else torch.cat([inputs, 2 * inputs])
    run.forward = lambda *batches, network: [Output(SLOPE[network] * batch, batch) for batch in batches]
    run.__dict__.update(more)
    method.setup(run)
    return run


def batch_of(run: Any, rows: list[int]) -> Batch:
    index = torch.tensor(rows)
    return Batch(index, run.inputs[index], run.given[index])


def labels_right(run: Any, slope: float) -> np.ndarray:
    """The posterior of small losses of the labeled samples; 0 for the others."""
    z, y = run.inputs.double().numpy() * slope, run.given.numpy()
    known = y >= 0
    losses = -log_softmax(z, 1)[np.arange(N), y.clip(0)][known]
    scaled = (losses - losses.min()) / (losses.max() - losses.min())
    found = np.zeros(N)
    found[known] = small_loss_probability(torch.as_tensor(scaled)).numpy()
    return found


def test_each_network_judges_by_its_own_losses_and_is_trained_by_the_others() -> None:
    method = DivideMix()
    run = start(method)
    expected = [labels_right(run, slope) for slope in SLOPE.values()]
    for part in (0, 1):
        run.part = part
        x, u = method.begin_epoch(run)
        np.testing.assert_allclose(method.clean, expected, atol=1e-5)
        labeled = (expected[1 - part] > 0.5).nonzero()[0]
        assert sorted(set(x.flatten().tolist())) == labeled.tolist()
        assert x.shape == u.shape == (-(-len(labeled) // 6), 6)
        assert not set(u.flatten().tolist()) & set(labeled.tolist())
        assert set(u.flatten().tolist()) <= set(range(N)) - set(labeled.tolist())
        run.embed = None  # both parts go by what was found before the first
    single = DivideMix1()
    run = start(single)
    single.begin_epoch(run)
    np.testing.assert_allclose(single.clean, expected[:1], atol=1e-5)


def test_a_label_that_is_probably_wrong_gives_way_to_the_prediction() -> None:
    method = DivideMix()
    run = start(method)
    method.begin_epoch(run)
    mean = np.mean([labels_right(run, slope) for slope in SLOPE.values()], 0)
    p = np.mean([softmax(slope * run.inputs.numpy(), 1) for slope in SLOPE.values()], 0)
    selection = method.selection(run)
    assert selection.selected.tolist() == (mean > 0.5).tolist()
    expected = np.where(mean > 0.5, run.given.numpy(), p.argmax(1))
    assert selection.labels.tolist() == expected.tolist()


def test_losses_are_averaged_over_the_last_epochs() -> None:
    method = DivideMix1(DivideMix1Settings(loss_history=3))
    run = start(method)
    known = run.given >= 0
    scaled = []
    for epoch in range(5):
        outputs = 3 * torch.randn(N, K, generator=torch.Generator().manual_seed(epoch))
        run.embed = lambda _, outputs=outputs: Output(outputs, outputs)
        method.begin_epoch(run)
        losses = -outputs.double().log_softmax(1)[torch.arange(N), run.given.clamp(min=0)][known]
        scaled.append((losses - losses.min()) / (losses.max() - losses.min()))
        mean = torch.stack(scaled[-3:]).mean(0)
        expected = small_loss_probability(mean).float()
        torch.testing.assert_close(method.clean[0, known], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("part", [0, 1])
def test_guessed_labels_are_those_of_the_formulas(part: int) -> None:
    method = DivideMix()
    run = start(method, part=part)
    method.clean = torch.rand(2, N, generator=torch.Generator().manual_seed(5))
    method.clean[:, 9] = 0  # has no label
    x, u = batch_of(run, [1, 2, 9, 4]), batch_of(run, [10, 11, 12])
    found_x, found_u = method.guess(run, x, *(run.views(batch.inputs, strong=False) for batch in (x, u)))

    def mean(inputs: Tensor, slopes: list[float]) -> np.ndarray:
        z = inputs.double().numpy()
        return np.mean([softmax(s * factor * z, 1) for s in slopes for factor in (1, 2)], 0)

    def sharp(p: np.ndarray) -> np.ndarray:
        return p**2 / (p**2).sum(1, keepdims=True)

    slopes = list(SLOPE.values())
    w = method.clean[1 - part, x.index].double().numpy()[:, None]
    expected = w * np.eye(K)[run.given[x.index].clamp(min=0)] + (1 - w) * mean(x.inputs, [slopes[part]])
    np.testing.assert_allclose(found_x, sharp(expected), atol=1e-5)
    np.testing.assert_allclose(found_u, sharp(mean(u.inputs, slopes)), atol=1e-5)
    np.testing.assert_allclose(torch.cat([found_x, found_u]).sum(1), 1, atol=1e-5)


def test_the_losses_are_those_of_the_formulas() -> None:
    method = DivideMix1()
    run = start(method, step=2)
    method.clean = torch.rand(1, N, generator=torch.Generator().manual_seed(5))
    method.steps.fill_(8)
    x, u = batch_of(run, [1, 2, 3, 4]), batch_of(run, [10, 11, 12])
    views = [run.views(batch.inputs, strong=False) for batch in (x, u)]
    targets = [part.repeat(2, 1) for part in method.guess(run, x, *views)]
    found = method.losses(run, x, u)
    generator = torch.Generator().manual_seed(2)
    lam = float(draw_beta(4.0, 4.0, generator))
    lam = max(lam, 1 - lam)
    partner = torch.randperm(14, generator=generator)
    images, soft = torch.cat(views).double(), torch.cat(targets).double()
    z = (lam * images + (1 - lam) * images[partner]).numpy()
    t = (lam * soft + (1 - lam) * soft[partner]).numpy()
    ramp = (1 + 2 / 8 - 1) / (16 / 300 * TINY.epochs)
    assert 0 < method.warmup_end(run) == 1
    expected = {
        "ce": -(t * log_softmax(z, 1))[:8].sum(1).mean(),
        "consistency": min(ramp, 1) * ((softmax(z, 1) - t)[8:] ** 2).mean(),
        "prior": -np.log(K * softmax(z, 1).mean(0)).mean(),
    }
    assert {name: float(loss) for name, loss in found.items()} == pytest.approx(expected, rel=1e-4)
    assert method.weights == {"ce": 1.0, "consistency": 25.0, "prior": 1.0}


def test_with_certain_labels_and_no_mixing_it_is_cross_entropy_with_a_prior() -> None:
    method = DivideMix1(DivideMix1Settings(lambda_u=0, mixup_alpha=0, temperature=1))
    run = start(method)
    method.clean.fill_(1)
    x = batch_of(run, [1, 2, 3, 4])
    found = method.losses(run, x, batch_of(run, [10]))
    views = torch.cat([x.inputs, 2 * x.inputs])
    expected = nn.functional.cross_entropy(views, x.given.repeat(2))
    torch.testing.assert_close(found["ce"], expected)
    assert method.weights["consistency"] == 0


def test_in_warmup_the_entropy_is_subtracted_where_wanted() -> None:
    method = DivideMix1(DivideMix1Settings(confidence_penalty=True))
    run = start(method, epoch=0)
    batch = batch_of(run, list(range(10)))
    found = method.losses(run, batch)
    z, y = batch.inputs.double().numpy(), batch.given.numpy()
    p, labeled = softmax(z, 1), y >= 0
    assert 0 < labeled.sum() < 10
    ce = -log_softmax(z, 1)[np.arange(10), y][labeled].mean()
    assert float(found["ce"]) == pytest.approx(ce, rel=1e-5)
    assert float(found["penalty"]) == pytest.approx((p * np.log(p)).sum(1)[labeled].mean(), rel=1e-5)
    assert method.weights["penalty"] == 1


@pytest.mark.parametrize(("epochs", "expected"), [(300, 10), (60, 6), (100, 10), (4, 1), (1, 1)])
def test_warmup_is_a_tenth_of_the_epochs_and_at_most_the_papers(epochs: int, expected: int) -> None:
    run: Any = SimpleNamespace(settings=SimpleNamespace(epochs=epochs))
    assert DivideMix().warmup_end(run) == expected
    assert DivideMix(DivideMixSettings(warmup_epochs=30)).warmup_end(run) == 30


def test_what_people_decided_is_certain_and_ood_is_not_trained_on() -> None:
    decided = torch.full((N,), -1)
    decided[3], decided[4] = 2, K
    method = DivideMix()
    run = start(method, decided=decided)
    run.given[3], run.given[4] = 2, -1
    x, u = method.begin_epoch(run)
    assert method.clean[:, 3].tolist() == [1, 1]
    selection = method.selection(run)
    assert (int(selection.labels[3]), bool(selection.selected[3])) == (2, True)
    assert not bool(selection.selected[4])
    assert 3 in x
    assert 4 not in torch.cat([x, u])


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_a_split_with_an_empty_side_still_has_batches(threshold: float) -> None:
    """At 0 all labels are taken; at 1 hardly any is, and the most probable one remains."""
    method = DivideMix1(DivideMix1Settings(threshold=threshold))
    run = start(method)
    run.given.clamp_(min=0)
    x, u = method.begin_epoch(run)
    assert len(x) == len(u) > 0
    taken = set(x.flatten().tolist())
    if threshold == 0:
        assert taken == set(range(N))
    else:
        assert taken == set((method.clean[0] == method.clean.amax()).nonzero().flatten().tolist())
        assert method.notes(run) == ["in the end no label was right with probability 1"]


@pytest.mark.parametrize("settings", [{"threshold": 0.0}, {"threshold": 1.0}, {"loss_history": 5}])
def test_it_trains_where_a_side_of_the_split_is_empty(settings: dict[str, Any]) -> None:
    trained = make(DivideMix(DivideMixSettings(**settings)), given()).train()
    assert trained.logits.isfinite().all()
    if settings == {"threshold": 0.0}:
        assert torch.equal(trained.selection.labels, given())


def test_the_other_network_guesses_as_it_is() -> None:
    """Its batch statistics stay, and so do its weights; those of the network in turn change."""
    method = DivideMix()
    labels = given(64)
    made = make(method, labels)
    made.epoch = 1
    made._state = made._begin_part(None, None)
    before = {name: value.clone() for name, value in method.networks.state_dict().items()}
    made._run_part(made._state, 2)
    for name, value in method.networks.state_dict().items():
        if name.startswith("second."):
            assert torch.equal(value, before[name]), name
        elif "projector" not in name:
            assert not torch.equal(value, before[name]), name


def test_both_networks_predict_or_the_first() -> None:
    for ensemble in (True, False):
        trained = make(DivideMix(DivideMixSettings(ensemble=ensemble)), given()).train()
        assert isinstance(trained.network, Ensemble) == ensemble


@pytest.mark.slow
def test_it_finds_wrong_labels_of_digits() -> None:
    pixels, labels, truth = digits(300, noise=0.4)
    known = truth < 8
    pixels, labels, truth = pixels[known], labels[known], truth[known]
    settings = dataclasses.replace(SHORT, epochs=15, batch_size=32)
    trained = Trainer(ResidentInputs(pixels), labels, 8, settings, DivideMix1()).train()
    given_right = float((labels == truth).double().mean())
    found = float((trained.selection.labels == truth).double().mean())
    assert given_right < 0.75
    assert found > 0.85


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"threshold": 1.1}, "threshold must be from 0 to 1"),
        ({"loss_history": 0}, "loss_history must be at least 1"),
        ({"lambda_u": -1.0}, "lambda_u must be at least 0"),
        ({"mixup_alpha": -1.0}, "mixup_alpha must be at least 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"warmup_epochs": -1}, "warmup_epochs must be auto, or at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DivideMixSettings(**bad)
