"""Run a function in several processes that exchange over gloo, as `torchrun` would start them."""

import io
import multiprocessing
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from graphclean.distributed.group import Group, use

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
