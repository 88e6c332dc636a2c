"""`clean_embeddings`: verdicts for anyone's embeddings and labels, without training."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from ..config import AuditSettings
from ..data.progress import Progress
from ..data.verdict import Verdict
from ..errors import DataWarning, InputError
from ..graph import Graph, Neighbours, as_csr, confident_edges, largest_components, nearest_neighbours
from ..graph.ann import approximate_neighbours, load_faiss
from ..graph.noise_model import NoiseModel, fit_noise_model, gains_enough
from ..ood import LEAST, class_prototypes, lie_apart, measure_closeness, ood_by_humps
from .checks import copy_notes, id_notes, label_notes, stranger_notes
from .class_means import FittedPanel, consult_panel
from .evidence import Copies, Heard, Standardiser, class_signal, listen, loudest, prefix_graph
from .inputs import Array, Labels, check_embeddings, encode_classes, lay_beside
from .knn_model import (
    NEIGHBOURS,
    KnnModel,
    expected_rejects,
    fit_calibration,
    neighbour_shares,
)
from .verdicts import (
    Decision,
    Posterior,
    Summary,
    decide,
    proposal_strength,
    summarise,
    undecided,
    verdict_table,
    withhold_relabels,
)

SHUFFLES = 2
"""Of the labels, to hear what of the class signal is an echo."""
LOUD = 0.5
"""Class signal, over the root of the samples, that no echo reaches; the loudest we have heard had 0.2."""
LARGE = 200_000
"""Samples from which the exact search takes minutes on a CPU, and the approximate one is suggested."""


@dataclass(frozen=True)
class Audit:
    """The result of an audit: the table, the summary, and what predicts for new embeddings."""

    verdicts: pd.DataFrame
    summary: Summary
    predictor: KnnModel | None
    """None where a graph stood for the embeddings, or the features carry no class signal."""
    beliefs: Array | None
    """P(class) for each class, then P(OOD), of every sample; None where there is no class signal."""
    panel: FittedPanel | None
    """What predicts with class centres besides; None where it was not asked for, or there is no predictor."""


def clean_embeddings(
    z: Any,
    labels: Any,
    *,
    ids: Sequence[Any] | None = None,
    graph: Graph | None = None,
    settings: AuditSettings | None = None,
) -> pd.DataFrame:
    """A verdict for every sample: keep its label, relabel it (to what), or out of distribution.

    `z` is an (N, d) array of embeddings of any kind, `labels` N class names or whole numbers (negative,
    empty or NaN: unlabelled). A similarity `graph` in CSR form may stand for `z`, which is then None.
    Returns one row a sample, in input order and under the index of `z` or `labels` where they come from
    pandas; `.attrs["summary"]` holds rates, settings found and warnings.

    Examples
    --------
    >>> verdicts = clean_embeddings(z, labels)
    >>> verdicts[verdicts.verdict == "relabel"].sort_values("label_quality").head()
    """
    audit = audit_embeddings(z, labels, ids=ids, graph=graph, settings=settings)
    for message in audit.summary.warnings:
        warnings.warn(message, DataWarning, stacklevel=2)
    lay_beside(audit.verdicts, z, labels)
    audit.verdicts.attrs["summary"] = audit.summary.to_dict()
    return audit.verdicts


def audit_embeddings(
    z: Any,
    labels: Any,
    *,
    ids: Sequence[Any] | None = None,
    graph: Graph | None = None,
    settings: AuditSettings | None = None,
    progress: Progress | None = None,
    zeros: bool = False,
    closeness: Array | None = None,
) -> Audit:
    """`clean_embeddings` with all that it found; `progress(stage, done, total)` is called as it goes.

    `labels` may be encoded already, with classes in an order of their own. With `zeros`, rows that are all
    zero are taken for features like any others rather than for embeddings that failed. `closeness` is s(x)
    of embeddings that were trained on these labels, and may have learned some by heart.
    """
    settings = settings if settings is not None else AuditSettings()
    if not isinstance(settings, AuditSettings):
        raise TypeError(f"settings are AuditSettings(certainty=0.7, …), not {type(settings).__name__}")
    tell = progress if progress is not None else lambda *_: None
    notes: list[str] = []
    if (z is None) == (graph is None):
        raise InputError("give either embeddings or a graph")
    if graph is not None and settings.judges == "panel":
        raise InputError("a panel of judges needs embeddings; with a graph, set audit.judges=neighbours")
    if graph is None:
        array = check_embeddings(z, zeros=zeros)
        n, copies = len(array), Copies.find(array)
        standardiser = Standardiser.fit(array)
        unit = standardiser(array[copies.first])
        width = unit.shape[1]
    else:
        csr = _check_graph(graph)
        n, copies, width = csr.shape[0], Copies.none(csr.shape[0]), None
    encoded = encode_classes(labels, n)
    names = _check_ids(ids, n)
    notes += [*label_notes(encoded), *id_notes(names), *copy_notes(copies, encoded, names)]
    if graph is None and min(settings.k) >= len(unit):
        many = "is 1 distinct sample" if len(unit) == 1 else f"are {len(unit)} distinct samples"
        notes.append(f"k is at most {len(unit) - 1}, as there {many}")

    neighbours = None
    if graph is not None:
        candidates = iter([(round(csr.values().numel() / n), csr)])
    else:
        neighbours = _search(unit, settings, notes, tell)
        candidates = _knn_graphs(neighbours, settings, tell)
    near = Neighbours(*(part[:, :NEIGHBOURS] for part in neighbours)) if neighbours is not None else None
    heard, model, tried = _choose_graph(candidates, copies, encoded)
    signal = _measure_signal(heard, copies, encoded, settings.signal) if heard is not None else 0.0
    posterior, panel, decision = None, None, undecided(encoded.codes)
    selected, predictor, rejects = np.zeros(n, dtype=bool), None, dict[str, float]()
    if heard is None or model is None or signal < settings.signal:
        notes.append(
            f"the features carry no class signal: neighbours agree with labels {signal:.1f} standard errors "
            f"beyond chance, {settings.signal:g} are needed; nothing was relabelled"
        )
    else:
        posterior = _hear_out(heard, model, copies, encoded, closeness, notes)
        if near is not None and settings.judges == "panel":
            posterior, panel = consult_panel(unit, near, copies, posterior, encoded.codes, model)
        decision = _decide(posterior, encoded, settings, notes)
        notes += stranger_notes(encoded, int((decision.verdict == Verdict.OOD).sum()))
        by_node = copies.average(np.column_stack(posterior))
        selected = _select(heard, by_node, decision, copies, settings.eta)
        if near is not None:
            shares = neighbour_shares(near, torch.as_tensor(by_node, dtype=torch.float32))
            predictor = _make_predictor(
                by_node, decision, selected, copies, unit, shares, standardiser, encoded
            )
            rejects = expected_rejects(predictor.calibration, shares, by_node)
    table = verdict_table(decision, encoded, names, selected, _loudest_rows(heard, copies))
    k = heard.k if heard is not None else 0
    summary = summarise(decision, posterior, encoded, width, k, tried, signal, selected, rejects, notes)
    beliefs = np.column_stack(posterior) if posterior is not None else None
    return Audit(table, summary, predictor, beliefs, panel)


def _check_graph(graph: Graph) -> Tensor:
    try:
        csr = as_csr(graph, device=torch.device("cpu"))
        if csr.shape[0] == 0:
            raise ValueError("the graph has no nodes")
        return csr
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def _check_ids(ids: Sequence[Any] | None, n: int) -> list[str]:
    if ids is None:
        return [str(row) for row in range(n)]
    if len(ids) != n:
        raise InputError(f"there are {len(ids)} ids for {n} samples; each row needs one")
    return [str(name) for name in ids]


def require_search(settings: AuditSettings) -> None:
    """Refuse an approximate search without its extra before any long work is done."""
    if settings.neighbours == "approx":
        try:
            load_faiss()
        except ImportError as error:
            raise InputError(str(error)) from error


def _search(unit: Tensor, settings: AuditSettings, notes: list[str], tell: Progress) -> Neighbours | None:
    """Neighbours enough for every k and for prediction; None where there is but one distinct sample."""
    limit = len(unit) - 1
    if limit < 1:
        return None
    k = min(max(*settings.k, NEIGHBOURS), limit)

    def progress(done: int, total: int) -> None:
        tell("finding neighbours", done, total)

    if settings.neighbours == "approx":
        require_search(settings)
        neighbours, recall = approximate_neighbours(unit, k, progress=progress)
        notes.append(f"neighbours are approximate: {100 * recall:.1f} % of the true ones, by a sample")
        return neighbours
    if len(unit) > LARGE:
        notes.append(f"{len(unit)} samples: audit.neighbours=approx would have been faster")
    return nearest_neighbours(unit, k, progress=progress)


def _knn_graphs(
    neighbours: Neighbours | None, settings: AuditSettings, tell: Progress
) -> Iterator[tuple[int, Tensor]]:
    """One graph for each k, from one search."""
    if neighbours is None:
        return
    ks = sorted({min(k, neighbours.indices.shape[1]) for k in settings.k})
    for step, k in enumerate(ks):
        tell("listening to neighbours", step, len(ks))
        yield k, prefix_graph(neighbours, k)
    tell("listening to neighbours", len(ks), len(ks))


def _choose_graph(
    candidates: Iterator[tuple[int, Tensor]], copies: Copies, labels: Labels
) -> tuple[Heard | None, NoiseModel | None, dict[int, float]]:
    """The graph under which the given labels are most likely, its noise model, and what each k reached.

    Mistakes are shared if undoing them is worth it at any k. The k that the labels are most likely under is
    often the wrong one to ask: many neighbours know the shares of labels so well that both models foretell a
    label alike.
    """
    n_classes = len(labels.classes)
    Y = copies.spread_labels(labels.codes, n_classes)
    best: dict[bool, tuple[Heard, NoiseModel]] = {}
    tried: dict[bool, dict[int, float]] = {False: {}, True: {}}
    shared = False
    for k, graph in candidates:
        heard = listen(graph, Y, k)
        evidence, codes = torch.from_numpy(_by_sample(heard, copies)), torch.from_numpy(labels.codes)
        corrected = fit_noise_model(evidence, codes, correct=True, ood=True)
        plain = corrected
        if corrected.corrected:
            plain = fit_noise_model(evidence, codes, correct=False, ood=True)
        shared |= gains_enough(corrected, plain)
        for correct, model in ((False, plain), (True, corrected)):
            tried[correct][k] = model.log_likelihood
            if correct not in best or _rank(model) > _rank(best[correct][1]):
                best[correct] = heard, model
    if not best:
        return None, None, {}
    return *best[shared], tried[shared]


def _rank(model: NoiseModel) -> tuple[bool, float]:
    """Of the models that may correct evidence, those that do go first."""
    return model.asymmetric is not None, model.log_likelihood


def _measure_signal(heard: Heard, copies: Copies, labels: Labels, needed: float) -> float:
    """How far neighbours agree with the given labels beyond chance, and beyond an echo where that decides."""
    signal = class_signal(_by_sample(heard, copies), labels.codes)
    loud = LOUD * np.sqrt((labels.codes >= 0).sum())
    return signal - _echo(heard, copies, labels) if needed <= signal < loud else signal


def _echo(heard: Heard, copies: Copies, labels: Labels) -> float:
    """The class signal of shuffled labels, which should be none.

    Leave-own-out evidence takes out a node's own label as it weighs on the average. Where some weigh more, as
    in small tight groups such as frames of a film, some of it stays behind, and agrees with itself.
    """
    rng, labelled = np.random.default_rng(0), np.flatnonzero(labels.codes >= 0)
    found = []
    for _ in range(SHUFFLES):
        codes = labels.codes.copy()
        codes[labelled] = rng.permutation(codes[labelled])
        shuffled = listen(heard.graph, copies.spread_labels(codes, len(labels.classes)), heard.k)
        found.append(class_signal(_by_sample(shuffled, copies), codes))
    return max(0.0, float(np.mean(found)))


def _hear_out(
    heard: Heard, model: NoiseModel, copies: Copies, labels: Labels, closeness: Array | None, notes: list[str]
) -> Posterior:
    """What is likely of each sample by its neighbours, and by its closeness where that knows better."""
    evidence, codes = torch.from_numpy(_by_sample(heard, copies)), torch.from_numpy(labels.codes)
    posterior = Posterior(*(part.numpy() for part in model.posterior(evidence, codes)))
    other = _ood_by_closeness(closeness, posterior, notes) if closeness is not None else None
    if other is None:
        return posterior
    return Posterior(*(part.numpy() for part in model.posterior(evidence, codes, torch.from_numpy(other))))


def _decide(posterior: Posterior, labels: Labels, settings: AuditSettings, notes: list[str]) -> Decision:
    """Verdicts, without relabelling where too few proposals would be right."""
    decision = decide(posterior, labels.codes, settings.certainty)
    sure = proposal_strength(decision, posterior)
    if sure >= settings.strength:
        return decision
    notes.append(
        f"the features are too weak to relabel by: of 100 proposals about {round(100 * sure)} would be "
        f"right, {round(100 * settings.strength)} are needed; nothing was relabelled"
    )
    return withhold_relabels(decision, labels.codes)


def _ood_by_closeness(closeness: Array, by_labels: Posterior, notes: list[str]) -> Array | None:
    """P(OOD) by s(x) where those that are OOD by their labels are not the ones; otherwise None."""
    far = by_labels.ood > 0.5
    humps = ood_by_humps(closeness, by_labels.classes.argmax(1))
    if humps is not None and far[humps > 0.5].mean() < 0.5:
        notes.append(
            "by their labels few samples are OOD, but s(x) falls into two groups: training may have "
            "learned labels by heart, so that who is OOD was judged by s(x)"
        )
        return humps
    if far.any() and not far.all() and not lie_apart(closeness[far], closeness[~far]):
        # As near to the classes as all others: mislabelled, not OOD.
        return np.full(len(far), LEAST)
    return None


def _by_sample(heard: Heard, copies: Copies) -> Array:
    return np.asarray(heard.evidence.numpy()[copies.node].astype(np.float64))


def _select(
    heard: Heard, by_node: Array, decision: Decision, copies: Copies, eta: float
) -> npt.NDArray[np.bool_]:
    """Eq. 3-4 on the posterior: likely samples in the largest component of their class."""
    share, labels = torch.as_tensor(by_node[:, :-1]).max(1)
    confident = share > eta
    rows, cols = confident_edges(heard.graph, confident)
    chosen = largest_components(rows, cols, labels, confident, by_node.shape[1] - 1).numpy()
    wanted = np.isin(decision.verdict, (Verdict.KEEP, Verdict.RELABEL, Verdict.UNLABELED))
    return np.asarray(chosen[copies.node] & wanted & (decision.proposed == labels.numpy()[copies.node]))


def _make_predictor(
    by_node: Array,
    decision: Decision,
    selected: npt.NDArray[np.bool_],
    copies: Copies,
    unit: Tensor,
    shares: Array,
    standardiser: Standardiser,
    labels: Labels,
) -> KnnModel:
    prototypes = class_prototypes(
        unit[torch.as_tensor(copies.node)],
        torch.as_tensor(decision.proposed),
        torch.as_tensor(selected),
        len(labels.classes),
    )
    closeness = measure_closeness(unit, prototypes)
    return KnnModel(
        classes=labels.classes,
        standardiser=standardiser,
        nodes=unit,
        posterior=torch.as_tensor(by_node, dtype=torch.float32),
        calibration=fit_calibration(shares, by_node),
        prototypes=prototypes,
        prototype_threshold=1 - float(np.quantile(closeness, by_node[:, -1].mean())),
    )


def _loudest_rows(heard: Heard | None, copies: Copies) -> npt.NDArray[np.int64]:
    """The rows named as neighbours of each sample: the first copy of each neighbouring node."""
    if heard is None:
        return np.zeros((len(copies.node), 0), dtype=np.int64)
    near = loudest(heard.graph)
    return np.asarray(np.where(near >= 0, copies.first[near], -1)[copies.node])
