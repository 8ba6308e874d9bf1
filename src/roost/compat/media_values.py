"""Values of other tools as media of a package: pictures in their layouts, names as names of files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

_MOST_CHARACTERS = 80


def file_name(name: str) -> str:
    """Returns a name of a medium that is valid for a file."""
    shown = "".join(one if one.isprintable() else "_" for one in name).lstrip(".")
    return shown[-_MOST_CHARACTERS:].lstrip(".") or "_"


def array_of(value: Any) -> np.ndarray[Any, Any]:
    """Returns the numbers of a tensor, an array, a list, or a picture of Pillow."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    if hasattr(value, "convert") and hasattr(value, "mode"):
        value = value if value.mode in ("L", "RGB", "RGBA") else value.convert("RGB")
    return np.asarray(value)


def picture(array: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """Returns (H, W) or (H, W, C): a picture, or several side by side.

    Args:
        array: The numbers.
        layout: The meaning of its dimensions: letters of N, C, H and W in their order, such as ``CHW``.
    """
    layout = layout.upper()
    order = [layout.index(letter) for letter in "NHWC" if letter in layout]
    array = array.transpose(order)
    return grid(array) if "N" in layout else array


def grid(pictures: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns one picture of several, (N, H, W) or (N, H, W, C), in rows of about their square root."""
    columns = math.ceil(math.sqrt(len(pictures)))
    missing = -len(pictures) % columns
    padded = np.concatenate([pictures, np.zeros((missing, *pictures.shape[1:]), pictures.dtype)])
    rows = [np.concatenate(list(padded[i : i + columns]), axis=1) for i in range(0, len(padded), columns)]
    return np.concatenate(rows)


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Returns rows as comma-separated text."""
    import csv
    import io

    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()
