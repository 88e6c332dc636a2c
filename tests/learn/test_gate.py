"""The gate: strangers stay out, it closes once, and a checkpoint holds whoever is barred."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean.config import load_preset
from graphclean.data.digits import noisy_digits
from graphclean.data.loader import ResidentInputs
from graphclean.graph import Cleaned
from graphclean.learn import InterruptedRun, Trained, Trainer, engine

from .test_engine import TINY, assert_same, stop_after_epoch, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_gate_keeps_strangers_out() -> None:
    """8s and 9s that the graph takes for confident lie far from every prototype."""
    data = noisy_digits(seed=5)
    chosen = torch.randperm(1797, generator=torch.Generator().manual_seed(5))[:1200]
    pixels, labels = torch.as_tensor(data.images)[chosen], torch.as_tensor(data.labels)[chosen]
    strange = torch.as_tensor(data.is_ood)[chosen]
    demo = load_preset("demo")
    found: list[tuple[Trained, list[Cleaned]]] = []
    for gate in (1.0, demo.learn.gate_from):
        cleanings: list[Cleaned] = []
        settings = dataclasses.replace(demo.learn, gate_from=gate)
        made = Trainer(
            ResidentInputs(pixels), labels, 8, settings, demo.graph,
            on_epoch=lambda _, cleaned, cleanings=cleanings: cleanings.append(cleaned),  # type: ignore[misc]
        )  # fmt: skip
        found.append((made.train(), cleanings))
    strangers = [int(strange[run.cleaned.selected].sum()) for run, _ in found]
    known = [int((~strange)[run.cleaned.selected].sum()) for run, _ in found]
    assert strangers[1] < strangers[0] / 3
    assert known[1] > 0.97 * known[0]
    same = [torch.equal(a.selected, b.selected) for a, b in zip(found[0][1], found[1][1], strict=True)]
    assert same == [True] * 21 + [False] * 9  # 0.67 of 30 epochs are over after the 21st


def test_a_gate_closes_once_it_finds_two_humps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def judge(s: np.ndarray, classes: np.ndarray) -> np.ndarray | None:
        assert set(np.unique(classes)) <= set(range(8))
        asked.append(len(s))
        if len(asked) == 1:
            return None
        return (np.arange(len(s)) % 2 == len(asked) % 2).astype(float)

    monkeypatch.setattr(engine, "ood_by_humps", judge)
    cleanings: list[Cleaned] = []
    settings = dataclasses.replace(TINY, epochs=6, gate_from=0.5)
    run = trainer(settings, on_epoch=lambda _, cleaned: cleanings.append(cleaned)).train()
    kept = [set(torch.where(cleaned.selected)[0].tolist()) for cleaned in [*cleanings, run.cleaned]]
    odd = [any(index % 2 for index in chosen) for chosen in kept]
    even = [any(index % 2 == 0 for index in chosen) for chosen in kept]
    # The gate closes with the fourth of six epochs; after the last there is one cleaning more.
    assert odd[3]
    assert even[3]
    assert len(asked) == 2
    assert odd[4:] == [True] * 3
    assert even[4:] == [False] * 3


def test_a_resumed_run_with_a_gate_equals_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is barred, the checkpoint holds it."""
    monkeypatch.setattr(engine, "ood_by_humps", lambda s, _: (s < np.median(s)).astype(float))
    settings = dataclasses.replace(TINY, gate_from=0.5)
    expected = trainer(settings).train()
    assert 0 < expected.cleaned.selected.sum() <= 100
    first = trainer(settings, checkpoint=tmp_path, on_epoch=lambda r, _: stop_after_epoch(first, r, 3))
    with pytest.raises(InterruptedRun):
        first.train()
    assert_same(trainer(settings, checkpoint=tmp_path).train(resume=True), expected)
