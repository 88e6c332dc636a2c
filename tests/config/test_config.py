import json

import numpy as np
import pytest

from graphclean.config import (
    Config,
    apply_settings,
    change_settings,
    load_preset,
    recorded_settings,
)
from graphclean.config.presets import preset_names, preset_purposes, read_preset
from graphclean.errors import InputError


def test_settings_are_applied_in_order() -> None:
    config = apply_settings(
        Config(), ["cleaning.certainty=0.7", "cleaning.k=5, 9", "cleaning.certainty = 0.8"]
    )
    assert config.cleaning.certainty == 0.8
    assert config.cleaning.k == (5, 9)
    assert config.cleaning.eta == Config().cleaning.eta
    assert apply_settings(Config(), ["cleaning.k=7"]).cleaning.k == (7,)


def test_truth_values_are_no_numbers() -> None:
    for name in ("training.epochs", "training.lr", "graph.k"):
        for value in (True, np.False_):
            with pytest.raises(InputError, match=f"{name}: .* is not a"):
                change_settings(Config(), {name: value})
    changed = change_settings(Config(), {"training.horizontal_flip": np.False_})
    assert changed.training.horizontal_flip is False
    assert recorded_settings(json.loads(json.dumps(changed.to_dict())), "x") == changed


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("cleaning.certanty=0.7", "cleaning.certanty: no such setting; did you mean cleaning.certainty?"),
        ("certainty=0.7", "did you mean cleaning.certainty?"),
        ("cleaning.cert=0.7", "did you mean cleaning.certainty?"),
        ("lr=0.1", "did you mean training.lr?"),
        ("learning_rate=0.1", "no such setting; there are cleaning.k"),
        ("=0.1", "no such setting; there are cleaning.k"),
        ("zzz=1", "zzz: no such setting; there are cleaning.k"),
        ("cleaning.certainty", "write settings as section.name=value"),
        ("cleaning.certainty=high", "cleaning.certainty: 'high' is not a number"),
        ("cleaning.k=1.5", "is not a list of whole numbers such as 10,20,50"),
        ("cleaning.certainty=1.2", "certainty must be from 0.5 to under 1"),
        ("cleaning.k=", "k must be whole numbers of at least 1"),
        ("training.lr=inf", "is not a number"),
        ("training.momentum=1", "momentum must be at least 0 and less than 1"),
        ("training.seed=4294967296", "seed must be from 0 to 4,294,967,295"),
        ("graph.alpha=1", "alpha must be at least 0 and less than 1"),
        ("graph.gamma=-1", "gamma must be above 0"),
        ("graph.tolerance=0", "tolerance must be between 0 and 1"),
        ("cleaning.strength=7", "strength must be from 0 to 1"),
    ],
)
def test_refused(assignment: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        apply_settings(Config(), [assignment])
    assert message in str(caught.value)


def test_presets_load_and_say_why() -> None:
    assert preset_names() == [
        "cifar10-asym", "cifar10-lcnl", "cifar10-lond", "cifar10-lond-fast", "cifar10-lond-plus",
        "cifar100-lcnl", "cifar100-lond", "demo", "embeddings", "images", "images-fast", "paper", "photos",
        "release", "small-images", "webvision50", "webvision50-resnet50",
    ]  # fmt: skip
    for name in preset_names():
        assert read_preset(name).startswith("# ")
    for purpose in preset_purposes().values():
        assert purpose.endswith(".")
        assert "#" not in purpose
        load_preset(name)
    lond = load_preset("cifar10-lond")
    assert (lond.graph.k, lond.graph.eta, lond.training.epochs) == (30, 0.8, 300)
    assert lond.method.settings["warmup_epochs"] == 5
    assert lond.training.lr == 0.15
    many = [load_preset(f"cifar100-{kind}") for kind in ("lond", "lcnl")]
    found = [(c.graph.k, c.graph.eta, c.method.settings["warmup_epochs"]) for c in many]
    assert found == [(200, 0.8, 30), (200, 0.6, 30)]
    assert load_preset("paper").graph.symmetrize == "max"
    assert load_preset("release").training.trunk == "release"
    assert (
        apply_settings(
            lond, ["training.horizontal_flip=false", "training.strong_augmentation=off"]
        ).training.strong_augmentation
        == "off"
    )


def test_unknown_presets_and_settings_of_other_sections_are_refused() -> None:
    with pytest.raises(InputError, match="no preset cifar10-lon; did you mean cifar10-lond"):
        load_preset("cifar10-lon")
    with pytest.raises(InputError, match="no preset nope; there are cifar10-asym, "):
        load_preset("nope")
    with pytest.raises(InputError, match="no such setting"):
        apply_settings(Config(), ["training.lr=0.1"], sections=("cleaning",))
    with pytest.raises(InputError, match="'maybe' is not true or false"):
        apply_settings(Config(), ["training.horizontal_flip=maybe"])
    with pytest.raises(InputError, match="'off' is not one of exact, approx"):
        apply_settings(Config(), ["cleaning.search=off"])


def test_settings_survive_json() -> None:
    config = apply_settings(
        load_preset("release"), ["cleaning.k=5,9", "ood.threshold=0.3", "training.horizontal_flip=false"]
    )
    again = recorded_settings(json.loads(json.dumps(config.to_dict())), "run/config.json")
    assert again == config
    with pytest.raises(InputError, match=r"run/config\.json: training\.lrate: no such setting"):
        recorded_settings({"training": {"lrate": 1}}, "run/config.json")


def test_every_preset_says_what_it_is_for() -> None:
    purposes = preset_purposes()
    assert list(purposes) == preset_names()
    assert purposes["embeddings"] == "Heads on given embeddings: no images, no GPU."
