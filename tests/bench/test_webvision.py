"""The official lists of WebVision and the layouts of ILSVRC12, and what is wrong with others."""

from pathlib import Path

import numpy as np
import pytest

from graphclean.bench.webvision import (
    FIRST,
    WebVisionClasses,
    differing_count,
    find_webvision,
    read_part,
    read_wordnet_ids,
)
from graphclean.errors import InputError
from tests.bench.photos import COUNTS, IDS, NEXT, SMALL, write_ilsvrc12, write_webvision


@pytest.fixture
def webvision(tmp_path: Path) -> Path:
    """The data root."""
    return write_webvision(tmp_path, {"train": 12, "val": 8})


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_the_published_numbers() -> None:
    classes = WebVisionClasses()
    assert (classes.count, FIRST, classes.last) == (50, "n01440764", "n01697457")
    assert [classes.published(part) for part in ("train", "val", "ilsvrc12")] == [65_944, 2_500, 2_500]  # type: ignore[arg-type]


def test_the_lists_give_photos_of_the_first_classes_in_their_order(webvision: Path) -> None:
    train, val = (read_part(part, webvision, SMALL) for part in ("train", "val"))  # type: ignore[arg-type]
    assert train.labels.tolist() == [i % 6 for i in range(12)]
    assert train.labels.dtype == np.int64
    assert train.images.ids[5] == "google/q0005/found 5.jpg"
    assert train.images.paths[6] == webvision / "webvision/google/q0000/6.jpg"
    assert [row for row, _ in train.images.items()] == list(range(12))
    assert val.images.paths[3] == webvision / "webvision/val_images_256/val000003.jpg"
    assert val.labels.tolist() == [i % 6 for i in range(8)]


def test_the_folder_itself_may_be_the_root(webvision: Path) -> None:
    here = read_part("val", webvision / "webvision", SMALL)
    assert here.images.ids == read_part("val", webvision, SMALL).images.ids


@pytest.mark.parametrize("form", ["id", "number", "list"])
@pytest.mark.parametrize("place", ["imagenet", "webvision/imagenet"])
def test_ilsvrc12_in_three_layouts_and_two_places(webvision: Path, form: str, place: str) -> None:
    write_ilsvrc12(webvision / place, form)
    found = read_part("ilsvrc12", webvision, SMALL)
    names = [Path(name).name for name in found.images.ids]
    assert dict(zip(names, found.labels.tolist(), strict=True)) == {
        f"ILSVRC2012_val_{i:08}.JPEG": i % 6 for i in range(COUNTS["ilsvrc12"])
    }
    paths = [path for path in found.images.paths if path is not None]
    assert all(path.is_file() and path.name == name for path, name in zip(paths, names, strict=True))


def test_numbered_folders_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    """As text, 10 comes before 2."""
    ids = [f"n{10**7 + i:08}" for i in range(12)]
    folder = tmp_path / "webvision"
    (folder / "info").mkdir(parents=True)
    (folder / "info" / "synsets.txt").write_text("\n".join([FIRST, *(f"n9{name[2:]}" for name in ids[1:])]))
    for label in range(12):
        place = folder / "imagenet" / "val" / str(label)
        place.mkdir(parents=True)
        (place / f"photo-{label}.JPEG").write_bytes(b"not opened")
    classes = WebVisionClasses(12, f"n9{ids[-1][2:]}", ilsvrc12=12)
    found = read_part("ilsvrc12", tmp_path, classes)
    assert found.images.ids == [f"{label}/photo-{label}.JPEG" for label in range(12)]
    assert found.labels.tolist() == list(range(12))


def test_folders_by_wordnet_id_win_over_a_list_that_may_count_otherwise(webvision: Path) -> None:
    write_ilsvrc12(webvision / "imagenet", "id")
    (webvision / "imagenet" / "imagenet_val.txt").write_text("gone.JPEG 0\n")
    assert len(read_part("ilsvrc12", webvision, SMALL).labels) == COUNTS["ilsvrc12"]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join((IDS[1], IDS[0], *IDS[2:])),  # another first one
        "\n".join((IDS[0], IDS[2], IDS[1], *IDS[3:])),  # first and last are right
        "\n".join((*IDS[:5], NEXT, IDS[5])),
        "\n".join((*IDS[:4], IDS[3], IDS[5])),
        "\n".join(IDS[:3]),
        "",
    ],
)
def test_classes_in_another_order_are_refused(webvision: Path, text: str) -> None:
    (webvision / "webvision" / "info" / "synsets.txt").write_text(text)
    message = (
        r"synsets\.txt: its first 6 classes are not those from n01440764 to n01496331 in ascending order"
    )
    with pytest.raises(InputError, match=message):
        read_part("train", webvision, SMALL)


def test_a_smaller_layout_is_no_webvision_50(webvision: Path) -> None:
    with pytest.raises(InputError, match="its first 50 classes are not those from n01440764 to n01697457"):
        read_wordnet_ids(find_webvision(webvision), WebVisionClasses())


def test_other_numbers_of_photos_get_a_line(webvision: Path) -> None:
    val = read_part("val", webvision, SMALL)
    assert differing_count("val", val, SMALL) == (
        f"{webvision / 'webvision/info/val_filelist.txt'}: 8 photos of the first 6 classes, and 36 are "
        "published; a result on them is not one of the cell"
    )
    assert differing_count("val", val, WebVisionClasses(6, IDS[-1], val=8)) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("google/q0000/gone.jpg 0", "google/q0000/gone.jpg: no such file"),
        ("../outside.jpg 0", r"\.\./outside\.jpg: leaves the folder"),
        ("/etc/hostname 0", "/etc/hostname: leaves the folder"),
        ("google/q0000 0", "google/q0000: not a file"),
    ],
)
def test_photos_that_cannot_be_read_are_named(webvision: Path, line: str, reason: str) -> None:
    (webvision / "outside.jpg").write_bytes(b"x")
    edit(
        webvision / "webvision/info/train_filelist_google.txt",
        "google/q0000/0.jpg 0",
        f"{line}\ngoogle/q0000/0.jpg 0",
    )
    with pytest.raises(InputError, match=rf"1 of 13 photos can't be read from .*webvision \({reason}\)$"):
        read_part("train", webvision, SMALL)


def test_many_missing_photos_are_one_line(webvision: Path) -> None:
    for path in (webvision / "webvision" / "val_images_256").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"8 of 8 photos .*val000002\.jpg: no such file, …\)$") as caught:
        read_part("val", webvision, SMALL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["photo.jpg", "photo.jpg -1", "photo.jpg one", "photo.jpg ²", "7", "a.jpg 1 x"]
)
def test_a_damaged_line_is_named(webvision: Path, line: str) -> None:
    path = webvision / "webvision/info/val_filelist.txt"
    path.write_text(f"val000000.jpg 0\n\n{line}\n")
    with pytest.raises(InputError, match="line 3 is not a path and a class"):
        read_part("val", webvision, SMALL)


def test_what_is_missing_is_named(webvision: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"empty/webvision/info/synsets\.txt: no such file; WebVision is not"
    ):
        read_part("train", tmp_path / "empty", SMALL)
    with pytest.raises(InputError, match=r"webvision/imagenet/val: no such folder; it holds ILSVRC12"):
        read_part("ilsvrc12", webvision, SMALL)
    (webvision / "imagenet" / "val").mkdir(parents=True)
    with pytest.raises(InputError, match=r"val: no folders n01440764, … or 0, … of photos, and no list "):
        read_part("ilsvrc12", webvision, SMALL)
    for name in ("0", "1", "3", "4", "5"):
        (webvision / "imagenet" / "val" / name).mkdir()
    with pytest.raises(InputError, match=r"val/2: no such folder"):
        read_part("ilsvrc12", webvision, SMALL)
    (webvision / "webvision/info/val_filelist.txt").unlink()
    with pytest.raises(
        InputError, match=r"val_filelist\.txt: no such file; it is one of WebVision's official"
    ):
        read_part("val", webvision, SMALL)
    (webvision / "webvision/info/train_filelist_google.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"train_filelist_google\.txt: can't be read: not text"):
        read_part("train", webvision, SMALL)


def test_a_class_without_photos_is_named(webvision: Path) -> None:
    path = webvision / "webvision/info/val_filelist.txt"
    path.write_text("".join(f"val{i:06}.jpg {i}\n" for i in range(5)))
    with pytest.raises(InputError, match=r"no photo of class 5 \(n01496331\)"):
        read_part("val", webvision, SMALL)
