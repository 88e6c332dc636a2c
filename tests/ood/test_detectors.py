"""Detectors: scores worked by hand, what they learn kept through a file, and all of them exported."""

from math import log
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphclean.errors import InputError
from graphclean.ood.detector import Detector, Outputs
from graphclean.ood.detectors import OWN_DETECTORS, detector_names, load_detector
from graphclean.ood.detectors.logits import MaxSoftmax
from graphclean.ood.detectors.prototypes import NO_DETECTOR, Prototypes


def fitted(name: str, n: int = 40, n_classes: int = 3, width: int = 5) -> tuple[Detector, Outputs]:
    """A detector of random outputs, some without a label, and those outputs."""
    generator = torch.Generator().manual_seed(0)
    z, logits = (torch.randn(n, size, generator=generator) for size in (width, n_classes))
    outputs = Outputs(logits, z)
    return load_detector(name)(n_classes, width).fit(outputs, torch.arange(n) % 4 - 1), outputs


def test_distance_from_prototypes_by_hand() -> None:
    """c_0 is (1, 0), c_1 is (1, 1) / √2 whatever the lengths; the third sample has no part in it."""
    features = torch.tensor([[3.0, 0.0], [2.0, 2.0], [0.0, 9.0], [5.0, 0.0]])
    detector = Prototypes(2, 2).fit_features(features, torch.tensor([0, 1, -1, 0]))
    half = 0.5**0.5
    torch.testing.assert_close(detector.prototypes, torch.tensor([[1.0, 0.0], [half, half]]))
    new = torch.tensor([[7.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [-1.0, -1.0], [1.0, 1.0]])
    expected = torch.tensor([0.0, 1 - half, 1 + half, 1 + half, 0.0])
    torch.testing.assert_close(detector.predict_features(new), expected)
    assert detector.notes() == []


def test_a_class_without_a_sample_draws_nothing_near() -> None:
    detector = Prototypes(3, 2).fit_features(torch.eye(2), torch.tensor([0, 1]))
    assert not detector.prototypes[2].any()
    torch.testing.assert_close(
        detector.predict_features(torch.tensor([[-1.0, -1.0]])), torch.tensor([1 + 0.5**0.5])
    )


def test_without_any_prototype_nothing_is_rejected_and_that_is_noted() -> None:
    detector = Prototypes(2, 2).fit_features(torch.eye(2), torch.tensor([-1, -1]))
    assert detector.predict_features(torch.randn(5, 2)).tolist() == [0] * 5
    assert detector.notes() == [NO_DETECTOR]


def test_largest_softmax_by_hand() -> None:
    detector = MaxSoftmax(3, 2).fit_logits(torch.zeros(4, 3), torch.tensor([0, 1, -1, 2]))
    logits = torch.tensor([[0.0, 0.0, 0.0], [log(8), 0.0, 0.0], [-1e4, 1e4, 0.0]])
    torch.testing.assert_close(detector.predict_logits(logits), torch.tensor([2 / 3, 0.2, 0.0]))
    shifted = detector.predict_logits(logits[:2] + 50)
    torch.testing.assert_close(shifted, torch.tensor([2 / 3, 0.2]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", sorted(OWN_DETECTORS))
def test_a_detector_reads_what_it_needs_and_says_what_it_is(name: str) -> None:
    detector, outputs = fitted(name)
    assert detector.name == name
    assert detector.title
    assert detector.paper
    assert detector.cost
    score = detector(outputs)
    assert score.shape == (len(outputs.z),)
    others = {field: getattr(outputs, field).flip(0) for field in ("logits", "z") if field != detector.needs}
    assert torch.equal(detector(outputs._replace(**others)), score)
    assert not torch.equal(
        detector(outputs._replace(**{detector.needs: getattr(outputs, detector.needs).flip(0)})), score
    )


@pytest.mark.parametrize("name", sorted(OWN_DETECTORS))
def test_what_was_learned_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    detector, outputs = fitted(name)
    save_file(detector.state_dict(), tmp_path / "detector.safetensors")
    again = load_detector(name)(3, 5)
    again.load_state_dict(load_file(tmp_path / "detector.safetensors"))
    assert torch.equal(again(outputs), detector(outputs))
    assert again.notes() == detector.notes()
    assert not list(detector.parameters()), "it learns nothing by gradients"


@pytest.mark.parametrize("name", sorted(OWN_DETECTORS))
def test_a_detector_exports(name: str) -> None:
    detector, outputs = fitted(name)
    few = Outputs(outputs.logits[:7], outputs.z[:7])
    program = torch.export.export(detector.eval(), (few,))
    torch.testing.assert_close(program.module()(few), detector(outputs)[:7])


def test_an_unknown_detector_is_refused_with_the_nearest_name() -> None:
    assert detector_names()[: len(OWN_DETECTORS)] == list(OWN_DETECTORS)
    with pytest.raises(InputError, match=r"ood\.detector=prototype: .*; did you mean prototypes\?"):
        load_detector("prototype")
    with pytest.raises(InputError, match=f"there are {', '.join(detector_names())}"):
        load_detector("zzzzz")
