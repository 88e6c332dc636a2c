import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from graphclean.bench import figures
from graphclean.bench.figures import draw_figure, figure_names
from graphclean.errors import InputError
from graphclean.metrics import best_threshold, open_set_f
from graphclean.report import theme as plotting
from tests.bench.fakes import LOND, mapped, scored_set, write_run

Drawn = dict[str, Any]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Drawn]:
    """Draw a figure from tmp_path; give the matplotlib figures by name, and write no file."""

    def draw(name: str, method: str | None = None, cell: str | None = None) -> Drawn:
        kept: Drawn = {}

        def keep(figure: Any, stem: Path) -> list[Path]:
            kept[stem.name] = figure
            return [stem]

        monkeypatch.setattr(plotting, "save_figure", keep)
        draw_figure(name, tmp_path, tmp_path / "out", method, cell)
        return kept

    return draw


def lines(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    """What is drawn, by its name in the legend."""
    return {line.get_label(): tuple(np.asarray(v).tolist() for v in line.get_data()) for line in axes.lines}


def sweeps(results: Path) -> None:
    """Runs that differ in η and in k."""
    write_run(results, epochs=2)
    write_run(results, seed=1, epochs=2)
    for seed in (0, 1):
        for eta in (0.6, 0.9):
            write_run(
                results, method=f"cifar10-lond--graph.eta-{eta}", seed=seed, epochs=2, graph={"eta": eta},
                scores={"accuracy": eta, "auroc": (eta + seed) / 2},
            )  # fmt: skip
    write_run(results, method="cifar10-lond--graph.k-10", epochs=2, graph={"k": 10}, scores={"accuracy": 0.5})


@pytest.mark.slow
def test_one_method_alone(drawn: Callable[..., Drawn], tmp_path: Path) -> None:
    sweeps(tmp_path)
    stem = "convergence--cifar10--tinyimagenet--20k--cifar10-lond"
    assert len(drawn("convergence")) == 4
    assert list(drawn("convergence", "cifar10-lond--graph.k-10")) == [f"{stem}--graph.k-10"]
    # A sweep is one figure, whichever of its runs is named.
    for method in ("cifar10-lond", "cifar10-lond--graph.eta-0.6"):
        assert list(drawn("sensitivity-eta", method)) == [
            "sensitivity-eta--cifar10--tinyimagenet--20k--cifar10-lond"
        ]
    with pytest.raises(InputError, match=r"no run of a method called cifar10-lond--graph\.k-1; did you mean"):
        drawn("convergence", "cifar10-lond--graph.k-1")


def test_one_cell_alone(drawn: Callable[..., Drawn], tmp_path: Path) -> None:
    write_run(tmp_path, epochs=2)
    write_run(tmp_path, "cifar10/sym50", epochs=2)
    write_run(tmp_path, "cifar10/sym50", "plus", epochs=2)
    assert list(drawn("correction", cell="cifar10/sym50")) == [
        "correction--cifar10--sym50--cifar10-lcnl",
        "correction--cifar10--sym50--plus",
    ]
    assert list(drawn("correction", "cifar10-lond", LOND)) == [
        "correction--cifar10--tinyimagenet--20k--cifar10-lond"
    ]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"no recorded run.* to draw correction from"):
        draw_figure("correction", tmp_path / "none", tmp_path / "out", "cifar10-lond", "cifar10/sym50")
    with pytest.raises(InputError, match="no run on a cell called cifar10/sym5; did you mean cifar10/sym50"):
        drawn("correction", cell="cifar10/sym5")
    with pytest.raises(InputError, match=f"no run of plus on a cell called {LOND}; "):
        drawn("correction", "plus", LOND)


@pytest.mark.parametrize("name", figure_names())
def test_files_are_written_valid_and_the_same_twice(tmp_path: Path, name: str) -> None:
    results = tmp_path / "results"
    if name.startswith("sensitivity"):
        sweeps(results)
    else:
        for seed in (0, 1):
            write_run(results, seed=seed, epochs=12, arrays=scored_set(seed, 100) | mapped(seed, 60))
    one, other = (draw_figure(name, results, tmp_path / folder) for folder in ("a", "b"))
    stem = f"{name}--cifar10--tinyimagenet--20k--cifar10-lond"
    assert [path.name for path in one] == [f"{stem}.svg", f"{stem}.png"]
    assert sorted(one) == sorted((tmp_path / "a").iterdir())
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert ElementTree.parse(one[0]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    with Image.open(one[1]) as image:
        image.verify()


def test_a_figure_is_one_of_each_cell_split_and_method(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    write_run(tmp_path, epochs=2)
    write_run(tmp_path, seed=1, epochs=2)
    write_run(tmp_path, split="dev", epochs=2)
    write_run(tmp_path, "cifar10/sym50", "plus", epochs=2)
    found = drawn("correction")
    assert list(found) == [
        "correction--cifar10--sym50--plus",
        "correction--cifar10--tinyimagenet--20k--dev--cifar10-lond",
        "correction--cifar10--tinyimagenet--20k--cifar10-lond",
    ]
    assert [figure.get_suptitle() for figure in found.values()] == [
        "cifar10/sym50\nplus, 1\N{NO-BREAK SPACE}seed",
        f"{LOND}, development split\ncifar10-lond, 1\N{NO-BREAK SPACE}seed",
        f"{LOND}\ncifar10-lond, 2\N{NO-BREAK SPACE}seeds",
    ]


def test_convergence_draws_what_was_recorded(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    entries = [
        json.loads(write_run(tmp_path, split="dev", seed=seed, epochs=12).read_text())["epochs"]
        for seed in (0, 1)
    ]
    (figure,) = drawn("convergence").values()
    labels, selected, losses = figure.axes
    for axes, name, value in (
        (labels, "pseudo-labels", lambda e: 100 * e["cleaning"]["label_accuracy"]),
        (labels, "development set", lambda e: 100 * e["accuracy"]),
        (selected, "selected set", lambda e: 100 * e["cleaning"]["noise_rate"]),
        (losses, "CE", lambda e: e["losses"]["ce"]),
    ):
        x, y = lines(axes)[name]
        assert x == list(range(1, 13))
        assert y == pytest.approx([(value(a) + value(b)) / 2 for a, b in zip(*entries, strict=True)])
    # In the five epochs of warm-up the contrastive terms are no part of the loss.
    x, y = lines(losses)["subgraph"]
    assert x == list(range(6, 13))
    assert y == pytest.approx([entry["losses"]["subgraph"] for entry in entries[0][5:]])
    assert set(lines(losses)) == {"CE", "instance", "subgraph"}
    assert len(losses.patches) == 1, "a gray ground under them"
    (band,) = labels.collections[:1]
    low = min(entries[0][3]["cleaning"]["label_accuracy"], entries[1][3]["cleaning"]["label_accuracy"])
    corners = band.get_paths()[0].vertices
    assert corners[corners[:, 0] == 4, 1].min() == pytest.approx(100 * low)


def test_convergence_on_the_test_split_has_no_accuracy_by_epoch(
    tmp_path: Path, drawn: Callable[..., Drawn]
) -> None:
    write_run(tmp_path, epochs=3)
    (figure,) = drawn("convergence").values()
    assert set(lines(figure.axes[0])) == {"pseudo-labels"}
    assert len(figure.axes[0].collections) == 0, "one seed has no range"
    assert len(figure.axes[0].patches) == 0, "given labels all along are no warm-up"


def test_degrees_by_kind(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    entries = json.loads(write_run(tmp_path, epochs=3).read_text())["epochs"]
    write_run(tmp_path, "cifar10/sym50", epochs=3)
    without, with_ood = (lines(figure.axes[0]) for figure in drawn("degrees").values())
    assert set(without) == {"right label", "wrong label"}
    assert with_ood == {
        name: ([1, 2, 3], [entry["degrees"][kind] for entry in entries])
        for kind, name in plotting.KIND_NAMES.items()
    }


def test_strategies_leave_out_the_epochs_without(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    entries = json.loads(write_run(tmp_path, epochs=23).read_text())["epochs"]
    (figure,) = drawn("strategies").values()
    sizes, noises = (lines(axes) for axes in figure.axes)
    assert set(sizes) == set(noises) == {"confidence", "geometry", "both"}
    for name in sizes:
        told = [entries[i - 1]["strategies"][name] for i in (10, 20, 23)]
        assert sizes[name] == ([10, 20, 23], pytest.approx([entry["selected"] / 1000 for entry in told]))
        assert noises[name] == ([10, 20, 23], pytest.approx([100 * entry["noise_rate"] for entry in told]))


def test_correction_before_after_and_the_papers(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    entries = json.loads(write_run(tmp_path, "cifar10/sym50", epochs=3).read_text())["epochs"]
    write_run(tmp_path, epochs=3)
    sym, lond = (lines(figure.axes[0]) for figure in drawn("correction").values())
    assert sym["as given"][1] == pytest.approx([55, 55, 55])
    assert sym["corrected"][1] == pytest.approx(
        [100 * entry["cleaning"]["label_accuracy"] for entry in entries]
    )
    assert sym["paper, corrected"][1] == pytest.approx([95.76, 95.76])
    assert "paper, corrected" not in lond


def test_sensitivity_joins_the_values_of_a_setting(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    sweeps(tmp_path)
    for epochs, eta, accuracy in ((60, 0.8, 0.91), (60, 0.7, 0.9)):
        changed = f"--graph.eta-{eta}" if eta != 0.8 else ""
        write_run(
            tmp_path, method=f"cifar10-lond{changed}--training.epochs-{epochs}", epochs=2, graph={"eta": eta},
            scores={"accuracy": accuracy},
        )  # fmt: skip
    found = drawn("sensitivity-eta")
    stem = "sensitivity-eta--cifar10--tinyimagenet--20k--cifar10-lond"
    assert list(found) == [stem, f"{stem}--training.epochs-60"]
    accuracy, auroc = (lines(axes) for axes in found[stem].axes)
    assert accuracy["accuracy"] == ([0.6, 0.8, 0.9], pytest.approx([60, 89.18, 90]))
    assert auroc["AUROC"] == ([0.6, 0.8, 0.9], pytest.approx([55, 96, 70]))
    assert lines(found[f"{stem}--training.epochs-60"].axes[0])["accuracy"] == (
        [0.7, 0.8],
        pytest.approx([90, 91]),
    )
    (by_k,) = drawn("sensitivity-k").values()
    assert lines(by_k.axes[0])["accuracy"] == ([10, 30], pytest.approx([50, 89.18]))
    assert found[stem].get_suptitle() == f"{LOND}\ncifar10-lond, 2\N{NO-BREAK SPACE}seeds"
    assert by_k.get_suptitle() == f"{LOND}\ncifar10-lond, 1 to 2\N{NO-BREAK SPACE}seeds"


def test_zeta_curve_against_the_scores(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    arrays = scored_set(0, 300)
    similarity, truth = arrays["similarity"].astype(np.float64), arrays["truth"]
    right = arrays["predicted"] == truth
    best = best_threshold(-similarity, right, truth < 0)
    auto = open_set_f(right, similarity >= 0.54, truth < 0)
    scores = {"f_best": best.f, "zeta_best": -best.threshold, "f_auto": auto}
    write_run(tmp_path, epochs=2, scores=scores, arrays=arrays)
    write_run(tmp_path, "cifar10/sym50", epochs=2, arrays=arrays | {"truth": np.zeros(600, dtype=np.int8)})
    (figure,) = drawn("zeta").values()
    found = lines(figure.axes[0])
    assert found["auto ζ"] == ([0.54], [auto])
    assert found["best ζ"] == ([-best.threshold], [best.f])
    grid, f = found["F"]
    assert (grid[0], grid[-1]) == (similarity.min(), similarity.max())
    for i in (0, 100, 250, 400):
        assert f[i] == open_set_f(right, similarity >= grid[i], truth < 0)
    assert max(f) == pytest.approx(best.f, abs=0.005)
    assert max(f) <= best.f


def test_map_is_of_the_first_seed_that_has_one(tmp_path: Path, drawn: Callable[..., Drawn]) -> None:
    arrays = mapped(1, 150)
    write_run(tmp_path, epochs=2)
    write_run(tmp_path, seed=1, epochs=2, arrays=arrays)
    write_run(tmp_path, seed=2, epochs=2, arrays=mapped(2, 150))
    (figure,) = drawn("map").values()
    for kind, name in enumerate(plotting.KIND_NAMES.values()):
        expected = arrays["map"][arrays["kind"] == kind].T.tolist()
        assert [list(values) for values in lines(figure.axes[0])[name]] == expected


@pytest.mark.parametrize("name", figure_names())
def test_without_runs_it_says_what_to_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        InputError, match=rf"no recorded run.* to draw {name} from; first run `graphclean bench run cifar10/"
    ):
        draw_figure(name, tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("sensitivity-eta", "at two values of graph.eta to draw .* --set graph.eta=0.7"),
        ("sensitivity-k", "at two values of graph.k to draw .* --set graph.k=10"),
        ("zeta", "with OOD, and predicted, similarity and truth in its .npz, to draw"),
        ("map", "with map and kind in its .npz to draw"),
    ],
)
def test_one_plain_run_without_arrays_is_not_enough(tmp_path: Path, name: str, needs: str) -> None:
    write_run(tmp_path, epochs=2)
    with pytest.raises(InputError, match=f"no recorded run {needs}"):
        draw_figure(name, tmp_path, tmp_path / "out")


def test_unknown_figures_get_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean strategies"):
        draw_figure("strategy", tmp_path, tmp_path)


@pytest.mark.slow
def test_legends_lie_above_the_panels_and_inside_the_figure(
    tmp_path: Path, drawn: Callable[..., Drawn]
) -> None:
    sweeps(tmp_path)
    write_run(tmp_path, "cifar10/sym50", split="dev", epochs=12, arrays=scored_set(0, 50))
    for name in set(figures.FIGURES) - {"map"}:
        for figure in drawn(name).values():
            with plotting.look():
                figure.draw_without_rendering()
            previous = 0.0
            for axes in figure.axes:
                legend, panel = axes.get_legend().get_window_extent(), axes.get_window_extent()
                assert legend.y0 >= panel.y1 - 1
                assert previous <= legend.x0
                previous = legend.x1
                assert legend.x1 <= figure.bbox.x1 + 1
