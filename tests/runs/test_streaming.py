"""Runs on photos that are streamed: like those on photos in memory, also after whatever went wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from graphclean.data.photo_stream import PhotoStream
from graphclean.errors import InputError, RunStopped
from graphclean.runs.callbacks import Watcher
from graphclean.runs.train import train
from tests.builders import Cli
from tests.runs.tiny import metrics

SETTINGS = (
    "training.epochs=2",
    "training.network=small-conv",
    "training.image_size=12",
    "training.batch_size=16",
    "training.crop_scale=0.5",
    "method.name=cross-entropy",
)
COLORS = {"red": (200, 40, 40), "blue": (40, 60, 200)}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name, color in COLORS.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(20):
            pixels = np.clip(rng.normal(color, 25, (30, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number:02}.jpg")
    (tmp_path / "photos" / "red" / "broken.jpg").write_bytes(b"no photo")
    return tmp_path / "photos"


def start(photos: Path, out: Path, storage: str = "auto", **more: Any) -> Any:
    settings = (*SETTINGS, f"training.photo_storage={storage}")
    return train(photos, out, preset="photos", settings=settings, device="cpu", **more)


def verdicts(run: Path) -> str:
    return (run / "verdicts.csv").read_text()


@pytest.mark.slow
def test_results_do_not_depend_on_where_photos_are(photos: Path, tmp_path: Path) -> None:
    runs = {storage: tmp_path / storage for storage in ("disk", "encoded", "decode")}
    for storage, out in runs.items():
        start(photos, out, storage)
    assert len({verdicts(out) for out in runs.values()}) == 1
    assert metrics(runs["disk"]) == metrics(runs["decode"])
    assert "red/broken.jpg,not an image" in (runs["disk"] / "unreadable.csv").read_text()
    source = json.loads((runs["disk"] / "config.json").read_text())["source"]
    assert source["shrunk"] is True
    assert source["size"] == 12


@pytest.mark.slow
def test_photos_beyond_the_memory_are_streamed(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    watcher = Watcher(say=said.append)
    start(photos, tmp_path / "small", watcher=watcher)
    assert not any("streamed" in line for line in said)
    monkeypatch.setattr("graphclean.runs.photos.photo_memory", lambda: 1000)
    start(photos, tmp_path / "large", watcher=watcher)
    assert sum("photos are streamed at 12 px, and their pixels are kept in" in line for line in said) == 1


@pytest.mark.slow
def test_a_run_whose_photo_vanishes_continues_when_it_is_back(photos: Path, tmp_path: Path) -> None:
    start(photos, tmp_path / "whole", "decode")
    path = photos / "blue" / "07.jpg"
    content = path.read_bytes()

    def remove(*_: object) -> None:
        path.unlink(missing_ok=True)

    out = tmp_path / "out"
    with pytest.raises(
        InputError, match=r"blue/07\.jpg: no such file, but the run began with a photo"
    ) as error:
        start(photos, out, "decode", watcher=Watcher(epoch=remove))
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="not those that the run was started"):
        train(photos, out, resume=True, device="cpu")
    path.write_bytes(content)
    train(photos, out, resume=True, device="cpu")
    assert verdicts(out) == verdicts(tmp_path / "whole")
    assert metrics(out) == metrics(tmp_path / "whole")


@pytest.mark.slow
def test_an_interrupt_while_photos_are_read_tells_what_is_kept(photos: Path, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(
        RunStopped, match=r"the pixels of \d+ photos are kept, and the same command continues"
    ):
        start(photos, tmp_path / "out", "disk", watcher=Watcher(stage=interrupt))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("photos")
def test_new_photos_are_read_as_those_of_the_run(tmp_path: Path, cli: Cli) -> None:
    """So a photo of the training set is found again to the bit, and validation photos too."""
    done = cli(
        *("train", "photos", "--preset", "photos", "--out", "run", "--validation", "photos"),
        *(word for setting in (*SETTINGS, "training.photo_storage=disk") for word in ("--set", setting)),
    )
    assert done.code == 0, done.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert any("40 validation samples" in line or "all 40" in line for line in summary["warnings"]), summary
    assert cli("predict", "run", "photos/red/03.jpg").code == 0
    assert cli("report", "run").code == 0
    shown = cli("data", "cache")
    assert "40 of 41" in shown.out
    listed = json.loads(cli("data", "cache", "--json").out)["photos"]["entries"]
    assert [(entry["kept"], entry["size"]) for entry in listed] == [(40, 12)]
    assert cli("data", "cache", "--clear").code == 0
    assert json.loads(cli("data", "cache", "--json").out)["photos"]["entries"] == []


def test_a_stream_is_told_apart_from_an_array() -> None:
    assert PhotoStream.ndim == 4
    assert PhotoStream.dtype == np.uint8
