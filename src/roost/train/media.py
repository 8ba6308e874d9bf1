"""Pictures, sound, text and histograms as files."""

from __future__ import annotations

import io
import json
import wave
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from roost.base.errors import ContractError


@dataclass(frozen=True)
class Media:
    """Something to look at or listen to. Matplotlib figures and strings need no wrapping.

    Args:
        kind: What it is.
        data: image: (H, W), (C, H, W) or (H, W, C), floats in [0, 1] or bytes; audio: (samples,) or
            (channels, samples), floats in [-1, 1]; histogram: any numbers; text: a string.
        rate: Samples per second of audio.
        bins: Of a histogram.
    """

    kind: Literal["image", "audio", "histogram", "text"]
    data: Any
    rate: int = 16000
    bins: int = 64


def encode(value: Any) -> tuple[str, bytes]:
    """The file suffix and the bytes.

    Raises:
        ContractError: It is none of the things above.
    """
    if isinstance(value, str):
        return "txt", value.encode()
    if hasattr(value, "savefig"):
        buffer = io.BytesIO()
        value.savefig(buffer, format="png", bbox_inches="tight")
        return "png", buffer.getvalue()
    if isinstance(value, Media):
        return {"image": _image, "audio": _audio, "histogram": _histogram, "text": _text}[value.kind](value)
    raise ContractError(
        "cannot be shown",
        setting="visualize()",
        received=type(value).__name__,
        fix='return a matplotlib figure, a string, or roost.Media("image" | "audio" | "histogram", data)',
    )


def _array(data: Any) -> np.ndarray[Any, Any]:
    return np.asarray(data.detach().cpu() if isinstance(data, torch.Tensor) else data)


def _image(media: Media) -> tuple[str, bytes]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ContractError("an image needs Pillow", fix="pip install pillow") from error
    array = _array(media.data)
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype != np.uint8:
        array = (np.clip(array, 0.0, 1.0) * 255).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG")
    return "png", buffer.getvalue()


def _audio(media: Media) -> tuple[str, bytes]:
    array = np.atleast_2d(_array(media.data))
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(array.shape[0])
        file.setsampwidth(2)
        file.setframerate(media.rate)
        file.writeframes((np.clip(array.T, -1.0, 1.0) * 32767).astype("<i2").tobytes())
    return "wav", buffer.getvalue()


def _histogram(media: Media) -> tuple[str, bytes]:
    counts, edges = np.histogram(_array(media.data).astype(np.float64).ravel(), bins=media.bins)
    return "json", json.dumps({"counts": counts.tolist(), "edges": edges.tolist()}).encode()


def _text(media: Media) -> tuple[str, bytes]:
    return "txt", str(media.data).encode()
