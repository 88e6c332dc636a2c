"""A review in a real browser."""

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from graphclean.report.review import ReviewServer, answering, open_review, prepare
from graphclean.runs.decisions import DecisionLog, read_decisions, settle, settle_notes
from tests.browser.conftest import Watched
from tests.report.builders import SCRIPT, make_run

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReviewServer]:
    run = make_run(tmp_path / "run", photos=tmp_path / "photos")
    with DecisionLog(run) as log, open_review(log) as server, answering(server):
        prepare(server, run)
        yield server


@pytest.fixture
def watched(server: ReviewServer, watched: Watched) -> Watched:
    """A page that is closed before the server is, so that no picture is asked for in vain."""
    del server
    return watched


def held(server: ReviewServer) -> dict[int, tuple[str, str | None]]:
    """Kind and label of what holds, by row, from the disk."""
    found = settle(read_decisions(server.log.path))
    return {row: (decision.kind, decision.label) for row, decision in found.items()}


def until(page: Any, expression: str, arg: Any = None) -> None:
    """Ask until it is so; Playwright's own way compiles text in the page, which the page's policy forbids."""
    for _ in range(500):
        if page.evaluate(expression, arg):
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"never so: {expression}")


def wait_for(page: Any, done: int) -> None:
    page.wait_for_selector(f".review-bar [role=status]:text-is('{done} of 30 suspects reviewed')")


def test_decisions_by_mouse(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    cards = page.locator("[data-gallery=relabel] .card")
    rows = [int(cards.nth(place).get_attribute("data-row")) for place in range(4)]
    cards.nth(0).locator("[data-kind=accept]").click()
    wait_for(page, 1)
    cards.nth(1).locator("[data-kind=reject]").click()
    wait_for(page, 2)
    other = cards.nth(2).locator("select")
    assert other.locator("option").count() == 2
    other.focus()  # the classes come with it
    other.select_option(label=SCRIPT)
    wait_for(page, 3)
    cards.nth(3).locator("select").select_option("none")
    wait_for(page, 4)
    samples = server.log.samples
    assert held(server) == {
        rows[0]: ("accept", samples.proposed[rows[0]]),
        rows[1]: ("reject", samples.given[rows[1]]),
        rows[2]: ("label", SCRIPT),
        rows[3]: ("remove", None),
    }
    assert SCRIPT in cards.nth(2).locator(".outcome").inner_text()
    cards.nth(1).locator("[data-kind=undo]").click()
    wait_for(page, 3)
    assert rows[1] not in held(server)
    assert {url.split("?")[0].removeprefix(server.address.split("?")[0]) for url in watched.asked} == {
        *("", "decisions", "decide")
    }


def test_decisions_by_keyboard(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    buttons = page.locator("[data-gallery=relabel] .open")
    rows = [int(buttons.nth(place).get_attribute("data-row")) for place in range(4)]
    buttons.first.focus()
    for done, key in enumerate("arx", 1):
        page.keyboard.press(key)
        wait_for(page, done)
    assert [held(server)[row][0] for row in rows[:3]] == ["accept", "reject", "remove"]
    page.wait_for_selector(f".open[data-row='{rows[3]}']:focus")
    page.keyboard.press("u")
    wait_for(page, 2)
    assert rows[2] not in held(server)


def test_a_key_leads_to_the_first_that_waits_and_decides_nothing(
    watched: Watched, server: ReviewServer
) -> None:
    page = watched.open(server.address)
    cards = page.locator("[data-gallery=relabel] .card")
    rows = [int(cards.nth(place).get_attribute("data-row")) for place in range(2)]
    page.keyboard.press("a")
    page.wait_for_selector(f".open[data-row='{rows[0]}']:focus")
    assert held(server) == {}
    page.keyboard.press("a")
    wait_for(page, 1)
    # Later it goes on where it was, also when the cards were made again.
    page = watched.open(server.address)
    wait_for(page, 1)
    page.get_by_label("Order").first.select_option("sure")
    page.get_by_label("Order").first.select_option("varied")
    page.locator("h1").click()
    page.keyboard.press("r")
    page.wait_for_selector(f".open[data-row='{rows[1]}']:focus")
    assert page.locator(f".card.done[data-row='{rows[0]}']").count() == 1
    assert list(held(server)) == rows[:1]


@pytest.mark.parametrize("keys", ["l ArrowDown ArrowDown Enter", "l Escape c c Enter"])
def test_another_label_by_keyboard_is_decided_by_enter_alone(
    watched: Watched, server: ReviewServer, keys: str
) -> None:
    """An arrow or a letter on a closed list is a choice to the browser."""
    page = watched.open(server.address)
    buttons = page.locator("[data-gallery=relabel] .open")
    row = int(buttons.first.get_attribute("data-row"))
    buttons.first.focus()
    for key in keys.split():
        assert held(server) == {}
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    wait_for(page, 1)
    assert held(server) == {row: ("label", "cat")}
    until(page, "button => button === document.activeElement", buttons.nth(1).element_handle())


def test_the_table_shows_what_was_decided_until_it_is_undone(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    page.locator("[data-chip=ood]").click()
    line = page.locator(".rows .line").first
    before = line.locator(".cell.proposed").inner_text()
    line.click()
    page.keyboard.press("r")
    wait_for(page, 1)
    page.keyboard.press("Escape")
    assert line.locator(".cell.proposed").inner_text() == f"✓ {line.locator('.cell.given').inner_text()}"
    page.get_by_role("button", name="Undo last").click()
    wait_for(page, 0)
    assert line.locator(".cell.proposed").inner_text() == before


def test_the_keyboard_alone_goes_through_all_suspects(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    page.locator("[data-gallery=relabel] .open").first.focus()
    bar = page.locator(".review-bar").bounding_box()["y"]
    for done in range(1, 31):
        row = page.evaluate("document.activeElement.dataset.row")
        page.keyboard.press("a")
        wait_for(page, done)
        if done < 30:
            until(page, "row => document.activeElement.dataset.row !== row", row)
            card = page.locator(".card:focus-within").bounding_box()
            assert 56 < card["y"] < card["y"] + card["height"] < bar
    assert len(held(server)) == 30


def test_undo_by_key_goes_back_to_what_was_undone(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    first = page.locator("[data-gallery=relabel] .open").first
    first.focus()
    page.keyboard.press("a")
    wait_for(page, 1)
    page.keyboard.press("u")
    wait_for(page, 0)
    until(page, "button => button === document.activeElement", first.element_handle())
    first.click()
    title = page.locator("#detail-title").inner_text()
    page.keyboard.press("r")
    page.wait_for_selector("dialog .said:text-matches('^2 of')")
    page.keyboard.press("u")
    page.wait_for_selector("dialog .said:text-matches('^1 of')")
    assert page.locator("#detail-title").inner_text() == title
    assert page.locator("dialog .outcome, .card.done").count() == 0
    assert held(server) == {}


def test_all_that_a_filter_leaves_are_accepted_and_undone_in_one_step(
    watched: Watched, server: ReviewServer
) -> None:
    page = watched.open(server.address)
    gallery = page.locator("[data-gallery=relabel]")
    accept = gallery.get_by_role("button", name="Accept all")
    assert accept.inner_text() == "Accept all 15"
    gallery.locator("[data-kind=reject]").first.click()
    wait_for(page, 1)
    assert accept.inner_text() == "Accept all 14"
    gallery.locator(".controls").get_by_label("Given").select_option(label="cat")
    left = int(accept.inner_text().removeprefix("Accept all "))
    assert 0 < left < 14
    accept.click()
    page.wait_for_selector(f".review-bar [role=status]:has-text('{left} accepted in one step')")
    assert accept.is_disabled()
    kinds = [kind for kind, _ in held(server).values()]
    assert sorted(kinds) == ["accept"] * left + ["reject"]
    page.locator("h1").click()
    page.keyboard.press("u")
    wait_for(page, 1)
    assert [kind for kind, _ in held(server).values()] == ["reject"]
    # Also what is behind “Show more”.
    gallery.locator(".controls").get_by_label("Given").select_option("")
    assert gallery.locator(".card").count() < 15
    accept.click()
    page.wait_for_selector(".review-bar [role=status]:has-text('14 accepted')")
    watched.open(server.address)
    wait_for(page, 15)
    page.get_by_role("button", name="Undo last").click()
    wait_for(page, 1)


def test_what_is_uncertain_keeps_its_label_all_at_once(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    page.get_by_role("button", name="Keep labels of all 3").click()
    page.wait_for_selector(".review-bar [role=status]:has-text('3 accepted')")
    assert all(kind == "accept" and label is not None for kind, label in held(server).values())


def test_the_next_undecided_is_found_by_key_and_by_button(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    cards = page.locator("[data-gallery=relabel] .card")
    rows = [int(cards.nth(place).get_attribute("data-row")) for place in range(5)]
    for place in (1, 2):
        cards.nth(place).locator("[data-kind=reject]").click()
        wait_for(page, place)
    cards.first.locator(".open").focus()
    page.keyboard.press("n")
    page.wait_for_selector(f".open[data-row='{rows[3]}']:focus")
    page.get_by_role("button", name="Next undecided").click()
    page.wait_for_selector(f".open[data-row='{rows[4]}']:focus")
    # In the dialog, too; and from the last it goes on with the first that waits.
    cards.first.locator(".open").click()
    page.keyboard.press("n")
    page.wait_for_selector("dialog .said:text-matches('^4 of')")
    page.locator("dialog").get_by_role("button", name="Next undecided").click()
    page.wait_for_selector("dialog .said:text-matches('^5 of')")
    page.keyboard.press("Escape")
    uncertain = page.locator("[data-gallery=uncertain] .card .open")
    uncertain.last.focus()
    page.keyboard.press("n")
    page.wait_for_selector(f".open[data-row='{rows[0]}']:focus")


def test_notes_are_written_shown_and_kept(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    card = page.locator("[data-gallery=relabel] .card").first
    row = int(card.get_attribute("data-row"))
    card.locator(".open").focus()
    page.keyboard.press("t")
    field = page.locator("dialog textarea")
    assert field.evaluate("field => field === document.activeElement")
    page.keyboard.type("a <b> & u")
    page.keyboard.press("Enter")
    card.locator(".note").wait_for(state="attached")
    assert card.locator(".note").text_content() == "a <b> & u"
    assert held(server) == {}
    # A note that is being written when something else is pressed is not lost, nor is the decision.
    field.fill("second")
    page.locator("dialog [data-kind=accept]").click()
    wait_for(page, 1)
    page.keyboard.press("Escape")
    notes = settle_notes(read_decisions(server.log.path))
    assert {row: note.note for row, note in notes.items()} == {row: "second"}
    watched.open(server.address)
    wait_for(page, 1)
    gallery = page.locator("[data-gallery=relabel]")
    gallery.locator(".controls").get_by_label("Reviewed").select_option("note")
    assert gallery.locator(".note").all_inner_texts() == ["second"]
    # Escape leaves the field, not the dialog.
    gallery.locator(".open").click()
    page.keyboard.press("t")
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("t")
    page.locator("dialog textarea").fill("")
    page.keyboard.press("Escape")
    page.wait_for_selector(".note", state="detached")
    assert settle_notes(read_decisions(server.log.path)) == {}


def test_decisions_in_the_dialog_go_on_to_the_next(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    page.locator("[data-gallery=ood] .open").first.click()
    title = page.locator("#detail-title")
    first = title.inner_text()
    image = page.locator("dialog .big img")
    assert "/picture/" in image.get_attribute("src")
    page.keyboard.press("a")
    wait_for(page, 1)
    assert title.inner_text() != first
    page.keyboard.press("ArrowLeft")
    assert title.inner_text() == first
    assert "no class" in page.locator("dialog .outcome").inner_text()


def test_a_key_pressed_twice_is_one_decision(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    held_back: list[Any] = []
    page.route("**/decide", lambda route: held_back.append(route))
    page.locator("[data-gallery=ood] .open").first.click()
    page.keyboard.press("a")
    page.keyboard.press("a")
    page.wait_for_timeout(100)
    for route in held_back:
        route.continue_()
    wait_for(page, 1)
    page.wait_for_selector("dialog .said:text-matches('^2 of')")
    assert len(read_decisions(server.log.path)) == 1


def test_a_reload_shows_what_was_decided(watched: Watched, server: ReviewServer) -> None:
    page = watched.open(server.address)
    card = page.locator("[data-gallery=uncertain] .card").first
    card.locator("[data-kind=accept]").click()
    wait_for(page, 1)
    watched.open(server.address)
    wait_for(page, 1)
    assert page.locator("[data-gallery=uncertain] .card.done").count() == 1
    page.locator("[data-gallery=uncertain] .controls select").last.select_option("no")
    assert page.locator("[data-gallery=uncertain] .card").count() == 2
    page.get_by_role("button", name="Undo last").click()
    wait_for(page, 0)


def test_it_says_when_a_decision_was_not_saved(
    watched: Watched, server: ReviewServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = watched.open(server.address)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    page.locator("[data-gallery=relabel] [data-kind=accept]").first.click()
    page.wait_for_selector(".review-bar [role=alert]:has-text('No space left on device')")
    assert page.locator(".card.done").count() == 0
    page.locator("[data-gallery=relabel] .open").first.click()
    alert = "dialog [role=alert]:not([data-seen]):has-text('No space left on device')"
    page.keyboard.press("a")
    page.wait_for_selector(alert).evaluate("alert => { alert.dataset.seen = 1; }")
    page.keyboard.press("a")
    page.wait_for_selector(alert)
    assert page.locator("dialog [role=alert]").count() == 1
    monkeypatch.undo()
    page.keyboard.press("a")
    wait_for(page, 1)
    assert page.locator("[role=alert]:visible").count() == 0
    watched.complaints.clear()


def test_when_the_server_is_gone_it_says_so_and_shows_what_it_has(
    watched: Watched, server: ReviewServer
) -> None:
    page = watched.open(server.address)
    page.route("**/*", lambda route: route.abort())
    page.locator("[data-gallery=relabel] .open").first.click()
    until(page, "() => document.querySelector('dialog .big img').naturalWidth > 0")
    page.keyboard.press("a")
    page.wait_for_selector("dialog [role=alert]:has-text('Run graphclean review again')")
    assert page.locator(".card.done").count() == 0
    watched.complaints.clear()


class Elsewhere(BaseHTTPRequestHandler):
    """A page of another origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<link rel=icon href=data:,>another page")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("mode", "headers"),
    [
        ("no-cors", {"Content-Type": "text/plain"}),
        ("cors", {"Content-Type": "text/plain"}),
        ("cors", {"Content-Type": "application/json", "X-Token": "token"}),
    ],
)
def test_a_page_of_another_origin_can_not_decide(
    watched: Watched, server: ReviewServer, mode: str, headers: dict[str, str]
) -> None:
    """Even where it has found out the token."""
    sent = {name: value.replace("token", server.token) for name, value in headers.items()}
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as other:
        threading.Thread(target=other.serve_forever).start()
        watched.page.goto(f"http://127.0.0.1:{other.server_address[1]}/")
        answer = watched.page.evaluate(
            """([address, mode, headers]) => fetch(address + "decide", { method: "POST", mode, headers,
            body: JSON.stringify({ row: 33, kind: "accept" }) })
            .then(answer => answer.type, () => "refused")""",
            [server.address.split("?")[0], mode, sent],
        )
        framed = watched.page.evaluate(
            """address => new Promise(done => { const frame = document.createElement("iframe");
            frame.onload = () => done(frame.contentDocument === null || !frame.contentDocument.title);
            frame.src = address; document.body.append(frame); })""",
            server.address,
        )
        other.shutdown()
    assert answer == "refused"
    assert framed
    assert held(server) == {}
    watched.complaints.clear()


def test_nothing_is_wider_than_a_phone(browser: Any, server: ReviewServer) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740})
    page = Watched(context.new_page()).open(server.address)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".review-bar").bounding_box()["height"] < 70
    assert page.get_by_role("button", name="Undo last").bounding_box()["x"] < 300
    page.route("**/*", lambda route: route.abort())
    page.locator("[data-gallery=relabel] [data-kind=accept]").first.click()
    alert = page.locator(".review-bar [role=alert]")
    alert.wait_for()
    bar, said = page.locator(".review-bar").bounding_box(), alert.bounding_box()
    assert bar["y"] <= said["y"] < said["y"] + said["height"] <= bar["y"] + bar["height"] <= 740
    context.close()
