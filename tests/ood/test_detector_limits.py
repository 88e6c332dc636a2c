"""What the detectors are by their definitions: invariances, limits, and other implementations."""

import numpy as np
import pytest
import torch
from sklearn.covariance import EmpiricalCovariance
from sklearn.neighbors import NearestNeighbors as SklearnNeighbors
from torch import Tensor, nn

from graphclean.ood.detector import Detector
from graphclean.ood.detectors import load_detector
from graphclean.ood.detectors.features import Mahalanobis, NearestNeighbors, RelativeMahalanobis
from graphclean.ood.detectors.inputs import ODIN
from graphclean.ood.detectors.layers import MahalanobisLayers
from graphclean.training.networks import Output
from tests.ood.golden import Case, fitted, make_case


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case()


@pytest.mark.parametrize("name", ["msp", "entropy", "gen", "kl-matching"])
def test_a_constant_on_all_logits_changes_no_probability(case: Case, name: str) -> None:
    detector = fitted(name, case)
    torch.testing.assert_close(detector.predict_logits(case.new.logits + 7), detector(case.new))


@pytest.mark.parametrize("name", ["energy", "max-logit"])
def test_a_constant_on_all_logits_shifts_others(case: Case, name: str) -> None:
    detector = fitted(name, case)
    torch.testing.assert_close(detector.predict_logits(case.new.logits + 7), detector(case.new) - 7)


def test_probabilities_next_to_1_are_told_apart_in_float32() -> None:
    """γ = 0.1 makes 0.16 of 1e-8, which is lost where 1 − p is rounded."""
    logits = torch.tensor([[20.0, 0.0, 0.0], [22.0, 0.0, 0.0], [200.0, 0.0, -200.0]])
    gen = load_detector("gen")(3, 6)
    torch.testing.assert_close(
        gen.predict_logits(logits), gen.predict_logits(logits.double()).float(), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("made", [Mahalanobis, RelativeMahalanobis])
def test_an_affine_map_changes_no_mahalanobis_distance(case: Case, made: type[Detector]) -> None:
    turn = torch.eye(6).double() + 0.3 * torch.arange(36).double().reshape(6, 6).sin()
    plain, turned = (
        made(3, 6).fit_features(x, case.labels).predict_features(t)
        for x, t in ((case.train.z, case.new.z), (case.train.z @ turn + 5, case.new.z @ turn + 5))
    )
    torch.testing.assert_close(turned, plain)


@pytest.mark.parametrize("name", ["knn", "ssd"])
def test_the_length_of_a_feature_is_nothing_to_its_neighbors_and_to_ssd(case: Case, name: str) -> None:
    detector = fitted(name, case)
    lengths = torch.tensor([[0.1], [2.0], [30.0], [1.0]]).double()
    torch.testing.assert_close(detector.predict_features(lengths * case.new.z), detector(case.new))


def test_boundaries_stay_where_all_classes_move_alike(case: Case) -> None:
    moved = case._replace(weight=case.weight + torch.linspace(-1, 1, 6).double(), bias=case.bias + 3)
    torch.testing.assert_close(fitted("fdbd", moved)(case.new), fitted("fdbd", case)(case.new))


def test_probabilities_that_are_a_class_mean_match_it(case: Case) -> None:
    detector = fitted("kl-matching", case)
    p = case.train.logits.softmax(1)
    means = torch.stack([p[p.argmax(1) == k].mean(0) for k in range(3)])
    found = detector.predict_logits(means.log())
    torch.testing.assert_close(found, torch.zeros(3).double(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["scale", "ash"])
def test_with_all_features_kept_each_grows_by_e(case: Case, name: str) -> None:
    detector = fitted(name, case, left_out=0.0)
    logits = (case.new.z * np.e) @ case.weight.T + case.bias
    torch.testing.assert_close(detector(case.new), -logits.logsumexp(1))


def test_one_class_is_no_nearer_than_all() -> None:
    case = make_case()
    alone = RelativeMahalanobis(1, 6).fit_features(case.train.z, torch.zeros(30, dtype=torch.long))
    torch.testing.assert_close(alone.predict_features(case.new.z), torch.zeros(4).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "changes"), [("vim", {"dimensions": 6}), ("react", {"quantile": 1.0})])
def test_in_the_limit_it_is_energy(case: Case, name: str, changes: dict[str, float]) -> None:
    torch.testing.assert_close(fitted(name, case, **changes)(case.new), fitted("energy", case)(case.new))


def test_a_training_sample_is_its_own_nearest_neighbor(case: Case) -> None:
    detector = fitted("knn", case, k=1)
    torch.testing.assert_close(detector(case.train), torch.zeros(30).double(), atol=1e-7, rtol=0)


def random_features(n: int, seed: int) -> Tensor:
    return torch.randn(n, 8, generator=torch.Generator().manual_seed(seed)).double() @ torch.diag(
        torch.linspace(0.1, 4, 8).double()
    )


def sklearn_distance(x: Tensor, labels: Tensor, new: Tensor) -> np.ndarray:
    """By scikit-learn's covariance of features around their class means."""
    known = labels >= 0
    means = torch.stack([x[labels == k].mean(0) for k in range(3)])
    model = EmpiricalCovariance(assume_centered=True).fit((x[known] - means[labels[known]]).numpy())
    return np.min([model.mahalanobis((new - mean).numpy()) for mean in means], axis=0)


def test_mahalanobis_as_scikit_learn_has_it() -> None:
    x, new, labels = random_features(60, 0), random_features(20, 1), torch.arange(60) % 4 - 1
    found = Mahalanobis(3, 8).fit_features(x, labels).predict_features(new)
    np.testing.assert_allclose(found, sklearn_distance(x, labels, new))


def test_layers_are_standardized_and_added() -> None:
    layers = tuple(
        random_features(60, seed) @ torch.eye(8).double()[:, :width] for seed, width in ((0, 8), (1, 3))
    )
    new = tuple(
        random_features(20, seed) @ torch.eye(8).double()[:, :width] for seed, width in ((2, 8), (3, 3))
    )
    labels = torch.arange(60) % 4 - 1
    expected = np.zeros(20)
    for layer, others in zip(layers, new, strict=True):
        own = sklearn_distance(layer, labels, layer[labels >= 0])
        expected += (sklearn_distance(layer, labels, others) - own.mean()) / own.std()
    found = MahalanobisLayers(3, 8).fit_layers(layers, labels).predict_layers(new)
    np.testing.assert_allclose(found, expected)


def test_neighbors_as_scikit_learn_has_them() -> None:
    x, new, labels = random_features(200, 0), random_features(20, 1), torch.arange(200) % 4 - 1
    unit = [(rows / rows.norm(dim=1, keepdim=True)).numpy() for rows in (x[labels >= 0], new)]
    expected = SklearnNeighbors(n_neighbors=25).fit(unit[0]).kneighbors(unit[1])[0][:, -1]
    found = NearestNeighbors(3, 8).fit_features(x, labels).predict_features(new)  # 150 // (2 · 3) = 25
    np.testing.assert_allclose(found, expected)


def test_a_large_bank_is_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphclean.ood.detectors.features.BANK", 10)
    x = random_features(40, 0)
    bank = NearestNeighbors(3, 8).fit_features(x, torch.zeros(40, dtype=torch.long)).bank
    torch.testing.assert_close(bank, nn.functional.normalize(x[::4], dim=1))


class Linear(nn.Module):
    """A network whose gradient is known."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x: Tensor) -> Output:
        return Output(x @ self.weight.T + self.bias, x)


def odin_by_numpy(case: Case, x: np.ndarray, temperature: float, step: float) -> np.ndarray:
    """With the gradient of −log p_ŷ worked out: Wᵀ(p − e_ŷ) / T."""
    weight, bias = case.weight.numpy(), case.bias.numpy()

    def softmax(rows: np.ndarray) -> np.ndarray:
        logits = (rows @ weight.T + bias) / temperature
        e = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(e / e.sum(1, keepdims=True))

    p = softmax(x)
    gradient = (p - np.eye(3)[p.argmax(1)]) @ weight / temperature
    return np.asarray(-softmax(x - step * np.sign(gradient)).max(1))


@pytest.mark.parametrize(("temperature", "step"), [(1.0, 0.0), (1000.0, 0.0), (1000.0, 0.05)])
def test_odin_steps_along_the_gradient(case: Case, temperature: float, step: float) -> None:
    detector = ODIN(3, 6).double()
    detector.temperature = temperature
    detector.step.fill_(step)
    with torch.no_grad():
        found = detector.predict_inputs(Linear(case.weight, case.bias), case.new.z)
    expected = odin_by_numpy(case, case.new.z.numpy(), temperature, step)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_odin_takes_the_step_that_makes_selected_samples_most_probable(case: Case) -> None:
    labels = torch.where(case.labels == 1, -1, case.labels)

    def read(rows: Tensor) -> list[Tensor]:
        assert not (labels[rows] < 0).any()
        return list(torch.split(case.train.z[rows], 7))

    detector = ODIN(3, 6).double()
    detector.steps = (0.0, 0.3, 5.0)
    x = case.train.z[labels >= 0].numpy()
    means = [odin_by_numpy(case, x, 1000.0, step).mean() for step in detector.steps]
    detector.fit_inputs(Linear(case.weight, case.bias), read, labels)  # type: ignore[arg-type]
    assert float(detector.step) == detector.steps[int(np.argmin(means))]
    assert float(ODIN(3, 6).fit_inputs(nn.Identity(), read, labels.clamp(max=-1)).step) == 0  # type: ignore[arg-type]
