from __future__ import annotations

import io
import re
import sys

import numpy as np
import pytest
from PIL import Image

from roost.train.reporting import media_files, png
from tests.messages import Messages


@pytest.mark.parametrize("shape", [(5, 7), (1, 1), (5, 7, 2), (5, 7, 3), (5, 7, 4)])
def test_another_program_reads_the_same_pixels(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    data = png.encode(pixels)
    with Image.open(io.BytesIO(data)) as image:
        assert np.array_equal(np.asarray(image), pixels)
    assert png.size(data) == (shape[1], shape[0])


def test_of_any_strides() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 6, 8), dtype=np.uint8)
    for view in (np.moveaxis(pixels, 0, 2), pixels[0, ::2, ::-1]):
        with Image.open(io.BytesIO(png.encode(view))) as image:
            assert np.array_equal(np.asarray(image), view)


@pytest.mark.parametrize(
    "pixels", [np.zeros(shape, np.uint8) for shape in [(3,), (0, 3), (2, 2, 5), (2, 2, 2, 2)]]
)
def test_what_is_no_picture(
    pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], messages: Messages
) -> None:
    with pytest.raises(ValueError, match=re.escape(str(pixels.shape))) as refused:
        png.encode(pixels)
    messages.check(refused.value)


def test_only_bytes(messages: Messages) -> None:
    with pytest.raises(ValueError, match="float64") as refused:
        png.encode(np.zeros((2, 2)))
    messages.check(refused.value)


def test_what_has_no_size(messages: Messages) -> None:
    with pytest.raises(ValueError, match="PNG") as refused:
        png.size(b"GIF89a" + bytes(40))
    messages.check(refused.value)


def test_pictures_need_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert list(media_files.encode_files(media_files.Media("matrix", np.eye(3)))) == ["png", "npy"]
    assert png.size(media_files.encode(media_files.Media("image", np.zeros((3, 2, 5))))[1]) == (5, 2)
