"""Runs made elsewhere: their verdicts hold, and their data is read only where the user names it."""

import json
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphclean._files import user_config
from graphclean.data.hub import HUB_PREFIX
from graphclean.runs import photos as reading
from graphclean.runs.origin import KEY_FILE, made_here, sealed
from tests.builders import Cli, Refuse
from tests.conftest import states
from tests.runs.applied import lay_photos, make_run
from tests.runs.tiny import TINY, save_digits

ELSEWHERE = "run: not known to be made by you on this machine, so the data it names is not read; "


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """From now on with another user's configuration folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("other")))


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return lay_photos(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was listed or fetched as photos."""
    found: list[Path] = []
    real = reading._list_photos

    def listing(data: Path, *rest: Any) -> Any:
        found.append(data)
        return real(data, *rest)

    monkeypatch.setattr(reading, "_list_photos", listing)
    return found


def test_the_key_is_the_users_alone_and_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    before = os.umask(0)
    try:
        source = sealed({"data": "photos", "kind": "photos"})
    finally:
        os.umask(before)
    key = tmp_path / "config" / "graphclean" / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    assert [path.name for path in key.parent.iterdir()] == [KEY_FILE]
    assert sealed(source) == source == sealed({"data": "photos", "kind": "photos"})
    assert made_here(source)


def test_processes_that_make_the_key_at_once_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found: list[str] = []
    work = [threading.Thread(target=lambda: found.append(sealed({"data": "x"})["seal"])) for _ in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


@pytest.mark.parametrize(
    "changed", [{"data": "/etc"}, {"labels": "/etc/passwd"}, {"kind": "images"}, {"seal": "0" * 64}, {"x": 1}]
)
def test_nothing_of_the_source_can_be_changed(changed: dict[str, Any]) -> None:
    source = sealed({"data": "photos", "labels": None, "kind": "photos", "probe": [0.1, 1e-9]})
    assert made_here(json.loads(json.dumps(source)))
    assert not made_here({**source, **changed})
    del source["seal"]
    assert not made_here(source)


def test_without_a_place_for_the_key_a_run_is_made_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert sealed({"data": "x"}) == {"data": "x"}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    sealed({"data": "x"})
    (user_config() / KEY_FILE).write_bytes(b"")
    assert not made_here({"data": "x"})
    assert made_here(sealed({"data": "x"}))


def test_a_report_of_ones_own_run_has_its_pictures(cli: Cli, photos: Path) -> None:
    done = cli("report", "run")
    assert (done.code, "not read; " in done.err + done.out) == (0, False)
    assert '"pictures":{}' not in (photos.parent / "run/report.html").read_text()


@pytest.mark.usefixtures("photos", "elsewhere")
def test_a_report_of_another_run_opens_no_photo_unless_told_which(
    cli: Cli, tmp_path: Path, opened: list[Path]
) -> None:
    done = cli("report", "run", "--json")
    (note,) = [text for text in json.loads(done.out)["warnings"] if "not read" in text]
    assert note == f"Pictures are not shown. {ELSEWHERE}name its place with data"
    assert opened == []
    assert '"pictures":{}' in (tmp_path / "run/report.html").read_text()
    assert cli("report", "run", "--data", "photos", "--quiet").code == 0
    assert opened == [Path("photos")]
    assert '"pictures":{}' not in (tmp_path / "run/report.html").read_text()


@pytest.mark.usefixtures("photos", "elsewhere")
def test_what_would_open_photos_is_refused(refuse: Refuse, cli: Cli, tmp_path: Path) -> None:
    for words in (
        *("apply run --copy", "apply run --link --out x", "apply run --hardlink"),
        *("apply run --format fiftyone", "apply run --format label-studio", "apply run --format hf"),
        "report run --show caption",
    ):
        refuse(words, f"{ELSEWHERE}name its place with --data")
    for command in ("clean", "train"):
        refuse(f"{command} run", f"{ELSEWHERE}make a run of that data here, and add the decisions")
    assert cli("apply", "run", "--quiet").code == 0  # a manifest needs no photos
    before = states(tmp_path / "photos")
    assert cli("apply", "run", "--copy", "--data", "photos", "--out", "c", "--quiet").code == 0
    assert (tmp_path / "c/dog/3.png").read_bytes() == (tmp_path / "photos/dog/3.png").read_bytes()
    assert states(tmp_path / "photos") == before


def test_a_set_of_the_hub_is_never_fetched_for_another_run(
    cli: Cli, refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(reading, "load_hub", lambda name, _: asked.append(name))
    make_run(tmp_path / "run", data=f"{HUB_PREFIX}evil/set")
    config = json.loads((tmp_path / "run/config.json").read_text())
    del config["source"]["seal"]
    (tmp_path / "run/config.json").write_text(json.dumps(config))
    refuse("apply run --copy", ELSEWHERE)
    refuse("clean run", ELSEWHERE)
    assert cli("report", "run", "--quiet").code == 0
    assert asked == []


def test_labels_in_a_file_of_their_own_are_not_read_either(
    cli: Cli, refuse: Refuse, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "z.npy", rng.normal(size=(40, 4)) + 4 * (np.arange(40) % 2)[:, None])
    lines = [f"{row},{row % 2},secret{row}" for row in range(40)]
    (tmp_path / "y.csv").write_text("id,label,caption\n" + "\n".join(lines) + "\n")
    settings = ("--set", "cleaning.k=5", "--out", "run", "--quiet")
    assert cli("clean", "z.npy", "--labels", "y.csv", *settings).code == 0
    assert cli("report", "run", "--show", "caption", "--quiet").code == 0
    shutil.copytree(tmp_path / "run", tmp_path / "own")
    request.getfixturevalue("elsewhere")
    refuse("report run --show caption --data z.npy", "its labels are in a separate file")
    refuse("apply run --format hf --data z.npy", "its labels are in a separate file")
    assert cli("report", "run", "--quiet").code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_run_in_training_goes_on_elsewhere_with_what_is_named(
    cli: Cli, refuse: Refuse, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    save_digits(tmp_path)
    run = ("train", "digits.npz", *TINY, "--validation", "new.npz", "--out", "run", "--quiet")
    assert cli(*run).code == 0
    request.getfixturevalue("elsewhere")
    again = ("train", "digits.npz", "--resume", "--out", "run", "--quiet")
    refuse(again, f"{ELSEWHERE}name the file with --validation")
    assert cli(*again, "--validation", "new.npz").code == 0
    assert cli(*again).code == 0  # it is one's own by now


def test_only_a_file_in_the_run_itself_is_taken_for_the_demos(
    refuse: Refuse, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    make_run(tmp_path / "run", data="digits.npz", kind="images")
    np.savez(tmp_path / "digits.npz", images=np.zeros((9, 8, 8), np.uint8), labels=np.arange(9) % 2)
    (tmp_path / "run/digits.npz").symlink_to(tmp_path / "digits.npz")
    request.getfixturevalue("elsewhere")
    refuse("apply run --format hf", ELSEWHERE)
