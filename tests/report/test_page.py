"""The page: nothing in it runs but our own script."""

import base64
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from graphclean.report.build import build_page
from graphclean.report.page import REVIEW_SCRIPTS, SCRIPTS
from graphclean.runs.folder import write_config
from tests.report.builders import IMAGE, NAMES, SCRIPT, make_run


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_page(make_run(tmp_path_factory.mktemp("runs") / "run")).content.decode()


def test_labels_and_names_stand_in_the_page_escaped(page: str) -> None:
    assert page.count("<script") == 3
    assert page.count("</script>") == 3
    assert "<img" not in page
    for hostile in (SCRIPT, IMAGE, *NAMES[2:4]):
        assert hostile not in page
    assert "A note on &lt;script&gt;" in page
    data = json.loads(re.search(r'id="facts">(.*?)</script>', page, re.S)[1])
    assert data["classes"][1] == SCRIPT


def test_the_policy_allows_our_own_style_and_script_and_no_connection(page: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    policy = policy.replace("&#39;", "'")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "connect-src" not in rules
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        body = re.search(rf"<{element}>(.*?)</{element}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"


def test_nothing_is_fetched(page: str) -> None:
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "url(" not in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_scripts_make_elements_from_text_alone_and_all_are_used() -> None:
    folder = files("graphclean.report") / "page"
    there = {entry.name for entry in folder.iterdir() if entry.name.endswith(".js")}
    assert there == {f"{name}.js" for name in (*SCRIPTS, *REVIEW_SCRIPTS)}
    for name in there:
        text = (folder / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\(", text)


def test_data_whose_path_has_stray_bytes_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    write_config(run, "clean", {"data": "photos\udcff", "kind": "features"}, {})
    assert "photos\\udcff" in build_page(run).content.decode()
