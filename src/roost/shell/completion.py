"""Completion of a line: verbs, options, tasks, scripts, paths and words. It knows no terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from roost.base.errors import RoostError
from roost.base.text.typed_path import typed_path
from roost.lab.queue.task import ENDED
from roost.operations.lifecycle.new_project import TEMPLATES
from roost.shell.command_words import TypedWord, quote_word, split_line
from roost.shell.lab_connection import LabConnection
from roost.shell.verbs import VERB_NAMES, VERBS, ValueKind, Verb, VerbParameter

if TYPE_CHECKING:
    from roost.operations.task_results import TaskRow

T = TypeVar("T")

_CACHED_SECONDS = 1.0
"""So long the answers of the lab are used again, while a word is typed."""
_MAX_CANDIDATES = 500
_CONFIG_SUFFIXES = (".json", ".yaml", ".yml")
_PATHS = (ValueKind.FILE, ValueKind.FOLDER, ValueKind.PACKAGE)


class Candidate(NamedTuple):
    """A word that may stand at the end of a line."""

    text: str
    """What replaces the line from ``start`` on; quoted where it must be."""
    start: int
    shown: str
    """As in a menu."""
    summary: str = ""


class VerbCompletion:
    """Completes lines with what there is in a lab.

    Args:
        connection: The lab.
        watched: Returns the analyzer that is watched; None: none is.
    """

    def __init__(self, connection: LabConnection, watched: Callable[[], str | None] = lambda: None) -> None:
        self._connection, self._watched = connection, watched
        self._cached: dict[str, tuple[float, Sequence[object]]] = {}

    def complete(self, line: str) -> list[Candidate]:
        """Returns the words that may stand at the end of a line, the part before the cursor. A lab that does
        not answer has none."""
        words, open_quote = split_line(line)
        is_new = not words or (not open_quote and words[-1].end < len(line))
        current = TypedWord("", len(line), len(line), False) if is_new else words[-1]
        before = words if is_new else words[:-1]
        try:
            found = self._candidates(before, current)
            return [one for one, _ in zip(found, range(_MAX_CANDIDATES), strict=False)]
        except (RoostError, OSError):
            return []

    def _candidates(self, before: Sequence[TypedWord], current: TypedWord) -> Iterator[Candidate]:
        if not before:
            rows = [(verb.name, verb.summary) for verb in VERBS]
            yield from _matching(rows, current)
            return
        verb = VERB_NAMES.get(before[0].text)
        if verb is None:
            return
        awaited, place = _place(verb, before[1:])
        if awaited is not None:
            yield from self._values(verb, awaited, before, current)
            if awaited.kind not in (ValueKind.CARDS, ValueKind.TEXT):
                return
        if awaited is None and not current.text.startswith("-") and place < len(verb.arguments):
            yield from self._values(verb, verb.arguments[place], before, current)
        if not current.is_quoted:
            given = {word.text for word in before}
            rows = [(name, one.summary) for name, one in verb.options.items() if name not in given]
            yield from _matching(rows, current)

    def _values(
        self, verb: Verb, parameter: VerbParameter, before: Sequence[TypedWord], current: TypedWord
    ) -> Iterator[Candidate]:
        kind = parameter.kind
        if kind in _PATHS:
            yield from self._paths(kind, current)
            return
        if kind in (ValueKind.TASK, ValueKind.ANALYZER):
            yield from _matching(self._tasks(verb, kind), current)
        # Where the analyzer may be left out, a script or a checkpoint may stand in its place.
        if kind is ValueKind.ANALYZER and not parameter.is_required and self._watched() is not None:
            followers = [one for one in verb.arguments if one.is_required]
            for follower in followers:
                yield from self._values(verb, follower, before, current)
        if kind is ValueKind.SCRIPT:
            analyzer = before[1].text if len(before) > 1 else self._watched()
            yield from _matching(self._scripts(analyzer), current)
            yield from self._paths(kind, current) if "/" in current.text else ()
        if kind is ValueKind.VERB:
            yield from _matching([(one.name, one.summary) for one in VERBS], current)
        if kind is ValueKind.CARDS:
            yield from _matching([*self._cards(), ("all", "all cards"), ("-1", "the CPU")], current)
        if kind in (ValueKind.CHECKPOINT, ValueKind.ANALYZED_CHECKPOINT):
            more = [("untrained", "before training")] if kind is ValueKind.ANALYZED_CHECKPOINT else []
            yield from _matching(
                [("last", "the newest"), ("best", "by the monitored metric"), *more], current
            )
        if kind is ValueKind.NAME and parameter.key == "template":
            yield from _matching(TEMPLATES.items(), current)

    def _tasks(self, verb: Verb, kind: ValueKind) -> Iterator[tuple[str, str]]:
        """Yields the labels of tasks that a verb can be used on, newest first."""
        rows: Sequence[TaskRow] = self._cache("tasks", self._connection.list_tasks)
        for row in reversed(rows):
            if kind is ValueKind.ANALYZER and row.kind != "analyze":
                continue
            if row.state in ENDED and (kind is ValueKind.ANALYZER or verb.name in _OF_UNENDED):
                continue
            yield row.label, f"{row.state}, {row.name}"

    def _scripts(self, analyzer: str | None) -> Iterator[tuple[str, str]]:
        if analyzer is None:
            return
        found = self._cache(f"scripts of {analyzer}", lambda: self._connection.list_scripts(analyzer))
        for one in found:
            yield one.name, str(Path(one.path).parent)

    def _cards(self) -> Iterator[tuple[str, str]]:
        found = self._cache("cards", lambda: self._connection.devices().cards)
        for card in found:
            yield str(card.number), card.name

    def _cache(self, name: str, read: Callable[[], Sequence[T]]) -> Sequence[T]:
        at, found = self._cached.get(name, (-_CACHED_SECONDS, ()))
        if time.monotonic() - at > _CACHED_SECONDS:
            found = read()
            self._cached[name] = (time.monotonic(), found)
        return found  # type: ignore[return-value]

    def _paths(self, kind: ValueKind, current: TypedWord) -> Iterator[Candidate]:
        """Yields the folders and files that continue a path. A hidden one needs its dot."""
        if not self._connection.has_own_files:
            return
        typed_folder, _, beginning = current.text.rpartition("/")
        typed_folder += "/" if "/" in current.text else ""
        folder = typed_path(typed_folder or ".")
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir()) for entry in entries)
        for name, is_folder in found:
            hidden = name.startswith(".") and not beginning.startswith(".")
            if hidden or not name.startswith(beginning) or not name.isprintable():
                continue
            if is_folder:
                text = quote_word(f"{typed_folder}{name}/")
                # Without its closing quote, so that the next Tab goes on inside.
                yield Candidate(
                    text.removesuffix('"') if text.startswith('"') else text, current.start, f"{name}/"
                )
            elif _is_shown(kind, name):
                yield Candidate(quote_word(f"{typed_folder}{name}"), current.start, name)


_OF_UNENDED = ("del", "kill", "hold", "release", "priority")
"""Verbs that a task which has ended refuses."""


def _place(verb: Verb, words: Sequence[TypedWord]) -> tuple[VerbParameter | None, int]:
    """Returns the option whose value comes next, and the number of arguments that were given."""
    awaited: VerbParameter | None = None
    place = 0
    for word in words:
        option = None if word.is_quoted else verb.options.get(word.text)
        if option is not None:
            awaited = None if option.kind is ValueKind.FLAG else option
        elif awaited is None:
            place += 1
        elif awaited.kind not in (ValueKind.CARDS, ValueKind.TEXT):
            awaited = None
    return awaited, place


def _matching(rows: Iterable[tuple[str, str]], current: TypedWord) -> Iterator[Candidate]:
    """Yields the words that begin as what is typed, in any case."""
    typed = current.text.lower()
    for text, summary in rows:
        if text.lower().startswith(typed):
            word = text if text.startswith("-") else quote_word(text)
            yield Candidate(word, current.start, text, summary)


def _is_shown(kind: ValueKind, name: str) -> bool:
    if kind is ValueKind.FILE:
        return name.endswith(_CONFIG_SUFFIXES)
    return kind in (ValueKind.SCRIPT, ValueKind.FOLDER) and name.endswith(".py")
