"""Functions as embedders: what they get, what they may give, and when their features are kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from graphclean.embed import (
    Embedder,
    FunctionEmbedder,
    as_embedder,
    embed_photos,
    embedder_version,
    load_embedder,
)
from graphclean.errors import InputError


def corners(pictures: np.ndarray) -> np.ndarray:
    """The color of the first pixel, and of the last."""
    assert pictures.dtype == np.uint8
    assert pictures.shape[1:] == (4, 4, 3)
    return np.concatenate([pictures[:, 0, 0], pictures[:, -1, -1]], 1).astype(np.float64)


def save_pictures(folder: Path, count: int) -> list[Path]:
    """Photo i is of the color (i, 7, 9), but for a blue last pixel."""
    paths = []
    for number in range(count):
        pixels = np.full((4, 4, 3), (number, 7, 9), dtype=np.uint8)
        pixels[-1, -1] = (0, 0, 200)
        paths.append(folder / f"{number}.png")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def test_a_function_gets_upright_rgb_pictures_in_order(tmp_path: Path) -> None:
    paths = save_pictures(tmp_path, 35)
    found = embed_photos(paths, FunctionEmbedder(corners, size=4))
    assert found.dtype == np.float32
    assert found.tolist() == [[number, 7, 9, 0, 0, 200] for number in range(35)]


def test_tensors_and_integers_are_features_and_224_pixels_the_usual_size(tmp_path: Path) -> None:
    paths = save_pictures(tmp_path, 2)
    sizes = []

    def first(pictures: np.ndarray) -> torch.Tensor:
        sizes.append(pictures.shape[1:])
        return torch.from_numpy(pictures)[:, 0, 0].to(torch.bfloat16).requires_grad_()

    assert embed_photos(paths, first).tolist() == [[0, 7, 9], [1, 7, 9]]
    assert set(sizes) == {(224, 224, 3)}
    whole = embed_photos(paths, FunctionEmbedder(lambda pictures: pictures[:, 0, 0], size=4))
    assert whole.tolist() == [[0, 7, 9], [1, 7, 9]]


def test_names_and_embedders_stay_as_they_are() -> None:
    assert as_embedder("efficientnet-lite0") == "efficientnet-lite0"
    embedder = FunctionEmbedder(corners, "mine", 4)
    assert as_embedder(embedder) is embedder
    assert load_embedder(embedder) is embedder
    found = as_embedder(corners)
    assert isinstance(found, FunctionEmbedder)
    assert (found.name, found.size) == ("function:corners", 224)
    with pytest.raises(InputError, match=r"^function:mine was a function in Python; pass it there"):
        load_embedder("function:mine")


def test_only_a_named_function_is_kept_and_no_other_is_taken_for_it() -> None:
    def brighter(pictures: np.ndarray) -> np.ndarray:
        return corners(pictures) + 1

    def scaled(factor: float) -> Callable[[np.ndarray], np.ndarray]:
        return lambda pictures: corners(pictures) * factor

    named = FunctionEmbedder(corners, "mine", 4)
    version = embedder_version(named)
    assert version is not None
    assert embedder_version(FunctionEmbedder(corners, size=4)) is None
    assert embedder_version(FunctionEmbedder(corners, "mine", 4)) == version
    others = [brighter, scaled(1.01), lambda pictures: corners(pictures)[:, ::-1]]
    others += [lambda pictures: corners(pictures)[:, :5]]
    for function in others:
        other = FunctionEmbedder(function, "mine", 4)
        assert embedder_version(other) != version
        assert not other.embeds_like(named.probe())
    assert FunctionEmbedder(scaled(1 + 1e-6), size=4).embeds_like(named.probe())
    assert not named.embeds_like([])


def test_the_probe_is_the_sum_that_is_written_down() -> None:
    """By hand: two features, weights 0 and 1 over √2, so that the second one counts."""
    embedder = FunctionEmbedder(lambda pictures: np.full((len(pictures), 2), (5.0, 3.0)), size=1)
    assert embedder.probe() == pytest.approx([2.0, *[3 / 2**0.5] * 8])


BAD: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "one row": (lambda _: np.zeros(3), r"8 pictures gave float64 of shape \(3,\); features are numbers"),
    "too few": (lambda p: np.zeros((len(p) - 1, 3)), r"of shape \(7, 3\)"),
    "maps": (lambda p: p, r"uint8 of shape \(8, 4, 4, 3\)"),
    "empty": (lambda p: np.zeros((len(p), 0)), r"of shape \(8, 0\)"),
    "words": (lambda p: np.full((len(p), 2), "x"), r"gave <U1 of shape"),
    "nothing": (lambda _: None, r"gave object of shape \(\)"),
    "nan": (lambda p: corners(p) * np.nan, "NaN or infinite"),
    "batch": (lambda p: corners(p) - corners(p).mean(0), "in another batch; is a network in training mode"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_features_is_told_in_one_line(case: str) -> None:
    function, message = BAD[case]
    with pytest.raises(InputError, match=rf"^function:mine: .*{message}") as caught:
        FunctionEmbedder(function, "mine", 4).probe()
    assert "\n" not in str(caught.value)


def test_a_network_in_training_mode_is_refused() -> None:
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(48))

    def embed(pictures: np.ndarray) -> torch.Tensor:
        return network(torch.from_numpy(pictures).float())  # type: ignore[no-any-return]

    with pytest.raises(InputError, match="in training mode"):
        FunctionEmbedder(embed, size=4).probe()
    network.eval()
    assert FunctionEmbedder(embed, size=4).probe()[0] == 48


def test_another_number_of_features_later_is_refused() -> None:
    seen: list[int] = []

    def growing(pictures: np.ndarray) -> np.ndarray:
        seen.append(len(pictures))
        return corners(pictures)[:, : 2 + (len(seen) > 3)]

    embedder = FunctionEmbedder(growing, size=4)
    batch = torch.zeros(5, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(InputError, match=r"^function:growing: gave 2 features, then 3$"):
        embedder(batch), embedder(batch)


def test_an_error_in_the_function_is_its_own() -> None:
    def slip(pictures: np.ndarray) -> Any:
        return pictures.nothing_of_that_name  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        FunctionEmbedder(slip, size=4).probe()


class MeanColor(Embedder):
    name, size = "mean-color", 4


@pytest.mark.parametrize("given", [MeanColor, torch.nn.Flatten(), 7, b"efficientnet-lite0"])
def test_what_is_no_function_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"an embedder in Python is a function from uint8 pictures"):
        as_embedder(given)
    with pytest.raises(InputError, match="1 pixel a side or more, not 0"):
        FunctionEmbedder(corners, size=0)
