"""A seeded fuzzer for every reader: expects success, or a one-line error and exit code 2."""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from graphclean.cli.app import main
from graphclean.config import Config, apply_settings
from graphclean.data.arrays import read_images
from graphclean.data.images import UnreadableImage, open_image
from graphclean.data.tables import Names
from graphclean.errors import InputError
from graphclean.methods import complete_settings
from graphclean.runs.photos import Cropping, find_photos, read_photos
from graphclean.runs.predict import load_model
from graphclean.training.checkpoint import load_checkpoint

from .children import Ended
from .failures import Bench
from .mutations import HOSTILE, mutate
from .tally import Clock, Tally, timed

LONGEST = 60
"""Seconds after which a reader counts as hung."""
LEAST = 20
"""Minimum number of inputs per process, however little time is left."""
DECIDED = "cleaned/decisions.jsonl"
RECORDED = Path(__file__).parents[2] / "results"
K = ("--set", "cleaning.k=5")
TRY_CLEAN = ("clean", "{}", "--out", "o", *K, "--quiet", "--overwrite")


@dataclass(frozen=True)
class Target:
    """A file to corrupt, and its reader."""

    file: str
    words: tuple[str, ...] | None = None
    """The command that reads it."""
    read: Callable[[], Any] | None = None
    """Or a function, which may only raise `InputError`."""


def _photos_of(place: str) -> Callable[[], Any]:
    return lambda: read_photos(find_photos(Path(place), Names()), Cropping(8), Path(place))


def _open() -> Any:
    with contextlib.suppress(UnreadableImage):
        open_image(Path("one/a.png"))


def _targets() -> list[Target]:
    data = [Target(name, tuple(word.format(name) for word in TRY_CLEAN)) for name in
            ("z.npz", "z.npy.npz", "t.csv", "t.tsv", "t.parquet")]  # fmt: skip
    data += [
        Target("y.txt", ("clean", "z.npy", "--labels", "y.txt", *TRY_CLEAN[2:])),
        Target("z.npy", ("clean", "z.npy", "--labels", "y.txt", *TRY_CLEAN[2:])),
        Target("t.csv", ("predict", "cleaned", "t.csv", "--out", "p.csv", "--quiet", "--overwrite")),
        Target("digits.npz", read=lambda: read_images(Path("digits.npz"))),
        Target("one/a.png", read=_open),
        *(
            Target(f"one/b.{suffix}", read=lambda s=suffix: _open_as(s))
            for suffix in ("jpg", "gif", "webp", "tif", "bmp")
        ),
        Target("photos/cat/1.png", read=_photos_of("photos")),
        Target("photos.csv", read=_photos_of("photos.csv")),
        Target("photos.parquet", read=_photos_of("photos.parquet")),
    ]
    run = (
        "config.json",
        "env.json",
        "summary.json",
        "verdicts.parquet",
        "points.safetensors",
        "kept.safetensors",
    )
    data += [Target(f"cleaned/{name}", ("report", "cleaned", "--quiet")) for name in run]
    data += [
        *(
            Target(f"cleaned/{name}", ("apply", "cleaned", "--quiet", "--overwrite"))
            for name in ("config.json", "verdicts.parquet")
        ),
        *(
            Target(
                f"cleaned/{name}", ("predict", "cleaned", "z.npz", "--out", "p.csv", "--quiet", "--overwrite")
            )
            for name in ("config.json", "model.safetensors", "training.safetensors", "summary.json")
        ),
        *(
            Target(f"{run}/{name}", ("apply", run, "--format", form, "--quiet", "--overwrite"))
            for run, form in (
                ("judged", "label-studio"),
                ("judged", "fiftyone"),
                ("cleaned", "cleanlab"),
                ("judged", "hf"),
            )
            for name in ("config.json", "verdicts.parquet", "summary.json")
        ),
        *(
            Target(f"cleaned/{name}", ("apply", "cleaned", "--drop-duplicates", "--quiet", "--overwrite"))
            for name in ("verdicts.parquet", "config.json")
        ),
        Target(DECIDED, ("clean", "cleaned", "--out", "o", "--quiet", "--overwrite")),
        Target(DECIDED, ("apply", "cleaned", "--format", "hf", "--quiet", "--overwrite")),
        Target(DECIDED, ("report", "cleaned", "--quiet")),
        Target("recorded.json", ("bench", "rerun", "recorded.json", "--data-root", "none", "--quiet")),
        Target("judged/config.json", ("apply", "judged", "--copy", "--out", "new", "--quiet", "--dry-run")),
        Target(
            "older-copy/.graphclean.json",
            ("apply", "judged", "--link", "--out", "older-copy", "--quiet", "--overwrite"),
        ),
        Target("theirs.jsonl", ("review", "cleaned", "--merge", "theirs.jsonl", "--quiet")),
        Target("cleaned/config.json", ("clean", "cleaned", "--out", "o", "--quiet", "--overwrite")),
        Target("trained/model.safetensors", read=lambda: load_model(Path("trained"))),
        Target("trained/config.json", read=lambda: load_model(Path("trained"))),
        Target("trained/prototypes.safetensors", read=lambda: load_model(Path("trained"))),
        Target("trained/metrics.jsonl", ("report", "trained", "--quiet")),
    ]
    return data


def _open_as(suffix: str) -> None:
    with contextlib.suppress(UnreadableImage):
        open_image(Path(f"one/b.{suffix}"))


def _checkpoints() -> list[Target]:
    return [
        Target(str(path), read=lambda: load_checkpoint(Path("trained/checkpoint"), {}))
        for path in Path("trained/checkpoint").glob("*/state.safetensors")
    ]


def lay_out_more() -> None:
    """Add to a copy of the material: the same data in every format, pictures, and a trained run."""
    import pandas as pd
    from PIL import Image

    from .jobs import TRAIN

    found = np.load("z.npz")
    np.save("z.npy", found["z"])
    np.savez_compressed("z.npy.npz", a=found["z"].astype("f8"), labels=found["y"])
    Path("y.txt").write_text("\n".join(found["y"]) + "\n")
    table = pd.DataFrame(found["z"], columns=[f"f{n}" for n in range(6)]).assign(
        label=found["y"], id=range(72)
    )
    table.to_csv("t.csv", index=False)
    table.to_csv("t.tsv", index=False, sep="\t")
    table.to_parquet("t.parquet", index=False)
    paths = sorted(str(path) for path in Path("photos").rglob("*.png"))
    labels = [Path(path).parts[1] for path in paths]
    pd.DataFrame({"path": paths, "label": labels}).to_csv("photos.csv", index=False)
    cells = [{"bytes": Path(path).read_bytes(), "path": Path(path).name} for path in paths]
    pd.DataFrame({"image": cells, "label": labels}).to_parquet("photos.parquet", index=False)
    shutil.copy(sorted(RECORDED.glob("*/*/*.json"))[0], "recorded.json")
    Path("one").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (20, 24, 4), dtype=np.uint8)
    Image.fromarray(pixels, "RGBA").save("one/a.png")
    for suffix in ("jpg", "gif", "webp", "tif", "bmp"):
        Image.fromarray(pixels[..., :3]).save(f"one/b.{suffix}")
    for words in (
        ("train", "digits.npz", *TRAIN, "--out", "trained", "--quiet"),
        ("report", "cleaned", "--quiet"),
    ):
        with contextlib.suppress(SystemExit):
            main(list(words))


def fuzz(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Try inputs until time runs out, in child processes; after one is killed, the next continues."""
    tally = Tally("broken inputs")
    folder = bench.fresh()
    seconds: list[float] = []
    sizes: list[float] = []
    kinds: dict[str, int] = {}
    number = bench.part
    with timed(tally):
        first = True
        while not tally.over(clock):
            begun = number
            for fact in _from_child(bench, folder, seed, number, clock, first):
                if fact["wrong"] is None or fact.get("ended"):
                    seconds.append(fact["seconds"])
                    sizes.append(fact["mib"])
                kinds[fact["kind"]] = kinds.get(fact["kind"], 0) + 1
                tally.count(f"seed {seed}, input {fact['number']}, {fact['kind']}", fact["wrong"])
                number = fact["number"] + bench.parts
            first = False
            if number == begun:  # the child reported nothing
                break
        bench.clear(folder)
    tally.facts["by reader"] = dict(sorted(kinds.items()))
    quarter = len(seconds) // 4
    if quarter:
        tally.facts |= {
            "median seconds, first quarter": statistics.median(seconds[:quarter]),
            "median seconds, last quarter": statistics.median(seconds[-quarter:]),
            "memory in MiB after the first quarter": sizes[quarter],
            "memory in MiB at the end": sizes[-1],
        }
    return tally


def _from_child(
    bench: Bench, folder: Path, seed: int, number: int, clock: Clock, first: bool
) -> Iterator[dict[str, Any]]:
    """The reports of a child on its inputs; if it died during one, that one is reported here."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        try:
            _work(folder, seed, range(number, sys.maxsize, bench.parts), clock, first, writing)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    open_case: dict[str, Any] | None = None
    with os.fdopen(reading) as pipe:
        for line in pipe:
            fact = json.loads(line)
            if "ended" in fact:
                open_case = None
                yield fact
            else:
                open_case = fact
    _, status = os.waitpid(process, 0)
    if open_case is not None:
        code = os.waitstatus_to_exitcode(status)
        yield {**open_case, "wrong": "hang" if code == -signal.SIGALRM else f"the process ended with {code}"}


def _work(folder: Path, seed: int, numbers: range, clock: Clock, first: bool, writing: int) -> None:
    os.chdir(folder)
    if first:
        lay_out_more()
    shutil.copy("theirs.jsonl", DECIDED)  # gone after the inputs of an earlier child
    targets = [*_targets(), *_checkpoints()]
    parts = [part.name for part in fields(Config()) if part.name != "method"]
    settings = [f"{part}.{value.name}" for part in parts for value in fields(getattr(Config(), part))]
    originals = {
        target.file: Path(target.file).read_bytes() for target in targets if Path(target.file).exists()
    }
    targets = [target for target in targets if target.file in originals]
    with os.fdopen(writing, "w", buffering=1) as tell:
        for tried, number in enumerate(numbers):
            if clock.left < 0 and tried >= LEAST:
                break
            by = random.Random(f"{seed} {number}")
            setting = by.random() < 0.15
            target = by.choice(targets)
            kind = "--set" if setting else f"{target.file}, {_named(target)}"
            tell.write(json.dumps({"number": number, "kind": kind, "wrong": None}) + "\n")
            signal.alarm(LONGEST)
            begun = time.perf_counter()
            if setting:
                wrong = _try(lambda by=by: _set(by, settings))
            else:
                path = Path(target.file)
                path.write_bytes(mutate(originals[target.file], target.file, by))
                wrong = _try(target.read) if target.read is not None else _command(target.words or ())
                for file, content in originals.items():
                    if file == target.file or not Path(file).exists():
                        Path(file).parent.mkdir(parents=True, exist_ok=True)
                        Path(file).write_bytes(content)
                Path(DECIDED).unlink(missing_ok=True)
            signal.alarm(0)
            spent = time.perf_counter() - begun
            fact = {
                "number": number,
                "kind": kind,
                "wrong": wrong,
                "seconds": spent,
                "mib": _resident(),
                "ended": True,
            }
            tell.write(json.dumps(fact) + "\n")


def _named(target: Target) -> str:
    """The command that reads a file, with the hand-over it is asked for."""
    words = target.words or ("read",)
    chosen = [words[place + 1] for place, word in enumerate(words) if word == "--format"]
    return " --format ".join((words[0], *chosen))


def _set(by: random.Random, settings: list[str]) -> None:
    name = by.choice(settings) if by.random() < 0.8 else by.choice(HOSTILE)
    value = by.choice((*HOSTILE, "1", "0.5", "auto", "2,3", "1e-9", str(by.randrange(-9, 99))))
    complete_settings(apply_settings(Config(), [f"{name}={value}"]))


def _try(read: Callable[[], Any]) -> str | None:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            read()
    except InputError as error:
        return None if "\n" not in str(error).strip() else f"more than a line: {error}"
    except Exception as error:
        return _describe(error)
    return None


def _describe(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    inner = [one for one in traceback.extract_tb(error.__traceback__) if "/graphclean/" in one.filename]
    place = inner[-1] if inner else frame
    return f"{type(error).__name__}: {str(error)[:200]} ({Path(place.filename).name}, {place.name})"


def _command(words: tuple[str, ...]) -> str | None:
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        os.environ["GRAPHCLEAN_DEBUG"] = "1"  # raise errors instead of reducing them to one line
        try:
            main(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        except Exception as error:
            return _describe(error)
    return Ended(code, out.getvalue(), err.getvalue(), 0.0).wrong


def _resident() -> float:
    """Current memory of this process in MiB; its peak if the system doesn't report that."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
            2**20 if sys.platform == "darwin" else 2**10
        )
