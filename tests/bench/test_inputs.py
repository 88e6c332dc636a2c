"""What a cell is drawn from: classes of one set as known and OOD, and labels that people gave."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphclean.bench import inputs
from graphclean.bench.cells import get_cell
from graphclean.bench.human import HUMAN, HUMAN_FILES, HUMAN_FOLDER, read_human_labels
from graphclean.bench.inputs import check_sources, load_sources, prepare_material
from graphclean.bench.noise import CIFAR10_CLASSES
from graphclean.bench.registry import get_set
from graphclean.data.decode import LabeledImages
from graphclean.errors import InputError
from tests.bench.builders import TRAIN, write_root

TRUTH = np.arange(TRAIN) % 10


def write_human(root: Path, found: dict[str, Any], base: str = "cifar10") -> Path:
    path = root / HUMAN_FOLDER / HUMAN_FILES[base]
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(found, path)
    return path


def people(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(TRAIN) < 0.3, rng.integers(0, 10, TRAIN), TRUTH)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A made-up file of the published form beside a small CIFAR-10."""
    names = [key for base, key in HUMAN.values() if base == "cifar10"]
    found = {"clean_label": TRUTH, **{name: people(seed) for seed, name in enumerate(names)}}
    write_human(tmp_path, found)
    return write_root(tmp_path)


def test_each_cell_trains_on_its_own_column(root: Path, tmp_path: Path) -> None:
    cells = [name for name, (base, _) in HUMAN.items() if base == "cifar10"]
    for seed, name in enumerate(cells):
        cell = get_cell(name)
        assert cell.n_classes == 10
        check_sources([cell], "test", root)
        sources = load_sources(cell, "test", root)
        material = prepare_material(cell, 5, "test", sources, tmp_path / f"{seed}.npz")
        assert np.array_equal(material.draw.labels, people(seed))
        assert np.array_equal(material.draw.truth, TRUTH)
        again = prepare_material(cell, 5, "test", sources, tmp_path / f"{seed}.npz")
        assert again.draw.digest() == material.draw.digest()
    assert len(CIFAR10_CLASSES) == 10


@pytest.mark.parametrize("form", ["lists", "tensors", "numpy 1", "before zip"])
def test_other_ways_in_which_such_a_file_is_written(tmp_path: Path, form: str) -> None:
    found: dict[str, Any] = {"clean_label": TRUTH, "worse_label": people(0)}
    if form == "lists":
        found = {name: values.tolist() for name, values in found.items()}
    if form == "tensors":
        found = {name: torch.as_tensor(values) for name, values in found.items()}
    path = write_human(tmp_path, found)
    if form == "before zip":
        torch.save(found, path, _use_new_zipfile_serialization=False)
    if form == "numpy 1":
        made = io.BytesIO(path.read_bytes())
        with zipfile.ZipFile(made) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                new.writestr(
                    name, old.read(name).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
                )
    assert np.array_equal(read_human_labels("cifar10", "worse_label", TRUTH, tmp_path), people(0))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_a_file_of_people_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"CIFAR-10_human\.pt: no such file; it is published at"):
        check_sources([get_cell("cifar10n/worst")], "test", write_root(tmp_path))
    good = {"clean_label": TRUTH, "worse_label": people(0)}
    for found, message in (
        ({"clean_label": TRUTH}, "not the published file with its worse_label"),
        ({**good, "clean_label": TRUTH[::-1].copy()}, "not the truth of cifar10 in its order"),
        ({**good, "worse_label": people(0)[1:]}, "not one whole number for each of 150 images"),
        ({**good, "worse_label": people(0) / 2}, "damaged"),
        ({**good, "more": Evil()}, "damaged, or not the published file"),
    ):
        write_human(tmp_path, found)
        with pytest.raises(InputError, match=message):
            read_human_labels("cifar10", "worse_label", TRUTH, tmp_path)
    write_human(tmp_path, good).write_bytes(b"no")
    with pytest.raises(InputError, match="damaged"):
        read_human_labels("cifar10", "worse_label", TRUTH, tmp_path)
    assert not (tmp_path / "ran").exists()


def test_classes_of_the_base_set_as_ood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training images of the others are trained on, their test images scored."""
    made = {}
    for split, count in (("train", 2000), ("test", 400)):
        labels = np.random.default_rng(count).permutation(count) % 100
        images = np.zeros((count, 3, 32, 32), dtype=np.uint8)
        images[:, 0, 0, 0], images[:, 0, 0, 1] = labels, split == "test"
        made[split] = LabeledImages(images, labels, tuple(map(str, range(100))))
    monkeypatch.setattr(inputs, "load_split", lambda _, split, *__, **___: made[split])
    cell = get_cell("cifar80n/sym20")
    assert get_set(cell.base).splits["train"] == 50_000
    for split, trained, scored in (("test", 400, 80), ("dev", 400, 0)):
        sources = load_sources(cell, split, None)  # type: ignore[arg-type]
        assert sources.trained_pool == trained
        small = prepare_material(cell, 0, split, sources, tmp_path / f"{split}.npz")  # type: ignore[arg-type]
        images, draw = small.train_images().numpy(), small.draw
        assert (images[:, 0, 0, 1] == 0).all()
        known = draw.truth >= 0
        assert np.array_equal(images[known, 0, 0, 0], draw.truth[known])
        assert (images[~known, 0, 0, 0] >= 80).all()
        assert draw.labels.max() < 80
        seen = small.scored_images().numpy()
        unknown = draw.eval_truth < 0
        assert (seen[unknown, 0, 0, 0] >= 80).all()
        assert (seen[:, 0, 0, 1] == (split == "test")).all()
        assert split == "dev" or unknown.sum() == scored
