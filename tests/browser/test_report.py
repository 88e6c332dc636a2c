"""The report in a real browser."""

import csv
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from graphclean.report import write_report
from graphclean.runs.cells import write_cells
from tests.browser.conftest import Watched
from tests.report.builders import IMAGE, SCRIPT, make_run, take_scores

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    return write_report(make_run(folder / "run", photos=folder / "photos")).out


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(make_run(tmp_path_factory.mktemp("bare") / "run")).out


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    classes = [f"class {number}" for number in range(30)]
    return write_report(make_run(tmp_path_factory.mktemp("large") / "run", 100_000, classes=classes)).out


def rows_of(page: Any) -> list[list[str]]:
    """The cells of the table that are in view."""
    found: list[list[str]] = page.locator(".rows .line").evaluate_all(
        "lines => lines.map(line => [...line.querySelectorAll('.cell')].map(cell => cell.textContent.trim()))"
    )
    return found


def test_it_opens_and_asks_for_nothing_but_itself(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    assert watched.asked == [report.absolute().as_uri()]
    headline = "15 of 60 labels look wrong. 12 photos seem to fit no class."
    assert page.locator("h1").inner_text() == headline
    assert page.locator("[data-gallery=relabel] .card").count() == 10
    assert page.locator("#table-body .said").inner_text() == "60 rows"
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth)")


def test_hostile_labels_and_names_are_text(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.locator("[data-gallery=relabel] .more button").click()
    page.locator("[data-gallery=relabel] .open").first.click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    assert page.evaluate("window.stolen") is None
    assert page.locator("script").count() == 3
    assert page.locator("img[onerror]").count() == 0
    labels = page.locator("[data-gallery=relabel] .change .label").all_inner_texts()
    assert {SCRIPT, IMAGE} <= set(labels)
    names = page.locator("[data-gallery=relabel] .card p.id").all_inner_texts()
    assert "=cmd().png" in names


def test_a_script_that_gets_in_all_the_same_is_not_run(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.evaluate(
        """() => { const script = document.createElementNS("http://www.w3.org/1999/xhtml", "script");
        try { script.textContent = "window.stolen = 4"; } catch { return; }
        document.body.append(script); }"""
    )
    assert page.evaluate("window.stolen") is None
    assert page.evaluate("fetch('https://example.org').then(() => 'sent', () => 'refused')") == "refused"
    assert watched.complaints
    assert all("Content Security Policy" in line or "TrustedScript" in line for line in watched.complaints)
    watched.complaints.clear()


def test_the_table_filters_by_text_verdict_and_class(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    said = page.locator("#table-body .said")
    page.locator("[data-chip=ood]").click()
    assert said.inner_text() == "12 of 60 rows"
    assert {row[2] for row in rows_of(page)} == {"ood"}
    page.locator("[data-chip=relabel]").click()
    assert said.inner_text() == "27 of 60 rows"
    page.locator("#table-body input[type=search]").fill("=CMD")
    page.wait_for_selector("#table-body .said:text-is('1 of 60 rows')")
    assert rows_of(page)[0][1] == "=cmd().png"
    page.locator("#table-body input[type=search]").fill("no such row")
    page.wait_for_selector("#table-body .empty:not([hidden])")
    page.locator("button[data-verdict=uncertain]").click()
    assert said.inner_text() == "3 of 60 rows"
    page.locator("#table-body select").select_option(label=SCRIPT)
    assert [row[3] for row in rows_of(page)] == [SCRIPT]


def test_the_table_sorts_both_ways_and_back(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    head = page.locator("[data-column=ood]")
    before = rows_of(page)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    scores = [float(row[7]) for row in rows_of(page)]
    assert scores == sorted(scores)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    scores = [float(row[7]) for row in rows_of(page)]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.9
    head.locator("button").click()
    assert rows_of(page) == before


def test_the_table_goes_by_keyboard(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    view = page.locator(".grid")
    view.focus()
    for key in ("End", "ArrowUp", "ArrowUp", "Enter"):
        page.keyboard.press(key)
    assert page.locator("#detail-title").inner_text() == "p00057.png"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#detail-title").inner_text() == "p00055.png"
    page.keyboard.press("Escape")
    assert view.evaluate("view => view === document.activeElement")


def test_rows_are_saved_as_csv_without_formulas(watched: Watched, report: Path, tmp_path: Path) -> None:
    page = watched.open(report)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert "'=cmd().png" in {row["id"] for row in rows}
    assert SCRIPT in {row["given_label"] for row in rows}
    assert not any(value[:1] in "=+-@\t\r" for row in rows for value in row.values() if value)


def test_galleries_filter_order_and_go_by_arrows(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    gallery = page.locator("[data-gallery=relabel]")
    gallery.locator(".controls").get_by_label("Order").select_option("sure")
    said = gallery.locator(".sure span:last-child").all_inner_texts()
    meters = [int(text.removesuffix(" % likely right")) for text in said]
    assert meters == sorted(meters, reverse=True)
    gallery.locator(".controls").get_by_label("Order").select_option("unsure")
    said = gallery.locator(".sure span:last-child").all_inner_texts()
    meters = [int(text.removesuffix(" % likely right")) for text in said]
    assert meters == sorted(meters)
    gallery.locator("select").first.select_option(label="cat")
    assert {text.split("→")[0].strip() for text in gallery.locator(".change").all_inner_texts()} == {"cat"}
    first = gallery.locator(".open").first
    first.focus()
    page.keyboard.press("ArrowRight")
    assert gallery.locator(".open").nth(1).evaluate("card => card === document.activeElement")
    assert gallery.locator(".open[tabindex='0']").count() == 1


def test_cards_are_filtered_by_how_likely_they_are_right(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    gallery = page.locator("[data-gallery=ood]")
    filter_ = gallery.locator(".controls").get_by_label("Confidence")
    assert filter_.locator("option").all_inner_texts() == ["any", "80 % or more", "70 % or more"]
    everything = gallery.locator(".said[role=status]").inner_text()
    filter_.select_option("800")
    shown = gallery.locator(".sure span:last-child").all_inner_texts()
    assert all(int(text.split()[0]) >= 80 for text in shown)
    assert gallery.locator(".said[role=status]").inner_text() == everything
    assert page.locator("[data-gallery=uncertain] .controls").get_by_label("Confidence").count() == 0
    first = page.locator("[data-gallery=uncertain] .sure span:last-child").first.inner_text()
    assert first == "label 50 % likely right"


def test_a_click_anywhere_on_a_card_opens_it(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    card = page.locator("[data-gallery=relabel] .card").nth(1)
    card.locator(".sure").click()
    assert page.locator("#detail-title").inner_text() == card.locator("p.id").inner_text()
    page.keyboard.press("Escape")
    assert card.locator(".open").evaluate("button => button === document.activeElement")


def test_text_stands_on_cards_in_the_dialog_and_in_the_table(watched: Watched, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    texts = [f"word{row} {SCRIPT}\nsecond line" for row in range(60)]
    write_cells({"text": texts, "from": ["=here" if row % 2 else "" for row in range(60)]}, run)
    page = watched.open(write_report(run).out)
    card = page.locator("[data-gallery=relabel] .card").first
    row = int(card.get_attribute("data-row"))
    assert card.locator(".open").inner_text() == texts[row]
    assert card.locator(".cells dt").all_inner_texts() == (
        ["from"] if row % 2 else []
    )  # the text stands once
    card.locator(".open").click()
    assert page.locator("dialog .cells dd").first.inner_text() == texts[row]
    near = page.locator("dialog .near .told li").all_inner_texts()
    assert len(near) == 5
    assert {text.split()[0] for text in near} == {f"word{(row + step) % 60}" for step in range(1, 6)}
    page.keyboard.press("Escape")
    page.locator("#table-body input[type=search]").fill("word59")
    page.wait_for_selector("#table-body .said:text-is('1 of 60 rows')")
    assert rows_of(page)[0][1:3] == [texts[59], "=here"]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open(newline="") as file:
        (saved,) = csv.DictReader(file)
    assert (saved["text"].replace("\r", ""), saved["from"]) == (texts[59], "'=here")
    assert page.evaluate("window.stolen") is None


def test_a_pair_of_the_confusion_opens_its_mislabels(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    cell = page.locator(".matrix td button").first
    number = int(cell.inner_text())
    cell.click()
    shown = page.locator("[data-gallery=relabel] .said[role=status]").inner_text()
    assert shown == f"{number} of {number} shown"


def find_point(box: dict[str, float], tip: Any, go: Callable[[float, float], None]) -> tuple[float, float]:
    """Go over the map until a sample is told of; where that was."""
    for y in range(20, int(box["height"]), 14):
        for x in range(20, int(box["width"]), 14):
            place = (box["x"] + x, box["y"] + y)
            go(*place)
            if tip.is_visible():
                return place
    raise AssertionError("there is no sample on the map")


def test_the_map_shows_a_picture_under_the_pointer_and_by_keyboard(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    canvas = page.locator("#map canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    tip = page.locator("#tip")
    assert tip.is_hidden()
    find_point(box, tip, page.mouse.move)
    assert tip.locator("img").is_visible()
    page.mouse.move(5, 5)
    assert tip.is_hidden()
    canvas.focus()
    page.keyboard.press("ArrowRight")
    first = tip.locator(".id").inner_text()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert tip.is_visible()
    page.keyboard.press("Enter")
    assert page.locator("dialog[open]").count() == 1
    assert first


def test_a_tap_on_the_map_shows_a_picture_and_another_opens_it(browser: Any, report: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = Watched(context.new_page()).open(report)
    canvas, tip = page.locator("#map canvas"), page.locator("#tip")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    place = find_point(box, tip, page.touchscreen.tap)
    assert tip.locator("img").is_visible()
    assert page.locator("dialog[open]").count() == 0
    page.touchscreen.tap(*place)
    page.wait_for_selector("dialog[open]")
    context.close()


def test_arrows_on_the_map_walk_only_over_what_is_singled_out(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.locator(".legend button", has_text="ood").click()
    page.locator("#map canvas").focus()
    seen = set()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "ArrowUp"):
        page.keyboard.press(key)
        seen.add(page.locator("#tip .verdict").inner_text())
    assert seen == {"ood"}


def test_the_slider_tells_what_another_threshold_would_do(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    output = page.locator(".border output")
    assert "threshold 0.500" in output.inner_text()
    assert "12 of the 60 photos would be rejected; this is the threshold in use" in output.inner_text()
    bars = page.locator(".border rect")
    assert bars.count() > page.locator(".border rect.rejected").count() > 0
    assert page.locator(".border rect.known.rejected").count() == 0  # these score 0.1 to 0.2, OOD over 0.9
    assert page.locator(".border rect.ood:not(.rejected)").count() == 0
    assert "like a class, detector's score 0.10" in page.locator(".border svg").inner_html()
    slider = page.locator(".border input[type=range]")
    slider.focus()
    page.keyboard.press("Home")
    assert "59 of the 60 photos would be rejected." in output.inner_text()
    page.keyboard.press("End")
    assert "0 of the 60" in output.inner_text()
    output.get_by_role("button").click()
    assert "threshold 0.500" in output.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_system_and_can_be_told_otherwise(browser: Any, report: Path, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = Watched(context.new_page()).open(report)
    bright = "() => Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]) > 128"
    assert page.evaluate(bright) == (scheme == "light")
    page.locator("#theme").click()
    assert page.evaluate(bright) == (scheme == "dark")
    context.close()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_is_wider_than_the_window(browser: Any, report: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = Watched(context.new_page()).open(report)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize("width", [390, 768])
def test_names_in_the_table_are_whole_in_narrow_windows(browser: Any, report: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = Watched(context.new_page()).open(report)
    cut = page.locator(".rows .cell.id").evaluate_all(
        "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"
    )
    assert all(len(name) > 16 for name in cut)
    tops = page.locator(".rows .line").evaluate_all("lines => lines.map(line => line.offsetTop)")
    heights = page.locator(".rows .line").evaluate_all("lines => lines.map(line => line.offsetHeight)")
    assert {below - above for above, below in pairwise(tops)} == set(heights)
    context.close()


CONTRAST = """() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  const read = (color) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const faint = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest("script, .off-screen, svg")) continue;
    const around = [];
    for (let part = node; part; part = part.parentElement) around.unshift(part);
    const behind = around.map((part) => read(getComputedStyle(part).backgroundColor));
    const under = behind.reduce((color, part) => over(part, color), [255, 255, 255]);
    const ink = read(getComputedStyle(node).color);
    ink[3] *= around.reduce((product, part) => product * Number(getComputedStyle(part).opacity), 1);
    const [dark, bright] = [light(over(ink, under)), light(under)].sort((a, b) => a - b);
    if ((bright + 0.05) / (dark + 0.05) < 4.5) faint.push(node.outerHTML.slice(0, 120));
  }
  return faint;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser: Any, report: Path, scheme: str) -> None:
    """4.5 to 1, as WCAG AA asks."""
    context = browser.new_context(color_scheme=scheme)
    page = Watched(context.new_page()).open(report)
    assert page.evaluate(CONTRAST) == []
    context.close()


def test_on_paper_it_is_light_and_without_what_can_only_be_pressed(browser: Any, report: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Watched(context.new_page()).open(report)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST) == []
    assert page.locator(".bar, .controls, .zoom, #table, input, .more").locator("visible=true").count() == 0
    context.close()


def test_neighbors_without_pictures_are_counted_and_named(watched: Watched, bare: Path) -> None:
    page = watched.open(bare)
    card = page.locator("[data-gallery=relabel] .card").first
    kinds = card.locator(".near li").all_inner_texts()
    assert sum(int(text.split(" × ")[0]) for text in kinds) == 5
    card.locator(".open").click()
    names = ", ".join(page.locator("dialog .near .id").all_inner_texts()).split(", ")
    assert len(set(names)) == 5
    assert all(name.endswith(".png") for name in names)


def test_where_no_verdict_could_be_given_no_card_is_sure_of_one(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(write_report(take_scores(make_run(tmp_path / "run"))).out)
    assert page.locator("[data-gallery=uncertain] .card").count() > 0
    assert "%" not in "".join(page.locator("[data-gallery=uncertain] .card").all_inner_texts())
    assert page.locator(".sure").count() == 0


def test_everything_that_can_be_pressed_has_a_name(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, a, select, input, canvas, [role=img]")]
        .filter(item => {
        const words = [item.getAttribute("aria-label"), item.textContent, item.labels?.[0]?.textContent];
        return !words.some(text => text && text.trim());
        }).map(item => item.outerHTML.slice(0, 80))"""
    )
    assert nameless == []
    assert page.evaluate("[...document.images].every(image => image.hasAttribute('alt'))")


def test_a_hundred_thousand_rows_are_quick_to_filter_and_few_in_the_document(
    watched: Watched, large: Path
) -> None:
    page = watched.open(large)
    assert page.locator("#table-body .said").inner_text() == "100,000 rows"
    assert page.locator(".rows .line").count() < 60
    page.locator("[data-column=quality] button").click()
    page.locator("#table-body input[type=search]").fill("p0999")
    page.wait_for_selector("#table-body .said:text-is('10 of 100,000 rows')")
    page.locator("#table-body input[type=search]").fill("")
    page.wait_for_selector("#table-body .said:text-is('100,000 rows')")
    page.locator(".grid").focus()
    page.keyboard.press("End")
    assert rows_of(page)[-1][0]
    assert page.locator(".rows .line").count() < 60
    assert "12 of 30 classes" in page.locator("#matrix-about").inner_text()


def test_without_scripts_the_summary_is_there(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.absolute().as_uri())
    assert "15 of 60 labels look wrong" in page.locator("h1").inner_text()
    assert page.locator("noscript").count() == 1
    context.close()


def test_photos_with_issues_are_shown_and_filtered(watched: Watched, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    table = pd.read_parquet(run / "verdicts.parquet")
    found = [["blank", "dark"], ["dark"], ["grayscale"], *([] for _ in range(len(table) - 3))]
    table.assign(photo_issues=found).to_parquet(run / "verdicts.parquet", index=False)
    summary = json.loads((run / "summary.json").read_text())
    counts = {"blank": 1, "dark": 2, "grayscale": 1}
    (run / "summary.json").write_text(json.dumps({**summary, "photo_issues": counts}))
    page = watched.open(write_report(run).out)
    section = page.locator("#photos")
    assert "3 photos" in section.inner_text()
    assert "1 blank (one color all over), 2 dark" in section.inner_text()
    assert section.locator(".card").count() == 3
    section.get_by_label("Issue").select_option("dark")
    assert section.locator(".card").count() == 2
    assert "blank, dark" in section.locator(".card").first.inner_text()
    section.locator(".card .open").first.click()
    assert "As a photo" in page.locator("#detail").inner_text()


def test_duplicate_groups_are_shown_conflicts_first(watched: Watched, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    table = pd.read_parquet(run / "verdicts.parquet")
    group = pd.Series(pd.NA, index=table.index, dtype="Int64")
    group[[0, 1]] = 2
    group[[2, *range(40, 52)]] = 1
    table.loc[[2, *range(40, 52)], "given_label"] = table["given_label"][2]
    assert table["given_label"][0] != table["given_label"][1]
    table.assign(duplicate_group=group).to_parquet(run / "verdicts.parquet", index=False)
    page = watched.open(write_report(run).out)
    section = page.locator("#duplicates")
    assert "2 groups of photos that show the same thing" in section.inner_text()
    assert "1 carries conflicting labels, and comes first" in section.inner_text()
    cards = section.locator(".group")
    assert [card.get_attribute("class") for card in cards.all()] == ["card group conflict", "card group"]
    assert "2 photos, conflicting labels" in cards.nth(0).inner_text()
    assert cards.nth(1).locator("li").count() == 10
    assert "and 3 more" in cards.nth(1).inner_text()
    cards.nth(0).locator("button").nth(1).click()
    assert page.locator("#detail-title").inner_text() == table["id"][1]
    assert "2 of 2" in page.locator("#detail").inner_text()


def test_without_duplicates_there_is_no_such_section(watched: Watched, report: Path) -> None:
    assert watched.open(report).locator("#duplicates").count() == 0
