"""pdb that stops in the project's code: at its first line, or after an error at the line that raised it."""

from __future__ import annotations

import bdb
import pdb  # noqa: T100  - a stop was requested
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, TypeVar

from torch import Tensor

from roost.base.text.terminal_text import escape_control
from roost.base.traceback_frames import ProjectFiles, truncate

T = TypeVar("T")
_MAX_VARIABLES = 8
_MAX_VALUE_CHARACTERS = 60
_POST_MORTEM_KEYS = "the step is over: u and d go through the frames; n, c and q leave"
_STEPPING_KEYS = "n goes to the next line, s into it, c continues, q leaves"


class _AtOwnLine(pdb.Pdb):
    """Selects, after an error, the innermost frame of the project's code."""

    def __init__(self, own: ProjectFiles) -> None:
        super().__init__()
        self._own = own

    def _is_own(self, frame: FrameType) -> bool:
        return self._own.relative_name(frame.f_code.co_filename) is not None

    def get_stack(self, f: FrameType | None, t: TracebackType | None) -> tuple[list[Any], int]:
        stack, index = super().get_stack(f, t)
        own = [number for number, (frame, _) in enumerate(stack) if self._is_own(frame)]
        return stack, own[-1] if t is not None and own else index


class _AtFirstOwnLine(_AtOwnLine):
    """Skips all lines until the first line of the project's code; from there on it is plain pdb."""

    def __init__(self, own: ProjectFiles) -> None:
        super().__init__(own)
        self.is_stepping = False

    def stop_here(self, frame: FrameType) -> bool:
        return super().stop_here(frame) and (self.is_stepping or self._is_own(frame))

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        if self.is_stepping:
            super().user_call(frame, argument_list)

    def user_line(self, frame: FrameType) -> None:
        if not self.is_stepping:
            self.is_stepping = True
            print(_location_report(frame, frame.f_lineno, self._own, keys=_STEPPING_KEYS), flush=True)
        super().user_line(frame)


class DebuggerQuit(BaseException):
    """The user has left pdb."""


def stop_at_first_own_line(own: ProjectFiles, function: Callable[[], T]) -> T:
    """Calls a function and stops in pdb at the first line of the project's code.

    Raises:
        DebuggerQuit: The user typed `q`.
        Exception: An error of the function after the user let it continue.
    """
    debugger, interrupt = _AtFirstOwnLine(own), signal.getsignal(signal.SIGINT)
    debugger.reset()
    sys.settrace(debugger.trace_dispatch)
    try:
        return function()
    except bdb.BdbQuit:
        raise DebuggerQuit from None
    finally:
        debugger.quitting = True
        sys.settrace(None)
        signal.signal(signal.SIGINT, interrupt)  # pdb replaces it at `c`


def inspect_error(error: BaseException, own: ProjectFiles) -> None:
    """Prints where an error was raised and opens pdb there; returns when the user leaves pdb."""
    at = next((one for one in _chain(error) if _own_frames(one, own)), error)
    frames = _own_frames(at, own) or list(_frames(at))[-1:]
    if not frames:
        return
    print(_location_report(*frames[-1], own, keys=_POST_MORTEM_KEYS), flush=True)
    debugger = _AtOwnLine(own)
    debugger.reset()
    debugger.interaction(None, at.__traceback__)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _own_frames(error: BaseException, own: ProjectFiles) -> list[tuple[FrameType, int]]:
    return [(frame, line) for frame, line in _frames(error) if own.relative_name(frame.f_code.co_filename)]


def _location_report(frame: FrameType, line: int, own: ProjectFiles, *, keys: str) -> str:
    function, name = frame.f_code.co_name, own.relative_name(frame.f_code.co_filename)
    lines = [
        f"pdb is in {function} of roost or a library: no line of the project is in the traceback"
        if name is None
        else escape_control(f"pdb is at {name}:{line} in {function}")
    ]
    if variables := _variables(frame):
        lines.append(f"here: {variables}")
    return "\n".join([*lines, keys])


def _variables(frame: FrameType) -> str:
    values: Mapping[str, Any] = frame.f_locals
    named = [name for name in frame.f_code.co_varnames if name in values]
    shown = [f"{name} ({_describe_value(values[name])})" for name in named[:_MAX_VARIABLES]]
    return ", ".join([*shown, *(["…"] if len(named) > _MAX_VARIABLES else [])])


def _describe_value(value: Any) -> str:
    """Describes a variable in a few words. Never calls a ``repr`` of the project, which may fail or be
    long."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if type(value) in (bool, int, float, str):
        return escape_control(truncate(repr(value), _MAX_VALUE_CHARACTERS))
    if type(value) in (list, tuple, dict):
        return f"{type(value).__name__} of {len(value)}"
    return escape_control(type(value).__name__)
