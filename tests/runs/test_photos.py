"""Photos in, verdicts out, through the command line."""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import graphclean.runs.photos
from graphclean._files import read_tensors, write_tensors
from graphclean.embed import embed_batches
from graphclean.embed.cache import cache_folder
from tests.builders import Cli, Refuse

pytest.importorskip("efficientnet_lite_pytorch")

WRONG = {"blue": "green", "green": "red", "red": "blue"}
COLORS = {"blue": (20, 40, 220), "green": (20, 200, 40), "red": (220, 30, 30)}


def paint(path: Path, color: str, rng: np.random.Generator) -> None:
    """A noisy square of a color on gray."""
    pixels = rng.integers(90, 140, (48, 48, 3))
    x, y = rng.integers(0, 16, 2)
    pixels[y : y + 32, x : x + 32] = np.array(COLORS[color]) + rng.integers(-15, 15, (32, 32, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes of 24 photos, four more of each in a wrong folder, and four files that can't be read."""
    rng = np.random.default_rng(0)
    for color in COLORS:
        for number in range(24):
            paint(tmp_path / "photos" / color / f"{number:02}.png", color, rng)
    for place, color in WRONG.items():
        for number in range(4):
            paint(tmp_path / "photos" / place / f"wrong-{number}.png", color, rng)
    (tmp_path / "photos" / "red" / "empty.jpg").write_bytes(b"")
    whole = (tmp_path / "photos" / "blue" / "00.png").read_bytes()
    (tmp_path / "photos" / "blue" / "half.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "photos" / "blue" / "=text.jpg").write_text("not an image")
    (tmp_path / "secret.png").write_bytes(whole)
    (tmp_path / "photos" / "green" / "link.png").symlink_to(tmp_path / "secret.png")
    return tmp_path / "photos"


@pytest.mark.slow
def test_blank_and_dark_photos_are_listed_and_a_blank_one_is_never_relabeled(cli: Cli, folder: Path) -> None:
    Image.new("RGB", (48, 48), COLORS["red"]).save(folder / "green" / "blank.png")
    Image.new("RGB", (48, 48), (9, 9, 9)).save(folder / "red" / "black.png")
    Image.fromarray(np.asarray(Image.open(folder / "red" / "00.png")) // 8).save(folder / "red" / "dark.png")
    for kind, more in (("clean", ()), ("train", ("--set", "training.epochs=2"))):
        done = cli(kind, "photos", "--set", "cleaning.k=8", *more)
        assert "2 blank, 2 dark" in done.out
        out = folder.parent / "runs" / f"photos-{kind}"
        table = pd.read_parquet(out / "verdicts.parquet").set_index("id")
        issues = table.photo_issues.map(list)
        assert issues["green/blank.png"] == ["blank", "low information"]
        assert issues["red/dark.png"] == ["dark"]
        assert issues["red/01.png"] == issues["red/empty.jpg"] == []
        assert set(table.verdict[["green/blank.png", "red/black.png"]]) <= {"ood", "uncertain", "keep"}
        assert (table.width["red/00.png"], table.height["red/00.png"]) == (48, 48)
        assert pd.isna(table.width["red/empty.jpg"])
        summary = json.loads((out / "summary.json").read_text())
        assert summary["photo_issues"]["blank"] == 2
        csv = pd.read_csv(out / "verdicts.csv").set_index("id")
        assert csv.photo_issues["green/blank.png"] == '["blank", "low information"]'
    assert cli("report", "runs/photos-clean").code == 0
    assert "Photo quality" in (folder.parent / "runs" / "photos-clean" / "report.html").read_text()


@pytest.mark.slow
def test_wrong_folders_are_found_and_bad_files_listed(cli: Cli, folder: Path) -> None:
    done = cli("clean", "photos", "--set", "cleaning.k=8")
    assert done.code == 0
    out = folder.parent / "runs" / "photos-clean"
    table = pd.read_parquet(out / "verdicts.parquet").set_index("id")
    assert len(table) == 88
    found = table[table.verdict == "relabel"]
    assert len(found) >= 9  # of 12: some blue squares look like red ones to the network
    assert found.index.str.contains("wrong").all()
    assert (found.proposed_label == found.given_label.map(WRONG)).all()
    assert (table.verdict == "keep").sum() >= 66
    listed = pd.read_csv(out / "unreadable.csv").set_index("id").reason.to_dict()
    assert listed == {
        "blue/=text.jpg": "not an image",
        "blue/half.png": "truncated",
        "green/link.png": "leaves the folder",
        "red/empty.jpg": "empty file",
    }
    bad = table[table.verdict == "unreadable"]
    assert sorted(bad.index) == ["blue/=text.jpg", "blue/half.png", "green/link.png", "red/empty.jpg"]
    assert bad.ood_score.isna().all()
    assert bad.given_label.tolist() == [name.split("/")[0] for name in bad.index]
    assert not bad.selected.any()
    assert "4 photos can't be read, listed in unreadable.csv" in done.err
    assert "unreadable" in done.out
    assert json.loads((out / "summary.json").read_text())["verdicts"]["unreadable"] == 4
    assert json.loads((out / "config.json").read_text())["source"]["embedder"] == "efficientnet-lite0"


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many photos were embedded, a number each time."""
    counts: list[int] = []

    def counting(items: Any, *args: Any, **kwargs: Any) -> Any:
        wanted = list(items)
        counts.append(len(wanted))
        return embed_batches(wanted, *args, **kwargs)

    monkeypatch.setattr(graphclean.runs.photos, "embed_batches", counting)
    return counts


@pytest.mark.slow
def test_embeddings_are_used_again(cli: Cli, folder: Path, embedded: list[int]) -> None:
    cli("clean", "photos", "--quiet")
    first = (folder.parent / "runs/photos-clean/verdicts.csv").read_bytes()
    paint(folder / "red" / "07.png", "red", np.random.default_rng(9))
    cli("clean", "photos", "--quiet", "--overwrite", "--set", "cleaning.k=8")
    assert cli("data", "cache", "--clear").code == 0
    cli("clean", "photos", "--quiet", "--overwrite", "--set", "cleaning.k=8", "--out", "elsewhere")
    # All 87 files that are no link; then the changed one and the three bad ones; then all again.
    assert embedded == [87, 4, 87]
    again = (folder.parent / "runs/photos-clean/verdicts.csv").read_bytes()
    assert again == (folder.parent / "elsewhere/verdicts.csv").read_bytes()
    assert again != first


@pytest.mark.slow
def test_new_photos_get_a_class(cli: Cli, folder: Path) -> None:
    cli("clean", "photos", "--quiet")
    rng = np.random.default_rng(5)
    for number, color in enumerate(COLORS):
        paint(folder.parent / "new" / f"{number}.png", color, rng)
    (folder.parent / "new" / "bad.png").write_bytes(b"x")
    done = cli("predict", "runs/photos-clean", "new", "--out", "p.csv")
    assert done.code == 0
    assert "1 can't be read" in done.out
    table = pd.read_csv(folder.parent / "p.csv")
    assert table.predicted_label[:3].tolist() == list(COLORS)
    assert table.verdict.tolist()[3] == "unreadable"


@pytest.mark.slow
def test_one_photo_gets_a_class(cli: Cli, folder: Path, refuse: Refuse) -> None:
    cli("clean", "photos", "--quiet")
    paint(folder.parent / "one.PNG", "green", np.random.default_rng(5))
    done = cli("predict", "runs/photos-clean", "one.PNG")
    assert done.code == 0
    assert done.out.startswith("one.PNG: green, probability ")
    table = pd.read_csv(folder.parent / "runs/photos-clean/predictions/one.csv")
    assert table.id.tolist() == ["one.PNG"]
    assert table.verdict.tolist() == ["known"]
    (folder.parent / "two.heic").write_bytes(b"x")
    refuse("predict runs/photos-clean two.heic", r".heic is not read; convert it to .jpg or .png")
    refuse("clean one.PNG", "a single photo has no label; give the folder of the class folders")


@pytest.mark.slow
def test_a_manifest_gives_the_same_verdicts(cli: Cli, folder: Path) -> None:
    rows = [(f"photos/{p.parent.name}/{p.name}", p.parent.name) for p in sorted(folder.rglob("[0-9w]*.png"))]
    manifest = pd.DataFrame(rows, columns=["file", "class"]).assign(width=48)
    manifest.to_csv(folder.parent / "list.csv", index=False, sep=";")
    assert cli("clean", "list.csv", "--quiet").code == 0
    assert cli("clean", "photos", "--quiet").code == 0
    from_list = pd.read_parquet(folder.parent / "runs/list-clean/verdicts.parquet").set_index("id")
    from_folder = pd.read_parquet(folder.parent / "runs/photos-clean/verdicts.parquet")
    for name, verdict in from_folder[from_folder.verdict != "unreadable"][["id", "verdict"]].to_numpy():
        assert from_list.verdict[f"photos/{name}"] == verdict


@pytest.mark.slow
def test_class_folders_without_photos_are_named(cli: Cli, folder: Path) -> None:
    (folder / "yellow" / "later").mkdir(parents=True)
    (folder / "yellow" / "notes.txt").write_text("none yet")
    (folder / ".hidden").mkdir()
    done = cli("clean", "photos")
    assert done.code == 0
    assert "no photos in 1 folder, so not a class: yellow" in " ".join(done.err.split())


@pytest.mark.slow
def test_any_run_on_the_same_photos_takes_the_embeddings_of_others(
    cli: Cli, folder: Path, embedded: list[int]
) -> None:
    quick = [
        "--quiet",
        "--set",
        "training.epochs=2",
        "--set",
        "method.warmup_epochs=1",
        "--set",
        "cleaning.k=8",
    ]
    cli("clean", "photos", "--quiet", "--set", "cleaning.k=8")
    assert cli("train", "photos", *quick).code == 0
    assert cli("train", str(folder), *quick, "--out", "runs/by another name").code == 0
    assert cli("clean", "photos", *quick[:1], "--out", "elsewhere/third", "--set", "cleaning.k=8").code == 0
    folder.rename(folder.parent / "moved")
    assert cli("clean", "moved", *quick[:1], "--set", "cleaning.k=8").code == 0
    # All that are no links; then the three bad ones; those of other data, as far as is known, are left alone.
    assert embedded == [87, 3, 3, 3, 87]
    names = ("runs/photos-clean", "elsewhere/third")
    fresh, lent = (folder.parent / name / "verdicts.csv" for name in names)
    assert lent.read_bytes() == fresh.read_bytes()


@pytest.mark.slow
def test_embeddings_outlast_a_run_that_is_stopped(
    cli: Cli, folder: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphclean.embed.cache.PIECE", 30)
    embed = graphclean.runs.photos.embed_batches

    def stopping(*args: Any, **kwargs: Any) -> Any:
        batches = embed(*args, **kwargs)
        yield from itertools.islice(batches, 2)
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(graphclean.runs.photos, "embed_batches", stopping)
        done = cli("clean", "photos", "--quiet", "--set", "cleaning.k=8")
    assert done.code == 130
    assert done.err == (
        "graphclean: stopped; the embeddings of 62 photos are kept, "
        "and the same command continues from there\n"
    )
    assert sorted(path.name for path in folder.parent.iterdir()) == ["photos", "secret.png"]
    (place,) = cache_folder().iterdir()
    (place / "0.safetensors").write_bytes(b"cut off")
    assert cli("clean", "photos", "--quiet", "--set", "cleaning.k=8").code == 0
    assert not (place / "0.safetensors").exists()
    assert cli("data", "cache", "--clear").code == 0
    assert cli("clean", "photos", "--quiet", "--set", "cleaning.k=8", "--out", "elsewhere").code == 0
    # Two batches of 32 were kept, but for the two in them that can't be read.
    assert embedded == [87, 87 - 62, 87]
    again, fresh = (folder.parent / name / "verdicts.csv" for name in ("runs/photos-clean", "elsewhere"))
    assert again.read_bytes() == fresh.read_bytes()


@pytest.mark.slow
def test_a_cache_that_can_not_be_written_is_told(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "file").write_text("")
    monkeypatch.setenv("GRAPHCLEAN_CACHE", str(folder.parent / "file"))
    done = cli("clean", "photos", "--set", "cleaning.k=8")
    assert done.code == 0
    told = [line for line in done.err.splitlines() if "embeddings are not kept" in line]
    assert told == [f"warning: embeddings are not kept for the next time: {cache_folder()}: not writable"]


@pytest.mark.slow
def test_embeddings_outlast_a_run_that_may_not_be_written(
    cli: Cli, folder: Path, embedded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A review of the older run that began meanwhile goes before; what was embedded is not lost by that."""
    monkeypatch.setattr("graphclean.embed.cache.PIECE", 30)
    runs = folder.parent / "runs"
    cli("clean", "photos", "--quiet", "--set", "cleaning.k=8")
    assert cli("data", "cache", "--clear").code == 0
    decisions = runs / "photos-clean" / "decisions.jsonl"

    with monkeypatch.context() as once:
        once.setattr("graphclean.runs.clean.write_points", lambda *_: decisions.write_text(""))
        done = cli("clean", "photos", "--quiet", "--set", "cleaning.k=8", "--overwrite")
    assert done.code == 2
    assert "the decisions of a review" in done.err
    decisions.unlink()
    assert cli("clean", "photos", "--quiet", "--set", "cleaning.k=8", "--overwrite").code == 0
    assert embedded == [87, 87, 3]
    assert [path.name for path in runs.iterdir()] == ["photos-clean"]


@pytest.mark.slow
def test_lent_embeddings_are_those_of_the_same_photos(cli: Cli, tmp_path: Path, embedded: list[int]) -> None:
    """Not of another column, not of other files under the same ids, and not what is damaged."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(40):
        color = ("red", "blue")[number % 2]
        for side, shown in (("front", color), ("back", "green")):
            path = tmp_path / side / f"{number}.bmp"
            paint(path, shown, rng)
            os.utime(path, ns=(0, 0))
        rows.append(
            {"id": number, "label": color, "front": f"front/{number}.bmp", "back": f"back/{number}.bmp"}
        )
    table = pd.DataFrame(rows)
    table.to_csv(tmp_path / "t.csv", index=False)
    for side in ("front", "back"):
        table[side] = [(tmp_path / path).read_bytes() for path in table[side]]
    table.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        for side in ("front", "back"):
            done = cli(
                "clean", name, "--path-column", side, "--out", f"runs/{name}-{side}", "--set", "cleaning.k=8"
            )
            assert done.code == 0
            assert ("no class signal" in " ".join(done.err.split())) is (side == "back")
    assert embedded == [40] * 4
    for good in cache_folder().glob("*/*"):
        tensors, metadata = read_tensors(good)
        write_tensors(good, tensors, {**metadata, "stamps": [["x", [1]], *metadata["stamps"][1:]]})
    front = ["t.csv", "--path-column", "front", "--quiet", "--set", "cleaning.k=8"]
    assert cli("clean", *front, "--out", "runs/second").code == 0
    (tmp_path / "front" / "0.bmp").touch()
    assert cli("clean", *front, "--out", "runs/third").code == 0  # from the second, but for one photo
    assert embedded[4:] == [40, 1]


@pytest.mark.slow
def test_photos_that_changed_names_are_embedded_again(cli: Cli, tmp_path: Path, embedded: list[int]) -> None:
    """Also where size and time of change are the same, as those of bitmaps from one archive are."""
    rng = np.random.default_rng(0)
    for number in range(40):
        color = ("red", "blue")[number % 2]
        path = tmp_path / "set" / color / f"{number // 2}.bmp"
        paint(path, color, rng)
        os.utime(path, ns=(0, 0))
    assert cli("clean", "set", "--quiet", "--set", "cleaning.k=8").code == 0
    red, blue, aside = (tmp_path / name / "0.bmp" for name in ("set/red", "set/blue", "."))
    red.rename(aside)
    blue.rename(red)
    aside.rename(blue)
    assert cli("clean", "set", "--quiet", "--set", "cleaning.k=8", "--overwrite").code == 0
    assert cli("data", "cache", "--clear").code == 0
    assert cli("clean", "set", "--quiet", "--set", "cleaning.k=8", "--out", "elsewhere").code == 0
    assert embedded == [40, 2, 40]
    again, fresh = (tmp_path / name / "verdicts.csv" for name in ("runs/set-clean", "elsewhere"))
    assert again.read_bytes() == fresh.read_bytes()


@pytest.mark.slow
def test_a_run_may_be_made_in_the_folder_one_is_in(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphclean.embed.cache.PIECE", 30)
    (folder.parent / "here").mkdir()
    monkeypatch.chdir(folder.parent / "here")
    assert cli("clean", str(folder), "--quiet", "--set", "cleaning.k=8", "--out", ".").code == 0
    assert Path("verdicts.csv").is_file()
    done = cli(
        "train", str(folder), "--quiet", "--set", "cleaning.k=8", "--set", "training.epochs=2", "--out", "."
    )
    assert "use --overwrite" in done.err
    quick = ["--overwrite", "--set", "training.epochs=2", "--set", "method.warmup_epochs=1"]
    assert cli("train", str(folder), "--quiet", "--set", "cleaning.k=8", *quick, "--out", ".").code == 0
    assert Path("metrics.jsonl").is_file()
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


@pytest.mark.slow
def test_a_folder_may_be_called_anything(cli: Cli, folder: Path) -> None:
    for color, name in (("red", "nan"), ("blue", "None"), ("green", "NA")):
        (folder / color).rename(folder / name)
    assert cli("clean", "photos", "--quiet", "--set", "cleaning.k=8").code == 0
    table = pd.read_parquet(folder.parent / "runs/photos-clean/verdicts.parquet")
    assert table.given_label.tolist() == [name.split("/")[0] for name in table.id]
    assert set(table.proposed_label.dropna()) == {"nan", "None", "NA"}


@pytest.mark.slow
def test_heads_are_trained_on_photos(cli: Cli, refuse: Refuse, folder: Path, embedded: list[int]) -> None:
    options = ["--set", "training.epochs=4", "--set", "method.warmup_epochs=1", "--set", "cleaning.k=8"]
    done = cli("train", "photos", *options)
    assert done.code == 0
    assert "84 photos, 1,280 features, 3 classes; preset embeddings" in done.err
    assert "4 photos can't be read" in done.err
    out = folder.parent / "runs" / "photos-train"
    table = pd.read_parquet(out / "verdicts.parquet")
    assert len(table) == 88
    assert (table.verdict == "unreadable").sum() == 4
    assert len(pd.read_csv(out / "unreadable.csv")) == 4
    # Going on needs no embedding of what was embedded before.
    before = (out / "model.safetensors").read_bytes()
    (out / "summary.json").unlink()
    assert cli("train", "photos", "--resume", "--quiet").code == 0
    assert embedded == [87, 3]  # those that can't be read are tried again
    assert (out / "model.safetensors").read_bytes() == before
    assert json.loads((out / "summary.json").read_text())["verdicts"]["unreadable"] == 4
    for number, color in enumerate(COLORS):
        paint(folder.parent / "new" / f"{number}.png", color, np.random.default_rng(5))
    (folder.parent / "new" / "bad.png").write_bytes(b"x")
    assert cli("predict", "runs/photos-train", "new", "--out", "p.csv").code == 0
    new = pd.read_csv(folder.parent / "p.csv")
    assert new.predicted_label[:3].tolist() == list(COLORS)
    assert new.verdict.tolist()[3] == "unreadable"
    done = cli("predict", "runs/photos-train", "photos", "--evaluate", "--json")
    assert json.loads(done.out)["scores"]["known"] == 84  # of 88, four can't be read
    (folder.parent / "only").mkdir()
    (folder / "red").rename(folder.parent / "only" / "red")
    done = cli("predict", "runs/photos-train", "only", "--evaluate")
    assert "Of 28 under a known label" in done.out
    refuse("predict runs/photos-train new --evaluate", "no classes in new; at least one is needed")
    np.save(folder.parent / "x.npy", np.zeros((2, 8, 8), np.uint8))
    assert (
        "it holds images, but runs/photos-train was made from photos"
        in cli("predict", "runs/photos-train", "x.npy").err
    )


def test_refused(refuse: Refuse, folder: Path) -> None:
    np.savez(folder.parent / "z.npz", z=np.eye(9, 4) + 1, y=np.arange(9) % 2)
    np.savetxt(folder.parent / "y.txt", np.arange(9))
    cases = {
        "photos --embedder efficientnet-lite": "did you mean efficientnet-lite",
        "photos --labels y.txt": "--labels is for arrays and embeddings",
        "z.npz --embedder efficientnet-lite0": "--embedder and --path-column are for photos",
    }
    for arguments, message in cases.items():
        refuse(f"clean {arguments}", message)
