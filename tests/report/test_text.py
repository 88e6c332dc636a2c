"""The summary in plain words."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from graphclean.report.samples import read_samples
from graphclean.report.text import Words, describe_run, run_again


def words(
    counts: dict[str, int],
    kind: str = "photos",
    run: str = "runs/x",
    *,
    reviewing: bool = False,
    source: dict[str, Any] | None = None,
    **summary: Any,
) -> Words:
    verdicts = [name for name, count in counts.items() for _ in range(count)]
    table = pd.DataFrame(
        {
            "id": [str(row) for row in range(len(verdicts))],
            "given_label": "cat",
            "proposed_label": "dog",
            "verdict": verdicts,
            "confidence": 0.5,
            "label_quality": 0.5,
            "ood_score": 0.5,
            "selected": [row % 3 == 0 for row in range(len(verdicts))],
            "neighbors": [[] for _ in verdicts],
            "duplicate_group": pd.NA,
        }
    )
    samples = read_samples(table, ["cat", "dog"], None)
    config: dict[str, Any] = {
        "kind": "clean",
        "source": {"kind": kind, "data": "my photos", "labels": None, "label_column": "is it"},
    }
    config["source"] |= source or {}
    summary = {"noise_rate": 0.1, "ood_rate": 0.2, **summary}
    return describe_run(Path(run), config, summary, samples, reviewing=reviewing)


@pytest.mark.parametrize(
    ("counts", "headline"),
    [
        (
            {"keep": 7, "relabel": 2, "ood": 1},
            "2 of 10 labels look wrong. 1 photo seems to fit no class.",
        ),
        ({"keep": 9, "relabel": 1}, "1 of 10 labels looks wrong. All photos seem to fit a class."),
        (
            {"keep": 5, "ood": 2, "unlabeled": 3, "unreadable": 1},
            "0 of 7 labels look wrong. 2 photos seem to fit no class.",
        ),
        ({"keep": 10}, "None of 10 labels looks wrong."),
        ({"uncertain": 10}, "These features can’t separate right labels from wrong ones."),
    ],
)
def test_headline(counts: dict[str, int], headline: str) -> None:
    assert "".join(text for text, _ in words(counts).headline) == headline


def test_lead_tells_the_estimates_or_that_there_are_none() -> None:
    assert "10.0 % of the labels of known classes are wrong" in words({"keep": 3}).lead
    assert "no verdict" in words({"uncertain": 3}, noise_rate=None, ood_rate=None).lead
    assert "belong to no class is unknown" in words({"keep": 3}, ood_rate=None, possible_ood_rate=0.1).lead


def test_steps_name_commands_that_can_be_pasted() -> None:
    steps = words({"keep": 3, "relabel": 2, "ood": 1, "uncertain": 1}, run="runs/my run").steps
    commands = [step.command for step in steps]
    assert commands[:2] == ["graphclean review 'runs/my run'", "graphclean apply 'runs/my run'"]
    assert "2 relabeled, 1 removed" in steps[1].text
    assert str(commands[-1]).endswith("graphclean train 'my photos' --label-column 'is it'")


def test_what_was_embedded_by_a_function_goes_on_in_python() -> None:
    source = {"embedder": "function:mine", "probe": [1.0]}
    last = str(words({"keep": 3}, run="runs/my run", source=source).steps[-1].command)
    assert last.splitlines() == [
        "graphclean.Run.load('runs/my run').predict(\"NEW\", embedder=FUNCTION)",
        "graphclean.train('my photos', embedder=FUNCTION)",
    ]
    assert run_again(Path("runs/x"), {"kind": "train", "source": {"data": "photos", **source}}) is None


def test_what_had_no_label_is_counted_as_it_is_carried_out() -> None:
    steps = words({"relabel": 3, "unlabeled": 4, "ood": 1, "unreadable": 1}).steps
    assert "5 relabeled, 4 removed" in steps[1].text


def test_nothing_is_to_be_carried_out_where_nothing_was_found() -> None:
    assert not any("apply" in str(step.command) for step in words({"keep": 3}).steps)
    assert all(step.command is None for step in words({"uncertain": 3}).steps)


def test_a_page_for_review_does_not_send_you_to_review() -> None:
    steps = words({"keep": 3, "relabel": 2}, reviewing=True).steps
    assert "Go through the suspects below" in steps[0].text
    assert not any("graphclean review" in (step.command or "") for step in steps)


def test_a_run_names_the_command_that_a_setting_is_added_to(tmp_path: Path) -> None:
    source = {"data": "my images.npz", "labels_key": "y"}
    again = run_again(Path("runs/x"), {"kind": "train", "source": source})
    assert again == "graphclean train 'my images.npz' --labels-key y --out runs/x --resume"
    assert run_again(Path("runs/x y"), {"kind": "clean", "source": source}) == "graphclean clean 'runs/x y'"
    in_python = {"data": "arrays in Python", "labels": None, "kind": "features"}
    assert run_again(Path("runs/x"), {"kind": "train", "source": in_python}) is None
    source = {"data": "photos", "labels": None, "embedder": "timm:resnet18", "validation": "my own"}
    again = run_again(Path("x"), {"kind": "train", "source": source})
    assert again == "graphclean train photos --embedder timm:resnet18 --validation 'my own' --out x --resume"
    source = {"data": "photos", "labels": None, "embedder": "efficientnet-lite0"}
    again = run_again(Path("x"), {"kind": "train", "source": source})
    assert again == "graphclean train photos --out x --resume"
    (tmp_path / "digits.npz").touch()
    kept = run_again(tmp_path, {"kind": "train", "source": {"kind": "images", "data": "digits.npz"}})
    assert kept == f"graphclean train {tmp_path}/digits.npz --out {tmp_path} --resume"
