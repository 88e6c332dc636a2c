"""What a run keeps of its samples for the report."""

import numpy as np
import pytest
import torch

from graphclean.run import points as room
from graphclean.run.points import gather_points


def test_likeness_is_the_largest_cosine_with_a_prototype() -> None:
    rng = np.random.default_rng(0)
    z, prototypes = rng.normal(size=(30, 6)), rng.normal(size=(3, 6))
    prototypes /= np.linalg.norm(prototypes, axis=1, keepdims=True)
    points = gather_points(torch.as_tensor(z), torch.as_tensor(prototypes))
    expected = (z / np.linalg.norm(z, axis=1, keepdims=True) @ prototypes.T).max(1)
    np.testing.assert_allclose(points["similarity"], expected, atol=1e-6)
    assert "similarity" not in gather_points(torch.as_tensor(z), None)


def test_few_dimensions_keep_the_distances_of_what_has_few() -> None:
    rng = np.random.default_rng(0)
    z = torch.nn.functional.normalize(
        torch.as_tensor(rng.normal(size=(80, 5)) @ rng.normal(size=(5, 90))), dim=1
    )
    points = gather_points(z, None)
    assert points["z"].shape == (80, 50)
    np.testing.assert_allclose(torch.cdist(points["z"], points["z"]), torch.cdist(z, z), atol=1e-3)


def test_many_are_sampled_alike_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAPPED", 20)
    z = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    first, second = gather_points(z, None), gather_points(z, None)
    assert len(first["rows"].unique()) == 20
    assert torch.equal(first["rows"], second["rows"])
    assert torch.equal(first["rows"], first["rows"].sort().values)
