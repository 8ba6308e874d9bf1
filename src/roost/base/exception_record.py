"""An exception as data, whether it was raised in this process or came as the text of a loader worker."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from traceback import FrameSummary

_MAX_CHAIN = 5
"""Exceptions of a chain that are looked at; a recursion may chain thousands."""
_MAX_MEMBERS = 5
"""Members of an exception group that are looked at."""


class RemoteTraceback(Exception):
    """Where an exception was raised in another process; the cause of that exception here.

    Args:
        text: Its traceback, as Python prints it.
        place: ``in loader worker 1``.
    """

    def __init__(self, text: str, raised_in: str) -> None:
        super().__init__(text, raised_in)
        self.text, self.raised_in = text, raised_in

    def __str__(self) -> str:
        return f"{self.raised_in}:\n{self.text}"


@dataclass(frozen=True)
class ExceptionRecord:
    """One exception, with those it came from."""

    qualified_name: str
    """Its class as a traceback names it: ``ValueError``, ``torch.OutOfMemoryError``."""
    base_names: frozenset[str]
    """The names, without modules, of its class and of those it derives from."""
    text: str
    notes: tuple[str, ...] = ()
    frames: tuple[FrameSummary, ...] = ()
    """Outermost first. That of a SyntaxError's own place is the last one."""
    caret: str = ""
    """Under the code of the last frame, where a SyntaxError is."""
    raised_in: str = ""
    """Where it was raised, if not here: ``in DataLoader worker process 1``."""
    cause: ExceptionRecord | None = None
    """The one it was raised ``from``."""
    context: ExceptionRecord | None = None
    """The one that was being handled when it came, where no ``from`` was written."""
    members: tuple[ExceptionRecord, ...] = ()
    """Of an exception group."""

    def is_a(self, *names: str) -> bool:
        """Whether its class is one of these, or derives from one."""
        return not self.base_names.isdisjoint(names)

    @property
    def text_with_notes(self) -> str:
        """Its text and its notes."""
        return "; ".join([self.text, *self.notes])

    @property
    def short_notes(self) -> tuple[str, ...]:
        """Its notes without the one that tells its step and samples: too long for a line of a table."""
        return tuple(note for note in self.notes if not _STEP_NOTE.match(note))

    @property
    def name(self) -> str:
        """The class without its module."""
        return self.qualified_name.rpartition(".")[2]

    def chain(self) -> Iterator[ExceptionRecord]:
        """This one and all that it came from, oldest last."""
        current: ExceptionRecord | None = self
        while current is not None:
            yield current
            current = current.cause or current.context


def record_exception(error: BaseException, depth: int = 0) -> ExceptionRecord:
    """The exception with its chain. One that was raised in a loader worker, of roost's or of torch's, is that
    one, with its own frames."""
    text, notes = _string(error), _notes(error)
    if isinstance(error.__cause__, RemoteTraceback):
        return _from_remote(error, error.__cause__, text, notes)
    if unpacked := _from_torch_worker(error, text, notes):
        return unpacked
    frames = tuple(traceback.extract_tb(error.__traceback__)) if error.__traceback__ else ()
    found = ExceptionRecord(_class_name(type(error)), _base_class_names(error), text, notes, frames)
    return _with_origins(_with_syntax(found, error), error, depth)


def _with_origins(found: ExceptionRecord, error: BaseException, depth: int) -> ExceptionRecord:
    if depth >= _MAX_CHAIN:
        return found
    cause, context = error.__cause__, error.__context__
    handled = context if cause is None and not error.__suppress_context__ else None
    members = error.exceptions[:_MAX_MEMBERS] if isinstance(error, BaseExceptionGroup) else ()
    return replace(
        found,
        cause=record_exception(cause, depth + 1) if cause is not None else None,
        context=record_exception(handled, depth + 1) if handled is not None else None,
        members=tuple(record_exception(one, depth + 1) for one in members),
    )


def _class_name(cls: type) -> str:
    return (
        cls.__qualname__
        if cls.__module__ in ("builtins", "__main__")
        else f"{cls.__module__}.{cls.__qualname__}"
    )


def _base_class_names(error: BaseException) -> frozenset[str]:
    return frozenset(cls.__name__ for cls in type(error).__mro__)


def _string(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  - what a person's __str__ raises must not hide the error
        return f"<its str() raised {type(error).__name__}>"


def _notes(error: BaseException) -> tuple[str, ...]:
    notes = getattr(error, "__notes__", ())
    return tuple(map(_string, notes)) if isinstance(notes, list | tuple) else ()


def _with_syntax(found: ExceptionRecord, error: BaseException) -> ExceptionRecord:
    """Where a SyntaxError is: no frame of the traceback, because that code never ran."""
    if not isinstance(error, SyntaxError) or not isinstance(error.filename, str):
        return found
    code = error.text if isinstance(error.text, str) else ""
    at = FrameSummary(error.filename, error.lineno or 0, "", lookup_line=False, line=code)
    indent = len(code) - len(code.lstrip())
    column = error.offset - 1 - indent if isinstance(error.offset, int) else -1
    text = error.msg if isinstance(error.msg, str) else found.text
    return replace(
        found, text=text, frames=(*found.frames, at), caret=" " * column + "^" if column >= 0 else ""
    )


# --- tracebacks of loader workers, as text ----------------------------------------------------------------

_HEAD = r"Traceback \(most recent call last\):\n"
_CAUGHT = re.compile(rf"Caught (\w+) ([^\n]*)\.\nOriginal (?={_HEAD})")
_CHAIN_SEPARATOR = re.compile(
    "\n(The above exception was the direct cause of the following exception"
    f"|During handling of the above exception, another exception occurred):\n\n(?={_HEAD})"
)
_FRAME = re.compile(r'  File "(.+)", line (\d+)(?:, in (.+))?\Z')
_REPEATED = re.compile(r"  \[Previous line repeated (\d+) more times?\]\Z")
_ERROR_LINE = re.compile(r"([^\s:]+)(?:: (.*))?\Z", re.DOTALL)
_SAMPLE_NOTE = "while reading sample "
_STEP_NOTE = re.compile(r"in step \d+ \(epoch \d+, ")


def _from_remote(
    error: BaseException, cause: RemoteTraceback, text: str, notes: tuple[str, ...]
) -> ExceptionRecord:
    """One that came as itself, with its traceback as text."""
    found = _parse_chain(cause.text) if re.match(_HEAD, cause.text) else None
    if found is None:
        parts = (
            tuple(map(record_exception, error.exceptions)) if isinstance(error, BaseExceptionGroup) else ()
        )
        return ExceptionRecord(
            _class_name(type(error)),
            _base_class_names(error),
            text,
            notes,
            raised_in=cause.raised_in,
            members=parts,
        )
    if found.name == type(error).__name__:
        found = replace(found, base_names=_base_class_names(error))
        if not isinstance(error, SyntaxError):  # its place is among the frames already
            found = replace(found, text=text)
    return replace(found, raised_in=cause.raised_in, notes=notes)


def _from_torch_worker(error: BaseException, text: str, notes: tuple[str, ...]) -> ExceptionRecord | None:
    """One that torch has packed into the text of another."""
    head = _CAUGHT.match(text)
    if head is None:
        return None
    name, raised_in = head.groups()
    kinds = _base_class_names(error) if type(error).__name__ == name else frozenset([name])
    found = _parse_chain(text[head.end() :])
    return (
        replace(found, base_names=kinds, raised_in=raised_in, notes=(*found.notes, *notes)) if found else None
    )


def _parse_chain(text: str) -> ExceptionRecord | None:
    first, *rest = _CHAIN_SEPARATOR.split(text)
    found = _parse_traceback(first)
    for said, section in zip(rest[::2], rest[1::2], strict=True):
        newer = _parse_traceback(section)
        if newer is None:
            return None
        is_direct = said.startswith("The above")
        found = replace(newer, cause=found) if is_direct else replace(newer, context=found)
    return found


def _parse_traceback(section: str) -> ExceptionRecord | None:
    lines = section.rstrip("\n").split("\n")[1:]
    frames: list[FrameSummary] = []
    while lines and lines[0].startswith("  "):
        line = lines.pop(0)
        if match := _FRAME.match(line):
            is_followed = bool(lines) and lines[0].startswith("    ")
            code = lines.pop(0).strip() if is_followed else ""
            frames.append(FrameSummary(match[1], int(match[2]), match[3] or "", lookup_line=False, line=code))
        elif (match := _REPEATED.match(line)) and frames:
            frames += [frames[-1]] * int(match[1])
    last = _ERROR_LINE.match("\n".join(lines))
    if last is None:
        return None
    # The text and the notes came as one; roost's own note is known by its words.
    text, mark, sample = (last[2] or "").rpartition(f"\n{_SAMPLE_NOTE}")
    notes = (_SAMPLE_NOTE + sample,) if mark else ()
    name = last[1].rpartition(".")[2]
    return ExceptionRecord(last[1], frozenset([name]), text if mark else sample, notes, tuple(frames))
