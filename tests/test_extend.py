"""docs/extend.md: its package is installed and used as the page says, and slips are one line."""

import json
import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import graphclean.training.trainer
from graphclean import NoisyGraphClassifier
from graphclean.embed import embed_photos, load_embedder
from graphclean.errors import InputError
from graphclean.methods import load_method
from graphclean.ood.detectors import load_detector
from tests.builders import Cli
from tests.runs.tiny import results
from tests.site import ROOT, Block, SitePage, read_page, write_data

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="needs the source tree")
QUICK = ("--preset", "demo", "--set", "training.epochs=3", "--set", "cleaning.k=10,20", "--quiet")
OWN = ("--set", "method.name=small_loss", "--set", "ood.detector=knn_distance")


@pytest.fixture(scope="module")
def page() -> SitePage:
    return read_page(ROOT / "docs" / "extend.md")


@pytest.fixture
def extras(page: SitePage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package, installed in a folder of its own, and data to use it on."""
    site = tmp_path / "site"
    write_package(page.blocks, site)
    monkeypatch.syspath_prepend(str(site))
    invalidate_caches()
    (tmp_path / "data").mkdir()
    write_data(tmp_path / "data")
    with torch.random.fork_rng():
        yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "extras"]:
        del sys.modules[name]


def write_package(blocks: list[Block], site: Path) -> None:
    """The blocks that begin with the name of a file, and the entry points as pip would write them."""
    for block in blocks:
        first = block.text.partition("\n")[0]
        if block.language == "python" and first.startswith("# extras/"):
            (site / "extras").mkdir(parents=True, exist_ok=True)
            (site / first.removeprefix("# ")).write_text(block.text)
    (site / "extras" / "__init__.py").touch()
    project = tomllib.loads(next(block.text for block in blocks if block.language == "toml"))["project"]
    register(site, project["name"], project["entry-points"])


def register(site: Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    folder = site / f"{name}-0.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items())
        for group, points in groups.items()
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines))


@pytest.mark.slow
@pytest.mark.usefixtures("extras", "one_thread")
def test_the_commands_of_the_page_run(
    page: SitePage, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "data")
    commands = [words[1:] for block in page.blocks if block.language == "sh" for words in block.commands]
    assert {words[0] for words in commands} == {"install", "methods", "train", "predict", "export", "clean"}
    for words in commands[1:]:
        quick = QUICK if words[0] == "train" else ()
        done = cli(*words, *quick)
        assert done.code == 0, (words, done.err)
        if words[0] == "methods":
            assert "method.ramp_epochs = 10\n    Epochs over which" in done.out
    trained = Path("runs/images-train")
    config = json.loads((trained / "config.json").read_text())
    assert config["settings"]["method"] == {"name": "small_loss", "forget_rate": 0.4, "ramp_epochs": 10}
    assert json.loads((Path("runs/train-clean") / "config.json").read_text())["source"]["embedder"] == (
        "color-histogram"
    )
    again = NoisyGraphClassifier.load(trained).model_.detector
    assert (again.name, len(again.bank) > 20) == ("knn_distance", True)
    classes = np.genfromtxt("runs/train-clean/predictions/test.csv", delimiter=",", dtype=str)[1:]
    assert np.mean([row[0].split("/")[0] == row[1] for row in classes]) > 0.9


@pytest.mark.slow
@pytest.mark.usefixtures("extras", "one_thread")
def test_an_interrupted_run_continues_as_if_nothing_had_been(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "data")
    total, steps = graphclean.training.trainer.total_loss, 0

    def interrupting(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return total(*arguments)

    with monkeypatch.context() as once:
        once.setattr(graphclean.training.trainer, "total_loss", interrupting)
        assert cli("train", "images.npz", *QUICK, *OWN, "--out", "stopped").code == 130
    assert cli("train", "images.npz", "--resume", "--out", "stopped", "--quiet").code == 0
    assert cli("train", "images.npz", *QUICK, *OWN, "--out", "whole").code == 0
    assert results(Path("stopped")) == results(Path("whole"))


@pytest.mark.slow
@pytest.mark.usefixtures("extras", "one_thread")
@pytest.mark.filterwarnings("ignore::graphclean.errors.DataWarning")
def test_the_python_of_the_page_runs(page: SitePage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path / "data")
    scope: dict[str, Any] = {}
    for block in page.blocks:
        if block.language == "python" and not block.text.startswith("# extras/"):
            exec(compile(block.text, "extend.md", "exec"), scope)
    model, data = scope["model"], scope["data"]
    assert not hasattr(scope["method"], "kept")  # a fit leaves its parameters as they were
    by_name = clone(model).set_params(
        method="small_loss", detector="knn_distance", settings={"method.forget_rate": 0.4}
    )
    by_name.fit(data["images"], data["labels"])
    np.testing.assert_array_equal(model.ood_score(data["images"]), by_name.ood_score(data["images"]))
    np.testing.assert_array_equal(model.predict_proba(data["images"]), by_name.predict_proba(data["images"]))
    assert (model.config_.method.name, model.config_.ood.detector) == ("small_loss", "knn_distance")
    model.save("saved")
    loaded = NoisyGraphClassifier.load("saved")
    np.testing.assert_array_equal(loaded.ood_score(data["images"]), model.ood_score(data["images"]))
    refused = clone(model).set_params(settings={"method.forget_rate": 0.1})
    with pytest.raises(InputError, match=r"^method\.forget_rate: the method is an object"):
        refused.fit(data["images"], data["labels"])
    assert len(scope["verdicts"]) == 60
    with pytest.raises(InputError, match=r"^gone\.png: "):
        embed_photos([Path("gone.png")], load_embedder("color-histogram"))


BAD = {
    "no-module": ("graphclean.methods", "x", "nowhere:X", "can't be loaded: No module named 'nowhere'"),
    "no-class": ("graphclean.methods", "x", "extras.small_loss:Y", "can't be loaded: .* no attribute 'Y'"),
    "no-method": ("graphclean.methods", "x", "extras.knn_distance:KnnDistance", "is no subclass of .*Method"),
    "name": ("graphclean.methods", "x", "extras.small_loss:SmallLoss", "calls itself small_loss"),
    "no-detector": (
        "graphclean.detectors",
        "x",
        "extras.small_loss:SmallLoss",
        "is no subclass of .*Detector",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_registered_wrongly_is_told(extras: Path, case: str) -> None:
    group, name, value, message = BAD[case]
    register(extras, "bad", {group: {name: value}})
    invalidate_caches()
    load = load_method if group == "graphclean.methods" else load_detector
    with pytest.raises(InputError, match=rf"^{group}: x = {value}: .*{message}"):
        load(name)


@pytest.mark.usefixtures("extras")
def test_a_detector_that_can_have_no_use_is_refused_before_training(
    cli: Cli, extras: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "data")
    (extras / "extras" / "tokens.py").write_text(
        "from graphclean.ood.detector import Detector\n"
        "class Tokens(Detector):\n    name, needs, title = 'tokens', 'tokens', 'by tokens of text'\n"
    )
    register(extras, "more", {"graphclean.detectors": {"tokens": "extras.tokens:Tokens"}})
    invalidate_caches()
    slip = cli("train", "images.npz", "--set", "ood.detector=knn_distanse")
    assert slip.err == "graphclean: ood.detector=knn_distanse: no such detector; did you mean knn_distance?\n"
    needs = cli("train", "images.npz", "--set", "ood.detector=tokens")
    assert needs.err == (
        "graphclean: ood.detector=tokens: it needs tokens, but models have only logits, z, features, "
        "layers, inputs; use another one, such as energy\n"
    )
    panel = cli("train", "embeddings.npz", "--set", "ood.detector=knn_distance")
    assert panel.err.endswith("have their own detector; use auto, or cleaning.classifier=knn\n")
    assert (slip.code, needs.code, panel.code, panel.err.count("\n")) == (2, 2, 2, 1)
    assert not Path("runs").exists()
