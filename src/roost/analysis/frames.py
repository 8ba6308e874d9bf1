"""The person's own part of a traceback."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

_ROOST = f"{Path(__file__).parent.parent}/"
_MOST_TEXT, _MOST_TRACE = 2000, 100_000
_IMPORTING = "<frozen importlib"


def from_the_person(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame of the person's own code on; None when there is none."""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_ROOST, _IMPORTING)):
            return trace
        trace = trace.tb_next
    return None


def text(error: BaseException) -> str:
    """The text of an error, of any class by any person, cut to a sane length."""
    try:
        found = "; ".join([str(error), *map(str, getattr(error, "__notes__", []))])
    except Exception as wrong:  # noqa: BLE001  - somebody's __str__
        found = f"<its text raises {type(wrong).__name__}>"
    return found if len(found) <= _MOST_TEXT else found[:_MOST_TEXT] + " …"


def told(error: BaseException) -> str | None:
    """The error with its traceback, from the person's own code on; None when none of it was running."""
    trace = from_the_person(error.__traceback__)
    if trace is None:
        return None
    whole = "".join(traceback.TracebackException(type(error), error, trace).format())
    return whole if len(whole) <= _MOST_TRACE else whole[:_MOST_TRACE] + " …"
