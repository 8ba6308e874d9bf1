"""Records of exceptions, raised in this process or received as a traceback text from a loader worker."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from traceback import FrameSummary

_MAX_CHAIN = 5
"""Exceptions of a chain that are recorded; a recursion may chain thousands."""
_MAX_MEMBERS = 5
"""Members of an exception group that are recorded."""


class RemoteTraceback(Exception):
    """The traceback of an exception from another process, set as the ``__cause__`` of that exception here.

    Args:
        text: The traceback, as Python prints it.
        raised_in: Where the exception was raised: ``in loader worker 1``.
    """

    def __init__(self, text: str, raised_in: str) -> None:
        super().__init__(text, raised_in)
        self.text, self.raised_in = text, raised_in

    def __str__(self) -> str:
        return f"{self.raised_in}:\n{self.text}"


@dataclass(frozen=True)
class ExceptionRecord:
    """An exception as data, with the exceptions of its chain."""

    qualified_name: str
    """The class as a traceback names it: ``ValueError``, ``torch.OutOfMemoryError``."""
    base_names: frozenset[str]
    """The names, without modules, of the class and of all its base classes."""
    text: str
    notes: tuple[str, ...] = ()
    frames: tuple[FrameSummary, ...] = ()
    """Outermost first; for a SyntaxError the last frame is the faulty line."""
    caret: str = ""
    """The line below the code of the last frame that marks where a SyntaxError is."""
    raised_in: str = ""
    """The other process, if the exception was raised in one: ``in DataLoader worker process 1``."""
    cause: ExceptionRecord | None = None
    """The exception from which this one was raised (``raise ... from``)."""
    context: ExceptionRecord | None = None
    """The exception that was being handled when this one was raised without ``from``."""
    members: tuple[ExceptionRecord, ...] = ()
    """The exceptions of an exception group."""

    def is_a(self, *names: str) -> bool:
        """Whether the class has one of these names, or a base class of such a name."""
        return not self.base_names.isdisjoint(names)

    @property
    def text_with_notes(self) -> str:
        """The text and the notes in one line."""
        return "; ".join([self.text, *self.notes])

    @property
    def short_notes(self) -> tuple[str, ...]:
        """The notes without the one on the step and its samples, which is too long for a line of a table."""
        return tuple(note for note in self.notes if not _STEP_NOTE.match(note))

    @property
    def name(self) -> str:
        """The class without its module."""
        return self.qualified_name.rpartition(".")[2]

    def chain(self) -> Iterator[ExceptionRecord]:
        """Yields this exception, then its causes and contexts, oldest last."""
        current: ExceptionRecord | None = self
        while current is not None:
            yield current
            current = current.cause or current.context


def record_exception(error: BaseException, depth: int = 0) -> ExceptionRecord:
    """Records an exception with its chain. For an exception of a loader worker (roost's or torch's) the
    record has the class, text and frames from the worker."""
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
    except Exception as error:  # noqa: BLE001  - an error in a __str__ of the project must not hide the error
        return f"<its str() raised {type(error).__name__}>"


def _notes(error: BaseException) -> tuple[str, ...]:
    notes = getattr(error, "__notes__", ())
    return tuple(map(_string, notes)) if isinstance(notes, list | tuple) else ()


def _with_syntax(found: ExceptionRecord, error: BaseException) -> ExceptionRecord:
    """Adds the faulty line of a SyntaxError as a frame: the traceback has none, because that code never
    ran."""
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
    """Records an exception of a roost loader worker: the exception object, with its traceback as text."""
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
        if not isinstance(error, SyntaxError):  # its faulty line is among the frames already
            found = replace(found, text=text)
    return replace(found, raised_in=cause.raised_in, notes=notes)


def _from_torch_worker(error: BaseException, text: str, notes: tuple[str, ...]) -> ExceptionRecord | None:
    """Records an exception that torch has put into the text of another one; None if it is not of that
    form."""
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
    for separator, section in zip(rest[::2], rest[1::2], strict=True):
        newer = _parse_traceback(section)
        if newer is None:
            return None
        is_cause = separator.startswith("The above")
        found = replace(newer, cause=found) if is_cause else replace(newer, context=found)
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
    # The text and the notes were printed as one; roost's own note is recognised by its words.
    text, separator, sample = (last[2] or "").rpartition(f"\n{_SAMPLE_NOTE}")
    notes = (_SAMPLE_NOTE + sample,) if separator else ()
    name = last[1].rpartition(".")[2]
    return ExceptionRecord(last[1], frozenset([name]), text if separator else sample, notes, tuple(frames))
