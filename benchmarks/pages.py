"""The report, the review and predictions on very many samples: seconds, size and memory.

python benchmarks/pages.py --rows 1000000

The runs are synthetic and written by the package's own writers: embeddings without photos, a text shown
with every sample, duplicates, and 10 or 1,000 classes. Each job runs in a process of its own.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from common import load, save, timed
from graphclean._files import write_json
from graphclean.bench.machine import forget_host_peak, host_peak_gib
from graphclean.cleaning.inputs import Labels
from graphclean.cleaning.verdicts import VerdictArrays, verdict_table
from graphclean.data.verdict import Verdict
from graphclean.ood import Threshold
from graphclean.runs.cells import write_cells
from graphclean.runs.folder import write_config, write_env, write_table
from graphclean.runs.projection import gather_points, write_points

CLASSES = (10, 1000)
WIDTH = 64
"""Columns of the embeddings."""
SHARES = {
    Verdict.KEEP: 0.78,
    Verdict.RELABEL: 0.12,
    Verdict.OOD: 0.06,
    Verdict.UNCERTAIN: 0.03,
    Verdict.UNLABELED: 0.01,
}
DUPLICATES = 0.02
"""Fraction of the samples that are in a group of two or three."""
WORDS = "a photo of the old red small car house dog on near street field with more people".split()  # noqa: SIM905
TRAINED_ON = 5000
"""Samples of the run that predicts."""
PATIENCE = 120
"""Seconds after which something did not happen."""
QUEUE = 5
"""Requests of each kind to the review server, of which the median counts."""


def make_run(run: Path, rows: int, classes: int) -> None:
    """A finished run of `clean` with verdicts as they come out of it."""
    rng = np.random.default_rng(0)
    run.mkdir(parents=True)
    names = [f"class {code:04d}" for code in range(classes)]
    verdict = rng.choice(np.array(list(SHARES)), rows, p=list(SHARES.values()))
    given = rng.integers(0, classes, rows)
    proposed = np.where(verdict == Verdict.RELABEL, (given + rng.integers(1, 4, rows)) % classes, given)
    given = np.where(verdict == Verdict.UNLABELED, -1, given)
    ood = np.where(verdict == Verdict.OOD, 1 - rng.beta(1, 8, rows), rng.beta(1, 12, rows))
    quality = np.where(
        np.isin(verdict, (Verdict.KEEP, Verdict.UNCERTAIN)), 1 - rng.beta(1, 6, rows), rng.beta(1, 6, rows)
    )
    confidence = np.where(
        verdict == Verdict.UNCERTAIN, rng.uniform(0.3, 0.6, rows), 1 - rng.beta(1, 9, rows) / 2
    )
    decision = VerdictArrays(
        verdict.astype("U10"), proposed, np.where(given < 0, np.nan, quality), ood, confidence
    )
    ids = [f"sample-{row:07d}" for row in range(rows)]
    group = np.zeros(rows, dtype=np.int64)
    members = rng.permutation(rows)[: int(DUPLICATES * rows)]
    group[members] = np.arange(len(members)) // 2 + 1
    groups = pd.Series(group, dtype="Int64").mask(group == 0)
    neighbors = (np.arange(rows)[:, None] + rng.integers(1, rows, (rows, 5))) % rows
    selected = verdict == Verdict.KEEP
    table = verdict_table(decision, Labels(given, names), ids, selected, neighbors, groups)
    write_table(table, run / "verdicts")
    counts = {str(name): int((verdict == name).sum()) for name in Verdict}
    threshold = {
        "name": "learned from OOD samples",
        **asdict(Threshold(0.5, 0.05, 0.9, 0.06, rows, "auto", 0.05)),
    }
    summary = {
        "samples": rows,
        "classes": names,
        "verdicts": counts,
        "k": 10,
        "k_tried": {"10": -1.0},
        "noise_rate": 0.13,
        "ood_rate": 0.06,
        "expected_right": {"keep": 0.95},
        "selected": int(selected.sum()),
        "detector": threshold,
    }
    write_json(run / "summary.json", summary)
    write_config(
        run,
        "clean",
        {"data": "nowhere.npz", "labels": None, "kind": "features"},
        {"cleaning": {"certainty": 0.6}},
    )
    write_env(run, "0")
    z = torch.from_numpy(
        rng.standard_normal((rows, WIDTH), dtype=np.float32)
        + 3 * np.eye(classes, WIDTH, dtype=np.float32)[proposed]
    )
    write_points(gather_points(z, torch.from_numpy(ood)), run)
    picked = rng.integers(0, len(WORDS), (rows, 12)).tolist()
    write_cells({"text": [" ".join(WORDS[word] for word in line) for line in picked]}, run)


def traced(module: Any, names: list[str], spent: dict[str, float]) -> None:
    """Let the functions of a module record the seconds that they take."""

    def trace(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Any, **options: Any) -> Any:
            found, taken = timed(lambda: work(*values, **options))
            spent[name] = round(spent.get(name, 0) + taken, 2)
            return found

        return run

    for name in names:
        if hasattr(module, name):
            setattr(module, name, trace(name, getattr(module, name)))


def measure_report(run: Path) -> dict[str, Any]:
    """Write the report, without a cached map."""
    from graphclean.report import build

    (run / "kept.safetensors").unlink(missing_ok=True)
    spent: dict[str, float] = {}
    reading = ["read_points", "read_verdicts", "read_samples", "read_decided", "choose_cells", "fit_cells"]
    stages = [*reading, "draw_map", "_choose_shown", "_gather_facts", "render_page"]
    traced(build, stages, spent)
    before = start_memory()
    start = time.process_time()
    done, taken = timed(lambda: build.write_report(run))
    cpu = time.process_time() - start
    return {
        "seconds": taken,
        "cpu_seconds": cpu,
        "mb": done.size / 1e6,
        "gib": memory_since(before),
        "stages": spent,
        "notes": done.notes,
    }


def start_memory() -> float:
    """The peak memory so far becomes that of now."""
    forget_host_peak()
    return host_peak_gib() or 0.0


def memory_since(before: float) -> float:
    """GiB by which the peak has grown."""
    return (host_peak_gib() or 0.0) - before


def measure_open(page: str) -> dict[str, Any]:
    """Open a page in Chromium: seconds until the first rows of the table are there, and until a filter and a
    search have answered. On a review page, also those of single decisions.
    """
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    times: list[dict[str, float]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(3):
            tab = browser.new_page(viewport={"width": 1280, "height": 900})
            tab.set_default_timeout(120_000)
            start = time.perf_counter()
            tab.goto(page, wait_until="commit")
            tab.wait_for_selector("#table-body .rows .line")
            found = {"shown": time.perf_counter() - start}
            chip = '#table-body button[data-chip="relabel"]'
            tab.locator(chip).click()
            tab.wait_for_selector(f'{chip}[aria-pressed="true"]')
            found["usable"] = time.perf_counter() - start
            said = tab.locator("#table-body [role=status]")
            before = said.text_content()

            def search(tab: Any = tab) -> None:
                tab.locator('#table-body input[type="search"]').fill("street street")

            found["search"] = until(search, lambda said=said, before=before: said.text_content() != before)  # type: ignore[misc]
            if tab.locator(".review-bar").count():
                found |= measure_clicks(tab)
            times.append(found)
            tab.close()
        browser.close()
    return {name: float(np.median([found[name] for found in times])) for name in times[0]}


def until(act: Callable[[], Any], condition: Callable[[], bool]) -> float:
    """Seconds from an action until a condition holds; the page's policy lets no other script wait for it."""
    start = time.perf_counter()
    act()
    while not condition():
        if time.perf_counter() - start > PATIENCE:
            raise TimeoutError
        time.sleep(0.01)
    return time.perf_counter() - start


def measure_clicks(tab: Any) -> dict[str, float]:
    """Seconds to accept a verdict by key, go to the next sample, undo, and accept all suspected mislabels."""
    tab.wait_for_selector("#mislabels .card .open")
    done, undone = tab.locator("#mislabels .card.done"), tab.locator("#mislabels .card:not(.done)")
    tab.locator("#mislabels .card .open").first.focus()
    keys = tab.keyboard
    found = {"accept": until(lambda: keys.press("a"), lambda: done.count() == 1)}
    waiting = tab.locator("#mislabels .card:not(.done) .open:focus")
    found["next"] = until(lambda: keys.press("n"), lambda: waiting.count() == 1)
    found["undo"] = until(lambda: keys.press("u"), lambda: done.count() == 0)
    button = tab.locator("#mislabels button", has_text="Accept all")
    found["accept_all"] = until(button.click, lambda: undone.count() == 0)
    found["undo_all"] = until(lambda: keys.press("u"), lambda: done.count() == 0)
    return found


def measure_review(run: Path) -> dict[str, Any]:
    """Start the review: seconds until its page is there, and what single requests take."""
    from graphclean.report.review import answering, open_review, prepare
    from graphclean.runs.decisions import DecisionLog

    before = start_memory()
    log, opening = timed(lambda: DecisionLog(run))
    with log, open_review(log) as server, answering(server):
        _, preparing = timed(lambda: prepare(server, run))
        base, asked = f"http://127.0.0.1:{server.server_address[1]}", {"X-Token": server.token}
        asked |= {"Origin": base, "Content-Type": "application/json"}

        def ask(path: str, body: dict[str, Any] | None = None) -> bytes:
            content = json.dumps(body).encode() if body is not None else None
            request = urllib.request.Request(base + path, content, asked)
            with urllib.request.urlopen(request) as answer:
                return bytes(answer.read())

        kinds = {
            "page": lambda: ask(f"/?token={server.token}"),
            "decisions": lambda: ask("/decisions"),
            "accept": lambda: ask("/decide", {"rows": [7], "kind": "accept"}),
            "undo": lambda: ask("/decide", {"rows": [7], "kind": "undo"}),
            "label": lambda: ask("/decide", {"rows": [7], "kind": "label", "label": "class 0003"}),
        }
        found = {name: float(np.median([timed(act)[1] for _ in range(QUEUE)])) for name, act in kinds.items()}
        many = list(range(min(50_000, len(log.samples.ids))))
        found["accept_50000"] = timed(lambda: ask("/decide", {"rows": many, "kind": "accept"}))[1]
        found["undo_50000"] = timed(lambda: ask("/decide", {"rows": many, "kind": "undo"}))[1]
        gib = memory_since(before)
        clicks = measure_open(server.address)
    log.path.unlink(missing_ok=True)
    return {"opening": opening, "preparing": preparing, "gib": gib, "requests": found, "browser": clicks}


def measure_apply(run: Path) -> dict[str, Any]:
    """Apply the verdicts as a manifest."""
    from graphclean.runs.apply import apply

    before, start = start_memory(), time.process_time()
    done, taken = timed(lambda: apply(run, out=run / "cleaned.parquet", min_confidence=0.9, overwrite=True))
    cpu = time.process_time() - start
    return {"seconds": taken, "cpu_seconds": cpu, "gib": memory_since(before), "counts": done.counts}


def measure_predict(folder: Path, name: str, out: str) -> dict[str, Any]:
    """Predict for a file."""
    from graphclean.runs.predict import predict

    load_once(folder)
    before, start = start_memory(), time.process_time()
    _, taken = timed(
        lambda: predict(folder / "trained", folder / name, out=folder / out, overwrite=True, device="cpu")
    )
    found = {"seconds": taken, "cpu_seconds": time.process_time() - start, "gib": memory_since(before)}
    return found | {"mb_in": (folder / name).stat().st_size / 1e6}


def load_once(folder: Path) -> None:
    """Load what every process loads, so that it does not count."""
    from graphclean.runs.predict import predict

    predict(folder / "trained", folder / "few.npy", out=folder / "few.csv", overwrite=True, device="cpu")


def make_inputs(folder: Path, rows: int) -> None:
    """A run to predict with, and new embeddings in every format."""
    from graphclean.config import Config
    from graphclean.runs.clean import clean

    rng = np.random.default_rng(1)
    centers = rng.standard_normal((10, WIDTH), dtype=np.float32)
    truth = rng.integers(0, 10, TRAINED_ON)
    given = np.where(rng.random(TRAINED_ON) < 0.2, rng.integers(0, 10, TRAINED_ON), truth)
    np.savez(
        folder / "training.npz",
        z=centers[truth] + 0.7 * rng.standard_normal((TRAINED_ON, WIDTH), dtype=np.float32),
        y=given,
    )
    clean(folder / "training.npz", folder / "trained", Config(), overwrite=True)
    z = centers[rng.integers(0, 10, rows)] + np.float32(0.7) * rng.standard_normal(
        (rows, WIDTH), dtype=np.float32
    )
    np.save(folder / "few.npy", z[:100])
    np.save(folder / "new.npy", z)
    np.savez(folder / "new.npz", z=z)
    np.savez_compressed(folder / "packed.npz", z=z)
    columns = {
        "id": [f"new-{row:07d}" for row in range(rows)],
        **{f"x{place}": z[:, place] for place in range(WIDTH)},
    }
    pd.DataFrame(columns).to_parquet(folder / "new.parquet", index=False, row_group_size=100_000)


def alone(job: str, *values: str) -> Any:
    """A job of this script in a process of its own; returns what it prints as JSON."""
    done = subprocess.run(
        [sys.executable, __file__, "--job", job, *values], check=True, capture_output=True, text=True
    )
    sys.stderr.write(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


JOBS: dict[str, Callable[..., Any]] = {
    "make": lambda run, rows, classes: make_run(Path(run), int(rows), int(classes)),
    "inputs": lambda folder, rows: make_inputs(Path(folder), int(rows)),
    "report": lambda run: measure_report(Path(run)),
    "open": lambda page: measure_open(Path(page).absolute().as_uri()),
    "review": lambda run: measure_review(Path(run)),
    "apply": lambda run: measure_apply(Path(run)),
    "predict": lambda folder, name, out: measure_predict(Path(folder), name, out),
}


PREDICTIONS = {
    "new.npy": "p.parquet",
    "new.npz": "p.parquet",
    "packed.npz": "p.parquet",
    "new.parquet": "p.csv",
}
"""New data, and what is written of it."""


def main() -> None:
    """Measure everything, and record it; what was measured is kept as soon as it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("build/pages"))
    parser.add_argument("--only", nargs="+", choices=["runs", "predictions"], default=["runs", "predictions"])
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.job:
        print(json.dumps(JOBS[args.job[0]](*args.job[1:])))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    earlier = load("pages")
    result = {name: earlier[name] for name in ("runs", "predictions")} if earlier is not None else {}
    result |= {"rows": args.rows, "columns": WIDTH, "trained_on": TRAINED_ON}

    def record(name: str, found: dict[str, Any]) -> None:
        result[name] = [*result.get(name, []), found]
        save("pages", {"runs": [], "predictions": [], **result})
        print(json.dumps(found, indent=1))

    for name in args.only:
        result[name] = []
    for classes in CLASSES if "runs" in args.only else ():
        run = args.folder / f"run-{args.rows}-{classes}"
        if not run.exists():
            alone("make", str(run), str(args.rows), str(classes))
        report, page = alone("report", str(run)), str(run / "report.html")
        found = {"report": report, "open": alone("open", page), "apply": alone("apply", str(run))}
        record("runs", {"classes": classes, **found, "review": alone("review", str(run))})
    if "predictions" in args.only:
        if not (args.folder / "new.parquet").exists():
            alone("inputs", str(args.folder), str(args.rows))
        for name, out in PREDICTIONS.items():
            record("predictions", {"data": name, "out": out, **alone("predict", str(args.folder), name, out)})


if __name__ == "__main__":
    main()
