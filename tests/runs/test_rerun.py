"""`graphclean clean RUN` and `graphclean train RUN`: decisions are held, and what they changed is told."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from graphclean.runs.decisions import Decision, DecisionLog, read_checked, read_decided, settle_notes
from graphclean.runs.folder import read_verdicts
from graphclean.runs.rerun import compare
from tests.builders import Cli, Refuse
from tests.cleaning.test_pipeline import blobs
from tests.runs.tiny import TINY, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS = ("--preset", "embeddings", "--set", "training.epochs=2")


def save_table(folder: Path) -> np.ndarray:
    """`z.npz` with ids, noisy labels and OOD samples; returns the truth."""
    z, labels, truth = blobs([60] * 4, noise=0.3, ood=40)
    names = np.array(["ant", "bee", "cat", "dog"])
    columns = {f"f{column}": z[:, column] for column in range(z.shape[1])}
    table = pd.DataFrame({"id": [f"s{row}" for row in range(len(z))], "label": names[labels], **columns})
    table.to_csv(folder / "z.csv", index=False)
    return np.where(truth < 0, None, names[truth])


def decide(run: Path, truth: np.ndarray, rows: range) -> None:
    """As a reviewer would who knows."""
    with DecisionLog(run) as log:
        for row in rows:
            kind = "remove" if truth[row] is None else "label"
            log.add(log.samples.decide(row, kind, truth[row], "Ada"))


def assert_held(run: Path, truth: np.ndarray, rows: range) -> None:
    table = read_verdicts(run)
    for row in rows:
        given, verdict = table["given_label"][row], table["verdict"][row]
        assert verdict == ("ood" if truth[row] is None else "keep" if given == truth[row] else "relabel")
        assert truth[row] is None or table["proposed_label"][row] == truth[row]
        assert table["ood_score"][row] == (truth[row] is None)
        assert bool(table["selected"][row]) == (truth[row] is not None)


REVIEWED = range(0, 280, 2)


def test_clean_again_holds_what_was_decided(cli: Cli, tmp_path: Path) -> None:
    truth = save_table(tmp_path)
    assert cli("clean", "z.csv", "--set", "cleaning.certainty=0.7").code == 0
    first = tmp_path / "runs/z-clean"
    decide(first, truth, REVIEWED)
    with DecisionLog(first) as log:
        log.add(log.samples.decide(7, "note", note="ask Ben"))
    done = cli("clean", "runs/z-clean")
    assert done.code == 0, done.err
    second = tmp_path / "runs/z-clean-2"
    assert_held(second, truth, REVIEWED)
    # Read, cleaned and reviewed as before.
    configs = [json.loads((run / "config.json").read_text()) for run in (first, second)]
    assert configs[0] == configs[1]
    decided = read_decided(second)
    assert {row: decision.label for row, decision in decided.items()} == {row: truth[row] for row in REVIEWED}
    assert {row: note.note for row, note in settle_notes(read_checked(second)).items()} == {7: "ask Ben"}
    # What is said of the changes is what the tables say.
    before, after = read_verdicts(first), read_verdicts(second)
    record = json.loads((second / "summary.json").read_text())["rerun"]
    changed = pd.read_csv(second / "changes.csv")
    moved = (before.verdict != after.verdict) | (
        (after.verdict == "relabel") & (before.proposed_label != after.proposed_label)
    )
    assert changed["id"].tolist() == after["id"][moved].tolist()
    assert changed["decided"].tolist() == [row in REVIEWED for row in np.flatnonzero(moved)]
    assert record["run"] == "runs/z-clean"
    assert (record["decided"], record["changed"]) == (len(REVIEWED), int(moved.sum()))
    crossed = pd.crosstab(before.verdict, after.verdict)
    for count in record["verdicts"]:
        assert count["samples"] == crossed.loc[count["before"], count["after"]]
    assert sum(count["samples"] for count in record["verdicts"]) == len(after)
    assert f"Since runs/z-clean: {len(REVIEWED)} decisions held; " in done.out
    # The rest gains by it.
    rest = np.setdiff1d(np.arange(280), REVIEWED)
    wanted = [("ood" if truth[row] is None else truth[row]) for row in rest]
    right = [
        (np.where(table.verdict == "ood", "ood", table.proposed_label)[rest] == wanted).mean()
        for table in (before, after)
    ]
    assert right[1] >= right[0]


def test_each_round_goes_to_a_folder_of_its_own(cli: Cli, tmp_path: Path) -> None:
    truth = save_table(tmp_path)
    assert cli("clean", "z.csv").code == 0
    decide(tmp_path / "runs/z-clean", truth, range(5))
    assert cli("clean", "runs/z-clean").code == 0
    decide(tmp_path / "runs/z-clean-2", truth, range(5, 10))
    done = cli("clean", "runs/z-clean-2", "--json")
    found = json.loads(done.out)
    assert found["run"] == "runs/z-clean-3"
    assert found["rerun"]["decided"] == 10
    assert_held(tmp_path / "runs/z-clean-3", truth, range(10))


def test_ood_decisions_are_examples_for_the_detector(cli: Cli, tmp_path: Path) -> None:
    """Of a class that has no label: once some of it is decided to be OOD, new samples of it are rejected."""
    rng = np.random.default_rng(0)
    centers = 1.5 * rng.normal(size=(4, 16))
    truth = np.repeat(np.arange(4), 60)
    z = centers[truth] + 0.8 * rng.normal(size=(240, 16))
    labels = np.where(truth == 3, 2, truth)  # all of the last cloud under one known label
    np.savez(tmp_path / "z.npz", features=z, labels=labels)
    fresh = centers[3] + 0.8 * rng.normal(size=(50, 16))
    np.savez(tmp_path / "fresh.npz", features=fresh)
    assert cli("clean", "z.npz").code == 0
    decide(tmp_path / "runs/z-clean", np.where(truth == 3, None, truth.astype(str)), range(180, 225))
    assert cli("clean", "runs/z-clean").code == 0
    rejected = [
        json.loads(cli("predict", f"runs/{run}", "fresh.npz", "--json").out)["ood"]
        for run in ("z-clean", "z-clean-2")
    ]
    assert rejected[0] < 10
    assert rejected[1] > 40


@pytest.mark.parametrize("first", ["clean", "train"])
def test_train_holds_what_was_decided_in_either_run(cli: Cli, tmp_path: Path, first: str) -> None:
    truth = save_table(tmp_path)
    made = cli(first, "z.csv", *(HEADS if first == "train" else ()))
    assert made.code == 0, made.err
    run = tmp_path / f"runs/z-{first}"
    decide(run, truth, REVIEWED)
    done = cli("train", str(run), *HEADS)
    assert done.code == 0, done.err
    out = tmp_path / "runs" / ("z-train" if first == "clean" else "z-train-2")
    assert_held(out, truth, REVIEWED)
    assert len(read_decided(out)) == len(REVIEWED)
    assert f"{len(REVIEWED)} decisions held" in done.out
    assert json.loads((out / "config.json").read_text())["source"]["data"] == "z.csv"
    if first == "train":  # with the settings that it had
        settings = [json.loads((one / "config.json").read_text())["settings"] for one in (run, out)]
        assert settings[0] == settings[1]


def test_ngc_holds_decisions_while_it_trains(cli: Cli, tmp_path: Path) -> None:
    """Images: the graph of every epoch goes by what was decided, whatever the network says."""
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY).code == 0
    run = tmp_path / "runs/digits-train"
    table = read_verdicts(run)
    odd = np.array([str((int(label) + 1) % 8) for label in table["proposed_label"]], dtype=object)
    odd[:4] = None
    decide(run, odd, range(12))
    assert cli("train", "runs/digits-train").code == 0
    after = read_verdicts(tmp_path / "runs/digits-train-2")
    assert (after.verdict[:4] == "ood").all()
    assert after.proposed_label[4:12].astype(str).tolist() == odd[4:12].tolist()
    assert after.selected[:12].tolist() == [False] * 4 + [True] * 8


def test_an_interrupted_rerun_needs_the_same_decisions(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = save_table(tmp_path)
    assert cli("clean", "z.csv").code == 0
    decide(tmp_path / "runs/z-clean", truth, range(10))

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("graphclean.runs.train.finish", interrupt)
        assert cli("train", "runs/z-clean", *HEADS).code == 130
    other = cli("train", "z.csv", "--out", "runs/z-train", "--resume")
    assert other.code == 2
    assert "what was decided on them are not those that the run was started with" in other.err
    done = cli("train", "runs/z-clean", "--resume")
    assert done.code == 0, done.err
    assert_held(tmp_path / "runs/z-train", truth, range(10))


def test_decisions_follow_their_photos(cli: Cli, tmp_path: Path) -> None:
    """Photos came and went, one can't be read: decisions are on the same photos as before."""
    rng = np.random.default_rng(0)
    for row in range(60):
        color = (200, 30, 30) if row % 2 else (30, 30, 200)
        pixels = np.clip(np.array(color) + rng.normal(0, 25, (8, 8, 3)), 0, 255).astype(np.uint8)
        path = tmp_path / "photos" / ("red" if row % 2 else "blue") / f"{row:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    (tmp_path / "photos/blue/04.png").write_bytes(b"no photo")
    assert cli("clean", "photos", "--set", "cleaning.k=5").code == 0
    run = tmp_path / "runs/photos-clean"
    ids = read_verdicts(run)["id"].tolist()
    with DecisionLog(run) as log:
        for name, label in (("blue/10.png", "red"), ("red/11.png", None), ("blue/12.png", "blue")):
            kind = "label" if label else "remove"
            log.add(log.samples.decide(ids.index(name), kind, label))
    (tmp_path / "photos/blue/00.png").unlink()
    (tmp_path / "photos/blue/12.png").unlink()
    shutil.copy(tmp_path / "photos/blue/14.png", tmp_path / "photos/blue/01.png")
    done = cli("clean", "runs/photos-clean")
    assert done.code == 0, done.err
    assert "no longer there, or more than once, are left out: blue/12.png" in done.err
    table = read_verdicts(tmp_path / "runs/photos-clean-2").set_index("id")
    assert table.verdict["blue/10.png"] == "relabel"
    assert table.verdict["red/11.png"] == "ood"
    assert table.verdict["blue/04.png"] == "unreadable"


def test_runs_that_can_not_be_made_again_are_refused(cli: Cli, refuse: Refuse, tmp_path: Path) -> None:
    save_table(tmp_path)
    assert cli("clean", "z.csv").code == 0
    refuse("clean runs/z-clean --out runs/z-clean/again", "never written to")
    (tmp_path / "z.csv").rename(tmp_path / "moved.csv")
    refuse("clean runs/z-clean", "z.csv: not there; runs/z-clean was made from it")


def verdicts(**rows: tuple[str, str]) -> pd.DataFrame:
    verdict, proposed = zip(*rows.values(), strict=True)
    return pd.DataFrame({"id": list(rows), "verdict": verdict, "proposed_label": proposed})


def test_changes_are_counted_by_hand() -> None:
    before = verdicts(
        a=("keep", "x"), b=("relabel", "x"), c=("relabel", "y"), d=("ood", "x"), e=("keep", "y")
    )
    after = verdicts(
        b=("relabel", "y"), a=("ood", "x"), c=("relabel", "y"), d=("ood", "y"), new=("keep", "x")
    )
    decision = Decision(1, "a", "remove", None, "2026-01-01")
    changes = compare(Path("run"), before, after, [decision])
    assert changes.table.values.tolist() == [
        ["b", "relabel", "relabel", "x", "y", False],
        ["a", "keep", "ood", "x", "x", True],
    ]
    assert changes.record == {
        "run": "run",
        "decided": 1,
        "changed": 2,
        "changed_undecided": 1,
        "verdicts": [
            {"before": "relabel", "after": "relabel", "samples": 2, "decided": 0},
            {"before": "keep", "after": "ood", "samples": 1, "decided": 1},
            {"before": "ood", "after": "ood", "samples": 1, "decided": 0},
        ],
    }
