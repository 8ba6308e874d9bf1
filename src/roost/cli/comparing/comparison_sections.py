"""The parts of a comparison, of runs or of evaluations: as text for a width, or as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import click

from roost.base.text.word_list import join_names
from roost.display import table, terminal
from roost.display.table import Narrowing, TableColumn

_MAX_NAMES = 6
_MARKDOWN = re.compile(r"([\\`*_<>|\[\]#~])")


@dataclass
class Section:
    """Lines, and perhaps a table below them."""

    title: str
    lines: Sequence[str] = field(default_factory=list)
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    dropped: Sequence[Sequence[str]] = ()
    """Groups of columns that a narrow terminal does not show, the first one first."""
    min_width: int | None = None
    """The characters to which a narrow terminal shortens the first column; None: it does not."""


def format_text(sections: Iterable[Section], width: int | None) -> Iterator[str]:
    """Yields the lines of a text; `click.echo` removes the colours where none are allowed.

    Args:
        sections: The parts.
        width: Characters of a line; None: lines of any length.
    """
    for number, section in enumerate(sections):
        if number:
            yield ""
        if section.title:
            yield click.style(terminal.escape_name(section.title), bold=True)
        indent = "  " if section.title else ""
        free = width and width - len(indent)
        prose = [piece for line in section.lines for piece in _wrap(terminal.escape_name(line), free)]
        for line in [*prose, *_text_table(section, free)]:
            yield indent + (line if free is None else terminal.truncate(line, free))


def _wrap(line: str, width: int | None) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return [line] if width is None else textwrap.wrap(line, width, subsequent_indent=indent)


def _text_table(section: Section, width: int | None) -> Iterator[str]:
    if not section.rows:
        return
    columns = [TableColumn(*one) for one in zip(section.header, zip(*section.rows, strict=True), strict=True)]
    columns[0] = columns[0]._replace(min_width=section.min_width, shortened="middle")
    filled = [one.name for one in columns if any(one.cells)]
    groups = [[name for name in group if name in filled] for group in section.dropped]
    shown = table.fit_columns(columns, width, [Narrowing(section.min_width or 0, groups)])
    yield from table.format_columns(shown, width if section.min_width else None)
    hidden = [name for name in filled if name not in {one.name for one in shown}]
    if hidden and section.title:
        text = f"too narrow for: {join_names(hidden, _MAX_NAMES)}; see --markdown"
        yield from _wrap(terminal.escape_text(text), width)


def format_markdown(sections: Iterable[Section]) -> Iterator[str]:
    """Yields the lines of Markdown, as GitHub reads it. The cells of tables are Markdown already."""
    for number, section in enumerate(sections):
        if number:
            yield ""
        if section.title:
            yield from (f"### {to_markdown(section.title)}", "")
        yield from (f"- {to_markdown(line.strip())}" for line in section.lines)
        if section.rows:
            if section.lines:
                yield ""
            shown = [at for at in range(len(section.header)) if any(row[at] for row in section.rows)]
            yield _markdown_row(to_markdown(section.header[at]) for at in shown)
            yield _markdown_row("---" for _ in shown)
            yield from (_markdown_row(row[at] for at in shown) for row in section.rows)


def to_markdown(text: str) -> str:
    """Returns a text of any origin as Markdown that shows it, in one line."""
    return _MARKDOWN.sub(r"\\\1", terminal.escape_text(text.replace("\n", " ").replace("\t", " ")))


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
