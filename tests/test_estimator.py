"""The scikit-learn estimator: its conventions, its labels, and the run folder it shares with the CLI."""

import json
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_classifiers_classes, parametrize_with_checks

from graphclean import NoisyGraphClassifier
from graphclean.data.digits import noisy_digits
from graphclean.errors import DataWarning, InputError
from tests.builders import Cli
from tests.conftest import states
from tests.runs.tiny import SETTINGS, TINY, N, save_digits

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::graphclean.errors.DataWarning"),
]

QUICK: dict[str, Any] = {
    "epochs": 10,
    "settings": {"method.warmup_epochs": 6, "training.batch_size": 32, "graph.k": 10, "cleaning.k": (10,)},
}
DIGITS: dict[str, Any] = {
    "preset": "demo",
    "settings": dict(setting.split("=") for setting in SETTINGS),
}

SKIPPED = {
    "check_classifiers_classes": "−1 is one of its two classes, and means unlabeled here, as in "
    "scikit-learn's own semi-supervised classifiers, which the check excuses by name",
    "check_array_api_input": "skips itself where SCIPY_ARRAY_API is not set",
}

Blobs = tuple[np.ndarray, np.ndarray]


CHECKS = parametrize_with_checks([NoisyGraphClassifier(**QUICK)])


# Named again, as older versions give pytest an iterator that it no longer takes.
@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), list(CHECKS.args[1]), ids=CHECKS.kwargs["ids"])
def test_conventions_of_scikit_learn(estimator: Any, check: Any) -> None:
    name = check.func.__name__
    if name in SKIPPED:
        pytest.skip(SKIPPED[name])
    with warnings.catch_warnings():
        # The checks warn by themselves, each version in its own way.
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_check_of_classes_holds_where_unlabeled_is_known() -> None:
    check_classifiers_classes("LabelSpreading", NoisyGraphClassifier(**QUICK))


@pytest.fixture(scope="module")
def blobs() -> Blobs:
    """Three classes of 6 features."""
    X, y = make_blobs(240, n_features=6, centers=3, cluster_std=1.5, random_state=0)
    return X, y


@pytest.fixture(scope="module")
def fitted(blobs: Blobs) -> NoisyGraphClassifier:
    """A classifier of the blobs by name."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return NoisyGraphClassifier(**QUICK).fit(blobs[0], np.array(["ant", "bee", "cat"])[blobs[1]])


def test_wrong_labels_are_found_and_not_learned(blobs: Blobs) -> None:
    X, y = blobs
    noisy = y.copy()
    wrong = np.arange(0, 240, 6)
    noisy[wrong] = (y[wrong] + 1) % 3
    model = NoisyGraphClassifier(epochs=20, settings=QUICK["settings"]).fit(X, noisy)
    assert model.score(X, y) > 0.97
    flagged = model.verdicts_.verdict == "relabel"
    assert flagged[wrong].mean() > 0.9
    assert (model.verdicts_.proposed_label.to_numpy() == y).mean() > 0.97
    assert flagged.drop(index=wrong).mean() < 0.03


def test_open_prediction_and_scores(fitted: NoisyGraphClassifier, blobs: Blobs) -> None:
    X = blobs[0]
    closed, opened, score = fitted.predict(X), fitted.predict_or_reject(X), fitted.ood_score(X)
    table = fitted.model_.predict(X)
    rejected = (table.verdict == "ood").to_numpy()
    assert 0 < rejected.sum() < len(X)
    np.testing.assert_array_equal(opened == "OOD", rejected)
    np.testing.assert_array_equal(opened[~rejected], closed[~rejected])
    assert closed.tolist() == table.predicted_label.tolist()
    np.testing.assert_array_equal(score, table.ood_score)
    assert score[rejected].min() > score[~rejected].max()
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(proba.max(1), table.probability)
    np.testing.assert_array_equal(fitted.classes_[proba.argmax(1)], closed)


@pytest.mark.parametrize(
    ("classes", "unknown"),
    [
        ([3, 7, 20], -1),
        ([3.0, 7.0, 20.0], -1),
        (["7", "10", "x"], "OOD"),
        (["10", "7", "8"], "OOD"),
        ([np.uint8(1), np.uint8(2), np.uint8(200)], -1),
        ([np.int16(1), np.int16(2), np.int16(3)], -1),
        ([np.float32(1), np.float32(2), np.float32(3)], -1),
        (["ß", "é", "日本"], "OOD"),
    ],
)
def test_classes_of_any_kind(blobs: Blobs, classes: list[Any], unknown: Any, tmp_path: Path) -> None:
    X, y = blobs[0], np.array(classes)[blobs[1]]
    model = NoisyGraphClassifier(**QUICK).fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.classes_.dtype == y.dtype
    assert model.score(X, y) > 0.97
    opened = model.predict_or_reject(X)
    known = opened != unknown
    assert not known.all()
    np.testing.assert_array_equal(opened[known], model.predict(X)[known])
    same = [str(a) == str(b) for a, b in zip(model.verdicts_.given_label, np.asarray(y), strict=True)]
    assert all(same) or y.dtype.kind == "f"
    model.save(tmp_path / "run")
    again = NoisyGraphClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_or_reject(X), opened)
    np.testing.assert_array_equal(again.classes_, model.classes_)
    assert again.classes_.dtype == model.classes_.dtype


@pytest.mark.parametrize("unit", ["D", "ns", "s"])
def test_dates_are_classes(blobs: Blobs, unit: str, tmp_path: Path) -> None:
    days = np.array(["2024-01-01", "2024-01-02", "2024-02-01"], dtype=f"datetime64[{unit}]")
    X, y = blobs[0], days[blobs[1]]
    model = NoisyGraphClassifier(**QUICK).fit(X, y)
    assert model.score(X, y) > 0.97
    assert set(model.predict_or_reject(X)) == {*days.astype(str), "OOD"}
    model.save(tmp_path / "run")
    again = NoisyGraphClassifier.load(tmp_path / "run")
    assert again.classes_.dtype == days.dtype
    np.testing.assert_array_equal(again.classes_, days)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict_or_reject(X), model.predict_or_reject(X))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([1, True, 2], "^labels are of two kinds, such as 1 and True; make all text$"),
        (["a", 1, 2], "^labels are of two kinds, such as 'a' and 1; make all text$"),
        ([pd.Timestamp(2024, 1, day) for day in (1, 2, 3)], r"^labels such as Timestamp\(.* can't be "),
        (np.array([1, 2, 3], dtype="timedelta64[D]"), "names, whole numbers or dates, not timedelta64"),
        (np.array([0, 1, 2], dtype=np.uint64) + np.uint64(2**63), "^class 9223372036854775810 is beyond "),
        ([" ant", "bee", "cat"], "^the class ' ant' is read as 'ant'; write it so in y$"),
    ],
)
def test_classes_that_would_come_back_otherwise_are_refused(blobs: Blobs, classes: Any, message: str) -> None:
    y = np.array(classes, None if isinstance(classes, np.ndarray) else object)[np.sort(blobs[1])]
    with pytest.raises(InputError, match=message):
        NoisyGraphClassifier(**QUICK).fit(blobs[0], y)


@pytest.mark.parametrize("name", ["datetime64[D]", "int7", "datetime64[soon]"])
def test_a_run_whose_classes_are_of_no_such_type_is_refused(
    fitted: NoisyGraphClassifier, name: str, tmp_path: Path
) -> None:
    fitted.save(tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    recorded = json.loads(config.read_text())
    recorded["source"]["class_type"] = name
    config.write_text(json.dumps(recorded))
    with pytest.raises(InputError, match=rf"config\.json: source\.class_type is {re.escape(name)}, which"):
        NoisyGraphClassifier.load(tmp_path / "run")


@pytest.mark.parametrize("gaps", [False, True])
def test_two_truth_values_are_classes(blobs: Blobs, tmp_path: Path, gaps: bool) -> None:
    X, y = blobs[0], blobs[1] == 1
    given = y.astype(object) if gaps else y
    given[:4] = None if gaps else y[:4]
    model = NoisyGraphClassifier(**QUICK).fit(X, given)
    assert model.verdicts_.given_label.isna().sum() == 4 * gaps
    assert model.classes_.dtype == bool
    assert model.predict(X).dtype == bool
    assert model.score(X, y) > 0.97
    assert set(model.predict_or_reject(X)) <= {-1, 0, 1}
    model.save(tmp_path / "run")
    again = NoisyGraphClassifier.load(tmp_path / "run")
    for name in ("predict", "predict_or_reject"):
        before, after = (getattr(one, name)(X) for one in (model, again))
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("missing", [None, np.nan, "", pd.NA])
def test_unlabeled_names(blobs: Blobs, missing: Any) -> None:
    X, names = blobs[0], np.array(["ant", "bee", "cat"], dtype=object)[blobs[1]]
    names[::4] = missing
    model = NoisyGraphClassifier(**QUICK).fit(X, names)
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    assert model.verdicts_.given_label.isna().to_numpy()[::4].all()
    assert model.verdicts_.given_label.isna().sum() == 60
    assert not model.verdicts_.verdict[::4].isin(["keep", "relabel"]).any()


@pytest.mark.parametrize("unlabeled", [-1, np.nan])
def test_unlabeled_numbers(blobs: Blobs, unlabeled: float) -> None:
    X, y = blobs[0], blobs[1].astype(type(unlabeled))
    y[::4] = unlabeled
    model = NoisyGraphClassifier(**QUICK).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.predict(X) == blobs[1]).mean() > 0.97


def test_settings_reach_training(blobs: Blobs) -> None:
    X, y = blobs
    settings = {"training.epochs": 9, "training.seed": 4, "method.warmup_epochs": 1}
    model = NoisyGraphClassifier(settings=settings, epochs=2, random_state=5).fit(X, y)
    training = model.config_.training
    assert (training.epochs, training.seed, training.network) == (2, 5, "embedding-head")
    assert model.config_.method.settings["warmup_epochs"] == 1
    assert [row["epoch"] for row in model.history_] == [1, 2]
    assert model.settings == settings
    drawn = [NoisyGraphClassifier(epochs=1, random_state=np.random.RandomState(3)) for _ in range(2)]
    first, second = (other.fit(X, y).config_.training.seed for other in drawn)
    assert first == second != drawn[0].fit(X, y).config_.training.seed
    for bad, message in [
        ({"training.epoch": 2}, "did you mean training.epochs"),
        ({"training.lr": "x"}, "a number"),
    ]:
        with pytest.raises(InputError, match=message):
            NoisyGraphClassifier(settings=bad).fit(X, y)
    with pytest.raises(InputError, match="did you mean embeddings"):
        NoisyGraphClassifier("embedding").fit(X, y)


@pytest.mark.slow
def test_random_state_decides_all_and_touches_nothing_else(blobs: Blobs, tmp_path: Path) -> None:
    X, y = blobs
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second, other = (
        NoisyGraphClassifier(random_state=seed, **QUICK).fit(X, y).predict_proba(X) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
    NoisyGraphClassifier(random_state=1, **QUICK).fit(X, y).save(tmp_path / "run")
    NoisyGraphClassifier.load(tmp_path / "run")
    assert torch.equal(before, torch.get_rng_state())


def test_pickles_and_clones(fitted: NoisyGraphClassifier, blobs: Blobs) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(blobs[0]), fitted.predict_proba(blobs[0]))
    np.testing.assert_array_equal(again.ood_score(blobs[0]), fitted.ood_score(blobs[0]))
    pd.testing.assert_frame_equal(again.verdicts_, fitted.verdicts_)
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError, match="call fit before ood_score"):
        fresh.ood_score(blobs[0])


@pytest.mark.slow
def test_pipelines_cross_validation_and_searches(blobs: Blobs) -> None:
    X, y = blobs
    pipeline = make_pipeline(StandardScaler(), NoisyGraphClassifier(**QUICK))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.95
    # Next to class means, few epochs are as good as many.
    alone = {"training.batch_size": 32, "cleaning.k": (10,), "method.name": "cross-entropy"}
    with config_context(transform_output="pandas"):
        names = pd.DataFrame(X).add_prefix("x")
        predicted = clone(pipeline).fit(names, y).predict(names)
    assert predicted.tolist() == clone(pipeline).fit(X, y).predict(X).tolist()
    grid = {
        "noisygraphclassifier__epochs": [1, 10],
        "noisygraphclassifier__settings": [{**alone, "training.lr": 1e-6}, alone],
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert search.best_params_ == {
        "noisygraphclassifier__epochs": 10,
        "noisygraphclassifier__settings": alone,
    }


def test_a_run_folder_holds_all_and_the_cli_reads_it(
    fitted: NoisyGraphClassifier, blobs: Blobs, cli: Cli, tmp_path: Path
) -> None:
    X = blobs[0]
    fitted.save(tmp_path / "run")
    again = "holds another run; use overwrite to replace it, or another out$"
    with pytest.raises(InputError, match=again):
        fitted.save(tmp_path / "run")
    fitted.save(tmp_path / "run", overwrite=True)
    again = NoisyGraphClassifier.load(tmp_path / "run")
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(again.predict_or_reject(X), fitted.predict_or_reject(X))
    pd.testing.assert_frame_equal(again.verdicts_, fitted.verdicts_, check_dtype=False)
    assert [again.summary_, again.history_] == json.loads(json.dumps([fitted.summary_, fitted.history_]))
    assert again.config_ == fitted.config_
    assert again.n_features_in_ == 6
    assert clone(again).fit(X, blobs[1]).config_ == fitted.config_
    np.save(tmp_path / "new.npy", X)
    assert cli("predict", "run", "new.npy", "--out", "new.parquet", "--quiet").code == 0
    table = pd.read_parquet(tmp_path / "new.parquet")
    np.testing.assert_array_equal(table.predicted_label, fitted.predict(X))
    np.testing.assert_array_equal(table.ood_score, fitted.ood_score(X))
    np.testing.assert_array_equal(table.verdict == "ood", fitted.predict_or_reject(X) == "OOD")
    again.save(tmp_path / "copy")
    for name in ("config.json", "verdicts.csv", "summary.json", "metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


@pytest.mark.slow
def test_images_learn_as_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY, "--out", "run", "--quiet", "--device", "cpu").code == 0
    digits = noisy_digits(noise=0.3)
    images, labels, new = digits.images[:N], digits.labels[:N], digits.images[N:]
    model = NoisyGraphClassifier(**DIGITS, device="cpu").fit(images, labels)
    by_cli = NoisyGraphClassifier.load(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(model.predict_proba(new), by_cli.predict_proba(new))
    np.testing.assert_array_equal(model.predict_or_reject(new), by_cli.predict_or_reject(new))
    pd.testing.assert_frame_equal(model.verdicts_, by_cli.verdicts_)
    assert not hasattr(model, "n_features_in_")
    model.save(tmp_path / "mine")
    shas = [json.loads((tmp_path / name / "env.json").read_text())["data_sha256"] for name in ("run", "mine")]
    assert shas[0] == shas[1]
    told = cli("report", "mine").err
    assert "Pictures are not shown. mine: its images were given in Python" in told
    assert cli("report", "mine", "--data", "digits.npz").err == ""
    for other in (new[:, 0], np.moveaxis(new, 1, 3)):  # gray without a channel, and channels last
        np.testing.assert_array_equal(model.predict(other), model.predict(new))


def test_images_and_features_are_not_taken_for_each_other(fitted: NoisyGraphClassifier, blobs: Blobs) -> None:
    images = noisy_digits().images[:N]
    with pytest.raises(InputError, match="trained on features, and these are images"):
        fitted.predict(images)
    model = NoisyGraphClassifier(**DIGITS).fit(images, noisy_digits().labels[:N])
    with pytest.raises(InputError, match="trained on images, and these are features"):
        model.predict(blobs[0])
    with pytest.raises(InputError, match="these images are 1 × 4 × 8"):
        model.predict(images[:, :, :4])
    model.set_params(preset=None, epochs=1).fit(*blobs)
    assert model.n_features_in_ == 6


def test_column_names_are_kept_in_the_run(blobs: Blobs, tmp_path: Path, cli: Cli) -> None:
    frame = pd.DataFrame(blobs[0], columns=list("abcdef"))
    model = NoisyGraphClassifier(**QUICK).fit(frame, blobs[1])
    model.save(tmp_path / "run")
    again = NoisyGraphClassifier.load(tmp_path / "run")
    assert again.feature_names_in_.tolist() == list("abcdef")
    frame[list("fedcba")].to_csv(tmp_path / "new.csv", index=False)  # the CLI goes by names, in any order
    assert cli("predict", "run", "new.csv", "--out", "out.csv", "--quiet").code == 0
    assert pd.read_csv(tmp_path / "out.csv").predicted_label.tolist() == model.predict(frame).tolist()


def test_verdicts_lie_beside_the_rows_of_a_data_frame(blobs: Blobs, tmp_path: Path) -> None:
    frame = pd.DataFrame(blobs[0]).add_prefix("f").assign(y=blobs[1]).sample(frac=1, random_state=0)
    model = NoisyGraphClassifier(**QUICK).fit(frame.drop(columns="y"), frame["y"])
    assert (model.verdicts_.given_label == frame["y"]).all()
    model.save(tmp_path / "run")
    again = NoisyGraphClassifier.load(tmp_path / "run").verdicts_
    pd.testing.assert_frame_equal(again, model.verdicts_.reset_index(drop=True), check_dtype=False)


def test_bad_input_is_one_line(blobs: Blobs, tmp_path: Path) -> None:
    X, y = blobs
    model = NoisyGraphClassifier(**QUICK)
    with pytest.raises(InputError, match="3 labels for 240 samples"):
        model.fit(X, [0, 1, 0])
    with pytest.raises(InputError, match="the labels name no class"):
        model.fit(X, np.full(240, -1))
    with pytest.raises(InputError, match="a class is called OOD"):
        model.fit(X, np.array(["a", "b", "OOD"])[y])
    with pytest.raises(InputError, match="neither 0 to 1 nor 0 to 255"):
        model.fit(np.full((240, 4, 5), -3.0), y)
    with pytest.raises(TypeError, match=r"settings are a dict .*, not list"):
        NoisyGraphClassifier(settings=["graph.k=10"]).fit(X, y)  # type: ignore[arg-type]
    for call in (lambda: model.save(tmp_path / "run"), lambda: model.predict(X)):
        with pytest.raises(NotFittedError):
            call()
    assert states(tmp_path) == {}
    with pytest.warns(DataWarning, match="under 20 samples"):
        NoisyGraphClassifier(epochs=1).fit(X[:24], y[:24])


def test_messages_name_arguments(
    fitted: NoisyGraphClassifier, blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    with pytest.raises(InputError, match=r"there is a file of that name; choose another out$"):
        fitted.save(tmp_path / "file")
    with pytest.raises(InputError, match=r"holds files that are not a run; choose another out$"):
        fitted.save(tmp_path / "mine", overwrite=True)
    fitted.save(tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    message = "^device cuda: this machine has no CUDA device that torch can use; try cpu$"
    with pytest.raises(InputError, match=message):
        NoisyGraphClassifier(device="cuda").fit(*blobs)
    with pytest.raises(InputError, match=message):
        NoisyGraphClassifier.load(tmp_path / "run", device="cuda")
    NoisyGraphClassifier(device=torch.device("cpu"), epochs=1).fit(*blobs)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^device gpu: no such device; there are auto, cpu, cuda$"):
        NoisyGraphClassifier(device="gpu").fit(*blobs)


def test_runs_that_are_damaged_newer_or_of_another_kind(
    fitted: NoisyGraphClassifier, cli: Cli, tmp_path: Path, blobs: Blobs
) -> None:
    run = tmp_path / "run"
    fitted.save(run)
    for name in (
        "config.json",
        "env.json",
        "verdicts.parquet",
        "model.safetensors",
        "prototypes.safetensors",
    ):
        whole = (run / name).read_bytes()
        (run / name).unlink()
        with pytest.raises(InputError, match=rf"no {name} in it"):
            NoisyGraphClassifier.load(run)
        (run / name).write_bytes(whole[:40])
        with pytest.raises(InputError, match="damaged"):
            NoisyGraphClassifier.load(run)
        (run / name).write_bytes(whole)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "format": 99}))
    with pytest.raises(InputError, match="which is newer"):
        NoisyGraphClassifier.load(run)
    (run / "config.json").write_text(json.dumps(config))
    (run / "summary.json").unlink()
    with pytest.raises(InputError, match="training has not finished"):
        NoisyGraphClassifier.load(run)
    np.savez(tmp_path / "z.npz", z=blobs[0], y=blobs[1])
    cli("clean", "z.npz", "--out", "cleaned", "--quiet")
    with pytest.raises(InputError, match="a run of `clean` holds no classifier"):
        NoisyGraphClassifier.load(tmp_path / "cleaned")


@pytest.mark.filterwarnings("ignore::graphclean.errors.DataWarning")
@pytest.mark.parametrize("labels", [lambda y: y > 1, lambda y: np.array(["0", "-1", "b"])[y]])
def test_verdicts_have_labels_as_they_came(labels: Callable[[Any], Any], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 50)
    X = rng.normal(size=(150, 8)) + 3 * np.eye(3, 8)[y]
    given = labels(y)
    model = NoisyGraphClassifier(epochs=1).fit(X, given)
    assert set(model.predict(X)) <= set(given)
    model.save(tmp_path / "run")
    for fitted in (model, NoisyGraphClassifier.load(tmp_path / "run")):
        assert bool((fitted.verdicts_.given_label == given).all())
        assert set(fitted.verdicts_.proposed_label) <= set(given)
        assert fitted.classes_.dtype == given.dtype
