"""The command line as a person uses it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from sklearn.metrics import roc_auc_score

import graphclean
from graphclean.cli.app import app
from graphclean.config.presets import preset_purposes, read_preset
from graphclean.data.digits import noisy_digits
from graphclean.runs.predict import load_model
from tests.builders import Cli, Refuse
from tests.cleaning.test_pipeline import blobs
from tests.conftest import states

QUICK = ("--set", "training.epochs=3", "--set", "method.warmup_epochs=1")
"""The demo in few epochs."""


@pytest.fixture
def named(tmp_path: Path) -> Path:
    """Embeddings with class names: 30 % wrong labels, and OOD samples."""
    z, labels, _ = blobs([80] * 3, noise=0.3, ood=40)
    names = np.array(["ant", "bee", "cat"])[labels]
    np.savez(tmp_path / "insects.npz", z=z, y=names)
    return tmp_path / "insects.npz"


def test_clean_writes_the_run_and_says_what_it_found(cli: Cli, named: Path) -> None:
    done = cli("clean", "insects.npz")
    assert done.code == 0
    out = named.parent / "runs" / "insects-clean"
    assert {p.name for p in out.iterdir()} == {
        "config.json",
        "env.json",
        "summary.json",
        "verdicts.parquet",
        "verdicts.csv",
        "model.safetensors",
        "points.safetensors",
        "training.safetensors",
    }
    table = pd.read_parquet(out / "verdicts.parquet")
    csv = pd.read_csv(out / "verdicts.csv")
    assert csv.verdict.tolist() == table.verdict.tolist()
    assert json.loads(csv.neighbors[0]) == list(table.neighbors[0])
    for verdict, count in table.verdict.value_counts().items():
        assert f"{verdict} " in done.out
        assert str(count) in done.out
    assert "280 samples, 16 features, 3 classes" in done.out
    assert "of 100" in done.out
    assert "belong to no class" in done.out
    assert "Most often relabeled" in done.out
    env = json.loads((out / "env.json").read_text())
    assert env["packages"]["torch"]
    assert len(env["data_sha256"]) == 64


def test_two_runs_agree_to_the_byte(cli: Cli, named: Path) -> None:
    for out in ("one", "two"):
        assert cli("clean", "insects.npz", "--out", out, "--quiet").code == 0
    for name in ("verdicts.csv", "verdicts.parquet", "summary.json", "model.safetensors"):
        assert (named.parent / "one" / name).read_bytes() == (named.parent / "two" / name).read_bytes()


@pytest.mark.usefixtures("named")
def test_json_is_all_that_is_printed(cli: Cli) -> None:
    done = cli("clean", "insects.npz", "--json", "--set", "cleaning.k=15")
    summary = json.loads(done.out)
    assert sum(summary["verdicts"].values()) == summary["samples"] == 280
    assert list(summary["k_tried"]) == ["15"]
    assert cli("clean", "insects.npz", "--quiet", "--overwrite").out == ""


def test_predict_from_the_run(cli: Cli, named: Path) -> None:
    cli("clean", "insects.npz", "--quiet")
    z, _, truth = blobs([80] * 3, noise=0.3, ood=40)
    pd.DataFrame(z[:240]).assign(id=[f"n{i}" for i in range(240)]).to_csv(
        named.parent / "new.csv", index=False
    )
    done = cli("predict", "runs/insects-clean", "new.csv")
    assert done.code == 0
    table = pd.read_csv(named.parent / "runs/insects-clean/predictions/new.csv")
    assert table.id[5] == "n5"
    expected = np.array(["ant", "bee", "cat"])[truth[:240]]
    assert (table.predicted_label == expected).mean() > 0.95
    assert f"{(table.verdict == 'ood').sum()} of them rejected as OOD" in done.out
    from_python = load_model(named.parent / "runs/insects-clean").predict(z[:240].astype(np.float32))
    np.testing.assert_allclose(table.ood_score, from_python.ood_score, atol=1e-6)
    assert cli("predict", "runs/insects-clean", "new.csv").err.count("the file exists; use --overwrite") == 1


def test_parquet_has_two_suffixes(cli: Cli, tmp_path: Path) -> None:
    z, labels, _ = blobs([60] * 2)
    table = pd.DataFrame(z, columns=[f"f{j}" for j in range(z.shape[1])]).assign(id=range(len(z)))
    table.to_parquet(tmp_path / "z.pq")
    pd.DataFrame({"id": table.id, "label": labels})[::-1].to_parquet(tmp_path / "y.pq")
    assert cli("clean", "z.pq", "--labels", "y.pq", "--out", "run", "--quiet").code == 0
    verdicts = pd.read_parquet(tmp_path / "run/verdicts.parquet")
    assert verdicts.given_label.tolist() == list(labels)
    table[table.columns[::-1]].to_parquet(tmp_path / "turned.pq")
    for data in ("z.pq", "turned.pq"):  # features are taken by name
        assert cli("predict", "run", data, "--out", f"of-{data}", "--quiet").code == 0
    predicted, turned = (pd.read_parquet(tmp_path / f"of-{data}") for data in ("z.pq", "turned.pq"))
    pd.testing.assert_frame_equal(predicted, turned)
    assert cli("apply", "run", "--out", "cleaned.pq", "--quiet").code == 0
    assert pd.read_parquet(tmp_path / "cleaned.pq").id.tolist() == verdicts.id.tolist()


def test_data_and_runs_are_never_replaced_by_what_is_made_of_them(
    cli: Cli, refuse: Refuse, tmp_path: Path
) -> None:
    z, labels, _ = blobs([30, 30])
    pd.DataFrame(z).assign(label=labels).to_csv(tmp_path / "t.csv", index=False)
    assert cli("clean", "t.csv", "--out", "r", "--quiet").code == 0
    refuse("predict r t.csv --out t.csv --overwrite", "t.csv: lies in t.csv, which is never written to")
    for name in ("verdicts.parquet", "verdicts.csv"):
        refuse(f"predict r t.csv --out r/{name} --overwrite", f"r/{name}: is a file of the run itself")
    assert cli("predict", "r", "t.csv", "--quiet").code == 0
    refuse("clean r/predictions/t.csv --out r --overwrite", "r: r/predictions/t.csv lies in it")
    np.save(tmp_path / "r/predictions/y.npy", labels)
    (tmp_path / "link.csv").symlink_to("r/predictions/t.csv")
    refuse("train link.csv --out r --overwrite", "link.csv lies in it, and is never replaced")
    refuse("clean t.csv --labels r/predictions/y.npy --out r --overwrite", "r/predictions/y.npy lies in it")
    refuse(
        "train t.csv --validation r/predictions/t.csv --out r --overwrite",
        "r: r/predictions/t.csv lies in it",
    )


@pytest.mark.slow
def test_json_stays_json_where_nothing_was_scored(cli: Cli) -> None:
    done = cli("demo", "--json", *QUICK, "--set", "cleaning.signal=1e9")

    def refuse(name: str) -> None:
        raise ValueError(name)

    assert json.loads(done.out, parse_constant=refuse)["scores"]["verdicts"]["ood_auroc"] is None


def test_a_table_with_paths_and_embeddings_can_be_told_from_photos(cli: Cli, tmp_path: Path) -> None:
    z, labels, _ = blobs([60, 60])
    frame = pd.DataFrame(z[:, :6]).assign(label=labels, image=[f"{i}.jpg" for i in range(120)])
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert "no images" in cli("clean", "t.csv").err
    assert "120 samples, 6 features" in cli("clean", "t.csv", "--embedder", "none").out
    assert cli("predict", "runs/t-clean", "t.csv", "--quiet").code == 0
    assert len(pd.read_csv(tmp_path / "runs/t-clean/predictions/t.csv")) == 120


def test_an_unexpected_error_is_one_line_too(cli: Cli, named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("graphclean.runs.clean.clean", broken)
    done = cli("clean", str(named))
    assert done.code == 1
    assert done.err.startswith("graphclean: unexpected error, please report it: RuntimeError: boom")
    assert done.err.count("\n") == 1


@pytest.mark.slow
def test_demo_shows_what_was_found_against_the_truth(cli: Cli, tmp_path: Path) -> None:
    done = cli("demo", *QUICK)
    assert done.code == 0
    scores = json.loads((tmp_path / "runs/demo/scores.json").read_text())
    verdicts = scores["verdicts"]
    assert verdicts["label_accuracy"] > 0.9
    assert verdicts["mislabel_f1"] > 0.9
    for value in (scores["ce"]["auroc"], scores["ngc"]["auroc"], scores["ngc"]["f"], verdicts["ood_auroc"]):
        assert f"{value:.3f}" in done.out
    for method in ("ce", "ngc"):
        assert f"{100 * scores[method]['accuracy']:.1f} %" in done.out
    digits = noisy_digits()
    train = np.random.default_rng(0).permutation(1797)[:1200]
    known = ~digits.is_ood[train]
    before = (digits.labels == digits.truth)[train][known].mean()
    assert f"{100 * before:.1f} %" in done.out
    # The run is an ordinary training run: its files, read back, give the scores that were printed.
    test = np.setdiff1d(np.arange(1797), train)
    np.savez(tmp_path / "test.npz", images=digits.images[test])
    assert cli("predict", "runs/demo", "test.npz", "--quiet").code == 0
    table = pd.read_csv(tmp_path / "runs/demo/predictions/test.csv")
    right = (table.predicted_label == digits.truth[test])[~digits.is_ood[test]]
    assert scores["ngc"]["accuracy"] == pytest.approx(right.mean())
    assert scores["ngc"]["auroc"] == pytest.approx(roc_auc_score(digits.is_ood[test], table.ood_score))


def test_warnings_go_to_stderr(cli: Cli, tmp_path: Path) -> None:
    z, labels, _ = blobs([90, 12])
    pd.DataFrame(z).assign(label=labels, id="same").to_csv(tmp_path / "t.csv", index=False)
    done = cli("clean", "t.csv")
    assert done.code == 0
    assert "warning: 1 class has under 20 samples" in done.err
    assert "warning: 101 ids are repeats" in done.err
    assert "warning" not in done.out


def test_hostile_names_are_only_names(cli: Cli, tmp_path: Path) -> None:
    z, labels, _ = blobs([80, 80], noise=0.3)
    names = np.array(["<script>", "[red]=cmd()"])[labels]
    pd.DataFrame(z).assign(label=names, id="=1+1").to_csv(tmp_path / "t.csv", index=False)
    done = cli("clean", "t.csv")
    assert "[red]=cmd()" in done.out
    assert pd.read_csv(tmp_path / "runs/t-clean/verdicts.csv").id[0] == "'=1+1"


def test_names_do_not_command_the_terminal(cli: Cli, tmp_path: Path) -> None:
    z, labels, _ = blobs([80, 80], noise=0.3)
    names = np.array(["\x1b]0;title\x07", "two\nlines"])[labels]
    np.savez(tmp_path / "t.npz", z=z, y=names)
    done = cli("clean", "t.npz", "--out", "a run")
    assert "\\x1b]0;title\\x07" in done.out
    assert "two\\nlines" in done.out
    assert "graphclean report 'a run'" in done.out
    for told in (done.out, done.err, cli("clean", "\x1b[31m.npz").err):
        assert "\x1b" not in told


def bad_inputs(folder: Path) -> dict[str, tuple[list[str], str]]:
    """Name -> arguments, and what the one line must say."""
    z, labels, _ = blobs([30, 30])
    spoiled = z.copy()
    spoiled[[4, 8, 15, 16]] = np.nan
    zero = z.copy()
    zero[7] = 0
    np.savez(folder / "good.npz", z=z, y=labels)
    np.savez(folder / "nan.npz", z=spoiled, y=labels)
    np.savez(folder / "zero.npz", z=zero, y=labels)
    np.savez(folder / "short.npz", z=z, y=labels[:-1])
    np.savez(folder / "one.npz", z=z, y=np.zeros(60, dtype=int))
    np.savez(folder / "pickled.npz", z=np.array([{}], dtype=object), y=labels)
    (folder / "empty.csv").write_bytes(b"")
    (folder / "taken").mkdir()
    (folder / "taken" / "thesis.doc").write_text("mine")
    return {
        "nan": (["clean", "nan.npz"], "NaN or infinite values in 4 rows of 60 (counted from 0: 4, 8, 15, …)"),
        "zero": (["clean", "zero.npz"], "all zero in 1 row of 60"),
        "length": (["clean", "short.npz"], "there are 59 labels for 60 samples"),
        "one-class": (["clean", "one.npz"], "the labels name one class (0); at least two"),
        "pickled": (["clean", "pickled.npz"], "pickled objects, which are never loaded"),
        "empty": (["clean", "empty.csv"], "the file is empty"),
        "missing": (["clean", "none.npz"], "no such file"),
        "option": (["clean", "good.npz", "--lables", "x"], "--labels"),
        "setting": (
            ["clean", "good.npz", "--set", "cleaning.certanty=1"],
            "did you mean cleaning.certainty?",
        ),
        "command": (["claen", "good.npz"], "No such command 'claen'"),
        "no-data": (["clean"], "Missing argument"),
        "taken": (["clean", "good.npz", "--out", "taken"], "not a run"),
        "no-run": (["predict", "taken", "good.npz"], "not a run folder"),
    }


CASES = [
    *("nan", "zero", "length", "one-class", "pickled", "empty", "missing"),
    *("option", "setting", "command", "no-data", "taken", "no-run"),
]


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_line_exit_2_and_nothing_written(refuse: Refuse, tmp_path: Path, case: str) -> None:
    refuse(*bad_inputs(tmp_path)[case])


LONG = "y" * 300


@pytest.mark.parametrize(
    "command",
    [
        *(["clean", LONG], ["report", LONG], ["predict", LONG, "insects.npz"], ["bench", "rerun", LONG]),
        ["clean", "insects.npz", "--out", LONG],
        ["clean", "insects.npz", "--out", "a/" * 1500 + "b"],
        ["clean", "insects.npz", "--labels", LONG],
        ["clean", "loop/insects.npz"],
    ],
    ids=lambda command: " ".join(command)[:30],
)
def test_names_that_no_file_can_have_are_one_line(refuse: Refuse, named: Path, command: list[str]) -> None:
    (named.parent / "loop").symlink_to("loop")
    refuse(command, "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take no such names")
def test_a_name_that_is_no_text_is_one_line(refuse: Refuse, named: Path) -> None:
    del named
    refuse(
        ["clean", "insects.npz", "--out", os.fsdecode(b"o-\xe9")],
        "a name that is no utf-8; rename it, or set LC_ALL",
    )


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_an_output_without_room_is_one_line(named: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "graphclean", "clean", named.name, "--json"],
            cwd=named.parent, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "graphclean: the output can't be written: No space left on device\n"
    assert (named.parent / "runs/insects-clean/summary.json").is_file()


def test_a_run_that_exists_is_kept(cli: Cli, named: Path) -> None:
    cli("clean", "insects.npz", "--quiet")
    stamp = (named.parent / "runs/insects-clean/summary.json").stat().st_mtime_ns
    done = cli("clean", "insects.npz")
    assert done.code == 2
    assert "holds another run; use --overwrite" in done.err
    assert (named.parent / "runs/insects-clean/summary.json").stat().st_mtime_ns == stamp


def test_a_run_without_signal_says_so_and_cannot_predict(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", z=rng.normal(size=(400, 6)), y=rng.integers(0, 3, 400))
    done = cli("clean", "noise.npz")
    assert done.code == 0
    assert "no class signal" in done.err
    assert "no class signal" in cli("predict", "runs/noise-clean", "noise.npz").err


def test_version_and_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphclean", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"graphclean {graphclean.__version__}"


def test_a_narrow_encoding_of_the_output_ends_no_run() -> None:
    """As where output goes to a file on Windows."""
    done = subprocess.run(
        [sys.executable, "-m", "graphclean", "presets"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert "8 \\xd7 8 digits" in done.stdout.decode("ascii")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing_half_written(tmp_path: Path, number: int, code: int) -> None:
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "big.npz", z=rng.normal(size=(40_000, 64)).astype(np.float32), y=rng.integers(0, 5, 40_000)
    )
    command = [sys.executable, "-m", "graphclean", "clean", "big.npz"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()  # shown once the search has run for two seconds
        assert "finding neighbors" in line
        process.send_signal(number)
        started = time.monotonic()
        rest = process.stderr.read()
        assert process.wait(timeout=60) == code
    assert time.monotonic() - started < 30
    assert "Traceback" not in rest
    said = "interrupted; nothing was written" if number == signal.SIGINT else "terminated"
    assert rest.splitlines()[-1] == f"graphclean: {said}"
    assert list(states(tmp_path)) == ["big.npz"]


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("SIGINT", 130, "interrupted; nothing was written"), ("SIGTERM", 143, "terminated")],
)
def test_an_interrupt_while_torch_is_loaded(name: str, code: int, said: str) -> None:
    """No exception is raised there: one that passes through torch's own code aborts the process."""
    script = f"""
import signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "torch._C":
            try:
                signal.raise_signal(signal.{name})
            except BaseException:
                print("an exception")
sys.meta_path.insert(0, Interrupt())
from graphclean.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", script, "clean", "z.npz"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"graphclean: {said}\n")


def test_names_between_colons_are_no_pictures(cli: Cli, named: Path) -> None:
    """A split is named after a colon, and rich would make a tram of `:train:`."""
    named.rename(named.with_name("insects:train.npz"))
    done = cli("clean", "insects:train.npz", "--out", "a:train:b")
    assert done.out.splitlines()[0].startswith("insects:train.npz: 280 samples")
    assert "a:train:b/verdicts.csv" in done.out


@pytest.mark.parametrize(
    "command",
    [["clean", ""], ["clean", "insects.npz", "--out", ""], ["apply", "run", "--out", ""], ["presets", ""]],
)
def test_an_empty_argument_is_no_folder(cli: Cli, named: Path, command: list[str]) -> None:
    """It would be the one that the command is given in, where a variable of the shell is misspelled."""
    before = states(named.parent)
    done = cli(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err == "graphclean: an argument is empty; has a variable of the shell no value?\n"
    assert states(named.parent) == before


def test_presets_are_listed_and_shown(cli: Cli) -> None:
    listed = cli("presets")
    assert listed.code == 0
    for name, purpose in preset_purposes().items():
        assert name in listed.out
        assert purpose.split()[0] in listed.out
    assert cli("presets", "demo").out == read_preset("demo")
    unknown = cli("presets", "dem")
    assert (unknown.code, unknown.err) == (2, "graphclean: no preset dem; did you mean demo?\n")


def test_help_shows_no_value_for_what_takes_none() -> None:
    def flags(command: Any) -> Iterator[Any]:
        yield from (option for option in command.params if getattr(option, "is_flag", False))
        for inner in getattr(command, "commands", {}).values():
            yield from flags(inner)

    found = list(flags(typer.main.get_command(app)))
    assert len(found) > 20
    assert [option.name for option in found if option.metavar != ""] == []


@pytest.mark.parametrize("command", [[], ["train"], ["bench"], ["bench", "run"], ["data"], ["data", "fetch"]])
def test_help_is_such_an_option_too(cli: Cli, command: list[str]) -> None:
    shown = cli(*command, "--help")
    assert shown.code == 0
    assert re.search(r"--help +Show this message and exit", shown.out)
    assert "bool" not in shown.out.lower()
