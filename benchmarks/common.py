"""What every benchmark records."""

import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"
THREADS = 2


def data_root(given: str | None) -> Path | None:
    """The data root that was named, or the one in the environment."""
    root = given or os.environ.get("GRAPHCLEAN_DATA")
    return Path(root) if root else None


def machine() -> dict[str, Any]:
    """Machine, versions and commit."""
    names = ("torch", "numpy", "scipy", "scikit-learn", "faiss-cpu", "cleanlab")
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in names},
    }


def _commit() -> str | None:
    """The commit that GRAPHCLEAN_COMMIT names (for a copy without its history), or that of this checkout."""
    if "GRAPHCLEAN_COMMIT" in os.environ:
        return os.environ["GRAPHCLEAN_COMMIT"]
    command = ["git", "-C", str(RESULTS.parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def save(name: str, result: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a result with the machine it was measured on."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **result}, indent=1) + "\n")
    return path
