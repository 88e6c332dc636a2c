"""Detectors: scores worked by hand, what they learn kept through a file, and all of them exported."""

from math import log
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils._pytree import tree_map

from graphclean.errors import InputError
from graphclean.ood.detector import Detector, Outputs
from graphclean.ood.detectors import OWN_DETECTORS, detector_names, load_detector
from graphclean.ood.detectors.logits import MaxSoftmax
from graphclean.ood.detectors.prototypes import NO_DETECTOR, Prototypes
from graphclean.training.inference import map_outputs

OF_OUTPUTS = [name for name in OWN_DETECTORS if load_detector(name).needs != "inputs"]
"""All but those that are given the network itself."""


def make_outputs(n: int = 40, n_classes: int = 3, width: int = 6, seed: int = 0) -> Outputs:
    """Random features after a ReLU, and others; logits are those of `head`."""
    generator = torch.Generator().manual_seed(seed)
    features, other, z = (torch.randn(n, size, generator=generator) for size in (width, 4, width))
    features = features.relu()
    weight, bias = head(n_classes, width)
    return Outputs(features @ weight.T + bias, z, features, (other, features))


def head(n_classes: int, width: int) -> tuple[Tensor, Tensor]:
    """A classifier."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n_classes, width, generator=generator), torch.randn(n_classes, generator=generator)


def fitted(name: str, outputs: Outputs, labels: Tensor | None = None) -> Detector:
    """A detector of outputs, some of them without a label."""
    assert outputs.features is not None
    size = outputs.logits.shape[1], outputs.features.shape[1]
    made = load_detector(name)(*size)
    made.take_head(*head(*size))
    return made.fit(outputs, torch.arange(len(outputs.z)) % (size[0] + 1) - 1 if labels is None else labels)


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


@pytest.mark.parametrize("name", OWN_DETECTORS)
def test_a_detector_says_what_it_is(name: str) -> None:
    made = load_detector(name)
    assert made.name == name
    assert made.paper
    assert made.cost
    assert made.choices or made.needs in ("z", "logits")


@pytest.mark.parametrize("name", OF_OUTPUTS)
def test_a_detector_reads_what_it_needs_row_by_row(name: str) -> None:
    outputs = make_outputs()
    detector = fitted(name, outputs)
    score = detector(outputs)
    assert score.shape == (len(outputs.z),)
    assert len(score.unique()) > 30
    mirrored = outputs._replace(
        **{
            key: tuple(layer.flip(0) for layer in value) if key == "layers" else value.flip(0)
            for key, value in outputs._asdict().items()
            if key == detector.needs
        }
    )
    torch.testing.assert_close(detector(mirrored), score.flip(0))


@pytest.mark.parametrize("name", OF_OUTPUTS)
def test_what_was_learned_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    outputs = make_outputs()
    detector = fitted(name, outputs)
    save_file(detector.state_dict(), tmp_path / "detector.safetensors")
    again = load_detector(name)(3, 6)
    again.load_state_dict(load_file(tmp_path / "detector.safetensors"))
    assert torch.equal(again(outputs), detector(outputs))
    assert again.notes() == detector.notes()
    assert not list(detector.parameters()), "it learns nothing by gradients"


@pytest.mark.parametrize("name", OF_OUTPUTS)
def test_a_detector_exports(name: str) -> None:
    outputs = make_outputs()
    detector = fitted(name, outputs)
    few = map_outputs(lambda tensor: tensor[:7], outputs)
    sizes = tree_map(lambda _: {0: torch.export.Dim("batch")}, few)
    program = torch.export.export(detector.eval(), (few,), dynamic_shapes=(sizes,))
    some = map_outputs(lambda tensor: tensor[:9], outputs)
    torch.testing.assert_close(program.module()(some), detector(outputs)[:9])


CORNERS = {
    "nothing selected": (3, torch.full((12,), -1)),
    "one sample": (3, torch.tensor([-1, 2] + [-1] * 10)),
    "one sample a class": (3, torch.tensor([0, 1, 2] + [-1] * 9)),
    "a class without samples": (3, torch.arange(12) % 2),
    "one class alone": (3, torch.zeros(12, dtype=torch.long)),
    "two classes": (2, torch.arange(12) % 2),
}


@pytest.mark.parametrize("corner", CORNERS)
@pytest.mark.parametrize("name", OF_OUTPUTS)
def test_corners_give_numbers_and_a_note(name: str, corner: str, tmp_path: Path) -> None:
    n_classes, labels = CORNERS[corner]
    new = make_outputs(50, n_classes, seed=2)
    for outputs in (make_outputs(12, n_classes), map_outputs(torch.zeros_like, make_outputs(12, n_classes))):
        detector = fitted(name, outputs, labels)
        assert detector(new).isfinite().all()
        assert detector(outputs).isfinite().all()
        assert all(buffer.isfinite().all() for key, buffer in detector.named_buffers() if key != "limit")
        save_file(detector.state_dict(), tmp_path / "detector.safetensors")
        again = load_detector(name)(n_classes, 6)
        again.load_state_dict(load_file(tmp_path / "detector.safetensors"))
        assert torch.equal(again(new), detector(new))
    learns = detector.needs not in ("logits",) and name not in ("ash", "scale", "fdbd")
    if corner == "nothing selected" and (learns or name == "kl-matching"):
        assert len(detector.notes()) == 1


def test_features_that_do_not_vary_in_all_directions_are_noted() -> None:
    outputs = make_outputs(5)
    for name in ("mahalanobis", "rmd", "mahalanobis-layers"):
        (note,) = fitted(name, outputs, torch.arange(5) % 3).notes()
        assert "ignores the other directions" in note
        assert fitted(name, make_outputs()).notes() == []


def test_an_unknown_detector_is_refused_with_the_nearest_name() -> None:
    assert detector_names()[: len(OWN_DETECTORS)] == list(OWN_DETECTORS)
    with pytest.raises(InputError, match=r"ood\.detector=prototype: .*; did you mean prototypes\?"):
        load_detector("prototype")
    with pytest.raises(InputError, match=f"there are {', '.join(detector_names())}"):
        load_detector("zzzzz")
