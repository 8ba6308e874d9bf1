"""The inputs of the worst and the best cases of a cell, ``inputs.json``, for its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from torch import Tensor

from roost.base import durable
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.file_writer import FileWriter
from roost.package.results.evaluations.evaluation_folder import INPUTS
from roost.package.results.evaluations.row_columns import decode_json, encode_json
from roost.train.failures.step_report import format_error
from roost.train.reporting.media_files import Media
from roost.train.step import seeding

_MAX_INLINE, _MAX_DRAWN = 16, 2**20
"""Numbers of an array that is shown as such, and of one that is drawn."""
_MAX_CHARACTERS = 200
"""Of the text of an object of another type."""
_CHANNELS = (1, 3, 4)
_PAIR = ("input", "target")


def write_inputs(cell: Path, evaluated: EvaluatedSet, summary: Mapping[str, Any], *, seed: int) -> None:
    """Reads the samples that a summary lists and writes what the report shows of them: numbers, texts and
    small arrays as they are, images and matrices as pictures, of others the shape.

    Args:
        cell: The folder of the cell.
        evaluated: Its set; of one without indices nothing is written.
        summary: Its summary.
        seed: Seeds the random numbers of samples.

    Raises:
        OSError: A file could not be written.
    """
    cases = {
        case["position"]: case["id"]
        for side in ("worst", "best")
        for one in summary.get(side, ())
        for case in one["cases"]
    }
    found: dict[str, dict[str, Any]] = {}
    with FileWriter(cell) as files, seeding.isolated(seeding.mix(seed, "inputs")):
        for position, id_ in sorted(cases.items()):
            try:
                sample = evaluated.sample(position)
            except Exception as error:  # noqa: BLE001  - shown; the results do not depend on it
                found[str(id_)] = {"error": format_error(error)}
                continue
            if sample is None:
                return
            found[str(id_)] = {name: _shown(name, value, id_, files) for name, value in _parts(sample)}
    if found:
        durable.write(cell / INPUTS, msgspec.json.format(encode_json(found), indent=1) + b"\n")


def read_inputs(cell: Path) -> dict[str, dict[str, Any]]:
    """Returns the inputs of the worst and the best cases, by the texts of their ids; a value is plain, or
    ``{"file": path below the cell's folder}``."""
    try:
        found = decode_json((cell / INPUTS).read_bytes())
    except (OSError, ValueError):
        return {}
    return {id_: values for id_, values in dict(found).items() if isinstance(values, dict)}


def _parts(sample: Any) -> Iterator[tuple[str, Any]]:
    """Yields the parts of a sample with their names."""
    if isinstance(sample, Mapping):
        yield from ((str(name), value) for name, value in sample.items())
    elif isinstance(sample, tuple | list):
        names = _PAIR if len(sample) == len(_PAIR) else [f"input {place}" for place in range(len(sample))]
        yield from zip(names, sample, strict=True)
    else:
        yield _PAIR[0], sample


def _shown(name: str, value: Any, id_: Any, files: FileWriter) -> Any:
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, Media):
        return files.add(id_, name, value)
    if isinstance(value, Tensor):
        value = (value.detach().float() if value.is_floating_point() else value).cpu().numpy()
    array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
    if array is None or array.dtype.kind not in "biuf":
        return str(value)[:_MAX_CHARACTERS]
    if array.size <= _MAX_INLINE:
        return array.tolist()
    if array.size <= _MAX_DRAWN and _is_image(array):
        return files.add(id_, name, Media("image", _unit(array)))
    if array.size <= _MAX_DRAWN and array.ndim == 2:
        return files.add(id_, name, Media("matrix", array))
    return f"{array.dtype} {list(array.shape)}"


def _is_image(array: np.ndarray[Any, Any]) -> bool:
    return array.ndim == 3 and (array.shape[0] in _CHANNELS or array.shape[2] in _CHANNELS)


def _unit(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns an image with values from 0 to 1; bytes are returned as they are."""
    if array.dtype == np.uint8:
        return array
    low, high = float(array.min()), float(array.max())
    if low >= 0.0 and high <= 1.0:
        return array
    return (array - low) / max(high - low, 1e-12)
