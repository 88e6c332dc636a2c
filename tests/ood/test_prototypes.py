import numpy as np
import torch
from scipy.special import softmax

from graphclean.ood import class_prototypes, ensemble_with_prototypes, prototype_similarity


def test_prototypes_are_unit_means_of_the_selected() -> None:
    z = torch.tensor([[2.0, 0.0], [0.0, 5.0], [0.0, 1.0], [-9.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 0])
    selected = torch.tensor([True, True, True, False])
    half = 0.5**0.5
    prototypes = class_prototypes(z, labels, selected, 3)
    torch.testing.assert_close(prototypes, torch.tensor([[half, half], [0.0, 1.0], [0.0, 0.0]]))
    similarity = prototype_similarity(torch.tensor([[0.0, 3.0]]), prototypes)
    torch.testing.assert_close(similarity, torch.tensor([[half, 1.0, -1.0]]))


def test_without_any_prototype_nothing_is_far() -> None:
    none = class_prototypes(torch.eye(2), torch.tensor([0, 1]), torch.tensor([False, False]), 3)
    for kind in (torch.float32, torch.float64, torch.bfloat16):
        z = torch.tensor([[0.0, 3.0]], dtype=kind)
        torch.testing.assert_close(prototype_similarity(z, none.to(kind)), torch.ones(1, 3, dtype=kind))


def test_both_classifiers_count_alike() -> None:
    rng = np.random.default_rng(0)
    logits, cosines = rng.normal(0, 3, (50, 4)), rng.uniform(-1, 1, (50, 4))
    geometric = np.sqrt(softmax(logits, axis=1) * softmax(10 * cosines, axis=1))
    found = ensemble_with_prototypes(torch.as_tensor(logits), torch.as_tensor(cosines)).exp().numpy()
    np.testing.assert_allclose(found, geometric / geometric.sum(1, keepdims=True), rtol=1e-10)
    # A class without a prototype has a cosine of -1: it takes a sure classifier to name it.
    sure = ensemble_with_prototypes(torch.tensor([[0.0, 30.0]]), torch.tensor([[0.0, -1.0]]))
    unsure = ensemble_with_prototypes(torch.tensor([[0.0, 5.0]]), torch.tensor([[0.0, -1.0]]))
    assert [sure.argmax().item(), unsure.argmax().item()] == [1, 0]
