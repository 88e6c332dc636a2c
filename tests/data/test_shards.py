"""WebDataset shards: samples by name, read in place; hostile and damaged archives harm nothing."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from graphclean.data.images import FilePart, UnreadableImage, open_image
from graphclean.data.shards import ShardImages, names_shards, read_shards
from graphclean.data.tables import Names
from graphclean.errors import InputError, MissingLabels
from graphclean.runs.inputs import is_there, source_name
from graphclean.runs.photos import find_photos
from tests.builders import Cli, Refuse

Members = list[tuple[str, bytes]]


def photo(color: str = "red", kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), color).save(buffer, kind)
    return buffer.getvalue()


def write_tar(path: Path, members: Members, **facts: Any) -> Path:
    """A tar file; `facts` are attributes of its last member."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if (name, content) == members[-1]:
                for fact, value in facts.items():
                    setattr(member, fact, value)
            tar.addfile(member, io.BytesIO(content))
    return path


def sample(key: str, label: str, color: str = "red") -> Members:
    return [(f"{key}.png", photo(color)), (f"{key}.cls", label.encode())]


def read(data: Path, **names: Any) -> ShardImages:
    return read_shards(data, Names(**names))


def test_samples_are_members_of_one_name(tmp_path: Path) -> None:
    write_tar(tmp_path / "a-0.tar", [*sample("x/1", "cat"), *sample("2", "dog", "blue")])
    write_tar(
        tmp_path / "a-1.tar", [("./3.JPG", photo(kind="JPEG")), ("3.json", b'{"label": "cat", "n": 1}')]
    )
    images = read(tmp_path)
    assert images.ids == ["a-0/x/1", "a-0/2", "a-1/3"]
    assert images.labels == ["cat", "dog", "cat"]
    assert images.problems == {}
    opened = [open_image(part).getpixel((0, 0)) for _, part in images.items()]
    assert opened[1] == (0, 0, 255)
    assert [row for row, _ in images.items({1})] == [0, 2]
    assert len({repr(stamp) for stamp in images.stamps()}) == 3
    assert read_shards(tmp_path, Names(), labeled=False).labels is None


@pytest.mark.parametrize(
    ("members", "column", "label"),
    [
        ([("1.txt", b" a cat\n")], None, "a cat"),
        ([("1.txt", b"a caption"), ("1.cls", b"3")], None, "3"),
        ([("1.json", b'{"class": 7, "other": "x"}')], None, "7"),
        ([("1.json", b'{"class": 7, "other": "x"}')], "other", "x"),
        ([("1.json", b'{"label": "x"}'), ("1.txt", b"cat")], "txt", "cat"),
        ([("1.json", b'{"label": null}'), ("0.png", photo()), ("0.cls", b"y")], None, ""),
    ],
)
def test_labels_have_several_places(tmp_path: Path, members: Members, column: str | None, label: str) -> None:
    path = write_tar(tmp_path / "a.tar", [("1.seg.png", photo()), ("1.png", photo()), *members])
    images = read(path, label_column=column)
    assert (images.ids[0], images.labels and images.labels[0]) == ("a/1", label)


def test_shards_are_a_folder_a_file_or_a_pattern(tmp_path: Path) -> None:
    for number in range(12):
        write_tar(tmp_path / "set" / f"train-{number:03}.tar", sample(str(number), "ab"[number % 2]))
    some = tmp_path / "set" / "train-{008..011}.tar"
    assert read(some).ids == ["train-008/8", "train-009/9", "train-010/10", "train-011/11"]
    assert len(read(tmp_path / "set").ids) == 12
    assert len(find_photos(some, Names()).ids) == 4
    assert is_there(some)
    assert not is_there(tmp_path / "set" / "test-{008..011}.tar")
    assert source_name(some) == "train"
    with pytest.raises(InputError, match=r"train-012\.tar: no such file"):
        read(tmp_path / "set" / "train-{008..012}.tar")
    with pytest.raises(InputError, match="goes up"):
        read(tmp_path / "set" / "train-{9..1}.tar")
    (tmp_path / "set" / "cat").mkdir()  # a folder of photos with a tar next to them
    assert not names_shards(tmp_path / "set")


@pytest.mark.parametrize(
    ("name", "facts", "problem"),
    [
        ("/etc/x.png", {}, "its name leaves the archive"),
        ("../../x.png", {}, "its name leaves the archive"),
        ("a/..\\x.png", {}, "its name leaves the archive"),
        ("C:\\x.png", {}, "its name leaves the archive"),
        ("x.png", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}, "a link, not followed"),
        ("x.png", {"type": tarfile.LNKTYPE, "linkname": "1.png", "size": 0}, "a link, not followed"),
        ("x.png", {"type": tarfile.CHRTYPE, "size": 0}, "not a file"),
        ("x.png", {"type": tarfile.FIFOTYPE, "size": 0}, "not a file"),
        ("x.cls", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd", "size": 0}, "a link, not followed"),
    ],
)
def test_hostile_members_are_rows_that_are_never_opened(
    tmp_path: Path, name: str, facts: dict[str, Any], problem: str
) -> None:
    members = [*sample("1", "cat"), *sample("2", "dog"), (name, photo() if name.endswith("png") else b"cat")]
    images = read(write_tar(tmp_path / "a.tar", members, **facts))
    assert images.problems == {2: problem}
    assert [row for row, _ in images.items()] == [0, 1]
    alone = write_tar(tmp_path / "b.tar", members[-1:], **facts)
    with pytest.raises(InputError, match=f"no images in .*: {problem}"):
        read(alone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "b.tar"]  # nothing is unpacked


def test_large_members_and_two_photos_of_one_sample_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphclean.data.shards.LARGEST_PHOTO", 200)
    monkeypatch.setattr("graphclean.data.shards.LARGEST_LABEL", 5)
    members = [("big.png", bytes(201)), *sample("long", "a long label"), *sample("1", "cat")]
    images = read(
        write_tar(tmp_path / "a.tar", [*members, ("1.webp", photo(kind="WEBP")), *sample("2", "dog")])
    )
    assert images.problems == {
        0: "too large (0 MB)",
        1: "too large (0 MB)",
        2: "two photos, .png and .webp",
    }


def claims_much(content: bytes) -> bytes:
    """A last member whose header claims 8 exabytes."""
    member = tarfile.TarInfo("9.png")
    member.size = 2**63
    return content.rstrip(b"\0").ljust(-(-len(content.rstrip(b"\0")) // 512) * 512, b"\0") + member.tobuf()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:2570], "truncated after 1.cls"),  # within a photo
        (lambda content: content[:2248], "truncated after 1.cls"),  # within a header
        (lambda content: content[:2048], "truncated after 1.cls"),  # between two samples
        (lambda content: content[:2048] + b"x" * 512 + content[2560:], "damaged after 1.cls"),
        (lambda content: content[:100], "not a tar file, or damaged"),
        (lambda _: b"", "not a tar file, or damaged"),
        (lambda _: b"no tar" * 1000, "not a tar file, or damaged"),
        (claims_much, "truncated after 2.cls"),
    ],
)
def test_damaged_shards_are_refused_by_name(
    tmp_path: Path, refuse: Refuse, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = write_tar(tmp_path / "s" / "a.tar", [*sample("1", "cat"), *sample("2", "dog", "blue")])
    assert path.read_bytes()[2048:2053] == b"2.png"
    path.write_bytes(damage(path.read_bytes()))
    refuse("clean s", f"a.tar: {message}")


def test_what_is_unclear_is_refused_by_name(tmp_path: Path, refuse: Refuse) -> None:
    write_tar(tmp_path / "twice.tar", [*sample("1", "cat"), *sample("1", "dog")])
    refuse("clean twice.tar", "twice.tar: two of its members are called 1.png")
    write_tar(tmp_path / "none.tar", [("1.png", photo())])
    refuse("clean none.tar", "no sample has a label")
    write_tar(tmp_path / "bad.tar", [("1.png", photo()), ("1.json", b"{")])
    refuse("clean bad.tar", "bad.tar: 1.json is damaged")
    both = json.dumps({"label": 1, "class": 2}).encode()
    write_tar(tmp_path / "both.tar", [("1.png", photo()), ("1.json", both)])
    refuse("clean both.tar", "more than one label (label, class); name one with --label-column")
    (tmp_path / "a.tar.gz").write_bytes(b"\x1f\x8b")
    refuse("clean a.tar.gz", "compressed")
    with pytest.raises(MissingLabels):
        read(tmp_path / "none.tar")


def test_a_shard_that_becomes_shorter_gives_unreadable_photos(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [*sample("1", "cat"), *sample("2", "dog")])
    parts = [part for _, part in read(path).items()]
    path.write_bytes(path.read_bytes()[:2600])
    assert isinstance(parts[1], FilePart)
    with pytest.raises(UnreadableImage, match="truncated"):
        open_image(parts[1])
    path.unlink()
    with pytest.raises(UnreadableImage, match="no such file"):
        open_image(parts[0])


@pytest.mark.slow
def test_a_run_on_shards_is_a_run_like_others(tmp_path: Path, cli: Cli) -> None:
    rng = np.random.default_rng(0)
    for shard in range(2):
        members: Members = []
        for number in range(20):
            buffer = io.BytesIO()
            name, color = (("red", (200, 40, 40)), ("blue", (40, 60, 200)))[number % 2]
            pixels = np.clip(rng.normal(color, 25, (12, 12, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(buffer, "PNG")
            members += [(f"{number}.png", buffer.getvalue()), (f"{number}.cls", name.encode())]
        write_tar(tmp_path / "s" / f"t-{shard}.tar", [*members, ("../evil.png", photo())])
    small = (
        "training.epochs=1",
        "training.network=small-conv",
        "training.image_size=12",
        "training.batch_size=16",
    )
    settings = [word for setting in (*small, "method.name=cross-entropy") for word in ("--set", setting)]
    pattern = "s/t-{0..1}.tar"
    assert cli("train", pattern, "--preset", "photos", *settings, "--out", "run").code == 0
    unreadable = (tmp_path / "run" / "unreadable.csv").read_text()
    assert "its name leaves the archive" in unreadable
    assert cli("predict", "run", "s/t-1.tar", "--evaluate", "--json").code == 0
    assert cli("report", "run").code == 0
    assert "data:image" in (tmp_path / "run" / "report.html").read_text()
    assert cli("apply", "run").code == 0
    assert cli("apply", "run", "--format", "hf").code == 0
    refused = cli("apply", "run", "--copy", "--out", "cleaned")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "in tar shards" in refused.err
    assert not (tmp_path / "cleaned").exists()
    assert not (tmp_path / "evil.png").exists()
