"""ProtoMix: its cleaning against the formulas, and each loss against its own."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import Tensor

from graphclean.methods.protomix import ProtoMix, ProtoMixSettings
from graphclean.training import EpochReport, Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch, Selection
from graphclean.training.networks import Output
from tests.training.test_trainer import TINY, digits

pytestmark = pytest.mark.usefixtures("one_thread")
N, K = 20, 3


def start(**settings: Any) -> tuple[ProtoMix, Any]:
    """The method on random labels, some missing, and a run of nothing but them."""
    given = torch.randint(-1, K, (N,), generator=torch.Generator().manual_seed(0))
    run: Any = SimpleNamespace(given=given, n_classes=K, device=torch.device("cpu"), decided=None)
    run.new_network = lambda: torch.nn.ModuleDict({"projector": torch.nn.Linear(6, 4)})
    run.settings, run.part, run.epoch = TINY, 0, 1
    network = run.new_network()
    network.embedding_dim, network.feature_dim = 4, 6
    run.new_network = lambda: network
    method = ProtoMix(ProtoMixSettings(**settings))
    method.setup(run)
    return method, run


def outputs(seed: int) -> Output:
    generator = torch.Generator().manual_seed(seed)
    z = torch.nn.functional.normalize(torch.randn(N, 4, generator=generator), dim=1)
    return Output(3 * torch.randn(N, K, generator=generator), z)


class Oracle:
    """The cleaning in float64, a sample at a time."""

    def __init__(self, given: np.ndarray, low: float, k: int) -> None:
        self.given, self.low, self.k = given, low, k
        self.soft: np.ndarray | None = None

    def trust(self, soft: np.ndarray) -> np.ndarray:
        soft = soft.copy()
        for i, y in enumerate(self.given):
            if y >= 0 and soft[i, y] > self.low:
                soft[i] = np.eye(K)[y]
        return soft

    def clean(self, out: Output) -> np.ndarray:
        p, z = softmax(out.logits.double().numpy(), 1), out.z.double().numpy()
        before = self.trust(p) if self.soft is None else self.soft
        cosine = z @ z.T
        found = np.empty_like(p)
        for i in range(N):
            near = sorted((j for j in range(N) if j != i), key=lambda j: -cosine[i, j])[: self.k]
            weights = np.array([np.exp(cosine[i, j] / 0.3) for j in near])
            found[i] = (weights @ before[near] / weights.sum() + p[i]) / 2
        self.soft = self.trust(found)
        return self.soft


@pytest.mark.parametrize("low", [0.0, 0.1, 0.4, 1.0])
def test_labels_are_cleaned_as_the_formulas_have_it(low: float) -> None:
    """Over three epochs, each of which starts from the soft labels of the one before; k = 20 / 3 / 2."""
    method, run = start(low=low)
    oracle = Oracle(run.given.numpy(), low, 3)
    for epoch in range(3):
        out = outputs(epoch)
        decision = method.clean(run, out, first=epoch == 0)
        expected = oracle.clean(out)
        np.testing.assert_allclose(method.soft.numpy(), expected, atol=1e-5)
        np.testing.assert_allclose(method.soft.sum(1).numpy(), 1, atol=1e-5)
        assert decision.labels.tolist() == expected.argmax(1).tolist()
        assert decision.selected.tolist() == (expected.max(1) > 0.9).tolist()


def test_at_low_0_every_given_label_stands() -> None:
    method, run = start(low=0.0)
    decision = method.clean(run, outputs(0), first=True)
    labeled = run.given >= 0
    assert decision.selected[labeled].all()
    assert torch.equal(decision.labels[labeled], run.given[labeled])


def test_what_people_decided_stands() -> None:
    method, run = start()
    run.decided = torch.full((N,), -1)
    run.decided[3], run.decided[4] = 1, K
    decision = method.clean(run, outputs(0), first=True)
    assert (decision.labels[3], decision.selected[3], decision.selected[4]) == (1, True, False)


def train(**settings: Any) -> tuple[ProtoMix, Trainer]:
    """On 96 digits, in an epoch that has prototypes, of the labels as given."""
    pixels, labels, _ = digits(96)
    labels[::9] = -1
    method = ProtoMix(ProtoMixSettings(**{"neighbors_from": 1.0, **settings}))
    made = Trainer(ResidentInputs(pixels), labels, 8, TINY, method)
    made.epoch = 1
    made._state = made._begin_part(None, None)
    return method, made


def test_the_losses_are_those_of_the_formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes through the network is caught, and each loss found from the outputs alone."""
    method, made = train()
    passes: list[list[Output]] = []
    forward = made.forward

    def watch(*batches: Tensor, **options: Any) -> Any:
        passes.append(list(forward(*batches, **options)))
        return passes[-1]

    monkeypatch.setattr(made, "forward", watch)
    index = made._state.streams[0][0]  # type: ignore[union-attr]
    found = method.losses(made, Batch(index, made.inputs.inputs[index], made.given[index]))  # type: ignore[attr-defined]
    ((weak, strong, mixed),) = passes
    given = made.given[index]
    labeled = (given >= 0).numpy()
    log_p = log_softmax(weak.logits.detach().double().numpy(), 1)[labeled]
    assert found["ce"].item() == pytest.approx(-log_p[np.arange(len(log_p)), given[labeled]].mean(), rel=1e-4)
    z, own = weak.z.detach().double().numpy(), strong.z.detach().double().numpy()
    each = []
    for i in range(len(z)):
        others = [z[i] @ z[j] for j in range(len(z)) if j != i]
        others += [z[i] @ row for row in own]
        each.append(np.log(np.exp(np.array(others) / 0.3).sum()) - z[i] @ own[i] / 0.3)
    assert found["inst"].item() == pytest.approx(np.mean(each), rel=1e-4)
    errors = []
    for out in (weak, strong):
        assert out.features is not None
        decoded = method.heads["decoder"](method.networks["main"].projector(out.features))  # type: ignore[operator]
        errors.append((decoded - out.features).square().mean().item())
    assert found["recon"].item() == pytest.approx(sum(errors), rel=1e-4)
    assert len(mixed.logits) == 2 * labeled.sum()
    assert method.prototypes.norm(dim=1).tolist() == pytest.approx([1.0] * 8, abs=1e-5)


def test_mixed_views_are_drawn_to_both_prototypes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of unmixed views, λ being 1, it is the cross-entropy of the cosines with the prototypes over τ."""
    method, made = train(mixup_alpha=0.0, tau=0.5)
    caught: list[Output] = []
    forward = made.forward
    monkeypatch.setattr(made, "forward", lambda *b, **o: caught.extend(forward(*b, **o)) or caught)
    index = made._state.streams[0][0]  # type: ignore[union-attr]
    found = method.losses(made, Batch(index, made.inputs.inputs[index], made.given[index]))  # type: ignore[attr-defined]
    given = made.given[index]
    labels = given[given >= 0].repeat(2).numpy()
    cosines = caught[2].z.detach().double().numpy() @ method.prototypes.double().numpy().T
    log_p = log_softmax(cosines / 0.5, 1)
    assert found["proto"].item() == pytest.approx(-log_p[np.arange(len(labels)), labels].mean(), rel=1e-4)


def test_phases_scale_with_the_epochs() -> None:
    """Warm-up alone in the first part; labels as given until neighbors decide, from the second epoch on."""
    method = ProtoMix(ProtoMixSettings(warmup_steps=2, low=0.5))
    pixels, labels, _ = digits(96)
    reports: list[EpochReport] = []
    taken: list[Selection] = []

    def keep(report: EpochReport, selection: Selection) -> None:
        reports.append(report)
        taken.append(selection)

    made = Trainer(ResidentInputs(pixels), labels, 8, TINY, method)
    made.train(on_epoch=keep)
    assert [method.parts(epoch) for epoch in range(3)] == [2, 1, 1]
    assert torch.equal(taken[0].labels, made.given)
    assert taken[0].selected.all()
    assert not torch.equal(taken[1].labels, made.given)
    assert reports[0].losses["proto"] > 0


def test_the_weight_of_the_prototypes_grows_from_1() -> None:
    method, run = start(lambda_proto=5.0, proto_ramp=0.5)
    weights = []
    for epoch in range(4):
        run.epoch = epoch
        weights.append(5 * method._ramp(run))
    assert weights == pytest.approx([1, 3, 5, 5])
    assert start(lambda_proto=5.0)[0]._ramp(run) == 1


@pytest.mark.parametrize("bad", [{"low": 2.0}, {"k": 0}, {"tau": 0.0}, {"lambda_proto": -1.0}])
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        ProtoMixSettings(**bad)
