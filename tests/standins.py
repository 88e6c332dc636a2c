"""Stand-ins for what the docs' pages ask for and a test can't have: servers, weights, hours, a browser."""

import threading
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from graphclean.bench.cells import CELLS, Cell
from graphclean.bench.noise import CIFAR10_CLASSES
from graphclean.bench.registry import SETS, NamedSet
from graphclean.config import Config, change_settings, load_preset
from tests.bench.builders import stripes
from tests.bench.photos import SMALL
from tests.data.builders import cifar_files, encode, tar, tiny_files, with_archive, with_files, zipped

BATCH = 24
"""Images in each of CIFAR's six batches."""
POOL = 20
"""Images of each of two classes of TinyImageNet."""


@contextmanager
def makers_server() -> Iterator[dict[str, NamedSet]]:
    """For the servers of the data sets' makers: one on loopback, with small archives in the official form.

    Gives the registry's entries that take these archives for the published ones.
    """
    files = cifar_files(BATCH, draw=stripes)
    cifar10 = SETS["cifar10"]
    assert cifar10.batches is not None
    contents = {
        "cifar10": tar({f"{cifar10.batches.folder}/{name}": data for name, data in files.items()}),
        "tinyimagenet": zipped(tiny_files(POOL)),
    }
    splits = {"cifar10": {"train": 5 * BATCH, "test": BATCH}, "tinyimagenet": {"train": 2 * POOL, "val": 2}}
    paths = {urlsplit(SETS[name].archive.url).path: content for name, content in contents.items()}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = paths[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        entries = {}
        for name, content in contents.items():
            named = with_files(cifar10, files) if name == "cifar10" else SETS[name]
            url = f"http://127.0.0.1:{server.server_port}{urlsplit(named.archive.url).path}"
            entries[name] = replace(with_archive(named, content, url), splits=splits[name])
        yield entries
        server.shutdown()
        thread.join()


def small_cells() -> dict[str, Cell]:
    """For cells with tens of thousands of images of no class, or of photos: the same with a few."""
    mixed = {name: replace(cell, n_ood=20, n_eval_ood=10) for name, cell in CELLS.items() if cell.ood}
    return mixed | {name: replace(cell, photos=SMALL) for name, cell in CELLS.items() if cell.photos}


def short_preset(name: str, start: Config | None = None) -> Config:
    """For the hours that a benchmark's preset takes: the same with two epochs of a small network."""
    small = {"training.epochs": 2, "method.warmup_epochs": 1, "training.network": "small-conv"}
    found = load_preset(name, start)
    crops = {"training.image_size": 32, "training.crop_size": 28} if found.training.crop_size else {}
    return change_settings(found, {**small, **crops})


def load_dataset(name: str, split: str) -> Any:
    """For `datasets.load_dataset` and the hub: CIFAR-10 in its form there, 40 images a split."""
    from datasets import ClassLabel, Dataset, Features, Image

    assert name == "uoft-cs/cifar10"
    labels = np.arange(40) % 10
    cells = [{"bytes": encode(image), "path": None} for image in stripes(labels, seed=len(split))]
    features = Features(img=Image(), label=ClassLabel(names=list(CIFAR10_CLASSES)))
    return Dataset.from_dict({"img": cells, "label": labels}, features=features)


def fake_sentence_transformers() -> types.ModuleType:
    """For sentence-transformers and its weights: an encoder that hashes words into 384 numbers."""
    module = types.ModuleType("sentence_transformers")

    class SentenceTransformer:
        def __init__(self, name: str) -> None:
            self.name = name

        def encode(self, texts: list[str]) -> np.ndarray:
            return HashingVectorizer(n_features=384, dtype=np.float32).transform(texts).toarray()

    module.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    return module


def write_browser(folder: Path) -> Path:
    """For the browser that `--open` starts: a command that writes down the address; see `opened`."""
    path = folder / "browser"
    path.write_text(f'#!/bin/sh\nprintf %s "$1" > "{folder / "opened"}"\n')
    path.chmod(0o755)
    return path
