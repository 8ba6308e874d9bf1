"""Checked lengths and weights: one number for each sample, as the user's set gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from roost.base.errors import ConfigError
from roost.train.data.plans.permutations import Int64Array

Float64Array = np.ndarray[tuple[int], np.dtype[np.float64]]


def lengths_of(given: npt.ArrayLike, *, setting: str, set_size: int | None = None) -> Int64Array:
    """Checks the lengths of the samples and returns them as (num_samples,) int64.

    Args:
        given: A list, an array or a CPU tensor.
        setting: The setting that needs them, for messages.
        set_size: Samples of the set if known.

    Raises:
        ConfigError: They are not one integer of 0 or more for each sample.
    """
    found = _check_numbers(given, "length", setting, set_size)
    invalid = np.flatnonzero((found % 1 != 0) | (found >= 2**63))
    if len(invalid):
        raise _invalid_value(found, int(invalid[0]), "length", "a whole number below 2**63", setting)
    return found.astype(np.int64)


def weights_of(
    given: npt.ArrayLike, *, setting: str, set_size: int | None = None, of: str = "sample"
) -> Float64Array:
    """Checks the weights of the samples and returns them as (num_samples,) float64, scaled so that the
    largest is 1: their sum cannot overflow.

    Args:
        given: A list, an array or a CPU tensor.
        setting: The setting that needs them, for messages.
        set_size: Samples of the set if known.
        of: The noun for messages: ``sample`` or ``set``.

    Raises:
        ConfigError: They are not one finite number of 0 or more for each sample, or all are 0.
    """
    found = _check_numbers(given, "weight", setting, set_size, of).astype(np.float64)
    if not found.any():
        raise ConfigError(
            f"the weights of the {of}s sum to 0, so nothing can be drawn",
            setting=setting,
            fix=f"give at least one {of} a weight above 0",
        )
    scaled: Float64Array = found / found.max()
    return scaled


def _check_numbers(
    given: npt.ArrayLike, quantity: str, setting: str, set_size: int | None, of: str = "sample"
) -> np.ndarray[tuple[int], np.dtype[Any]]:
    fix = f"give one number for each {of}, in a list, an array or a CPU tensor"
    try:
        found = np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:
        message = f"the {quantity}s of the {of}s cannot be read: {str(error).partition(chr(10))[0]}"
        raise ConfigError(message, setting=setting, fix=fix) from error
    if found.ndim == 1 and not len(found) and not set_size:
        raise ConfigError("the dataset is empty", fix="check what Dataset.build() returns")
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise ConfigError(
            f"the {quantity}s of the {of}s are {found.dtype} in the shape {found.shape}",
            setting=setting,
            fix=fix,
        )
    if set_size is not None and len(found) != set_size:
        raise ConfigError(f"{set_size} {of}s have {len(found)} {quantity}s", setting=setting, fix=fix)
    invalid = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if len(invalid):
        raise _invalid_value(found, int(invalid[0]), quantity, "a finite number of 0 or more", setting, of)
    return found


def _invalid_value(
    found: np.ndarray[tuple[int], np.dtype[Any]],
    index: int,
    quantity: str,
    expected: str,
    setting: str,
    of: str = "sample",
) -> ConfigError:
    return ConfigError(
        f"the {quantity} of {of} {index} is not {expected}",
        setting=setting,
        received=found[index].item(),
        fix=f"check dataset.{quantity}s",
    )
