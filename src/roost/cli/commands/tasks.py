"""`roost tasks`."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import click

from roost.base.text.byte_sizes import format_memory
from roost.base.text.counts import format_cores
from roost.display import table, terminal
from roost.display.table import Narrowing, TableColumn

if TYPE_CHECKING:
    from roost.operations.queue.list_tasks import Sweep, TaskRow

_HEADER = ("ID", "NAME", "STATE", "CARDS", "MEMORY", "HOST", "TIME", "PROGRESS", "PRIORITY", "REASON")
_LEFT_OUT = (
    (40, (("MEMORY",), ("HOST",), ("PRIORITY",), ("CARDS",))),
    (16, (("PROGRESS",), ("TIME",))),
)
"""Columns that are left out on a narrow terminal, in this order, until so many characters of the last column
are visible."""
_BAR_CHARACTERS = 10
_BY_ATTENTION = ("crashed", "failed", "running", "starting", "stopping", "stopped", "pending", "succeeded")
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
    task. PROGRESS is the step of a training and its remaining time, and of a sweep how many tasks have ended.
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
    sys.stdout.write("\n".join(_lines(rows if each else group_sweeps(rows), now, card_numbers(rows))) + "\n")
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


def _lines(rows: Sequence[TaskRow | Sweep], now: float, numbers: Mapping[str, int]) -> list[str]:
    """Returns the lines of the table."""
    from roost.operations.queue.list_tasks import Sweep

    cells = [
        _sweep_cells(row, now) if isinstance(row, Sweep) else _task_cells(row, now, numbers) for row in rows
    ]
    columns: dict[str, Sequence[str]] = dict(zip(_HEADER, zip(*cells, strict=True), strict=True))
    if terminal.allows_colours(sys.stdout):
        columns["STATE"] = [_format_states(state) for state in columns["STATE"]]
    width = table.terminal_width()
    name_width = min((width or 0) // 4, max(map(len, columns["NAME"])))
    shortened: dict[str, tuple[int, Literal["end", "middle"]]] = {
        "NAME": (name_width, "middle"),
        "REASON": (_LEFT_OUT[-1][0], "end"),
    }
    return table.format_columns(
        [TableColumn(name, found, *shortened.get(name, ())) for name, found in columns.items()],
        width,
        narrowing=[Narrowing(name_width + visible, groups) for visible, groups in _LEFT_OUT],
    )


def _format_states(text: str) -> str:
    """Returns the state of a task, or the counts of a sweep, in the colour of the state that needs most
    attention."""
    state = next((one for one in _BY_ATTENTION if one in text), text)
    return terminal.format_state(state, text)


def _format_progress(text: str, part: float | None) -> str:
    """Returns the progress, on a terminal with a bar before it."""
    if part is None or not sys.stdout.isatty():
        return text
    return f"{table.format_bar(part, _BAR_CHARACTERS)} {text}"


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
        _sweep_progress(sweep),
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
    text = f"{done}, {terminal.format_duration(row.left)} left" if row.left is not None else done
    return _format_progress(text, row.step / total if total else None)


def _sweep_progress(sweep: Sweep) -> str:
    from roost.lab.queue.task import ENDED

    ended = sum(task.state in ENDED for task in sweep.tasks)
    return _format_progress(f"{ended}/{len(sweep.tasks)} ended", ended / len(sweep.tasks))


def _memory(row: TaskRow) -> str:
    if not row.num_cards:
        return ""
    return "whole" if row.memory_mb is None else format_memory(row.memory_mb)
