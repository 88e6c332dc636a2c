"""Small data sets in the forms that people have."""

import hashlib
import io
import json
import pickle
import pickletools
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from graphclean.bench.registry import SETS, NamedSet


def pixels(count: int, side: int = 32, seed: int = 0) -> np.ndarray:
    """Images (N, 3, side, side)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3, side, side), dtype=np.uint8)


def encode(image: np.ndarray, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0).copy()).save(stream, kind)
    return stream.getvalue()


def write_table(
    path: Path,
    images: np.ndarray,
    labels: Any,
    *,
    names: tuple[str, ...] | None = None,
    columns: tuple[str, str] = ("img", "label"),
) -> Path:
    """A parquet table as the hub has it."""
    cells = [{"bytes": encode(image), "path": f"{i}.png"} for i, image in enumerate(images)]
    table = pa.table({columns[0]: cells, columns[1]: labels})
    if names is not None:
        features = {columns[0]: {"_type": "Image"}, columns[1]: {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=4)
    return path


def python2_pickle(value: Any) -> bytes:
    """A pickle as Python 2 wrote it, like those of CIFAR: protocol 2, arrays' bytes as text."""
    content = bytearray(pickle.dumps(value, 3))
    content[1] = 2
    swaps = {"BINBYTES": b"T", "SHORT_BINBYTES": b"U"}
    for operation, _, place in pickletools.genops(bytes(content)):
        if operation.name in swaps and place is not None:
            content[place : place + 1] = swaps[operation.name]
    return bytes(content).replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def cifar_files(
    count: int = 4,
    named: NamedSet = SETS["cifar10"],
    draw: Callable[[np.ndarray, int], np.ndarray] = lambda labels, seed: pixels(len(labels), seed=seed),
) -> dict[str, bytes]:
    """The batches of a small CIFAR, `count` images each, drawn from their labels and a seed."""
    batches = named.batches
    assert batches is not None
    names = list(named.classes or (f"class {i}" for i in range(named.n_classes)))
    files = {batches.meta: python2_pickle({batches.names_key: names, "num_vis": 3072})}
    for number, name in enumerate(name for split in batches.splits.values() for name in split):
        labels = [(number + i) % named.n_classes for i in range(count)]
        data = draw(np.array(labels), number).reshape(count, -1)
        files[name] = python2_pickle({"data": data, batches.label_key: labels, "batch_label": name})
    return files


def with_files(named: NamedSet, files: dict[str, bytes], archive: bytes = b"") -> NamedSet:
    """A registry entry that takes these files for the published ones."""
    assert named.batches is not None
    md5 = {name: hashlib.md5(content).hexdigest() for name, content in files.items()}
    return replace(with_archive(named, archive), batches=replace(named.batches, md5=md5))


def with_archive(named: NamedSet, content: bytes, url: str | None = None) -> NamedSet:
    """A registry entry that takes this content for the published archive."""
    archive = replace(
        named.archive,
        md5=hashlib.md5(content).hexdigest(),
        size=len(content),
        url=url or named.archive.url,
    )
    return replace(named, archive=archive)


def tar(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as file:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return stream.getvalue()


def tiny_files(each: int = 3) -> dict[str, bytes]:
    """TinyImageNet's own layout: 2 classes of `each` training images, 2 validation images, 1 test image."""
    *train, first, second, test = [encode(image, "JPEG") for image in pixels(2 * each + 3, side=64, seed=1)]
    files = {}
    for place, image in enumerate(train):
        wnid = f"n0{place // each}"
        files[f"train/{wnid}/images/{wnid}_{place % each}.JPEG"] = image
    files["train/n00/n00_boxes.txt"] = b"n00_0.JPEG\t0\t0\t1\t1\n"
    files |= {"val/images/val_0.JPEG": first, "val/images/val_1.JPEG": second}
    files["val/val_annotations.txt"] = b"val_0.JPEG\tn01\t0\t0\t1\t1\nval_1.JPEG\tn00\t0\t0\t1\t1\n"
    files["test/images/test_0.JPEG"] = test
    return {f"tiny-imagenet-200/{name}": content for name, content in files.items()}


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder
