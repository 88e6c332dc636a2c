"""`graphclean report`: from run folders of every kind to a page."""

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from graphclean._files import write_json
from graphclean.errors import InputError
from graphclean.report import build
from graphclean.report import samples as sampling
from graphclean.report.build import build_page, write_report
from graphclean.runs.decisions import DecisionLog
from graphclean.runs.folder import read_verdicts
from tests.report.builders import make_run
from tests.runs.tiny import TINY, save_digits


def read_data(page: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts and the rows that a page holds."""
    text = page.decode()
    found = [re.search(rf'id="{name}">(.*?)</script>', text, re.S)[1] for name in ("facts", "rows")]
    return json.loads(found[0]), json.loads(found[1])


def test_a_note_ends_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text())
    write_json(run / "summary.json", {**summary, "warnings": ["plain", "whole.", "a, b, …"]})
    page = build_page(run).content.decode()
    for said in ("Plain.", "Whole.", "A, b, …"):
        assert f"<li>{said}</li>" in page


def test_photos_are_in_the_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    page, notes, *_ = build_page(run)
    facts, rows = read_data(page)
    assert notes == []
    assert len(facts["pictures"]) == len(rows["id"]) == 60
    assert facts["counts"] == {
        "keep": 30, "relabel": 15, "ood": 12, "uncertain": 3, "unlabeled": 0, "unreadable": 0
    }  # fmt: skip


def test_long_class_names_count_in_the_size_of_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", classes=[f"{place}{'x' * 700_000}" for place in range(40)])
    page = build_page(run)
    facts, _ = read_data(page.content)
    assert len(page.content) < 4_000_000
    assert len(facts["classes"]) == 40
    assert page.cut[facts["classes"][3]] == f"3{'x' * 700_000}"


def test_a_page_may_hold_no_row_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_TABLE_BYTES", 10)
    facts, rows = read_data(build_page(make_run(tmp_path / "run")).content)
    assert (rows["id"], facts["pictures"], facts["total"]) == ([], {}, 60)


def test_photos_without_an_image_are_not_missed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    table = pd.read_parquet(run / "verdicts.parquet")
    table.loc[3, ["verdict", "confidence", "label_quality", "ood_score"]] = [
        "unreadable",
        np.nan,
        np.nan,
        np.nan,
    ]
    table.to_parquet(run / "verdicts.parquet")
    (tmp_path / "photos" / table.id[3]).write_bytes(b"")
    page, notes, *_ = build_page(run)
    assert len(read_data(page)[0]["pictures"]) == 59
    assert notes == []


def test_photos_that_have_gone_are_said_and_found_again_with_data(
    tmp_path: Path, cli: Any, refuse: Any
) -> None:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    (tmp_path / "photos").rename(tmp_path / "moved")
    done = cli("report", str(run))
    assert done.code == 0
    assert "Pictures are not shown" in done.err
    assert "Pictures are not shown" in (run / "report.html").read_text()
    done = cli("report", str(run), "--data", str(tmp_path / "moved"), "--json")
    assert json.loads(done.out)["warnings"] == []
    refuse(["report", str(run), "--data", "nowhere"], "nowhere: not found")


def test_a_run_of_training_on_arrays_shows_their_images(tmp_path: Path, cli: Any) -> None:
    digits = save_digits(tmp_path)
    assert cli("train", str(digits), "--out", "run", *TINY).code == 0
    done = cli("report", "run")
    assert done.code == 0
    assert "run/report.html" in done.out
    facts, rows = read_data((tmp_path / "run/report.html").read_bytes())
    assert len(facts["pictures"]) == 160
    assert facts["border"]["threshold"] == pytest.approx(
        json.loads((tmp_path / "run/summary.json").read_text())["detector"]["threshold"]
    )
    assert len(facts["curves"]) == 3
    assert facts["map"]["row"] == list(range(160))
    # Other images under the same name are not shown as those of the run.
    with np.load(digits) as there:
        np.savez(digits, images=255 - there["images"], labels=there["labels"])
    assert "are not those that the run was made from" in cli("report", "run").err
    assert cli("report", "run", "--data", str(digits)).code == 2
    assert len(rows["detector_score"]) == 160


def test_embeddings_have_a_page_without_pictures(tmp_path: Path, cli: Any) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4
    z = 3 * np.eye(4)[labels] + 0.3 * rng.normal(size=(200, 4))
    labels[:20] = (labels[:20] + 1) % 4
    np.savez(tmp_path / "z.npz", z=z, y=labels)
    assert cli("clean", "z.npz", "--out", "run").code == 0
    done = cli("report", "run")
    assert (done.code, done.err) == (0, "")
    facts, rows = read_data((tmp_path / "run/report.html").read_bytes())
    assert facts["pictures"] == {}
    assert facts["border"] is not None
    assert facts["curves"] == []
    assert len(rows["id"]) == 200


def test_features_without_signal_have_a_page_too(tmp_path: Path, cli: Any) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "z.npz", z=rng.normal(size=(120, 4)), y=rng.integers(0, 3, 120))
    assert cli("clean", "z.npz", "--out", "run").code == 0
    assert cli("report", "run").code == 0
    page = (tmp_path / "run/report.html").read_bytes()
    assert "These features can’t separate right labels from wrong ones." in page.decode()
    assert read_data(page)[0]["border"] is None


def test_a_second_report_replaces_the_first_but_no_other_file(tmp_path: Path, cli: Any) -> None:
    run = make_run(tmp_path / "run")
    assert cli("report", str(run)).code == 0
    assert cli("report", str(run)).code == 0
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    done = cli("report", str(run), "--out", str(mine))
    assert (done.code, mine.read_text()) == (2, "mine")
    assert cli("report", str(run), "--out", str(mine), "--overwrite").code == 0
    assert cli("report", str(run), "--out", "page.pdf").code == 2


def test_bad_run_folders_are_one_line(tmp_path: Path, refuse: Any) -> None:
    run = make_run(tmp_path / "run")
    (run / "verdicts.parquet").write_bytes(b"no table")
    for folder in (run, tmp_path / "nowhere", tmp_path):
        refuse(["report", str(folder)])


@pytest.mark.slow
def test_a_hundred_thousand_rows_stay_under_25_mb(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", 100_000)
    started = time.perf_counter()
    report = write_report(run)
    assert report.out.stat().st_size == report.size < 25_000_000
    assert len(read_data(report.out.read_bytes())[1]["id"]) == 100_000
    assert time.perf_counter() - started < 60  # a guard against what grows with the square; 4 s when alone


@pytest.mark.slow
def test_of_more_rows_than_it_holds_the_page_states_how_many(tmp_path: Path) -> None:
    report = write_report(make_run(tmp_path / "run", 200_000))
    assert report.size < 25_000_000
    facts, rows = read_data(report.out.read_bytes())
    held = len(rows["id"])
    assert held <= sampling.MOST_ROWS
    assert (facts["total"], facts["sampled"], sum(facts["counts"].values())) == (200_000, True, 200_000)
    assert any(f"This page holds {held:,} of 200,000 samples" in note for note in report.notes)
    assert len(facts["map"]["row"]) <= 5000


def test_what_is_left_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", 200, photos=tmp_path / "photos")
    monkeypatch.setattr(sampling, "MOST_ROWS", 80)
    monkeypatch.setattr(build, "MOST_PICTURES", 30)
    page, notes, *_ = build_page(run)
    facts, rows = read_data(page)
    assert len(rows["id"]) == 80
    assert facts["total"] == 200
    assert facts["counts"]["keep"] == 100
    assert len(facts["pictures"]) == 30
    assert [read_verdicts(run)["id"][row] for row in rows["row"]] == rows["id"]
    assert any("80 of 200" in note for note in notes)
    assert any("30 pictures" in note for note in notes)
    # The surest suspect has its picture.
    surest = max((r for r in range(80) if rows["verdict"][r] == 1), key=lambda r: rows["confidence"][r])
    assert str(surest) in facts["pictures"]


def test_photos_that_are_gone_are_counted_as_such(tmp_path: Path) -> None:
    """And are no reason to say that there was no room for more."""
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    for name in sorted((tmp_path / "photos").rglob("*.png"))[:2]:
        name.unlink()
    page, notes, *_ = build_page(run)
    assert notes == ["Of the photos 2 are no longer there, or can't be read any more, and not shown."]
    assert len(read_data(page)[0]["pictures"]) == 58


def test_pictures_stop_where_there_is_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    monkeypatch.setattr(build, "MOST_PAGE_BYTES", 20_000)
    page = build_page(run).content
    assert 0 < len(read_data(page)[0]["pictures"]) < 60
    assert len(page) < 150_000


def test_a_run_of_an_earlier_version_has_a_page_without_map(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "points.safetensors").unlink()
    page, notes, *_ = build_page(run)
    facts, rows = read_data(page)
    assert (facts["map"], facts["border"], "detector_score" in rows) == (None, None, False)
    assert any("earlier version" in note for note in notes)


def test_the_report_tells_that_people_decided(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with DecisionLog(run) as log:
        log.add(log.samples.decide(1, "accept"))
    assert any("Reviewed by people: 1." in note for note in build_page(run).notes)


def test_decisions_of_another_run_are_not_counted_but_refused(tmp_path: Path) -> None:
    run, other = make_run(tmp_path / "run"), make_run(tmp_path / "other", 80)
    with DecisionLog(other) as log:
        log.add(log.samples.decide(70, "accept"))
    (other / "decisions.jsonl").rename(run / "decisions.jsonl")
    with pytest.raises(InputError, match="not a sample of this run; take the line out"):
        build_page(run)
