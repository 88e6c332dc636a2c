"""What a page shows is kept from one start to the next, and made again when what it is made from changes."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from graphclean.report import map as room
from graphclean.report import thumbnails
from graphclean.report.build import build_page
from graphclean.report.kept import KeptParts
from graphclean.runs.folder import KEPT
from graphclean.runs.projection import write_points
from tests.report.builders import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", photos=tmp_path / "photos")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often a map is drawn, and a picture read."""
    done = {"maps": 0, "pictures": 0}
    draw, encode = room._by_tsne, thumbnails._encode

    def drawing(z: Any) -> Any:
        done["maps"] += 1
        return draw(z)

    def encoding(pixels: Any, side: int) -> Any:
        done["pictures"] += 1
        return encode(pixels, side)

    monkeypatch.setattr(room, "_by_tsne", drawing)
    monkeypatch.setattr(thumbnails, "_encode", encoding)
    monkeypatch.setattr(room.importlib.util, "find_spec", lambda _: None)
    return done


def test_a_second_page_is_the_same_without_the_work(run: Path, work: dict[str, int]) -> None:
    first = build_page(run).content
    assert work == {"maps": 1, "pictures": 60}
    assert build_page(run).content == first
    assert b'"mode":"review"' in build_page(run, token="t").content
    assert work == {"maps": 1, "pictures": 60}


def test_a_photo_that_changed_is_read_again(run: Path, tmp_path: Path, work: dict[str, int]) -> None:
    before = build_page(run).content
    Image.new("RGB", (48, 40), (255, 255, 255)).save(tmp_path / "photos/p00000.png")
    assert build_page(run).content != before
    assert work == {"maps": 1, "pictures": 61}
    (tmp_path / "photos/p00001.png").unlink()
    assert "1 is no longer there" in build_page(run).notes[0]


def test_a_map_of_other_features_is_drawn_again(run: Path, work: dict[str, int]) -> None:
    build_page(run)
    tensors, _ = room.read_tensors(run / "points.safetensors")
    write_points({**tensors, "z": tensors["z"] + 1e-3}, run)
    build_page(run)
    assert work == {"maps": 2, "pictures": 60}


@pytest.mark.parametrize("content", [b"", b"no tensors", b"\x08" + b"\0" * 7 + b"{}      "])
def test_what_was_kept_badly_is_made_again(run: Path, work: dict[str, int], content: bytes) -> None:
    first = build_page(run).content
    (run / KEPT).write_bytes(content)
    assert build_page(run).content == first
    assert work == {"maps": 2, "pictures": 120}
    build_page(run)
    assert work == {"maps": 2, "pictures": 120}


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_run_that_cant_be_written_to_has_a_page_too(run: Path) -> None:
    run.chmod(0o555)
    assert build_page(run).content
    run.chmod(0o755)


def test_the_places_of_a_map_are_kept_exactly(run: Path, work: dict[str, int]) -> None:
    _, rows, z = room.read_points(run)
    kept = KeptParts(run)
    places, how = room._find_places(z, kept)
    kept.save()
    again, how_again = room._find_places(z, KeptParts(run))
    np.testing.assert_array_equal(again, places)
    assert (how_again, work["maps"], len(rows)) == (how, 1, 60)
