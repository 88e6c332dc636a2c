"""What a measurement was made on."""

import os
import platform
import time
from pathlib import Path

import torch

from ..runs.folder import find_commit, package_version
from .schema import Machine

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


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
