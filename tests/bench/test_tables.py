import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import top_k_accuracy_score

from graphclean.bench.results import read_record
from graphclean.bench.tables import (
    ABLATION_NAMES,
    ensemble_accuracy,
    mean_and_deviation,
    paper,
    render_table,
    round_text,
    table_names,
)
from graphclean.errors import InputError
from tests.bench.fakes import LOND, scored_set, write_run

SHARED = Path(__file__).parents[3] / "shared" / "paper_tables.json"


def rows(text: str) -> list[list[str]]:
    """The rows of a Markdown table, its header first."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def row(text: str, first: str) -> list[str]:
    (found,) = [cells for cells in rows(text) if cells[0] == first]
    return found[1:]


def numbers(values: list[str | None]) -> list[float | None]:
    """What stands before a ± or a bracket."""
    return [None if value is None else float(value.split()[0]) for value in values]


@pytest.mark.skipif(not SHARED.exists(), reason="needs the transcribed tables")
def test_the_papers_numbers_are_those_transcribed() -> None:
    theirs, ours = json.loads(SHARED.read_text()), paper()
    for name, table in ours.items():
        source = theirs[name.replace("-", "_")]
        if name == "noise-correction":
            assert {key: float(value) for key, value in table.items()} == {k: source[k] for k in table}
            continue
        assert len(table["columns"]) == len(source["columns"])
        named = {row.removesuffix("/20k") if row not in source["rows"] else row: row for row in table["rows"]}
        assert set(source["rows"]) <= set(named)
        for key, values in source["rows"].items():
            assert numbers(table["rows"][named[key]]) == values
    stds = theirs["lond_accuracy"]["ngc_std"]
    assert {key: values[-1].split(" ± ")[1] for key, values in ours["lond-accuracy"]["rows"].items()} == {
        key: f"{value:.2f}" for key, value in stds.items()
    }
    lcnl = theirs["lcnl_accuracy"]
    told = ours["lcnl-accuracy"]
    assert told["columns"] == lcnl["columns"]
    assert [float(v.split(" ± ")[1]) for v in told["rows"]["NGC"]] == lcnl["ngc_std"]
    for name, key in (
        ("best since, one network", "best_known_single_network_after_the_paper"),
        ("best since, any", "best_known_any"),
    ):
        pairs = zip(lcnl[key]["values"], lcnl[key]["who"], strict=True)
        assert told["rows"][name] == [f"{value} ({who})" for value, who in pairs]


def test_the_papers_tables_are_whole() -> None:
    for name, table in paper().items():
        if name != "noise-correction":
            assert {len(values) for values in table["rows"].values()} == {len(table["columns"])}
    assert set(ABLATION_NAMES) == set(paper()["ablation-accuracy"]["rows"])


@pytest.mark.parametrize(
    ("value", "text"),
    [("93.545", "93.54"), ("93.555", "93.56"), ("93.5450001", "93.55"), ("93.549", "93.55"), ("0", "0.00"),
     ("93.5449999", "93.54"), ("100", "100.00")],
)  # fmt: skip
def test_halves_go_to_even(value: str, text: str) -> None:
    assert round_text(Decimal(value), 2) == text


def test_a_recorded_half_is_not_tipped_by_its_binary_rest(tmp_path: Path) -> None:
    # The float nearest to 100 * 0.50005 lies a little above 50.005, and would round up.
    assert f"{100 * 0.50005:.2f}" == "50.01"
    write_run(tmp_path, epochs=2, scores={"accuracy": 0.50005})
    assert row(render_table("lond-accuracy", tmp_path, "markdown"), LOND)[5] == "50.00 (1)"


def test_mean_and_deviation_by_hand() -> None:
    assert mean_and_deviation([], 2) == "–"
    assert mean_and_deviation([Decimal("93.5")], 2) == "93.50 (1)"
    # Mean 92, sample deviation sqrt((4 + 0 + 4) / 2) = 2.
    assert mean_and_deviation([Decimal(90), Decimal(92), Decimal(94)], 1) == "92.0 ± 2.0 (3)"
    # Sample deviation of two values: their distance / sqrt 2.
    assert mean_and_deviation([Decimal("0.880"), Decimal("0.890")], 3) == "0.885 ± 0.007 (2)"


def test_lond_tables_set_ours_beside_the_paper(tmp_path: Path) -> None:
    for seed, accuracy in enumerate((0.93, 0.935, 0.94)):
        write_run(tmp_path, seed=seed, epochs=2, scores={"accuracy": accuracy, "auroc": 0.95 + seed / 100})
    write_run(tmp_path, method="plus", epochs=2, scores={"accuracy": 0.9512, "f_best": 0.9001})
    write_run(tmp_path, method="cifar10-lond--without-mixup", epochs=2)
    write_run(tmp_path, split="dev", epochs=2, method="fast")
    text = render_table("lond-accuracy", tmp_path, "markdown")
    assert rows(text)[0] == ["cell", "CE", "RoG", "ILON", "DivideMix", "NGC", "ours", "ours, two networks"]
    assert row(text, LOND) == [
        "52.32", "63.15", "74.63", "93.83", "93.54 ± 0.21", "93.50 ± 0.50 (3)", "–"
    ]  # fmt: skip
    assert row(text, "cifar10/places365/20k")[:1] + row(text, "cifar10/places365/20k")[5:] == [
        "55.30",
        "–",
        "–",
    ]
    assert row(text, "ours: plus") == ["", "", "", "", "", "95.12 (1)", "–"]
    assert rows(text).index(["ours: plus", *row(text, "ours: plus")]) == 5
    assert len(rows(text)) == 12
    assert row(render_table("lond-auroc", tmp_path, "markdown"), LOND)[-2:] == ["94.18", "96.00 ± 1.00 (3)"]
    text = render_table("lond-fmeasure", tmp_path, "markdown")
    assert rows(text)[0][6:] == [
        "NGC, best ζ", "NGC, ζ = 0.5", "NGC, ζ = 0.7",
        "ours, best ζ", "ours, ζ = 0.5", "ours, ζ = 0.7", "ours, auto ζ",
    ]  # fmt: skip
    assert row(text, LOND)[5:] == [
        "0.875", "0.873", "0.802",
        "0.882 ± 0.000 (3)", "0.863 ± 0.000 (3)", "0.630 ± 0.000 (3)", "0.851 ± 0.000 (3)",
    ]  # fmt: skip
    assert row(text, "ours: plus")[-4:] == ["0.900 (1)", "0.863 (1)", "0.630 (1)", "0.851 (1)"]


@pytest.mark.parametrize("name", ["lond-accuracy", "lond-auroc", "lond-fmeasure"])
@pytest.mark.parametrize(
    ("control", "said"), [(0.55, None), (0.5504, "failed"), (None, "not recorded")]
)  # fmt: skip
def test_a_cell_that_fails_the_control_says_so(
    tmp_path: Path, name: str, control: float | None, said: str | None
) -> None:
    write_run(tmp_path, seed=0, epochs=2)
    write_run(tmp_path, seed=1, epochs=2, scores={"control_auroc": control})
    lines = [
        line for line in render_table(name, tmp_path, "markdown").splitlines() if line.startswith("Control")
    ]
    if said is None:
        assert lines == []
    else:
        assert len(lines) == 1
        assert lines[0].startswith(f"Control {said}: {LOND}, ours")


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("lond-auroc", LOND), ("lcnl-accuracy", "cifar10/sym50"), ("ablation-accuracy", "cifar10/sym50"),
        ("runs", LOND), ("scorings", LOND),
    ],
)  # fmt: skip
def test_a_run_on_a_part_of_its_set_is_told(tmp_path: Path, name: str, cell: str) -> None:
    """However many seeds it has; one on all of it, and one from before sizes were recorded, are not."""
    part, whole = {"train": 150, "test": 40, "pool": 60}, {"train": 50_000, "test": 10_000, "pool": 60}
    write_run(tmp_path, cell, epochs=2, sizes=whole)
    write_run(tmp_path, cell, "older", epochs=2)
    write_run(tmp_path, cell, "part", epochs=2, split="dev", sizes=part | {"train": 50_000})
    assert "whole set" not in render_table(name, tmp_path, "markdown")
    for seed in (0, 1):
        write_run(tmp_path, cell, "part", seed, epochs=2, sizes=part)
    told = [line for line in render_table(name, tmp_path, "markdown").splitlines() if "whole set" in line]
    assert [line.strip() for line in told] == [
        f"Not on the whole set: {cell}, ours: part (150 of 50,000 train images).",
        f"Not on the whole set: {cell}, ours: part (40 of 10,000 test images).",
    ]


def test_lcnl_rows_are_methods(tmp_path: Path) -> None:
    write_run(tmp_path, "cifar10/sym50", epochs=2, scores={"accuracy": 0.9454})
    write_run(tmp_path, "cifar100/sym90", "plus", epochs=2, scores={"accuracy": 0.3})
    text = render_table("lcnl-accuracy", tmp_path, "markdown")
    assert row(text, "Co-teaching+")[4] == "–"
    assert row(text, "NGC")[1] == "94.54 ± 0.35"
    assert row(text, "ours") == ["–", "94.54 (1)", *["–"] * 7]
    assert row(text, "ours, two networks") == ["–"] * 9
    assert row(text, "ours: plus") == [*["–"] * 8, "30.00 (1)"]
    assert "ours: plus, two networks" not in text
    assert "Control" not in text


def test_ablations_stand_under_the_papers(tmp_path: Path) -> None:
    cell = "cifar10/sym50"
    write_run(tmp_path, cell, "cifar10-lcnl--without-geometry", epochs=2, scores={"accuracy": 0.85})
    write_run(
        tmp_path,
        cell,
        "cifar10-lcnl--training.epochs-60--without-geometry",
        epochs=2,
        scores={"accuracy": 0.8},
    )
    write_run(tmp_path, cell, "cifar10-lcnl--training.epochs-60", epochs=2, scores={"accuracy": 0.9})
    write_run(tmp_path, cell, "plus", epochs=2)
    both = "cifar10-lcnl--without-confidence--without-geometry"  # of which the paper has no row
    write_run(tmp_path, cell, both, epochs=2, scores={"accuracy": 0.77})
    found = [
        [*cells[:2], cells[3]] for cells in rows(render_table("ablation-accuracy", tmp_path, "markdown"))
    ]
    at = found.index(["w/o geometry selection", "paper", "85.59"])
    assert found[at + 1 : at + 4] == [
        ["", "ours", "85.00 (1)"],
        ["", "ours: cifar10-lcnl--training.epochs-60", "80.00 (1)"],
        ["w/o L_inst", "paper", "94.02"],
    ]
    assert found[-3:] == [
        ["NGC", "paper", "94.54"],
        ["", "ours", "–"],
        ["", "ours: cifar10-lcnl--training.epochs-60", "90.00 (1)"],
    ]


def test_ablations_of_a_cell_that_the_paper_ablates_not_have_a_column_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path, scores={"accuracy": 0.93})
    write_run(tmp_path, method="cifar10-lond--without-geometry", scores={"accuracy": 0.91})
    write_run(tmp_path, "cifar10/sym20", method="cifar10-lcnl--without-geometry", split="dev")
    write_run(tmp_path, "cifar10/sym80", method="cifar10-lcnl--without-geometry--without-mixup")
    header, *found = rows(render_table("ablation-accuracy", tmp_path, "markdown"))
    assert header[-2:] == ["cifar100/sym80", LOND]
    assert [line[-1] for line in found] == [
        *["", "–"] * 2, "", "91.00 (1)", *["", "–"] * 4, "", "93.00 (1)",
    ]  # fmt: skip


def test_nothing_recorded_is_dashes_everywhere(tmp_path: Path) -> None:
    for name in table_names():
        for line in rows(render_table(name, tmp_path, "markdown"))[1:]:
            if line[0].startswith("ours") or line[1] == "ours":
                assert set(line[2:]) == {"–"}
    assert row(render_table("webvision50", tmp_path, "markdown"), "ours") == ["–"] * 4
    assert "0 runs recorded." in render_table("runs", tmp_path, "markdown")


def test_webvision_has_four_columns_with_and_without_augmix(tmp_path: Path) -> None:
    """A run without ILSVRC12 has dashes there, and others keep their numbers."""
    sizes, cell, other = {"train": 65_944, "test": 2_500}, "webvision50", "webvision50/ilsvrc12"
    for seed, accuracy in enumerate((0.78, 0.80)):
        also = {other: {"accuracy": accuracy - 0.05, "top5": 0.9, "images": 2_500}}
        scores = {"accuracy": accuracy, "top5": 0.91}
        write_run(tmp_path, cell, seed=seed, epochs=2, scores=scores, also=also, sizes=sizes)
    also = {other: {"accuracy": 0.7, "top5": 0.88, "images": 2_400}}
    scores = {"accuracy": 0.77, "top5": 0.9}
    without = "webvision50--without-augmix"
    write_run(tmp_path, cell, without, epochs=2, scores=scores, also=also, sizes=sizes)
    part = {"train": 65_900, "test": 2_500}
    write_run(tmp_path, cell, "elr--webvision50", epochs=2, scores=scores, sizes=part)
    text = render_table("webvision50", tmp_path, "markdown")
    assert row(text, "NGC") == ["79.16", "91.84", "74.44", "91.04"]
    assert row(text, "ours") == [
        "79.00 ± 1.41 (2)",
        "91.00 ± 0.00 (2)",
        "74.00 ± 1.41 (2)",
        "90.00 ± 0.00 (2)",
    ]
    assert row(text, "ours, two networks") == ["–"] * 4
    assert row(text, "ours w/o AugMix") == ["77.00 (1)", "90.00 (1)", "70.00 (1)", "88.00 (1)"]
    assert row(text, "ours: elr--webvision50") == ["77.00 (1)", "90.00 (1)", "–", "–"]
    assert "ours: elr--webvision50, two networks" not in text
    assert [line.strip() for line in text.splitlines() if line.startswith("Not on the whole set")] == [
        "Not on the whole set: webvision50, ours: elr--webvision50 (65,900 of 65,944 train images).",
        f"Not on the whole set: {other}, ours: ours--without-augmix (2,400 of 2,500 images).",
    ]


@pytest.mark.parametrize("k", [1, 3])
def test_two_networks_on_the_other_set_equal_scikit_learn(tmp_path: Path, k: int) -> None:
    names = ("ilsvrc12_truth", "ilsvrc12_logits")
    found = [scored_set(seed, 200) for seed in (0, 1)]
    records = []
    for seed, arrays in enumerate(found):
        kept = {names[0]: arrays["truth"][:200], names[1]: arrays["logits"]}
        path = write_run(tmp_path, "webvision50", seed=seed, epochs=2, arrays=kept)
        records.append(read_record(path, tmp_path))
    both = sum(softmax(arrays["logits"].astype(np.float64), axis=1) for arrays in found)
    truth = found[0]["truth"][:200].astype(int)
    expected = top_k_accuracy_score(truth, both, k=k)
    assert float(ensemble_accuracy(records[0], records[1], k, names) or 0) == pytest.approx(expected)
    assert ensemble_accuracy(records[0], records[1], k) is None


def test_two_networks_equal_a_mean_by_hand(tmp_path: Path) -> None:
    arrays = [scored_set(seed, 200) for seed in (0, 1)]
    for seed, found in zip((2, 10), arrays, strict=True):
        write_run(tmp_path, seed=seed, epochs=2, arrays=found)
    write_run(tmp_path, seed=11, epochs=2, arrays=scored_set(2, 200))
    right = 0
    for i in range(200):
        shares = []
        for found in arrays:
            e = np.exp(found["logits"][i].astype(np.float64))
            shares.append(e / e.sum())
        right += int(np.argmax((shares[0] + shares[1]) / 2)) == arrays[0]["truth"][i]
    alone = [int((a["logits"].argmax(1) == a["truth"][:200]).sum()) for a in arrays]
    assert right not in alone
    text = render_table("lond-accuracy", tmp_path, "markdown")
    assert row(text, LOND)[-1] == f"{right / 2:.2f}"


@pytest.mark.parametrize(("name", "cell"), [("lond-accuracy", LOND), ("lcnl-accuracy", "cifar10/sym50")])
def test_two_networks_of_two_draws_are_told(tmp_path: Path, name: str, cell: str) -> None:
    for seed in (0, 1):
        write_run(tmp_path, cell, seed=seed, epochs=2, arrays=scored_set(seed, 20), draw="a" * 64)
        write_run(tmp_path, "cifar10/other", seed=seed, epochs=2)
    assert "two noise seeds" not in render_table(name, tmp_path, "markdown")
    write_run(tmp_path, cell, seed=1, epochs=2, arrays=scored_set(1, 20), draw="b" * 64)
    assert "recorded seeds. They were trained with two noise seeds" in render_table(
        name, tmp_path, "markdown"
    )


def test_softmax_and_not_logits_are_averaged(tmp_path: Path) -> None:
    truth = np.array([1, -1])
    first = {"logits": np.array([[2.0, 0.0, -2.0]]), "truth": truth}
    second = {"logits": np.array([[-9.0, 3.0, 2.9]]), "truth": truth}
    assert (first["logits"] + second["logits"])[0].argmax() == 1
    pair = [
        read_record(write_run(tmp_path, seed=seed, epochs=2, arrays=arrays), tmp_path)
        for seed, arrays in enumerate((first, second))
    ]
    shares = [np.exp(a["logits"][0]) / np.exp(a["logits"][0]).sum() for a in (first, second)]
    assert (shares[0] + shares[1]).argmax() == 0
    assert ensemble_accuracy(*pair) == 0


def test_two_networks_need_the_arrays_of_both_on_the_same_images(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, epochs=2, arrays=scored_set(0, 20))
    write_run(tmp_path, seed=1, epochs=2)
    assert row(render_table("lond-accuracy", tmp_path, "markdown"), LOND)[-1] == "–"
    other = scored_set(1, 20)
    write_run(tmp_path, seed=1, epochs=2, arrays=other | {"truth": other["truth"][::-1]})
    with pytest.raises(InputError, match="different images"):
        render_table("lond-accuracy", tmp_path, "markdown")


def test_verdicts_of_every_run_are_listed_with_what_they_call_ood(tmp_path: Path) -> None:
    scores = {"mislabel_f1": 0.95, "issue_f1": 0.9655, "three_way_f1": 0.92, "label_accuracy": 0.94321}
    counts = {
        "right": {"keep": 700, "relabel": 20, "ood": 10, "uncertain": 20},
        "wrong": {"keep": 30, "relabel": 200, "ood": 15, "uncertain": 5},
        "ood": {"keep": 9, "relabel": 9, "ood": 99, "uncertain": 9},
    }
    write_run(tmp_path, epochs=2, verdicts=scores | {"ood_auroc": 0.96, "confusion": counts})
    write_run(tmp_path, seed=1, epochs=2, verdicts=scores | {"ood_auroc": None})
    write_run(tmp_path, seed=2, epochs=2)
    text = render_table("verdicts", tmp_path, "markdown")
    shared = ["0.950", "0.966", "0.920", "94.32"]
    assert rows(text)[1:] == [
        [LOND, "test", "cifar10-lond", "0", *shared, "0.960", "2.50"],
        [LOND, "test", "cifar10-lond", "1", *shared, "–", "–"],
    ]
    assert "2 runs with verdicts." in text


def test_every_run_and_every_scoring_is_listed(tmp_path: Path) -> None:
    write_run(tmp_path, "cifar10/sym50", seed=1, epochs=3)
    write_run(tmp_path, split="dev", epochs=2)
    write_run(tmp_path, method="plus", epochs=2, machine={"time": "2026-11-16T00:00:00Z", "commit": None})
    assert rows(render_table("runs", tmp_path, "markdown"))[1:] == [
        [
            "cifar10/sym50",
            "test",
            "cifar10-lcnl",
            "1",
            "3",
            "89.18",
            "–",
            "–",
            "–",
            "15.30",
            "4.5",
            "0123456789",
        ],
        [
            LOND,
            "dev",
            "cifar10-lond",
            "0",
            "2",
            "89.18",
            "96.00",
            "0.851",
            "0.882",
            "15.30",
            "4.5",
            "0123456789",
        ],
        [LOND, "test", "plus", "0", "2", "89.18", "96.00", "0.851", "0.882", "15.30", "4.5", "–"],
    ]
    assert rows(render_table("scorings", tmp_path, "markdown"))[1:] == [
        [
            "2026-11-15T01:00:00Z",
            "cifar10/sym50",
            "cifar10-lcnl",
            "1",
            "89.18",
            "–",
            "–",
            "–",
            "1" * 10,
            "0123456789",
        ],
        ["2026-11-16T00:00:00Z", LOND, "plus", "0", "89.18", "96.00", "0.851", "0.520", "0" * 10, "–"],
    ]


def test_latex_is_escaped(tmp_path: Path) -> None:
    write_run(tmp_path, "cifar10/sym50", r"a_b & 50% #1 {x} ~^$ c\d--e|f", epochs=2)
    text = render_table("lcnl-accuracy", tmp_path, "latex")
    name = r"ours: a\_b \& 50\% \#1 \{x\} \textasciitilde{}\textasciicircum{}\$ c\textbackslash{}d-{}-e|f"
    assert f"{name} & -- & 89.18 (1) & --" in text
    assert r"94.54 $\pm$ 0.35" in text
    assert text.startswith("\\begin{tabular}{lrrrrrrrrr}\n\\hline\nmethod & cifar10/sym20 &")
    body = text.split(r"\hline")
    assert all(line.endswith(r"\\") for line in body[2].strip().splitlines())
    assert r"e\|f" in render_table("lcnl-accuracy", tmp_path, "markdown")
    assert r"best $\zeta$" in render_table("lond-fmeasure", tmp_path, "latex")
    assert r"L\_inst" in render_table("ablation-accuracy", tmp_path, "latex")


def columns_of(line: str) -> int:
    return line.replace(r"\&", "").count("&") + 1


@pytest.mark.parametrize("name", table_names())
def test_both_forms_hold_the_same_rows(tmp_path: Path, name: str) -> None:
    write_run(tmp_path, epochs=2)
    write_run(tmp_path, "cifar10/sym50", epochs=2)
    markdown = rows(render_table(name, tmp_path, "markdown"))
    latex = [line for line in render_table(name, tmp_path, "latex").splitlines() if line.endswith(r"\\")]
    assert len(latex) == len(markdown)
    assert {columns_of(line) for line in latex} == {len(markdown[0])}


def test_unknown_tables_get_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean lond-auroc"):
        render_table("lond-aurok", tmp_path, "markdown")


def test_a_damaged_score_is_one_line(tmp_path: Path) -> None:
    scores: dict[str, Any] = {"accuracy": "good"}
    write_run(tmp_path, epochs=2, scores=scores)
    with pytest.raises(InputError, match=r"scores\.accuracy is not a number"):
        render_table("runs", tmp_path, "markdown")
