import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, conv2d, cross_entropy, layer_norm, relu

from graphclean.config.settings import Trunk
from graphclean.errors import InputError
from graphclean.training.networks import (
    NETWORKS,
    BottleneckBlock,
    EmbeddingHead,
    Network,
    PreActBlock,
    PreActResNet18,
    ResNet50,
    SmallConv,
    build_network,
)

SHAPES = {
    "preact-resnet18": (3, 32, 32), "resnet50": (3, 32, 32), "small-conv": (1, 8, 8), "embedding-head": (20,)
}  # fmt: skip
FEATURES = {"preact-resnet18": 512, "resnet50": 2048, "small-conv": 128, "embedding-head": 256}

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def build(name: str, seed: int = 0, n_classes: int = 5) -> Network:
    torch.manual_seed(seed)
    return build_network(name, n_classes, input_shape=SHAPES[name])


def inputs(name: str, n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *SHAPES[name], generator=torch.Generator().manual_seed(seed))


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_every_network_is_covered_here() -> None:
    assert set(NETWORKS) == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_unit_embeddings(name: str) -> None:
    net, x = build(name), inputs(name, 4)
    features = net.forward_features(x)
    logits, z, own = net.forward_head(features)
    assert own is features
    assert features.shape == (4, FEATURES[name]) == (4, net.feature_dim)
    assert logits.shape == (4, 5) == (4, net.n_classes)
    assert z.shape == (4, 64) == (4, net.embedding_dim)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(logits, features @ net.classifier.weight.T + net.classifier.bias)
    raw = features @ net.projector.weight.T + net.projector.bias
    torch.testing.assert_close(z, raw / raw.square().sum(1, keepdim=True).sqrt())


@pytest.mark.parametrize("name", SHAPES)
def test_forward_is_the_head_of_the_features(name: str) -> None:
    net, x = build(name).eval(), inputs(name, 3)
    torch.testing.assert_close(net(x), net.forward_head(net.forward_features(x)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("preact-resnet18", [*(f"blocks.{i}" for i in range(8)), "final"]),
        ("resnet50", [f"stages.{i}" for i in range(4)]),
        ("small-conv", ["trunk.3", "trunk.6", "trunk"]),
        ("embedding-head", ["trunk"]),
    ],
)
def test_layers_are_the_means_of_maps_on_the_way(name: str, modules: list[str]) -> None:
    net, x = build(name).eval(), inputs(name, 3)
    seen: dict[str, Tensor] = {}
    for module in modules:
        net.get_submodule(module).register_forward_hook(
            lambda _, __, out, module=module: seen.update({module: out})
        )
    with torch.no_grad():
        features = net.forward_features(x)
        on_the_way = [seen[module] for module in modules]
        layers = net.forward_layers(x)
    assert len(layers) == len(modules)
    for layer, out in zip(layers, on_the_way, strict=True):
        torch.testing.assert_close(layer, out.flatten(2).mean(2) if out.ndim == 4 else out)
    torch.testing.assert_close(layers[-1], features)


def test_embeddings_are_normalized_in_float32() -> None:
    """As under bf16 autocast, where the projector's output comes in half precision."""

    class Half(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features[:, :64].bfloat16()

    net = build("embedding-head")
    net.projector = Half()  # type: ignore[assignment]
    z = net(inputs("embedding-head", 8)).z
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.norm(dim=1), torch.ones(8), rtol=0, atol=1e-6)


@pytest.mark.parametrize("trunk", ["he", "release"])
@pytest.mark.parametrize("channels", [1, 3])
def test_preact_parameters_by_hand(trunk: Trunk, channels: int) -> None:
    def block(a: int, b: int) -> int:
        norms, convs = 2 * a + 2 * b, 9 * a * b + 9 * b * b
        return norms + convs + (a * b if a != b else 0)

    expected = 9 * channels * 64
    expected += 2 * block(64, 64)
    expected += block(64, 128) + block(128, 128)
    expected += block(128, 256) + block(256, 256)
    expected += block(256, 512) + block(512, 512)
    norm = 512 if trunk == "he" else 64  # the last BN-ReLU, or that of the stem
    expected += 2 * norm
    expected += 512 * 10 + 10
    expected += 512 * 64 + 64
    net = PreActResNet18(10, input_shape=(channels, 32, 32), trunk=trunk)
    assert count(net) == expected
    if channels == 3:  # stem and blocks 11,166,016
        assert expected == 11_203_978 + 2 * norm


def test_preact_halves_the_map_three_times() -> None:
    net = PreActResNet18(10)
    x = net.stem(inputs("preact-resnet18", 2))
    sizes = []
    for part in net.blocks:
        x = part(x)
        sizes.append((x.shape[1], x.shape[2], x.shape[3]))
    assert sizes[::2] == sizes[1::2] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]


def test_resnet50_has_the_published_parameters_and_maps() -> None:
    """25.56 million with 1,000 classes, and a map of 7 × 7 for an image of 224 pixels."""
    with torch.device("meta"):
        net = ResNet50(1000)
        x = net.stem(torch.empty(1, 3, 224, 224))
        maps = [tuple(x.shape[1:])]
        for stage in net.stages:
            x = stage(x)
            maps.append(tuple(x.shape[1:]))
    assert count(net) - count(net.projector) == 25_557_032
    assert maps == [(64, 56, 56), (256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)]
    blocks = [part for part in net.modules() if isinstance(part, BottleneckBlock)]
    assert [type(block.shortcut) is nn.Identity for block in blocks] == [
        place > 0 for depth in (3, 4, 6, 3) for place in range(depth)
    ]


@pytest.mark.parametrize("stride", [1, 2])
def test_bottleneck_worked_out_by_hand(stride: int) -> None:
    torch.manual_seed(0)
    part = BottleneckBlock(8, 4, stride).eval()
    x = torch.randn(2, 8, 6, 6)
    body = [layer for layer in part.body if not isinstance(layer, nn.ReLU)]
    y = relu(_norm_only(conv2d(x, body[0].weight), body[1]))  # type: ignore[arg-type]
    y = relu(_norm_only(conv2d(y, body[2].weight, stride=stride, padding=1), body[3]))  # type: ignore[arg-type]
    y = _norm_only(conv2d(y, body[4].weight), body[5])  # type: ignore[arg-type]
    assert isinstance(part.shortcut, nn.Sequential)
    around = part.shortcut
    z = _norm_only(conv2d(x, around[0].weight, stride=stride), around[1])  # type: ignore[arg-type]
    torch.testing.assert_close(part(x), relu(y + z))


def _norm_only(x: Tensor, norm: nn.Module) -> Tensor:
    """What an untrained BN in evaluation mode does."""
    assert isinstance(norm, nn.BatchNorm2d)
    return x / (1 + norm.eps) ** 0.5


@pytest.mark.parametrize(("size", "first"), [(8, 2), (7, 2), (12, 0)])
@pytest.mark.parametrize("flip_tta", [False, True])
def test_evaluation_sees_the_center_of_larger_images(size: int, first: int, flip_tta: bool) -> None:
    """As torchvision's center crop: of 12 − 7 pixels, two on the left and three on the right."""
    torch.manual_seed(0)
    net = build_network("small-conv", 3, input_shape=(3, 12, 12), crop_size=size).eval()
    plain = build_network("small-conv", 3, input_shape=(3, size, size)).eval()
    plain.load_state_dict(net.state_dict())
    net.flip_tta = plain.flip_tta = flip_tta
    x = torch.randn(4, 3, 12, 12)
    center = x[:, :, first : first + size, first : first + size]
    assert torch.equal(net(x).logits, plain(center).logits)
    assert torch.equal(net.forward_all(x)[1][0], plain.forward_all(center)[1][0])
    assert torch.equal(net(center).logits, plain(center).logits)
    assert torch.equal(net.train()(center).logits, plain.train()(center).logits)


@pytest.mark.parametrize("widths", [(6, 6, 1), (6, 8, 2), (6, 8, 1), (6, 6, 2)])
def test_block_shortcut(widths: tuple[int, int, int]) -> None:
    """With its last convolution at zero only the shortcut is left: the input, or a 1×1 of its BN-ReLU."""
    torch.manual_seed(0)
    part = PreActBlock(*widths)
    nn.init.zeros_(part.conv2.weight)
    x = torch.randn(4, 6, 8, 8) + 1
    if widths == (6, 6, 1):
        assert part.shortcut is None
        assert torch.equal(part(x), x)
        return
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
    active = relu((x - mean) / (var + 1e-5).sqrt())[:, :, :: widths[2], :: widths[2]]
    assert isinstance(part.shortcut, nn.Conv2d)
    expected = torch.einsum("oi,nihw->nohw", part.shortcut.weight[:, :, 0, 0], active)
    torch.testing.assert_close(part(x), expected, rtol=1e-4, atol=1e-5)


def test_block_residual() -> None:
    """Without a shortcut convolution the output less the input is conv-BN-ReLU-conv of BN-ReLU."""
    torch.manual_seed(0)
    part = PreActBlock(4, 4, 1)
    x = torch.randn(3, 4, 6, 6)
    branch = nn.Sequential(part.norm1, nn.ReLU(), part.conv1, part.norm2, nn.ReLU(), part.conv2)
    torch.testing.assert_close(part(x) - x, branch(x))


def test_trunks_start_from_the_same_weights() -> None:
    nets = []
    for trunk in ("he", "release"):
        torch.manual_seed(0)
        nets.append(PreActResNet18(10, trunk=trunk).state_dict())
    shared = nets[0].keys() & nets[1].keys()
    assert len(shared) == len(nets[0]) - 5  # a norm: weight, bias, mean, variance, batches seen
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in shared)


def _norm(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    mean, var = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, unbiased=False)
    return relu((x - mean) / (var + norm.eps).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None])


@pytest.mark.parametrize("trunk", ["he", "release"])
def test_trunk_worked_out_by_hand(trunk: Trunk) -> None:
    """Sums of x + f(a), a = bn-relu(x), then bn-relu; of the release a + f(a), with bn-relu before them."""
    torch.manual_seed(0)
    net = PreActResNet18(10, trunk=trunk)
    for norm in (part for part in net.modules() if isinstance(part, nn.BatchNorm2d)):
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.3)
    images = inputs("preact-resnet18", 4)
    x = conv2d(images, net.stem.weight, padding=1)
    if trunk == "release":
        x = _norm(x, net.stem_norm[0])
    for block in net.blocks:
        a = _norm(x, block.norm1)
        inner = _norm(conv2d(a, block.conv1.weight, stride=block.conv1.stride, padding=1), block.norm2)
        if block.shortcut is not None:
            around = conv2d(a, block.shortcut.weight, stride=block.shortcut.stride)
        else:
            around = x if trunk == "he" else a
        x = conv2d(inner, block.conv2.weight, padding=1) + around
    if trunk == "he":
        x = _norm(x, net.final[0])
    torch.testing.assert_close(net.forward_features(images), x.mean((2, 3)), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", SHAPES)
def test_eval_judges_each_sample_alone(name: str) -> None:
    net = build(name)
    net(inputs(name, 8))  # norms that have seen data
    net.eval()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    x = inputs(name, 5, seed=1)
    together, alone = net(x), net(x[:1])
    torch.testing.assert_close(alone.logits, together.logits[:1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(alone.z, together.z[:1], rtol=1e-4, atol=1e-5)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())


@pytest.mark.parametrize("name", ["preact-resnet18", "small-conv"])
def test_training_normalizes_over_the_batch(name: str) -> None:
    net, x = build(name), inputs(name, 4)
    norms = [part for part in net.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    other = torch.cat([x[:2], 3 * x[2:] + 1])
    assert not torch.allclose(net(x).logits[:2], net(other).logits[:2], rtol=1e-3, atol=1e-3)
    for norm in norms:
        assert int(norm.num_batches_tracked) == 2  # type: ignore[arg-type]
        assert norm.running_mean is not None
        assert norm.running_mean.any()


def test_embedding_head_is_one_hidden_layer() -> None:
    net, x = EmbeddingHead(3, input_shape=(20,)), inputs("embedding-head", 6)
    first = net.trunk[1]
    expected = relu(layer_norm(x, (20,)) @ first.weight.T + first.bias)
    torch.testing.assert_close(net.forward_features(x), expected)
    torch.testing.assert_close(net.forward_features(1000 * x), expected, rtol=1e-3, atol=1e-3)


def test_embedding_head_takes_few_features_as_they_are() -> None:
    net, x = EmbeddingHead(3, input_shape=(2,)), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    first = net.trunk[1]
    torch.testing.assert_close(net.forward_features(x), relu(x @ first.weight.T + first.bias))


def test_embedding_head_drops_in_training_alone() -> None:
    torch.manual_seed(0)
    net = EmbeddingHead(3, input_shape=(20,), hidden=64, dropout=0.5)
    x = inputs("embedding-head", 30)
    whole = net.eval().forward_features(x)
    dropped = net.train().forward_features(x)
    active = whole > 0
    kept = (dropped > 0)[active]
    assert 0.4 < float(kept.float().mean()) < 0.6
    torch.testing.assert_close(dropped[active][kept], 2 * whole[active][kept])
    assert net.feature_dim == 64


@pytest.mark.parametrize("name", SHAPES)
def test_gradients_reach_every_parameter(name: str) -> None:
    net = build(name)
    logits, z, _ = net(inputs(name, 8))
    (cross_entropy(logits, torch.arange(8) % 5) + (z * inputs("embedding-head", 8)[:, :1]).sum()).backward()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@pytest.mark.parametrize("name", SHAPES)
def test_the_global_seed_fixes_the_weights(name: str) -> None:
    state, again, other = (build(name, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(state[key], again[key]) for key in state)
    drawn = [key for key in state if state[key].ndim > 1]
    assert drawn
    assert not any(torch.equal(state[key], other[key]) for key in drawn)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 7, 5), (3, 28, 28), (3, 33, 20)])
def test_small_conv_takes_any_size(shape: tuple[int, int, int]) -> None:
    """A change in any corner of the image reaches the features: pooling loses no edge."""
    torch.manual_seed(0)
    net = SmallConv(4, input_shape=shape).eval()
    x = torch.randn(1, *shape, requires_grad=True)
    features = net.forward_features(x)
    assert features.shape == (1, 128)
    features.sum().backward()
    assert x.grad is not None
    assert x.grad[0, 0, 0, 0] != 0
    assert x.grad[0, 0, -1, -1] != 0


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 7, 8), (1, 9, 8), (1, 8, 6)])
def test_small_conv_hands_on_four_by_four_places(shape: tuple[int, int, int]) -> None:
    """As if every last map were averaged to 4×4, which the network leaves out where the map is that."""
    torch.manual_seed(0)
    net = SmallConv(4, input_shape=shape).eval()
    x = torch.randn(3, *shape)
    last = net.trunk[:7](x)
    assert last.shape[1:] == (64, -(-shape[1] // 2), -(-shape[2] // 2))
    expected = net.trunk[9:](adaptive_avg_pool2d(last, 4).flatten(1))
    torch.testing.assert_close(net.forward_features(x), expected)


def test_small_conv_learns_digits_memorized() -> None:
    pixels, truth = load_digits(return_X_y=True)
    chosen = torch.randperm(len(truth), generator=torch.Generator().manual_seed(0))[:64].numpy()
    x = torch.tensor(pixels[chosen], dtype=torch.float32).reshape(64, 1, 8, 8) / 16
    y = torch.tensor(truth[chosen])
    torch.manual_seed(0)
    net = SmallConv(10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        cross_entropy(net(x).logits, y).backward()
        optimizer.step()
    logits = net(x).logits.detach()
    assert float(cross_entropy(logits, y)) < 0.05
    assert torch.equal(logits.argmax(1), y)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("preact_resnet18", r"preact_resnet18: no such network .*; did you mean preact-resnet18\?"),
        ("smallconv", r"did you mean small-conv\?"),
        ("embedding", r"no such network \(one of timm is timm:NAME\); did you mean embedding-head\?$"),
        ("zzz", "there are preact-resnet18, resnet50, small-conv, embedding-head$"),
    ],
)
def test_unknown_networks_are_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        build_network(name, 10, input_shape=(3, 32, 32))


@pytest.mark.parametrize("name", SHAPES)
def test_inputs_of_the_wrong_kind_are_refused(name: str) -> None:
    shape = (20, 20)
    with pytest.raises(InputError, match=r"inputs of shape \(20, 20\)"):
        build_network(name, 10, input_shape=shape)


def test_options_reach_the_network() -> None:
    net = build_network("preact-resnet18", 7, input_shape=(1, 32, 32), trunk="release", embedding_dim=16)
    assert isinstance(net, PreActResNet18)
    assert isinstance(net.final, nn.Identity)
    assert net.stem.in_channels == 1
    assert net(torch.randn(2, 1, 32, 32)).z.shape == (2, 16)
    with pytest.raises(TypeError, match="trunk"):
        build_network("small-conv", 7, input_shape=(1, 8, 8), trunk="release")


@on_cuda
@pytest.mark.parametrize("name", SHAPES)
def test_unit_embeddings_under_autocast(name: str) -> None:
    net = build(name).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits, z, _ = net(inputs(name, 16).cuda())
    assert logits.isfinite().all()
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.norm(dim=1).cpu(), torch.ones(16), rtol=0, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_padded_stem_equals_the_plain_one() -> None:
    net = build_network("preact-resnet18", 5, input_shape=(3, 16, 16)).cuda()
    x = torch.randn(4, 3, 16, 16, device="cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        torch.testing.assert_close(net._enter(x), net.stem(x), rtol=1e-4, atol=1e-5)  # type: ignore[operator]
