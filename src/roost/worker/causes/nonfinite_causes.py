"""Causes with NaN or infinity: where the value came up, and since which step the loss has it."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext

_CHECK = "check the batch (a logarithm or a division by 0)"
_FIX = f"{_CHECK}: roost debug stops there"
_PARAMETER = re.compile(r"Expected (?:parameter|value) ?(\w*).*? of distribution (\w+)", re.DOTALL)
_ROW = re.compile(r"\S+ is (?:nan|-?inf) in the row of step \d+")
_FIRST = re.compile(r", first in step \d+ \(")
"""An error that names its step is more exact than the records, whose rows cover several steps each."""
_BACKWARD = re.compile(r"Function '(\w+)' returned nan values in its (\d+)\w\w output")


def nonfinite_value(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """An error caused by NaN or infinity; the description adds the recorded history of the loss."""
    where = _what_became_nonfinite(record)
    if where is None:
        return None
    description = ": ".join(filter(None, (where, _first_nonfinite_row(context))))
    if not description:
        return None
    # A project of DLNest's contract steps its optimizers itself, and its failing step is not kept.
    if context.is_dlnest:
        return Cause(description, f"a smaller learning rate, or {_CHECK}")
    return Cause(description, _fix(context.settings))


def _fix(settings: Mapping[str, Any]) -> str:
    """Returns the remedies that are not set already."""
    optimizers = settings.get("optimizers")
    configured = list(optimizers.values()) if isinstance(optimizers, Mapping) else []
    clips = bool(configured) and all(
        isinstance(one, Mapping) and one.get("max_grad_norm") for one in configured
    )
    ways = ["a smaller learning rate", *([] if clips else ["max_grad_norm"])]
    if settings.get("on_non_finite", "stop") == "stop":
        ways.append("on_non_finite: skip or rollback")
    return f"{', '.join(ways)}, or {_FIX}"


def _what_became_nonfinite(record: ExceptionRecord) -> str | None:
    """Describes the value that became non-finite; empty if the error says so itself. None for any other
    error, and for an error that names its step."""
    text = record.text
    if record.is_a("TrainingError") and _FIRST.search(text):
        return None
    if record.is_a("TrainingError") and _ROW.match(text):
        return ""
    if record.is_a("TrainingError") and re.search(r"parameters? (is|are) not finite", text):
        return "the weights became NaN or infinite"
    if record.is_a("ValueError") and "but found invalid values:" in text:
        match = _PARAMETER.match(text)
        values = text.rpartition("but found invalid values:")[2]
        if match is None or not re.search(r"\bnan\b", values):
            return None
        return f"NaN reached the distribution {match[2]}" + (f" as its {match[1]}" if match[1] else "")
    if record.is_a("RuntimeError") and (match := _BACKWARD.match(text)):
        return f"the gradient became NaN in {match[1]}"
    if record.is_a("ValueError", "OverflowError") and re.match(
        r"cannot convert float (NaN|infinity) to int", text
    ):
        return "a number to be converted to int is NaN or infinite"
    return None


def _first_nonfinite_row(context: FailureContext) -> str:
    """Describes since which step a recorded loss is not finite; empty if the newest value of each is
    finite."""
    series = context.records.series
    losses = [name for name in ("train/loss", *series) if name in series and name.endswith("loss")]
    bad = next((name for name in losses if not math.isfinite(series[name][1][-1])), None)
    if bad is None:
        return ""
    steps, values = series[bad]
    last = max((i for i, value in enumerate(values) if math.isfinite(value)), default=-1)
    description = f"{bad} is {values[-1]} since step {steps[last + 1]}"
    if last < 0:
        return f"{description}, its first row"
    rates, lr = series.get("lr", ([], []))
    at = bisect_right(rates, steps[last + 1]) - 1
    rate = f", learning rate {lr[at]:.4g}" if at >= 0 else ""
    return f"{description} (step {steps[last]}: {values[last]:.4g}{rate})"


CAUSES: tuple[CauseRule, ...] = (nonfinite_value,)
