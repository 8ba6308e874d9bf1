from __future__ import annotations

import io
import json
import wave
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from roost.base.errors import ContractError
from roost.train.reporting.media_files import Media, encode, encode_files, heat_map
from tests.messages import Messages


def pixels(value: Any) -> np.ndarray[Any, Any]:
    suffix, data = encode(value)
    assert suffix == "png"
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def test_text() -> None:
    assert encode("grün") == ("txt", "grün".encode())
    assert encode(Media("text", 3)) == ("txt", b"3")


def test_a_figure_is_a_png() -> None:
    figure = Figure(figsize=(1, 1))
    figure.subplots().plot([1, 2])
    assert pixels(figure).ndim == 3


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 6), (5, 6)),
        ((1, 5, 6), (5, 6)),
        ((3, 5, 6), (5, 6, 3)),
        ((5, 6, 3), (5, 6, 3)),
        ((4, 5, 6), (5, 6, 4)),
    ],
)
def test_images_in_any_order_of_axes(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    image = torch.rand(shape)
    found = pixels(Media("image", image))
    assert found.shape == expected
    assert pixels(Media("image", image.numpy())).tolist() == found.tolist()


def test_values_outside_are_clipped_and_bytes_are_kept() -> None:
    assert pixels(Media("image", torch.tensor([[-1.0, 0.5, 2.0]]))).tolist() == [[0, 128, 255]]
    assert pixels(Media("image", np.array([[0, 7, 255]], dtype=np.uint8))).tolist() == [[0, 7, 255]]
    assert pixels(Media("image", torch.ones(2, 2, requires_grad=True))).tolist() == [[255, 255], [255, 255]]


@pytest.mark.parametrize("channels", [1, 2])
def test_audio_is_a_wave_file(channels: int) -> None:
    sound = torch.linspace(-1.5, 1.5, 50).repeat(channels, 1)
    suffix, data = encode(Media("audio", sound if channels > 1 else sound[0], rate=8000))
    assert suffix == "wav"
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getframerate(), file.getnframes()) == (channels, 8000, 50)
        samples = np.frombuffer(file.readframes(50), dtype="<i2").reshape(50, channels)
    assert (samples[0] == -32767).all() and (samples[-1] == 32767).all()


def test_a_histogram_is_counts_and_edges() -> None:
    suffix, data = encode(Media("histogram", torch.tensor([0.0, 1.0, 1.0]), bins=2))
    assert suffix == "json"
    assert json.loads(data) == {"counts": [1, 2], "edges": [0.0, 0.5, 1.0]}


def test_what_cannot_be_shown(messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"visualize\(\).*'Tensor'.*roost\.Media") as refused:
        encode(torch.zeros(3))
    messages.check(refused.value)


def matrix(data: bytes) -> np.ndarray[Any, Any]:
    return np.load(io.BytesIO(data), allow_pickle=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_a_matrix_is_its_numbers_and_a_heat_map(dtype: torch.dtype) -> None:
    numbers = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    files = encode_files(Media("matrix", numbers))
    assert list(files) == ["png", "npy"], "a mirror that finds the numbers finds their picture, too"
    assert matrix(files["npy"]).tolist() == numbers.tolist()
    with Image.open(io.BytesIO(files["png"])) as image:
        assert image.size == (3 * 85, 2 * 85), "each number is a square"
    assert encode(Media("matrix", numbers)) == ("npy", files["npy"])


def test_colours_of_a_heat_map() -> None:
    found = heat_map(np.array([[0.0, 1.0], [np.nan, 0.5]]))
    least, most, bad, middle = found[0, 0], found[0, -1], found[-1, 0], found[-1, -1]
    assert [tuple(one) for one in (least, most, bad, middle)] == [
        (68, 1, 84), (253, 231, 37), (128, 128, 128), (33, 145, 140)
    ]  # fmt: skip
    assert (heat_map(np.full((2, 2), 7.0)) == least).all()
    assert (heat_map(np.full((2, 2), np.inf)) == 128).all()
    assert heat_map(np.zeros((300, 2))).shape == (300, 2, 3)


def test_a_matrix_without_numbers_has_no_picture() -> None:
    assert list(encode_files(Media("matrix", np.zeros((0, 3))))) == ["npy"]


@pytest.mark.parametrize(
    "data", [torch.zeros(3), torch.zeros(1, 2, 3), [[1j]], [["a"]], np.array([[None]], dtype=object)]
)
def test_what_is_no_matrix(data: Any, messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"visualize\(\).*\bmatrix\b") as refused:
        encode_files(Media("matrix", data))
    messages.check(refused.value)


def test_numbers_that_are_not_finite_are_counted_beside_a_histogram() -> None:
    _, data = encode(Media("histogram", torch.tensor([0.0, 1.0, float("nan"), float("inf")]), bins=2))
    assert json.loads(data) == {"counts": [1, 1], "edges": [0.0, 0.5, 1.0], "nonfinite": 2}


def test_a_kind_that_there_is_not(messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"'video'.*\bimage, audio\b") as refused:
        encode(Media("video", 3))  # type: ignore[arg-type]
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("media", "said"),
    [
        (Media("matrix", torch.zeros(1).expand(50_000, 50_000)), r"\bmatrix\b.*\(50000, 50000\)"),
        (Media("image", torch.zeros(1).expand(3, 30_000, 30_000)), r"\bimage\b.*\(3, 30000, 30000\)"),
        (Media("image", "text"), r"\bimage\b"),
        (Media("image", torch.zeros(2, 2, 2, 2, 2)), r"\bimage\b.*\(2, 2, 2, 2, 2\)"),
        (Media("image", torch.zeros(0, 3, 3)), r"\bimage\b"),
        (Media("audio", torch.zeros(9), rate=0), r"\baudio\b"),
        (Media("histogram", ["a", "b"]), r"\bhistogram\b"),
    ],
)
def test_what_nothing_can_be_made_of(media: Media, said: str, messages: Messages) -> None:
    with pytest.raises(ContractError, match=said) as refused:
        encode(media)
    messages.check(refused.value.message.partition(": ")[0])


def test_a_text_that_is_no_unicode() -> None:
    assert encode("\udcff") == encode(Media("text", "\udcff")) == ("txt", b"\\udcff")
