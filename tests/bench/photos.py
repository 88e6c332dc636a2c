"""A small WebVision and ILSVRC12 in their official layouts."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from graphclean.bench.cells import CELLS, Cell
from graphclean.bench.webvision import PhotoPart, WebVisionClasses

IDS = ("n01440764", "n01443537", "n01484850", "n01491361", "n01494475", "n01496331")
"""The first six classes; the lists go on with a seventh, which is not used."""
NEXT = "n01498041"
COUNTS: dict[PhotoPart, int] = {"train": 120, "val": 36, "ilsvrc12": 24}
SMALL = WebVisionClasses(len(IDS), IDS[-1], **COUNTS)
WRONG_OF = 8
"""Every eighth training photo is of the class after the one it was found by."""


def photo(label: int, seed: int) -> Image.Image:
    """A photo, wider or higher than square, whose color and stripes tell its class."""
    rng = np.random.default_rng(seed)
    height, width = (40, 40 + 2 * (seed % 9)) if seed % 2 else (40 + 2 * (seed % 9), 40)
    pixels = rng.normal(0, 10, (height, width, 3)) + 60
    pixels[:, :, label % 3] += 90
    if label >= 3:
        pixels[np.arange(height) % 8 < 4] += 70
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def write_webvision(root: Path, counts: dict[PhotoPart, int] | None = None) -> Path:
    """WebVision below `root`, with a class more than is used, and some photos under a wrong label."""
    counts, folder = {**COUNTS, **(counts or {})}, root / "webvision"
    (folder / "info").mkdir(parents=True)
    names = [f"{wordnet} a fish, a kind of fish\n" for wordnet in (*IDS, NEXT)]
    (folder / "info" / "synsets.txt").write_text("".join(names))
    train, val = [], []
    for i in range(counts["train"]):
        label = i % len(IDS)
        name = f"google/q{label:04}/found {i}.jpg" if i == 5 else f"google/q{label:04}/{i}.jpg"
        save(photo((label + 1) % len(IDS) if i % WRONG_OF == 3 else label, i), folder / name)
        train.append(f"{name} {label}\n")
    train.insert(7, f"google/q0004/not-there.jpg {len(IDS)}\n")
    (folder / "info" / "train_filelist_google.txt").write_text("".join(train))
    for i in range(counts["val"]):
        name = f"val{i:06}.jpg"
        save(photo(i % len(IDS), 1000 + i), folder / "val_images_256" / name)
        val.append(f"{name} {i % len(IDS)}\n")
    (folder / "info" / "val_filelist.txt").write_text("".join([*val, f"valother.jpg {len(IDS)}\n"]))
    return root


def write_ilsvrc12(folder: Path, form: str, count: int = COUNTS["ilsvrc12"]) -> Path:
    """ILSVRC12's validation set in `folder`: folders by `id` or `number`, or a flat one with a `list`."""
    lines = []
    for i in range(count):
        label, name = i % len(IDS), f"ILSVRC2012_val_{i:08}.JPEG"
        place = {"id": f"{IDS[label]}/", "number": f"{label}/", "list": ""}[form]
        save(photo(label, 2000 + i), folder / "val" / f"{place}{name}")
        lines.append(f"{name} {label}\n")
    if form == "list":
        (folder / "imagenet_val.txt").write_text("".join([*lines, f"other.JPEG {len(IDS)}\n"]))
    else:
        save(photo(0, 1), folder / "val" / (NEXT if form == "id" else str(len(IDS))) / "other.JPEG")
    return folder


def save(image: Image.Image, path: Path) -> None:
    """Save as JPEG, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, "JPEG", quality=95)


def write_webvision_sets(root: Path) -> Path:
    """WebVision and ILSVRC12."""
    write_ilsvrc12(write_webvision(root) / "imagenet", "id")
    return root


def webvision_cells() -> tuple[Cell, Cell]:
    """The cells of the small layout, which is named: the real ones refuse it."""
    whole = CELLS["webvision50"]
    first = replace(whole, name="webvision50/tiny", photos=SMALL)
    return first, replace(first, name="webvision50/tiny/ilsvrc12", scored_by=first.name)
