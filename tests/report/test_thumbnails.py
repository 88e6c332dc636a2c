"""The pictures behind a run's samples."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from graphclean.errors import InputError
from graphclean.report.thumbnails import Pictures, find_pictures
from graphclean.runs.folder import write_env
from graphclean.runs.inputs import Names, read_source
from graphclean.runs.origin import sealed


def opened(content: bytes | None) -> Image.Image:
    assert content is not None
    return Image.open(io.BytesIO(content))


def test_few_pixels_are_kept_to_the_bit_and_many_made_small() -> None:
    rng = np.random.default_rng(0)
    there = {0: rng.integers(0, 256, (1, 8, 8), dtype=np.uint8), 1: np.zeros((3, 200, 400), dtype=np.uint8)}
    pictures = Pictures(lambda rows: ((row, there[row]) for row in rows if row in there), True, str)
    image = opened(pictures.encode(0, 100))
    assert (image.format, image.mode) == ("PNG", "L")
    np.testing.assert_array_equal(np.asarray(image), there[0][0])
    image = opened(pictures.encode(1, 100))
    assert (image.format, image.size) == ("JPEG", (100, 50))
    assert pictures.encode(2, 100) is None


def test_many_come_in_order_without_those_that_have_none() -> None:
    pixels = {row: np.full((1, 4, 4), row, dtype=np.uint8) for row in range(100) if row % 3}
    pictures = Pictures(lambda rows: ((row, pixels[row]) for row in sorted(rows) if row in pixels), True, str)
    found = dict(pictures.encode_many(range(100), 10))
    assert list(found) == list(pixels)
    assert np.asarray(opened(found[70]))[0, 0] == 70


def test_a_folder_in_the_run_is_not_taken_for_its_photos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`apply --copy` may leave a cleaned folder there under the name of the data."""
    monkeypatch.chdir(tmp_path)
    for folder, level in (("photos/a", 200), ("run/photos/a", 10)):
        Path(folder).mkdir(parents=True)
        Image.new("L", (4, 4), level).save(f"{folder}/0.png")
    pictures = find_pictures(Path("run"), sealed({"kind": "photos", "data": "photos"}), ["a/0.png"])
    assert np.asarray(opened(pictures.encode(0, 9)))[0, 0, 0] == 200


def test_arrays_are_not_taken_for_a_table_of_photos(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((2, 3, 8, 8), dtype=np.uint8))
    source = sealed({"kind": "photos", "data": str(tmp_path / "x.npz")})
    with pytest.raises(InputError, match=r"x\.npz: no photos; they are a folder, a file, or a table"):
        find_pictures(tmp_path / "run", source, ["a/0.png"])


def test_photos_in_a_table_are_read_in_one_pass(tmp_path: Path) -> None:
    cells = []
    for number in range(200):
        content = io.BytesIO()
        Image.new("L", (4, 4), number).save(content, "PNG")
        cells.append({"bytes": content.getvalue(), "path": f"{number}.png"})
    cells[7] = {"bytes": b"no picture", "path": "7.png"}
    table = {"image": cells, "label": [str(number % 2) for number in range(200)]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    source = sealed({"kind": "photos", "data": str(tmp_path / "t.parquet")})
    pictures = find_pictures(tmp_path, source, [f"{number}.png" for number in range(200)])
    assert not pictures.direct
    found = {
        row: np.asarray(opened(content))[0, 0, 0] for row, content in pictures.encode_many([150, 3, 7], 9)
    }
    assert found == {3: 3, 150: 150}
    # A sample that stands elsewhere by now is found by its id.
    pictures = find_pictures(tmp_path, source, ["gone.png", "42.png"])
    assert [row for row, _ in pictures.encode_many([0, 1], 9)] == [1]
    assert np.asarray(opened(pictures.encode(1, 9)))[0, 0, 0] == 42


def test_a_set_of_the_hub_is_not_loaded_unasked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not loaded again unasked; data asks for it"):
        find_pictures(tmp_path, {"kind": "photos", "data": "hf:some/set"}, [])


def test_a_large_jpeg_is_small_and_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    (tmp_path / "a").mkdir()
    Image.new("RGB", (800, 400), "teal").save(tmp_path / "a/x.jpg", exif=exif)
    source = sealed({"kind": "photos", "data": str(tmp_path)})
    image = opened(find_pictures(tmp_path, source, ["a/x.jpg"]).encode(0, 100))
    assert image.size == (50, 100)


def test_broken_and_missing_photos_have_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "a/x.png")
    (tmp_path / "a/y.png").write_bytes(b"no picture")
    source = sealed({"kind": "photos", "data": str(tmp_path)})
    pictures = find_pictures(tmp_path, source, ["a/x.png", "a/y.png", "a/z.png"])
    assert [pictures.encode(row, 50) is None for row in range(3)] == [False, True, True]


def test_photos_that_are_not_those_of_the_run_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "a/x.png")
    source = sealed({"kind": "photos", "data": str(tmp_path / "gone")})
    with pytest.raises(InputError, match=r"gone: not found; .* or name its place now with data$"):
        find_pictures(tmp_path, source, ["a/x.png"])
    with pytest.raises(InputError, match="not one of the run's photos is in it"):
        find_pictures(tmp_path, source, ["b.png"], tmp_path)
    (tmp_path / "m.csv").write_text("path,id,label\na/x.png,1,u\na/x.png,1,v\n")
    with pytest.raises(InputError, match="has changed since the run, and ids stand in it more than once"):
        find_pictures(tmp_path, source, ["1"], tmp_path / "m.csv")


def test_arrays_are_known_by_their_fingerprint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 5, 5, 3), dtype=np.uint8), np.arange(6) % 2
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    write_env(tmp_path, read_source(tmp_path / "data.npz", Names(), images=True).fingerprint())
    source = sealed({"kind": "images", "data": str(tmp_path / "data.npz")})
    image = opened(find_pictures(tmp_path, source, []).encode(3, 50))
    np.testing.assert_array_equal(np.asarray(image), images[3])
    np.savez(tmp_path / "data.npz", images=images[::-1], labels=labels)
    with pytest.raises(InputError, match="not those that the run was made from"):
        find_pictures(tmp_path, source, [])


def test_embeddings_have_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pictures"):
        find_pictures(tmp_path, {"kind": "features"}, [])
