"""The docs say what was measured."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_measured_pages_are_made_from_the_recorded_results() -> None:
    code = "import tables; print([str(p) for p, text in tables.pages().items() if text != p.read_text()])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]", "run python benchmarks/tables.py"


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_cleanlab_is_behind_on_the_mean_of_every_set_as_the_comparison_says() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "audit.json").read_text())
    columns = ("mislabel_f1", "issue_f1", "label_accuracy", "ood_auroc")
    behind = [
        (group, column)
        for group, entry in result["summary"].items()
        for column in columns
        if entry["ours"][column] <= entry["cleanlab_best"][column]
    ]
    assert behind == [], "docs/comparison.md says otherwise"
    assert (
        f"cleanlab {result['machine']['packages']['cleanlab']}" in (ROOT / "docs/comparison.md").read_text()
    )


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_embedders_are_ranked_as_the_page_on_your_own_data_says() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "embedders.json").read_text())
    entries = {entry["embedder"]: entry for entry in result["embedders"]}
    lite0, lite2 = entries["efficientnet-lite0"], entries["efficientnet-lite2"]
    said = "docs/your-data.md says otherwise"
    for part, column in (
        *(("verdicts", column) for column in ("mislabel_f1", "issue_f1", "label_accuracy", "ood_auroc")),
        *(("new", column) for column in ("accuracy", "auroc")),
    ):
        assert lite2[part][column]["mean"] > lite0[part][column]["mean"], said
    for column in ("known_rejected", "ood_rejected"):
        assert lite2["new"][column]["mean"] < lite0["new"][column]["mean"], said
    assert lite0["cpu_seconds_per_1000"] < lite2["cpu_seconds_per_1000"], said
    assert lite2["cpu_seconds_per_1000"] < 2 * lite0["cpu_seconds_per_1000"], said
    assert entries["color histogram"]["verdicts"]["label_accuracy"]["mean"] < 0.7, said
    assert all("not_run" in entry for name, entry in entries.items() if name.startswith("timm:")), said


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_methods_rank_on_the_digits_as_the_page_of_methods_says() -> None:
    runs = json.loads((ROOT / "benchmarks" / "results" / "methods.json").read_text())["runs"]
    cost = {run["method"]: run["cost"] for run in runs}

    def mean(name: str, noise: str) -> float:
        found = [run["accuracy"] for run in runs if (run["method"], run["noise"]) == (name, noise)]
        return sum(found) / len(found)

    def best(noises: tuple[str, ...], at_most: float) -> str:
        names = [name for name in cost if cost[name] <= at_most]
        return max(names, key=lambda name: min(mean(name, noise) for noise in noises))

    said = "docs/methods.md says otherwise"
    assert best(("sym40",), 1.5) == "elr", said
    assert best(("sym40",), 2) == "sop-plus", said
    assert best(("sym40",), 4) == "ngc", said
    assert best(("asym40",), 1.5) == "f-correction", said
    assert best(("asym40",), 4) == best(("sym40", "asym40"), 4) == "ssr-plus", said
    assert best(("asym40",), 2) == best(("sym40", "asym40"), 2) == "m-correction", said
    mistakes = json.loads((ROOT / "benchmarks" / "results" / "mistakes-digits.json").read_text())["runs"]
    on = [run["accuracy"] for run in mistakes if run["case"] == "asym" and run["class_dependent_noise"]]
    assert sum(on) / len(on) > mean("ssr-plus", "asym40") - 0.005, said


def test_readme_fits_two_screens() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert sum(max(1, -(-len(line) // 120)) for line in lines) <= 110


def test_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


@pytest.mark.skipif(not (ROOT / "docs").exists(), reason="needs the source tree")
@pytest.mark.parametrize(("page", "least"), [("README.md", 10), ("results/README.md", 2)])
def test_links_of_pages_outside_the_site_lead_to_files_and_headings(page: str, least: int) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https:)([^)#]*)#?([^)]*)\)", (ROOT / page).read_text())
    assert len(links) > least
    for path, anchor in links:
        target = folder / path if path else ROOT / page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
