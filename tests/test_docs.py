"""The docs say what was measured."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_measured_pages_are_made_from_the_recorded_results() -> None:
    code = "import tables; print([str(p) for p, text in tables.pages().items() if text != p.read_text()])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]", "run python benchmarks/tables.py"


def test_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
