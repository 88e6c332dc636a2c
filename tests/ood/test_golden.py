"""The detectors of the literature against numbers made from their papers, and against pytorch-ood."""

import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphclean.ood.detectors import OWN_DETECTORS
from tests.ood.golden import PARAMETERS, SCORES, Case, fitted, make_case

WITHOUT = {"prototypes", "odin", "mahalanobis-layers", "rot", "rot-plus"}
"""Detectors of which the fixture has no numbers: ours, and those of more than features."""


def test_the_fixture_is_the_published_one() -> None:
    case = make_case()
    expected = torch.tensor([2.5, 1.144218, 1.485450, 1.363209, 0.834988, 0.149217]).double()
    torch.testing.assert_close(case.train.z[0], expected, atol=1e-6, rtol=0)
    expected = torch.tensor([1.294814, 0.897708, 1.858874, 0.236619, 0.794754, 1.227416]).double()
    torch.testing.assert_close(case.new.z[1], expected, atol=1e-6, rtol=0)
    right = case.train.logits.argmax(1) == case.labels
    assert torch.bincount(case.labels[right]).tolist() == [10, 5, 8]
    assert case.new.logits.argmax(1).tolist() == [2, 0, 0, 2]


def test_detectors_of_the_literature_are_there() -> None:
    assert set(SCORES) | WITHOUT <= set(OWN_DETECTORS)


@pytest.mark.parametrize("name", SCORES)
def test_scores_are_those_of_the_papers(name: str) -> None:
    case = make_case()
    found = fitted(name, case, **PARAMETERS.get(name, {}))(case.new)
    expected = torch.tensor(SCORES[name]).double() + (name == "msp")
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.fixture
def theirs() -> Iterator[Any]:
    """pytorch-ood's detectors, without its data sets and models: these import torchvision."""
    found = PathFinder.find_spec("pytorch_ood")
    if found is None or not found.submodule_search_locations:
        pytest.skip("pytorch-ood is not installed")
    before = set(sys.modules)
    top = types.ModuleType("pytorch_ood")
    top.__path__ = list(found.submodule_search_locations)
    sys.modules["pytorch_ood"] = top
    try:
        yield pytest.importorskip("pytorch_ood.detector")
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] == "pytorch_ood":
                del sys.modules[name]


def their_score(kit: Any, name: str, case: Case) -> Tensor:
    """What pytorch-ood says, in our conventions; it computes in float32."""
    train, new = (rows.z.float() for rows in (case.train, case.new))
    weight, bias = case.weight.float(), case.bias.float()
    head = nn.Linear(*weight.T.shape)
    head.weight.data, head.bias.data = weight, bias
    maps = nn.Sequential(nn.Flatten(), head)

    def on_logits(made: Any) -> Tensor:
        return torch.as_tensor(made.predict_logits(case.new.logits.float()))

    def on_features(made: Any) -> Tensor:
        return torch.as_tensor(made.fit_features(train, case.labels).predict_features(new))

    def on_maps(made: Any) -> Tensor:
        return torch.as_tensor(made.predict_feature_maps(new[:, :, None, None]))

    makers: dict[str, Callable[[], Tensor]] = {
        "msp": lambda: 1 + on_logits(kit.MaxSoftmax(None)),
        "max-logit": lambda: on_logits(kit.MaxLogit(None)),
        "energy": lambda: on_logits(kit.EnergyBased(None)),
        "entropy": lambda: on_logits(kit.Entropy(None)),
        "gen": lambda: len(bias) * on_logits(kit.GEN(None, gamma=0.1)),
        "kl-matching": lambda: on_logits(
            kit.KLMatching(None).fit_logits(case.train.logits.float(), case.labels)
        ),
        "mahalanobis": lambda: 2 * len(train) * on_features(kit.Mahalanobis(None)),
        "rmd": lambda: len(train) * on_features(kit.RMD(None)),
        "knn": lambda: on_features(kit.KNN(None, k=5)),
        "vim": lambda: on_features(kit.ViM(None, 3, weight, bias)),
        "she": lambda: on_features(kit.SHE(None, head)),
        "fdbd": lambda: on_features(kit.fDBD(None, head)),
        "nnguide": lambda: on_features(kit.NNGuide(None, head, k=10)),
        "react": lambda: on_maps(
            kit.ReAct(None, maps, percentile=0.9).fit_feature_maps(train[:, :, None, None], case.labels)
        ),
        "scale": lambda: on_maps(kit.SCALE(None, maps, percentile=0.65)),
        "ash": lambda: on_maps(kit.ASH(None, maps, percentile=0.65)),
    }
    return makers[name]().detach().double()


@pytest.mark.parametrize("name", [name for name in SCORES if name != "ssd"])  # which it has not
def test_scores_are_those_of_pytorch_ood(theirs: Any, name: str) -> None:
    case = make_case()
    found = fitted(name, case, **PARAMETERS.get(name, {}))(case.new)
    torch.testing.assert_close(found, their_score(theirs, name, case), atol=2e-5, rtol=2e-5)
