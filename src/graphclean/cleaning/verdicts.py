"""From a posterior to the verdict table and its summary."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from ..data.streams import RowNumbers
from ..data.verdict import Verdict
from ..graph.noise_model import Probabilities, hold_decided
from .detection import Detection
from .inputs import Array, Codes, Labels, encode_written
from .scale import is_large

REPORTED_WITHIN = 0.05
"""The fraction of right verdicts is reported if two standard errors are at most this; otherwise it is up to
chance.
"""
LEAST_REPORTED = {Verdict.KEEP: 0.8, Verdict.RELABEL: 0.8, Verdict.OOD: 0.9}
"""Fractions below this are not reported: confidence that low is itself unreliable.

On weak features, of texts and of small images, `relabel` was off by up to 28 points there. Labels show
less OOD than there is, so that `ood` is right more often than its confidence says, by up to 9 points.
"""
LEAST_AGREED = 0.87
"""Fraction of proposals on which the two halves of the labels must agree; otherwise it is not reported how
many are right.

On 16 classes of TinyImageNet and on texts it is at most 0.85, and confidence off by 10 to 40 points; on
CIFAR-10 it is over 0.88, and confidence off by 5, but where OOD is among the proposals that nothing shows.
"""
RATE_WITHIN = 0.02
"""If nothing shows that there is OOD, its rate is reported only if labels would allow at most this much more.
"""


class Posterior(NamedTuple):
    """Class and OOD probabilities given evidence and label: rows of `classes` plus `ood` sum to 1."""

    classes: Array
    ood: Array


@dataclass(frozen=True)
class VerdictArrays:
    """A verdict for every sample, as arrays."""

    verdict: npt.NDArray[np.str_]
    proposed: Codes
    quality: Array
    """P(given label | in distribution); NaN where unlabeled."""
    ood: Array
    confidence: Array
    """Probability that the verdict's assignment is right: the proposed class, OOD for `ood`, and the given
    class for `uncertain`, where the label is kept.
    """


def decide(posterior: Posterior, given: Codes, certainty: float) -> VerdictArrays:
    """Judge the given label first, then decide what to do about it.

    `keep` if P(keep) reaches `certainty`; if P(keep) is at most 1 − `certainty`, the label is wrong, and the
    more likely of `relabel` and `ood` is the verdict. So a label that is certainly wrong is never hidden
    under `uncertain` because both remedies are plausible. `uncertain` in between, and if no other class is
    more likely than the given one: possibly wrong, but without a better proposal. An unlabeled sample has no
    label to judge: it is `ood`, or `unlabeled` with a proposal.
    """
    rows = np.arange(len(given))
    labeled = given >= 0
    proposed = posterior.classes.argmax(1)
    keep = np.where(labeled, posterior.classes[rows, np.maximum(given, 0)], 0)
    known = posterior.classes.sum(1)
    verdict = np.where(known - keep >= posterior.ood, Verdict.RELABEL, Verdict.OOD).astype("U10")
    verdict[(verdict == Verdict.RELABEL) & (proposed == given)] = Verdict.UNCERTAIN
    verdict[keep > 1 - certainty] = Verdict.UNCERTAIN
    verdict[keep >= certainty] = Verdict.KEEP
    verdict[~labeled] = np.where(posterior.ood[~labeled] >= certainty, Verdict.OOD, Verdict.UNLABELED)
    proposed = np.where(verdict == Verdict.KEEP, given, proposed)
    quality = np.where(labeled, keep / np.maximum(known, 1e-12), np.nan)
    confidence = np.where(verdict == Verdict.UNCERTAIN, keep, posterior.classes[rows, proposed])
    confidence = np.where(verdict == Verdict.OOD, posterior.ood, confidence)
    return VerdictArrays(
        verdict, proposed.astype(np.int64), np.clip(quality, 0, 1), posterior.ood, np.clip(confidence, 0, 1)
    )


def hold_posterior(posterior: Posterior, labels: Labels) -> Posterior:
    """The posterior with human decisions in place of inferred probabilities.

    For samples that show nothing, the probability of other classes than the given one is removed.
    """
    if labels.blank is not None and labels.blank.any():
        kept = np.zeros_like(posterior.classes)
        rows = np.flatnonzero(labels.blank & (labels.codes >= 0))
        kept[rows, labels.codes[rows]] = posterior.classes[rows, labels.codes[rows]]
        classes = np.where(labels.blank[:, None], kept, posterior.classes)
        posterior = Posterior(classes, np.where(labels.blank, 1 - classes.sum(1), posterior.ood))
    if labels.decided is None:
        return posterior
    inferred = Probabilities(*map(torch.from_numpy, posterior))
    return Posterior(*(part.numpy() for part in hold_decided(inferred, torch.from_numpy(labels.decided))))


def hold_verdicts(decision: VerdictArrays, labels: Labels) -> VerdictArrays:
    """Verdicts with human decisions in place of inferred ones."""
    if labels.decided is None:
        return decision
    n, width = len(labels.codes), len(labels.classes)
    held = labels.decided >= 0
    certain = decide(hold_posterior(Posterior(np.zeros((n, width)), np.zeros(n)), labels), labels.codes, 1.0)
    parts = zip(vars(certain).values(), vars(decision).values(), strict=True)
    return VerdictArrays(*(np.where(held, ours, theirs) for ours, theirs in parts))


def is_proposed(decision: VerdictArrays, labels: Labels) -> npt.NDArray[np.bool_]:
    """Samples to be relabeled, except for those that people decided."""
    proposed = decision.verdict == Verdict.RELABEL
    return np.asarray(proposed if labels.decided is None else proposed & (labels.decided < 0))


def proposal_strength(decision: VerdictArrays, posterior: Posterior, labels: Labels) -> float:
    """The mean probability of these proposals, given that a known class is right."""
    moved = np.flatnonzero(is_proposed(decision, labels))
    if len(moved) == 0:
        return 1.0
    known = posterior.classes[moved]
    return float((known[np.arange(len(moved)), decision.proposed[moved]] / known.sum(1)).mean())


def withhold_relabels(decision: VerdictArrays, given: Codes) -> VerdictArrays:
    """Turn every `relabel` into `uncertain` without a proposal, for features too weak to propose classes."""
    unsure = np.isin(decision.verdict, (Verdict.RELABEL, Verdict.UNCERTAIN))
    verdict = np.where(unsure, Verdict.UNCERTAIN, decision.verdict)
    keep = decision.quality * (1 - decision.ood)
    return replace(
        decision,
        verdict=verdict,
        proposed=np.where(unsure, given, decision.proposed),
        confidence=np.where(unsure, keep, decision.confidence),
    )


def undecided(given: Codes) -> VerdictArrays:
    """No verdicts: the features are uninformative, so every label is kept and no score is reported."""
    nothing = np.full(len(given), np.nan)
    verdict = np.where(given >= 0, Verdict.UNCERTAIN, Verdict.UNLABELED).astype("U10")
    return VerdictArrays(verdict, given, nothing, nothing, nothing)


def verdict_table(
    decision: VerdictArrays,
    labels: Labels,
    ids: Sequence[str],
    selected: npt.NDArray[np.bool_],
    neighbors: Codes,
    duplicate_group: pd.Series,
) -> pd.DataFrame:
    """One row per sample, in input order. `neighbors` holds row numbers, −1 for none."""
    listed: Any
    if is_large(len(selected)):
        column, listed = _large_columns(ids, neighbors)
    else:
        names = np.asarray(ids, dtype=object)
        column = pd.Series(names, dtype=str)
        listed = [[str(names[j]) for j in row if j >= 0] for row in neighbors]
    return pd.DataFrame(
        {
            "id": column,
            "given_label": labels.names(labels.codes),
            "proposed_label": labels.names(decision.proposed),
            "verdict": pd.Series(decision.verdict.astype(object), dtype=str),
            "confidence": decision.confidence,
            "label_quality": decision.quality,
            "ood_score": decision.ood,
            "selected": selected,
            "neighbors": listed,
            "duplicate_group": duplicate_group,
        }
    )


def _large_columns(ids: Sequence[str], neighbors: Codes) -> tuple[pd.Series, pd.Series]:
    """The names of samples, and of their neighbors, without an object for each."""
    text = pa.large_string()
    rows = neighbors.ravel()
    there = rows >= 0
    if isinstance(ids, RowNumbers):
        names = pa.array(np.arange(len(ids))).cast(text)
        named = pa.array(rows[there]).cast(text)
    else:
        names = pa.array(ids, text)
        named = names.take(pa.array(rows[there]))
    ends = np.concatenate([[0], there.reshape(neighbors.shape).sum(1).cumsum()])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), named)
    return pd.Series(names.to_pandas(), dtype=str), pd.Series(lists, dtype=pd.ArrowDtype(lists.type))


def with_unreadable(
    table: pd.DataFrame, ids: Sequence[str], rows: Codes, given: Sequence[str] | None = None
) -> pd.DataFrame:
    """Extend a table of the samples `rows` to all `ids`; the others become `unreadable`, without scores."""
    if len(rows) == len(ids):
        return table
    wide = table.set_index(np.asarray(rows)).reindex(range(len(ids)))
    missing = wide["verdict"].isna()
    wide["id"] = pd.Series(list(ids), dtype=str)
    wide["verdict"] = wide["verdict"].fillna(Verdict.UNREADABLE)
    if given is not None:
        labels = encode_written(list(given))
        wide["given_label"] = labels.names(labels.codes)
        if not pd.api.types.is_integer_dtype(wide["given_label"].dtype):
            # A photo that can't be read may carry the only label that is not a number.
            wide["proposed_label"] = wide["proposed_label"].astype(object).map(str, na_action="ignore")
        wide["selected"] = wide["selected"].astype(object).where(~missing, False).astype(bool)
        wide["neighbors"] = [
            [] if gone else near for gone, near in zip(missing, wide["neighbors"], strict=True)
        ]
    return wide


@dataclass(frozen=True)
class Summary:
    """Key figures of a cleaning run."""

    samples: int
    features: int | None
    """Number of feature columns; None if a graph was given instead."""
    classes: list[Any]
    verdicts: dict[str, int]
    """Samples by verdict."""
    scaling: str | None
    """`standardized` or `raw` features; None if a graph was given instead."""
    k: int
    """Neighbors per sample in the graph used."""
    k_tried: dict[int, float]
    """Mean log-likelihood of the given labels for each k tried; the largest won."""
    signal: float
    """Agreement of neighbors with the given labels beyond chance, in standard errors."""
    noise_rate: float | None
    """Estimated fraction of wrong labels among samples of known classes; None if nothing was decided."""
    ood_rate: float | None
    """Estimated fraction of OOD samples; None also if nothing shows whether there are any."""
    possible_ood_rate: float | None
    """In that case, the fraction that labels alone would allow."""
    expected_right: dict[str, float]
    """By verdict, the fraction that is right according to the model's own estimate."""
    confused: list[dict[str, Any]]
    """Given -> proposed among `relabel` verdicts, most frequent first."""
    selected: int
    """Samples in the selected clean set."""
    detector: dict[str, Any] | None
    """The name of the detector for new data, and its `Threshold`; None if there is none."""
    warnings: list[str] = field(default_factory=list)
    photo_issues: dict[str, int] = field(default_factory=dict)
    """Photos that are dark, blurred, …, by issue; issues without photos are omitted."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def summarize(
    decision: VerdictArrays,
    posterior: Posterior | None,
    labels: Labels,
    features: int | None,
    scaling: str | None,
    k: int,
    k_tried: dict[int, float],
    signal: float,
    selected: npt.NDArray[np.bool_],
    detection: Detection | None,
    possible_ood: float | None,
    agreed: float | None,
    notes: list[str],
) -> Summary:
    """Summarize the verdicts; without a posterior nothing is estimated.

    `possible_ood` is the OOD rate that labels alone allow, if nothing else shows it; `agreed` is the
    fraction of proposals on which the two halves of the labels agree.
    """
    noise_rate = ood_rate = possible = None
    if posterior is not None:
        labeled = labels.codes >= 0
        known = posterior.classes[labeled]
        kept = known[np.arange(len(known)), labels.codes[labeled]].sum()
        noise_rate, ood_rate = float(1 - kept / known.sum()), float(posterior.ood.mean())
        if possible_ood is not None and possible_ood > ood_rate + RATE_WITHIN:
            ood_rate, possible = None, possible_ood
    reliable = ood_rate is not None and agreed is not None and agreed >= LEAST_AGREED
    return Summary(
        samples=len(labels.codes),
        features=features,
        scaling=scaling,
        classes=list(labels.classes),
        verdicts={
            name: int((decision.verdict == name).sum()) for name in Verdict if name != Verdict.UNREADABLE
        },
        k=k,
        k_tried=k_tried,
        signal=signal,
        noise_rate=noise_rate,
        ood_rate=ood_rate,
        possible_ood_rate=possible,
        expected_right={} if posterior is None else _expected_right(decision, proposals=reliable),
        confused=_confused_pairs(decision, labels),
        selected=int(selected.sum()),
        detector={"name": detection.detector.name, **asdict(detection.found)} if detection else None,
        warnings=notes,
    )


def _expected_right(decision: VerdictArrays, *, proposals: bool) -> dict[str, float]:
    """By verdict, the fraction that is right according to the model (the mean confidence), if known closely
    enough; for `relabel` only if `proposals` are reliable.
    """
    known = [name for name in Verdict if name.is_estimated and (proposals or name != Verdict.RELABEL)]
    stated = {name: decision.verdict == name for name in known}
    means = {name: float(decision.confidence[rows].mean()) for name, rows in stated.items() if rows.any()}
    return {name: p for name, p in means.items() if can_be_reported(name, p, int(stated[name].sum()))}


def can_be_reported(verdict: Verdict, fraction: float, count: int) -> bool:
    """Whether the fraction that is right of so many verdicts of one kind is known closely enough."""
    error = np.sqrt(fraction * (1 - fraction) / count)
    return bool(fraction >= LEAST_REPORTED[verdict] and 2 * error <= REPORTED_WITHIN)


def _confused_pairs(decision: VerdictArrays, labels: Labels) -> list[dict[str, Any]]:
    """Given -> proposed pairs among `relabel` verdicts with their counts, most frequent first."""
    moved = decision.verdict == Verdict.RELABEL
    pairs = Counter(zip(labels.codes[moved].tolist(), decision.proposed[moved].tolist(), strict=True))
    ranked = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))
    return [
        {"given": labels.classes[given], "proposed": labels.classes[proposed], "count": count}
        for (given, proposed), count in ranked
    ]
