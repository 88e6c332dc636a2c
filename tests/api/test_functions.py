"""A function as embedder, through Python's front door: all that a run of it can do, and what it can't."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Tensor

import graphclean
from graphclean.embed import Embedder, FunctionEmbedder
from graphclean.embed.cache import list_entries
from graphclean.errors import DataWarning, InputError
from tests.builders import Cli

COLORS = {"blue": (20, 40, 220), "green": (20, 200, 40), "red": (220, 30, 30)}
SETTINGS = {"cleaning.k": 5}


@pytest.fixture(autouse=True)
def _calm(one_thread: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    del one_thread
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHCLEAN_CACHE", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of 12 photos; one more of red lies in blue."""
    rng = np.random.default_rng(0)
    for color, values in COLORS.items():
        for number in range(13 if color == "red" else 12):
            place = tmp_path / "photos" / (color if number < 12 else "blue")
            place.mkdir(parents=True, exist_ok=True)
            pixels = np.array(values) + rng.integers(-15, 15, (24, 24, 3)) + rng.integers(-15, 15, 3)
            name = f"{number:02}.png" if number < 12 else "wrong.png"
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(place / name)
    return Path("photos")


def mean_color(pictures: np.ndarray) -> np.ndarray:
    return pictures.mean((1, 2))


def median_color(pictures: np.ndarray) -> np.ndarray:
    return np.median(pictures, (1, 2)) + 40


class Colors(Embedder):
    """Registered under no name."""

    name, size = "colors", 8

    def forward(self, batch: Tensor) -> Tensor:
        return batch.float().mean((2, 3))


def test_verdicts_and_predictions_by_a_function(cli: Cli, photos: Path) -> None:
    run = graphclean.clean(photos, embedder=mean_color, against=photos, settings=SETTINGS, quiet=True)
    table = run.verdicts.set_index("id")
    assert table.proposed_label["blue/wrong.png"] == "red"
    assert table.verdict["blue/wrong.png"] == "relabel"
    assert run.config["source"]["embedder"] == "function:mean_color"
    assert list_entries() == []
    found = run.predict(photos, embedder=mean_color, quiet=True).set_index("id")
    assert (found.predicted_label == [name.split("/")[0] for name in found.index]).sum() == len(found) - 1
    again = graphclean.clean(run.path, embedder=mean_color, quiet=True)
    assert again.verdicts.verdict.tolist() == run.verdicts.verdict.tolist()
    refused = cli("predict", str(run.path), "photos")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "function:mean_color was a function in Python; pass it there, as embedder" in refused.err


def test_what_a_run_by_a_function_can_not_do_is_told(photos: Path) -> None:
    run = graphclean.clean(photos, embedder=mean_color, settings=SETTINGS, quiet=True)
    with pytest.raises(InputError, match="function:mean_color was a function in Python; pass it there"):
        run.predict(photos, quiet=True)
    with pytest.raises(InputError, match="function:mean_color was a function in Python; pass it there"):
        graphclean.clean(run.path, quiet=True)
    with pytest.raises(
        InputError, match="function:median_color gives other features; pass the same embedder"
    ):
        run.predict(photos, embedder=median_color, quiet=True)
    with pytest.raises(InputError, match="embedded by function:mean_color, and colors gives other features"):
        run.predict(photos, embedder=Colors(), quiet=True)
    with pytest.raises(InputError, match="an embedder in Python is a function"):
        graphclean.clean(photos, embedder=Colors, out="no", quiet=True)
    assert not Path("no").exists()
    rows = np.repeat(np.eye(3), 20, 0) + np.random.default_rng(0).normal(0, 0.1, (60, 3))
    of_arrays = graphclean.clean(rows, np.repeat(["a", "b", "c"], 20), settings=SETTINGS, quiet=True)
    with pytest.raises(InputError, match="this run embedded no photos, so leave embedder out"):
        of_arrays.predict(np.eye(3), embedder=mean_color)
    with pytest.raises(InputError, match="embedder is for data that is given as a path, not for arrays"):
        graphclean.clean(np.zeros((9, 8, 8, 3), np.uint8), list("abc") * 3, embedder=mean_color)
    pytest.importorskip("onnxruntime")
    with pytest.raises(InputError, match="was a function in Python, which ONNX can't hold"):
        run.export(quiet=True)


def test_features_of_a_named_function_are_used_again_by_it_alone(photos: Path) -> None:
    counts = []

    def counted(pictures: np.ndarray) -> np.ndarray:
        counts.append(len(pictures))
        return mean_color(pictures)

    runs = []
    for out in ("first", "second"):
        counts.clear()
        embedder = FunctionEmbedder(counted, "colors-v1", size=8)
        runs.append(graphclean.clean(photos, embedder=embedder, out=out, settings=SETTINGS, quiet=True))
        assert counts == ([8, 8, 32, 32] if out == "first" else [8, 8])
    assert runs[0].verdicts.equals(runs[1].verdicts)
    assert [(entry.key.embedder, entry.photos) for entry in list_entries()] == [("function:colors-v1", 37)]
    other = FunctionEmbedder(median_color, "colors-v1", size=8)
    graphclean.clean(photos, embedder=other, out="third", settings=SETTINGS, quiet=True)
    assert [entry.photos for entry in list_entries()] == [37, 37]


def test_an_embedder_that_is_registered_nowhere_predicts_when_it_is_passed(photos: Path) -> None:
    run = graphclean.clean(photos, embedder=Colors(), settings=SETTINGS, quiet=True)
    assert len(run.predict(photos, embedder=Colors(), quiet=True)) == 37
    with pytest.raises(InputError, match='there is no embedder "colors"'):
        run.predict(photos, quiet=True)


@pytest.mark.slow
def test_heads_are_trained_on_what_a_function_gives(photos: Path) -> None:
    quick = {"training.epochs": 2, "cleaning.k": 5}
    run = graphclean.train(photos, embedder=mean_color, validation=photos, settings=quick, quiet=True)
    assert run.config["preset"] == "embeddings"
    assert run.summary["training"]["validation_accuracy"] > 0.9
    found = run.predict(photos, embedder=mean_color, quiet=True)
    assert len(found) == 37
    with pytest.raises(InputError, match="function:mean_color was a function in Python"):
        run.predict(photos, quiet=True)
    with pytest.raises(InputError, match="takes the photos themselves"):
        graphclean.train(photos, embedder=mean_color, preset="photos", out="no", quiet=True)
