"""`roost tasks`."""

from __future__ import annotations

import os.path
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from roost.base.size import memory
from roost.cli import terminal

if TYPE_CHECKING:
    from roost.operations.list_tasks import Sweep, TaskRow

_HEADER = ("ID", "NAME", "STATE", "CARDS", "MEMORY", "TIME", "PRIORITY", "REASON")
_CARD_CHARACTERS = 12
"""Of the id of a card: as much of a UUID as tells it from the others of a machine."""
_STATES = ("pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "crashed")


@click.command("tasks")
@click.option("--all", "all_of_them", is_flag=True, help="Those too that have ended long ago.")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(_STATES), help="Only those in this state."
)
@click.option("--user", help="Only those of this user.")
@click.option("--each", is_flag=True, help="The tasks of a sweep one by one, not in one line.")
@click.option("--json", "as_json", is_flag=True, help="JSON, each task of its own.")
def command(all_of_them: bool, states: tuple[str, ...], user: str | None, each: bool, as_json: bool) -> int:
    """Lists the tasks of the lab: what waits and runs, and the last few that have ended.

    TIME is how long a task has waited, runs, or ran. ID is as much of it as tells the task from all others.

    \b
    roost tasks
    roost tasks --all --state failed --state crashed
    roost tasks --each --json
    """
    from roost.operations.list_tasks import folded, list_tasks, needs_daemon

    rows = list_tasks(all_of_them=all_of_them, states=states, user=user)
    if as_json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(rows) + b"\n")
        return 0
    if not rows:
        terminal.say(
            "no tasks"
            if all_of_them
            else "no tasks of this kind; --all lists all"
            if states or user
            else "no tasks"
        )
        return 0
    now = time.time()
    sys.stdout.write("\n".join(_table(rows if each else folded(rows), now)) + "\n")
    if needs_daemon(rows):
        terminal.say("nobody looks after them: roost lab start")
    return 0


def _table(rows: Sequence[TaskRow | Sweep], now: float) -> list[str]:
    from roost.operations.list_tasks import Sweep

    cells = [_of_sweep(row, now) if isinstance(row, Sweep) else _of_task(row, now) for row in rows]
    if terminal.colours(sys.stdout):
        cells = [[*row[:2], terminal.state(row[2]), *row[3:]] for row in cells]
    lines = terminal.columns(_HEADER, cells)
    # A line that wraps makes a table unreadable; --json has everything.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return lines if width is None else [terminal.cut(line, width) for line in lines]


def _of_task(row: TaskRow, now: float) -> list[str]:
    cards = ",".join(card[:_CARD_CHARACTERS] for card in row.cards) or str(row.num_cards or "")
    return [
        row.short,
        row.name,
        row.state,
        cards,
        _memory(row),
        terminal.duration(row.seconds(now)),
        str(row.priority or ""),
        row.reason,
    ]


def _of_sweep(sweep: Sweep, now: float) -> list[str]:
    tasks = sweep.tasks
    waits = [task for task in tasks if task.state == "pending"]
    common = os.path.commonprefix([task.name for task in tasks])  # noqa: RUF071  - they are no paths
    return [
        sweep.short,
        f"{common}… ({len(tasks)} tasks)",
        ", ".join(f"{count} {state}" for state, count in sweep.counts.items()),
        str(tasks[0].num_cards or ""),
        _memory(tasks[0]),
        terminal.duration(max(task.seconds(now) for task in tasks)),
        str(tasks[0].priority or ""),
        waits[0].reason if waits else "",
    ]


def _memory(row: TaskRow) -> str:
    if not row.num_cards:
        return ""
    return "whole" if row.memory_mb is None else memory(row.memory_mb)
