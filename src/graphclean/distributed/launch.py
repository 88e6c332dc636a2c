"""How a process that `torchrun` has started joins the others of its run, and how it ends."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from ..errors import InputError, RunStopped
from .environment import processes_here, read_place
from .group import ALONE, Followed, Group, LostProcessError, use

GRACE = 10.0
"""Seconds that the leading process has to end by itself once another has failed."""
LONGEST_WAIT = timedelta(minutes=30)
"""How long a process waits for the others: the slowest reads all data, and the leading one writes files."""


@contextmanager
def joined(*, forced: bool = False) -> Iterator[Group]:
    """Join the group that the environment describes, if any, for a job within the context.

    Only the leading process prints and reacts to signals. A process that fails leaves its reason for the
    leading one, which reports it. With `forced`, a single process is a group too, to measure what that costs.
    """
    place = read_place()
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    group = Group(*place, forced=forced, first_here=first) if place is not None else ALONE
    if not group.several:
        yield group
        return
    if not group.leads:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    _connect(group)
    _use_cores()
    ended = threading.Event()
    if group.leads:
        threading.Thread(target=_watch, args=(group, ended), daemon=True).start()
    try:
        with use(group):
            yield group
    except Followed:
        _leave()
        sys.exit(0)
    except LostProcessError:
        raise
    except BaseException as error:
        if not group.leads:
            group.leave_reason(" ".join(str(error).split()) or type(error).__name__)
        elif _by_signal(error) and (lost := group.lost(only_with_reason=True)) is not None:
            raise lost from error  # torchrun ends the others when one fails
        raise
    else:
        _leave()
    finally:
        ended.set()


def _leave() -> None:
    """Only after success: with a process gone, NCCL may wait for it forever."""
    with suppress(RuntimeError):
        dist.destroy_process_group()


def _watch(group: Group, ended: threading.Event) -> None:
    """In the leading process: end it if another has failed and it hangs, as a GPU's exchange may."""
    with suppress(RuntimeError):  # the store has ended
        while not ended.wait(1):
            if (lost := group.lost(only_with_reason=True)) is not None and not ended.wait(GRACE):
                os.write(2, f"graphclean: {lost}\n".encode(errors="replace"))
                os._exit(lost.code)


def _use_cores() -> None:
    """Share the machine's cores: torchrun leaves each process one, unless the user says otherwise."""
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes_here()))


def _by_signal(error: BaseException) -> bool:
    stopped = isinstance(error, RunStopped) and error.code > 128
    return stopped or isinstance(error, KeyboardInterrupt | SystemExit)


def _connect(group: Group) -> None:
    gpus, here = torch.cuda.device_count(), processes_here()
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
    # NCCL refuses two processes on one card; gloo exchanges through the host.
    several = gpus and here <= gpus and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if several else "gloo"
    try:
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"process {group.rank + 1} of {group.size} can't reach the others: {reason}; check MASTER_ADDR "
            "and MASTER_PORT, or start with torchrun"
        ) from error
