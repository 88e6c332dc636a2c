"""What is shown while training."""

import io
from typing import Any

import pytest
from rich.console import Console

from graphclean.cli.progress import DELAY, StageProgress, describe_epoch, describe_seconds


def line(epoch: int, **more: float) -> dict[str, Any]:
    facts = {
        "epoch": epoch,
        "loss": 2.0,
        "selected": 1234,
        "empty_classes": 0,
        "samples": 2000,
        "estimated_noise": 0.381,
        "seconds": 1.0,
    }
    return {**facts, **more}


def shown(progress: StageProgress, *, terminal: bool) -> io.StringIO:
    text = io.StringIO()
    progress.console = Console(file=text, force_terminal=terminal, width=200, highlight=False)
    return text


def test_plain_lines_at_first_every_tenth_and_last() -> None:
    progress = StageProgress()
    text = shown(progress, terminal=False)
    with progress:
        for epoch in range(3, 41):  # resumed after two epochs
            progress.epoch(line(epoch), 40)
    lines = text.getvalue().splitlines()
    assert [int(row.split()[1]) for row in lines] == [3, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    first = "epoch 3 of 40, 37 s left, loss 2.000, 1,234 of 2,000 selected, 38.1 % of labels not trusted"
    assert lines[0] == first
    assert lines[-1].endswith("not trusted")


@pytest.mark.parametrize("terminal", [False, True])
def test_one_long_step_that_begins_early_is_told(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphclean.cli.progress.DELAY", 0.1)
    progress = StageProgress()
    text = shown(progress, terminal=terminal)
    with progress:
        progress("drawing the map", 0, 1)
        progress.timer.join(10)
        assert "drawing the map" in text.getvalue()


def test_without_a_terminal_a_long_stage_says_now_and_then_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress = StageProgress()
    text = shown(progress, terminal=False)
    clock = 1000.0
    monkeypatch.setattr("graphclean.cli.progress.time.monotonic", lambda: clock)
    progress.started = clock - DELAY
    with progress:
        for done in range(32, 1025, 32):  # a second each
            progress("embedding photos", done, 1024)
            clock += 1
        progress("finding neighbors", 0, 1)
    assert text.getvalue().splitlines() == [
        "embedding photos …",
        "embedding photos: 512 of 1,024, 16 s left",
        "embedding photos: 992 of 1,024, 1 s left",
        "finding neighbors …",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_one_short_step_is_not_told(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphclean.cli.progress.DELAY", 60.0)
    progress = StageProgress()
    text = shown(progress, terminal=terminal)
    with progress:
        progress("drawing the map", 0, 1)
    progress.timer.join(10)
    assert not progress.timer.is_alive()
    assert text.getvalue() == ""


def test_a_live_line_on_a_terminal() -> None:
    progress = StageProgress()
    progress.started -= DELAY  # as after some work
    text = shown(progress, terminal=True)
    with progress:
        progress.epoch(line(1, validation_accuracy=0.97), 2)
        progress.epoch(line(2, validation_accuracy=0.98), 2)
        progress("finding neighbors", 1, 2)
        progress.say("a line [of] its own")
    assert "epoch 2 of 2, validation 98.0 %, loss 2.000" in text.getvalue()
    assert "a line [of] its own" in text.getvalue()
    assert "finding neighbors" in text.getvalue()


@pytest.mark.parametrize(("count", "said"), [(1, "nothing selected of 1 class"), (2, "of 2 classes")])
def test_classes_of_which_nothing_is_selected_are_told(count: int, said: str) -> None:
    assert describe_epoch(line(1, empty_classes=count), 2, 1.0).endswith(said)


def test_a_line_is_no_command_to_the_terminal() -> None:
    """It may tell what a run folder holds, which may be someone else's."""
    progress = StageProgress()
    text = shown(progress, terminal=True)
    progress.say("data\x1b]0;title\x07 \x9b2J: 3 \u202esamples")
    assert text.getvalue() == "data\\x1b]0;title\\x07 \\x9b2J: 3 \\u202esamples\n"


def test_quiet_shows_nothing() -> None:
    progress = StageProgress(quiet=True)
    text = shown(progress, terminal=True)
    with progress:
        progress.say("hello")
        progress.epoch(line(1), 1)
    assert text.getvalue() == ""


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.2, "0 s"), (99, "99 s"), (120, "2 min"), (3 * 3600 + 60, "3 h 1 min")]
)
def test_times(seconds: float, said: str) -> None:
    assert describe_seconds(seconds) == said
