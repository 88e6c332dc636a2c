"""Scaling of the features, k and noise model: those under which the given labels are most likely."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..config import CleaningSettings
from ..data.progress import Progress
from ..graph.noise_model import NoiseModel, fit_noise_model, gains_enough
from .evidence import Copies, Propagated, Standardizer, propagate_labels
from .inputs import Array, Floats, Labels
from .nodes import Nodes, find_nodes

SCALING_SAMPLE = 4000
"""Distinct samples over which the scaling is chosen on so many of them, evenly spaced, before the search."""


class Fitted(NamedTuple):
    """The best graph of those tried, the model of the labels on it, and what each k reached."""

    propagated: Propagated | None
    model: NoiseModel | None
    tried: dict[int, float]

    def log_p(self, copies: Copies, labels: Labels) -> Array:
        """Of each given label; 0 where there is none, and of all without neighbors."""
        if self.propagated is None or self.model is None:
            return np.zeros(len(labels.codes))
        evidence = torch.from_numpy(self.propagated.by_sample(copies))
        return np.asarray(self.model.log_p(evidence, torch.from_numpy(labels.codes)).numpy())


def is_likelier(log_p: Array, than: Array) -> bool:
    """Whether labels are likelier by over a standard error of the mean difference."""
    gain = log_p - than
    return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))


class Chosen(NamedTuple):
    """The scaling, the nodes that it makes, and their best graph."""

    scaling: str
    nodes: Nodes
    fitted: Fitted


def choose_nodes(
    array: Floats,
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    notes: list[str],
    tell: Progress,
) -> Chosen:
    """In the scaling that `settings` name, or under which the given labels are most likely.

    Raw features must make them more likely by over a standard error: where features are as good either way,
    OOD stands out more among standardized ones.
    """
    scalings = {"standardized": Standardizer.fit(array), "raw": Standardizer.rescale_only(array)}
    if settings.scaling != "auto":
        scalings = {settings.scaling: scalings[settings.scaling]}
    elif len(copies.first) > SCALING_SAMPLE:
        rows = copies.first[np.linspace(0, len(copies.first) - 1, SCALING_SAMPLE).round().astype(np.int64)]
        some, alone = labels.take(rows), Copies.none(SCALING_SAMPLE)
        exact = replace(settings, search="exact")
        best = _fit_best(scalings, array[rows], alone, some, exact, [], lambda *_: None).scaling
        scalings = {best: scalings[best]}
    said: list[str] = []
    chosen = _fit_best(scalings, array, copies, labels, settings, said, tell)
    notes += dict.fromkeys(said)
    return chosen


def choose_graph(candidates: Iterator[tuple[int, Tensor]], copies: Copies, labels: Labels) -> Fitted:
    """The graph under which the given labels are most likely, its noise model, and what each k reached.

    Noise is class-dependent if correcting for it is significant at any k. The k that the labels are most
    likely under is often the wrong one to ask: many neighbors know the shares of labels so well that both
    models foretell a label alike.
    """
    n_classes = len(labels.classes)
    Y = copies.spread_labels(labels.reviewed, n_classes)
    decided = torch.from_numpy(labels.decided) if labels.decided is not None else None
    best: dict[bool, tuple[Propagated, NoiseModel]] = {}
    tried: dict[bool, dict[int, float]] = {False: {}, True: {}}
    shared = False
    for k, graph in candidates:
        propagated = propagate_labels(graph, Y, k)
        evidence, codes = torch.from_numpy(propagated.by_sample(copies)), torch.from_numpy(labels.codes)
        corrected = fit_noise_model(evidence, codes, correct=True, ood=True, decided=decided)
        plain = corrected
        if corrected.corrected:
            plain = fit_noise_model(evidence, codes, correct=False, ood=True, decided=decided)
        shared |= gains_enough(corrected, plain)
        for correct, model in ((False, plain), (True, corrected)):
            tried[correct][k] = model.log_likelihood
            if correct not in best or _rank(model) > _rank(best[correct][1]):
                best[correct] = propagated, model
    if not best:
        return Fitted(None, None, {})
    return Fitted(*best[shared], tried[shared])


def _rank(model: NoiseModel) -> tuple[bool, float]:
    """Of the models that may correct evidence, those that do go first."""
    return model.asymmetric is not None, model.log_likelihood


def _fit_best(
    scalings: dict[str, Standardizer],
    array: Floats,
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    notes: list[str],
    tell: Progress,
) -> Chosen:
    best: tuple[Chosen, Array] | None = None
    for name, standardizer in scalings.items():
        nodes = find_nodes(array, standardizer, copies, settings, notes, tell)
        fitted = choose_graph(nodes.graphs(settings, tell), copies, labels)
        found = Chosen(name, nodes, fitted), fitted.log_p(copies, labels)
        if best is None or is_likelier(found[1], best[1]):
            best = found
    assert best is not None
    return best[0]
