"""What people decided: written line by line, read back whatever happened, merged."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graphclean.errors import InputError
from graphclean.runs.decisions import (
    Decision,
    DecisionLog,
    ReviewedSamples,
    merge_decisions,
    place_decisions,
    read_decisions,
    settle,
    settle_notes,
)
from tests.report.builders import CLASSES, make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def make(row: int, kind: str = "accept", label: str | None = "cat", time: str = "2026-01-01") -> Decision:
    return Decision(row, f"p{row:05d}.png", kind, label, time)


def write(path: Path, *decisions: Decision) -> Path:
    path.write_text("".join(json.dumps(vars(decision)) + "\n" for decision in decisions))
    return path


@pytest.mark.parametrize(
    ("row", "kind", "label", "outcome"),
    [
        (33, "accept", None, CLASSES[2]),  # relabel: given class 1, proposed class 2
        (33, "reject", None, CLASSES[1]),
        (33, "label", CLASSES[3], CLASSES[3]),
        (33, "remove", None, None),
        (46, "accept", None, None),  # ood
        (46, "reject", None, CLASSES[2]),
        (59, "accept", None, CLASSES[3]),  # uncertain: the label stays
        (0, "accept", None, CLASSES[0]),  # keep
    ],
)
def test_a_decision_says_what_the_sample_is_from_now_on(
    run: Path, row: int, kind: str, label: str | None, outcome: str | None
) -> None:
    decision = ReviewedSamples.read(run).decide(row, kind, label, "Ada")
    assert (decision.row, decision.kind, decision.label, decision.by) == (row, kind, outcome, "Ada")


@pytest.mark.parametrize(
    ("row", "kind", "label"),
    [
        *((60, "accept", None), (-1, "accept", None), ("0", "accept", None), (True, "accept", None)),
        *((0, "delete", None), (0, ["accept"], None), (0, "label", None), (0, "label", "no such class")),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(
    run: Path, row: object, kind: object, label: object
) -> None:
    with pytest.raises(InputError):
        ReviewedSamples.read(run).decide(row, kind, label)


def test_the_last_decision_holds_and_an_undo_brings_back_the_one_before() -> None:
    first, second, undo = make(1), make(1, "reject", "dog"), make(1, "undo", None)
    assert settle([first, second]) == {1: second}
    assert settle([first, second, undo]) == {1: first}
    assert settle([first, second, undo, undo]) == {}
    assert settle([undo, first]) == {1: first}
    assert list(settle([make(1), make(2), make(1)])) == [2, 1]


def write_note(row: int, text: str | None, time: str = "2026-01-01") -> Decision:
    return Decision(row, f"p{row:05d}.png", "note", None, time, note=text)


def test_notes_decide_nothing_and_the_last_one_stands() -> None:
    lines = [make(1), write_note(1, "a"), write_note(2, "b"), write_note(1, "c"), write_note(2, None)]
    assert settle(lines) == {1: make(1)}
    assert settle([*lines, make(1, "undo", None)]) == {}
    assert {row: note.note for row, note in settle_notes(lines).items()} == {1: "c"}


def test_notes_are_merged_and_the_later_one_stands(run: Path, tmp_path: Path) -> None:
    with DecisionLog(run) as log:
        log.add(write_note(1, "ours", "2026-01-02"), write_note(2, "ours", "2026-01-02"))
    theirs = [write_note(1, "older"), write_note(2, "newer", "2026-01-03"), write_note(3, "alone")]
    merged = merge_decisions(run, write(tmp_path / "theirs.jsonl", *theirs))
    assert (merged.added, merged.notes) == (0, 2)
    notes = settle_notes(read_decisions(run / "decisions.jsonl"))
    assert {row: note.note for row, note in notes.items()} == {1: "ours", 2: "newer", 3: "alone"}
    # A second time brings nothing new.
    assert merge_decisions(run, tmp_path / "theirs.jsonl").notes == 0


def test_of_a_step_all_lines_are_written_or_none(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with DecisionLog(run) as log:
        log.add(make(1))
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            log.add(make(2), make(3))
        monkeypatch.undo()
        assert log.decisions == [make(1)]
        assert read_decisions(log.path) == [make(1)]


def test_decisions_are_added_to_those_of_an_earlier_review(run: Path) -> None:
    with DecisionLog(run) as log:
        log.add(make(1))
    with DecisionLog(run) as log:
        log.add(make(2))
        assert log.decisions == [make(1), make(2)]
    assert read_decisions(run / "decisions.jsonl") == [make(1), make(2)]


def test_a_torn_last_line_is_survived_and_does_not_spoil_the_next(run: Path) -> None:
    path = write(run / "decisions.jsonl", make(1))
    with path.open("a") as file:
        file.write('{"row": 2, "id": "p00')
    assert read_decisions(path) == [make(1)]
    with DecisionLog(run) as log:
        log.add(make(3))
    assert read_decisions(path) == [make(1), make(3)]


def test_a_last_line_that_only_lacks_its_end_counts(run: Path, tmp_path: Path) -> None:
    """As an editor or a message may leave it."""
    path = write(run / "decisions.jsonl", make(1), make(2))
    path.write_text(path.read_text().rstrip())
    assert read_decisions(path) == [make(1), make(2)]
    other = write(tmp_path / "theirs.jsonl", make(3), make(4))
    other.write_text(other.read_text().rstrip())
    assert merge_decisions(run, other).added == 2
    assert read_decisions(path) == [make(1), make(2), make(3), make(4)]


def test_a_folder_to_merge_is_told_from_a_missing_file(run: Path) -> None:
    path = write(run / "decisions.jsonl", make(1))
    with pytest.raises(
        InputError, match=r"run: a folder; the decisions of a run are in .*run/decisions\.jsonl"
    ):
        merge_decisions(run, run)
    assert read_decisions(path) == [make(1)]


def test_a_link_in_the_place_of_the_file_is_not_written_through(run: Path, tmp_path: Path) -> None:
    """As in a run that came from someone else: what it leads to would be cut to its last whole line."""
    mine, other = tmp_path / "mine.json", write(tmp_path / "theirs.jsonl", make(1))
    mine.write_text('{"not": "a decision, and without a line\'s end"}')
    (run / "decisions.jsonl").symlink_to(mine)
    with pytest.raises(InputError, match="a link"):
        DecisionLog(run)
    with pytest.raises(InputError, match="a link"):
        merge_decisions(run, other)
    assert mine.read_text().startswith('{"not"')


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"row": 1}', '{"row": "1", "id": 2}', "null", "[" * 100_000]
)
def test_a_damaged_line_is_named(run: Path, line: str) -> None:
    path = write(run / "decisions.jsonl", make(1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InputError, match="line 2"):
        read_decisions(path)


def test_decisions_on_other_samples_or_labels_are_refused(run: Path) -> None:
    other = Decision(1, "another.png", "accept", "cat", "")
    for wrong in (other, make(1000), make(1, label="emu"), make(1, kind="delete")):
        write(run / "decisions.jsonl", wrong)
        with pytest.raises(InputError, match="decision 1"):
            DecisionLog(run)


def test_a_review_without_a_decision_leaves_no_file(run: Path) -> None:
    with DecisionLog(run):
        pass
    assert not (run / "decisions.jsonl").exists()


def test_two_reviews_of_one_run_at_once_are_refused(run: Path) -> None:
    with DecisionLog(run) as log:
        log.add(make(1))
        with pytest.raises(InputError, match="another review"):
            DecisionLog(run)
    with DecisionLog(run):
        pass


def test_a_refused_review_leaves_the_file_of_the_open_one(run: Path) -> None:
    """Which has nothing in it yet."""
    with DecisionLog(run) as log:
        with pytest.raises(InputError, match="another review"):
            DecisionLog(run)
        log.add(make(1))
    assert read_decisions(run / "decisions.jsonl") == [make(1)]


@pytest.mark.slow
def test_what_was_added_is_there_after_a_kill(run: Path) -> None:
    code = (
        "import os, sys, pathlib, graphclean.runs.decisions as d\n"
        "log = d.DecisionLog(pathlib.Path(sys.argv[1]))\n"
        "log.add(log.samples.decide(1, 'accept'))\n"
        f"os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(run)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert [decision.row for decision in read_decisions(run / "decisions.jsonl")] == [1]


def test_a_full_disk_is_said_and_leaves_whole_lines(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with DecisionLog(run) as log:
        log.add(make(1))
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(InputError, match="No space left"):
            log.add(make(2))
        monkeypatch.undo()
        log.add(make(3))
    assert read_decisions(run / "decisions.jsonl") == [make(1), make(3)]


def test_merging_takes_over_the_later_and_lists_where_they_differ(run: Path, tmp_path: Path) -> None:
    late, early = make(2, label=CLASSES[1], time="2026-03-01"), make(3, label=None, time="2025")
    write(run / "decisions.jsonl", make(1), make(2), make(3))
    other = write(tmp_path / "theirs.jsonl", make(1), late, early, make(4), make(6), make(6, "undo", None))
    merged = merge_decisions(run, other)
    assert (merged.added, merged.agreed) == (1, 1)
    assert merged.conflicts == [
        {"id": "p00002.png", "ours": "cat", "theirs": CLASSES[1], "taken": "theirs"},
        {"id": "p00003.png", "ours": "cat", "theirs": None, "taken": "ours"},
    ]
    held = settle(read_decisions(run / "decisions.jsonl"))
    assert {row: decision.label for row, decision in held.items()} == {
        1: "cat", 2: CLASSES[1], 3: "cat", 4: "cat"
    }  # fmt: skip
    assert merge_decisions(run, other).added == 0


def test_merging_finds_samples_again_after_others_came_and_went(run: Path, tmp_path: Path) -> None:
    """As when photos were added or deleted, and the run was made again."""
    moved, gone = Decision(7, "p00002.png", "accept", "cat", ""), Decision(2, "gone.png", "accept", "cat", "")
    other = write(
        tmp_path / "old.jsonl", moved, gone, gone, make(1), Decision(99, "p00003.png", "undo", None, "")
    )
    merged = merge_decisions(run, other)
    assert (merged.added, merged.gone) == (2, ["gone.png"])
    assert {(decision.row, decision.id) for decision in read_decisions(run / "decisions.jsonl")} == {
        (1, "p00001.png"), (2, "p00002.png")
    }  # fmt: skip


def test_an_id_that_is_there_twice_says_no_row() -> None:
    samples = ReviewedSamples(["a", "b", "a"], ["keep"] * 3, [None] * 3, [None] * 3)
    second, moved = Decision(2, "a", "remove", None, ""), Decision(1, "a", "remove", None, "")
    assert place_decisions([second, moved], samples.ids) == ([second], ["a"])


def test_merging_what_is_not_of_this_run_changes_nothing(run: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "theirs.jsonl", Decision(2, "another.png", "accept", "cat", ""))
    unknown = write(tmp_path / "unknown.jsonl", make(1), make(2, label="no such class"))
    for path in (other, unknown, tmp_path / "nowhere", write(tmp_path / "empty.jsonl")):
        with pytest.raises(InputError):
            merge_decisions(run, path)
    assert not (run / "decisions.jsonl").exists()


def test_the_command_line_merges(run: Path, tmp_path: Path, cli: Callable[..., object]) -> None:
    write(run / "decisions.jsonl", make(2))
    other = write(tmp_path / "theirs.jsonl", make(1), make(2, label=None, time="2027"))
    done = cli("review", str(run), "--merge", str(other))
    assert "1 decision merged, 0 the same, 1 different." in done.out
    assert "no class" in done.out
    done = cli("review", str(run), "--merge", str(other), "--json")
    assert json.loads(done.out) == {"added": 0, "agreed": 2, "conflicts": [], "notes": 0, "gone": []}
    write(other, make(1), *(Decision(0, f"gone{n}", "accept", "cat", "") for n in range(4)))
    done = cli("review", str(run), "--merge", str(other))
    assert (
        "on 4 samples that are not in this run, or more than once, is left out: gone0, gone1, gone2, …"
        in done.err
    )


def test_a_run_with_decisions_is_not_overwritten(run: Path, cli: Callable[..., object]) -> None:
    write(run / "decisions.jsonl", make(1))
    done = cli("clean", "data.npz", "--out", str(run), "--overwrite")
    assert done.code == 2
    assert "decisions of a review" in done.err
    assert (run / "decisions.jsonl").is_file()
