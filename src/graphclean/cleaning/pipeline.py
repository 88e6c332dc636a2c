"""`clean_embeddings`: verdicts for anyone's embeddings and labels, without training."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from ..config import CleaningSettings, OodSettings
from ..data.progress import Progress
from ..data.streams import RowNumbers
from ..data.verdict import Verdict
from ..errors import DataWarning, InputError
from ..graph import Graph, largest_components
from ..graph.noise_model import NoiseModel
from ..ood import (
    MIN_OOD_RATE,
    are_separated,
    bimodal_ood_probability,
)
from .agreement import measure_agreement
from .checks import copy_notes, id_notes, label_notes, ood_notes, packed_notes, rate_notes
from .choice import choose_graph, choose_nodes
from .class_means import FittedClassMeans, Whitening, combine_with_class_means
from .classifier import class_means_help
from .detection import Detection, fit_detector
from .doubt import doubt_ood, undoubted_rate
from .duplicates import BEYOND, TrainingSamples, count_packed
from .evidence import (
    Copies,
    NodeGraph,
    Propagated,
    Standardizer,
    class_signal,
    propagate_labels,
)
from .inputs import (
    Array,
    Labels,
    align_index,
    check_embeddings,
    encode_classes,
    encode_labels,
    restore_type,
)
from .knn_model import (
    KnnModel,
    fit_temperature,
    neighbor_shares,
)
from .nodes import Nodes, check_graph, nearest_rows
from .pilot import choose_on_sample
from .scale import fitted_on, is_large
from .verdicts import (
    Posterior,
    Summary,
    VerdictArrays,
    decide,
    hold_posterior,
    hold_verdicts,
    is_proposed,
    proposal_strength,
    summarize,
    undecided,
    verdict_table,
    withhold_relabels,
)

SHUFFLES = 2
"""Permutations of the labels for the baseline of the class signal."""
STRONG_SIGNAL = 0.5
"""Class signal, divided by the root of the number of samples, that no permutation baseline reaches; the
largest seen was 0.2.
"""


@dataclass(frozen=True)
class CleaningResult:
    """The verdict table, the summary, and models for new embeddings."""

    verdicts: pd.DataFrame
    summary: Summary
    standardizer: Standardizer | None
    """The scaling of the features; None if a graph was given instead."""
    detection: Detection | None
    """OOD detection for new embeddings and for these; None if there is no predictor."""
    predictor: KnnModel | None
    """None if a graph was given instead of embeddings, or the features carry no class signal."""
    posterior: Array | None
    """P(class) for each class, then P(OOD), of every sample; None without class signal."""
    training_samples: TrainingSamples | None
    """For finding duplicates among new data; None if a graph was given, if the embeddings were trained on the
    labels, or if there are too few samples.
    """
    class_means: FittedClassMeans | None
    """The class means used in prediction; None if not requested, or without a predictor."""


def clean_embeddings(
    z: Any,
    labels: Any,
    *,
    ids: Sequence[Any] | None = None,
    graph: Graph | None = None,
    settings: CleaningSettings | None = None,
) -> pd.DataFrame:
    """A verdict for every sample: keep its label, relabel it (to what), or out of distribution.

    `z` is an (N, d) array of embeddings of any kind, `labels` N class names or whole numbers (a negative
    number, "", NaN or None: unlabeled). A similarity `graph` in CSR form may stand for `z`, which is then
    None. Returns one row a sample, in input order and under the index of `z` or `labels` where they come from
    pandas, with labels of the type that they have there; `.attrs["summary"]` holds rates, settings found and
    warnings.

    Examples
    --------
    >>> verdicts = clean_embeddings(z, labels)
    >>> verdicts[verdicts.verdict == "relabel"].sort_values("confidence", ascending=False).head()
    """
    encoded = encode_labels(labels)
    cleaning = infer_verdicts(z, encoded, ids=ids, graph=graph, settings=settings)
    for message in cleaning.summary.warnings:
        warnings.warn(message, DataWarning, stacklevel=2)
    restore_type(cleaning.verdicts, encoded, labels)
    align_index(cleaning.verdicts, z, labels)
    cleaning.verdicts.attrs["summary"] = cleaning.summary.to_dict()
    return cleaning.verdicts


def infer_verdicts(
    z: Any,
    labels: Any,
    *,
    ids: Sequence[Any] | None = None,
    graph: Graph | None = None,
    settings: CleaningSettings | None = None,
    ood: OodSettings | None = None,
    progress: Progress | None = None,
    zeros: bool = False,
    similarity: Array | None = None,
) -> CleaningResult:
    """`clean_embeddings` with all intermediate results; `progress(stage, done, total)` is called along the
    way.

    `labels` may be encoded already, with classes in any order. With `zeros`, rows of zeros are valid features
    rather than failed embeddings. `similarity` is s(x) of embeddings trained on these labels, which they may
    have memorized; then distances do not indicate near-duplicates, and held-out labels can't choose the
    classifier.
    """
    settings = settings if settings is not None else CleaningSettings()
    ood = ood if ood is not None else OodSettings()
    if not isinstance(settings, CleaningSettings):
        raise TypeError(f"settings are CleaningSettings(certainty=0.7, …), not {type(settings).__name__}")
    tell = progress if progress is not None else lambda *_: None
    notes: list[str] = []
    if (z is None) == (graph is None):
        raise InputError("give either embeddings or a graph")
    if graph is not None and settings.classifier == "knn+class-means":
        raise InputError(
            "a classifier with class means needs embeddings; with a graph, set cleaning.classifier=knn"
        )
    if similarity is not None:
        classifier = "knn" if settings.classifier == "auto" else settings.classifier
        settings = replace(settings, near_duplicates=False, classifier=classifier)
    if graph is None:
        array = check_embeddings(z, zeros=zeros)
        n, exact, width = len(array), Copies.find(array), array.shape[1]
    else:
        csr = check_graph(graph)
        n, exact, width = csr.shape[0], Copies.none(csr.shape[0]), None
    encoded = exact.share_decisions(encode_classes(labels, n))
    names = _check_ids(ids, n)
    notes += [*label_notes(encoded), *id_notes(names)]
    copies, nodes, scaling = exact, None, None
    if graph is None:
        tried_on_sample: dict[int, float] = {}
        if is_large(len(exact.first)):
            settings, tried_on_sample = choose_on_sample(array, exact, encoded, settings, notes, tell)
        scaling, copies, nodes, fitted = choose_nodes(array, exact, encoded, settings, notes, tell)
        fitted = fitted._replace(tried=tried_on_sample or fitted.tried)
        encoded = copies.share_decisions(encoded)
    else:
        fitted = choose_graph(
            iter([(round(csr.values().numel() / n), NodeGraph.directed(csr))]), copies, encoded
        )
    notes += copy_notes(exact, copies, encoded, names)
    if (
        nodes is not None
        and nodes.neighbors is not None
        and settings.near_duplicates
        and encoded.hashes is None
    ):
        notes += packed_notes(count_packed(nodes.unit, nodes.neighbors))
    propagated, model, tried = fitted
    if is_large(n):
        tell("judging samples", 0, 1)
    voices = copies.one_each(encoded)
    signal = _measure_signal(propagated, voices, settings.signal) if propagated is not None else 0.0
    posterior, class_means, decision = None, None, hold_verdicts(undecided(encoded.codes), encoded)
    selected, predictor, detection = np.zeros(n, dtype=bool), None, None
    possible_ood, agreed = None, None
    if propagated is None or model is None or signal < settings.signal:
        notes.append(
            f"the features carry no class signal: neighbors agree with labels {signal:.1f} standard errors "
            f"above the permutation baseline, {settings.signal:g} are needed; nothing was relabeled"
        )
    else:
        model = doubt_ood(model, propagated, voices, notes)
        possible_ood = undoubted_rate(model, propagated, copies, encoded)
        counted = _settle_conflicts(propagated, model, copies, encoded)
        posterior = _infer_posterior(propagated, model, copies, counted, similarity, notes)
        near = nodes.near if nodes is not None else None
        if nodes is not None and near is not None and settings.classifier != "knn":
            whitening = Whitening.fit(nodes.unit[fitted_on(len(nodes.unit))])
            if settings.classifier == "knn+class-means" or class_means_help(
                nodes.unit, near, propagated, voices, model, whitening
            ):
                posterior, class_means = combine_with_class_means(
                    nodes.unit, near, copies, posterior, counted, model, whitening
                )
        decision, agreed = _decide(posterior, propagated, model, copies, encoded, settings, notes)
        notes += ood_notes(encoded, int((decision.verdict == Verdict.OOD).sum()))
        by_node = copies.average(np.column_stack(posterior))
        selected = _select(propagated, by_node, decision, copies, settings.eta) | _sure(encoded)
        if nodes is not None and near is not None:
            shares = neighbor_shares(near, torch.as_tensor(by_node, dtype=torch.float32))
            detection = fit_detector(nodes.unit, near, shares, by_node, ood)
            predictor = _make_predictor(by_node, nodes, shares, detection, encoded)
            detection = replace(detection, score=detection.score[copies.node])
            notes += rate_notes(detection.found, ood)
    rows = (
        nearest_rows(propagated.graph, copies) if propagated is not None else np.zeros((n, 0), dtype=np.int64)
    )
    table = verdict_table(decision, encoded, names, selected, rows, copies.groups())
    k = propagated.k if propagated is not None else 0
    summary = summarize(
        decision,
        posterior,
        encoded,
        width,
        scaling,
        k,
        tried,
        signal,
        selected,
        detection,
        possible_ood,
        agreed,
        notes,
    )
    stacked = np.column_stack(posterior) if posterior is not None else None
    standardizer = nodes.standardizer if nodes is not None else None
    known = None
    if nodes is not None and nodes.neighbors is not None and len(nodes.unit) > BEYOND and similarity is None:
        hashes = encoded.take(copies.first).hashes
        known = TrainingSamples.gather(nodes.unit, nodes.neighbors, copies.first, hashes)
    return CleaningResult(table, summary, standardizer, detection, predictor, stacked, known, class_means)


def _check_ids(ids: Sequence[Any] | None, n: int) -> Sequence[str]:
    if ids is None:
        return RowNumbers(n)
    if len(ids) != n:
        raise InputError(f"there are {len(ids)} ids for {n} samples; each row needs one")
    return ids if isinstance(ids, RowNumbers) else [str(name) for name in ids]


def _measure_signal(propagated: Propagated, labels: Labels, needed: float) -> float:
    """The class signal: agreement of neighbors with labels beyond chance, and beyond permuted labels if that
    is decisive.
    """
    codes = labels.reviewed
    signal = class_signal(propagated.evidence.numpy(), codes)
    strong = STRONG_SIGNAL * np.sqrt((codes >= 0).sum())
    return signal - _permutation_baseline(propagated, labels) if needed <= signal < strong else signal


def _permutation_baseline(propagated: Propagated, labels: Labels) -> float:
    """The class signal of shuffled labels, which should be zero.

    Leave-one-out evidence removes a node's own label with its average weight. Where the weight is larger, as
    in small tight groups such as video frames, a part of it remains and agrees with itself.
    """
    rng, labeled = np.random.default_rng(0), np.flatnonzero(labels.reviewed >= 0)
    alone = Copies.none(len(labels.codes))
    found = []
    for _ in range(SHUFFLES):
        codes = labels.reviewed.copy()
        codes[labeled] = rng.permutation(codes[labeled])
        shuffled = propagate_labels(
            propagated.graph, alone.spread_labels(codes, len(labels.classes)), propagated.k
        )
        found.append(class_signal(shuffled.evidence.numpy(), codes))
    return max(0.0, float(np.mean(found)))


def _settle_conflicts(propagated: Propagated, model: NoiseModel, copies: Copies, labels: Labels) -> Labels:
    """The effective label of each sample: among copies, the most likely one by their evidence.

    If copies disagree, most of their labels are wrong, and a label that fits is no sign of OOD.
    """
    if len(copies.first) == len(copies.node):
        return labels
    codes = torch.from_numpy(labels.codes)
    log_p = model.log_p(propagated.by_sample(copies), codes).numpy()
    order = np.lexsort((-log_p, labels.codes < 0, copies.node))
    best = order[np.searchsorted(copies.node[order], np.arange(len(copies.first)))]
    return replace(labels, codes=labels.codes[best][copies.node])


def _infer_posterior(
    propagated: Propagated,
    model: NoiseModel,
    copies: Copies,
    labels: Labels,
    similarity: Array | None,
    notes: list[str],
) -> Posterior:
    """The posterior of each sample from its neighbors, and from s(x) if that is more reliable.

    Copies share the same evidence, none of it from each other, and hence the same posterior. P(OOD) is at
    least the fraction of the evidence that comes from samples people marked as OOD.
    """
    evidence, codes = propagated.by_sample(copies), torch.from_numpy(labels.codes)
    posterior = Posterior(*(part.numpy() for part in model.posterior(evidence, codes)))
    other = _ood_by_similarity(similarity, posterior, notes) if similarity is not None else None
    near = _near_decided_ood(propagated, copies, labels)
    if near is not None:
        before = other if other is not None else model.prior(evidence).ood.numpy()
        other = 1 - (1 - before) * (1 - near)
    if other is not None:
        found = model.posterior(evidence, codes, torch.from_numpy(other))
        posterior = Posterior(*(part.numpy() for part in found))
    return hold_posterior(posterior, labels)


def _near_decided_ood(propagated: Propagated, copies: Copies, labels: Labels) -> Array | None:
    """The fraction of each sample's evidence that comes from samples people marked as OOD."""
    ood = len(labels.classes)
    if labels.decided is None or ood not in labels.decided:
        return None
    codes = np.where(labels.decided == ood, ood, labels.reviewed)
    found = propagate_labels(propagated.graph, copies.spread_labels(codes, ood + 1), propagated.k)
    return np.asarray(found.by_sample(copies)[:, -1].numpy())


def _decide(
    posterior: Posterior,
    propagated: Propagated,
    model: NoiseModel,
    copies: Copies,
    labels: Labels,
    settings: CleaningSettings,
    notes: list[str],
) -> tuple[VerdictArrays, float | None]:
    """The verdicts, without relabeling if the features are too weak, and the fraction of proposals on which
    the two halves of the labels agree.
    """
    decision = decide(posterior, labels.codes, settings.certainty)
    proposing = np.zeros(len(copies.first), dtype=bool)
    proposing[copies.node[is_proposed(decision, labels)]] = True
    agreed = measure_agreement(propagated, model, copies.one_each(labels), proposing)
    weak = _describe_weakness(posterior, decision, labels, settings)
    weak = weak or _describe_disagreement(agreed, settings)
    if weak is None:
        return decision, agreed
    notes.append(f"the features are too weak to relabel by: {weak}; nothing was relabeled")
    return hold_verdicts(withhold_relabels(decision, labels.codes), labels), agreed


def _describe_weakness(
    posterior: Posterior, decision: VerdictArrays, labels: Labels, settings: CleaningSettings
) -> str | None:
    """Why too few proposals would be right according to the posterior; None if enough would be."""
    sure = proposal_strength(decision, posterior, labels)
    if sure >= settings.strength:
        return None
    needed = round(100 * settings.strength)
    return f"of 100 proposals about {round(100 * sure)} would be right, {needed} are needed"


def _describe_disagreement(agreed: float | None, settings: CleaningSettings) -> str | None:
    """Why too few proposals agree between the two halves of the labels, which may reveal less certainty than
    the posterior claims; None if enough do.
    """
    if agreed is None or agreed >= settings.strength**2:
        return None
    needed = round(100 * settings.strength**2)
    return (
        f"of 100 proposals either half of the labels makes about {round(100 * agreed)} alike, {needed} are "
        "needed, and the estimated rates may be far off"
    )


def _ood_by_similarity(similarity: Array, by_labels: Posterior, notes: list[str]) -> Array | None:
    """P(OOD) from s(x) if it contradicts the OOD found by labels; otherwise None."""
    far = by_labels.ood > 0.5
    bimodal = bimodal_ood_probability(similarity, by_labels.classes.argmax(1))
    if bimodal is not None and far[bimodal > 0.5].mean() < 0.5:
        notes.append(
            "s(x) is bimodal, but by their labels few samples are OOD: training may have "
            "memorized labels, so P(OOD) is taken from s(x)"
        )
        return bimodal
    if far.any() and not far.all() and not are_separated(similarity[far], similarity[~far]):
        # As near to the classes as all others: mislabeled, not OOD.
        return np.full(len(far), MIN_OOD_RATE)
    return None


def _select(
    propagated: Propagated, by_node: Array, decision: VerdictArrays, copies: Copies, eta: float
) -> npt.NDArray[np.bool_]:
    """Eq. 3-4 on the posterior: probable samples in the largest component of their class."""
    share, labels = torch.as_tensor(by_node[:, :-1]).max(1)
    confident = share > eta
    rows, cols = propagated.graph.edges(confident, labels)
    chosen = largest_components(rows, cols, labels, confident, by_node.shape[1] - 1).numpy()
    wanted = np.isin(decision.verdict, (Verdict.KEEP, Verdict.RELABEL, Verdict.UNLABELED))
    return np.asarray(chosen[copies.node] & wanted & (decision.proposed == labels.numpy()[copies.node]))


def _sure(labels: Labels) -> npt.NDArray[np.bool_]:
    """Samples that people assigned to a class."""
    return (
        np.zeros(len(labels.codes), dtype=bool)
        if labels.decided is None
        else (labels.decided >= 0) & (labels.reviewed >= 0)
    )


def _make_predictor(
    by_node: Array, nodes: Nodes, shares: Array, detection: Detection, labels: Labels
) -> KnnModel:
    return KnnModel(
        classes=labels.classes,
        standardizer=nodes.standardizer,
        nodes=nodes.unit,
        posterior=torch.as_tensor(by_node, dtype=torch.float32),
        temperature=fit_temperature(shares, by_node),
        detector=detection.detector,
        found=detection.found,
    )
