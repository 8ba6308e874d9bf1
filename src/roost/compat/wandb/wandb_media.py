"""W&B's data types that a package can hold: pictures, sounds, histograms, tables and texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roost.compat.media_values import array_of, csv_text, picture


def _media(kind: Any, data: Any, **settings: Any) -> Any:
    from roost.train.reporting.media_files import Media  # torch

    return Media(kind, data, **settings)


def _given(**arguments: Any) -> list[str]:
    return [name for name, value in arguments.items() if value is not None]


class Image:
    """A picture: an array (H, W) or (H, W, C), a tensor (C, H, W) or (N, C, H, W), a picture of Pillow, a
    figure of matplotlib, or the path of a file.

    As in W&B, numbers in [0, 1] and in [-1, 1] are stretched to the whole range, others are bytes.
    """

    def __init__(
        self,
        data_or_path: Any,
        mode: str | None = None,
        caption: str | None = None,
        grouping: Any = None,
        classes: Any = None,
        boxes: Any = None,
        masks: Any = None,
        file_type: str | None = None,
        normalize: bool = True,
    ) -> None:
        self._data, self._normalize = data_or_path, normalize
        self.left_out = _given(caption=caption, classes=classes, boxes=boxes, masks=masks)

    def media(self) -> Any:
        """Returns a figure or a `roost.Media`."""
        given = self._data
        if hasattr(given, "savefig"):
            return given
        if isinstance(given, str | Path):
            from PIL.Image import open as read_picture  # Pillow, which W&B needs, too

            with read_picture(given) as file:
                return _media("image", array_of(file))
        array = array_of(given)
        if hasattr(given, "detach") and array.ndim >= 3:
            array = picture(array, "NCHW"[-array.ndim :])
        if array.dtype != np.uint8:
            low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
            if self._normalize and low >= -1 and high <= 1:
                array = (array if low >= 0 else (array + 1) / 2) * 255
            array = np.clip(array, 0, 255).astype(np.uint8)
        return _media("image", array)


class Audio:
    """A sound: an array (samples,) or (samples, channels) in [-1, 1]."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        self._data, self._rate = data_or_path, sample_rate
        self.left_out = _given(caption=caption)

    def media(self) -> Any:
        """Returns a `roost.Media`."""
        return _media("audio", array_of(self._data).T, rate=self._rate or 16000)


class Histogram:
    """The distribution of numbers, or counts and edges as ``numpy.histogram`` returns them."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        self._numbers, self._counted, self._bins = sequence, np_histogram, num_bins
        self.left_out: Sequence[str] = ()

    def media(self) -> Any:
        """Returns a `roost.Media`."""
        if self._counted is None:
            return _media("histogram", array_of(self._numbers), bins=self._bins)
        counts, edges = (np.asarray(one) for one in self._counted)
        centres = (edges[1:] + edges[:-1]) / 2
        return _media("histogram", np.repeat(centres, counts.astype(int)), bins=edges)


class Table:
    """Rows with named columns, recorded as comma-separated text; media in cells by their type alone."""

    def __init__(
        self, columns: Any = None, data: Any = None, rows: Any = None, dataframe: Any = None, **other: Any
    ) -> None:
        data = rows if data is None else data
        if dataframe is not None or hasattr(data, "itertuples"):
            frame = dataframe if dataframe is not None else data
            columns, data = list(frame.columns), [list(row) for row in frame.itertuples(index=False)]
        self.data = [list(row) for row in data] if data is not None else []
        width = len(self.data[0]) if self.data else 0
        self.columns = list(columns) if columns is not None else [str(number) for number in range(width)]
        self.left_out = _given(**other)

    def add_data(self, *row: Any) -> None:
        """Adds a row."""
        self.data.append(list(row))

    def add_row(self, *row: Any) -> None:
        """Adds a row."""
        self.add_data(*row)

    def add_column(self, name: str, data: Sequence[Any]) -> None:
        """Adds a column."""
        self.columns.append(name)
        if not self.data:
            self.data = [[] for _ in data]
        for row, value in zip(self.data, data, strict=True):
            row.append(value)

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """Returns the values of a column; an array for ``numpy``."""
        place = self.columns.index(name)
        found = [row[place] for row in self.data]
        return np.asarray(found) if convert_to == "numpy" else found

    def media(self) -> Any:
        """Returns the text."""
        cells = [
            [f"<{type(one).__name__}>" if hasattr(one, "media") else one for one in row] for row in self.data
        ]
        return csv_text([self.columns, *cells])


class Html:
    """A page, recorded as text."""

    def __init__(self, data: Any, inject: bool = True, **other: Any) -> None:
        self._text = data if isinstance(data, str) else data.read()
        self.left_out = _given(**other)

    def media(self) -> Any:
        """Returns the text."""
        return self._text
