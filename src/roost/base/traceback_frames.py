"""Short tracebacks: the lines of the project's code; all other frames are only counted."""

from __future__ import annotations

import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from traceback import FrameSummary

from roost.base.exception_record import ExceptionRecord
from roost.base.system.site_packages import LIBRARY_FOLDERS, is_installed
from roost.base.text.terminal_text import escape_control

_MAX_ENTRIES = 20
_FIRST_FRAMES = 6
"""Entries shown from the beginning of a traceback that is too long; the others are from its end."""
_MOST_LINES = 12
_LONGEST_LINE, _LONGEST_CODE = 400, 160
_LONGEST_ERROR = 500
"""Characters of the error line in a session record."""
_ROOST = Path(__file__).parents[1]
_PYTHON = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
_CHAIN_SENTENCES = {
    True: "The above exception was the direct cause of the following exception:",
    False: "During handling of the above exception, another exception occurred:",
}


def truncate(line: str, most: int = _LONGEST_LINE) -> str:
    """Cuts a text to ``most`` characters and marks the cut with ``…``."""
    return line if len(line) <= most else line[:most] + " …"


class ProjectFiles:
    """The files of the project: those below some folders, without installed libraries.

    Args:
        folders: The project's folders. A file is named relative to the first one that contains it.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(
            dict.fromkeys(path for one in folders for path in (one.absolute(), one.resolve()))
        )

    def relative_name(self, file: str) -> str | None:
        """Returns the file relative to its folder, or None if it is not a file of the project."""
        path = Path(file)
        if not path.is_absolute() or path.is_relative_to(_ROOST):
            return None
        for folder in self._folders:
            if path.is_relative_to(folder):
                inside = path.relative_to(folder)
                return None if is_installed(inside) else str(inside)
        return None

    def innermost_line(self, raised: ExceptionRecord) -> str:
        """Returns ``Model/Runner.py:12`` and the code of the innermost line of the project; empty if there is
        none."""
        for frame in reversed(raised.frames):
            if name := self.relative_name(frame.filename):
                return truncate(escape_control(f"{name}:{frame.lineno}: {frame.line or ''}"), _LONGEST_CODE)
        return ""


def library_name(file: str) -> str:
    """Returns the name under which the frames of a file outside of the project are counted."""
    path = Path(file)
    if path.is_relative_to(_ROOST):
        return "roost"
    installed = [index for index, part in enumerate(path.parts[:-1]) if part in LIBRARY_FOLDERS]
    if installed:
        return path.parts[installed[-1] + 1].removesuffix(".py")
    if file.startswith("<frozen ") or any(path.resolve().is_relative_to(one) for one in _PYTHON):
        return "Python"
    if not path.is_absolute():
        return "generated code"
    while (path.parent / "__init__.py").exists():
        path = path.parent
    return path.stem


def format_chain(
    raised: ExceptionRecord, project: ProjectFiles, *, first_line_only: bool = False
) -> Iterator[str]:
    """Yields the lines of a traceback: the exceptions of the chain, oldest first, each with its frames, then
    its type and message.

    Args:
        raised: The exception.
        project: The files whose lines are shown.
        first_line_only: Whether only the first line of the message is shown, because a clearer description
            was printed before.
    """
    before: ExceptionRecord | None = None
    for one in reversed(list(raised.chain())):
        if before is not None:
            yield from ("", _CHAIN_SENTENCES[one.cause is before], "")
        yield from _format_exception(one, project, first_line_only=first_line_only and one is raised)
        before = one


def _format_exception(
    raised: ExceptionRecord, project: ProjectFiles, *, first_line_only: bool
) -> Iterator[str]:
    yield from format_project_frames(raised, project)
    if raised.caret:
        yield f"    {raised.caret}"
    yield from _message(raised, first_line_only=first_line_only)
    for number, part in enumerate(raised.members, 1):
        yield f"  exception {number} of {len(raised.members)}:"
        yield from (f"  {line}" for line in format_chain(part, project))


def _message(raised: ExceptionRecord, *, first_line_only: bool) -> Iterator[str]:
    where = f" ({raised.raised_in})" if raised.raised_in else ""
    text = raised.text.strip("\n")
    first, *rest = (
        f"{raised.qualified_name}{where}: {text}".split("\n") if text else [f"{raised.qualified_name}{where}"]
    )
    shown = [] if first_line_only else rest[: _MOST_LINES - 1]
    more = len(rest) - len(shown)
    for line in (first, *shown):
        yield truncate(escape_control(line), _LONGEST_CODE if first_line_only else _LONGEST_LINE)
    if more:
        yield f"… {more} more {'line' if more == 1 else 'lines'} of text …"
    for note in raised.notes:
        yield from (truncate(escape_control(line)) for line in note.split("\n")[:_MOST_LINES])


def exception_summary(raised: ExceptionRecord, project: ProjectFiles | None = None) -> str:
    """Returns the type and message of an exception, short enough for a session record.

    Args:
        raised: The exception.
        project: The project's files; their innermost line is named if the exception has no message.
    """
    text = next(filter(None, (line.strip() for line in raised.text.split("\n"))), "")
    last = project.innermost_line(raised) if project is not None else ""
    description = f"{raised.name}: {text}" if text else f"{raised.name} at {last}" if last else raised.name
    where = f" ({raised.raised_in})" if raised.raised_in else ""
    return single_line("; ".join([description, *raised.short_notes]) + where)


def single_line(text: str) -> str:
    """Returns the text as one short line."""
    return truncate(escape_control(" ".join(text.split())), _LONGEST_ERROR)


def format_project_frames(raised: ExceptionRecord, project: ProjectFiles) -> list[str]:
    """Returns the lines for the project's frames, and between and after them a line for the frames left out,
    counted by library. The frames before the first one of the project are not counted: they are the same in
    every run."""
    runs = [
        (is_own, list(frames))
        for is_own, frames in groupby(raised.frames, key=lambda one: _is_project_frame(one, project))
    ]
    if not any(is_own for is_own, _ in runs):
        return [f"  … no line of the project; {_count_by_library(raised.frames)} …"] if raised.frames else []
    shown: list[list[str]] = []
    for is_own, frames in runs[0 if runs[0][0] else 1 :]:
        shown += _format_frames(frames, project) if is_own else [[f"  … {_count_by_library(frames)} …"]]
    if len(shown) > _MAX_ENTRIES:
        left_out = len(shown) - _MAX_ENTRIES
        shown[_FIRST_FRAMES : _FIRST_FRAMES + left_out] = [[f"  … {left_out} more entries …"]]
    return [line for entry in shown for line in entry]


def _is_project_frame(frame: FrameSummary, project: ProjectFiles) -> bool:
    return project.relative_name(frame.filename) is not None


def _format_frames(frames: list[FrameSummary], project: ProjectFiles) -> Iterator[list[str]]:
    """Yields one entry for each frame; equal frames of a recursion share one entry."""
    for (file, line, function), alike in groupby(
        frames, key=lambda one: (one.filename, one.lineno, one.name)
    ):
        found = list(alike)
        inside = f" in {function}" if function else ""
        code = (found[0].line or "").strip()
        yield [
            escape_control(f"  {project.relative_name(file)}:{line}{inside}"),
            *([truncate(escape_control(f"    {code}"), _LONGEST_CODE)] if code else []),
            *([f"    … and {len(found) - 1} times more …"] if len(found) > 1 else []),
        ]


def _count_by_library(frames: Sequence[FrameSummary]) -> str:
    """``7 frames of torch, 2 of roost``."""
    counts = Counter(library_name(frame.filename) for frame in frames)
    (first, number), *rest = counts.items()
    texts = [f"{number} {'frame' if number == 1 else 'frames'} of {first}"]
    return ", ".join([*texts, *(f"{more} of {name}" for name, more in rest)])
