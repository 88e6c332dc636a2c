"""The import rules of the rooms: one direction, and no algorithm reaches up."""

import ast
from pathlib import Path

import pytest

import graphclean

ROOT = Path(graphclean.__file__).parent

ORDER = [
    "_version",
    "errors",
    "_shapes",
    "_files",
    "distributed",
    "config",
    "graph",
    "data",
    "metrics",
    "ood",
    "embed",
    "cleaning",
    "training",
    "methods",
    "runs",
    "report",
    "bench",
    "estimator",
    "cli",
    "api",
    "__main__",
    "__init__",
]
"""Rooms from the ground up: each imports only what stands before it."""
OUTSIDE = {"graph": {"torch", "scipy"}}
"""Rooms that may import only these from outside the standard library."""


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports(path: Path) -> tuple[set[str], set[str]]:
    """Rooms of the package, and packages from elsewhere, that a file imports."""
    inside: set[str] = set()
    outside: set[str] = set()
    depth = len(path.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            outside |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            outside.add((node.module or "").split(".")[0])
        elif isinstance(node, ast.ImportFrom) and node.level == depth:
            heads = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
            inside |= {head for head in heads if head != "__version__"}
    return inside, outside


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_keep_to_the_rules(path: Path) -> None:
    room = room_of(path)
    inside, outside = imports(path)
    assert "graphclean" not in outside, "the package imports itself by relative names"
    assert "torchvision" not in outside
    assert inside - {room} <= set(ORDER[: ORDER.index(room)])
    if room in OUTSIDE:
        standard = {"collections", "dataclasses", "math", "typing", "warnings"}
        assert outside - standard <= OUTSIDE[room]


@pytest.mark.slow
def test_importing_the_package_pulls_in_no_extra_and_nothing_that_draws() -> None:
    import subprocess
    import sys

    extras = ("torchvision", "timm", "datasets", "faiss", "matplotlib", "onnx", "onnxscript", "onnxruntime")
    rooms = "graphclean.cli.app, graphclean.bench.figures, graphclean.bench.tables"
    code = f"import sys, {rooms}; print([m for m in {extras} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_the_package_is_light() -> None:
    import subprocess
    import sys

    code = "import sys, graphclean; print([m for m in ('torch', 'sklearn', 'pandas') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_the_command_line_loads_what_works_only_for_work(tmp_path: Path) -> None:
    """Help, versions, lists and slips of the hand are answered at once."""
    import subprocess
    import sys

    code = f"""
import sys
from graphclean.cli.app import main
commands = [[], ["--help"], ["--version"], ["--nope"], ["nope"], ["train", "--help"], ["clean", "--nope"],
            ["presets"], ["bench", "--help"], ["bench", "run", "--help"],
            ["data", "list", "--data-root", {str(tmp_path)!r}]]
for command in commands:
    try:
        main(command)
    except SystemExit:
        heavy = [name for name in ("torch", "pandas", "scipy", "sklearn") if name in sys.modules]
        assert not heavy, (command, heavy)
    else:
        raise AssertionError(command)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "places365" in done.stdout


def test_no_constant_or_type_of_one_name_has_two_meanings() -> None:
    """Type variables and short names of array types are the same wherever they stand."""
    same = {"T", "Floats", "Ints"}
    places: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets += [node.target] if isinstance(node, ast.AnnAssign) else []
            names = {
                target.id for target in targets if isinstance(target, ast.Name) and target.id[0].isupper()
            }
            names |= {node.name} if isinstance(node, ast.ClassDef) and node.name[0] != "_" else set()
            for name in names - same:
                places.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
