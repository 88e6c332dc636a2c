"""What a user should know about the data before trusting the verdicts."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ..config import OodSettings
from ..data.streams import RowNumbers
from ..ood import Threshold
from .duplicates import LARGEST_ALONE
from .evidence import Copies
from .inputs import Codes, Labels

SMALL_CLASS = 20
"""Classes with fewer samples give unreliable verdicts."""
IMBALANCE = 20
"""Ratio of the largest to the smallest class from which imbalance is reported."""
FEW_CLASSES = 3
"""With up to this many classes, wrong labels are easily mistaken for OOD."""


def label_notes(labels: Labels) -> list[str]:
    """Small classes, strong imbalance, names that differ in capitals alone, unlabeled samples."""
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    notes = []
    small = np.flatnonzero(sizes < SMALL_CLASS)
    if len(small):
        some = ", ".join(f"{labels.classes[c]} ({sizes[c]})" for c in small[:3])
        have = "class has" if len(small) == 1 else "classes have"
        more = ", …" if len(small) > 3 else ""
        notes.append(
            f"{len(small)} {have} under {SMALL_CLASS} samples, whose verdicts are weak: {some}{more}"
        )
    if sizes.max() >= IMBALANCE * sizes.min():
        notes.append(
            f"strong imbalance: {labels.classes[int(sizes.argmax())]} has {sizes.max()} samples, "
            f"{labels.classes[int(sizes.argmin())]} has {sizes.min()}"
        )
    spelled: dict[str, list[str]] = {}
    for name in map(str, labels.classes):
        spelled.setdefault(name.casefold(), []).append(name)
    alike = [" and ".join(names) for names in spelled.values() if len(names) > 1]
    if alike:
        some = ", ".join(alike[:3]) + (", …" if len(alike) > 3 else "")
        notes.append(f"classes that differ in capitals alone are different classes: {some}")
    missing = int((labels.codes < 0).sum())
    if missing:
        samples = "1 sample is" if missing == 1 else f"{missing} samples are"
        notes.append(f"{samples} unlabeled: a proposal is made, and no verdict on a label")
    return notes


def ood_notes(labels: Labels, n_ood: int) -> list[str]:
    """Warn that `ood` may be `relabel` if there are few other labels to disagree with."""
    if len(labels.classes) > FEW_CLASSES or n_ood == 0:
        return []
    return [
        f"with {len(labels.classes)} classes a wrong label and an OOD sample look alike: "
        "check the proposed labels of `ood` samples too"
    ]


def rate_notes(found: Threshold, settings: OodSettings) -> list[str]:
    """Warn if too few samples are known to guarantee a rate on new ones."""
    needed = math.ceil(1 / settings.reject - 1)
    if found.how == "fixed" or found.calibrated_on >= needed:
        return []
    few = "1 known sample" if found.calibrated_on == 1 else f"{found.calibrated_on} known samples"
    return [
        f"{few} can't calibrate how many good inputs are rejected: for {100 * settings.reject:g} %, "
        f"{needed} are needed"
    ]


def id_notes(ids: Sequence[str]) -> list[str]:
    """Ids that occur more than once."""
    extra = 0 if isinstance(ids, RowNumbers) else len(ids) - len(set(ids))
    repeats = "1 id is a repeat" if extra == 1 else f"{extra} ids are repeats"
    return [f"{repeats} of an earlier one; rows stay in input order"] if extra else []


def packed_notes(packed: int) -> list[str]:
    """That many samples lie where features alone can't tell copies from a tight class."""
    if packed == 0:
        return []
    return [
        f"{packed} samples lie close together in groups of over {LARGEST_ALONE}: if each shows one thing, "
        "such as frames of one film, they vote for each other's labels; leave one of each"
    ]


def copy_notes(exact: Copies, copies: Copies, labels: Labels, ids: Sequence[str]) -> list[str]:
    """Exact copies and near-duplicates, those with conflicting labels, and what they leave undecided."""
    equal, near = len(labels.codes) - len(exact.first), len(exact.first) - len(copies.first)
    notes = []
    if equal:
        rows = "1 row is an exact copy" if equal == 1 else f"{equal} rows are exact copies"
        notes.append(f"{rows} of an earlier one; copies do not vote for each other")
    if near:
        rows = "1 sample is a near-duplicate" if near == 1 else f"{near} samples are near-duplicates"
        notes.append(f"{rows} of an earlier one; they do not vote for each other")
    if not notes:
        return []
    labeled = np.flatnonzero(labels.codes >= 0)
    frame = pd.DataFrame({"node": copies.node[labeled], "label": labels.codes[labeled], "row": labeled})
    frame = frame.drop_duplicates(["node", "label"])
    groups = frame[frame["node"].duplicated(keep=False)].groupby("node", sort=True)["row"].apply(list)
    if len(groups):
        example = ", ".join(f"{ids[row]} ({labels.classes[labels.codes[row]]})" for row in groups.iloc[0][:3])
        kind = "duplicates" if near else "exact copies"
        carry = f"group of {kind} carries" if len(groups) == 1 else f"groups of {kind} carry"
        notes.append(f"{len(groups)} {carry} conflicting labels, such as {example}")
    return notes + _lone_notes(copies, frame["label"].to_numpy(), labels)


def _lone_notes(copies: Copies, voices: Codes, labels: Labels) -> list[str]:
    """One group that is most of the data, and classes that consist of one group; `voices` has one label per
    group.
    """
    notes = []
    largest = int(np.bincount(copies.node).max())
    if 2 * largest > len(copies.node):
        notes.append(
            f"one group of duplicates holds {largest} of {len(copies.node)} samples: verdicts rest on the "
            f"{len(copies.first)} distinct ones"
        )
    sizes = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    lone = np.flatnonzero((np.bincount(voices, minlength=len(labels.classes)) == 1) & (sizes > 1))
    if len(lone):
        some = ", ".join(str(labels.classes[c]) for c in lone[:3]) + (", …" if len(lone) > 3 else "")
        are = "1 class is one group" if len(lone) == 1 else f"{len(lone)} classes are each one group"
        notes.append(f"{are} of duplicates, so no other sample speaks for the label: {some}")
    return notes
