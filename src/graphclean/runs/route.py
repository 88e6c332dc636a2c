"""The preset that `graphclean train` uses if none is named, and the reason."""

from dataclasses import dataclass

import torch

from ..config.presets import ENOUGH
from ..training.networks import takes_features
from .inputs import InputKind


@dataclass(frozen=True)
class Route:
    """A preset, and in one line the reason for it; None if there was no choice."""

    preset: str
    why: str | None = None


def choose_route(kind: InputKind, count: int, device: torch.device, network: str | None = None) -> Route:
    """The preset for `count` samples of a kind; a requested `network` decides how photos are read."""
    if kind == "features" or (network is not None and takes_features(network)):
        return Route("embeddings")
    gpu = device.type == "cuda"
    if kind == "images":
        if gpu and count >= ENOUGH:
            return Route(
                "cifar10-lond-fast",
                f"{ENOUGH:,} images or more, so 60 epochs will do (preset cifar10-lond-fast); "
                "preset cifar10-lond-plus has 150, for a better classifier",
            )
        if gpu or network is not None:
            return Route("cifar10-lond")
        return Route(
            "small-images",
            "no GPU, so a small network is trained (preset small-images), enough for digits and the like; "
            "photos saved as files get pretrained features, and preset cifar10-lond is the paper's network",
        )
    if network is not None:
        return Route("photos", f"{network} is trained on the photos themselves (preset photos)")
    if gpu and count >= ENOUGH:
        return Route(
            "photos",
            f"a GPU and {ENOUGH:,} photos or more, so the whole network is trained (preset photos); "
            "preset embeddings trains heads on pretrained features",
        )
    reason = f"under {ENOUGH:,} photos" if gpu else "no GPU"
    return Route(
        "embeddings",
        f"{reason}, so heads are trained on pretrained features (preset embeddings); "
        "preset photos trains the whole network",
    )
