"""The docs say what was measured."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_benchmark_page_is_made_from_the_recorded_results() -> None:
    code = "import tables; print(tables.render(), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "benchmarks.md").read_text(), "run python benchmarks/tables.py"
    code = "import tables; print(tables.with_headline(tables.README.read_text()), end='')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "README.md").read_text(), "run python benchmarks/tables.py"


def test_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme
