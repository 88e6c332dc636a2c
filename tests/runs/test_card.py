"""The model card next to an exported model."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from graphclean.data.digits import noisy_digits
from graphclean.embed.efficientnet import EfficientNetLite0
from graphclean.runs.card import code, describe_model, plain
from graphclean.runs.predict import load_model
from tests.builders import Cli, Refuse
from tests.runs.tiny import TINY, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")


def rows(card: str, title: str) -> dict[str, str]:
    """The table under a heading."""
    part = card.split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return {line[0]: line[1] for line in lines if len(line) == 2}


def test_a_card_says_where_a_model_comes_from(cli: Cli, refuse: Refuse, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    digits = noisy_digits(noise=0.3)
    np.savez(tmp_path / "z.npz", features=digits.pixels[:300], labels=digits.labels[:300])
    assert cli("clean", "z.npz", "--out", "run", "--quiet").code == 0
    assert "run/model.md" in cli("export", "run").out
    card = (tmp_path / "run" / "model.md").read_text()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    data, model = rows(card, "Data"), rows(card, "Model")
    assert data["source"] == "`z.npz`"
    assert data["samples"] == "300 in 8 classes"
    assert data["verdicts on their labels"].startswith(f"{summary['verdicts']['keep']} keep, ")
    assert data["estimated wrong labels"] == f"{100 * summary['noise_rate']:.1f} %"
    content = (tmp_path / "run" / "model.onnx").read_bytes()
    assert model["SHA-256 of the file"] == f"`{hashlib.sha256(content).hexdigest()}`"
    assert rows(card, "Scores")["verdicts `keep` that are right"].startswith("9")
    assert "Embedder" not in card
    assert card.count("- `") == 8
    refuse("export run", "use --overwrite to replace it")
    (tmp_path / "mine.md").write_text("mine")
    refuse("export run --out mine.onnx", "mine.md: the file exists")


def test_a_card_of_training_tells_of_network_and_accuracy(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY, "--out", "run", "--quiet", "--validation", "new.npz").code == 0
    model = load_model(tmp_path / "run")
    about = {"input": "images", "outputs": {"probabilities": "of the classes"}}
    card = describe_model(tmp_path / "run", model, EfficientNetLite0.__new__(EfficientNetLite0), b"x", about)
    training = json.loads((tmp_path / "run" / "summary.json").read_text())["training"]
    assert rows(card, "Model")["kind"] == f"network `{training['network']}`"
    assert rows(card, "Training")["preset"] == f"`{training['preset']}`"
    right = rows(card, "Scores")["accuracy on samples with checked labels"]
    assert right == f"{100 * training['validation_accuracy']:.1f} %"


def test_the_embedder_is_told_with_its_license() -> None:
    assert EfficientNetLite0.license == "Apache-2.0"
    assert "ImageNet" in str(EfficientNetLite0.trained_on)


def test_what_comes_from_data_is_text() -> None:
    assert plain("a|b\n# *c* <img src=x> [d](e)") == r"a\|b \# \*c\* \<img src=x\> \[d\](e)"
    assert code("a`b|c\nd") == "`a'b¦c d`"
    assert code("") == "` `"
