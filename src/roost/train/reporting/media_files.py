"""Media (images, audio, text, histograms, matrices) and their encoding as files."""

# Not durable: writes into memory

from __future__ import annotations

import io
import json
import math
import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from roost.base.errors import ContractError
from roost.train.reporting import png

_COLOURS = [(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)]
"""Five colours of the map viridis (van der Walt and Smith, 2015), whose order colour-blind readers see."""
_MAP_PIXELS = 256
MAX_NAME = 80
"""The most characters of a medium's name."""
_MAX_NUMBERS = {"image": 1 << 26, "matrix": 1 << 24}
"""The most numbers of one medium: drawing takes up to 100 bytes for each, and running out of memory ends the
run."""


@dataclass(frozen=True)
class Media:
    """A picture, sound, histogram, matrix or text. Matplotlib figures and strings need no wrapping.

    Args:
        kind: The kind of medium.
        data: image: (H, W), (C, H, W) or (H, W, C), floats in [0, 1] or bytes; audio: (samples,) or
            (channels, samples), floats in [-1, 1]; histogram: any numbers; matrix: (rows, columns) numbers;
            text: a string.
        rate: Samples per second of audio.
        bins: Number of bins of a histogram.
    """

    kind: Literal["image", "audio", "histogram", "matrix", "text"]
    data: Any
    rate: int = 16000
    bins: int = 64


def encode_named(shown: Mapping[str, Any], *, setting: str = "visualize()") -> dict[str, bytes]:
    """Returns the bytes of several media by file name.

    Args:
        shown: Matplotlib figures, strings or `Media` by name.
        setting: What they were given to, for messages.

    Raises:
        ContractError: They are no mapping, a name is not valid for a file, a value cannot be stored, or two
            values would have the same file name.
    """
    if not isinstance(shown, Mapping):
        raise ContractError(
            "is not a dict of media by name",
            setting=setting,
            received=type(shown).__name__,
            fix='give a dict: {"first": roost.Media("image", pixels)}',
        )
    found: dict[str, bytes] = {}
    for name, value in shown.items():
        if (
            not isinstance(name, str)
            or name.startswith(".")
            or not name.isprintable()
            or not 0 < len(name) <= MAX_NAME
        ):
            raise ContractError(
                "has a name that is not valid for a file",
                setting=setting,
                received=name,
                fix=f"use printable names of up to {MAX_NAME} characters that do not begin with a dot",
            )
        for suffix, data in encode_files(value, setting=setting).items():
            file = f"{name.replace('/', '_')}.{suffix}"
            if file in found:
                raise ContractError(
                    f"has two values for the same file {file}",
                    setting=setting,
                    fix="give them different names",
                )
            found[file] = data
    return found


def encode_files(value: Any, *, setting: str = "visualize()") -> dict[str, bytes]:
    """Returns the files of one medium by suffix: that of `encode`, and for a matrix its heat map as PNG.

    Raises:
        ContractError: The value cannot be shown, as for `encode`.
    """
    suffix, data = encode(value, setting=setting)
    if suffix == "npy" and _matrix_of(value).size:
        return {"png": png.encode(heat_map(_matrix_of(value))), suffix: data}
    return {suffix: data}


def encode(value: Any, *, setting: str = "visualize()") -> tuple[str, bytes]:
    """Returns the file suffix and the bytes of a string, a matplotlib figure or a `Media`.

    Raises:
        ContractError: The value is something else, or its data does not fit its kind.
    """
    if isinstance(value, str):
        return "txt", value.encode(errors="backslashreplace")
    if hasattr(value, "savefig"):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png", bbox_inches="tight")
        return "png", buffer.getvalue()
    if isinstance(value, Media):
        if value.kind not in _ENCODERS:
            raise ContractError(
                "the kind of media is unknown", received=value.kind, fix=f"use {', '.join(_ENCODERS)}"
            )
        return _encode(value, setting)
    raise ContractError(
        "cannot be shown",
        setting=setting,
        received=type(value).__name__,
        fix="give a matplotlib figure, a string, or "
        'roost.Media("image" | "audio" | "histogram" | "matrix", data)',
    )


def _encode(media: Media, setting: str) -> tuple[str, bytes]:
    shape = tuple(media.data.shape) if hasattr(media.data, "shape") else np.shape(media.data)
    error_fields: dict[str, Any] = {
        "setting": setting,
        "received": f"{type(media.data).__name__} of shape {shape}",
    }
    if math.prod(shape) > _MAX_NUMBERS.get(media.kind, math.inf):
        most = f"more than {_MAX_NUMBERS[media.kind]:,} numbers"
        raise ContractError(
            f"the {media.kind} has {most}", **error_fields, fix="show a part of it, or a smaller one"
        )
    try:
        return _ENCODERS[media.kind](media)
    except (TypeError, ValueError, ArithmeticError, wave.Error) as error:
        fix = "see the data that each kind takes in the docstring of roost.Media"
        raise ContractError(f"cannot be shown as {media.kind}: {error}", **error_fields, fix=fix) from error


def _array(data: Any) -> np.ndarray[Any, Any]:
    if isinstance(data, torch.Tensor):
        data = data.detach().cpu()
        data = data.float() if data.dtype is torch.bfloat16 else data  # NumPy has no such type
    return np.asarray(data)


def _encode_image(media: Media) -> tuple[str, bytes]:
    array = _array(media.data)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype != np.uint8:
        array = (np.clip(array, 0.0, 1.0) * 255).round().astype(np.uint8)
    return "png", png.encode(array)


def _encode_audio(media: Media) -> tuple[str, bytes]:
    array = np.atleast_2d(_array(media.data))
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(array.shape[0])
        file.setsampwidth(2)
        file.setframerate(media.rate)
        file.writeframes((np.clip(array.T, -1.0, 1.0) * 32767).astype("<i2").tobytes())
    return "wav", buffer.getvalue()


def _encode_histogram(media: Media) -> tuple[str, bytes]:
    numbers = _array(media.data).astype(np.float64).ravel()
    finite = numbers[np.isfinite(numbers)]
    counts, edges = np.histogram(finite, bins=media.bins)
    body: dict[str, Any] = {"counts": counts.tolist(), "edges": edges.tolist()}
    if len(finite) < len(numbers):
        body["nonfinite"] = len(numbers) - len(finite)
    return "json", json.dumps(body).encode()


def _encode_matrix(media: Media) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    np.save(buffer, _matrix_of(media), allow_pickle=False)
    return "npy", buffer.getvalue()


def _matrix_of(media: Media) -> np.ndarray[Any, Any]:
    array = _array(media.data)
    if array.ndim != 2 or array.dtype.kind not in "biuf":
        raise ContractError(
            "a matrix must be (rows, columns) real numbers",
            setting="visualize()",
            received=f"{array.dtype} of shape {array.shape}",
            fix='give each matrix separately, as in roost.Media("matrix", confusion)',
        )
    return array


def heat_map(matrix: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns (height, width, 3) bytes: from dark blue (lowest) to yellow (highest); non-finite numbers are
    grey. In a small matrix each number becomes a square of pixels.

    Args:
        matrix: (rows, columns) real numbers.
    """
    numbers = matrix.astype(np.float64)
    good = np.isfinite(numbers)
    low, high = (numbers[good].min(), numbers[good].max()) if good.any() else (0.0, 0.0)
    share = np.where(good, numbers, low)
    share = (share - low) / (high - low) if high > low else np.zeros_like(numbers)
    places = np.linspace(0.0, 1.0, len(_COLOURS))
    colours = np.stack(
        [np.interp(share, places, channel) for channel in zip(*_COLOURS, strict=True)], axis=-1
    )
    colours[~good] = 128
    square = max(1, _MAP_PIXELS // max(1, *matrix.shape))
    return colours.round().astype(np.uint8).repeat(square, 0).repeat(square, 1)


def _encode_text(media: Media) -> tuple[str, bytes]:
    return "txt", str(media.data).encode(errors="backslashreplace")


_ENCODERS: dict[str, Callable[[Media], tuple[str, bytes]]] = {
    "image": _encode_image,
    "audio": _encode_audio,
    "histogram": _encode_histogram,
    "matrix": _encode_matrix,
    "text": _encode_text,
}
