"""The run folder: written atomically, and read without trusting its content."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
import torch
from safetensors import SafetensorError

from .._files import (
    _require,
    check_unlocked,
    has_file,
    is_passing,
    locked,
    read_json,
    read_lines,
    reason_of,
    replaced,
    replaced_folder,
    sweep,
    write_json,
)
from .._shapes import check_shape
from .._version import __version__
from ..cleaning.knn_model import MODEL, PROTOTYPES
from ..data.tables import Table, check_names, open_parquet, read_table
from ..data.verdict import Verdict
from ..distributed.environment import job_id
from ..distributed.group import current
from ..errors import ELSEWHERE, InputError, arg, occupied
from .origin import made_here, sealed
from .schema import ConfigFile, Epoch, ScoresFile, SourceRecord, SummaryFile

SUMMARY, METRICS = "summary.json", "metrics.jsonl"
VERDICTS_FILE = "verdicts.parquet"
POINTS = "points.safetensors"
DECISIONS = "decisions.jsonl"
"""Review decisions."""
CHANGES = "changes.csv"
"""For a rerun: samples whose verdict differs from the earlier run."""
TRAINING_SAMPLES = "training.safetensors"
"""What is needed to find new samples that duplicate samples of the run."""
LEAKAGE = "leakage.csv"
"""For a run compared with other data: samples of that data that are also in the run's."""
SCORES = "scores.json"
"""Only if the truth is known, as in the demo."""
CHECKPOINT, DIGITS = "checkpoint", "digits.npz"
"""The training checkpoint, and the demo's digits, which the report shows and `graphclean train` accepts."""
SHOWN_CELLS = "shown.parquet"
"""Cells of the source's table shown with each sample."""
KEPT = "kept.safetensors"
"""A cache of the expensive parts of the report page; it may be deleted."""
REPORT, EXPORTED, PREDICTIONS = "report.html", "model.onnx", "predictions"
CLEANED = ("cleaned", "cleaned.csv", "cleaned.parquet")
HANDED_OVER = ("label-studio.json", "label-studio.xml", "fiftyone", "cleanlab.csv", "hf.parquet")
MODEL_CARD = "model.md"
"""The model card next to the exported model."""
OWN_FILES = frozenset(
    (
        *(
            "config.json",
            "env.json",
            "verdicts.csv",
            "unreadable.csv",
            VERDICTS_FILE,
            SUMMARY,
            SCORES,
            METRICS,
        ),
        *(MODEL, PROTOTYPES, POINTS, CHECKPOINT, DIGITS, DECISIONS, CHANGES, SHOWN_CELLS),
        *(TRAINING_SAMPLES, LEAKAGE),
    )
)
"""The files that make up a run."""
KNOWN_FILES = OWN_FILES | {
    *(REPORT, KEPT, EXPORTED, MODEL_CARD, PREDICTIONS, *CLEANED, *HANDED_OVER),
    *(".DS_Store", "Thumbs.db"),
}
"""Those files, the files made from them, and files that file managers leave in a folder."""
SCORE_COLUMNS = ("confidence", "label_quality", "ood_score")
GROUP_COLUMN = "duplicate_group"
ROUNDING = 1e-6
"""How far scores, which are probabilities, may be outside 0 to 1."""
LIST_COLUMNS = ("neighbors", "photo_issues")
"""Lists of names; the latter only for runs on photos."""
VERDICT_COLUMNS = {
    *("id", "given_label", "proposed_label", "verdict"),
    *(*SCORE_COLUMNS, "selected", "neighbors"),
}
FORMULA = re.compile(r'(^(?=[\t\r\n])|(?:^|[;\t\r\n])(?=[\s"]*[=+\-@＝＋－＠]))')
"""Where a spreadsheet would start a formula; many split cells at semicolons or tabs, even within quotes."""
TABLE_ROWS = 2**17
"""Rows of a row group, and rows written to a .csv at once."""
RUN_FORMAT = 4
"""Incremented when older versions can no longer read what this one writes."""


def check_target(out: Path, *, overwrite: bool, ours: bool = False) -> None:
    """Refuse a target that contains anything: a run unless `overwrite`, other files always.

    A folder locked by another process is refused as well; `ours` means that this process holds the lock.
    """
    bring_back(out)
    try:
        there = out.exists() or out.is_symlink()
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error.strerror}") from error
    if not there:
        parent = next(folder for folder in out.absolute().parents if folder.exists())
        if not os.access(parent, os.W_OK | os.X_OK):
            raise InputError(f"{out}: can't be written: {parent} is not writable")
        return
    if not out.is_dir():
        raise InputError(f"{out}: there is a file of that name; {ELSEWHERE}")
    if not any(out.iterdir()):
        return
    if not is_run(out):
        raise InputError(f"{out}: the folder holds files that are not a run; {ELSEWHERE}")
    if not ours:
        check_unlocked(out, busy(out, "out"))
    if not overwrite and is_unfinished(out):
        raise InputError(
            f"{out}: the folder holds an unfinished training run; continue it with "
            f"{arg('resume')}, or replace it with {arg('overwrite')}"
        )
    if not overwrite:
        raise occupied(out, "the folder holds another run")
    if not os.access(out, os.W_OK | os.X_OK) or not out.stat().st_mode & 0o222:
        raise InputError(f"{out}: the folder is read-only, and can't be replaced; {ELSEWHERE}")
    if (out / DECISIONS).is_file():
        raise InputError(
            f"{out}: the folder holds the decisions of a review, which {arg('overwrite')} would delete; "
            f"use another {arg('out')}, or move {DECISIONS} away first (`graphclean review --merge` "
            "can bring it back)"
        )
    names = (path.name for path in out.iterdir())
    foreign = sorted(name for name in names if name not in KNOWN_FILES and not is_passing(name))
    if foreign:
        raise InputError(
            f"{out}: the folder holds {foreign[0]}, which is no part of a run and which {arg('overwrite')} "
            f"would delete; move it away, or use another {arg('out')}"
        )


def is_run(out: Path) -> bool:
    """Whether a folder contains a run, or the remains of one; a config.json alone may be anyone's."""
    if not (out / "config.json").is_file() or not (out / "env.json").is_file():
        return False
    try:
        return "graphclean" in read_json(out / "config.json")
    except InputError:
        return False


def refuse_own(target: Path, run: Path) -> None:
    """Refuse to replace a file of the run itself with something made from it."""
    if target.name in OWN_FILES and os.path.realpath(target.parent) == os.path.realpath(run):
        raise InputError(f"{target}: is a file of the run itself; {ELSEWHERE}")


def in_use(run: Path, named: str = "out") -> AbstractContextManager[None]:
    """Lock a folder that this process writes to; `named` is the argument that names the folder."""
    return locked(run, busy(run, named))


def busy(run: Path, named: str) -> str:
    """The error message for a folder that another process writes to."""
    return f"{run}: another process is training in it; wait until it ends, or choose another {arg(named)}"


def bring_back(run: Path) -> None:
    """Restore an older run that a killed process had moved aside, and remove other leftovers."""
    sweep(Path(os.path.realpath(run)).parent)


def is_unfinished(run: Path) -> bool:
    """Whether a run folder lacks its results, which only happens in training."""
    return read_config(run).get("kind") == "train" and not has_file(run / SUMMARY)


def require_finished(run: Path) -> None:
    """Refuse a training run that has no results yet."""
    if is_unfinished(run):
        raise InputError(f"{run}: its training has not finished; continue it with {arg('resume')}")


@contextmanager
def new_run(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write to that becomes `out` only if the block succeeds."""
    check_target(out, overwrite=overwrite)
    with in_use(out), locked_run(out, overwrite=overwrite) as draft:
        yield draft


@contextmanager
def locked_run(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """`new_run` for a process that holds the lock on `out` already."""
    check_target(out, overwrite=overwrite, ours=True)
    try:
        with replaced_folder(Path(os.path.realpath(out))) as draft:
            yield draft
            check_target(out, overwrite=overwrite, ours=True)  # a review may have started
    except (OSError, SafetensorError) as error:
        raise InputError(f"{out}: can't be written: {reason_of(error)}") from error


def write_table(table: pd.DataFrame, stem: Path) -> None:
    """Write a table both as .parquet and as .csv, block by block."""
    table = table.iloc[:]
    table.attrs = {}
    with replaced(stem.with_suffix(".parquet")) as draft:
        table.to_parquet(draft, index=False, row_group_size=TABLE_ROWS)
    with replaced(stem.with_suffix(".csv")) as draft:
        for start in range(0, max(len(table), 1), TABLE_ROWS):
            part = safe_csv(table.iloc[start : start + TABLE_ROWS])
            part.to_csv(draft, index=False, header=start == 0, mode="a" if start else "w")


def safe_csv(table: pd.DataFrame) -> pd.DataFrame:
    """Convert lists to JSON, and put a quote before text that a spreadsheet would run as a formula."""
    safe = table.copy()
    for name in safe.columns:
        kind = safe[name].dtype
        if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
            continue
        safe[name] = [_safe_cell(value) for value in safe[name]]
    return safe


def _safe_cell(value: Any) -> Any:
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    return FORMULA.sub(r"\1'", value) if isinstance(value, str) else value


def write_config(
    folder: Path, kind: str, source: SourceRecord, settings: dict[str, Any], preset: str | None = None
) -> None:
    """Write config.json: the source, the settings and the version."""
    head: dict[str, Any] = {"graphclean": __version__, "format": RUN_FORMAT, "kind": kind}
    if preset is not None:
        head["preset"] = preset
    write_json(folder / "config.json", {**head, "source": sealed(source), "settings": settings})


def write_env(folder: Path, fingerprint: str, device: str = "cpu", decisions: str | None = None) -> None:
    """Write env.json: versions, threads, commit, and hashes of the data and of the review decisions."""
    packages = ("torch", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "safetensors")
    write_json(
        folder / "env.json",
        {
            "graphclean": __version__,
            "commit": find_commit(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            "packages": {name: package_version(name) for name in packages},
            "device": device,
            "processes": current().size,
            "job": job_id(),
            "threads": torch.get_num_threads(),
            "data_sha256": fingerprint,
            "decisions_sha256": decisions,
        },
    )


def package_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_commit() -> str | None:
    """The commit named by GRAPHCLEAN_COMMIT (for a copy without its history), or that of this checkout."""
    if "GRAPHCLEAN_COMMIT" in os.environ:
        return os.environ["GRAPHCLEAN_COMMIT"]
    root = Path(__file__).resolve().parents[3]  # above src/graphclean/runs
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def read_config(run: Path) -> ConfigFile:
    """Read the config of a run folder; other folders and incompatible formats are refused."""
    if not (run / "config.json").exists():
        bring_back(run)
    if not run.is_dir():
        raise InputError(f"{run}: no such run folder")
    if not has_file(run / "config.json"):
        raise InputError(f"{run}: not a run folder, as there is no config.json in it")
    config = read_json(run / "config.json")
    made_with, number = config.get("graphclean"), config.get("format")
    # Checked first: the files of another format may differ in content.
    if isinstance(number, int) and number > RUN_FORMAT:
        raise InputError(
            f"{run}: written by graphclean {made_with}, which is newer; upgrade graphclean to read it"
        )
    if isinstance(number, int) and number < RUN_FORMAT:
        raise InputError(
            f"{run}: a run in an earlier format, which can't be read any more; make it again "
            f"({arg('overwrite')} replaces it)"
        )
    checked: ConfigFile = check_shape(config, ConfigFile, run / "config.json")
    for name, value in checked.get("source", {}).items():
        if isinstance(value, str) and "\0" in value:  # no path can
            raise InputError(f"{run / 'config.json'}: damaged: source.{name} contains a null character")
    return checked


def recorded_data(run: Path, source: SourceRecord) -> Path:
    """The path of a run's data, by the `source` of its config; the demo stores its data in its own folder."""
    return run / DIGITS if brings_data(run, source) else Path(str(source.get("data")))


def brings_data(run: Path, source: SourceRecord) -> bool:
    """Whether the data of a run is a file in its own folder."""
    demo = source.get("kind") == "images" and source.get("data") == DIGITS
    return demo and (run / DIGITS).is_file() and not (run / DIGITS).is_symlink()


def check_origin(run: Path, source: SourceRecord, advice: str) -> None:
    """Refuse to read the files and data sets that a run names, unless this user made it here."""
    if not made_here(source):
        raise InputError(
            f"{run}: not known to be made by you on this machine, so the data it names is not read; {advice}"
        )


def read_env(run: Path) -> dict[str, Any]:
    """Read the environment of a run and the hash of its data."""
    return read_json(run / "env.json")


def read_summary(run: Path) -> SummaryFile:
    """Read the summary of a run."""
    summary = cast(SummaryFile, read_json(run / SUMMARY, SummaryFile))
    for name, fraction in summary.get("expected_right", {}).items():
        if not 0 <= fraction <= 1:
            raise InputError(f"{run / SUMMARY}: damaged: expected_right.{name} is not from 0 to 1")
    return summary


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """Read the epochs of a training run; empty for other runs."""
    return read_lines(run / METRICS, Epoch)


def read_scores(run: Path) -> ScoresFile | None:
    """Read the scores of a run, if the truth is known."""
    return cast(ScoresFile, read_json(run / SCORES, ScoresFile)) if has_file(run / SCORES) else None


def read_verdicts(run: Path, columns: Collection[str] | None = None, *, arrow: bool = False) -> pd.DataFrame:
    """Read the verdicts of a run, one row per sample, in the order of its data.

    Only these `columns` are read, as far as the run has them. With `arrow`, lists stay in Arrow: as Python
    objects, those of a million samples take more time and memory than everything else.
    """
    path = run / VERDICTS_FILE
    _require(path)
    with open_parquet(path) as file:
        kinds = {field.name: field.type for field in file.schema_arrow}
        check_names(path, None, file.schema_arrow.names)
    wrong = next((f"no column {name}" for name in sorted(VERDICT_COLUMNS - kinds.keys())), None)
    wrong = wrong if wrong is not None else _wrong_column(kinds)
    if wrong is not None:
        raise InputError(f"{path}: damaged: {wrong}")
    wanted = [name for name in kinds if columns is None or name in columns]
    table = read_table(path, wanted)
    lists = [name for name in LIST_COLUMNS if name in wanted]
    verdicts = Table(path, table.columns.drop_columns(lists)).frame()
    unknown = (
        sorted(set(map(str, verdicts["verdict"].unique())) - set(Verdict)) if "verdict" in wanted else []
    )
    if unknown:
        raise InputError(f"{path}: damaged: there is no verdict {unknown[0]}")
    scores = {name: verdicts[name].astype("float64") for name in SCORE_COLUMNS if name in wanted}
    for name, values in scores.items():
        outside = values[(values - 0.5).abs() > 0.5 + ROUNDING]
        if len(outside):
            raise InputError(f"{path}: damaged: {name} holds {outside.iloc[0]:g}, which is not from 0 to 1")
    for name in lists:
        column = table.columns[name]
        cells: Any = column.to_pylist() if not arrow else pd.arrays.ArrowExtensionArray(column)
        verdicts.insert(wanted.index(name), name, cells if arrow else [names or [] for names in cells])
    verdicts = verdicts.assign(**scores)
    if columns is None or GROUP_COLUMN in columns:
        nothing = pd.Series(
            pd.NA, index=verdicts.index, dtype="Int64"
        )  # for runs made before there were groups
        group = verdicts[GROUP_COLUMN].astype("Int64") if GROUP_COLUMN in kinds else nothing
        verdicts = verdicts.assign(**{GROUP_COLUMN: group})
    return verdicts


def _wrong_column(kinds: dict[str, pa.DataType]) -> str | None:
    """What is wrong with the first unusable column, judged by column types; None if all are usable."""
    text = {name: pa.types.is_string(kind) or pa.types.is_large_string(kind) for name, kind in kinds.items()}
    whole = {name: pa.types.is_integer(kind) for name, kind in kinds.items()}
    labels = [name for name in ("given_label", "proposed_label") if not pa.types.is_null(kinds[name])]
    if not all(text[name] for name in labels) and not all(whole[name] for name in labels):
        return "the labels are neither all text nor all whole numbers"
    if not text["verdict"]:
        return "verdict is no column of text"
    if not pa.types.is_boolean(kinds["selected"]):
        return "selected is not true or false"
    numbers = (pa.types.is_floating, pa.types.is_integer, pa.types.is_null)
    odd = next((name for name in SCORE_COLUMNS if not any(kind(kinds[name]) for kind in numbers)), None)
    if odd is not None:
        return f"{odd} is no column of numbers"
    if not text["id"] and not whole["id"]:
        return "id is no column of names"
    if not whole.get(GROUP_COLUMN, True) and not pa.types.is_null(kinds[GROUP_COLUMN]):
        return f"{GROUP_COLUMN} is no column of whole numbers"
    kept = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)
    for name in LIST_COLUMNS:
        kind = kinds.get(name, pa.list_(pa.string()))
        inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
        if inner is None or not any(is_kind(inner) for is_kind in kept):
            return f"{name} is no column of lists of names"
    return None
