"""How a process that `torchrun` has started joins the others of its run, and how it ends."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from ..errors import InputError, RunStopped
from .environment import read_place
from .group import ALONE, Followed, Group, LostProcessError, use

LONGEST_WAIT = timedelta(minutes=30)
"""How long a process waits for the others: the slowest reads all data, and the leading one writes files."""


@contextmanager
def joined(*, forced: bool = False) -> Iterator[Group]:
    """Join the group that the environment describes, if any, for a job within the context.

    Only the leading process prints and reacts to signals. A process that fails leaves its reason for the
    leading one, which reports it. With `forced`, a single process is a group
    too, to measure what that costs.
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
    try:
        with use(group):
            yield group
    except Followed:
        sys.exit(0)
    except LostProcessError:
        raise
    except BaseException as error:
        if not group.leads:
            group.leave_reason(" ".join(str(error).split()) or type(error).__name__)
        elif _by_signal(error) and (lost := group.lost(only_with_reason=True)) is not None:
            raise lost from error  # torchrun ends the others when one fails
        raise
    finally:
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _by_signal(error: BaseException) -> bool:
    stopped = isinstance(error, RunStopped) and error.code > 128
    return stopped or isinstance(error, KeyboardInterrupt | SystemExit)


def _connect(group: Group) -> None:
    gpus, here = torch.cuda.device_count(), _local_size(group)
    if gpus:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % gpus)
    # NCCL refuses two processes on one card; gloo exchanges through the host.
    backend = "cpu:gloo,cuda:nccl" if gpus and here <= gpus else "gloo"
    try:
        dist.init_process_group(backend, timeout=LONGEST_WAIT)
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"process {group.rank + 1} of {group.size} can't reach the others: {reason}; check MASTER_ADDR "
            "and MASTER_PORT, or start with torchrun"
        ) from error


def _local_size(group: Group) -> int:
    with suppress(ValueError):
        return int(os.environ.get("LOCAL_WORLD_SIZE", ""))
    return group.size
