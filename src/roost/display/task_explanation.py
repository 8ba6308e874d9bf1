"""The explanation of a task: `roost why`, and the same in the shells."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from roost.display import table, terminal
from roost.operations.task_results import TaskExplanation


def format_explanation(found: TaskExplanation) -> Iterator[str]:
    """Yields the lines: why the task waits or how it ended, what it is, and its events."""
    yield terminal.escape_line(f"{found.label} {found.name}: {found.why}")
    yield terminal.escape_line(f"  package  {terminal.format_path(Path(found.package))}")
    if found.session_folder:
        yield terminal.escape_line(f"  folder   {terminal.format_path(Path(found.session_folder))}")
    if found.command:
        yield terminal.escape_line(f"  command  {shlex.join(found.command)}")
    if found.can_go_on:
        typed = terminal.quote_path(Path(found.package))
        yield terminal.escape_line(f"  resume   roost continue {typed}, or roost submit continue {typed}")
    rows = [(terminal.format_time(event.at), event.kind, event.text) for event in found.events]
    for line in table.format_table(("", "", ""), rows)[1:] if rows else ():
        yield f"  {line}"
