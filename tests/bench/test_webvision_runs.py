"""From the official lists to the table, with the smallest network on small photos."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import top_k_accuracy_score

from graphclean.bench import cells, tables
from graphclean.bench.cells import get_cell, make_method
from graphclean.bench.inputs import check_sources, load_sources, prepare_material
from graphclean.bench.rerun import compare, job_of
from graphclean.bench.results import read_result
from graphclean.bench.runner import find_done
from graphclean.bench.webvision import read_part
from graphclean.config import TrainingSettings, load_preset
from graphclean.config.settings import PER_DATA_SET
from graphclean.data.photo_stream import PhotoStream
from graphclean.errors import InputError
from graphclean.methods import complete_settings
from tests.bench.builders import read_arrays
from tests.bench.photos import COUNTS, IDS, SMALL, webvision_cells, write_webvision_sets
from tests.bench.test_cells import PAPER
from tests.builders import Cli

QUICK = (
    "training.network=small-conv", "training.image_size=32", "training.crop_size=28",
    "training.epochs=3", "training.batch_size=40", "training.lr=0.05", "method.warmup_epochs=1", "graph.k=6",
)  # fmt: skip
"""What makes the paper's preset small; all of its other settings stay."""
AT_32 = TrainingSettings(image_size=32)
SETTINGS = [word for setting in QUICK for word in ("--set", setting)]
ROOT = ("--data-root", "data", "--device", "cpu")


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphclean.bench.cells.require_network", lambda _: None)  # timm is an extra
    for cell in webvision_cells():
        monkeypatch.setitem(cells.CELLS, cell.name, cell)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_webvision_sets(tmp_path / "data")


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "data")
def test_from_the_lists_to_the_table(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One training run, scored on both validation sets."""
    done = cli("bench", "run", "webvision50/tiny/ilsvrc12", "--seeds", "0", "1", *SETTINGS, *ROOT)
    assert done.code == 0, done.err
    paths = sorted(tmp_path.glob("results/webvision50--tiny/*/*.json"))
    assert [path.stem for path in paths] == ["0", "1"]
    assert not list(tmp_path.glob("results/webvision50--tiny--ilsvrc12"))
    scored = {}
    for path in paths:
        result, arrays = read_result(path), read_arrays(path)
        assert result["sizes"] == {"train": COUNTS["train"], "test": COUNTS["val"], "pool": 0}
        other = result["also"]["webvision50/tiny/ilsvrc12"]
        assert other["images"] == COUNTS["ilsvrc12"]
        for scores, prefix in ((result["scores"], ""), (other, "ilsvrc12_")):
            logits, truth = arrays[f"{prefix}logits"], arrays[f"{prefix}truth"].astype(np.int64)
            for key, k in (("accuracy", 1), ("top5", 5)):
                expected = top_k_accuracy_score(truth, logits, k=k, labels=np.arange(len(IDS)))
                assert scores[key] == pytest.approx(expected, abs=0.02)  # logits are kept in half precision
            assert scores["top5"] is not None
            assert scores["accuracy"] is not None
            assert scores["top5"] >= scores["accuracy"] > 0.5
        assert result["cleaning"] == {
            "selected": result["epochs"][-1]["selected"] and result["cleaning"]["selected"],
            **dict.fromkeys(("wrong_known", "ood", "noise_rate", "label_accuracy", "given_right")),
        }
        assert "verdicts" not in result
        assert "map" not in arrays
        assert result["config"]["training"]["crop_scale"] == 0.4
        assert result["config"]["method"]["mixup_views"] == "weak"
        scored[path.stem] = (result["scores"], other, arrays)
    again = cli("bench", "run", "webvision50/tiny", "--seeds", "0", "1", *SETTINGS, *ROOT)
    assert (again.code, again.err.count("already in")) == (0, 2)
    listed = cli("bench", "list").out.splitlines()[1:]
    assert [line.split()[0] for line in listed] == ["webvision50/tiny", "webvision50/tiny/ilsvrc12"] * 2
    monkeypatch.setattr(tables, "WEBVISION", "webvision50/tiny")
    shown = cli("bench", "table", "webvision50").out
    (ours, pair) = (
        [cell.strip() for cell in line.strip("|").split("|")][1:]
        for line in shown.splitlines()
        if line.startswith("| ours: webvision50--")
    )
    for place, (part, key) in enumerate((part, key) for part in (0, 1) for key in ("accuracy", "top5")):
        values = [100 * scored[seed][part][key] for seed in "01"]
        assert float(ours[place].split()[0]) == pytest.approx(np.mean(values), abs=0.006)
    for place, prefix in ((0, ""), (2, "ilsvrc12_")):
        both = sum(softmax(scored[s][2][f"{prefix}logits"].astype(np.float64), 1) for s in "01")
        right = (both.argmax(1) == scored["0"][2][f"{prefix}truth"]).mean()
        assert float(pair[place]) == pytest.approx(100 * right, abs=0.006)
    same = job_of(read_result(paths[0]), paths[0])
    assert find_done(same, tmp_path / "results") == paths[0]
    with pytest.raises(InputError, match="made without scores of webvision50/other, and its network is gone"):
        find_done(replace(same, also=("webvision50/other",)), tmp_path / "results")
    compared = compare(read_result(paths[0]), read_result(paths[1]))
    tiny = "webvision50/tiny/ilsvrc12"
    assert [name for name, *_ in compared] == [
        "accuracy", "top5", f"{tiny} accuracy", f"{tiny} top5", "seconds"
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "data")
def test_the_development_split_scores_training_photos_under_their_labels(cli: Cli, tmp_path: Path) -> None:
    """Nobody knows which are wrong, and no validation photo is opened."""
    (tmp_path / "data/webvision/info/val_filelist.txt").unlink()
    done = cli("bench", "run", "webvision50/tiny", "--split", "dev", *SETTINGS, *ROOT)
    assert done.code == 0, done.err
    (path,) = tmp_path.glob("results/webvision50--tiny--dev/*/0.json")
    result = read_result(path)
    assert result["epochs"][0]["accuracy"] is not None
    assert "also" not in result
    refused = cli("bench", "run", "webvision50/tiny/ilsvrc12", "--split", "dev", *ROOT)
    assert refused.code == 2
    assert (
        "webvision50/tiny/ilsvrc12: a validation set, which the development split never opens" in refused.err
    )


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_material_streams_the_photos_of_the_lists(data: Path, tmp_path: Path) -> None:
    cell = get_cell("webvision50/tiny")
    assert check_sources([cell], "test", data) == []
    sources = load_sources(cell, "test", data, settings=AT_32)
    material = prepare_material(cell, 0, "test", sources, tmp_path / "draw.npz")
    train, found = read_part("train", data, SMALL), material.train_inputs()
    assert found.shape == (COUNTS["train"], 3, 32, 32)
    assert isinstance(found, PhotoStream)
    assert material.draw.labels.tolist() == train.labels.tolist()
    assert not material.draw.truth_known
    assert material.scored_images().shape == (COUNTS["val"], 3, 32, 32)
    assert material.also_images("webvision50/tiny/ilsvrc12").shape == (COUNTS["ilsvrc12"], 3, 32, 32)
    assert sources.train.classes == IDS
    again = prepare_material(cell, 0, "test", sources, tmp_path / "draw.npz")
    assert again.draw.digest() == material.draw.digest()
    dev = load_sources(cell, "dev", data, settings=AT_32)
    part = prepare_material(cell, 0, "dev", dev, tmp_path / "dev.npz")
    some, rows = part.train_inputs(), part.draw.train_ind
    assert some.shape == (108, 3, 32, 32)
    assert isinstance(some, PhotoStream)
    assert torch.equal(some.read(torch.arange(5)), found.read(torch.as_tensor(rows[:5])))
    assert dev.test is None
    assert dev.also == {}


@pytest.mark.slow
def test_photos_that_cannot_be_decoded_are_left_out_with_a_line(data: Path, tmp_path: Path) -> None:
    (data / "webvision/google/q0002/8.jpg").write_bytes(b"no photo")
    cell = get_cell("webvision50/tiny")
    sources = load_sources(cell, "test", data, settings=AT_32)
    (note,) = sources.notes
    assert note.endswith("1 of 120 photos are left out (google/q0002/8.jpg: not an image)")
    material = prepare_material(cell, 0, "test", sources, tmp_path / "draw.npz")
    assert material.draw.labels.tolist() == [i % 6 for i in range(120) if i != 8]


def test_what_is_not_there_is_said_before_anything_is_trained(data: Path) -> None:
    cell = get_cell("webvision50/tiny")
    (data / "imagenet").rename(data / "elsewhere")
    (line,) = check_sources([cell], "test", data)
    assert line.endswith("webvision/imagenet: no such folder; webvision50/tiny/ilsvrc12 is not scored")
    assert check_sources([cell], "dev", data) == []
    with pytest.raises(InputError, match=r"imagenet/val: no such folder; it holds ILSVRC12"):
        check_sources([cell], "test", data, ["webvision50/tiny/ilsvrc12"])
    path = data / "webvision/info/val_filelist.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    assert any(
        "35 photos of the first 6 classes, and 36 are published" in line
        for line in check_sources([cell], "test", data)
    )
    with pytest.raises(InputError, match="its first 50 classes are not those"):
        check_sources([get_cell("webvision50")], "test", data)


@pytest.mark.slow
def test_where_photos_are_kept_changes_neither_pixels_nor_names(data: Path) -> None:
    cell, found = get_cell("webvision50/tiny"), []
    for storage in ("disk", "encoded", "decode"):
        settings = replace(AT_32, photo_storage=storage)
        with closing(load_sources(cell, "dev", data, settings=settings)) as sources:
            photos = sources.train.images
            assert isinstance(photos, PhotoStream)
            assert photos.keeping == storage
            found.append(photos.read(torch.arange(20)))
        assert make_method(cell, [f"training.photo_storage={storage}"]).name == "webvision50"
    assert all(torch.equal(found[0], other) for other in found[1:])
    with pytest.raises(InputError, match=r"^training\.photo_storage=memory: photos of a cell are streamed"):
        load_sources(cell, "dev", data, settings=replace(AT_32, photo_storage="memory"))


def test_the_cells_of_webvision() -> None:
    cell, other = get_cell("webvision50"), get_cell("webvision50/ilsvrc12")
    assert (cell.n_classes, cell.noise, cell.ood, cell.preset) == (50, "web", None, "webvision50")
    assert other.scored_by == "webvision50"
    assert other.n_classes == 50


def test_the_papers_settings() -> None:
    """Its supplement, and what the release has on this set."""
    for preset in (None, "paper", "release"):
        method = make_method(get_cell("webvision50"), preset=preset)
        assert method.name == (preset or "webvision50")
        training, graph, own = method.config.training, method.config.graph, method.config.method.settings
        assert (training.network, training.pretrained) == ("timm:inception_resnet_v2", False)
        assert training.normalization == "imagenet"
        assert (training.image_size, training.crop_size, training.crop_scale) == (320, 299, 0.4)
        assert (training.epochs, training.batch_size, training.lr) == (80, 256, 0.2)
        assert (training.weight_decay, training.momentum, training.lr_warmup_epochs) == (1e-4, 0.9, 0)
        assert (graph.k, graph.eta, own["warmup_epochs"]) == (100, 0.8, 15)
        assert (own["mixup_alpha"], own["mixup_views"]) == (0.5, "weak")
        assert (own["lambda_inst"], own["lambda_subgraph"], own["tau_inst"]) == (1, 1, 0.3)
        assert (training.strong_augmentation, graph.gamma) == {
            None: ("augmix", 3), "paper": ("augmix", 1), "release": ("augmix-last-chain", 3)
        }[preset]  # fmt: skip


def test_a_preset_with_a_network_keeps_its_own_choices() -> None:
    ours = make_method(get_cell("webvision50"), preset="webvision50-resnet50")
    assert (ours.name, ours.changes) == ("webvision50-resnet50", ())
    assert ours.config == complete_settings(load_preset("webvision50-resnet50"))
    assert (ours.config.training.network, ours.config.training.crop_size) == ("resnet50", 224)


@pytest.mark.parametrize("name", sorted(PAPER))
def test_nothing_of_photos_reaches_other_cells(name: str) -> None:
    changes = make_method(get_cell(name), preset="paper").changes
    assert {change.partition("=")[0] for change in changes} <= set(PER_DATA_SET)


def test_without_augmix_is_a_row_of_the_table() -> None:
    made = make_method(get_cell("webvision50"), ablate=["augmix"])
    assert made.name == "webvision50--without-augmix"
