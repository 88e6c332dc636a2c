"""Run a function in several processes that exchange over gloo, as `torchrun` would start them."""

import importlib
import io
import itertools
import multiprocessing
import os
import signal
import socket
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from graphclean.cli.app import main
from graphclean.distributed.group import Group, use
from tests.builders import Done

PRELOAD = [
    "torch",
    "graphclean.methods",
    "graphclean.training",
    "graphclean.runs.train",
    "graphclean.cli.app",
]
LONGEST = 120.0
"""Seconds after which a hanging process is an error."""


def together(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work(group, *arguments)` returns in each of `size` processes; an error in one is raised here."""
    # Forked from a server that has imported everything but computed nothing: a fork after that may hang.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        pipes = [context.Pipe() for _ in range(size)]
        started = [
            context.Process(target=_run, args=(rank, size, str(store), pipes[rank][1], work, arguments))
            for rank in range(size)
        ]
        for process in started:
            process.start()
        for _, theirs in pipes:
            theirs.close()
        try:
            received = [_receive(ours, rank) for rank, (ours, _) in enumerate(pipes)]
        finally:
            for process in started:
                process.join(10)
                process.kill()
    errors = [
        f"in process {rank}:\n{value}" for rank, (kind, value) in enumerate(received) if kind == "error"
    ]
    if errors:  # that another process is gone is the consequence
        raise AssertionError(min(errors, key=lambda error: "LostProcessError" in error))
    return [value for _, value in received]


def _receive(pipe: Connection, rank: int) -> tuple[str, Any]:
    if not pipe.poll(LONGEST):
        return "error", f"process {rank} does not end"
    try:
        kind, value = pipe.recv()
    except EOFError:
        return "value", None  # it was killed
    return kind, value if kind == "error" else torch.load(io.BytesIO(value), weights_only=False)


def _run(
    rank: int, size: int, store: str, pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=LONGEST),
        )
        with use(Group(rank, size)) as group:
            # As bytes: a tensor sent as such would lie in memory that ends with this process.
            value = io.BytesIO()
            torch.save(work(group, *arguments), value)
            pipe.send(("value", value.getvalue()))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
    finally:
        pipe.close()


@dataclass(frozen=True)
class Hook:
    """A signal that a process sends itself at the n-th call of a function, named `module:name`."""

    rank: int
    where: str
    call: int
    number: int


def commands(
    folder: Path, *arguments: str, size: int = 2, hook: Hook | None = None, **changes: Sequence[str] | str
) -> list[Done]:
    """Run a command line in several processes of one folder, as `torchrun` would start them.

    `changes` are further variables of the environment, or as `process1` other arguments for one process.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with socket.socket() as found:  # a free port
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    started = []
    for rank in range(size):
        environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(("GRAPHCLEAN", "XDG"))},
            **{name: value for name, value in changes.items() if isinstance(value, str)},
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
            "MASTER_PORT": str(port),
        }
        own = list(changes.get(f"process{rank}", arguments))
        given = hook if hook is not None and hook.rank == rank else None
        process = context.Process(target=_command, args=(folder, rank, own, environment, given))
        process.start()
        started.append(process)
    for process in started:
        process.join(LONGEST)
        process.kill()
        process.join()
    texts = [[(folder / f".{name}{rank}").read_text() for name in ("out", "err")] for rank in range(size)]
    return [Done(int(process.exitcode or 0), *text) for process, text in zip(started, texts, strict=True)]


def _command(folder: Path, rank: int, own: list[str], environment: dict[str, str], hook: Hook | None) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(f".{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hook is not None:
        module, _, name = hook.where.partition(":")
        place = importlib.import_module(module)
        real, calls = getattr(place, name), itertools.count(1)

        def counting(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == hook.call:
                os.kill(os.getpid(), hook.number)
            return real(*args, **kwargs)

        setattr(place, name, counting)
    main(own)
