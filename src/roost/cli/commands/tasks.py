"""`roost tasks`."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from roost.base.text.byte_sizes import format_memory
from roost.base.text.counts import format_cores
from roost.cli import terminal

if TYPE_CHECKING:
    from roost.operations.queue.list_tasks import Sweep, TaskRow

_HEADER = ("ID", "NAME", "STATE", "CARDS", "MEMORY", "HOST", "TIME", "PROGRESS", "PRIORITY", "REASON")
_DROPPED_COLUMNS = (
    (40, (("MEMORY",), ("HOST",), ("PRIORITY",), ("CARDS",))),
    (16, (("PROGRESS",), ("TIME",))),
)
"""Columns that are left out on a narrow terminal, in this order, until so many characters of the last column
are visible."""
_CARD_CHARACTERS = 12
"""Characters of the UUID of a card that no longer exists: enough to distinguish the cards of a machine."""
_MAX_PENDING = 50
_STATES = ("pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "crashed")


@click.command("tasks")
@click.option(
    "--all", "all_of_them", is_flag=True, help="All tasks: also more pending ones, and older ended ones."
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only tasks in this state; can be repeated.",
)
@click.option("-u", "--user", help="Only tasks of this user.")
@click.option("--each", is_flag=True, help="A line for each task of a sweep, not one for the sweep.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with each task separately.")
def command(all_of_them: bool, states: tuple[str, ...], user: str | None, each: bool, as_json: bool) -> int:
    """Lists the tasks of the lab: all running ones, the first 50 pending ones, and the last few that ended.

    ID is the beginning of the id that identifies the task. NAME is the name of the package, or the command
    line. CARDS are the cards of a running task, with the numbers of `roost devices`, or how many a pending
    task requests; MEMORY is what it has of each. HOST are the cores and the memory of the machine that it
    requests. TIME is how long a task has waited or run; of a sweep, from submission to the end of its last
    task. PROGRESS is the step of a training and its remaining time.
    PRIORITY also shows that an opportunistic task yields its cards to others.

    On a narrow terminal columns are left out, but never REASON. A sweep counts as one of the 50; --json has
    all pending tasks. Where it leaves out ended tasks, its last task has the key left_out with their number,
    and a line on stderr says so.
    If tasks wait and their daemon was killed or went down with the machine, the daemon is started.

    \b
    roost tasks
    roost tasks -u ada
    roost tasks --all --state failed --state crashed
    roost tasks --each --json
    """
    from roost.operations.queue.list_tasks import (
        card_numbers,
        count_hidden,
        group_sweeps,
        list_tasks,
    )

    max_pending = None if as_json else _MAX_PENDING
    rows = list_tasks(all_tasks=all_of_them, states=states, user=user, max_pending=max_pending)
    hidden = count_hidden(rows, user) if rows and not all_of_them and not states else (0, 0)
    if as_json:
        import msgspec

        encoded: list[object] = [*rows]
        if max(hidden) > 0:
            # In the last task: the list has no place of its own for what concerns it as a whole.
            left_out = {"pending": hidden[0], "ended": hidden[1], "fix": "roost tasks --all --json"}
            encoded[-1] = {**msgspec.to_builtins(rows[-1]), "left_out": left_out}
        sys.stdout.write(terminal.encode_json(msgspec.json.encode(encoded)) + "\n")
        _report_hidden(hidden)
        report_lost_daemon(rows)
        return 0
    if not rows:
        some = bool(states or user) and not all_of_them
        terminal.print_status("no such tasks; --all lists all tasks" if some else "no tasks")
        return 0
    now = time.time()
    sys.stdout.write("\n".join(_table(rows if each else group_sweeps(rows), now, card_numbers(rows))) + "\n")
    _report_hidden(hidden)
    report_lost_daemon(rows)
    return 0


def _report_hidden(hidden: tuple[int, int]) -> None:
    counts = zip(hidden, ("pending", "ended"), strict=True)
    more = [f"{count:,} more {what}" for count, what in counts if count > 0]
    if more:
        terminal.print_status(f"… and {' and '.join(more)}: --all")


def report_lost_daemon(rows: Sequence[TaskRow]) -> None:
    """Starts the daemon for tasks that wait for one which was lost, and says so."""
    from roost.operations.queue.list_tasks import wait_without_daemon

    if not wait_without_daemon(rows):
        return
    from roost.operations import lab  # 10 ms, which a list with a daemon saves

    if (note := lab.restart_lost_daemon()) is not None:  # otherwise another process has started it meanwhile
        terminal.print_status(note)


def _table(rows: Sequence[TaskRow | Sweep], now: float, numbers: Mapping[str, int]) -> list[str]:
    from roost.operations.queue.list_tasks import Sweep

    cells = [
        _sweep_cells(row, now) if isinstance(row, Sweep) else _task_cells(row, now, numbers) for row in rows
    ]
    every: dict[str, Sequence[str]] = dict(zip(_HEADER, zip(*cells, strict=True), strict=True))
    columns = {name: column for name, column in every.items() if any(column)}
    names = list(columns)
    # A line that wraps makes a table unreadable; --json has everything.
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if width is not None:
        columns["NAME"] = [terminal.truncate(name, width // 4) for name in columns["NAME"]]
        for visible, dropped in _DROPPED_COLUMNS:
            columns = {name: columns[name] for name in names}
            names = terminal.fit_columns(
                columns, width, dropped=dropped, truncated="REASON", min_truncated=visible
            )
    if terminal.allows_colours(sys.stdout):
        columns["STATE"] = [terminal.format_state(state) for state in columns["STATE"]]
    lines = terminal.format_table(names, zip(*(columns[name] for name in names), strict=True))
    return lines if width is None else [terminal.truncate(line, width) for line in lines]


def _task_cells(row: TaskRow, now: float, numbers: Mapping[str, int]) -> list[str]:
    return [
        row.short,
        row.name,
        row.state,
        _cards(row, numbers),
        _memory(row),
        _host(row),
        terminal.format_duration(row.seconds(now)),
        _progress(row),
        _priority(row),
        row.reason,
    ]


def _sweep_cells(sweep: Sweep, now: float) -> list[str]:
    tasks = sweep.tasks
    return [
        sweep.short,
        f"{sweep.name} ({_count(sweep)} tasks)",
        ", ".join(f"{count} {state}" for state, count in sweep.counts.items()),
        _requested(tasks[0]),
        _memory(tasks[0]),
        _host(tasks[0]),
        terminal.format_duration(sweep.seconds(now)),
        "",
        _priority(tasks[0]),
        sweep.reason,
    ]


def _count(sweep: Sweep) -> str:
    shown = len(sweep.tasks)
    return f"{shown:,}" if shown == sweep.total else f"{shown:,} of {sweep.total:,}"


def _priority(row: TaskRow) -> str:
    """The priority; ``yields`` marks an opportunistic task, which starts after all others and is stopped for
    them."""
    parts = [str(row.priority)] if row.priority else []
    return ", ".join([*parts, *(["yields"] if row.opportunistic else [])])


def _cards(row: TaskRow, numbers: Mapping[str, int]) -> str:
    known = ",".join(str(numbers[card]) for card in row.cards if card in numbers)
    gone = [card[:_CARD_CHARACTERS] for card in row.cards if card not in numbers]
    return ",".join([*([f"GPU {known}"] if known else []), *gone]) or _requested(row)


def _requested(row: TaskRow) -> str:
    count = row.num_cards
    return f"{count} card{'s' * (count > 1)}" if count else ""


def _host(row: TaskRow) -> str:
    """The part of the host that the task requests."""
    cores = [format_cores(row.cores)] if row.cores else []
    return ", ".join([*cores, *([format_memory(row.host_memory_mb)] if row.host_memory_mb else [])])


def _progress(row: TaskRow) -> str:
    if row.step is None:
        return ""
    total = row.total_steps
    done = f"{row.step}/{total} ({row.step / total:.0%})" if total else f"step {row.step}"
    return f"{done}, {terminal.format_duration(row.left)} left" if row.left is not None else done


def _memory(row: TaskRow) -> str:
    if not row.num_cards:
        return ""
    return "whole" if row.memory_mb is None else format_memory(row.memory_mb)
