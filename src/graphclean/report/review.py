"""`graphclean review`: serve the report to this machine only, and save decisions as they are made."""

import hmac
import html
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..data.progress import Progress
from ..errors import InputError, parse_json
from ..runs.decisions import DecisionLog, now, settle_notes
from .build import Page, build_page

HOST = "127.0.0.1"
HERE = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.ASCII)
"""Host names that a browser may use, with any port, since a port may be forwarded from another machine. Any
other name was pointed at this machine by someone else.
"""
LONGEST_REQUEST = 20.0
"""Seconds to receive a whole request: one that trickles in would hold a thread forever."""
MOST_REQUEST_BYTES = 1_000_000
"""Maximum size of a request body: it may name every row of a large page."""
REVIEW_SIDE = 1024
"""Maximum side in pixels of a picture viewed on its own."""
PATIENCE = 1.0
"""Seconds that a browser waits for the page before it gets a progress message."""
WAITING = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<title>graphclean review</title><p>Getting the page ready: {}</p></html>
"""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):  # noqa: N818 – an answer, not a fault
    """A request answered with an error status and a one-line message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ReviewServer(ThreadingHTTPServer):
    """Serves a run's page and saves the decisions made on it."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        log: DecisionLog,
        *,
        token: str,
        port: int = 0,
        by: str | None = None,
    ) -> None:
        self.log, self.token, self.by = log, token, by
        self.page: Page | None = None
        self.stage = ""
        """The current stage of preparing the page."""
        self.ready = threading.Event()
        self.writing = threading.Lock()
        self.reading: dict[socket.socket, float] = {}
        """Connections whose request is incomplete, with their deadlines."""
        try:
            super().__init__((HOST, port), ReviewHandler)
        except OSError as error:
            raise InputError(f"port {port}: can't be opened: {error.strerror}") from error

    def show(self, page: Page) -> None:
        """Serve the page from now on."""
        self.page = page
        self.ready.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnect during a response."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def service_actions(self) -> None:
        """Called in every loop of the server: close connections past their deadline."""
        for connection, end in list(self.reading.items()):
            if time.monotonic() > end:
                with suppress(OSError):  # already closed
                    connection.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        """The URL of the page, including the token."""
        return f"http://{HOST}:{self.server_address[1]}/?token={self.token}"

    def states(self) -> dict[str, Any]:
        """The current decision of each row that has one, latest last, and the notes."""
        with self.writing:
            held, notes = self.log.settled.all(), settle_notes(self.log.decisions)
        return {
            "decisions": [asdict(decision) for decision in held.values()],
            "notes": {row: decision.note for row, decision in notes.items()},
        }

    def decide(self, asked: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Save one decision on several rows as a single step, and return the current decision of each."""
        rows = asked.get("rows")
        if not isinstance(rows, list) or not rows:
            raise InputError("a decision names its rows")
        kind, label, note, time = asked.get("kind"), asked.get("label"), asked.get("note"), now()
        if self.page is not None and isinstance(label, str):
            label = self.page.cut.get(label, label)
        with self.writing:
            samples, settled = self.log.samples, self.log.settled
            made = [samples.decide(row, kind, label, self.by, note=note, time=time) for row in rows]
            undone: set[int] = set()
            for decision in made if kind == "undo" else ():
                if settled.find(decision.row) is None or decision.row in undone:
                    raise InputError(f"there is nothing to undo for {decision.id}")
                undone.add(decision.row)
            self.log.add(*made)
            states = [settled.find(decision.row) for decision in made]
        return [None if state is None else asdict(state) for state in states]


class ReviewHandler(BaseHTTPRequestHandler):
    """Serves the page, decisions and pictures, and accepts decisions; no URL path names a file."""

    server: ReviewServer
    server_version, sys_version = "graphclean", ""
    timeout = LONGEST_REQUEST
    """Seconds without data, or to send an answer, before a connection is closed."""

    def setup(self) -> None:
        """Start the deadline for the request."""
        super().setup()
        self.server.reading[self.connection] = time.monotonic() + LONGEST_REQUEST

    def finish(self) -> None:
        """Clear the deadline, however the request ended."""
        self._have_read()
        super().finish()

    def do_GET(self) -> None:
        """Return the page, the decisions, or the picture of a sample."""
        self._have_read()
        self._answer(self._get)

    def do_POST(self) -> None:
        """Record a decision."""
        self._answer(self._post)

    def _have_read(self) -> None:
        self.server.reading.pop(self.connection, None)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal belongs to the reviewer."""

    def _answer(self, act: Callable[[], tuple[str, bytes]]) -> None:
        try:
            self._check_place()
            kind, content = act()
            status = 200
        except Refused as refused:
            status, kind, content = refused.status, "text/plain; charset=utf-8", f"{refused}\n".encode()
        except ValueError:  # not a valid URL
            status, kind, content = 400, "text/plain; charset=utf-8", b"not understood\n"
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(content)), **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _check_place(self) -> None:
        """Refuse requests for other host names or from other pages."""
        hosts = self.headers.get_all("Host", [])
        host = hosts[0] if len(hosts) == 1 else ""
        if not HERE.fullmatch(host) or not self.path.startswith("/"):
            raise Refused(403, "not for this host")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            raise Refused(403, "not from this origin")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise Refused(403, "not from this site")

    def _check_token(self, given: str | None) -> None:
        if not hmac.compare_digest((given or "").encode("utf-8", "replace"), self.server.token.encode()):
            raise Refused(403, "no token, or a wrong one; use the address that graphclean review printed")

    def _get(self) -> tuple[str, bytes]:
        target = urlsplit(self.path)
        asked = parse_qs(target.query).get("token", [""])[0]
        if target.path == "/":
            self._check_token(asked)
            self.server.ready.wait(PATIENCE)
            page = self.server.page
            content = (
                page.content if page is not None else WAITING.format(html.escape(self.server.stage)).encode()
            )
            return "text/html; charset=utf-8", content
        if target.path == "/decisions":
            self._check_token(self.headers.get("X-Token"))
            return _json(self.server.states())
        place, _, row = target.path.rpartition("/")
        if place == "/picture" and row.isascii() and row.isdigit() and len(row) < 10:
            self._check_token(asked)
            return self._picture(int(row))
        raise Refused(404, "there is nothing here")

    def _picture(self, row: int) -> tuple[str, bytes]:
        content = None
        pictures = self.server.page.pictures if self.server.page is not None else None
        if pictures is not None and pictures.direct and row < len(self.server.log.samples.ids):
            content = pictures.encode(row, REVIEW_SIDE)
        if content is None:
            raise Refused(404, "no picture")
        return "image/png" if content.startswith(b"\x89PNG") else "image/jpeg", content

    def _post(self) -> tuple[str, bytes]:
        if urlsplit(self.path).path != "/decide":
            raise Refused(404, "there is nothing here")
        self._check_token(self.headers.get("X-Token"))
        if self.headers.get("Origin") is None:
            raise Refused(403, "not from this origin")
        if self.headers.get_content_type() != "application/json":
            raise Refused(415, "decisions are JSON")
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            raise Refused(411, "say how long it is")
        if int(length) > MOST_REQUEST_BYTES:
            raise Refused(413, "too long")
        try:
            content = self.rfile.read(int(length))
            self._have_read()
            asked = parse_json(content)
            if not isinstance(asked, dict):
                raise TypeError("a decision is an object")
            return _json(self.server.decide(asked))
        except (InputError, ValueError, TypeError) as error:
            raise Refused(400, str(error).splitlines()[0]) from error


def _json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def open_review(log: DecisionLog, *, port: int = 0, by: str | None = None) -> ReviewServer:
    """Create a server for reviewing a run, on a port of this machine; it does not answer yet."""
    return ReviewServer(log, token=secrets.token_urlsafe(32), port=port, by=by)


def prepare(
    server: ReviewServer,
    run: Path,
    *,
    data: Path | None = None,
    show: Sequence[str] = (),
    progress: Progress | None = None,
) -> None:
    """Build the page of `run` and serve it from then on; until then, requests get the progress."""

    def tell(stage: str, done: int, total: int) -> None:
        server.stage = f"{stage}, {done:,} of {total:,} …" if total > 1 else f"{stage} …"
        if progress is not None:
            progress(stage, done, total)

    server.show(build_page(run, data=data, show=show, progress=tell, token=server.token))


@contextmanager
def answering(server: ReviewServer) -> Iterator[None]:
    """Run the server in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
