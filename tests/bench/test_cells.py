"""Cells by the paper's names, and methods by their changes."""

import pytest

from graphclean.bench.cells import ABLATIONS, CELLS, NOT_OF_CELLS, PAPER_CELLS, get_cell, make_method
from graphclean.config import apply_settings, load_preset
from graphclean.config.presets import preset_names
from graphclean.config.settings import PER_DATA_SET
from graphclean.errors import InputError
from graphclean.methods import OWN_METHODS, complete_settings, load_method
from graphclean.training.method import MethodInfo

PAPER = {
    "cifar10/cifar100/10k", "cifar10/cifar100/20k", "cifar10/tinyimagenet/10k", "cifar10/tinyimagenet/20k",
    "cifar10/places365/10k", "cifar10/places365/20k", "cifar100/tinyimagenet/10k",
    "cifar100/tinyimagenet/20k", "cifar100/places365/10k", "cifar100/places365/20k",
    "cifar10/sym20", "cifar10/sym50", "cifar10/sym80", "cifar10/sym90", "cifar10/asym40",
    "cifar100/sym20", "cifar100/sym50", "cifar100/sym80", "cifar100/sym90",
}  # fmt: skip
"""Rows of its accuracy table with OOD, and columns of the one without."""


def test_every_cell_of_the_paper_is_there_and_comes_first() -> None:
    assert set(PAPER_CELLS) == PAPER
    assert tuple(CELLS)[: len(PAPER)] == PAPER_CELLS
    assert {CELLS[name].preset for name in PAPER} == {
        "cifar10-asym", "cifar10-lcnl", "cifar10-lond", "cifar100-lcnl", "cifar100-lond",
    }  # fmt: skip


def test_an_open_set_of_classes() -> None:
    cell = get_cell("cifar80n/asym40")
    assert (cell.base, cell.ood, cell.n_classes) == ("cifar100", "cifar100", 80)
    found = cell.protocol(0, "test")
    assert (found.noise, found.rate, found.n_ood, found.n_eval_ood) == ("pair", 0.4, 10_000, 2_000)


def test_a_cell_with_ood() -> None:
    cell = get_cell("cifar100/places365/10k")
    assert (cell.base, cell.ood, cell.preset) == ("cifar100", "places365", "cifar100-lond")
    assert (cell.base, cell.ood) == ("cifar100", "places365")
    found = cell.protocol(3, "dev")
    assert (found.noise, found.rate, found.n_ood, found.n_eval_ood) == ("sym", 0.5, 10_000, 10_000)
    assert (found.n_classes, found.seed, found.split) == (100, 3, "dev")


@pytest.mark.parametrize(
    ("name", "noise", "rate", "preset"),
    [("cifar10/sym90", "sym", 0.9, "cifar10-lcnl"), ("cifar10/asym40", "asym", 0.4, "cifar10-asym")],
)
def test_a_cell_with_wrong_labels_only(name: str, noise: str, rate: float, preset: str) -> None:
    cell = get_cell(name)
    assert (cell.base, cell.ood, cell.preset) == ("cifar10", None, preset)
    found = cell.protocol(0, "test")
    assert (found.noise, found.rate, found.n_ood, found.n_eval_ood) == (noise, rate, 0, 0)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("cifar10/sym5", "cifar10/sym50"), ("cifar10/tinyimagenet/30k", "cifar10/tinyimagenet/[12]0k")],
)
def test_an_unknown_cell_gets_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InputError, match=f"no cell is called {name}; did you mean {nearest}\\?"):
        get_cell(name)


@pytest.mark.parametrize(
    ("settings", "ablate", "name", "changes"),
    [
        ([], [], "cifar10-lond", []),
        (["training.epochs=60"], [], "cifar10-lond--training.epochs-60", ["training.epochs=60"]),
        (["training.epochs=300", "graph.k=30"], [], "cifar10-lond", []),  # the preset's own
        (["graph.eta=0.70"], [], "cifar10-lond--graph.eta-0.7", ["graph.eta=0.7"]),
        (
            ["cleaning.k=9,20", "ood.threshold=0.5"],
            [],
            "cifar10-lond--cleaning.k-9+20--ood.threshold-0.5",
            ["cleaning.k=9,20", "ood.threshold=0.5"],
        ),
        ([], ["geometry"], "cifar10-lond--without-geometry", ["graph.geometry=false"]),
        (["graph.geometry=False"], [], "cifar10-lond--without-geometry", ["graph.geometry=false"]),
        (["method.lambda_inst=0.0"], [], "cifar10-lond--without-inst", ["method.lambda_inst=0"]),
        (
            ["training.lr=1e-3", "graph.k=10"],
            ["mixup"],
            "cifar10-lond--graph.k-10--training.lr-0.001--without-mixup",
            ["graph.k=10", "method.mixup_alpha=0", "training.lr=0.001"],
        ),
    ],
)
def test_a_method_is_named_by_what_it_changes(
    settings: list[str], ablate: list[str], name: str, changes: list[str]
) -> None:
    method = make_method(get_cell("cifar10/tinyimagenet/20k"), settings, ablate=ablate)
    assert method.name == name
    assert list(method.changes) == changes
    assert method.config == complete_settings(apply_settings(load_preset("cifar10-lond"), changes))


def test_each_ablation_changes_one_setting() -> None:
    cell = get_cell("cifar10/sym50")
    for part, setting in ABLATIONS.items():
        method = make_method(cell, ablate=[part])
        assert (method.name, method.changes) == (f"cifar10-lcnl--without-{part}", (setting,))


def test_another_preset_and_another_name() -> None:
    cell = get_cell("cifar10/sym50")
    assert make_method(cell, preset="cifar10-lcnl").name == "cifar10-lcnl"
    assert make_method(cell, ["graph.k=9"], preset="release").name == "release--graph.k-9"
    assert make_method(cell, ["graph.k=9"], name="mine").name == "mine"


PAPER_CHOICES = {
    ("cifar10", "ood"): (30, 0.8, 5),
    ("cifar10", "sym"): (30, 0.7, 5),
    ("cifar10", "asym"): (10, 0.7, 5),
    ("cifar100", "ood"): (200, 0.8, 30),
    ("cifar100", "sym"): (200, 0.6, 30),
}
"""k, η and warm-up as the paper's supplement states them for each kind of cell."""


@pytest.mark.parametrize("preset", ["paper", "release"])
@pytest.mark.parametrize("name", sorted(PAPER))
def test_what_the_paper_chose_by_cell_is_the_cells(name: str, preset: str) -> None:
    """And nothing else: the weight of a loss or the evidence that a cell's preset has is ours."""
    cell = get_cell(name)
    own = PAPER_CHOICES[cell.base, cell.noise if cell.ood is None else "ood"]
    method = make_method(cell, preset=preset)
    graph, ours = method.config.graph, method.config.method.settings
    assert (graph.k, graph.eta, ours["warmup_epochs"]) == own
    assert (method.name, graph.leave_one_out, ours["lambda_inst"]) == (preset, False, 1)
    assert complete_settings(apply_settings(load_preset(preset), method.changes)) == method.config
    assert {change.partition("=")[0] for change in method.changes} <= set(PER_DATA_SET)
    assert make_method(cell, [f"graph.k={own[0]}"], preset=preset) == method
    assert make_method(cell, ["graph.k=9"], preset=preset).name == f"{preset}--graph.k-9"


@pytest.mark.parametrize("name", sorted(PAPER))
def test_everything_else_of_the_paper_is_the_same_on_each_cell(name: str) -> None:
    """Sections 4.1 and A of the paper, and its Eq. 1-7."""
    config = make_method(get_cell(name), preset="paper").config
    training, graph, ours = config.training, config.graph, config.method.settings
    assert (training.network, training.epochs, training.batch_size) == ("preact-resnet18", 300, 512)
    assert (training.lr, training.momentum, training.weight_decay) == (0.15, 0.9, 5e-4)
    assert (graph.gamma, graph.symmetrize, graph.class_balance, graph.lcc_edges) == (1, "max", False, "any")
    assert (ours["tau_inst"], ours["tau_subgraph"]) == (0.3, 1.0)
    assert (ours["lambda_inst"], ours["lambda_subgraph"]) == (1, 1)
    assert (ours["subgraph_positives"], ours["ood_gate_start"]) == ("paper", 1)


def test_a_preset_that_names_its_own_keeps_them() -> None:
    method = make_method(get_cell("cifar100/sym80"), preset="cifar10-lond-fast")
    assert method.config == complete_settings(load_preset("cifar10-lond-fast"))


def test_cross_entropy_is_plain_and_called_by_its_own_name() -> None:
    """Without what NGC brings along, and without what its preset has of its own."""
    cell, ce = get_cell("cifar10/sym50"), "method.name=cross-entropy"
    method = make_method(cell, [ce])
    changes = (
        "method.name=cross-entropy",
        "training.prototype_ensemble=false",
        "training.strong_augmentation=off",
    )
    assert (method.name, method.changes) == ("cross-entropy--cifar10-lcnl", changes)
    assert method.config == complete_settings(apply_settings(load_preset("cifar10-lcnl"), changes))
    assert make_method(cell, [ce], ablate=["mixup", "augmix"]) == method
    mixed = make_method(cell, ["method.mixup_alpha=1", ce])
    assert mixed.name == "cross-entropy--cifar10-lcnl--method.mixup_alpha-1"
    assert mixed.config.method.settings == {"mixup_alpha": 1}
    fast = make_method(cell, [ce, "training.epochs=9"], preset="cifar10-lond-fast")
    assert fast.name == "cross-entropy--cifar10-lond-fast--training.epochs-9"
    plus = make_method(cell, [ce], preset="cifar10-lond-plus")
    assert (plus.name, plus.config.training.flip_tta) == ("cross-entropy--cifar10-lond-plus", False)


RUNNABLE = [
    name for name in OWN_METHODS if name != "ngc" and not set(load_method(name).info.needs) & {*NOT_OF_CELLS}
]
PRESETS = [name for name in preset_names() if name not in ("embeddings", "webvision50")]
"""Those whose networks take images and are no extra."""


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_method_runs_on_every_cell_under_its_own_name(name: str) -> None:
    """With every preset, of which it takes nothing that is NGC's alone."""
    for preset in PRESETS:
        method = make_method(get_cell("cifar10/sym50"), method=name, preset=preset)
        assert (method.name, method.config.method.name) == (f"{name}--{preset}", name)
        assert not method.config.training.prototype_ensemble
        assert not method.config.training.flip_tta
        again = complete_settings(apply_settings(load_preset(preset), method.changes))
        assert {section: values for section, values in again.to_dict().items() if section != "graph"} == {
            section: values for section, values in method.config.to_dict().items() if section != "graph"
        }
    lond = get_cell("cifar100/places365/20k")
    assert make_method(lond, method=name).name == f"{name}--cifar100-lond"
    asked = make_method(lond, ["training.prototype_ensemble=true", "training.epochs=9"], method=name)
    assert asked.name == f"{name}--cifar100-lond--training.epochs-9--training.prototype_ensemble-true"
    assert asked.config.training.prototype_ensemble


def test_the_presets_own_method_may_be_named() -> None:
    cell = get_cell("cifar10/sym50")
    assert make_method(cell, method="ngc") == make_method(cell)
    ce = make_method(cell, ["method.name=cross-entropy"])
    assert make_method(cell, method="cross-entropy") == ce
    assert make_method(cell, ["method.name=cross-entropy"], method="cross-entropy") == ce


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "mixup", "settings": ["method.name=elr"]},
            "method mixup, and the setting method.name=elr another; drop one",
        ),
        ({"method": "mixupp"}, "method.name=mixupp: no such method; did you mean mixup?"),
        ({"method": "mixup", "settings": ["method.lambda_elr=1"]}, "method.lambda_elr: no such setting"),
        (
            {"method": "sampled-labels"},
            "method.name=sampled-labels takes embeddings; the cells are of images",
        ),
        ({"ablate": ["geometrie"]}, "ablate geometrie: no such part; did you mean geometry?"),
        (
            {"ablate": ["mixup"], "settings": ["method.mixup_alpha=4"]},
            "ablate mixup is method.mixup_alpha=0, and the setting method.mixup_alpha=4 another; drop one",
        ),
        ({"settings": ["training.seed=3"]}, "named with seeds"),
        ({"settings": ["cleaning.kk=3"]}, "no such setting"),
        ({"settings": ["method.name=sampled-labels"]}, "takes embeddings; the cells are of images"),
        ({"settings": ["training.network=embedding-head"]}, "takes embeddings; the cells are of images"),
        ({"settings": ["training.network=resnet"]}, "resnet: no such network"),
        ({"preset": "cifar"}, "no preset cifar"),
        ({"name": "../mine"}, "can't be the name of a folder"),
        ({"name": ".mine"}, "can't be the name of a folder"),
    ],
)
def test_what_makes_no_method_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_method(get_cell("cifar10/sym50"), **options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_method_that_needs_trusted_samples_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    info = MethodInfo("mixup", "made up", "selection", needs=("noise rate", "trusted samples"))
    monkeypatch.setattr("graphclean.methods.mixup.Mixup.info", info)
    with pytest.raises(InputError, match=r"method\.name=mixup takes samples with trusted labels, which"):
        make_method(get_cell("cifar10/sym50"), method="mixup")
