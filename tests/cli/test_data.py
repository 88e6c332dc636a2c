"""`graphclean data …` as a person uses it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphclean.bench import registry
from graphclean.bench.noise import CIFAR10_CLASSES
from graphclean.bench.registry import SETS
from graphclean.cli import data as data_cli
from graphclean.cli.app import main
from tests.bench.test_download import CONTENT, Server, server  # noqa: F401 – a fixture
from tests.data.builders import pixels, with_archive, write_table

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `graphclean data` with a root of its own; exit code, output, errors."""
    monkeypatch.setenv("GRAPHCLEAN_DATA", str(tmp_path / "root"))

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["data", *arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), " ".join(captured.out.split()), captured.err

    return call


@pytest.fixture
def cifar10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CIFAR-10 of six images."""
    monkeypatch.setitem(registry.SETS, "cifar10", replace(SETS["cifar10"], splits={"train": 6, "test": 0}))
    path = tmp_path / "root" / "cifar10" / "train.parquet"
    return write_table(path, pixels(6), np.arange(6), names=CIFAR10_CLASSES)


def test_list_shows_what_is_there_and_what_is_not(cli: Run, cifar10: Path) -> None:
    code, out, err = cli("list")
    assert (code, err) == (0, "")
    assert "cifar10 parquet 6 train –" in out
    assert "cifar100 not found" in out
    assert "169 MB" in out
    assert f"cifar10: {cifar10.parent}. Cite: Krizhevsky" in out


def test_list_as_json(cli: Run, cifar10: Path) -> None:
    code, out, _ = cli("list", "--json")
    assert code == 0
    found = {row["name"]: row for row in json.loads(out)["sets"]}
    assert list(found) == ["cifar10", "cifar100", "tinyimagenet", "places365"]
    assert found["cifar10"]["path"] == str(cifar10.parent)
    assert found["cifar10"]["images"] == {"train": 6}
    assert found["places365"]["form"] is None
    assert found["places365"]["fetch_bytes"] == 525_158_400


def test_list_goes_on_past_a_damaged_set(cli: Run, cifar10: Path) -> None:
    cifar10.write_bytes(b"PAR1")
    code, out, err = cli("list", "--json")
    assert (code, err) == (0, "")
    row = json.loads(out)["sets"][0]
    assert "can't be read" in row["problem"]
    assert "cifar10 damaged" in cli("list")[1]


def test_the_root_can_be_named(cli: Run, tmp_path: Path) -> None:
    _, out, _ = cli("list", "--json", "--data-root", str(tmp_path / "other"))
    assert json.loads(out)["root"] == str(tmp_path / "other")


def test_fetch_then_fetch_again(
    cli: Run,
    server: Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry.SETS, "cifar10", with_archive(SETS["cifar10"], CONTENT, server.url))
    target = tmp_path / "root" / "cifar10" / "cifar-10-python.tar.gz"
    assert cli("fetch", "cifar10") == (0, f"{target}: fetched, MD5 as published", "")
    assert target.read_bytes() == CONTENT
    assert cli("fetch", "cifar10") == (0, f"{target}: already there, MD5 as published", "")
    assert cli("fetch", "cifar10", "--quiet") == (0, "", "")
    assert cli("verify", "cifar10")[0] == 0


def test_a_failed_fetch_is_one_line_and_2(
    cli: Run,
    server: Server,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.status = 404
    monkeypatch.setitem(registry.SETS, "cifar10", with_archive(SETS["cifar10"], CONTENT, server.url))
    code, out, err = cli("fetch", "cifar10")
    assert (code, out) == (2, "")
    assert err == f"graphclean: {server.url}: the server reports 404 Not Found; try again later\n"
    assert not (tmp_path / "root").exists()


def test_an_interrupted_fetch_says_that_it_can_go_on(
    cli: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(data_cli, "fetch_set", interrupt)
    code, out, err = cli("fetch", "cifar10")
    assert (code, out) == (130, "")
    assert err == "graphclean: interrupted; fetch cifar10 again to continue from there\n"


def test_fetch_leaves_another_form_alone(cli: Run, cifar10: Path) -> None:
    code, out, _ = cli("fetch", "cifar10")
    assert code == 0
    assert out == f"{cifar10.parent}: cifar10 is already there, as parquet; nothing was fetched"


def test_verify_says_what_it_checked(cli: Run, cifar10: Path) -> None:
    code, out, err = cli("verify")
    assert (code, err) == (0, "")
    assert "cifar10 right 6 train" in out
    assert cifar10.exists()


def test_verify_shows_the_good_beside_the_damaged(cli: Run, cifar10: Path) -> None:
    write_table(cifar10.parents[1] / "cifar100" / "test.parquet", pixels(2), [0, 1])
    code, out, err = cli("verify")
    assert code == 2
    assert "cifar10 right" in out
    assert "cifar100 wrong" in out
    assert err.count("\n") == 1
    assert "2 images in the test split, and not 10,000" in err


def test_wrong_names_and_empty_roots_are_one_line_and_2(cli: Run) -> None:
    for arguments, words in (
        (("fetch", "cifar"), "no data set is called cifar; did you mean cifar10?"),
        (("verify", "cifar10"), "cifar10 is not under"),
        (("verify",), "no named data set under"),
    ):
        code, out, err = cli(*arguments)
        assert (code, out) == (2, "")
        assert err.startswith("graphclean: ")
        assert words in err
        assert err.count("\n") == 1
