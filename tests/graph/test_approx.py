import pytest
import torch

from graphclean.graph import nearest_neighbors
from graphclean.graph.ann import approximate_neighbors


def clusters(n: int, spread: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(20, 16, generator=generator)
    return centers[torch.arange(n) % 20] + spread * torch.randn(n, 16, generator=generator)


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_recall_is_what_it_says(spread: float) -> None:
    z = clusters(3000, spread)
    found, measured = approximate_neighbors(z, 10)
    exact = nearest_neighbors(z, 10)
    share = (exact.indices.unsqueeze(2) == found.indices.unsqueeze(1)).any(2).float().mean()
    assert measured >= 0.97
    assert float(share) == pytest.approx(measured, abs=0.03)
    own = torch.arange(3000).unsqueeze(1)
    assert (found.indices != own).all()
    assert (found.similarities.diff(dim=1) <= 0).all()
    unit = torch.nn.functional.normalize(z, dim=1)
    for row in (0, 1234):
        torch.testing.assert_close(found.similarities[row], unit[found.indices[row]] @ unit[row])


def test_two_runs_agree() -> None:
    z = clusters(5000, 1.0)
    one, two = (approximate_neighbors(z, 10).neighbors for _ in range(2))
    assert torch.equal(one.indices, two.indices)
    assert torch.equal(one.similarities, two.similarities)


def test_searching_every_cell_is_exact() -> None:
    z = clusters(400, 1.0)
    found, measured = approximate_neighbors(z, 50, recall=1.1)
    assert measured == 1
    torch.testing.assert_close(found.similarities, nearest_neighbors(z, 50).similarities)


def test_duplicates_and_tiny_sets() -> None:
    found, _ = approximate_neighbors(torch.ones(9, 4), 20)
    assert found.indices.shape == (9, 8)
    for row in range(9):
        assert sorted(found.indices[row].tolist()) == [j for j in range(9) if j != row]
    with pytest.raises(ValueError, match="no neighbors among 1 points"):
        approximate_neighbors(torch.ones(1, 4), 2)


def test_visits_give_the_recall_that_the_sample_promises() -> None:
    """Points without clusters: about half of the groups hold nearly all neighbors."""
    z = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    exact = nearest_neighbors(z, 10).indices
    shares = []
    for wanted in (0.5, 0.9):
        found, promised = approximate_neighbors(z, 10, recall=wanted)
        share = float((exact.unsqueeze(2) == found.indices.unsqueeze(1)).any(2).float().mean())
        assert share == pytest.approx(promised, abs=0.02)
        shares.append(share)
    assert 0.5 <= shares[0] < 0.9 <= shares[1]
