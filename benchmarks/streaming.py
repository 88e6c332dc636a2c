"""Photos that stream: images a second by stage, and the share of an epoch in which the device works.

Photos are those of a folder (its option photos), or 512 x 384 mosaics of the data root's photos, or of noise.

    python benchmarks/streaming.py --photos /data/imagenet/train
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from common import RESULTS, data_root, save
from graphclean.config import TrainingSettings
from graphclean.data.image_folder import ImageFiles, read_image_folder
from graphclean.data.images import Decoder, decoder_version, find_decoder, read_image
from graphclean.data.photo_stream import Keeping, PhotoStream
from graphclean.data.photo_workers import PhotoJob, decode_square
from graphclean.runs.device import choose_device
from graphclean.training.batches import Inputs, StreamedInputs, place_inputs, shuffled_batches
from graphclean.training.views import Views, scale

SEED = 0
REPEATS = 5
ONE_CORE = 64
"""Photos decoded one by one in this process."""
KEEPING: tuple[Keeping, ...] = ("disk", "encoded", "decode")
TILE, TILES = 128, (4, 3)
GOAL = 0.9
"""Busy share to reach from the second epoch on."""


class Block(nn.Module):
    """A residual block of two 3 x 3 convolutions, or of 1 x 1, 3 x 3, 1 x 1 where `bottleneck`."""

    def __init__(self, before: int, width: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        out = 4 * width if bottleneck else width
        shapes = [(before, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        if not bottleneck:
            shapes = [(before, width, 3, stride), (width, width, 3, 1)]
        layers: list[nn.Module] = []
        for start, end, size, step in shapes:
            layers += [
                nn.Conv2d(start, end, size, step, size // 2, bias=False),
                nn.BatchNorm2d(end),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers[:-1])
        same = before == out and stride == 1
        self.shortcut: nn.Module = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(before, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(depth: int, n_classes: int = 1000) -> nn.Module:
    """ResNet-18 or ResNet-50 (He et al., 2016), with the stride in the 3 x 3 convolution."""
    bottleneck = depth == 50
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for stage, count in enumerate((3, 4, 6, 3) if bottleneck else (2, 2, 2, 2)):
        for block in range(count):
            width = 64 * 2**stage
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Block(before, width, stride, bottleneck=bottleneck))
            before = 4 * width if bottleneck else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, n_classes))


class Stepper:
    """A training step on both views of a batch, as the trainer makes it."""

    def __init__(self, depth: int, size: int, batch: int, device: torch.device) -> None:
        torch.manual_seed(SEED)
        self.device = device
        self.network = resnet(depth).to(device)
        if device.type == "cuda":
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1, 0.9, fused=device.type == "cuda")
        generator = torch.Generator(device).manual_seed(SEED)
        settings = TrainingSettings(image_size=size, crop_scale=0.2, strong_augmentation="augmix")
        self.views = Views(settings, generator)
        self.labels = torch.randint(0, 1000, (2 * batch,), generator=generator, device=device)

    def __call__(self, batch: Tensor) -> None:
        """One update; returns before the device is done."""
        views = self.views(batch)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            loss = nn.functional.cross_entropy(self.network(views).float(), self.labels[: len(views)])
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def sync(device: torch.device) -> None:
    """Wait until the device has done all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rate(work: Callable[[], Any], count: int, device: torch.device, repeats: int = REPEATS) -> dict[str, Any]:
    """Images a second: the median of `repeats`, after one that warms up."""
    times = []
    for _ in range(repeats + 1):
        sync(device)
        started = time.perf_counter()
        work()
        sync(device)
        times.append(time.perf_counter() - started)
    return {"images_per_second": count / statistics.median(times[1:]), "repeats": repeats, "images": count}


def epoch(inputs: Inputs, batches: Tensor, step: Callable[[Tensor], None]) -> dict[str, float]:
    """One epoch; a step waits from when the device has nothing left to do until its batch is there."""
    sync(inputs.device)
    started = time.perf_counter()
    waited = 0.0
    stream = iter(inputs.stream(batches))
    for _ in range(len(batches)):
        sync(inputs.device)
        asked = time.perf_counter()
        batch = next(stream)
        sync(inputs.device)
        waited += time.perf_counter() - asked
        step(batch)
    next(stream, None)  # ends the threads
    sync(inputs.device)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "waited": waited,
        "busy": 1 - waited / seconds,
        "images_per_second": batches.numel() / seconds,
    }


def write_photos(folder: Path, count: int, sources: list[Path]) -> None:
    """Mosaics of photos, in two classes; of smooth noise, if there are none."""
    rng = np.random.default_rng(SEED)
    for number in range(count):
        mosaic = Image.new("RGB", (TILE * TILES[0], TILE * TILES[1]))
        for place in range(TILES[0] * TILES[1]):
            if sources:
                with Image.open(sources[rng.integers(len(sources))]) as opened:
                    tile = opened.convert("RGB").resize((TILE, TILE))
            else:
                coarse = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
                tile = Image.fromarray(coarse).resize((TILE, TILE))
            mosaic.paste(tile, (TILE * (place % TILES[0]), TILE * (place // TILES[0])))
        path = folder / str(number % 2) / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        mosaic.save(path, quality=88)


def decode_one_by_one(images: ImageFiles, size: int) -> dict[str, Any]:
    """One core, in this process: whole photos, and the squares of streamed ones, by each decoder."""
    paths = [path for path in images.paths if path is not None][:ONE_CORE]
    contents = [path.read_bytes() for path in paths]
    cpu = torch.device("cpu")
    decoders: list[Decoder] = ["pillow", *(["simplejpeg"] if find_decoder() != "pillow" else [])]
    found: dict[str, Any] = {"read": rate(lambda: [path.read_bytes() for path in paths], len(paths), cpu)}
    for decoder in decoders:
        plain = PhotoJob(size, decoder, measured=False)

        def whole(decoder: Decoder = decoder) -> None:
            for content in contents:
                read_image(content, None, decoder)

        def squares(job: PhotoJob) -> None:
            for content in contents:
                decode_square(content, job)

        found[decoder] = {
            "version": decoder_version(decoder),
            "whole": rate(whole, len(paths), cpu),
            "squares": rate(partial(squares, plain), len(paths), cpu),
            "measured": rate(partial(squares, replace(plain, measured=True)), len(paths), cpu),
        }
    return found


@contextmanager
def streamed(
    images: ImageFiles, size: int, keep: Keeping, workers: int
) -> Iterator[tuple[PhotoStream, float]]:
    """A stream that has read all photos, and the seconds that took, with the start of the workers."""
    with PhotoStream(images, size, place=str(images.root), keep=keep, workers=workers) as photos:
        started = time.perf_counter()
        photos.scan()
        yield photos, time.perf_counter() - started


def measure_views(size: int, batch: int, device: torch.device) -> dict[str, Any]:
    """Both views of a batch on the device."""
    images = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8).to(device)
    plain = TrainingSettings(image_size=size, crop_scale=0.2, strong_augmentation="off")
    found = {"scaled only": rate(lambda: scale(images), batch, device)}
    for name, strong in (
        ("crops", "off"),
        ("crops, augmix", "augmix"),
        ("crops, autoaugment", "autoaugment"),
    ):
        settings = replace(plain, strong_augmentation=strong)  # type: ignore[arg-type]
        views = Views(settings, torch.Generator(device).manual_seed(SEED))
        found[name] = rate(partial(views, images), batch, device)
    return found


def measure_epochs(
    args: argparse.Namespace, images: ImageFiles, device: torch.device
) -> list[dict[str, Any]]:
    """Epochs of each network from each place, as training would read them; the first one warms up."""
    found = []
    for keep in KEEPING:
        with streamed(images, args.size, keep, args.workers) as (photos, seconds):
            ways: dict[str, Inputs] = {
                "streamed": StreamedInputs(photos.read, len(photos), photos.shape[1:], device)
            }
            if keep == "disk" and device.type == "cuda":
                ways["as placed"] = place_inputs(photos, device)
            generator = torch.Generator().manual_seed(SEED)
            none = torch.zeros(len(photos), dtype=torch.bool)
            for way, inputs in ways.items():
                for depth in args.networks:
                    step = Stepper(depth, args.size, args.batch, device)
                    epochs = [
                        epoch(
                            inputs,
                            shuffled_batches(len(photos), args.batch, generator, none).to(device),
                            step,
                        )
                        for _ in range(args.epochs + 1)
                    ]
                    found.append(
                        {
                            "keep": keep,
                            "way": way if way == "streamed" else type(inputs).__name__,
                            "network": f"ResNet-{depth}",
                            "scan_seconds": seconds,
                            "epochs": epochs[1:],
                            "busy": statistics.median(one["busy"] for one in epochs[1:]),
                        }
                    )
                    print(keep, way, depth, f"busy {found[-1]['busy']:.3f}", flush=True)
    return found


def measure_steps(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Steps of each network alone, on a batch that is on the device."""
    batch = torch.randint(0, 256, (args.batch, 3, args.size, args.size), dtype=torch.uint8).to(device)
    found = {}
    for depth in args.networks:
        step = Stepper(depth, args.size, args.batch, device)
        found[f"ResNet-{depth}"] = rate(partial(step, batch), args.batch, device)
    return found


def measure_reading(args: argparse.Namespace, images: ImageFiles, device: torch.device) -> dict[str, Any]:
    """All photos once, in random order and in batches: the first time, and every later one, by place."""
    found: dict[str, Any] = {}
    for keep in KEEPING:
        with streamed(images, args.size, keep, args.workers) as (photos, seconds):
            first = {"images_per_second": len(images.ids) / seconds, "repeats": 1, "images": len(images.ids)}
            found[keep] = {
                "first": first,
                "later": rate(partial(read_all, photos, args.batch), len(photos), device),
            }
            if keep == "disk" and device.type == "cuda":
                pinned = photos.read(torch.arange(min(args.batch, len(photos)))).pin_memory()
                found["to the device"] = rate(partial(pinned.to, device), len(pinned), device)
    shutil.rmtree(os.environ["GRAPHCLEAN_CACHE"])
    return found


def read_all(photos: PhotoStream, batch: int) -> None:
    """Read all photos in random order."""
    order = torch.randperm(len(photos), generator=torch.Generator().manual_seed(SEED))
    for part in torch.split(order, batch):
        photos.read(part)


def main() -> None:
    """Measure everything and record it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, help="a folder of class folders of photos")
    parser.add_argument("--data-root")
    parser.add_argument("--count", type=int, default=20_000, help="mosaics, if no photos are named")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=3, help="measured ones, after one that warms up")
    parser.add_argument("--networks", type=int, nargs="+", default=[18, 50], choices=(18, 50))
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    device = choose_device(args.device)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["GRAPHCLEAN_CACHE"] = f"{folder}/cache"
        if args.photos is None:
            root = data_root(args.data_root)
            sources = sorted((root / "photos" / "train").glob("*/*.jpg")) if root is not None else []
            write_photos(Path(folder) / "photos", args.count, sources)
            what = f"512 x 384 mosaics of {'photos' if sources else 'noise'}, JPEG quality 88"
        else:
            what = "photos"
        images = read_image_folder(args.photos if args.photos is not None else Path(folder) / "photos")
        sizes = [path.stat().st_size for path in images.paths if path is not None]
        result = {
            "photos": {"what": what, "count": len(sizes), "mean_bytes": statistics.mean(sizes)},
            "settings": {name: getattr(args, name) for name in ("size", "batch", "workers")},
            "device": device.type,
            "goal": GOAL,
            "one_core": decode_one_by_one(images, args.size),
            "reading": measure_reading(args, images, device),
            "views": measure_views(args.size, args.batch, device),
            "steps": measure_steps(args, device),
            "epochs": measure_epochs(args, images, device),
        }
    print(save(f"streaming-{device.type}", result, args.out))


if __name__ == "__main__":
    main()
