"""`graphclean apply`: carry out the verdicts of a run in a manifest or a cleaned folder of photos."""

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._files import has_file, replaced, sweep
from ..data.image_folder import ImageFiles
from ..data.parquet import ImageTable
from ..data.progress import Progress
from ..data.tables import PARQUET
from ..data.verdict import Verdict
from ..errors import ELSEWHERE, InputError, arg, occupied, suggest
from .cleaned_folder import Placing, place_files, plan_files
from .cleaned_parquet import write_cleaned
from .decisions import Decision, read_checked, settle, settle_notes
from .folder import (
    GROUP_COLUMN,
    SCORE_COLUMNS,
    read_config,
    read_summary,
    read_verdicts,
    refuse_own,
    require_finished,
    safe_csv,
)
from .formats import USUAL_OUT, Format, Outcome
from .hand_over import HandOver, find_files
from .inputs import find_data, recorded_names, refuse_sources
from .photos import find_photos
from .schema import SourceRecord

ACTIONS = ("kept", "relabeled", "removed")
UNCERTAIN = "uncertain whether the label fits"
NOT_SURE = "the verdict is not sure enough"
NOT_REVIEWED = "not reviewed"
VERDICTS_READ = (
    *("id", "verdict", "given_label", "proposed_label", "selected", "width", "height"),
    *(*SCORE_COLUMNS, GROUP_COLUMN),
)
"""The columns that a manifest is made from."""


@dataclass(frozen=True)
class Applied:
    """The result of `apply`, or of its dry run."""

    out: Path
    table: pd.DataFrame
    """One row per sample: `id`, `label`, `given_label`, `action`, `reason`; for a folder also `file`, and
    `note` if reviewers wrote any.
    """
    changed: int
    """Number of files written or removed; 0 if everything was up to date."""
    notes: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Number of samples by action."""
        return {action: int((self.table["action"] == action).sum()) for action in ACTIONS}


def apply(
    run: Path,
    *,
    out: Path | None = None,
    form: Placing | Format | None = None,
    data: Path | None = None,
    drop_uncertain: bool = False,
    drop_duplicates: bool = False,
    min_confidence: float = 0.0,
    reviewed_only: bool = False,
    dry_run: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Applied:
    """Carry out the verdicts and review decisions of `run`; the originals are never touched.

    Decisions override verdicts. Only verdicts with a confidence of at least `min_confidence` are carried out;
    with `reviewed_only`, none are. `drop_duplicates` keeps one sample of each duplicate group.

    Without a `form`, a manifest is written (.csv or .parquet). A `Placing` writes a folder
    `out/<label>/<file>` with links to the photos or copies of them, and the manifest; for a table that
    contains photos, a copy is a .parquet of the remaining rows. A `Format` writes what another tool reads.
    `data` is the current location of the photos, if they have moved. Identical output of an earlier call is
    left as it is; different output is replaced with `overwrite`.
    """
    source = read_config(run).get("source", {})
    require_finished(run)
    forms = (*get_args(Placing), *get_args(Format))
    if form is not None and form not in forms:
        raise InputError(f"{arg('form')} {form}: {suggest(str(form), forms)}")
    if data is not None and form is None:
        raise InputError(
            f"{arg('data')} locates photos, and only has an effect with {arg('link')}, {arg('hardlink')} or "
            f"{arg('copy')}, or where another {arg('form')} has photos in it"
        )
    if not 0 <= min_confidence <= 1:
        raise InputError(
            f"{arg('min_confidence')} {min_confidence:g}: a probability from 0 to 1, such as 0.9"
        )
    if reviewed_only and min_confidence > 0:
        raise InputError(f"{arg('reviewed_only')} applies no verdict; leave out {arg('min_confidence')}")
    verdicts = read_verdicts(run, VERDICTS_READ if form is None else None)
    reviewed = read_checked(run)
    table = decide_actions(
        verdicts,
        settle(reviewed),
        drop_uncertain=drop_uncertain,
        min_confidence=min_confidence,
        reviewed_only=reviewed_only,
    )
    if drop_duplicates:
        table = leave_one_each(table, verdicts)
    written = settle_notes(reviewed)
    if written:
        table["note"] = pd.Series({row: decision.note for row, decision in written.items()}, dtype=object)
    sources = [data, *(source.get(name) for name in ("data", "labels", "validation"))]
    if form is None:
        target = out if out is not None else run / "cleaned.csv"
        refuse_sources(target, sources)
        changed = _write_manifest(table, run, target, dry_run=dry_run, overwrite=overwrite)
        return Applied(target, table, changed)
    if form in USUAL_OUT:
        classes = read_summary(run).get("classes", [])
        outcome = Outcome.of(table, verdicts, settle(reviewed), classes)
        target = out if out is not None else run / USUAL_OUT[form]
        refuse_sources(target, sources)
        refuse_own(target, run)
        job = HandOver(run, source, outcome, data, target, dry_run, overwrite, progress)
        changed, notes = job.carry_out(form)
        return Applied(target, table, changed, notes)
    if source.get("kind") != "photos":
        raise InputError(
            f"{run}: made from arrays or embeddings, so there are no photos to link or copy; "
            "`graphclean apply` without that writes a manifest"
        )
    path = find_data(run, source, data)
    images = find_photos(path, recorded_names(source), labeled=False)
    assert form in ("link", "hardlink", "copy")
    if isinstance(images, ImageTable):
        return _copy_table(
            run, source, path, table, form, out, dry_run=dry_run, overwrite=overwrite, progress=progress
        )
    if not isinstance(images, ImageFiles):
        raise InputError(
            f"{path}: the photos are in tar shards, and can't be linked or copied one by one; "
            f"without that, a table of labels is written, and with {arg('form')} hf one with the photos"
        )
    target = out if out is not None else run / "cleaned"
    refuse_sources(target, sources)
    photos = find_files(images, path, table["id"].tolist())
    originals = [None if photo is None else Path(os.path.realpath(photo)) for photo in photos]
    real = Path(os.path.realpath(target))
    if any(path is not None and path.is_relative_to(real) for path in originals):
        raise InputError(f"{target}: the run was made from photos in it; {ELSEWHERE}")
    plan = plan_files(table["label"].tolist(), photos, (table["action"] == "kept").tolist())
    table["file"] = [_text(name) if name is not None else None for name in plan.names]
    manifest = _render(table, ".csv")
    files = dict(zip(plan.names, originals, strict=True))
    placed = {name: path for name, path in files.items() if name is not None and path is not None}
    notes = plan.notes + _lost_notes(table)
    changed = place_files(
        target, form, placed, manifest, dry_run=dry_run, overwrite=overwrite, progress=progress
    )
    return Applied(target, table, changed, notes)


def decide_actions(
    verdicts: pd.DataFrame,
    decided: Mapping[int, Decision] | None = None,
    *,
    drop_uncertain: bool = False,
    min_confidence: float = 0.0,
    reviewed_only: bool = False,
) -> pd.DataFrame:
    """The action for every sample, and the reason; a review decision (`decided`) overrides the verdict.

    `keep` and `uncertain` keep the label (`drop_uncertain` removes the latter), `relabel` takes the proposed
    one, and `ood` and `unreadable` are removed. An unlabeled sample takes the proposed label if it was
    selected as clean, and is removed otherwise. A verdict with a confidence below `min_confidence` counts as
    `uncertain`; with `reviewed_only`, so does every sample without a decision.
    """
    columns = ("verdict", "given_label", "proposed_label", "confidence", "selected")
    doubt = NOT_REVIEWED if reviewed_only else NOT_SURE
    least = float("inf") if reviewed_only else min_confidence
    # Many samples share the labels and the confidence as it is written: each case is decided once.
    cases, first = _find_cases(verdicts, least)
    rows = zip(*(verdicts[name].iloc[first] for name in columns), strict=True)
    done = [_decide(*row, least=least, doubt=doubt, drop_uncertain=drop_uncertain) for row in rows]
    named = {str(name): name for column in columns[1:3] for name in verdicts[column].dropna().unique()}
    for row, decision in (decided or {}).items():
        cases[row] = len(done)
        done.append(_carry_out(decision, verdicts["given_label"].iloc[row], named))
    kind = "Int64" if pd.api.types.is_integer_dtype(verdicts["given_label"].dtype) else object
    labels, actions, reasons = zip(*done, strict=True) if done else ([], [], [])
    return pd.DataFrame(
        {
            "id": verdicts["id"],
            "label": pd.Series(labels, dtype=kind).iloc[cases].set_axis(verdicts.index),
            "given_label": verdicts["given_label"],
            "action": pd.Series(actions, dtype=object).iloc[cases].set_axis(verdicts.index),
            "reason": pd.Series(reasons, dtype=object).iloc[cases].set_axis(verdicts.index),
        }
    )


def _find_cases(verdicts: pd.DataFrame, least: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The case of each sample, and the first sample of each case: samples of one case differ in nothing that
    decides their action, or that its reason tells.
    """
    confidence = verdicts["confidence"].to_numpy(dtype=np.float64, na_value=np.nan)
    written, sure = np.char.mod("%.2f", confidence), confidence >= least
    case = np.zeros(len(verdicts), dtype=np.int64)
    columns = (verdicts["verdict"], verdicts["given_label"], verdicts["proposed_label"], verdicts["selected"])
    for values in (*columns, written, sure):
        codes, names = pd.factorize(values)  # -1 if there is no label
        case = np.unique(case * (len(names) + 1) + codes + 1, return_inverse=True)[1]
    _, first, case = np.unique(case, return_index=True, return_inverse=True)
    return case, first


def leave_one_each(table: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """Keep one sample of each duplicate group, unless all are removed: the largest photo, or the first."""
    nothing = pd.Series(0, index=verdicts.index)
    size = verdicts.get("width", nothing) * verdicts.get("height", nothing)
    left = verdicts[GROUP_COLUMN].notna() & (table["action"] != "removed")
    ranked = pd.DataFrame({"group": verdicts[GROUP_COLUMN], "size": size})[left]
    ranked = ranked.sort_values(["group", "size"], ascending=[True, False], kind="stable")
    best = ranked.index.to_series().groupby(ranked["group"]).transform("first")
    extra = best.index[best.index != best]
    table.loc[extra, "label"] = None
    table.loc[extra, "action"] = "removed"
    table.loc[extra, "reason"] = [f"a duplicate of {name}" for name in table["id"][best[extra]]]
    return table


def _decide(
    verdict: str,
    given: Any,
    proposed: Any,
    confidence: float,
    selected: bool,
    *,
    least: float,
    doubt: str,
    drop_uncertain: bool,
) -> tuple[Any, str, str]:
    """Label, action and reason; `doubt` is the reason if the confidence is below `least`."""
    sure = f" (confidence {confidence:.2f})" if not pd.isna(confidence) else ""
    if verdict == Verdict.UNREADABLE:
        return None, "removed", "can't be read"
    if least > 0 and not confidence >= least:
        return _leave(given, doubt, sure, drop_uncertain=drop_uncertain)
    if verdict == Verdict.UNCERTAIN:
        return _leave(given, UNCERTAIN, sure, drop_uncertain=drop_uncertain)
    if verdict == Verdict.KEEP:
        return given, "kept", f"the label fits{sure}"
    if verdict == Verdict.RELABEL:
        return proposed, "relabeled", f"given {given}, looks like {proposed}{sure}"
    if verdict == Verdict.OOD:
        return None, "removed", f"fits no known class{sure}"
    if selected:
        return proposed, "relabeled", f"had no label, looks like {proposed}{sure}"
    return _leave(given, "no class is probable enough", sure, drop_uncertain=drop_uncertain)


def _leave(given: Any, why: str, sure: str, *, drop_uncertain: bool) -> tuple[Any, str, str]:
    """Leave the label as it is, unless uncertain samples are dropped; an unlabeled sample is removed."""
    if pd.isna(given):
        return None, "removed", f"had no label, and {why}{sure}"
    if drop_uncertain:
        return None, "removed", f"{why}{sure}"
    return given, "kept", f"{why}, so it stays{sure}"


def _carry_out(decision: Decision, given: Any, named: dict[str, Any]) -> tuple[Any, str, str]:
    """Label, action and reason of a reviewed sample."""
    by = f" by {decision.by}" if decision.by else ""
    if decision.label is None:
        return None, "removed", f"reviewed{by}: out of distribution"
    if not pd.isna(given) and str(given) == decision.label:
        return given, "kept", f"reviewed{by}: the label is right"
    before = "had no label" if pd.isna(given) else f"given {given}"
    return named[decision.label], "relabeled", f"reviewed{by}: {before}, is {decision.label}"


def _write_manifest(table: pd.DataFrame, run: Path, target: Path, *, dry_run: bool, overwrite: bool) -> int:
    if target.suffix.lower() not in (".csv", *PARQUET) or target.is_dir():
        raise InputError(
            f"{target}: the manifest is a .csv or .parquet; add {arg('link')} or {arg('copy')} for a folder"
        )
    refuse_own(target, run)
    if not dry_run:
        sweep(target.parent)  # leftovers of killed processes, even if nothing changes
    content = _render(table, target.suffix.lower())
    try:
        there = target.read_bytes() if has_file(target) else None
    except OSError as error:
        raise InputError(f"{target}: can't be read: {error.strerror}") from error
    if there == content:
        return 0
    if there is not None and not overwrite:
        raise occupied(target, "the file differs")
    if not dry_run:
        with replaced(target) as draft:
            draft.write_bytes(content)
    return 1


def _render(table: pd.DataFrame, suffix: str) -> bytes:
    buffer = io.BytesIO()
    if suffix == ".csv":
        safe_csv(table).to_csv(buffer, index=False)
    else:
        table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _copy_table(
    run: Path,
    source: SourceRecord,
    path: Path,
    table: pd.DataFrame,
    form: Placing,
    out: Path | None,
    *,
    dry_run: bool,
    overwrite: bool,
    progress: Progress | None,
) -> Applied:
    """Copy the remaining rows of a table that contains photos."""
    if form != "copy":
        raise InputError(
            f"{path}: the photos are in a table, and can't be linked; {arg('copy')} writes a cleaned table"
        )
    target = out if out is not None else run / "cleaned.parquet"
    places = [path, *(source.get(name) for name in ("data", "validation"))]
    refuse_sources(target, places)
    refuse_own(target, run)
    images = find_photos(path, recorded_names(source))
    assert isinstance(images, ImageTable)
    changed = write_cleaned(images, table, target, dry_run=dry_run, overwrite=overwrite, progress=progress)
    return Applied(target, table, changed)


def _lost_notes(table: pd.DataFrame) -> list[str]:
    lost = table["id"][(table["action"] != "removed") & table["file"].isna()].tolist()
    if not lost:
        return []
    count = "1 photo is" if len(lost) == 1 else f"{len(lost)} photos are"
    return [f"{count} no longer there, such as {lost[0]}; listed in the manifest without a file"]


def _text(name: str) -> str:
    """A file name as text that can be written: invalid bytes are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
