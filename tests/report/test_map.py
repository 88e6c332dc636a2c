"""The map of a run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean._files import write_tensors
from graphclean.errors import InputError
from graphclean.report.map import draw_map, read_points
from graphclean.report.samples import Samples, read_samples
from graphclean.runs.folder import read_verdicts
from tests.report.builders import CLASSES, make_run


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    return read_samples(read_verdicts(make_run(tmp_path / "run")), CLASSES, None)


def test_groups_that_are_separated_stay_apart(samples: Samples) -> None:
    rng = np.random.default_rng(0)
    group = np.arange(60) % 2
    z = (rng.normal(size=(60, 10)) + 40 * group[:, None]).astype(np.float32)
    drawn = draw_map(np.arange(60), z, samples)
    assert drawn is not None
    assert drawn["row"] == list(range(60))
    places = np.column_stack([drawn["x"], drawn["y"]])
    middles = np.array([places[group == side].mean(0) for side in (0, 1)])
    for side in (0, 1):
        own = np.linalg.norm(places[group == side] - middles[side], axis=1)
        other = np.linalg.norm(places[group == side] - middles[1 - side], axis=1)
        assert (own < other).all()
    assert places.min() == 0
    assert max(drawn["size"]) == 10_000


def test_points_that_are_all_equal_are_drawn(samples: Samples) -> None:
    assert draw_map(np.arange(60), np.ones((60, 4), dtype=np.float32), samples) is not None


def test_too_few_points_or_rows_that_are_not_there_make_no_map(samples: Samples) -> None:
    assert draw_map(np.arange(5), np.zeros((5, 2), dtype=np.float32), samples) is None
    assert draw_map(np.arange(100, 160), np.zeros((60, 2), dtype=np.float32), samples) is None


def test_umap_is_taken_where_it_is_installed(
    samples: Samples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "umap.py").write_text(
        "class UMAP:\n    def __init__(self, **_): pass\n    def fit_transform(self, z): return z[:, :2]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    z = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    drawn = draw_map(np.arange(60), z, samples)
    assert drawn is not None
    assert drawn["how"] == "UMAP"
    assert np.argsort(drawn["x"])[-1] == np.argmax(z[:, 0])


def test_a_run_without_points_has_neither_map_nor_scores(tmp_path: Path) -> None:
    score, rows, _ = read_points(tmp_path)
    assert score is None
    assert len(rows) == 0


def test_damaged_points_are_one_line(tmp_path: Path) -> None:
    write_tensors(tmp_path / "points.safetensors", {}, {})
    with pytest.raises(InputError, match="damaged"):
        read_points(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"z": torch.zeros(60, 2, 2)},
        {"z": torch.zeros(60)},
        {"z": torch.full((60, 2), float("nan"))},
        {"z": torch.full((60, 2), 1e30)},
        {"z": torch.zeros(59, 2)},
        {"z": torch.zeros(60, 2, dtype=torch.int64)},
        {"rows": torch.arange(60.0)},
        {"rows": torch.arange(60) - 1},
        {"rows": torch.tensor(3)},
        {"ood_score": torch.zeros(60, 1)},
        {"ood_score": torch.full((60,), torch.inf)},
    ],
)
def test_points_that_do_not_fit_together_are_refused(
    tmp_path: Path, changed: dict[str, torch.Tensor]
) -> None:
    points = {"rows": torch.arange(60), "z": torch.zeros(60, 2), "ood_score": torch.zeros(60)}
    write_tensors(tmp_path / "points.safetensors", points, {})
    assert len(read_points(tmp_path)[1]) == 60
    write_tensors(tmp_path / "points.safetensors", points | changed, {})
    with pytest.raises(InputError, match="damaged: rows, places and scores do not fit together"):
        read_points(tmp_path)
