"""What `torchrun` tells a process through its environment; read without torch, before a job is loaded."""

import os
import sys
from contextlib import suppress

from ..errors import InputError

RANK, SIZE = "RANK", "WORLD_SIZE"
RESTARTS, JOB = "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"


def read_place() -> tuple[int, int] | None:
    """This process's rank and the number of processes; None if it was started alone."""
    if RANK not in os.environ or SIZE not in os.environ:
        return None
    try:
        rank, size = int(os.environ[RANK]), int(os.environ[SIZE])
    except ValueError:
        raise InputError(f"{RANK} and {SIZE}, which torchrun sets, are not whole numbers") from None
    if not 0 <= rank < size:
        raise InputError(f"{RANK}={rank} and {SIZE}={size} do not fit together; start with torchrun")
    return rank, size


def processes_here() -> int:
    """The number of processes of the run on this machine; without `torchrun`'s word, all of them."""
    with suppress(ValueError):
        return max(int(os.environ.get("LOCAL_WORLD_SIZE", os.environ.get(SIZE, "1"))), 1)
    return 1


def silence_followers() -> None:
    """Print nothing from processes that do not lead, except for debugging."""
    if os.environ.get(RANK, "0") != "0" and SIZE in os.environ and "GRAPHCLEAN_DEBUG" not in os.environ:
        sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end


def refuse_several(command: str) -> None:
    """Refuse to start a command in several processes, each of which would do all of it."""
    place = read_place()
    if place is not None and place[1] > 1:
        raise InputError(f"{command} runs in one process; start it without torchrun")


def job_id() -> str | None:
    """The name that `torchrun` gives a job, the same for restarted processes; None without one."""
    name = os.environ.get(JOB, "none")
    return name if name not in ("", "none") else None


def started_again() -> bool:
    """Whether `torchrun` has restarted the processes after one of them failed."""
    return os.environ.get(RESTARTS, "0") not in ("", "0")
