"""`NoisyGraphClassifier`: training, verdicts and prediction as a scikit-learn estimator."""

import copy
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self
from warnings import warn

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ._files import read_tensors, write_lines
from .cleaning.inputs import Labels, align_index, encode_classes
from .config import Config, MethodChoice, change_settings, differing_settings, load_preset, recorded_settings
from .data.arrays import to_bytes
from .errors import DataWarning, InputError
from .methods import build_method, complete_settings
from .ood.detector import Detector
from .ood.model import Predictions
from .runs.callbacks import Metrics
from .runs.device import choose_device
from .runs.folder import (
    METRICS,
    POINTS,
    new_run,
    read_config,
    read_env,
    read_metrics,
    read_summary,
    read_verdicts,
    write_env,
)
from .runs.inputs import IN_PYTHON, Source, recorded_pixels
from .runs.predict import require_model
from .runs.projection import gather_points
from .runs.results import sum_up, write_results
from .runs.route import Route, choose_route
from .runs.schema import SourceRecord
from .training import EpochReport
from .training.fit import epoch_metrics, finish, prepare
from .training.method import Method
from .training.model import load_trained

try:
    from sklearn.utils.validation import validate_data
except ImportError:  # before scikit-learn 1.6 it was a method

    def validate_data(estimator: Any, X: Any, **checks: Any) -> Any:
        """Validate `X` and its features."""
        return estimator._validate_data(X, **checks)


REJECTED = "OOD"
"""The value that `predict_or_reject` returns for OOD among class names; among numbers it is −1."""
CLASS_TYPE = r"bool|u?int\d*|float\d*|datetime64\[\w+\]"
"""Dtypes of classes that a run folder stores as whole numbers, or as text for dates; all others are text."""
OF_FEATURES = ("n_features_in_", "feature_names_in_")


class NoisyGraphClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifier for untrusted labels, with a verdict on each label and a detector of OOD samples.

    It is trained on features (N, d), or on images (N, H, W), (N, H, W, C) or (N, C, H, W), by Noisy Graph
    Cleaning or another method. The results are those of `graphclean train`.

    `fit` takes no `sample_weight`: in scikit-learn a weight of n stands for n copies of a sample, but here
    copies share one vote. If you don't trust a label at all, pass it as missing (see `fit`).

    Parameters
    ----------
    preset
        A name from `graphclean presets`. None selects `embeddings` for features; for images it selects
        `cifar10-lond` on a GPU (`cifar10-lond-fast` for large data sets) and `small-images` without one.
    settings
        Changes to the preset's settings by name, such as `{"training.lr": 0.1, "graph.k": 10}`.
    method
        A name from `graphclean methods`, or a `Method` object, which brings its own method and graph
        settings. None uses the preset's method.
    detector
        A name from `graphclean detectors`, or a subclass of `Detector`. None uses the setting `ood.detector`.
    epochs
        The setting `training.epochs`, as a separate parameter for grid searches. None uses the preset's.
    random_state
        The setting `training.seed`: an integer, or a `RandomState` to draw it from. None uses the preset's
        seed, so repeated fits agree.
    device
        `auto` (CUDA if available), `cpu` or `cuda`.

    Attributes
    ----------
    classes_
        The classes, sorted.
    verdicts_
        A DataFrame with one row per training sample, as in `verdicts.parquet`. It has the index of X or y if
        these are pandas objects.
    summary_
        Estimated rates, the detector and warnings, as in `summary.json`.
    history_
        A list with the metrics of each epoch.
    config_
        All settings used.
    model_
        The trained network with its detector.
    n_features_in_
        The number of features. Not set for images.
    feature_names_in_
        The names of the features, if X is a DataFrame with text as column names.

    Examples
    --------
    >>> model = NoisyGraphClassifier().fit(X, y)
    >>> model.verdicts_.verdict.value_counts()
    >>> model.predict(new), model.predict_or_reject(new)
    """

    def __init__(
        self,
        preset: str | None = None,
        *,
        settings: Mapping[str, Any] | None = None,
        method: str | Method | None = None,
        detector: str | type[Detector] | None = None,
        epochs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        device: str = "auto",
    ) -> None:
        self.preset = preset
        self.settings = settings
        self.method = method
        self.detector = detector
        self.epochs = epochs
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> Self:
        """Train on samples `X` with labels `y`.

        Labels are names, whole numbers, booleans or dates. A negative number or an empty or missing label
        means unlabeled. Problems with the data are reported as `DataWarning`.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
        if not isinstance(self.settings, Mapping | None):
            kind = type(self.settings).__name__
            raise TypeError(f'settings are a dict such as {{"training.lr": 0.1, "graph.k": 10}}, not {kind}')
        source = self._read(X)
        place = choose_device(str(self.device))
        count, network = len(source.inputs), (self.settings or {}).get("training.network")
        route = (
            Route(self.preset)
            if self.preset is not None
            else choose_route(source.kind, count, place, network)
        )
        config = self._configure(route.preset)
        classes, labels = _encode(y, count)
        history: list[Metrics] = []
        # Training modifies the method, and every fit must start from the one that was given.
        method = copy.deepcopy(self.method) if isinstance(self.method, Method) else build_method(config)
        detector = None if isinstance(self.detector, str) else self.detector
        prepared = prepare(source.inputs, labels, config, method, detector=detector, device=place)

        def note(report: EpochReport, _: object) -> None:
            history.append(epoch_metrics(report, prepared))

        result = finish(prepared, prepared.trainer.train(on_epoch=note))
        self.classes_, self.model_ = classes, result.model
        self.config_, self.history_ = config, history
        self.verdicts_ = result.cleaning.verdicts
        if classes.dtype == bool:
            self.verdicts_ = _retype(self.verdicts_, "boolean")
        align_index(self.verdicts_, X, y)
        self.summary_ = sum_up(result, prepared, history, route, source.notes)
        self._source = SourceRecord(data=IN_PYTHON, labels=None) | source.describe()
        self._source["class_type"] = classes.dtype.name if classes.dtype.kind in "biufM" else "str"
        self._points = gather_points(result.trained.z, torch.as_tensor(result.ood_score))
        self._pixels = source.pixels
        self._fingerprint = replace(source, labels=labels.names(labels.codes)).fingerprint()
        for message in self.summary_["warnings"]:
            warn(message, DataWarning, stacklevel=2)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict the most probable class of each sample, even if the sample may be OOD."""
        return np.asarray(self._score(X, self.predict)[0])

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Predict the probability of each class, in the order of `classes_`, as if no sample were OOD."""
        return self._score(X, self.predict_proba)[1].probabilities

    def predict_or_reject(self, X: Any) -> npt.NDArray[Any]:
        """Predict a class or OOD.

        OOD is −1 if the classes are numbers or booleans, which are returned as integers, and "OOD" if they
        are names or dates, which are returned as text.
        """
        classes, found = self._score(X, self.predict_or_reject)
        rejected = found.rejected
        if classes.dtype.kind in "biuf":
            return np.where(rejected, -1, classes.astype(np.int64))
        return np.where(rejected, REJECTED, classes.astype(str))

    def ood_score(self, X: Any) -> npt.NDArray[np.float64]:
        """The OOD score of each sample; larger means more OOD.

        It is the detector's score. For features, this is by default the probability of being OOD if the
        training set contains enough OOD samples to learn from, and a distance otherwise.
        """
        return self._score(X, self.ood_score)[1].ood_score

    def save(self, out: str | Path, *, overwrite: bool = False) -> None:
        """Write a run folder like that of `graphclean train`, for `load` and every `graphclean` command."""
        check_is_fitted(self, "model_")
        with new_run(Path(out), overwrite=overwrite) as folder:
            write_env(folder, self._fingerprint, self.summary_["training"]["device"])
            write_lines(folder / METRICS, self.history_)
            preset = self.summary_["training"]["preset"]
            booleans = self.classes_.dtype == bool
            verdicts = _retype(self.verdicts_, "Int64") if booleans else self.verdicts_
            write_results(
                folder,
                self.config_,
                preset,
                self._source,
                verdicts.reset_index(drop=True),
                self.model_,
                self.summary_,
                self._points,
            )

    @classmethod
    def load(cls, run: str | Path, *, device: str = "auto") -> Self:
        """Load the classifier of a training run, written by `save` or by `graphclean train`."""
        run = Path(run)
        recorded = read_config(run)
        if recorded.get("kind") != "train":
            raise InputError(
                f"{run}: a run of `{recorded.get('kind')}` holds no classifier; make one with "
                "`graphclean train`"
            )
        require_model(run, trained=True)
        model = load_trained(run, choose_device(str(device)))
        preset = recorded.get("preset")
        where = str(run / "config.json")
        config = recorded_settings(recorded.get("settings", {}), where)
        changes = differing_settings(config, load_preset(preset) if preset is not None else Config())
        loaded = cls(preset, settings=changes or None, device=device)
        loaded.config_, loaded.model_ = config, model
        loaded.verdicts_ = read_verdicts(run)
        loaded.summary_, loaded.history_ = dict(read_summary(run)), read_metrics(run)
        loaded._source = recorded.get("source", SourceRecord())
        loaded.classes_ = _restore_type(np.array(model.classes), loaded._source.get("class_type"), where)
        if loaded.classes_.dtype == bool:
            loaded.verdicts_ = _retype(loaded.verdicts_, "boolean")
        loaded._fingerprint = str(read_env(run).get("data_sha256"))
        loaded._points = read_tensors(run / POINTS)[0]
        loaded._pixels = None
        if model.standardizer is None:
            loaded._pixels = recorded_pixels(loaded._source, run)
        else:
            loaded.n_features_in_ = model.input_shape[0]
            if loaded._source.get("columns"):
                loaded.feature_names_in_ = np.array(loaded._source["columns"], dtype=object)
        return loaded

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickle, on the CPU: a model trained on a GPU can be used without one."""
        state: dict[str, Any] = super().__getstate__()
        model = state.get("model_")
        if model is not None and next(model.network.parameters()).is_cuda:
            parts = {name: copy.deepcopy(getattr(model, name)).cpu() for name in ("network", "detector")}
            state = {**state, "model_": replace(model, **parts)}
        return state

    def _configure(self, preset: str) -> Config:
        changes = dict(self.settings) if self.settings is not None else {}
        if self.epochs is not None:
            changes["training.epochs"] = self.epochs
        if isinstance(self.random_state, np.random.RandomState):
            changes["training.seed"] = int(check_random_state(self.random_state).randint(2**31 - 1))
        elif self.random_state is not None:
            changes["training.seed"] = self.random_state
        if isinstance(self.method, str):
            changes["method.name"] = self.method
        if self.detector is not None:
            changes["ood.detector"] = self.detector if isinstance(self.detector, str) else self.detector.name
        if not isinstance(self.method, Method):
            return complete_settings(change_settings(load_preset(preset), changes))
        for name in changes:
            if name.partition(".")[0] in ("method", "graph"):
                raise InputError(f"{name}: the method is an object with its own settings; set it there")
        choice = MethodChoice(self.method.info.name, asdict(self.method.settings))
        return replace(change_settings(load_preset(preset), changes), method=choice, graph=self.method.graph)

    def _read(self, X: Any) -> Source:
        """Features or images to train on, without labels."""
        if _are_images(X):
            for name in OF_FEATURES:
                self.__dict__.pop(name, None)
            images, pixels, notes = to_bytes(np.asarray(X))
            return Source(images, notes=notes, pixels=pixels)
        array = _check_features(self, X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        return Source(array, columns=names.tolist() if names is not None else None)

    def _score(self, X: Any, caller: Any) -> tuple[npt.NDArray[Any], Predictions]:
        """The most probable classes of new samples, and the predictions that they come from."""
        message = f"This %(name)s is not fitted yet; call fit before {caller.__name__}."
        check_is_fitted(self, "model_", msg=message)
        if self._pixels is None and not _are_images(X):
            inputs = _check_features(self, X, reset=False)
        elif self._pixels is not None and _are_images(X):
            inputs, _, _ = to_bytes(np.asarray(X), self._pixels)
        else:
            ours, theirs = ("features", "images") if self._pixels is None else ("images", "features")
            raise InputError(f"the classifier was trained on {ours}, and these are {theirs}")
        found = self.model_.score(inputs)
        return self.classes_[found.classes], found


def _retype(verdicts: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Convert the labels in a table to another dtype: a run folder stores booleans as whole numbers."""
    return verdicts.astype(dict.fromkeys(("given_label", "proposed_label"), kind))


def _are_images(X: Any) -> bool:
    return getattr(X, "ndim", 2) > 2


def _check_features(estimator: Any, X: Any, *, reset: bool) -> npt.NDArray[Any]:
    least = 2 if reset else 1  # for new samples, a wrong number of features is reported first
    checked = validate_data(
        estimator, X, reset=reset, dtype=[np.float32, np.float64], ensure_min_features=least
    )
    return np.asarray(checked)


def _encode(y: Any, n: int) -> tuple[npt.NDArray[Any], Labels]:
    """The classes as given, sorted, and the labels as indices in that order."""
    given = column_or_1d(y, warn=True)
    missing = pd.isna(given)
    labeled = _plain(given[~missing])
    if len(labeled):
        check_classification_targets(labeled)
    encoded = encode_classes(np.where(missing, -1, given).astype(int) if labeled.dtype == bool else given, n)
    codes, first = np.unique(encoded.codes, return_index=True)
    values = _plain(given[first[codes >= 0]])
    order = np.argsort(values)
    names: list[Any] = [encoded.classes[code] for code in order]
    if values.dtype.kind not in "biuf":
        names = [str(name) for name in names]
    elif isinstance(names[0], str):
        raise InputError(f"class {names[-1]} is beyond the range of int64; give such classes as text")
    for given_name, name in zip(values[order], names, strict=True) if values.dtype.kind == "U" else ():
        if given_name != name:
            raise InputError(f"the class {str(given_name)!r} is read as {name!r}; write it so in y")
    if REJECTED in names:
        raise InputError(f"a class is called {REJECTED}, as predict_or_reject calls OOD samples; rename it")
    rank = np.append(np.argsort(order), -1)  # the last is for −1, unlabeled
    return values[order], Labels(rank[encoded.codes], names)


def _plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert an array of Python objects to their own dtype."""
    if values.dtype.kind == "m":
        raise InputError(f"labels must be names, whole numbers or dates, not {values.dtype.name}")
    if values.dtype != object:
        return values
    kinds = [next((kind for kind in (str, bool, np.bool_) if isinstance(v, kind)), None) for v in values]
    for value, kind in zip(values, kinds, strict=True):
        if kind is not kinds[0]:
            raise InputError(f"labels are of two kinds, such as {values[0]!r} and {value!r}; make all text")
    plain = np.array(values.tolist())
    if plain.dtype == object:
        raise InputError(
            f"labels such as {values[0]!r} can't be classes; give them as text, whole numbers or datetime64"
        )
    return plain


def _restore_type(classes: npt.NDArray[Any], name: str | None, where: str) -> npt.NDArray[Any]:
    """Restore the original dtype of classes from a run folder, which stores only whole numbers and text."""
    if name is None or not re.fullmatch(CLASS_TYPE, name):
        return classes
    try:
        return classes.astype(name)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: source.class_type is {name}, which the classes are not") from error
