"""Networks of timm without their classifier, with the scaling they expect; behind the extra `timm`."""

import difflib
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config.settings import Normalization
from ..errors import InputError, extra

TIMM_PREFIX = "timm:"
IMAGENET_STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's pixels, which are from 0 to 1, by color."""


class Backbone(nn.Module):
    """A network of timm from pixels (0 to 255) to pooled features, scaled as in its training."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        name: str,
        *,
        pretrained: bool,
        channels: int = 3,
        size: int | None = None,
        weights: Path | None = None,
        normalization: Normalization = "own",
    ) -> None:
        """`name` is timm's name; images have `size` pixels a side, or the size the network was trained at.

        `weights` is a file of pretrained weights to load instead of those that timm would download. With the
        `normalization` `imagenet`, pixels are scaled by ImageNet's statistics instead.
        """
        super().__init__()
        timm = require_timm(name)
        local = {"pretrained_cfg_overlay": {"file": str(weights)}} if weights is not None else {}
        try:
            self.network: Any = timm.create_model(
                name,
                pretrained=pretrained,
                num_classes=0,
                in_chans=channels,
                **_resized(timm, name, size),
                **local,
            )
        except Exception as error:  # unknown weights, no connection, or an unsupported size
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise InputError(f"{TIMM_PREFIX}{name}: can't be loaded: {reason}") from error
        config = timm.data.resolve_model_data_config(self.network)
        self.size: int = size if size is not None else int(config["input_size"][-1])
        # Not in the state: name and options of a saved network determine its scaling.
        statistics = (config["mean"], config["std"]) if normalization == "own" else IMAGENET_STATISTICS
        for part, values in zip(("mean", "std"), statistics, strict=True):
            self.register_buffer(part, _per_channel(values, channels), persistent=False)
        self.dim = self._measure(channels)

    def forward(self, pixels: Tensor) -> Tensor:
        """Features (B, dim) of float pixels (B, C, size, size)."""
        x = (pixels / 255 - self.mean) / self.std
        features: Tensor = self.network.forward_head(self.network.forward_features(x), pre_logits=True)
        return features

    @torch.no_grad()
    def _measure(self, channels: int) -> int:
        """The number of features, measured because timm's count omits what some heads add."""
        training = self.training
        self.eval()
        width = self(torch.zeros(1, channels, self.size, self.size)).shape[1]
        self.train(training)
        return int(width)


def require_timm(name: str) -> Any:
    """Import timm, and check that it has a network of that name."""
    try:
        timm = import_module("timm")
        import_module("timm.data")
    except Exception as error:  # with an incompatible torch, torchvision raises more than ImportError
        raise InputError(f"{TIMM_PREFIX}{name} needs {extra('timm')}") from error
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=1, cutoff=0)
        hint = f"; did you mean {TIMM_PREFIX}{near[0]}?" if near else ""
        raise InputError(f"{TIMM_PREFIX}{name}: timm has no such network{hint}")
    return timm


def _resized(timm: Any, name: str, size: int | None) -> dict[str, Any]:
    """The option that sets the image size of transformers; convolutional networks accept any size and don't
    have it.
    """
    config = timm.get_pretrained_cfg(name)
    fixed = bool(getattr(config, "fixed_input_size", False))
    return {"img_size": size} if fixed and size is not None else {}


def _per_channel(values: Any, channels: int) -> Tensor:
    """Values per RGB channel, or their mean for one channel."""
    tensor = torch.tensor([float(value) for value in values])
    return (tensor if channels == 3 else tensor.mean().expand(channels).clone()).view(1, -1, 1, 1)
