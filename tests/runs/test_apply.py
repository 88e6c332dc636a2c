"""`graphclean apply`: verdicts carried out, originals untouched."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from graphclean.data.digits import noisy_digits
from graphclean.data.verdict import Verdict
from graphclean.runs.apply import decide_actions, leave_one_each
from graphclean.runs.decisions import Decision, DecisionLog
from graphclean.runs.folder import write_config, write_table
from tests.builders import Cli, Refuse
from tests.conftest import states
from tests.runs.applied import ROWS, lay_photos, make_run, make_verdicts


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return lay_photos(tmp_path)


@pytest.mark.usefixtures("photos")
def test_the_manifest_tells_label_action_and_reason(cli: Cli, tmp_path: Path) -> None:
    done = cli("apply", "run")
    assert done.code == 0
    table = pd.read_csv(tmp_path / "run/cleaned.csv", keep_default_na=False)
    unsure = "uncertain whether the label fits, so it stays (confidence 0.45)"
    assert list(table.columns) == ["id", "label", "given_label", "action", "reason"]
    assert table.values.tolist() == [
        ["cat/1.png", "cat", "cat", "kept", "the label fits (confidence 0.98)"],
        ["cat/2.png", "dog", "cat", "relabeled", "given cat, looks like dog (confidence 0.92)"],
        ["cat/deep/1.png", "cat", "cat", "kept", "the label fits (confidence 0.90)"],
        ["cat/bad.png", "", "cat", "removed", "can't be read"],
        ["dog/1.png", "", "dog", "removed", "fits no known class (confidence 0.93)"],
        ["dog/2.png", "dog", "dog", "kept", unsure],
        ["dog/3.png", "dog", "dog", "kept", "the label fits (confidence 0.99)"],
        ["loose.png", "dog", "", "relabeled", "had no label, looks like dog (confidence 0.88)"],
        ["vague.png", "", "", "removed", "had no label, and no class is probable enough (confidence 0.35)"],
    ]  # fmt: skip
    assert [line.split() for line in done.out.splitlines()[1:4]] == [
        ["kept", "4"],
        ["relabeled", "2"],
        ["removed", "3"],
    ]


def test_uncertain_ones_can_be_dropped() -> None:
    dropped = decide_actions(make_verdicts(ROWS), drop_uncertain=True)
    differs = (dropped.action != decide_actions(make_verdicts(ROWS)).action).to_numpy()
    assert dropped.id[differs].tolist() == ["dog/2.png"]
    scores = "confidence 0.45"
    assert dropped.reason[differs].tolist() == [f"uncertain whether the label fits ({scores})"]
    assert dropped.label[differs].isna().all()


NOT_SURE = "the verdict is not sure enough"
CAT = ("cat/2.png", "kept", f"{NOT_SURE}, so it stays (confidence 0.92)")
LOOSE = ("loose.png", "removed", f"had no label, and {NOT_SURE} (confidence 0.88)")


DUPLICATES = {
    "cat/1.png": (1, 40),
    "cat/deep/1.png": (1, 90),
    "dog/1.png": (1, 900),
    "dog/2.png": (2, 50),
    "dog/3.png": (2, 50),
}
"""Group and width; the largest of the first is removed as OOD."""


def test_one_of_each_duplicate_group_is_left(cli: Cli, photos: Path) -> None:
    """The largest that is not removed anyway, or of those of one size the first."""
    run = photos.parent / "run"
    table = make_verdicts(ROWS)
    found = [DUPLICATES.get(name, (None, 30)) for name in table["id"]]
    table["duplicate_group"] = pd.array([group for group, _ in found], dtype="Int64")
    table["width"], table["height"] = [float(width) for _, width in found], 20.0
    write_table(table, run / "verdicts")
    assert cli("apply", "run").code == 0
    before = pd.read_csv(run / "cleaned.csv", keep_default_na=False).set_index("id")
    assert cli("apply", "run", "--drop-duplicates", "--overwrite").code == 0
    after = pd.read_csv(run / "cleaned.csv", keep_default_na=False).set_index("id")
    changed = after[(after != before).any(axis=1)]
    assert {name: tuple(row) for name, row in changed[["label", "action", "reason"]].iterrows()} == {
        "cat/1.png": ("", "removed", "a duplicate of cat/deep/1.png"),
        "dog/3.png": ("", "removed", "a duplicate of dog/2.png"),
    }
    assert cli("apply", "run", "--copy", "--drop-duplicates").code == 0
    assert not (run / "cleaned" / "dog" / "3.png").exists()


def test_without_sizes_the_first_duplicate_is_left() -> None:
    table = make_verdicts(ROWS).assign(
        duplicate_group=pd.array([1, None, 1, None, None, None, 1, None, None], dtype="Int64")
    )
    left = leave_one_each(decide_actions(table), table)
    assert left.action[[0, 2, 6]].tolist() == ["kept", "removed", "removed"]
    assert left.reason[6] == "a duplicate of cat/1.png"
    assert left.label[[2, 6]].isna().all()


@pytest.mark.parametrize(
    ("least", "changed"),
    [(0.35, []), (0.9, [LOOSE]), (0.93, [CAT, LOOSE])],
)
def test_only_sure_verdicts_are_carried_out(least: float, changed: list[tuple[str, str, str]]) -> None:
    usual, sure = (
        decide_actions(make_verdicts(ROWS)),
        decide_actions(make_verdicts(ROWS), min_confidence=least),
    )
    other = sure[usual.action != sure.action]
    assert list(zip(other.id, other.action, other.reason, strict=True)) == changed
    # What is not sure enough is as what is uncertain.
    dropped = decide_actions(make_verdicts(ROWS), min_confidence=least, drop_uncertain=True)
    enough = make_verdicts(ROWS).confidence >= least
    assert (dropped.action[~enough] == "removed").all()
    assert dropped.action[enough & (sure.action == "kept")].tolist() == [
        "removed" if verdict == "uncertain" else "kept"
        for verdict in make_verdicts(ROWS).verdict[enough & (sure.action == "kept")]
    ]


def test_what_nobody_reviewed_can_be_left_alone() -> None:
    decided = {
        1: Decision(1, "cat/2.png", "accept", "dog", ""),
        2: Decision(2, "cat/deep/1.png", "remove", None, ""),
    }
    table = decide_actions(make_verdicts(ROWS), decided, reviewed_only=True)
    rows = list(zip(table.action, table.reason, strict=True))
    assert rows[:3] == [
        ("kept", "not reviewed, so it stays (confidence 0.98)"),
        ("relabeled", "reviewed: given cat, is dog"),
        ("removed", "reviewed: out of distribution"),
    ]
    assert rows[3] == ("removed", "can't be read")
    assert {action for action, _ in rows[4:7]} == {"kept"}
    assert rows[7] == ("removed", "had no label, and not reviewed (confidence 0.88)")
    alone = decide_actions(make_verdicts(ROWS), decided, reviewed_only=True, drop_uncertain=True)
    assert alone.id[alone.action != "removed"].tolist() == ["cat/2.png"]


@pytest.mark.usefixtures("photos")
def test_notes_of_a_review_stand_in_the_manifest(cli: Cli, tmp_path: Path) -> None:
    with DecisionLog(tmp_path / "run") as log:
        log.add(log.samples.decide(1, "note", note="=ask Ben, why?"))
    assert cli("apply", "run").code == 0
    table = pd.read_csv(tmp_path / "run/cleaned.csv", keep_default_na=False)
    assert table.note.tolist() == ["", "'=ask Ben, why?", *[""] * 7]
    assert table.action.tolist()[1] == "relabeled"
    assert cli("apply", "run", "--out", "run/cleaned.parquet").code == 0
    assert pd.read_parquet(tmp_path / "run/cleaned.parquet").note.dropna().to_dict() == {1: "=ask Ben, why?"}


@pytest.mark.usefixtures("photos")
def test_confidences_that_make_no_sense_are_refused(refuse: Refuse) -> None:
    for given in ("90", "-0.1", "nan"):
        refuse(f"apply run --min-confidence={given}", "--min-confidence")
    refuse("apply run --min-confidence 0.9 --reviewed-only", "applies no verdict")


def test_tables_of_paths_and_odd_labels(cli: Cli, photos: Path) -> None:
    here = photos.parent
    labels = ["a/b", "a_b", "..", ".hidden", "A_B", "x\\y", "cleaned.csv"]
    names = [f"photos/{row[0]}" for row in ROWS[:7]]
    pd.DataFrame({"path": names, "key": list("abcdefg"), "label": labels}).to_csv(
        here / "list.csv", index=False
    )
    rows = [(key, label, label, "keep", 1.0, 0.0, True) for key, label in zip("abcdefg", labels, strict=True)]
    make_run(here / "run", rows, data="list.csv", id_column="key")
    before = states(photos)
    done = cli("apply", "run", "--copy", "--out", "clean")
    assert done.code == 0
    table = pd.read_csv(here / "clean/cleaned.csv").set_index("label").file
    assert table.to_dict() == {
        "A_B": "A_B/1.png",
        "a_b": "a_b-2/2.png",
        "a/b": "a_b-3/1.png",
        "..": "_../1.png",
        ".hidden": "_.hidden/bad.png",
        "x\\y": "x_y/2.png",
        "cleaned.csv": "cleaned.csv-2/3.png",
    }
    for name, original in zip(table[labels], names, strict=True):
        assert (here / "clean" / name).read_bytes() == (here / original).read_bytes()
    assert "labels that can't name a folder, or not a second one: a_b as a_b-2, " in done.err
    assert states(photos) == before


def test_refused_with_one_line_and_nothing_written(refuse: Refuse, photos: Path) -> None:
    here = photos.parent
    (here / "mine").mkdir()
    (here / "mine/notes.txt").write_text("keep me")
    (here / "other.csv").write_text("mine")
    (here / "into").symlink_to(photos)
    make_run(here / "arrays", kind="features", data="z.npz")
    make_run(here / "odd", [("a", "x", "y", "maybe", 0.1, 0.1, True)])
    make_run(here / "elsewhere", [("nowhere.png", "x", "x", "keep", 0.1, 0.1, True)])
    make_run(here / "newer")
    config = json.loads((here / "newer/config.json").read_text())
    (here / "newer/config.json").write_text(json.dumps({**config, "format": 99}))
    (make_run(here / "partial") / "verdicts.parquet").unlink()
    (make_run(here / "broken") / "verdicts.parquet").write_bytes(b"PAR1 but not really")
    make_run(here / "short")
    make_verdicts(ROWS).drop(columns="verdict").to_parquet(here / "short/verdicts.parquet")
    unfinished = make_run(here / "unfinished")
    write_config(unfinished, "train", {}, {})
    (unfinished / "summary.json").unlink()
    cases = {
        "apply nowhere": "nowhere: no such run folder",
        "apply photos": "not a run folder",
        "apply newer": "which is newer; upgrade graphclean",
        "apply partial": "no verdicts.parquet in it: files are missing",
        "apply broken": "verdicts.parquet: can't be read",
        "apply short": "damaged: no column verdict",
        "apply unfinished": "its training has not finished",
        "apply odd": "there is no verdict maybe",
        "apply run --out photos/c.csv": "lies in photos, which is never written to",
        "apply run --link --out photos/clean": "lies in photos, which is never written to",
        "apply run --link --out into/clean": "lies in photos, which is never written to",
        "apply run --link --out photos": "lies in photos",
        "apply run --link --out mine": "holds files that `graphclean apply` did not write",
        "apply run --link --out run": "holds files that `graphclean apply` did not write",
        "apply run --link --out mine --overwrite": "holds files that `graphclean apply` did not write",
        "apply run --link --out other.csv": "there is a file of that name",
        "apply run --out other.csv": "the file differs; use --overwrite",
        "apply run --out run/verdicts.csv --overwrite": "is a file of the run itself",
        "apply run --out mine": "the manifest is a .csv or .parquet",
        "apply run --out m.txt": "the manifest is a .csv or .parquet",
        "apply run --link --copy": "give one of them",
        "apply run --data photos": "only has an effect with --link",
        "apply arrays --link": "there are no photos to link or copy",
        "apply elsewhere --link": "not one of the run's photos is in it",
    }
    for command, message in cases.items():
        refuse(command, message)
        refuse(f"{command} --dry-run", message)


def test_a_manifest_that_was_edited_is_not_replaced(cli: Cli, refuse: Refuse, photos: Path) -> None:
    assert cli("apply", "run", "--copy", "--out", "clean", "--quiet").code == 0
    manifest = photos.parent / "clean/cleaned.csv"
    before = manifest.read_text()
    manifest.write_text(before + "mine\n")
    refuse("apply run --copy --out clean", "cleaned.csv: the file differs; use --overwrite to replace it")
    assert cli("apply", "run", "--copy", "--out", "clean", "--overwrite").code == 0
    assert manifest.read_text() == before


@pytest.mark.usefixtures("photos")
def test_what_fails_midway_leaves_nothing(refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", full)
    refuse("apply run --copy --out clean", "No space left on device")
    monkeypatch.setattr("os.link", full)
    refuse("apply run --hardlink --out clean", "--copy or --link may work")


def test_arrays_and_formulas(cli: Cli, tmp_path: Path) -> None:
    digits = noisy_digits(noise=0.3)
    np.savez(tmp_path / "z.npz", z=digits.pixels[:300], y=digits.labels[:300])
    assert cli("clean", "z.npz", "--out", "run", "--quiet").code == 0
    assert cli("apply", "run", "--out", "m.parquet", "--quiet").code == 0
    verdicts, table = (
        pd.read_parquet(tmp_path / "run/verdicts.parquet"),
        pd.read_parquet(tmp_path / "m.parquet"),
    )
    assert table.id.tolist() == verdicts.id.tolist()
    relabeled = (verdicts.verdict == "relabel").to_numpy()
    assert relabeled.sum() > 20
    assert (table.label[relabeled] == verdicts.proposed_label[relabeled]).all()
    assert (table.action[relabeled] == "relabeled").all()
    assert table.label[(verdicts.verdict == "ood").to_numpy()].isna().all()
    assert cli("apply", "run", "--quiet").code == 0
    assert pd.read_csv(tmp_path / "run/cleaned.csv").label.dropna().isin(range(8)).all()
    make_run(tmp_path / "formulas", [("=cmd()", "+a", "-b", "relabel", 0.1, 0.1, True)])
    cli("apply", "formulas", "--quiet")
    row = pd.read_csv(tmp_path / "formulas/cleaned.csv").iloc[0]
    assert (row.id, row.label, row.given_label) == ("'=cmd()", "'-b", "'+a")


def decide(run: Path, **decided: tuple[str, str | None]) -> None:
    """Write decisions as a review does; names are those of ROWS without what a keyword can't have."""
    with DecisionLog(run) as log:
        rows = {row[0].replace("/", "_").replace(".", "_"): number for number, row in enumerate(ROWS)}
        for name, (kind, label) in decided.items():
            log.add(log.samples.decide(rows[name], kind, label, "Ada"))


def test_what_was_reviewed_goes_before_the_verdicts(photos: Path, cli: Any) -> None:
    run = photos.parent / "run"
    decide(
        run,
        cat_1_png=("label", "dog"),
        cat_2_png=("reject", None),
        dog_1_png=("accept", None),
        dog_2_png=("remove", None),
        loose_png=("label", "cat"),
    )
    done = cli("apply", str(run), "--out", "table.csv")
    assert done.code == 0
    table = pd.read_csv("table.csv").set_index("id")
    found = {name: tuple(table.loc[name, ["label", "action", "reason"]].fillna("")) for name in table.index}
    assert found["cat/1.png"] == ("dog", "relabeled", "reviewed by Ada: given cat, is dog")
    assert found["cat/2.png"] == ("cat", "kept", "reviewed by Ada: the label is right")
    assert found["dog/1.png"] == ("", "removed", "reviewed by Ada: out of distribution")
    assert found["dog/2.png"] == ("", "removed", "reviewed by Ada: out of distribution")
    assert found["loose.png"] == ("cat", "relabeled", "reviewed by Ada: had no label, is cat")
    assert "reviewed" not in found["dog/3.png"][2]


def test_reviewed_numbers_stay_numbers() -> None:
    verdicts = make_verdicts([("a", 3, 5, "relabel", 0.1, 0.1, True), ("b", 5, 5, "keep", 0.9, 0.1, True)])
    held = {0: Decision(0, "a", "reject", "3", ""), 1: Decision(1, "b", "label", "3", "")}
    table = decide_actions(verdicts, held)
    assert table["label"].tolist() == [3, 3]
    assert table["label"].dtype == "Int64"
    assert table["action"].tolist() == ["kept", "relabeled"]


def test_decisions_on_another_run_are_refused(photos: Path, cli: Any) -> None:
    run = photos.parent / "run"
    line = {"row": 0, "id": "another.png", "kind": "remove", "label": None, "time": "", "by": None}
    (run / "decisions.jsonl").write_text(json.dumps(line) + "\n")
    done = cli("apply", str(run))
    assert (done.code, "not a sample of this run" in done.err) == (2, True)


@pytest.mark.parametrize(
    "options", [{}, {"min_confidence": 0.7}, {"reviewed_only": True}, {"drop_uncertain": True}]
)
def test_cases_are_decided_as_each_sample_alone(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    n = 400
    verdicts = pd.DataFrame(
        {
            "id": [f"s{row}" for row in range(n)],
            "given_label": rng.choice(np.array(["cat", "dog", None], dtype=object), n),
            "proposed_label": rng.choice(np.array(["cat", "dog", None], dtype=object), n),
            "verdict": rng.choice([str(name) for name in Verdict], n),
            "confidence": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 1001, n) / 1000),
            "selected": rng.random(n) < 0.5,
        }
    )
    whole = decide_actions(verdicts, **options)
    alone = [decide_actions(verdicts.iloc[[row]].reset_index(drop=True), **options) for row in range(n)]
    pd.testing.assert_frame_equal(whole, pd.concat(alone, ignore_index=True), check_dtype=False)
