"""Choice of the feature scaling, k and noise model by maximum likelihood of the given labels."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from ..config import CleaningSettings
from ..config.settings import Scaling
from ..data.progress import Progress
from ..graph.noise_model import NoiseModel, fit_noise_model, gains_enough
from .duplicates import find_duplicates
from .evidence import Copies, NodeGraph, Propagated, Standardizer, propagate_labels
from .inputs import Array, Floats, Labels
from .nodes import Nodes, find_nodes
from .scale import fitted_on

SCALING_SAMPLE = 4000
"""On larger sets, the scaling is chosen on this many distinct, evenly spaced samples before the search."""
MANY_DUPLICATES = 0.05
"""A larger fraction of near-duplicates could bias the scaling."""

Scalings: TypeAlias = Mapping[Scaling, Callable[[Floats], Standardizer]]


class Fitted(NamedTuple):
    """The best graph of those tried, its noise model, and the log-likelihood for each k."""

    propagated: Propagated | None
    model: NoiseModel | None
    tried: dict[int, float]


def is_likelier(log_p: Array, than: Array) -> bool:
    """Whether labels are more likely by more than one standard error of the mean difference."""
    gain = log_p - than
    return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))


class Chosen(NamedTuple):
    """The scaling, which samples share a node, the resulting nodes, and their best graph."""

    scaling: Scaling
    copies: Copies
    nodes: Nodes
    fitted: Fitted

    def log_p(self, labels: Labels) -> Array:
        """log p of the label of each sample's node; 0 if unlabeled or without neighbors."""
        if self.fitted.propagated is None or self.fitted.model is None:
            return np.zeros(len(labels.codes))
        codes = torch.from_numpy(self.copies.one_each(labels).codes)
        log_p = self.fitted.model.log_p(self.fitted.propagated.evidence, codes)
        return np.asarray(log_p.numpy()[self.copies.node])


def choose_nodes(
    array: Floats,
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    notes: list[str],
    tell: Progress,
) -> Chosen:
    """Choose the scaling that `settings` name, or the one under which the given labels are most likely.

    `copies` are exact ones; near-duplicates, confirmed by hashes of photos, are found in each scaling. Raw
    features must make the labels more likely by more than one standard error: if both scalings are equally
    good, OOD is easier to detect among standardized features.
    """
    scalings: Scalings = {"standardized": Standardizer.fit, "raw": Standardizer.rescale_only}
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


def choose_graph(candidates: Iterator[tuple[int, NodeGraph]], copies: Copies, labels: Labels) -> Fitted:
    """The graph under which the given labels are most likely, its noise model, and the log-likelihood for
    each k.

    Noise counts as class-dependent if the correction is significant at any k. The most likely k is often the
    wrong one to test: with many neighbors, label frequencies are estimated so well that both models predict
    labels equally well.
    """
    n_classes = len(labels.classes)
    Y = copies.spread_labels(labels.reviewed, n_classes)
    voices = copies.one_each(labels)
    codes = torch.from_numpy(voices.codes)
    some = fitted_on(len(codes))
    decided = torch.from_numpy(voices.decided) if voices.decided is not None else None
    if isinstance(some, np.ndarray) and voices.decided is not None:
        some = np.union1d(some, np.flatnonzero(voices.decided >= 0))
    codes, decided = codes[some], decided[some] if decided is not None else None
    best: dict[bool, tuple[Propagated, NoiseModel]] = {}
    tried: dict[bool, dict[int, float]] = {False: {}, True: {}}
    shared = False
    for k, graph in candidates:
        propagated = propagate_labels(graph, Y, k)
        evidence = propagated.evidence[some]
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
    """Among models that may correct evidence, those that do come first."""
    return model.asymmetric is not None, model.log_likelihood


def _fit_best(
    scalings: Scalings,
    array: Floats,
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    notes: list[str],
    tell: Progress,
) -> Chosen:
    best: Chosen | None = None
    for name, fit in scalings.items():
        nodes, own = find_nodes(array, fit, copies, settings, notes, tell), copies
        if settings.near_duplicates:
            nodes, own = _join_duplicates(nodes, array, fit, copies, labels, settings, tell)
        found = Chosen(name, own, nodes, choose_graph(nodes.graphs(settings, tell), own, labels))
        if best is None:
            best = found
            continue
        rows = np.intersect1d(found.copies.first, best.copies.first)
        if is_likelier(*(chosen.log_p(labels)[rows] for chosen in (found, best))):
            best = found
    assert best is not None
    return best


def _join_duplicates(
    nodes: Nodes,
    array: Floats,
    fit: Callable[[Floats], Standardizer],
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    tell: Progress,
) -> tuple[Nodes, Copies]:
    """Merge near-duplicates into one node, represented by the first of them.

    Neighbor lists remain valid for the remaining nodes. If many are merged, the scaling is fitted again
    without them.
    """
    if nodes.neighbors is None:
        return nodes, copies
    group = find_duplicates(nodes.unit, nodes.neighbors, labels.take(copies.first).hashes)
    if group is None:
        return nodes, copies
    joined = copies.join(group)
    if len(joined.first) < (1 - MANY_DUPLICATES) * len(copies.first):
        return find_nodes(array, fit, joined, settings, [], tell), joined
    return nodes.keep(np.unique(group), settings, tell), joined
