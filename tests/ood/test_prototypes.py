import torch

from graphclean.ood import class_prototypes, prototype_similarity


def test_prototypes_are_unit_means_of_the_selected() -> None:
    z = torch.tensor([[2.0, 0.0], [0.0, 5.0], [0.0, 1.0], [-9.0, 0.0]])
    labels = torch.tensor([0, 0, 1, 0])
    selected = torch.tensor([True, True, True, False])
    half = 0.5**0.5
    prototypes = class_prototypes(z, labels, selected, 3)
    torch.testing.assert_close(prototypes, torch.tensor([[half, half], [0.0, 1.0], [0.0, 0.0]]))
    similarity = prototype_similarity(torch.tensor([[0.0, 3.0]]), prototypes)
    torch.testing.assert_close(similarity, torch.tensor([[half, 1.0, -1.0]]))
