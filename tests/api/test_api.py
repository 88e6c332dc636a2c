"""Python's front door says what the command line says."""

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import graphclean
from graphclean.data.digits import noisy_digits
from graphclean.errors import DataWarning, InputError
from tests.builders import Cli
from tests.runs.tiny import SETTINGS, results, save_digits

N = 300
QUICK = {setting.split("=")[0]: setting.split("=")[1] for setting in SETTINGS}


@pytest.fixture(autouse=True)
def _calm(one_thread: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    del one_thread
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    digits = noisy_digits(noise=0.3)
    return digits.pixels[:N].astype(np.float32), digits.labels[:N]


@pytest.fixture
def saved(arrays: tuple[np.ndarray, np.ndarray]) -> Path:
    np.savez("digits.npz", features=arrays[0], labels=arrays[1])
    np.savez("new.npz", features=arrays[0][:20] + 1, labels=arrays[1][:20])
    return Path("digits.npz")


def test_clean_is_the_command(cli: Cli, saved: Path) -> None:
    run = graphclean.clean(saved, settings={"cleaning.k": (10, 20)}, quiet=True)
    assert run.path == Path("runs/digits-clean")
    assert cli("clean", "digits.npz", "--quiet", "--out", "other", "--set", "cleaning.k=10,20").code == 0
    other = graphclean.Run.load("other")
    for name in ("verdicts.csv", "config.json", "model.safetensors"):
        assert (run.path / name).read_bytes() == (other.path / name).read_bytes()
    pd.testing.assert_frame_equal(run.verdicts, other.verdicts)
    assert run.summary == other.summary
    with pytest.raises(InputError, match="use overwrite to replace it"):
        graphclean.clean(saved, quiet=True)


def test_arrays_give_the_verdicts_of_their_file(arrays: tuple[np.ndarray, np.ndarray], saved: Path) -> None:
    settings = {"cleaning.k": 10}
    of_file = graphclean.clean(saved, settings=settings, quiet=True)
    run = graphclean.clean(*arrays, settings=settings, quiet=True)
    assert run.path == Path("runs/arrays-clean")
    pd.testing.assert_frame_equal(run.verdicts, of_file.verdicts)
    frame = pd.DataFrame(arrays[0], index=[f"s{row}" for row in range(N)])
    named = graphclean.clean(frame, arrays[1], settings=settings, out="named", quiet=True)
    assert named.verdicts["id"].tolist() == list(frame.index)
    assert named.verdicts["verdict"].tolist() == run.verdicts["verdict"].tolist()
    there = run.predict(arrays[0][:20] + 1, quiet=True)
    pd.testing.assert_frame_equal(there, of_file.predict("new.npz", quiet=True))
    shuffled = (frame[:20] + 1)[frame.columns[::-1]]
    again = named.predict(shuffled, arrays[1][:20], quiet=True)
    assert again["id"].tolist() == [f"s{row}" for row in range(20)]
    assert again["ood_score"].tolist() == there["ood_score"].tolist()
    assert again.attrs["scores"]["known"] + again.attrs["scores"]["ood"] == 20


@pytest.mark.slow
def test_train_is_the_command(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    run = graphclean.train("digits.npz", preset="demo", settings=QUICK, quiet=True)
    assert (run.kind, run.path) == ("train", Path("runs/digits-train"))
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    assert cli("train", "digits.npz", "--preset", "demo", *words, "--quiet", "--out", "other").code == 0
    assert results(run.path) == results(Path("other"))
    with np.load("digits.npz") as digits:
        images, labels = digits["images"], digits["labels"]
    usual = {"method": "ngc", "detector": "prototypes"}
    held = graphclean.train(images, labels, preset="demo", **usual, settings=QUICK, out="held", quiet=True)
    assert results(held.path) == results(run.path)
    found = held.predict(images[:9], quiet=True)
    assert (
        found["predicted_label"].tolist()
        == run.predict(Path("digits.npz"), quiet=True)["predicted_label"].tolist()[:9]
    )
    assert run.report(quiet=True).stat().st_size > 10_000
    assert run.apply(quiet=True).out == run.path / "cleaned.csv"


def test_predictions_are_written_where_that_is_asked(saved: Path) -> None:
    run = graphclean.clean(saved, settings={"cleaning.k": 10}, quiet=True)
    table = run.predict("new.npz", out="p.csv", evaluate=True, quiet=True)
    assert pd.read_csv("p.csv")["verdict"].tolist() == table["verdict"].tolist()
    assert set(table.attrs) == {"warnings", "scores", "promised"}
    assert not (run.path / "predictions").exists()


def test_the_summary_is_shown_and_hostile_names_are_not_run(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    names = np.array([f"<b>{label}</b>" for label in arrays[1]])
    run = graphclean.clean(arrays[0], names, out="<i>run", settings={"cleaning.k": 10}, quiet=True)
    counts = run.verdicts["verdict"].value_counts()
    assert f"keep       {counts['keep']:>9,}" in repr(run)
    assert repr(run).startswith(f"Run <i>run (clean): {N} samples, ")
    page = run._repr_html_()
    assert f"<td>relabel</td><td>{counts['relabel']:,}</td>" in page
    assert "<i>" not in page
    assert "<b>1" not in page


def test_plots_show_every_sample(
    arrays: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    run = graphclean.clean(*arrays, settings={"cleaning.k": 10}, quiet=True)
    placed = run.plot_map()
    assert sum(len(part.get_offsets()) for part in placed.collections) == N
    axes = pyplot.subplots()[1]
    assert run.plot_confusion(axes) is axes
    table = run.verdicts[run.verdicts["verdict"].isin(["keep", "relabel"])]
    assert sum(int(text.get_text()) for text in axes.texts) == len(table)
    pyplot.close("all")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(InputError, match="pip install matplotlib"):
        run.plot_confusion()


def test_slips_are_told(arrays: tuple[np.ndarray, np.ndarray], saved: Path) -> None:
    features, labels = arrays
    with pytest.raises(InputError, match="arrays contain no labels; give labels"):
        graphclean.clean(features)
    with pytest.raises(InputError, match="labels of a path are a path, too"):
        graphclean.clean(saved, labels)
    with pytest.raises(InputError, match="labels of arrays are a list or an array"):
        graphclean.clean(features, "labels.csv")
    with pytest.raises(InputError, match="ids are for arrays in memory"):
        graphclean.clean(saved, ids=range(N))
    with pytest.raises(InputError, match=r"cleaning\.kk: no such setting"):
        graphclean.clean(saved, settings={"cleaning.kk": 1})
    with pytest.raises(TypeError, match="settings are a dict"):
        graphclean.clean(saved, settings=["cleaning.k=1"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="label_colum"):
        graphclean.clean(saved, label_colum="x")  # type: ignore[call-arg]
    with pytest.raises(InputError, match="resume is for data that is given as a path"):
        graphclean.train(features, labels, resume=True)
    with pytest.raises(InputError, match=r"ood\.detector=knm: no such detector; did you mean knn\?"):
        graphclean.train(saved, detector="knm")
    with pytest.raises(InputError, match=r"method elr, and the setting method\.name=ngc another"):
        graphclean.train(saved, method="elr", settings={"method.name": "ngc"})
    with pytest.raises(InputError, match="no such run folder"):
        graphclean.Run.load("nowhere")
    run = graphclean.clean(pd.DataFrame(features).add_prefix("f"), labels, quiet=True)
    with pytest.raises(InputError, match="the table has no column f0"):
        run.predict(pd.DataFrame(features))
    with pytest.raises(InputError, match=r"the arrays are images, but .* was made from embeddings"):
        run.predict(np.zeros((2, 8, 8)))
    with pytest.raises(InputError, match="out is for data at a path"):
        run.predict(np.zeros((1, 64)), out="p.csv", quiet=True)
    with pytest.raises(InputError, match="labels are for arrays"):
        run.predict(saved, labels)


def test_importing_the_names_is_quick() -> None:
    code = "import sys, graphclean; dir(graphclean); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
