"""The machine that a measurement was made on."""

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

import torch

from ..runs.folder import find_commit, package_version
from .schema import Machine

PROCESS = Path("/proc/self")
"""Where Linux reports on this process."""
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "faiss-cpu", "cleanlab")


def machine() -> Machine:
    """Time, machine, versions and commit."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": find_commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
    }


def forget_host_peak() -> None:
    """Start measuring `host_peak_gib` here; if the system can't, it counts from the start of the process."""
    with suppress(OSError):
        (PROCESS / "clear_refs").write_text("5", encoding="ascii")


def host_peak_gib() -> float | None:
    """Peak resident memory of this process; None on systems that don't report it."""
    try:
        lines = (PROCESS / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    kib = next(found, None)
    return int(kib) / 2**20 if kib is not None else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
