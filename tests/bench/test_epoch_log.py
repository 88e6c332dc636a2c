"""What is recorded, against small cases worked by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean.bench.epoch_log import (
    EpochLog,
    compare_strategies,
    describe_cleaning,
    describe_scores,
    describe_top,
    mean_degrees,
    sample_kinds,
)
from graphclean.bench.noise import Draw, Protocol
from graphclean.config import GraphSettings
from graphclean.errors import InputError
from graphclean.graph import Cleaned, GraphCleaner, knn_graph, nearest_neighbors

NONE = np.zeros(0, dtype=np.int64)
DRAW = Draw(
    protocol=Protocol(n_classes=3),
    sizes=(4, 0, 2),
    train_ind=np.arange(4),
    train_ood=np.arange(2),
    labels=np.array([0, 1, 1, 2, 0, 2]),
    truth=np.array([0, 1, 2, 2, -1, -1]),
    eval_ind=NONE,
    eval_ood=NONE,
    eval_truth=NONE,
)


def cleaned(confident: list[int], degrees: list[int]) -> Cleaned:
    mask = torch.tensor(confident).bool()
    return Cleaned(mask, torch.zeros(6, dtype=torch.int64), torch.ones(6, 3) / 3, mask, torch.tensor(degrees))


def test_kinds_and_the_mean_degree_of_each() -> None:
    kinds = sample_kinds(DRAW)
    assert kinds.tolist() == [0, 0, 1, 0, 2, 2]
    found = mean_degrees(cleaned([1, 0, 0, 1, 1, 1], [7, 9, 9, 4, 1, 2]), kinds)
    assert found == {"clean": 5.5, "wrong": None, "ood": 1.5}


def test_cleaning_beside_the_given_labels() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 1])
    selected = torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    found = describe_cleaning(labels, selected, DRAW)
    assert found == {
        "selected": 4, "wrong_known": 1, "ood": 1, "noise_rate": 0.5,
        "label_accuracy": 0.75, "given_right": 0.75,
    }  # fmt: skip


def test_nothing_is_claimed_of_labels_whose_truth_nobody_knows() -> None:
    unknown = replace(DRAW, protocol=replace(DRAW.protocol, noise="web"))
    selected = torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    found = describe_cleaning(torch.zeros(6, dtype=torch.int64), selected, unknown)
    assert found.pop("selected") == 4  # type: ignore[misc]
    assert set(found.values()) == {None}
    assert len(found) == 5


def test_top_scores_of_another_validation_set() -> None:
    shares = np.eye(8)[[0, 1, 2, 3]] * 0.5 + np.arange(8)[::-1] / 100
    truth = np.array([0, 1, 4, 7])  # third: in fifth place after 2, 0, 1 and 3; fourth: last
    assert describe_top(shares, truth) == {"accuracy": 0.5, "top5": 0.75, "images": 4}
    assert describe_top(shares, truth, classified=False) == {"accuracy": None, "top5": None, "images": 4}


def test_strategies_of_a_graph_worked_by_hand() -> None:
    """Class 0: a pair and a triple; class 1: two that are not confident, one of which joins a wrong one."""
    angles = torch.tensor([0.0, 2.0, 10.0, 11.0, 12.0, 90.0, 91.0, 92.0]).deg2rad()
    z = torch.stack([angles.cos(), angles.sin()], 1)
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1])
    truth = np.array([0, 0, 0, 0, -1, 1, -1, 1])
    confident = torch.tensor([1, 1, 1, 1, 1, 0, 0, 1]).bool()
    selected = torch.tensor([0, 0, 1, 1, 1, 0, 0, 1]).bool()
    graph = knn_graph(nearest_neighbors(z, 1))
    state = Cleaned(selected, labels, torch.zeros(8, 2), confident, labels, graph)
    found = compare_strategies(state, truth, 2, "any")
    assert found == {
        "confidence": {"selected": 6, "noise_rate": pytest.approx(1 / 6)},
        # The triple (one OOD of three) and all of class 1 (one OOD of three).
        "geometry": {"selected": 6, "noise_rate": pytest.approx(2 / 6)},
        # The triple, and what is confident of class 1.
        "both": {"selected": 4, "noise_rate": pytest.approx(1 / 4)},
    }


@pytest.mark.parametrize("edges", ["mutual", "any"])
def test_both_strategies_are_what_the_cleaner_selects(edges: str) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(60) % 3
    z = torch.randn(3, 8, generator=generator)[truth] + 0.6 * torch.randn(60, 8, generator=generator)
    given = torch.where(torch.rand(60, generator=generator) < 0.4, (truth + 1) % 3, truth)
    settings = GraphSettings(k=4, leave_one_out=True, lcc_edges=edges)  # type: ignore[arg-type]
    step = GraphCleaner(given, 3, settings).step(z, torch.zeros(60, 3))
    found = compare_strategies(step, truth.numpy(), 3, settings.lcc_edges)
    assert found["both"]["selected"] == step.selected.sum()
    assert found["confidence"]["selected"] == step.confident.sum()
    assert step.selected.sum() < step.confident.sum() < 60


def test_scores_with_and_without_ood() -> None:
    truth = np.array([0, 1, 1, 0, -1, -1])
    predicted = np.array([0, 1, 0, 0, 1, 0])
    score = 1 - np.array([0.9, 0.8, 0.75, 0.6, 0.65, 0.1])
    found = describe_scores(predicted, score, truth, 1 - 0.62)
    assert found["accuracy"] == 0.75
    assert found["auroc"] == 7 / 8
    # At ζ = 0.62: two right, one wrong, one rejected, one OOD accepted.
    assert found["f_auto"] == 2 * 2 / (2 * 2 + 2 + 1)
    assert found["f_0.5"] == 2 * 3 / (2 * 3 + 1 + 1)
    assert found["f_0.7"] == 2 * 2 / (2 * 2 + 2 + 0)
    assert (found["f_best"], found["zeta_best"]) == (0.75, pytest.approx(0.6))
    assert found["fpr95"] == 0.5
    alone = describe_scores(predicted[:4], score[:4], truth[:4], None)
    assert alone.pop("accuracy") == 0.75
    assert set(alone) == set(found) - {"accuracy"}
    assert set(alone.values()) == {None}


def test_the_log_outlives_an_interruption(tmp_path: Path) -> None:
    log = EpochLog(tmp_path / "log")
    log.add(1, seconds=1.0, selected=3)
    log.add(2, strategies={"both": {"selected": 0, "noise_rate": float("nan")}})
    # Cut off in the middle of a line.
    with (tmp_path / "log").open("a") as file:
        file.write('{"epoch": 2, "sec')
    log = EpochLog(tmp_path / "log")
    log.add(1, seconds=4.0)
    told = {"both": {"selected": 0, "noise_rate": None}}
    assert log.add(2, seconds=2.0) == {"epoch": 2, "strategies": told, "seconds": 2.0}
    again = EpochLog(tmp_path / "log")
    assert again.first(2) == [
        {"epoch": 1, "seconds": 4.0, "selected": 3},
        {"epoch": 2, "strategies": told, "seconds": 2.0},
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_log_with_gaps_or_damage_is_refused(tmp_path: Path) -> None:
    log = EpochLog(tmp_path / "log")
    log.add(1, seconds=1.0)
    log.add(2, strategies=None)  # begun, and not ended
    log.add(3, seconds=1.0)
    assert len(log.first(1)) == 1
    with pytest.raises(InputError, match="epoch 2 is missing; remove"):
        log.first(3)
    (tmp_path / "log").write_bytes(b'{"epoch": 1}\n\xff\xfe\n{"epoch": 3}\n')
    with pytest.raises(InputError, match="line 2 is damaged"):
        EpochLog(tmp_path / "log")
