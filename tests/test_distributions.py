"""The wheel and the sdist: the same bytes wherever they are made, with a list of what they need."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from graphclean import __version__

ROOT = Path(__file__).parents[1]
KINDS = ("sdist", "wheel")
OURS = {".py", ".toml", ".json", ".js", ".css", ".html", ".typed"}
"""Kinds of files in the package; one of another kind may be of others, and then belongs into NOTICE."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "hatch_build.py").exists(), reason="needs the source tree"),
]


def build(tree: Path, out: Path, *kinds: str, umask: int = 0o022) -> dict[str, Path]:
    """Distributions of a source tree, by kind."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    targets = [word for kind in kinds for word in ("-t", kind)]
    subprocess.run([*command, *targets], cwd=tree, check=True, capture_output=True, umask=umask)
    suffix = {"sdist": "*.tar.gz", "wheel": "*.whl"}
    return {kind: next(out.glob(suffix[kind])) for kind in kinds}


def copy_tree(to: Path) -> Path:
    """What distributions are made of, elsewhere and of another time."""
    to.mkdir()
    for name in ("src", "tests", "examples"):
        shutil.copytree(ROOT / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, to / path.name)
    for path in to.rglob("*"):
        os.utime(path, (10**9, 10**9))
    return to


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"), *KINDS)


@pytest.fixture(scope="module")
def sbom(built: dict[str, Path]) -> dict[str, Any]:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        return dict(json.loads(wheel.read(f"graphclean-{__version__}.dist-info/sboms/graphclean.cdx.json")))


def test_both_are_the_same_to_the_byte_wherever_they_are_made(built: dict[str, Path], tmp_path: Path) -> None:
    again = build(copy_tree(tmp_path / "elsewhere"), tmp_path / "dist", *KINDS, umask=0o077)
    for kind in KINDS:
        assert again[kind].name == built[kind].name
        assert again[kind].read_bytes() == built[kind].read_bytes(), kind


def test_the_wheel_of_the_source_distribution_is_the_same(built: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(built["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    tree = tmp_path / f"graphclean-{__version__}"
    assert {"LICENSE", "NOTICE", "SECURITY.md", "hatch_build.py"} <= {path.name for path in tree.iterdir()}
    again = build(tree, tmp_path / "dist", "wheel")
    assert again["wheel"].read_bytes() == built["wheel"].read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_each_installs_without_a_network(built: dict[str, Path], tmp_path: Path, kind: str) -> None:
    words = (
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--no-compile",
        "--target",
        str(tmp_path / "there"),
    )
    command = [sys.executable, "-m", "pip", "install", "-q", *words, str(built[kind])]
    subprocess.run(command, check=True, capture_output=True)
    code = "import graphclean; print(graphclean.__file__, graphclean.__version__)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "there")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [str(tmp_path / "there/graphclean/__init__.py"), __version__]
    installed = tmp_path / f"there/graphclean-{__version__}.dist-info"
    assert {path.name for path in (installed / "licenses").iterdir()} == {"LICENSE", "NOTICE"}
    assert (installed / "sboms/graphclean.cdx.json").is_file()


def test_the_wheel_holds_our_own_files_alone(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = [Path(name) for name in wheel.namelist()]
    package = {
        path.relative_to(ROOT / "src") for path in (ROOT / "src/graphclean").rglob("*") if path.is_file()
    }
    found = {name for name in names if name.parts[0] == "graphclean"}
    assert found == {path for path in package if path.suffix in OURS}
    assert {name.parts[0] for name in names} == {"graphclean", f"graphclean-{__version__}.dist-info"}


def test_the_list_names_all_that_is_required(sbom: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[<>=\[; ]", text)[0].replace("_", "-") for text in project["dependencies"]}
    parts = {part["name"]: part for part in sbom["components"]}
    assert {name for name, part in parts.items() if part["scope"] == "required"} == names
    assert parts["torch"]["properties"] == [{"name": "graphclean:requirement", "value": "torch>=2.11"}]
    assert {"faiss-cpu", "onnxruntime", "timm"} <= {
        name for name in parts if parts[name]["scope"] == "optional"
    }
    assert "graphclean" not in parts
    (tree, *leaves) = sbom["dependencies"]
    assert tree == {
        "ref": f"pkg:pypi/graphclean@{__version__}",
        "dependsOn": [f"pkg:pypi/{name}" for name in sorted(names)],
    }
    assert {leaf["ref"] for leaf in leaves} == {part["bom-ref"] for part in sbom["components"]}


def test_the_list_is_cyclonedx_as_its_readers_expect(sbom: dict[str, Any]) -> None:
    assert (sbom["bomFormat"], sbom["specVersion"], sbom["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", sbom["serialNumber"])
    assert "timestamp" not in sbom["metadata"]
    about = sbom["metadata"]["component"]
    assert (about["name"], about["version"]) == ("graphclean", __version__)
    references = [part["bom-ref"] for part in sbom["components"]]
    assert len(set(references)) == len(references)
    for part in (about, *sbom["components"]):
        assert part["type"] == "library"
        assert part["purl"].startswith(f"pkg:pypi/{part['name']}")


def test_the_audit_covers_every_extra_of_users() -> None:
    text = (ROOT / ".github/workflows/audit.yml").read_text()
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = re.search(r'install "\.\[([\w,]+)\]"', text)
    assert named is not None
    assert set(named[1].split(",")) == extras - {"dev", "docs", "bench"}
