"""How much memory this process may use."""

import os
from contextlib import suppress
from pathlib import Path

from ..distributed.environment import processes_here

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The limits of containers, of both versions."""
MEMORY_UNKNOWN = 8 * 2**30
"""Assumed where the system does not tell."""
MEMORY_SHARE = 0.4
"""Fraction of the memory that photos may use: training needs the rest."""


def memory_size() -> int:
    """The machine's memory in bytes, or the limit of the container."""
    sizes = []
    with suppress(AttributeError, ValueError, OSError):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            sizes.append(int(Path(path).read_text()))
    return min(sizes, default=MEMORY_UNKNOWN)


def photo_memory() -> int:
    """The memory that photos may use, of each of the machine's processes of a run."""
    return int(MEMORY_SHARE * memory_size()) // processes_here()
