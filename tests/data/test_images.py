import os
import tracemalloc
import warnings
from datetime import date
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from graphclean.data.image_folder import empty_folders, read_image_folder
from graphclean.data.images import UnreadableImage, open_image
from graphclean.data.manifests import looks_like_manifest, read_manifest
from graphclean.data.tables import Names
from graphclean.errors import InputError
from graphclean.runs.photos import find_photos

RED, BLUE = (255, 0, 0), (0, 0, 255)


def save(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2), RED).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes of one photo each, beside a photo that is outside."""
    root = tmp_path / "photos"
    save(root / "cat" / "1.png")
    save(root / "dog" / "2.png")
    save(tmp_path / "secret.png")
    return root


def refused(path: Path) -> str:
    with pytest.raises(UnreadableImage) as caught:
        open_image(path)
    return str(caught.value)


def test_photos_come_sorted_with_the_first_folder_as_label(tmp_path: Path) -> None:
    for name in ("dog/b.JPG", "dog/a.png", "cat/deep/er/z.webp", "top.bmp", ".git/x.png", "cat/._a.png"):
        save(tmp_path / name)
    (tmp_path / "cat" / "notes.txt").write_text("no photo")
    images = read_image_folder(tmp_path)
    assert images.ids == ["cat/deep/er/z.webp", "dog/a.png", "dog/b.JPG", "top.bmp"]
    assert images.labels == ["cat", "dog", "dog", ""]
    assert images.paths == [images.root / name for name in images.ids]
    assert images.problems == {}
    flat = read_image_folder(tmp_path / "dog", labeled=False)
    assert (flat.ids, flat.labels) == (["a.png", "b.JPG"], None)


def test_photos_of_telephones_and_browsers_are_not_passed_over(tmp_path: Path) -> None:
    for name in ("cat/a.png", "dog/b.jpg"):
        save(tmp_path / name)
    (tmp_path / "dog/b.jpg").rename(tmp_path / "dog/b.JFIF")
    (tmp_path / "cat/c.HEIC").write_bytes(b"ftypheic")
    (tmp_path / "cat/d.cr2").write_bytes(b"II*")
    images = read_image_folder(tmp_path)
    assert images.ids == ["cat/a.png", "cat/c.HEIC", "cat/d.cr2", "dog/b.JFIF"]
    why = "is not read; convert it to .jpg or .png"
    assert images.problems == {1: f".heic {why}", 2: f".cr2 {why}"}
    assert images.paths[1] is None


def test_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    for name in (
        "set/train/cat/1.png",
        "set/train/dog/2.png",
        "set/Test/3.png",
        "rail/train/1.png",
        "rail/val/2.png",
    ):
        save(tmp_path / name)
    with pytest.raises(
        InputError, match=r"set: train, Test are parts of a data set, not classes; give one: .*/train$"
    ):
        read_image_folder(tmp_path / "set")
    assert len(read_image_folder(tmp_path / "set", labeled=False).ids) == 3
    assert read_image_folder(tmp_path / "rail").labels == ["train", "val"]  # nothing below says otherwise
    save(tmp_path / "set/bus/4.png")
    assert read_image_folder(tmp_path / "set").labels == ["Test", "bus", "train", "train"]


def test_links_that_leave_or_lead_nowhere_are_rows_that_are_not_opened(folder: Path) -> None:
    (folder / "cat" / "in.png").symlink_to(folder / "dog" / "2.png")
    (folder / "cat" / "out.png").symlink_to(folder.parent / "secret.png")
    (folder / "cat" / "gone.png").symlink_to(folder / "nothing.png")
    (folder / "cat" / "round.png").symlink_to(folder / "cat" / "round.png")
    (folder / "cat" / "out.txt").symlink_to(folder.parent / "secret.png")
    images = read_image_folder(folder)
    problems = {images.ids[row]: reason for row, reason in images.problems.items()}
    assert problems == {
        "cat/out.png": "leaves the folder",
        "cat/gone.png": "broken link",
        "cat/round.png": "broken link",
    }
    opened = [name for name, path in zip(images.ids, images.paths, strict=True) if path is not None]
    assert opened == ["cat/1.png", "cat/in.png", "dog/2.png"]


def test_only_the_folder_itself_may_be_linked_and_loops_end(folder: Path) -> None:
    (folder.parent / "link").symlink_to(folder)
    (folder / "all").symlink_to(folder.parent)
    (folder / "dog" / "loop").symlink_to(folder)
    images = read_image_folder(folder.parent / "link")
    assert images.ids == ["all", "cat/1.png", "dog/2.png", "dog/loop"]
    assert images.problems == {0: "leaves the folder", 3: "linked folder, not entered"}


def test_what_is_called_a_photo_but_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "cat" / "pipe.png")
    images = read_image_folder(folder)
    assert images.problems == {images.ids.index("cat/pipe.png"): "not a file"}
    assert refused(folder / "cat" / "pipe.png") == "not a file"


def test_names_that_are_not_text_get_ids_that_are(folder: Path) -> None:
    os.rename(folder / "cat" / "1.png", os.fsencode(folder / "cat") + b"/\xff.png")
    images = read_image_folder(folder)
    assert images.ids[0] == "cat/\\xff.png"
    assert images.paths[0] is not None
    assert open_image(images.paths[0]).getpixel((0, 0)) == RED


def test_a_folder_whose_name_is_not_text_is_not_said_to_be_empty(folder: Path) -> None:
    os.rename(folder / "cat", os.fsencode(folder) + b"/cat\xff")
    images = read_image_folder(folder)
    assert images.labels is not None
    assert "cat\\xff" in images.labels
    assert empty_folders(folder, set(images.labels)) == []


def test_folders_that_cannot_be_used_say_why(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a.png").symlink_to(folder / "cat" / "1.png")
    for path, message in (
        (tmp_path / "none", "no such folder: .*none$"),
        (folder / "cat" / "1.png", "1.png is not a folder$"),
        (tmp_path / "empty", "no images in .*empty$"),
        (
            tmp_path / "links",
            "no images in .*links that can be opened; a.png: leaves the folder, and links out of it ",
        ),
    ):
        with pytest.raises(InputError, match=message):
            read_image_folder(path)
    few = "no classes in .*cat; at least two are needed, each as a folder of photos$"
    with pytest.raises(InputError, match=few):
        find_photos(folder / "cat", Names())
    (folder / "dog" / "2.png").rename(folder / "2.png")
    with pytest.raises(InputError, match=r"^one class \(cat\) in"):
        find_photos(folder, Names())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.csv", "path,label\ncat/1.png,cat\ndog/2.png,NA\n"),
        ("m.csv", "\ufeffLabel;File;note\r\ncat;cat/1.png;x,y\r\n\r\nNA;dog/2.png;\r\n"),
        ("m.tsv", 'image_path\tclass\ncat/1.png\tcat\n"dog/2.png"\tNA\n'),
        ("m.txt", "y\tfilename\ncat\tcat/1.png\nNA\tdog/2.png\n"),
    ],
)
def test_tables_as_people_write_them(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8", newline="")
    images = read_manifest(folder / name)
    assert images.ids == ["cat/1.png", "dog/2.png"]
    assert images.labels == ["cat", "NA"]
    assert images.paths == [images.root / "cat" / "1.png", images.root / "dog" / "2.png"]
    assert images.problems == {}


def test_parquet_tables_read_like_text(folder: Path) -> None:
    files, targets = ["cat/1.png", "dog/2.png", None], [7.0, 1.0, None]
    frame = pd.DataFrame({"file": files, "target": targets, "key": [10, 11, 12]})
    frame.to_parquet(folder / "m.parquet")
    images = read_manifest(folder / "m.parquet", id_column="key")
    assert (images.ids, images.labels) == (["10", "11", "12"], ["7", "1", ""])
    assert images.problems == {2: "no path"}
    pd.DataFrame({"image": [{"bytes": b"x"}], "label": ["a"]}).to_parquet(folder / "hf.parquet")
    days = [date(2024, 5, 1), date(2024, 5, 2), None]
    for labels in (days, pd.to_datetime(days)):
        pd.DataFrame({"file": files, "label": labels}).to_parquet(folder / "days.parquet")
        assert read_manifest(folder / "days.parquet").labels == ["2024-05-01", "2024-05-02", ""]
    with pytest.raises(InputError, match='column "image" holds dict values'):
        read_manifest(folder / "hf.parquet")
    (folder / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match=r"bad.parquet: can't be read: "):
        read_manifest(folder / "bad.parquet")


def test_paths_that_leave_or_lead_nowhere_are_rows_that_are_not_opened(folder: Path) -> None:
    (folder / "out.png").symlink_to(folder.parent / "secret.png")
    rows = {
        str(folder / "cat" / "1.png"): None,
        "cat/../dog/2.png": None,
        "../secret.png": "leaves the folder",
        str(folder.parent / "secret.png"): "leaves the folder",
        "../not-there.png": "leaves the folder",
        "out.png": "leaves the folder",
        "cat/3.png": "no such file",
        "cat": "not a file",
        "": "no path",
        "x" * 5000: "no such file",
        "nul\0.png": "no such file",
        r"cat\1.png": None,
        r".\dog\2.png ": None,
        r"..\secret.png": "leaves the folder",
        " cat/1.png": None,
        "https://example.org/cat/1.png": "a web address, which is not fetched",
    }
    lines = [f"{path},{'ab'[row % 2]}" for row, path in enumerate(rows)]
    (folder / "m.csv").write_text("\n".join(["path,label", *lines]))
    images = read_manifest(folder / "m.csv")
    assert images.ids == list(rows)
    assert [images.problems.get(row) for row in range(len(rows))] == list(rows.values())
    assert [path is None for path in images.paths] == [reason is not None for reason in rows.values()]


def test_a_name_is_first_taken_as_it_is_written(folder: Path) -> None:
    r"""Where `cat\1.png` is the name of a file, it is no folder's."""
    (folder / "cat\\1.png").write_bytes((folder / "dog" / "2.png").read_bytes())
    (folder / "m.csv").write_text("path,label\ncat\\1.png,a\ndog/2.png,b\n")
    assert read_manifest(folder / "m.csv").paths[0] == Path(os.path.realpath(folder)) / "cat\\1.png"


def test_a_table_beside_its_photos_says_where_it_belongs(folder: Path) -> None:
    (folder / "cat" / "m.csv").write_text("path,label\n../dog/2.png,a\n../cat2/1.png,b\n")
    with pytest.raises(InputError, match=r"leaves the folder of the table; move the table to a folder that"):
        read_manifest(folder / "cat" / "m.csv")


def test_usual_columns_in_capitals_and_spaces_at_the_end_of_names(folder: Path) -> None:
    (folder / "m.csv").write_text("ID, Path, Label\n7,cat/1.png ,a\n8,dog/2.png ,b\n")
    assert looks_like_manifest(folder / "m.csv")
    images = read_manifest(folder / "m.csv")
    assert (images.ids, images.problems) == (["7", "8"], {})
    pd.read_csv(folder / "m.csv").rename(columns=str.strip).to_parquet(folder / "m.pq")
    assert looks_like_manifest(folder / "m.pq")


def test_columns_are_named_or_asked_for(folder: Path) -> None:
    table = folder / "m.csv"
    table.write_text("path,image,labels,kind,key\ncat/1.png,dog/2.png,a,b,k1\ndog/2.png,cat/1.png,b,b,k2\n")
    images = read_manifest(table, path_column="image", label_column="labels", id_column="key")
    assert (images.ids, images.labels) == (["k1", "k2"], ["a", "b"])
    assert images.paths[0] == images.root / "dog" / "2.png"
    for columns, message in (
        ({}, r"more than one column could hold the path \(path, image\); name it with path_column$"),
        (
            {"path_column": "path"},
            r"\(there are: path, image, labels, kind, key\); name the one that does with label_column",
        ),
        ({"path_column": "pth"}, "no column 'pth' in it; did you mean 'path'"),
        ({"path_column": "path", "label_column": "zzz"}, "no column 'zzz' in it; it holds path,"),
    ):
        with pytest.raises(InputError, match=message):
            read_manifest(table, **columns)
    with pytest.raises(InputError, match=r"^one class \(b\) in .*m.csv; at least two"):
        find_photos(table, Names(path_column="path", label_column="kind"))
    unlabeled = read_manifest(table, path_column="path", labeled=False)
    assert (unlabeled.ids, unlabeled.labels) == (["cat/1.png", "dog/2.png"], None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"a,b,c,d,e,f,g,h,i\n",
            r"the path \(there are: a, b, c, d, e, f, g, h, …\); name the one that does with path_column$",
        ),
        (b"", "the file is empty"),
        (b"\n\n", r"no column is known to hold the path \(there are: none\)"),
        (b"path,label\n", "m.csv: the table has no rows$"),
        (b"path,label\na.png,x\nb.png,y,z\n", "m.csv, line 3: 3 cells, the header has 2$"),
        (b'path,label\n"a"b.png,x\n', "m.csv, line 2: "),
        (b"path,label\n\xff\xfe,x\n", "m.csv: not text in UTF-8; save it as such"),
        (
            b"path,label\na.png,x\n",
            "no images in .*m.csv that can be opened; a.png: no such file; paths start from .* the table$",
        ),
    ],
)
def test_tables_that_cannot_be_used_say_why(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "m.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_manifest(tmp_path / "m.csv")
    with pytest.raises(InputError, match=r"n.csv: no such file$"):
        read_manifest(tmp_path / "n.csv")


@pytest.mark.parametrize(
    ("mode", "pixels", "suffix", "expected"),
    [
        ("L", [0, 77], "png", [(0, 0, 0), (77, 77, 77)]),
        ("LA", [(9, 255), (9, 0)], "png", [(9, 9, 9), (255, 255, 255)]),
        # (10 × 128 + 255 × 127) / 255 = 132.02
        ("RGBA", [(10, 20, 30, 128), (1, 2, 3, 0)], "png", [(132, 137, 142), (255, 255, 255)]),
        ("CMYK", [(255, 0, 0, 0), (0, 0, 0, 255)], "tif", [(0, 255, 255), (0, 0, 0)]),
        ("I;16", [257, 65535], "png", [(1, 1, 1), (255, 255, 255)]),
        ("I;16", [128 * 257, 300], "tif", [(128, 128, 128), (1, 1, 1)]),
        # 12 bits, and 8, in a file of 16
        ("I;16", [4095, 2056], "tif", [(255, 255, 255), (128, 128, 128)]),
        ("I;16", [255, 77], "png", [(255, 255, 255), (77, 77, 77)]),
        ("I", [-100, 155], "tif", [(0, 0, 0), (255, 255, 255)]),
        ("F", [0.5, 0.5], "tif", [(0, 0, 0), (0, 0, 0)]),
    ],
)
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str, pixels: Any, suffix: str, expected: Any) -> None:
    image = Image.new(mode, (2, 1))
    for x, value in enumerate(pixels):
        image.putpixel((x, 0), value)
    image.save(tmp_path / f"a.{suffix}")
    opened = open_image(tmp_path / f"a.{suffix}")
    assert (opened.mode, opened.size) == ("RGB", (2, 1))
    assert [opened.getpixel((x, 0)) for x in range(2)] == expected


def test_palettes_and_their_transparency_are_resolved(tmp_path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([*RED, *BLUE, 0, 255, 0])
    image.putdata([0, 1, 2])
    image.save(tmp_path / "a.png", transparency=b"\xff\x00\x80")
    pixels = [open_image(tmp_path / "a.png").getpixel((x, 0)) for x in range(3)]
    assert pixels == [RED, (255, 255, 255), (127, 255, 127)]


def test_animations_give_their_first_frame(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (2, 2), color) for color in (RED, BLUE)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert open_image(tmp_path / "a.gif").getpixel((0, 0)) == RED


@pytest.mark.parametrize("suffix", ["png", "tif"])
@pytest.mark.parametrize(
    ("orientation", "expected"),
    [(1, [[RED, BLUE]]), (2, [[BLUE, RED]]), (6, [[RED], [BLUE]]), (8, [[BLUE], [RED]])],
)
def test_photos_are_turned_upright(tmp_path: Path, suffix: str, orientation: int, expected: Any) -> None:
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), BLUE)
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / f"a.{suffix}", exif=exif)
    assert np.array_equal(np.asarray(open_image(tmp_path / f"a.{suffix}")), expected)


def test_broken_exif_data_does_not_spoil_a_photo(tmp_path: Path) -> None:
    Image.new("RGB", (2, 1), RED).save(tmp_path / "a.png", exif=b"Exif\0\0II*\0no directory")
    assert open_image(tmp_path / "a.png").getpixel((0, 0)) == RED


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "gif", "tif", "webp"])
def test_cut_off_files_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert refused(path) == ("damaged" if suffix == "webp" else "truncated")


def test_files_that_are_no_photos_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("<html>404</html>")
    Image.new("RGB", (2, 2)).save(tmp_path / "other.jpg", format="PPM")
    assert refused(tmp_path / "empty.jpg") == "empty file"
    assert refused(tmp_path / "text.jpg") == "not an image"
    assert refused(tmp_path / "other.jpg") == "not an image"
    assert refused(tmp_path / "gone.jpg") == "no such file"
    assert refused(tmp_path) == "not a file"
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "")))
    assert refused(tmp_path / "text.jpg") == "permission denied"


@pytest.mark.parametrize("action", ["ignore", "error"])
@pytest.mark.parametrize("side", [4, 8])
def test_too_many_pixels_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int, action: Any
) -> None:
    """Up to twice the limit Pillow only warns, which must not depend on how warnings are treated."""
    Image.new("L", (side, side)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        assert refused(tmp_path / "a.png") == "too many pixels"
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", side * side)
    assert open_image(tmp_path / "a.png").size == (side, side)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_of_photos_is_known_by_any_of_its_first_rows(tmp_path: Path, suffix: str) -> None:
    table = pd.DataFrame({"path": ["/etc/passwd", "a.jpg"], "label": ["x", "y"]})
    path = tmp_path / f"table{suffix}"
    table.to_csv(path, index=False) if suffix == ".csv" else table.to_parquet(path)
    assert looks_like_manifest(path)
    none = tmp_path / f"none{suffix}"
    table.assign(path="here").to_csv(none, index=False) if suffix == ".csv" else table[:1].to_parquet(none)
    assert not looks_like_manifest(none)


@pytest.mark.slow
def test_large_tables_stream_and_resolve_a_folder_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows: nothing is kept of columns that are not asked for, nor of a row's text."""
    n = 20_000
    with (folder / "m.csv").open("w") as file:
        file.write("path,label,about\n")
        for row in range(n // 2):
            file.write(f"cat/1.png,cat {row % 50},{'x' * 100}\ndog/2.png,dog {row % 50},{'y' * 100}\n")
    resolved = []
    realpath = os.path.realpath
    monkeypatch.setattr(
        os.path, "realpath", lambda *args, **more: resolved.append(args) or realpath(*args, **more)
    )
    tracemalloc.start()
    images = read_manifest(folder / "m.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(images.ids), len(set(images.labels or [])), images.problems) == (n, 100, {})
    assert images.paths[-1] == images.root / "dog" / "2.png"
    assert len(resolved) == 3  # the table's own folder, cat and dog
    assert peak < n * 700


def test_links_and_folders_in_a_table_are_resolved_as_ever(folder: Path) -> None:
    """The quick way for plain files must agree with resolving every path; a link to a file keeps its name."""
    (folder / "in").symlink_to(folder / "cat")
    (folder / "out").symlink_to(folder.parent)
    (folder / "cat" / "link.png").symlink_to(folder / "dog" / "2.png")
    cells = [
        "in/1.png",
        "out/secret.png",
        "out/photos/cat/1.png",
        "cat/link.png",
        "cat/.",
        "cat/..",
        "./cat/1.png",
    ]
    lines = [f"{cell},{'ab'[row % 2]}" for row, cell in enumerate(cells)]
    (folder / "m.csv").write_text("\n".join(["path,label", *lines]))
    images = read_manifest(folder / "m.csv")
    inside = [images.root / "cat/1.png", None, images.root / "cat/1.png", images.root / "cat/link.png"]
    assert images.paths == [*inside, None, None, images.root / "cat/1.png"]
    assert images.problems == {1: "leaves the folder", 4: "not a file", 5: "not a file"}
