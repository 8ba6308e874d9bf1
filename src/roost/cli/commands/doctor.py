"""`roost doctor`."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from roost.display import table, terminal

if TYPE_CHECKING:
    from roost.operations.doctor.diagnosis import Diagnosis

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}
_LEVEL_WIDTH = 7
_COLUMNS, _MIN_COLUMNS = 120, 70
"""The characters of a line where stdout is no terminal, and on a very narrow one."""


@click.command("doctor")
@click.argument("target", required=False, metavar="[PACKAGE|CONFIG]")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON: topic, check, level, found and fix of each line."
)
def command(target: str | None, as_json: bool) -> int:
    """Examines the machine, the installation, the lab and its runs, and says how to fix what is wrong.

    Each line is ok, a warning (slower, or at risk), or a problem (runs fail, or data may be lost). The exit
    code is 1 if there is a problem. With a PACKAGE or a CONFIG, that run or project is examined too. Nothing
    is changed; the disks are measured for about a second each, by files that are removed.

    \b
    roost doctor
    roost doctor config.yaml
    roost doctor runs/NAME
    roost doctor --json
    """
    from roost.cli.count_line import CountLine
    from roost.operations import work_progress
    from roost.operations.doctor.examination import examine

    with work_progress.shown_by(CountLine(quiet_seconds=0.0)):  # one check may take most of the time
        report = examine(target)
    if as_json:
        terminal.print_json(report)
    else:
        for line in _lines(report.lines):
            click.echo(terminal.escape_line(line), color=terminal.allows_colours(sys.stdout))
    problems, warnings = report.count("problem"), report.count("warning")
    if not as_json:
        terminal.print_status(f"{_count(problems, 'problem')}, {_count(warnings, 'warning')}")
    return 1 if problems else 0


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _lines(found: Sequence[Diagnosis]) -> Iterator[str]:
    """Yields the lines by topic: level, check and what was found; below it the fix."""
    width = max((len(one.check) for one in found), default=0)
    indent = " " * (_LEVEL_WIDTH + width + 6)
    for topic, group in groupby(found, key=lambda one: one.topic):
        yield click.style(topic, bold=True)
        for one in group:
            level = click.style(f"{one.level:{_LEVEL_WIDTH}}", fg=_COLOURS[one.level])
            first, *others = _wrap(one.found, len(indent))
            yield f"  {level}  {one.check:{width}}  {first}"
            fix = _wrap(f"fix: {one.fix}", len(indent)) if one.fix else []
            yield from (f"{indent}{line}" for line in [*others, *fix])


def _wrap(text: str, indent: int) -> list[str]:
    """Returns the lines of a text in the last column; a path or a command is never broken."""
    columns = max(_MIN_COLUMNS, table.terminal_width() or _COLUMNS)
    shown = terminal.escape_name(text)
    return textwrap.wrap(shown, columns - indent, break_long_words=False, break_on_hyphens=False) or [""]
