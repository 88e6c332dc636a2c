"""Raw requests to the review server, killed reviews, and odd inputs to an exported model."""

import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from graphclean.runs.decisions import read_decisions

from . import children
from .failures import Bench
from .tally import Clock, Tally, timed

RIGHT = {"200", "400", "403", "404", "408", "411", "413", "414", "415", "431", "501", "505"}
"""Status codes that the server may return."""
LEAST_BATCHES = 200
ANSWERED = 10.0
"""Maximum seconds until the response."""


class Review:
    """`graphclean review` in a child process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process = children.start(("review", "cleaned", "--json"), folder)
        self.running = True
        self.address = json.loads(self._first_line())["address"]
        self.host, _, self.token = self.address.removeprefix("http://").partition("/?token=")
        self.ask(f"GET /?token={self.token} HTTP/1.0\r\nHost: {self.host}\r\n\r\n".encode())

    def _first_line(self) -> str:
        end = time.monotonic() + children.PATIENCE
        while time.monotonic() < end:
            place = children.printed(self.folder, "out")
            text = place.read_text() if place.exists() else ""
            if text.rstrip().endswith("}"):
                return text
            time.sleep(0.02)
        raise RuntimeError("the review does not start")

    def ask(self, content: bytes) -> bytes:
        """The whole response to a request; nothing more is sent."""
        host, port = self.host.split(":")
        found = b""
        with socket.create_connection((host, int(port)), timeout=ANSWERED) as connection:
            with contextlib.suppress(OSError):  # it may already have answered and closed
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    found += part
        return found

    def decide(self, row: int) -> bool:
        """Whether the server confirms a decision as saved."""
        body = json.dumps({"rows": [row], "kind": "label", "label": "emu"}).encode()
        try:
            return b" 200 " in self.ask(self.head("POST", "/decide", len(body)) + body).partition(b"\r\n")[0]
        except OSError:
            return False

    def head(self, method: str, path: str, length: int) -> bytes:
        """The headers of a request as our own page sends them."""
        lines = [f"{method} {path} HTTP/1.0", f"Host: {self.host}", f"Origin: http://{self.host}"]
        lines += [f"X-Token: {self.token}", "Content-Type: application/json", f"Content-Length: {length}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    @property
    def written(self) -> list[Any]:
        """The decisions on disk."""
        return read_decisions(self.folder / "cleaned/decisions.jsonl")

    def end(self, number: int) -> children.Ended:
        """End the review with a signal."""
        self.running = False
        os.kill(self.process, number)
        return children.wait(self.process, self.folder)

    def close(self) -> None:
        """Kill the review if it is still running."""
        if self.running:
            self.end(signal.SIGKILL)


def ask_anything(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Requests of every kind: only valid responses, no decision without the token, no sign of a bug."""
    tally, by = Tally("raw requests to the review server"), random.Random(f"{seed} {bench.part}")
    folder = bench.fresh()
    with timed(tally), contextlib.closing(Review(folder)) as review:
        most = 0.0
        while not tally.over(clock):
            content, known = _request(review, by)
            before, begun = len(review.written), time.monotonic()
            wrong: list[str | None] = []
            try:
                answer = review.ask(content)
                status = answer.split(b" ", 2)[1].decode("latin-1") if answer.startswith(b"HTTP/") else ""
                if status and status not in RIGHT:
                    wrong.append(f"status {status}")
                if not known and (status == "200" or len(review.written) != before):
                    wrong.append("let in without the token")
            except TimeoutError:
                wrong.append("hang")
            most = max(most, time.monotonic() - begun)
            tally.count(repr(content[:200]), *wrong)
        alive = review.decide(3)
        ended = review.end(signal.SIGINT)
        tally.count("the server at the end", None if alive else "no decision is taken any more", ended.wrong)
        tally.facts |= {"longest answer in seconds": most, "memory in MiB at most": ended.peak_mib}
    bench.clear(folder)
    return tally


def _request(review: Review, by: random.Random) -> tuple[bytes, bool]:
    """A request, and whether it contains the valid token."""
    known = by.random() < 0.5
    token = review.token if known else by.choice(("", "x" * 43, review.token[:-1] + "!", "\u00e9", "%00"))
    body = by.choice(
        (
            *(
                b"",
                b"{}",
                b"[]",
                b"null",
                b"[" * 5000,
                b"\xff\xfe",
                b'{"rows": [1]}',
                b'{"rows": "x", "kind": 1}',
            ),
            json.dumps(
                {"rows": [by.randrange(-3, 99)], "kind": by.choice(("accept", "label", "undo", "note", "x"))}
            ).encode(),
            json.dumps(
                {"rows": list(range(200)), "kind": "note", "note": "n" * by.choice((5, 2000))}
            ).encode(),
            by.randbytes(by.choice((1, 100))),
        )
    )
    method = by.choice(("GET", "POST", "POST", "PUT", "get", "OPTIONS", "\x00", "HEAD", "TRACE"))
    path = by.choice(
        (
            *(
                f"/?token={token}",
                "/decide",
                "/decide",
                "/decisions",
                f"/picture/{by.randrange(90)}?token={token}",
            ),
            *(
                "/..%2f..%2fetc/passwd",
                "//",
                "http://x/",
                "*",
                "/" + "a" * by.choice((9, 70000)),
                "/%",
                "/\xff",
                "[::1",
            ),
        )
    )
    host = by.choice(
        (review.host, review.host, review.host, "evil.example", "", "localhost", "127.0.0.1:x", "[::1]")
    )
    lines = [
        f"{method} {path} HTTP/{by.choice(('1.0', '1.1', '1.1', '0.9', '2.0', '9', 'x'))}",
        f"Host: {host}",
    ]
    lines += [f"X-Token: {token}", f"Content-Type: {by.choice(('application/json', 'text/plain', '', ';;'))}"]
    lines.append(f"Origin: http://{by.choice((host, host, 'evil.example'))}")
    length = by.choice((len(body), len(body), len(body), len(body) + 50, 0, -1, 10**12, "x", ""))
    lines.append(f"Content-Length: {length}")
    lines += by.choice(
        ([], [], ["Transfer-Encoding: chunked"], ["X: " + "y" * 70000], ["a: b"] * 150, [": :"], [" x"])
    )
    if by.random() < 0.2:
        del lines[by.randrange(1, len(lines))]
    content = (by.choice(("\r\n", "\r\n", "\r\n", "\n")).join(lines) + "\r\n\r\n").encode(
        "latin-1", "replace"
    ) + body
    if by.random() < 0.3:
        made = bytearray(content)
        for _ in range(by.choice((1, 3, 10))):
            made[by.randrange(len(made))] = by.randrange(256)
        content = bytes(made)
    return (content[: by.randrange(len(content))] if by.random() < 0.1 else content), known


def kill_reviews(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Kill a review while decisions arrive: all that were confirmed must be on disk."""
    tally, by = Tally("reviews that are killed"), random.Random(f"{seed} {bench.part}")
    decided = 0
    with timed(tally):
        while not tally.over(clock):
            folder = bench.fresh()
            kept: list[int] = []
            with contextlib.closing(Review(folder)) as review:
                end = time.monotonic() + by.uniform(0.05, 1.5)
                for row in range(72):
                    if time.monotonic() > end:
                        break
                    if review.decide(row):
                        kept.append(row)
                ended = review.end(signal.SIGKILL)
            on_disk = {decision.row for decision in review.written}
            lost = sorted(set(kept) - on_disk)
            decided += len(kept)
            again = children.run(("review", "cleaned", "--merge", "theirs.jsonl", "--quiet"), folder)
            tally.count(
                f"{len(kept)} decisions",
                ended.wrong_unless(-signal.SIGKILL),
                f"lost: {lost}" if lost else None,
                again.wrong or (again.err if again.code else None),
            )
            bench.clear(folder)
    tally.facts["decisions that were said to be kept"] = decided
    return tally


def ask_exported(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Compare an exported model with its run: the same outputs for finite inputs, and no crash for any."""
    tally = Tally("inputs of an exported model")
    with timed(tally):
        folder = bench.fresh()
        done = children.run(("export", "cleaned", "--out", "m.onnx", "--quiet"), folder)
        if done.code != 0:
            tally.facts["not run"] = done.err.strip()
            bench.clear(folder)
            return tally
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            code = 1
            try:
                with os.fdopen(writing, "w", buffering=1) as tell:
                    _judge_both(folder, seed, range(bench.part, sys.maxsize, bench.parts), clock, tell)
                code = 0
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            finally:
                os._exit(code)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            for line in pipe:
                case, wrong = json.loads(line)
                tally.count(case, wrong)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        tally.count("the process at the end", f"it ended with {status}" if status else None)
        bench.clear(folder)
    return tally


def _judge_both(folder: Path, seed: int, numbers: range, clock: Clock, tell: Any) -> None:
    import numpy as np
    import onnxruntime
    import torch

    from graphclean.runs.onnx import EXPORT_TOLERANCE
    from graphclean.runs.predict import load_model

    model = load_model(folder / "cleaned")
    judge = model.module().eval()
    session = onnxruntime.InferenceSession(str(folder / "m.onnx"), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    for tried, number in enumerate(numbers):
        if clock.left < 0 and tried >= LEAST_BATCHES:  # the export may have taken most of the time
            break
        rng = np.random.default_rng([seed, number])
        count = int(rng.choice([0, 1, 2, 7, 64]))
        x = (rng.normal(size=(count, 6)) * rng.choice([0, 1e-20, 1, 3, 1e6])).astype(np.float32)
        odd = rng.random() < 0.3 and count > 0
        if odd:
            x[rng.integers(count), rng.integers(6)] = rng.choice([np.nan, np.inf, -np.inf, 3e38])
        wrong = None
        try:
            found = session.run(None, {given.name: x})
            with torch.no_grad():
                expected = [part.numpy() for part in judge(torch.from_numpy(x))] if count else []
                steady = judge.steady(torch.from_numpy(x)).numpy() & np.isfinite(x).all(1)
            if count and not odd:
                off = max(float(np.abs(found[i] - expected[i])[steady].max(initial=0)) for i in (0, 1))
                wrong = f"off by {off:.2g}" if not off <= EXPORT_TOLERANCE else None
            if any(len(part) != count for part in found):
                wrong = "not one answer an input"
        except Exception as error:
            wrong = f"{type(error).__name__}: {str(error)[:200]}"
        tell.write(json.dumps([f"seed {seed}, batch {number} of {count}", wrong]) + "\n")
