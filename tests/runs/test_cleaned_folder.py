"""The folder that `graphclean apply` makes: links or copies of what is kept, updated and never lost."""

import json
import os
from pathlib import Path

import pandas as pd
import pytest

from graphclean._files import LOCK, locked
from graphclean.runs.cleaned_folder import RECORD, name_folders, plan_files
from tests.builders import Cli, Refuse
from tests.conftest import states
from tests.runs.applied import ROWS, lay_photos, make_run


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return lay_photos(tmp_path)


PLACED = {
    "cat/1.png": "cat/1.png",
    "cat/1-2.png": "cat/deep/1.png",
    "dog/2-2.png": "cat/2.png",
    "dog/2.png": "dog/2.png",
    "dog/3.png": "dog/3.png",
    "dog/loose.png": "loose.png",
}


def test_a_second_time_changes_nothing(cli: Cli, photos: Path) -> None:
    here = photos.parent
    for arguments in (
        [],
        ["--out", "m.parquet"],
        ["--link"],
        ["--copy", "--out", "c"],
        ["--hardlink", "--out", "h"],
    ):
        assert "Cleaned: " in cli("apply", "run", *arguments).out
        before = states(here)
        done = cli("apply", "run", *arguments)
        assert done.code == 0
        assert "Nothing to change" in done.out
        assert states(here) == before


@pytest.mark.parametrize("form", ["link", "hardlink", "copy"])
def test_a_cleaned_folder(cli: Cli, photos: Path, form: str) -> None:
    originals = states(photos)
    out = photos.parent / "clean"
    assert cli("apply", "run", f"--{form}", "--out", "clean", "--quiet").code == 0
    found = {str(path.relative_to(out)) for path in out.glob("*/*")}
    assert found == set(PLACED)
    for name, original in PLACED.items():
        placed = out / name
        assert placed.read_bytes() == (photos / original).read_bytes()
        assert placed.is_symlink() == (form == "link")
        assert placed.samefile(photos / original) == (form != "copy")
    table = pd.read_csv(out / "cleaned.csv").set_index("id")
    assert table.file.dropna().to_dict() == {original: name for name, original in PLACED.items()}
    assert states(photos) == originals


@pytest.mark.parametrize("form", ["link", "hardlink", "copy"])
def test_a_linked_photo_keeps_its_own_name(cli: Cli, photos: Path, form: str) -> None:
    (photos / "cat/mine.png").symlink_to(photos / "dog/3.png")
    make_run(photos.parent / "run", [*ROWS, ("cat/mine.png", "cat", "cat", "keep", 0.9, 0.1, True)])
    assert cli("apply", "run", f"--{form}", "--out", "clean", "--quiet").code == 0
    placed = photos.parent / "clean/cat/mine.png"
    assert placed.read_bytes() == (photos / "dog/3.png").read_bytes()
    assert placed.is_symlink() == (form == "link")
    assert placed.resolve() == (photos / "dog/3.png" if form == "link" else placed)
    assert not (photos.parent / "clean/cat/3.png").exists()
    (photos / "m.csv").write_text("path,label\ncat/mine.png,cat\ndog/2.png,dog\n")
    rows = [("cat/mine.png", "cat", "cat", "keep", 0.9, 0.1, True)]
    make_run(photos.parent / "table", rows, data="photos/m.csv")
    assert cli("apply", "table", f"--{form}", "--out", "of-table", "--quiet").code == 0
    assert (photos.parent / "of-table/cat/mine.png").read_bytes() == placed.read_bytes()


def test_other_verdicts_update_only_what_differs(cli: Cli, photos: Path) -> None:
    out = photos.parent / "clean"
    cli("apply", "run", "--copy", "--out", "clean", "--quiet")
    first = states(out)
    rows = [
        ("dog/3.png", "dog", "ant", "relabel", 0.1, 0.1, True) if r[0] == "dog/3.png" else r for r in ROWS
    ]
    make_run(photos.parent / "run", rows)
    refused = cli("apply", "run", "--copy", "--out", "clean")
    assert (refused.code, refused.out) == (2, "")
    assert "use --overwrite to bring it up to date" in refused.err
    assert states(out) == first
    assert cli("apply", "run", "--copy", "--out", "clean", "--overwrite").code == 0
    second = states(out)
    assert set(second) - set(first) == {"ant", "ant/3.png"}
    assert set(first) - set(second) == {"dog/3.png"}
    changed = {name for name in set(first) & set(second) if first[name][2:] != second[name][2:]}
    assert changed == {"cleaned.csv", RECORD}
    # A label that goes takes its folder with it, and what was damaged or is a link is made again.
    make_run(photos.parent / "run")
    (out / "cat/1.png").unlink()
    (out / "cat/1.png").symlink_to(photos / "dog/3.png")
    (out / "cat/1-2.png").write_bytes(b"spoiled")
    cli("apply", "run", "--copy", "--out", "clean", "--overwrite", "--quiet")
    assert {str(path.relative_to(out)) for path in out.glob("*/*")} == set(PLACED)
    assert not (out / "ant").exists()
    for name, original in PLACED.items():
        assert not (out / name).is_symlink()
        assert (out / name).read_bytes() == (photos / original).read_bytes()
    # From copies to links, and a file that was lost, without being asked to overwrite.
    cli("apply", "run", "--link", "--out", "clean", "--overwrite", "--quiet")
    (out / "dog/3.png").unlink()
    assert "files changed: 1" in cli("apply", "run", "--link", "--out", "clean").out
    assert all((out / name).is_symlink() for name in PLACED)


def test_a_dry_run_tells_and_writes_nothing(cli: Cli, photos: Path) -> None:
    before = states(photos.parent)
    for arguments, count in (([], 1), (["--link", "--out", "clean"], 7)):
        done = cli("apply", "run", "--dry-run", *arguments)
        assert done.code == 0
        assert "fits no known class (confidence 0.93)" in " ".join(done.out.split())
        where = arguments[-1] if arguments else "run/cleaned.csv"
        assert f"Nothing was written; files to change in {where}: {count}" in done.out
        assert states(photos.parent) == before
    result = json.loads(cli("apply", "run", "--dry-run", "--json").out)
    assert result == {
        "out": "run/cleaned.csv", "dry_run": True, "changed": 1, "warnings": [],
        "kept": 4, "relabeled": 2, "removed": 3,
    }  # fmt: skip


def test_names_of_folders_and_files() -> None:
    assert name_folders(["b", "a"]) == {"a": "a", "b": "b"}
    assert name_folders(["", " "]) == {"": "_", " ": "_ "}
    long = name_folders(["é" * 300])["é" * 300]
    assert len(long.encode()) <= 200
    one = Path("/p/x/1.png")
    plan = plan_files(
        ["a", "a", "a", None, "a"], [one, one, one, one, None], [False, True, False, True, True]
    )
    assert plan.names == ["a/1-2.png", "a/1.png", "a/1-3.png", None, None]
    assert plan.notes == []


def test_long_names_that_meet_are_shortened_to_what_file_systems_take() -> None:
    for letter in ("x", "é", "\udcff"):
        size = len(os.fsencode(letter))
        stem = "a" * ((255 - 4) % size) + letter * ((255 - 4) // size)
        photo = Path(f"/p/{stem}.png")
        assert len(os.fsencode(photo.name)) == 255
        names = plan_files(["a"] * 12, [photo] * 12, [True] * 12).names
        placed = [name.removeprefix("a/") for name in names if name is not None]
        assert placed[0] == photo.name
        assert placed[1].endswith("-2.png")
        assert max(len(os.fsencode(name)) for name in placed) == 255
        assert len({name.casefold() for name in placed}) == 12


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--copy", "--out", "clean"], ".clean.0123abcd"),
        (["--copy", "--out", "clean"], "clean/.cleaned.csv.0123abcd"),
        ([], "run/.cleaned.csv.0123abcd"),
        (["--format", "cleanlab", "--out", "issues.csv"], ".issues.csv.0123abcd"),
    ],
)
def test_what_a_killed_process_left_is_removed_even_if_nothing_changes(
    cli: Cli, photos: Path, options: list[str], left: str
) -> None:
    command = ("apply", "run", *options, "--quiet")
    assert cli(*command).code == 0
    before = {name: state[3] for name, state in states(photos.parent).items()}
    (photos.parent / ".clean.lock").touch()
    draft = photos.parent / left
    draft.mkdir()
    (draft / LOCK).touch()
    assert cli(*command).code == 0
    (photos.parent / ".clean.lock").unlink(missing_ok=True)
    assert {name: state[3] for name, state in states(photos.parent).items()} == before


def test_a_folder_that_another_process_updates_is_left_to_it(cli: Cli, photos: Path) -> None:
    cli("apply", "run", "--copy", "--out", "clean", "--quiet")
    before = states(photos.parent / "clean")
    with locked(photos.parent / "clean", ""):
        refused = cli("apply", "run", "--link", "--out", "clean", "--overwrite")
    assert (refused.code, "another process writes into it" in refused.err) == (2, True)
    assert states(photos.parent / "clean") == before


def test_an_empty_class_folder_that_a_killed_update_left_goes(
    cli: Cli, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("apply", "run", "--copy", "--out", "clean", "--quiet")
    rows = [
        ("dog/3.png", "dog", "ant", "relabel", 0.1, 0.1, True) if r[0] == "dog/3.png" else r for r in ROWS
    ]
    make_run(photos.parent / "run", rows)
    again = ("apply", "run", "--copy", "--out", "clean", "--overwrite", "--quiet")
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("shutil.copy2", killed)
        assert cli(*again).code == 130
    ant = photos.parent / "clean/ant"
    assert ant.is_dir()
    make_run(photos.parent / "run")  # by now another verdict
    assert cli(*again).code == 0
    assert not ant.exists()
    assert {path.name for path in (photos.parent / "clean").iterdir()} == {
        "cat",
        "dog",
        "cleaned.csv",
        RECORD,
    }


def test_photos_that_have_gone_moved_or_lead_out(cli: Cli, refuse: Refuse, photos: Path) -> None:
    here = photos.parent
    (photos / "cat/1.png").unlink()
    (here / "secret.png").write_bytes(b"secret")
    (photos / "dog/3.png").unlink()
    (photos / "dog/3.png").symlink_to(here / "secret.png")
    done = cli("apply", "run", "--copy", "--out", "clean")
    assert done.code == 0
    assert "2 photos are no longer there, such as cat/1.png" in done.err
    assert not any(path.read_bytes() == b"secret" for path in (here / "clean").rglob("*") if path.is_file())
    os.rename(photos, here / "moved")
    refuse(
        "apply run --link --out links", "photos: not found; run this from the folder where the run was made"
    )
    assert cli("apply", "run", "--link", "--out", "links", "--data", "moved").code == 0
    assert (here / "links/dog/2.png").samefile(here / "moved/dog/2.png")
    assert cli("apply", "run", "--quiet").code == 0  # a manifest needs no photos


def test_a_record_is_not_trusted(cli: Cli, photos: Path) -> None:
    here = photos.parent
    out = here / "clean"
    cli("apply", "run", "--link", "--out", "clean", "--quiet")
    record = json.loads((out / RECORD).read_text())
    for evil in ("../photos/cat/1.png", "/etc/passwd", "a/../../b", "cat", ".."):
        (out / RECORD).write_text(json.dumps({**record, "files": {evil: "x"}}))
        assert "damaged" in cli("apply", "run", "--link", "--out", "clean", "--overwrite").err
    for broken in ("{", "[]", "[" * 100_000, '{"files": []}', '{"files": {"a/b": 1}'):
        (out / RECORD).write_text(broken)
        assert "damaged" in cli("apply", "run", "--link", "--out", "clean", "--overwrite").err
    (out / RECORD).write_text(json.dumps({**record, "files": {"dog/1.png": "x"}}))
    for path in (out / "dog").iterdir():
        path.unlink()
    (out / "dog").rmdir()
    (out / "dog").symlink_to(photos / "dog")
    before = states(photos)
    done = cli("apply", "run", "--link", "--out", "clean", "--overwrite")
    assert "a link where a folder should be" in done.err
    assert states(photos) == before


def test_a_folder_that_became_the_source_is_not_touched(cli: Cli, refuse: Refuse, photos: Path) -> None:
    here = photos.parent
    cli("apply", "run", "--copy", "--out", "clean", "--quiet")
    for folder, message in (("", "the run was made from photos in it"), ("clean/", "list.csv lies in it")):
        names = [name if folder else f"clean/{name}" for name in PLACED]
        pd.DataFrame({"path": names, "label": "cat"}).to_csv(here / f"{folder}list.csv", index=False)
        rows = [(name, "cat", "dog", "relabel", 0.1, 0.1, True) for name in names]
        make_run(here / f"by{len(folder)}", rows, data=f"{folder}list.csv")
        refuse(f"apply by{len(folder)} --copy --out clean --overwrite", message)


def test_an_interrupted_update_goes_on(cli: Cli, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("apply", "run", "--copy", "--out", "clean", "--quiet")
    again = ("apply", "run", "--link", "--out", "clean", "--overwrite")
    with monkeypatch.context() as patch:
        made: list[object] = []
        link_to = os.symlink

        def interrupted(original: Path, link: Path) -> None:
            made.append(link)
            if len(made) == 3:
                raise KeyboardInterrupt
            link_to(original, link)

        patch.setattr("os.symlink", interrupted)
        done = cli(*again)
    assert (done.code, done.err) == (130, "graphclean: stopped at once; the same command continues\n")
    assert cli(*again).code == 0
    out = photos.parent / "clean"
    assert {str(path.relative_to(out)) for path in out.glob("*/*")} == set(PLACED)
    assert all((out / name).is_symlink() for name in PLACED)
