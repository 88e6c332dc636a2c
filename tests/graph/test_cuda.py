"""The same results on CUDA as on the CPU, where there is a GPU."""

import dataclasses

import pytest
import torch

from graphclean.config import GraphSettings
from graphclean.graph import (
    GraphCleaner,
    gather_evidence,
    knn_graph,
    nearest_neighbors,
    normalize_graph,
    weight_graph,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def points(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(n) % 5
    z = 2 * torch.randn(5, 12, generator=generator)[truth] + torch.randn(n, 12, generator=generator)
    labels = torch.where(
        torch.rand(n, generator=generator) < 0.3, torch.randint(0, 5, (n,), generator=generator), truth
    )
    return z, labels, torch.randn(n, 5, generator=generator)


def test_neighbors_with_ties() -> None:
    z = points(3000)[0].round().repeat(2, 1)  # many exact ties
    on_cpu, on_cuda = nearest_neighbors(z, 20), nearest_neighbors(z.cuda(), 20)
    torch.testing.assert_close(on_cuda.similarities.cpu(), on_cpu.similarities)
    own = torch.arange(6000).unsqueeze(1)
    assert (on_cuda.indices.cpu() != own).all()
    level = on_cuda.similarities.diff(dim=1) == 0
    assert (on_cuda.indices.diff(dim=1)[level] > 0).all()


@pytest.mark.parametrize("symmetrize", ["max", "sum"])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_soft_labels(symmetrize: str, leave_one_out: bool) -> None:
    z, labels, _ = points(2000)
    graph = knn_graph(nearest_neighbors(z, 10))
    Y = torch.nn.functional.one_hot(labels, 5).float()
    on_cpu = gather_evidence(
        normalize_graph(weight_graph(graph, symmetrize=symmetrize)), Y, leave_one_out=leave_one_out
    )
    S = normalize_graph(weight_graph(graph.cuda(), symmetrize=symmetrize))
    on_cuda = gather_evidence(S, Y.cuda(), leave_one_out=leave_one_out)
    torch.testing.assert_close(on_cuda.cpu(), on_cpu, atol=1e-5, rtol=0)


@pytest.mark.parametrize("lcc_edges", ["any", "mutual"])
def test_cleaner_over_epochs(lcc_edges: str) -> None:
    z, labels, logits = points(2000)
    settings = GraphSettings(k=10, lcc_edges=lcc_edges)
    cleaners = [GraphCleaner(labels, 5, settings), GraphCleaner(labels.cuda(), 5, settings)]
    for scale in (0.5, 1.0, 2.0):
        on_cpu, on_cuda = (
            cleaners[0].step(z, scale * logits),
            cleaners[1].step(z.cuda(), scale * logits.cuda()),
        )
        assert on_cuda.selected.device.type == "cuda"
        for name in ("selected", "labels", "confident", "degrees"):
            assert torch.equal(getattr(on_cuda, name).cpu(), getattr(on_cpu, name)), name


def test_class_dependent_noise_is_corrected() -> None:
    z, labels, logits = points(2000)
    given = torch.where(
        (labels == 0) & (torch.rand(2000, generator=torch.Generator().manual_seed(1)) < 0.4), 1, labels
    )
    settings = GraphSettings(k=10, leave_one_out=True, class_dependent_noise=True)
    on_cpu = GraphCleaner(given, 5, settings).step(z, logits)
    on_cuda = GraphCleaner(given.cuda(), 5, settings).step(z.cuda(), logits.cuda())
    plain = GraphCleaner(given, 5, dataclasses.replace(settings, class_dependent_noise=False)).step(z, logits)
    assert not torch.equal(on_cpu.soft_labels, plain.soft_labels)
    torch.testing.assert_close(on_cuda.soft_labels.cpu(), on_cpu.soft_labels, atol=1e-3, rtol=0)
