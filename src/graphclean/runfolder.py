"""The run folder: written whole or not at all, and read without trusting what is in it."""

import json
import math
import os
import platform
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ._version import __version__
from .errors import InputError, parse_json
from .locks import lock_folder
from .shapes import ConfigFile, Epoch, ScoresFile, SummaryFile, Table, check_shape

MODEL, PROTOTYPES, SUMMARY, METRICS = (
    "model.safetensors",
    "prototypes.safetensors",
    "summary.json",
    "metrics.jsonl",
)
VERDICTS = "verdicts.parquet"
POINTS = "points.safetensors"
DECISIONS = "decisions.jsonl"
"""What people decided in a review."""
SCORES = "scores.json"
"""Only where the truth is known, as in the demo."""
CACHE = "embeddings.safetensors"
"""Of photos."""
CHECKPOINT, DIGITS = "checkpoint", "digits.npz"
"""Of training, and of the demo: its noisy digits, which the report shows and `graphclean train` takes too."""
REPORT, EXPORTED, PREDICTIONS = "report.html", "model.onnx", "predictions"
CLEANED = ("cleaned", "cleaned.csv", "cleaned.parquet")
OWN_FILES = frozenset(
    (
        *("config.json", "env.json", "verdicts.csv", "unreadable.csv", VERDICTS, SUMMARY, SCORES, METRICS),
        *(MODEL, PROTOTYPES, POINTS, CACHE, CHECKPOINT, DIGITS, DECISIONS),
    )
)
"""What a run is made of."""
KNOWN_FILES = OWN_FILES | {REPORT, EXPORTED, PREDICTIONS, *CLEANED, ".DS_Store", "Thumbs.db"}
"""And what is made from it, and put beside it, by us or by who shows the folder."""
DRAFTS = ".*.????????"
"""How `replaced` names what it has not finished."""
VERDICT_COLUMNS = {
    *("id", "given_label", "proposed_label", "verdict"),
    *("label_quality", "ood_score", "selected", "neighbours"),
}
VERDICT_NAMES = ("keep", "relabel", "ood", "uncertain", "unlabelled", "unreadable")
FORMAT = 2
"""Rises when an older version could no longer read what this one writes."""


def has_file(path: Path) -> bool:
    """Whether a file is there; what is none, such as a pipe, on which a reader would wait, is refused."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a file, but in the place of one; move it away")
    return path.is_file()


def check_target(out: Path, *, overwrite: bool) -> None:
    """Refuse a target that holds something: a run unless `overwrite`, anything else always."""
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
        raise InputError(f"{out}: there is a file of that name; choose another folder with --out")
    if not any(out.iterdir()):
        return
    if not _is_run(out):
        raise InputError(f"{out}: the folder holds files that are not a run; choose another with --out")
    with in_use(out):
        pass
    if not overwrite and is_unfinished(out):
        raise InputError(
            f"{out}: the folder holds a training run that did not finish; go on with it by "
            "`graphclean train … --resume`, or replace it with --overwrite"
        )
    if not overwrite:
        raise InputError(
            f"{out}: the folder holds another run; use --overwrite to replace it, or another --out"
        )
    if not os.access(out, os.W_OK | os.X_OK) or not out.stat().st_mode & 0o222:
        raise InputError(f"{out}: the folder is read-only, and can't be replaced; choose another --out")
    if (out / DECISIONS).is_file():
        raise InputError(
            f"{out}: the folder holds the decisions of a review, which --overwrite would delete; use another "
            f"--out, or move {DECISIONS} away first (`graphclean review --merge` can bring it back)"
        )
    drafts = set(out.glob(DRAFTS))
    foreign = sorted(
        path.name for path in out.iterdir() if path.name not in KNOWN_FILES and path not in drafts
    )
    if foreign:
        raise InputError(
            f"{out}: the folder holds {foreign[0]}, which is no part of a run and which --overwrite would "
            "delete; move it away, or use another --out"
        )


def _is_run(out: Path) -> bool:
    """Whether a folder holds a run, or what is left of one; a config.json may be anyone's."""
    if not (out / "config.json").is_file() or not (out / "env.json").is_file():
        return False
    try:
        return "graphclean" in read_json(out / "config.json")
    except InputError:
        return False


def refuse_own(target: Path, run: Path) -> None:
    """Refuse to replace what a run is made of by something made from it."""
    if target.name in OWN_FILES and os.path.realpath(target.parent) == os.path.realpath(run):
        raise InputError(f"{target}: is a file of the run itself; choose another --out")


def in_use(run: Path, option: str = "--out") -> AbstractContextManager[None]:
    """While training writes into a folder, which `option` named, no other process may."""
    busy = f"{run}: another process is training in it; wait until it ends, or choose another {option}"
    return lock_folder(run, busy)


def is_unfinished(run: Path) -> bool:
    """Whether a run folder lacks its results: only training leaves such."""
    return read_config(run).get("kind") == "train" and not has_file(run / SUMMARY)


def require_finished(run: Path) -> None:
    """Refuse a training run that has no results yet."""
    if is_unfinished(run):
        raise InputError(f"{run}: its training has not finished; go on with `graphclean train … --resume`")


@contextmanager
def new_run(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into that becomes `out` only when the block ends well."""
    check_target(out, overwrite=overwrite)
    out = Path(os.path.realpath(out))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        # Hidden and beside the target, so that the final rename stays on one file system.
        draft = out.parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
        draft.mkdir()
    except OSError as error:
        raise InputError(f"{out}: can't be written: {error.strerror}") from error
    try:
        yield draft
        check_target(out, overwrite=overwrite)  # another process may have been quicker
        _swap(draft, out)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{out}: can't be written: {getattr(error, 'strerror', None) or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _swap(draft: Path, out: Path) -> None:
    """Put `draft` in the place of `out`; an older run is moved aside first and removed last.

    The folder one is in stays, and only what it holds is changed: a shell in it, and relative paths, would
    be left in one that is gone.
    """
    old = out.parent / f"{draft.name}.old"
    if not out.exists():
        moves = [(draft, out)]
    elif _is_here(out):
        old.mkdir()
        moves = [(path, old / path.name) for path in out.iterdir()]
        moves += [(path, out / path.name) for path in draft.iterdir()]
    else:
        moves = [(out, old), (draft, out)]
    try:
        for before, after in moves:
            os.rename(before, after)
    except BaseException:
        # Where a file is tells whether it was moved: a signal comes between a move and any note of it.
        for before, after in reversed(moves):
            if not os.path.lexists(before):
                os.rename(after, before)
        with suppress(OSError):  # never made, or not empty
            old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _is_here(folder: Path) -> bool:
    try:
        return folder.samefile(os.curdir)
    except FileNotFoundError:
        return False


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of `path` only when the block ends well."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: can't be written: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


def clear_drafts(folder: Path) -> None:
    """Remove what `replaced` leaves where a process is killed in the midst of it."""
    for draft in folder.glob(DRAFTS):
        with suppress(OSError):
            draft.unlink()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Plain JSON: NaN becomes null, keys stay in order."""
    with replaced(path) as draft:
        draft.write_text(json.dumps(plain(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON value a line; on the disk before this returns."""
    with replaced(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, shape: Any = Table) -> list[dict[str, Any]]:
    """What `write_lines` wrote; nothing where there is no file."""
    if not has_file(path):
        return []
    try:
        lines = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return [check_shape(line, shape, path) for line in lines]


def plain(value: Any) -> Any:
    """As JSON has it: text keys, lists, and None for NaN and infinity."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_table(table: pd.DataFrame, stem: Path) -> None:
    """The same table as .parquet and as .csv."""
    table = table.copy()
    table.attrs = {}
    with replaced(stem.with_suffix(".parquet")) as draft:
        table.to_parquet(draft, index=False)
    with replaced(stem.with_suffix(".csv")) as draft:
        safe_csv(table).to_csv(draft, index=False)


def safe_csv(table: pd.DataFrame) -> pd.DataFrame:
    """Lists as JSON, and text that a spreadsheet would run as a formula made inert with a leading quote."""
    safe = table.copy()
    for name in safe.columns:
        kind = safe[name].dtype
        if pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
            continue
        safe[name] = [_safe_cell(value) for value in safe[name]]
    return safe


def _safe_cell(value: Any) -> Any:
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value


def write_config(
    folder: Path, kind: str, source: dict[str, Any], settings: dict[str, Any], preset: str | None = None
) -> None:
    """What was asked for, and by which version."""
    head: dict[str, Any] = {"graphclean": __version__, "format": FORMAT, "kind": kind}
    if preset is not None:
        head["preset"] = preset
    write_json(folder / "config.json", {**head, "source": source, "settings": settings})


def write_env(folder: Path, fingerprint: str, device: str = "cpu") -> None:
    """What it ran on: versions, threads, commit, and a fingerprint of the data."""
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
            "threads": torch.get_num_threads(),
            "data_sha256": fingerprint,
        },
    )


def package_version(name: str) -> str | None:
    """The version of an installed package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def find_commit() -> str | None:
    """The commit that GRAPHCLEAN_COMMIT names (for a copy without its history), or that of this checkout."""
    if "GRAPHCLEAN_COMMIT" in os.environ:
        return os.environ["GRAPHCLEAN_COMMIT"]
    here = Path(__file__).resolve().parent
    if not (here.parents[1] / ".git").exists():
        return None
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
    """Tensors as safetensors, with JSON values beside them."""
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replaced(path) as draft:
        draft.touch()
        mode = draft.stat().st_mode  # save_file would leave the file to its owner alone
        # Under one key: the format keeps several in no fixed order, and two runs should agree to the byte.
        save_file(contiguous, draft, metadata={"graphclean": json.dumps(metadata)})
        draft.chmod(mode)


def read_tensors(
    path: Path, shape: Any = Table, *, values: bool = True
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_tensors` wrote; without `values`, only what stands beside the tensors."""
    _require(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in (file.keys() if values else ())}
            metadata = parse_json((file.metadata() or {}).get("graphclean", "{}"))
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: damaged or not a model file: {error}") from error
    return tensors, check_shape(metadata, shape, path)


def read_config(run: Path) -> dict[str, Any]:
    """The config of a run folder; refuses what is not one, or what a newer version wrote."""
    if not run.is_dir():
        raise InputError(f"{run}: no such run folder")
    if not has_file(run / "config.json"):
        raise InputError(f"{run}: not a run folder, as there is no config.json in it")
    config = read_json(run / "config.json")
    made_with, number = config.get("graphclean"), config.get("format")
    if isinstance(number, int) and number > FORMAT:  # before all else: a newer version may write otherwise
        raise InputError(
            f"{run}: written by graphclean {made_with}, which is newer; upgrade graphclean to read it"
        )
    check_shape(config, ConfigFile, run / "config.json")
    return config


def recorded_data(run: Path, source: dict[str, Any]) -> Path:
    """Where the data of a run lay, by the `source` of its config; the demo brings its own in its folder."""
    path = Path(str(source.get("data")))
    return run / path if source.get("kind") == "images" and (run / path).is_file() else path


def read_env(run: Path) -> dict[str, Any]:
    """What a run was made on, and the fingerprint of its data."""
    return read_json(run / "env.json")


def read_summary(run: Path) -> dict[str, Any]:
    """What a run found, in numbers."""
    return read_json(run / SUMMARY, SummaryFile)


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The epochs of a training run; none of another."""
    return read_lines(run / METRICS, Epoch)


def read_scores(run: Path) -> dict[str, Any] | None:
    """How a run compares with the truth, where that is known."""
    return read_json(run / SCORES, ScoresFile) if has_file(run / SCORES) else None


def read_verdicts(run: Path) -> pd.DataFrame:
    """The verdicts of a run, one row a sample, in the order of its data."""
    path = run / VERDICTS
    _require(path)
    try:
        columns = pq.read_table(path)
        table = columns.to_pandas()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise InputError(f"{path}: damaged: {str(error).splitlines()[0]}") from error
    missing = sorted(VERDICT_COLUMNS - set(table.columns))
    if missing:
        raise InputError(f"{path}: damaged: no column {missing[0]}")
    _check_columns(path, {field.name: field.type for field in columns.schema})
    unknown = sorted(set(table["verdict"].map(str)) - set(VERDICT_NAMES))
    if unknown:
        raise InputError(f"{path}: damaged: there is no verdict {unknown[0]}")
    try:
        # Lists come back as arrays.
        near = [list(near) for near in table["neighbours"]]
        scores = {name: table[name].astype("float64") for name in ("label_quality", "ood_score")}
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return pd.DataFrame(table.assign(neighbours=near, **scores))


def _check_columns(path: Path, kinds: dict[str, Any]) -> None:
    """Refuse labels that are lists or of two kinds, and what is not true or false of `selected`."""
    labels = {kinds[name] for name in ("given_label", "proposed_label")} - {pa.null()}
    text = [pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in labels]
    if not all(text) and not all(pa.types.is_integer(kind) for kind in labels):
        raise InputError(f"{path}: damaged: the labels are neither all text nor all whole numbers")
    if not pa.types.is_boolean(kinds["selected"]):
        raise InputError(f"{path}: damaged: selected is not true or false")


def _require(path: Path) -> None:
    if not has_file(path):
        raise InputError(f"{path.parent}: no {path.name} in it: files are missing")


def read_json(path: Path, shape: Any = Table) -> dict[str, Any]:
    """A JSON object from a file of a run folder."""
    _require(path)
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return dict(check_shape(value, shape, path))
