"""Networks with a common interface: a trunk, followed by a linear classifier and a linear projector.

Weights are initialized by PyTorch's defaults for each layer from its global generator only, so
`torch.manual_seed` before building fixes them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor, cat, nn, stack
from torch.nn.functional import conv2d, normalize, pad, relu

from ..config.settings import Normalization, TrainingSettings, Trunk
from ..embed.backbones import TIMM_PREFIX, Backbone, require_timm
from ..errors import InputError, check_choice, suggest

EMBEDDING_DIM = 64
"""Length of z, as in the paper."""
PIXEL_CENTER, PIXEL_SCALE = 127.5, 64.0
"""Pixels enter every network as (pixel − center) / scale."""


EXPANSION = 4
"""Output channels of a bottleneck block per channel of its 3×3 convolution."""


class Output(NamedTuple):
    """Outputs of a network for a batch."""

    logits: Tensor
    """(B, K), before the softmax."""
    z: Tensor
    """(B, embedding_dim), float32, of unit length."""
    features: Tensor | None = None
    """(B, feature_dim), the trunk's, from which the others are computed; None if a pass doesn't keep them."""


class Network(nn.Module):
    """The interface of every network, and the heads they share. Subclasses implement `forward_features`."""

    def __init__(self, n_classes: int, feature_dim: int, embedding_dim: int = EMBEDDING_DIM) -> None:
        super().__init__()
        self.n_classes = n_classes
        self.feature_dim = feature_dim
        self.embedding_dim = embedding_dim
        self.classifier = nn.Linear(feature_dim, n_classes)
        self.projector = nn.Linear(feature_dim, embedding_dim)
        self.flip_tta = False
        """In evaluation mode, average over an image and its mirror image (`training.flip_tta`)."""
        self.crop_size = 0
        """In evaluation mode, take the center of larger images, of that side (`training.crop_size`)."""

    def forward_features(self, x: Tensor) -> Tensor:
        """The trunk: a batch of inputs to features (B, feature_dim)."""
        raise NotImplementedError

    def forward_layers(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features (B, width) of several depths, averaged over their feature maps; the trunk's come last."""
        return (self.forward_features(x),)

    def forward_head(self, features: Tensor) -> Output:
        """Logits and embeddings from features."""
        # In float32, since bf16 is too imprecise for z to have unit length.
        z = normalize(self.projector(features).float(), dim=1)
        return Output(self.classifier(features), z, features)

    def forward(self, x: Tensor) -> Output:
        """Logits and embeddings from inputs."""
        x = self._center(x)
        if self.training or not self.flip_tta:
            return self.forward_head(self.forward_features(x))
        return self._forward_mean(self.forward_features(cat([x, x.flip(-1)])))

    def forward_all(self, x: Tensor) -> tuple[Output, tuple[Tensor, ...]]:
        """The output of `forward` in evaluation mode, and features of several depths, in one pass."""
        x = self._center(x)
        if not self.flip_tta:
            layers = self.forward_layers(x)
            return self.forward_head(layers[-1]), layers
        layers = self.forward_layers(cat([x, x.flip(-1)]))
        return self._forward_mean(layers[-1]), tuple(map(_mean_of_both, layers))

    def linear_head(self) -> tuple[Tensor, Tensor]:
        """Weight and bias that map features to logits."""
        return self.classifier.weight, self.classifier.bias

    def _center(self, x: Tensor) -> Tensor:
        """The inputs, or the center of images in evaluation mode."""
        size = self.crop_size
        if self.training or not size or min(x.shape[2:]) <= size:
            return x
        top, left = ((side - size) // 2 for side in x.shape[2:])
        return x[:, :, top : top + size, left : left + size]

    def _forward_mean(self, seen: Tensor) -> Output:
        """The mean over images and their mirror images, given the features of both, stacked in this order."""
        out = self.forward_head(seen)
        logits, z, features = map(_mean_of_both, (out.logits, out.z, seen))
        return Output(logits, normalize(z, dim=1), features)


class Ensemble(nn.Module):
    """Several networks as one: the mean of their logits, and their z and features concatenated.

    z has unit length again, and the cosine of two samples is the mean of those of the members.
    """

    def __init__(self, members: Iterable[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    @property
    def feature_dim(self) -> int:
        """Total length of the features of all members."""
        return sum(member.feature_dim for member in self._networks())

    def forward(self, x: Tensor) -> Output:
        """Logits and embeddings from inputs."""
        return self._join([member(x) for member in self.members])

    def forward_all(self, x: Tensor) -> tuple[Output, tuple[Tensor, ...]]:
        """The same, and features of several depths, concatenated over the members."""
        found = [member.forward_all(x) for member in self._networks()]
        depths = zip(*(layers for _, layers in found), strict=True)
        return self._join([out for out, _ in found]), tuple(cat(layers, 1) for layers in depths)

    def linear_head(self) -> tuple[Tensor, Tensor]:
        """Weight and bias that map the concatenated features to the mean of the logits."""
        weights, biases = zip(*(member.linear_head() for member in self._networks()), strict=True)
        return cat(weights, 1) / len(weights), stack(biases).mean(0)

    def _networks(self) -> Iterable[Network]:
        return (member for member in self.members if isinstance(member, Network))

    @staticmethod
    def _join(outputs: list[Output]) -> Output:
        logits = stack([out.logits for out in outputs]).mean(0)
        features = cat([out.features for out in outputs if out.features is not None], 1)
        return Output(logits, cat([out.z for out in outputs], 1) / len(outputs) ** 0.5, features)


class PreActBlock(nn.Module):
    """Two 3×3 convolutions, each after BN-ReLU, with a shortcut.

    If the shape changes, the shortcut is a 1×1 convolution of the input after its BN-ReLU. Otherwise it is
    the input itself, as in He et al., or with `normalized_shortcut` the input after its BN-ReLU.
    """

    def __init__(
        self, channels_in: int, channels_out: int, stride: int, *, normalized_shortcut: bool = False
    ) -> None:
        super().__init__()
        self.normalized_shortcut = normalized_shortcut
        self.norm1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.shortcut: nn.Module | None = None
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, (B, channels_out, H / stride, W / stride)."""
        active = relu(self.norm1(x))
        if self.shortcut is not None:
            shortcut = self.shortcut(active)
        else:
            shortcut = active if self.normalized_shortcut else x
        out: Tensor = self.conv2(relu(self.norm2(self.conv1(active)))) + shortcut
        return out


class PreActResNet18(Network):
    """The paper's network for 32 px images: pre-activation ResNet-18 with a 3×3 stem and 512 features.

    `trunk` is `he`, with the identity shortcuts of He et al. and a BN-ReLU after the last block, or
    `release`, as in the authors' release (and in most methods it compares with): a BN-ReLU after the stem,
    shortcuts that start after the BN-ReLU of each block's input, and none at the end. Because each block of
    `release` normalizes the residual stream, it trains at a learning rate of 0.15 without warm-up. With
    identity shortcuts that rate diverges, unless the last sum is normalized and the rate is warmed up.
    """

    def __init__(
        self,
        n_classes: int,
        *,
        input_shape: tuple[int, ...] = (3, 32, 32),
        embedding_dim: int = EMBEDDING_DIM,
        trunk: Trunk = "he",
    ) -> None:
        super().__init__(n_classes, 512, embedding_dim)
        check_choice("trunk", trunk, Trunk)
        release = trunk == "release"
        self.stem = nn.Conv2d(_channels(input_shape), 64, 3, padding=1, bias=False)
        self.stem_norm = nn.Sequential(nn.BatchNorm2d(64), nn.ReLU()) if release else nn.Identity()
        blocks, before = [], 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            for channels_in, step in ((before, stride), (width, 1)):
                blocks.append(PreActBlock(channels_in, width, step, normalized_shortcut=release))
            before = width
        self.blocks = nn.Sequential(*blocks)
        self.final = nn.Identity() if release else nn.Sequential(nn.BatchNorm2d(512), nn.ReLU())

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W) to features (B, 512), averaged over the last feature map."""
        features: Tensor = self.final(self.blocks(self.stem_norm(self._enter(x)))).mean((2, 3))
        return features

    def forward_layers(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features after each block, then those of the trunk."""
        found, x = [], self.stem_norm(self._enter(x))
        for block in self.blocks:
            x = block(x)
            found.append(x.mean((2, 3)))
        return (*found, self.final(x).mean((2, 3)))

    def _enter(self, x: Tensor) -> Tensor:
        """The stem; on a GPU with zero channels added up to eight, which enables its fast kernels."""
        if not x.is_cuda or x.shape[1] >= 8:
            stem: Tensor = self.stem(x)
            return stem
        more = (0, 0, 0, 0, 0, 8 - x.shape[1])
        return conv2d(pad(x, more), pad(self.stem.weight, more), padding=1)


class BottleneckBlock(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, each with BN, that add to a shortcut; the 3×3 one has the stride."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.body = nn.Sequential(
            *_conv_norm(channels_in, width, 1),
            nn.ReLU(),
            *_conv_norm(width, width, 3, stride),
            nn.ReLU(),
            *_conv_norm(width, out, 1),
        )
        changes = stride != 1 or channels_in != out
        self.shortcut = nn.Sequential(*_conv_norm(channels_in, out, 1, stride)) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, (B, 4 · width, H / stride, W / stride)."""
        return relu(self.body(x) + self.shortcut(x))


class ResNet50(Network):
    """ResNet-50 (He et al., 2016) for photos, with strides in the 3×3 convolutions; 2048 features."""

    def __init__(
        self,
        n_classes: int,
        *,
        input_shape: tuple[int, ...] = (3, 224, 224),
        embedding_dim: int = EMBEDDING_DIM,
    ) -> None:
        super().__init__(n_classes, EXPANSION * 512, embedding_dim)
        self.stem = nn.Sequential(
            *_conv_norm(_channels(input_shape), 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)
        )
        stages, before = [], 64
        for width, depth, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            blocks = [BottleneckBlock(before, width, stride)]
            before = EXPANSION * width
            stages.append(
                nn.Sequential(*blocks, *(BottleneckBlock(before, width, 1) for _ in range(depth - 1)))
            )
        self.stages = nn.Sequential(*stages)

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W) to features (B, 2048), averaged over the last feature map."""
        features: Tensor = self.stages(self.stem(x)).mean((2, 3))
        return features

    def forward_layers(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features after each of the four stages."""
        found, x = [], self.stem(x)
        for stage in self.stages:
            x = stage(x)
            found.append(x.mean((2, 3)))
        return tuple(found)


class SmallConv(Network):
    """Two convolutions and a linear layer for images of a few pixels, fast on a CPU; 128 features.

    The first feature map is pooled before its BN-ReLU, which quarters the cost of the latter. The second
    keeps 4×4 positions, all that an 8×8 image has, because the position of a stroke distinguishes digits.
    Larger maps are averaged to 4×4, so that images can have any size. Training needs at least two samples per
    batch for the last norm.
    """

    def __init__(
        self,
        n_classes: int,
        *,
        input_shape: tuple[int, ...] = (1, 8, 8),
        embedding_dim: int = EMBEDDING_DIM,
    ) -> None:
        super().__init__(n_classes, 128, embedding_dim)
        channels = _channels(input_shape)
        # Averaging 4×4 positions to 4×4 would change nothing, but be a third of the network's work.
        small = all(7 <= side <= 8 for side in input_shape[1:])
        self.trunk = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1, bias=False),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.Identity() if small else nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(1024, 128, bias=False),
            nn.BatchNorm1d(128),
            nn.ReLU(),
        )

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W) to features (B, 128)."""
        features: Tensor = self.trunk(x)
        return features

    def forward_layers(self, x: Tensor) -> tuple[Tensor, ...]:
        """Features after each of the two convolutions, then those of the trunk."""
        first = self.trunk[:4](x)
        second = self.trunk[4:7](first)
        return first.mean((2, 3)), second.mean((2, 3)), self.trunk[7:](second)


FEW_FEATURES = 16
"""With fewer features their mean and length, which LayerNorm removes, may carry class information."""


class EmbeddingHead(Network):
    """One hidden layer on given embeddings, for use without images or with embeddings that are good already.

    Starts with LayerNorm, so that the length of an embedding doesn't matter. LayerNorm would leave too little
    of a few features, of two a single bit, so these are used as they are: standardized.
    """

    def __init__(
        self,
        n_classes: int,
        *,
        input_shape: tuple[int, ...],
        embedding_dim: int = EMBEDDING_DIM,
        hidden: int = 256,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(n_classes, hidden, embedding_dim)
        if len(input_shape) != 1:
            raise InputError(f"embedding-head takes embeddings (d,), not inputs of shape {input_shape}")
        width = input_shape[0]
        norm = nn.LayerNorm(width) if width >= FEW_FEATURES else nn.Identity()
        self.trunk = nn.Sequential(norm, nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout))

    def forward_features(self, x: Tensor) -> Tensor:
        """Map embeddings (B, d) to features (B, hidden)."""
        features: Tensor = self.trunk(x)
        return features


class TimmNetwork(Network):
    """A network of timm as the trunk, for images at their original size; see `backbones.Backbone`."""

    def __init__(
        self,
        n_classes: int,
        name: str,
        *,
        input_shape: tuple[int, ...],
        embedding_dim: int = EMBEDDING_DIM,
        pretrained: bool = False,
        normalization: Normalization = "own",
    ) -> None:
        channels = _channels(input_shape)
        height, width = input_shape[1:]
        if height != width:
            raise InputError(f"{TIMM_PREFIX}{name} takes square images, not {height} × {width} pixels")
        trunk = Backbone(
            name, pretrained=pretrained, channels=channels, size=height, normalization=normalization
        )
        super().__init__(n_classes, trunk.dim, embedding_dim)
        self.trunk = trunk

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, C, H, W), as scaled by `views.scale`, to features (B, feature_dim)."""
        features: Tensor = self.trunk(x * PIXEL_SCALE + PIXEL_CENTER)
        return features


NETWORKS: dict[str, Callable[..., Network]] = {
    "preact-resnet18": PreActResNet18,
    "resnet50": ResNet50,
    "small-conv": SmallConv,
    "embedding-head": EmbeddingHead,
}
"""Networks by their name in the settings; called as `(n_classes, input_shape=…, **options)`."""


FOR_FEATURES = {"embedding-head"}
"""Networks that take features; all others take images."""


def takes_features(name: str) -> bool:
    """Whether a network takes features rather than images."""
    return name in FOR_FEATURES


def require_network(name: str) -> None:
    """Refuse an unknown name, or one from an extra that is not installed."""
    if name.startswith(TIMM_PREFIX):
        require_timm(name.removeprefix(TIMM_PREFIX))
    elif name not in NETWORKS:
        raise InputError(f"{name}: no such network (one of timm is timm:NAME); {suggest(name, NETWORKS)}")


def build_network(
    name: str, n_classes: int, *, input_shape: tuple[int, ...], crop_size: int = 0, **options: Any
) -> Network:
    """Build a network by name for inputs of `input_shape` (of one sample, without the batch dimension).

    With a `crop_size` it sees crops of that side only.
    """
    shape = (input_shape[0], crop_size, crop_size) if crop_size else input_shape
    if name.startswith(TIMM_PREFIX):
        network: Network = TimmNetwork(
            n_classes, name.removeprefix(TIMM_PREFIX), input_shape=shape, **options
        )
    else:
        require_network(name)
        network = NETWORKS[name](n_classes, input_shape=shape, **options)
    network.crop_size = crop_size
    return network


def network_options(settings: TrainingSettings) -> dict[str, Any]:
    """Options of the network from the settings."""
    cropped = settings.crop_size and not takes_features(settings.network)
    options: dict[str, Any] = {"crop_size": settings.crop_size} if cropped else {}
    if settings.network.startswith(TIMM_PREFIX):
        if settings.normalization != "own":
            options["normalization"] = settings.normalization
        return {"pretrained": settings.pretrained, **options}
    return {"trunk": settings.trunk, **options} if settings.network == "preact-resnet18" else options


def _conv_norm(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> tuple[nn.Module, ...]:
    """A convolution that keeps the size, up to its stride, and its BN."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(channels_out)


def _mean_of_both(views: Tensor) -> Tensor:
    """The mean over two views of each input, stacked as all first views, then all second ones."""
    return views.float().reshape(2, -1, views.shape[1]).mean(0)


def _channels(input_shape: tuple[int, ...]) -> int:
    """The number of channels; refuses shapes other than those of images."""
    if len(input_shape) != 3:
        raise InputError(
            f"this network takes images (channels, height, width), not inputs of shape {input_shape}; "
            "for embeddings there is embedding-head (preset embeddings)"
        )
    return input_shape[0]
