"""The review's server: what it does, and all that it must not."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphclean.errors import InputError
from graphclean.report import review
from graphclean.report.build import Page, build_page
from graphclean.report.review import MOST_REQUEST_BYTES, ReviewServer, answering, open_review, prepare
from graphclean.runs.decisions import DecisionLog, read_decisions
from tests.builders import Cli
from tests.report.builders import CLASSES, make_run

TOKEN = "t" * 43


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review")
    return make_run(folder / "run", photos=folder / "photos")


@pytest.fixture(scope="module")
def built(run: Path) -> Page:
    return build_page(run, token=TOKEN)


@pytest.fixture(scope="module")
def page(built: Page) -> bytes:
    return built.content


@pytest.fixture
def server(run: Path, built: Page) -> Iterator[ReviewServer]:
    """As `open_review` makes it; the page is made once for all tests."""
    (run / "decisions.jsonl").unlink(missing_ok=True)
    with (
        DecisionLog(run) as log,
        ReviewServer(log, token=TOKEN, by="Ada") as server,
        answering(server),
    ):
        server.show(built)
        yield server


class Asker:
    """Requests as a browser on our own page would make them, unless told otherwise."""

    def __init__(self, server: ReviewServer) -> None:
        self.server, self.port = server, server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"

    def __call__(
        self, method: str, path: str, body: Any = None, **headers: str | None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        given: dict[str, str | None] = {"Host": self.host, "X-Token": TOKEN}
        if method == "POST":
            given |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if content is not None and "Content-Length" not in given:
            given["Content-Length"] = str(len(content))
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        found = answer.status, answer.read(), answer.headers
        connection.close()
        return found

    @property
    def written(self) -> int:
        """Decisions on the disk."""
        return len(read_decisions(self.server.log.path))


@pytest.fixture
def ask(server: ReviewServer) -> Asker:
    return Asker(server)


ACCEPT = {"rows": [33], "kind": "accept"}


def test_the_page_needs_its_token(ask: Asker) -> None:
    status, page, headers = ask("GET", f"/?token={TOKEN}")
    assert status == 200
    assert b'"mode":"review"' in page
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"
    for query in (
        "",
        "?token=",
        "?token=wrong",
        f"?token={TOKEN}x",
        "?token=%ff",
        "?token=%CE%B6",
    ):
        status, page, _ = ask("GET", f"/{query}")
        assert status == 403
        assert TOKEN.encode() not in page


def test_a_class_that_is_cut_in_the_page_is_decided_by_its_name(ask: Asker, built: Page) -> None:
    ask.server.show(built._replace(cut={"ca… (1)": CLASSES[0]}))
    asked = {"rows": [33], "kind": "label", "label": "ca… (1)"}
    assert json.loads(ask("POST", "/decide", asked)[1])[0]["label"] == CLASSES[0]


def test_a_decision_is_on_the_disk_when_it_is_answered(ask: Asker) -> None:
    status, answer, _ = ask("POST", "/decide", ACCEPT)
    assert status == 200
    (held,) = json.loads(answer)
    assert (held["row"], held["label"], held["by"]) == (33, CLASSES[2], "Ada")
    assert ask.written == 1
    assert json.loads(ask("GET", "/decisions")[1]) == {"decisions": [held], "notes": {}}
    assert json.loads(ask("POST", "/decide", {"rows": [33], "kind": "undo"})[1]) == [None]
    assert json.loads(ask("GET", "/decisions")[1])["decisions"] == []
    assert ask.written == 2


def test_many_rows_are_decided_and_undone_in_one_step(ask: Asker) -> None:
    ask("POST", "/decide", {"rows": [46], "kind": "reject"})
    rows = list(range(30, 46))
    held = json.loads(ask("POST", "/decide", {"rows": rows, "kind": "accept"})[1])
    assert [state["row"] for state in held] == rows
    assert len({state["time"] for state in held}) == 1
    # One of them that has nothing to undo, and none is undone.
    assert ask("POST", "/decide", {"rows": [*rows, 50], "kind": "undo"})[0] == 400
    assert ask("POST", "/decide", {"rows": [30, 30], "kind": "undo"})[0] == 400
    assert ask.written == 17
    assert json.loads(ask("POST", "/decide", {"rows": rows, "kind": "undo"})[1]) == [None] * 16
    assert [state["row"] for state in json.loads(ask("GET", "/decisions")[1])["decisions"]] == [46]


def test_a_note_is_kept_beside_what_was_decided(ask: Asker) -> None:
    ask("POST", "/decide", ACCEPT)
    for text in ("first", " ask Ben <b> "):
        (held,) = json.loads(ask("POST", "/decide", {"rows": [33], "kind": "note", "note": text})[1])
        assert held["kind"] == "accept"
    assert json.loads(ask("GET", "/decisions")[1])["notes"] == {"33": "ask Ben <b>"}
    # To undo is to undo the decision; an empty note takes the note away.
    assert json.loads(ask("POST", "/decide", {"rows": [33], "kind": "undo"})[1]) == [None]
    assert json.loads(ask("GET", "/decisions")[1])["notes"] == {"33": "ask Ben <b>"}
    ask("POST", "/decide", {"rows": [33], "kind": "note", "note": " "})
    assert json.loads(ask("GET", "/decisions")[1]) == {"decisions": [], "notes": {}}


def test_decisions_from_many_threads_are_all_written(ask: Asker) -> None:
    bodies = [{"rows": [row], "kind": "accept"} for row in range(20)]
    threads = [threading.Thread(target=ask, args=("POST", "/decide", body)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {decision.row for decision in read_decisions(ask.server.log.path)} == set(range(20))


@pytest.mark.parametrize("token", [None, "", "wrong", "ζ".encode().decode("latin-1")])
def test_no_decision_without_the_token(ask: Asker, token: str | None) -> None:
    assert ask("POST", "/decide", ACCEPT, X_Token=token)[0] == 403
    assert ask("GET", "/decisions", X_Token=token)[0] == 403
    assert ask.written == 0


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1", "http://127.0.0.1:1", None]
)
def test_no_decision_from_another_origin(ask: Asker, origin: str | None) -> None:
    assert ask("POST", "/decide", ACCEPT, Origin=origin)[0] == 403
    assert ask.written == 0


def test_another_site_can_not_read_or_show_anything(ask: Asker) -> None:
    for site in ("cross-site", "same-site"):
        assert ask("GET", f"/picture/0?token={TOKEN}", Sec_Fetch_Site=site)[0] == 403
        assert ask("POST", "/decide", ACCEPT, Sec_Fetch_Site=site)[0] == 403
    assert ask("GET", "/decisions", Origin="http://evil.example")[0] == 403
    assert "Access-Control-Allow-Origin" not in ask("GET", "/decisions")[2]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "evil.example@127.0.0.1", "[::1", "", None, "0.0.0.0"]
)
def test_a_name_pointed_at_this_machine_is_refused(ask: Asker, host: str | None) -> None:
    origin = f"http://{host}"
    assert ask("GET", f"/?token={TOKEN}", Host=host)[0] == 403
    assert ask("POST", "/decide", ACCEPT, Host=host, Origin=origin)[0] == 403
    assert ask.written == 0


def test_localhost_is_a_name_of_this_machine(ask: Asker) -> None:
    host = f"localhost:{ask.port}"
    assert ask("POST", "/decide", ACCEPT, Host=host, Origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize(
    "head",
    [
        "GET /?token={token} HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n",
        "GET /?token={token} HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n",
        "GET http://evil.example/?token={token} HTTP/1.1\r\nHost: {host}\r\n",
        "GET ?token={token} HTTP/1.1\r\nHost: {host}\r\n",
        "GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1:\u00b2\r\n",
    ],
)
def test_a_request_is_for_one_host(ask: Asker, head: str) -> None:
    with socket.create_connection(("127.0.0.1", ask.port), timeout=10) as connection:
        connection.sendall((head.format(token=TOKEN, host=ask.host) + "\r\n").encode("latin-1"))
        assert connection.recv(15).split()[1] == b"403"


@pytest.mark.parametrize("start", [b"", b"POST /decide HTTP/1.0\r\nX: "])
def test_a_request_that_trickles_in_is_ended(
    ask: Asker, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(review, "LONGEST_REQUEST", 0.4)
    with socket.create_connection(("127.0.0.1", ask.port), timeout=10) as connection:
        connection.sendall(start)
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() < begun + 5:
                connection.sendall(b"x")
                connection.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(100):
                        break
        assert time.monotonic() < begun + 3
    deadline = time.monotonic() + 5
    while ask.server.reading and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ask.server.reading == {}
    assert ask("GET", "/decisions")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/config.json", "/../config.json", "/%2e%2e/config.json", "/verdicts.csv", "//etc/passwd"),
        *("/picture/../config.json", "/picture/..%2f..%2fetc%2fpasswd", "/picture/-1", "/picture/%D9%A1"),
        *("/picture/60", "/picture/99999999999999999999", "/picture/", "/picture/0/0", "/picture/0x0"),
    ],
)
def test_no_file_can_be_named(ask: Asker, path: str) -> None:
    assert ask("GET", f"{path}?token={TOKEN}")[0] == 404


def test_pictures_are_those_of_samples(ask: Asker) -> None:
    status, content, headers = ask("GET", f"/picture/7?token={TOKEN}")
    assert (status, headers["Content-Type"]) == (200, "image/jpeg")
    assert content.startswith(b"\xff\xd8")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert ask("GET", "/picture/7")[0] == 403


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x", {"Content_Length": str(MOST_REQUEST_BYTES + 1)}, 413),
        (b"", {"Content_Length": None}, 411),
        (b"{}", {"Content_Length": "-1"}, 411),
        (b"{}", {"Content_Type": "text/plain"}, 415),
        (b"{}", {"Content_Type": None}, 415),
        (b"no json", {}, 400),
        (b"[" * 400_000, {}, 400),
        (b"[]", {}, 400),
        (b"\xff\xfe", {}, 400),
        ({}, {}, 400),
        ({"rows": [33], "kind": "delete"}, {}, 400),
        ({"rows": [33], "kind": ["accept"]}, {}, 400),
        ({"rows": [33], "kind": "label", "label": {"a": 1}}, {}, 400),
        ({"rows": [1e9], "kind": "accept"}, {}, 400),
        ({"rows": [33], "kind": "undo"}, {}, 400),
        ({"rows": 33, "kind": "accept"}, {}, 400),
        ({"rows": [], "kind": "accept"}, {}, 400),
        ({"rows": [33, 60], "kind": "accept"}, {}, 400),
        ({"rows": [33], "kind": "note"}, {}, 400),
        ({"rows": [33], "kind": "note", "note": "x" * 1001}, {}, 400),
    ],
)
def test_what_is_no_decision_is_refused(ask: Asker, body: Any, headers: dict[str, Any], status: int) -> None:
    assert ask("POST", "/decide", body, **headers)[0] == status
    assert ask.written == 0


def test_other_methods_and_places_are_refused(ask: Asker) -> None:
    assert ask("POST", "/", ACCEPT)[0] == 404
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert ask(method, "/decide")[0] == 501


def test_it_listens_on_loopback_alone(ask: Asker) -> None:
    assert ask.server.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line(server: ReviewServer, tmp_path: Path) -> None:
    run = make_run(tmp_path / "other")
    with DecisionLog(run) as log, pytest.raises(InputError, match="can't be opened"):
        open_review(log, port=server.server_address[1])


def test_two_servers_have_two_tokens(tmp_path: Path) -> None:
    run = make_run(tmp_path / "other")
    with DecisionLog(run) as log, open_review(log) as first, open_review(log) as second:
        assert len(first.token) >= 40
        assert first.token != second.token
        prepare(first, run)
        assert first.page is not None
        assert first.token.encode() in first.page.content


def test_who_comes_before_the_page_is_ready_is_told_so(
    run: Path, built: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "PATIENCE", 0.01)
    with DecisionLog(run) as log, ReviewServer(log, token=TOKEN) as server, answering(server):
        ask = Asker(server)
        server.stage = "reading <pictures>, 3 of 60 …"
        status, content, headers = ask("GET", f"/?token={TOKEN}")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert b"reading &lt;pictures&gt;, 3 of 60" in content
        assert b'http-equiv="refresh"' in content
        assert ask("GET", "/")[0] == 403
        assert ask("GET", f"/picture/7?token={TOKEN}")[0] == 404
        server.show(built)
        assert ask("GET", f"/?token={TOKEN}")[1] == built.content


def test_an_interrupt_that_gets_lost_on_the_way_ends_the_review(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Python drops one that comes in a callback of its own, while modules are loaded."""
    run = make_run(tmp_path / "run")

    def lose(*_: object, **__: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(review, "prepare", lose)
    done = cli("review", str(run))
    assert done.code == 0
    assert "Review: http://127.0.0.1:" in done.out


@pytest.mark.slow
def test_the_command_line_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    command = [sys.executable, "-m", "graphclean", "review", str(run)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[1]
            host, token = address.removeprefix("http://").split("/?token=")
            with socket.create_connection(host.split(":"), timeout=60) as connection:
                connection.sendall(f"GET /?token={token} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
                assert connection.recv(15) == b"HTTP/1.0 200 OK"
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "0 samples decided" in out


def test_what_is_not_a_run_is_one_line(refuse: Any) -> None:
    refuse("review nowhere", "no such run folder")
    refuse("review .", "not a run folder")
