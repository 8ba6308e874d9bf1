"""`roost tasks`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from roost.display import table, terminal

if TYPE_CHECKING:
    from roost.operations.task_results import TaskRow

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

    ID is the beginning of the id that identifies the task. TASK is its label: a letter for its kind (T a
    training, C a command, A an analyzer, P a prediction) and its number; every command takes either. NAME is
    the name of the package, or the command line; of an analyzer or prediction its folder in the package.
    CARDS are the cards of a running task, with the numbers of `roost devices`, or how many a pending task
    requests; MEMORY is what it has of each. HOST are the cores and the memory of the host that it requests.
    TIME is how long a task has waited or run; of a sweep, from submission to the end of its last task.
    PROGRESS is the step of a training and its remaining time, and of a sweep how many tasks have ended.
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
    from roost.display.task_table import format_tasks

    shown = rows if each else group_sweeps(rows)
    lines = format_tasks(shown, time.time(), card_numbers(rows), table.terminal_width())
    sys.stdout.write("\n".join(lines) + "\n")
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
