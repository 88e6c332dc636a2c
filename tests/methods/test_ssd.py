"""SSD: its loss against one by hand, that it uses no label, and what it says of classes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from graphclean.errors import InputError
from graphclean.methods.blocks.simclr import simclr_views, supervised_contrast
from graphclean.methods.ssd import SSD, SSDPlus, SsdSettings
from graphclean.training.views import scale
from tests.methods.test_conditions import given, make
from tests.training.test_trainer import digits

pytestmark = pytest.mark.usefixtures("one_thread")


def by_hand(views: np.ndarray, labels: list[int], tau: float) -> float:
    """SupCon over 2B anchors; a label under 0 is like none but its own other view."""
    n = len(labels)
    losses = []
    for i in range(2 * n):
        others = [j for j in range(2 * n) if j != i]
        similarity = views @ views[i] / tau
        same = labels[i % n] >= 0
        positives = [j for j in others if j % n == i % n or (same and labels[j % n] == labels[i % n])]
        total = np.log(np.exp(similarity[others]).sum())
        losses.append(np.mean([total - similarity[j] for j in positives]))
    return float(np.mean(losses))


@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 0], [-1] * 5, [1, -1, 1, -1, 0]])
def test_the_loss_by_hand(labels: list[int]) -> None:
    """Without labels it is NT-Xent: each anchor's one positive is its other view."""
    views = normalize(
        torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64), dim=1
    )
    found = supervised_contrast(views[:5], views[5:], torch.tensor(labels), 0.5)
    assert float(found) == pytest.approx(by_hand(views.numpy(), labels, 0.5))


def weights_after(method: Any, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    make(method, labels).train()
    return dict(method.networks["main"].state_dict())


def test_labels_have_no_part_in_ssd_and_one_in_ssd_plus() -> None:
    one, other = given(), given().flip(0)
    first, second = (weights_after(SSD(), labels) for labels in (one, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
    third, fourth = (weights_after(SSDPlus(), labels) for labels in (one, other))
    assert not all(torch.equal(third[name], fourth[name]) for name in third)


def test_without_labels_ssd_plus_is_ssd() -> None:
    none = torch.full((16,), -1)
    none[0] = 0  # its two views are of one class in either
    first, second = (weights_after(made(), none) for made in (SSD, SSDPlus))
    for name, value in first.items():
        torch.testing.assert_close(second[name], value)


def test_classes_are_those_of_linear_discriminants_of_the_features() -> None:
    labels = torch.randint(0, 3, (100,), generator=torch.Generator().manual_seed(0))
    method = SSD()
    made = make(method, labels, 3)
    trained = made.train()
    network, predictor = method.networks["main"].eval(), method.predictor()
    with torch.no_grad():
        features = network(scale(digits(100)[0])).features.double()
        out = predictor(scale(digits(100)[0]))
    x, y = features.numpy(), labels.numpy()
    means = np.stack([x[y == c].mean(0) for c in range(3)])
    off = x - means[y]
    precision = np.linalg.pinv(off.T @ off / len(off), hermitian=True)
    scores = x @ precision @ means.T - np.einsum("ij,jk,ik->i", means, precision, means) / 2
    np.testing.assert_allclose(out.logits, torch.tensor(scores).log_softmax(1), atol=1e-3)
    torch.testing.assert_close(out.z, normalize(features, dim=1).float())
    assert trained.notes[0].startswith("ssd trains no classifier")


def test_views_are_of_the_size_of_the_images_and_follow_the_generator() -> None:
    made = make(SSD(), given())
    images = torch.randint(0, 256, (5, 3, 9, 7), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    state = made.generator.get_state()
    views = simclr_views(made, images, 0.2)
    assert views.shape == (10, 3, 9, 7)
    assert not torch.equal(views[:5], views[5:])
    made.generator.set_state(state)
    assert torch.equal(views, simclr_views(made, images, 0.2))
    with pytest.raises(InputError, match="3×3 pixels or more, not 2×9"):
        simclr_views(made, images[:, :, :2].repeat(1, 1, 1, 2)[..., :9], 0.2)


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"smallest_crop": 0.0}, {"smallest_crop": 1.1}])
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SsdSettings(**bad)
