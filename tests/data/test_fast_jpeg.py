"""JPEGs decoded by simplejpeg, if it is installed: the same pixels as by Pillow, whatever the file."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from graphclean.data.images import UnreadableImage, decoder_version, find_decoder, open_image, read_image

pytest.importorskip("simplejpeg")


def jpeg(width: int, height: int, mode: str = "RGB", orientation: int | None = None, **options: Any) -> bytes:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((width, height)).convert(mode)
    exif = Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", exif=exif, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("side", [None, 20, 50, 100])
@pytest.mark.parametrize(
    "content",
    [
        *(jpeg(width, height) for width, height in ((160, 120), (161, 333), (15, 400), (7, 9), (1, 1))),
        *(jpeg(161, 121, subsampling=sampling, quality=60) for sampling in (0, 1, 2)),
        *(jpeg(160, 120, orientation=turn) for turn in range(1, 9)),
        *(jpeg(160, 120, mode) for mode in ("L", "CMYK")),
        jpeg(160, 120, progressive=True),
        jpeg(160, 120, keep_rgb=True),
    ],
    ids=lambda value: f"{len(value)} bytes" if isinstance(value, bytes) else None,
)
def test_pixels_equal_pillows(content: bytes, side: int | None) -> None:
    expected, full = read_image(content, side), open_image(content)
    found = read_image(content, side, "simplejpeg")
    assert found.size == expected.size == full.size
    assert np.array_equal(np.asarray(found.image), np.asarray(expected.image))
    assert side is None or min(found.image.size) >= min(side, *full.size)


def test_what_it_rejects_goes_to_pillow() -> None:
    content = jpeg(160, 120)
    for broken in (content[: len(content) // 2], content[:30], content.replace(b"\xff\xda", b"\xff\xd9", 1)):
        with pytest.raises(UnreadableImage) as expected:
            read_image(broken)
        with pytest.raises(UnreadableImage) as found:
            read_image(broken, None, "simplejpeg")
        assert str(found.value) == str(expected.value)
    png = io.BytesIO()
    Image.new("RGB", (3, 3), "red").save(png, "PNG")
    assert read_image(png.getvalue(), 2, "simplejpeg").image.getpixel((0, 0)) == (255, 0, 0)


def test_the_decoder_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_decoder() == "simplejpeg"
    assert "simplejpeg" in decoder_version("simplejpeg")
    assert "simplejpeg" not in decoder_version("pillow")
    monkeypatch.setattr("graphclean.data.images.find_spec", lambda _: None)
    assert find_decoder() == "pillow"
