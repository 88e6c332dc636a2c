"""Downloads from a server on this machine: whole, cut, changed, missing, and taken up again."""

import gc
import hashlib
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from graphclean.bench import download as fetch
from graphclean.bench.download import fetch_set
from graphclean.bench.registry import SETS, NamedSet
from graphclean.errors import InputError
from tests.data.builders import with_archive

CONTENT = bytes(range(256)) * 5000
FILE = "cifar-10-python.tar.gz"


class Server:
    """One file; what it does wrong is set by the test."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.ranges = True
        self.status: int | None = None
        self.stop_after: int | None = None
        """Bytes of the body after which the connection is closed."""
        self.shift = 0
        """How far from what was asked for a part begins."""
        self.with_length = True
        self.total: str | None = None
        """What it says of the size of the file, where that is not the truth."""
        self.moved: str | None = None
        """Where it sends everybody on to."""
        self.content_type = "application/gzip"
        self.asked: list[str | None] = []
        self.url = ""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            state.asked.append(asked)
            if state.status is not None:
                self.send_error(state.status)
                return
            if state.moved is not None:
                self.send_response(302)
                self.send_header("Location", state.moved)
                self.end_headers()
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and state.ranges else 0
            if start >= len(state.content):
                self.send_error(416)
                return
            start += state.shift
            body = state.content[start:]
            self.send_response(206 if asked and state.ranges else 200)
            if asked and state.ranges:
                total = len(state.content) if state.total is None else state.total
                self.send_header("Content-Range", f"bytes {start}-{len(state.content) - 1}/{total}")
            self.send_header("Content-Type", state.content_type)
            if state.with_length:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # the other side may have heard enough
                self.wfile.write(body[: state.stop_after])

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        state.url = f"http://127.0.0.1:{http.server_port}/{FILE}"
        yield state
        http.shutdown()
        thread.join()


class Place(NamedTuple):
    root: Path
    target: Path
    part: Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "root" / "cifar10"
    return Place(tmp_path / "root", folder / FILE, folder / f"{FILE}.part")


def entry(server: Server) -> NamedSet:
    return with_archive(SETS["cifar10"], CONTENT, server.url)


def files(place: Place) -> list[Path]:
    return sorted(path for path in place.root.rglob("*") if path.is_file())


def test_a_good_file_arrives_whole(server: Server, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "COPY_BYTES", 100_000)
    seen: list[tuple[str, int, int]] = []
    path, fetched = fetch_set(entry(server), place.root, lambda *step: seen.append(step))
    assert (path, fetched) == (place.target, True)
    assert path.read_bytes() == CONTENT
    assert files(place) == [place.target]
    assert seen[-1] == ("fetching cifar10 (MiB)", 1, 1)
    assert len(seen) == 13


def test_what_is_there_is_checked_and_not_fetched_again(server: Server, place: Place) -> None:
    fetch_set(entry(server), place.root)
    assert fetch_set(entry(server), place.root) == (place.target, False)
    assert server.asked == [None]
    place.target.write_bytes(b"something else")
    with pytest.raises(InputError, match="there, but not the published file"):
        fetch_set(entry(server), place.root)
    assert place.target.read_bytes() == b"something else"
    beside = place.root / place.target.name
    place.target.rename(beside)
    beside.write_bytes(CONTENT)
    assert fetch_set(entry(server), place.root) == (beside, False)
    assert server.asked == [None]


def test_a_cut_download_goes_on_where_it_stopped(server: Server, place: Place) -> None:
    server.stop_after = 500_000
    with pytest.raises(InputError, match="stopped after 500,000 of 1,280,000 bytes; fetch again to continue"):
        fetch_set(entry(server), place.root)
    assert files(place) == [place.part]
    server.stop_after = None
    fetch_set(entry(server), place.root)
    assert server.asked == [None, "bytes=500000-"]
    assert place.target.read_bytes() == CONTENT
    assert files(place) == [place.target]


def test_an_interrupted_download_goes_on(
    server: Server, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "COPY_BYTES", 100_000)

    def interrupt(_stage: str, done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_set(entry(server), place.root, interrupt)
    had = place.part.stat().st_size
    assert 1 << 20 <= had < len(CONTENT)
    fetch_set(entry(server), place.root)
    assert server.asked == [None, f"bytes={had}-"]
    assert place.target.read_bytes() == CONTENT


def test_two_at_once_fetch_it_once(server: Server, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits, and says so; then the file is there. Had the first failed, it would go on with it."""
    monkeypatch.setattr(fetch, "COPY_BYTES", 100_000)
    waiting, found = threading.Event(), []

    def second(*step: object) -> None:
        if "waiting" in str(step[0]):
            waiting.set()

    other = threading.Thread(target=lambda: found.append(fetch_set(entry(server), place.root, second)))

    def first(*_: object) -> None:
        if not other.ident:
            other.start()
            assert waiting.wait(10)

    assert fetch_set(entry(server), place.root, first) == (place.target, True)
    other.join()
    assert found == [(place.target, False)]
    assert server.asked == [None]
    assert files(place) == [place.target]


def test_a_server_without_ranges_sends_it_all_again(server: Server, place: Place) -> None:
    place.part.parent.mkdir(parents=True)
    place.part.write_bytes(b"x" * 1000)
    server.ranges = False
    fetch_set(entry(server), place.root)
    assert server.asked == ["bytes=1000-"]
    assert place.target.read_bytes() == CONTENT


def test_a_server_that_tells_no_length_is_believed_by_the_checksum(server: Server, place: Place) -> None:
    server.with_length = False
    fetch_set(entry(server), place.root)
    assert place.target.read_bytes() == CONTENT


def test_a_finished_part_needs_no_server(server: Server, place: Place) -> None:
    place.part.parent.mkdir(parents=True)
    place.part.write_bytes(CONTENT)
    fetch_set(entry(server), place.root)
    assert server.asked == []
    assert files(place) == [place.target]


def test_a_changed_file_is_not_kept(server: Server, place: Place) -> None:
    server.content = CONTENT[:-1] + b"!"
    with pytest.raises(InputError, match=r"its MD5 is another.*nothing was kept"):
        fetch_set(entry(server), place.root)
    assert files(place) == []


def test_a_part_of_another_file_is_not_kept(server: Server, place: Place) -> None:
    place.part.parent.mkdir(parents=True)
    place.part.write_bytes(b"x" * 1000)
    with pytest.raises(InputError, match="its MD5 is another"):
        fetch_set(entry(server), place.root)
    assert files(place) == []
    fetch_set(entry(server), place.root)
    assert place.target.read_bytes() == CONTENT


def test_a_page_is_not_taken_for_the_file(server: Server, place: Place) -> None:
    server.content, server.with_length = b"<p>Please log in</p>", False
    server.content_type = "text/html; charset=utf-8"
    with pytest.raises(InputError, match="answered with a web page"):
        fetch_set(entry(server), place.root)
    assert files(place) == []


def test_a_file_of_another_size_is_not_even_fetched(server: Server, place: Place) -> None:
    server.content = CONTENT + b"more"
    with pytest.raises(InputError, match="offers 1,280,004 bytes, and the published file has 1,280,000"):
        fetch_set(entry(server), place.root)
    assert not place.root.exists()


def test_another_part_than_asked_for_is_refused(server: Server, place: Place) -> None:
    place.part.parent.mkdir(parents=True)
    place.part.write_bytes(CONTENT[:1000])
    server.shift = 7
    with pytest.raises(InputError, match=f"another part of the file; .* remove {place.part} to start over"):
        fetch_set(entry(server), place.root)
    assert place.part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize("total", ["*", "9" * 5000, "", "1280004"])
def test_only_a_part_of_the_published_file_is_taken(server: Server, place: Place, total: str) -> None:
    """A server need not know how long the file is."""
    place.part.parent.mkdir(parents=True)
    place.part.write_bytes(CONTENT[:1000])
    server.total = total
    if total == "*":
        fetch_set(entry(server), place.root)
        assert server.asked == ["bytes=1000-"]
        assert place.target.read_bytes() == CONTENT
    else:
        with pytest.raises(InputError, match=r"another part of the file|offers 1,280,004 bytes"):
            fetch_set(entry(server), place.root)
        assert place.part.read_bytes() == CONTENT[:1000]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("address", [f"/{FILE}", "http://[x/", "file:///etc/passwd"])
def test_a_server_that_leads_nowhere_is_one_line(server: Server, place: Place, address: str) -> None:
    server.moved = address
    with pytest.raises(InputError, match="the server") as caught:
        fetch_set(entry(server), place.root)
    assert "\n" not in str(caught.value)
    assert not place.root.exists()
    del caught
    gc.collect()  # urllib leaves a connection open where it can't read the address: told here, not later


def test_a_part_longer_than_the_servers_file_is_given_up(server: Server, place: Place) -> None:
    place.part.parent.mkdir(parents=True)
    place.part.write_bytes(CONTENT[:1000])
    server.content = CONTENT[:900]
    with pytest.raises(InputError, match="reports 416"):
        fetch_set(entry(server), place.root)
    assert files(place) == []
    server.status = 416
    with pytest.raises(InputError, match="reports 416"):
        fetch_set(entry(server), place.root)


@pytest.mark.parametrize(("status", "words"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_a_missing_file_is_told(server: Server, place: Place, status: int, words: str) -> None:
    server.status = status
    with pytest.raises(InputError, match=f"the server reports {words}"):
        fetch_set(entry(server), place.root)
    assert not place.root.exists()


def test_an_empty_root_outlives_a_failure(
    server: Server, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given from the root (/) on or not."""
    place.root.mkdir()
    monkeypatch.chdir(place.root.parent)
    server.status = 404
    for root in (place.root, Path("root"), Path("root/new/er")):
        with pytest.raises(InputError, match="404"):
            fetch_set(entry(server), root)
        assert list(place.root.rglob("*")) == []


def test_no_server_is_told(server: Server, place: Place) -> None:
    named = with_archive(SETS["cifar10"], CONTENT, f"http://127.0.0.1:1/{FILE}")
    with pytest.raises(InputError, match="can't be reached: Connection refused"):
        fetch_set(named, place.root)
    assert not place.root.exists()
    assert server.asked == []


def test_a_full_disk_is_noticed_before(server: Server, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
    with pytest.raises(InputError, match="17 MiB are needed, and 1 MiB are free"):
        fetch_set(entry(server), place.root)
    assert server.asked == []


def test_a_root_that_cant_be_written_is_told(server: Server, place: Place) -> None:
    place.root.mkdir()
    place.root.chmod(0o555)
    with pytest.raises(InputError, match="can't be written; name another root"):
        fetch_set(entry(server), place.root)
    place.root.chmod(0o755)
    assert server.asked == []


def test_the_checksum_is_over_the_content() -> None:
    named = with_archive(SETS["cifar10"], CONTENT)
    assert named.archive.md5 == hashlib.md5(CONTENT).hexdigest()
    assert replace(named.archive, url="https://a/b/c.tar").file == "c.tar"
