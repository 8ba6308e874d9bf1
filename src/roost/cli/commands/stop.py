"""`roost stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from roost.cli import surface
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.lifecycle.stop import StopResult

_REPORT_SECONDS = 5.0
_HINT_SECONDS = 10.0
"""After so long it is said how to end at once."""


@click.command("stop")
@click.argument("named", nargs=-1, required=True, metavar="PACKAGE|TASK|QUERY...")
@click.option("--now", is_flag=True, help="End at once, without saving.")
def command(named: tuple[str, ...], now: bool) -> int:
    """Saves and stops runs or tasks at the end of their current step, and waits until they have ended.

    A package is given by its path; a task by its id, the beginning of its id, or its name; a sweep by its
    id or name; several also by a pattern in quotes, or by a query as for roost ls: of these, those that run
    or wait are stopped. A pending task is taken from the queue. Ctrl-C ends the waiting, not the stopping.
    If a package does not run, the exit code is 0.

    \b
    roost stop runs/NAME
    roost stop runs/NAME --now
    roost stop 01m7ybz8bp 01m7ybz8c4       # tasks, as `roost tasks` shows them
    roost stop 'runs/try-*'
    roost stop 'lr>0.1 status:running'
    """
    return stop_and_report(named, now=now)


def stop_and_report(named: tuple[str, ...], *, now: bool) -> int:
    """Stops or ends tasks and packages, and reports the progress."""
    from roost.operations.lifecycle.stop import StopPending
    from roost.operations.queue.task_control import stop_all

    reported: dict[object, float] = {}
    hinted: set[object] = set()
    for progress in stop_all(named, now=now):
        event = progress.event
        shown = terminal.quote_path(progress.package)
        one = progress.package if progress.task is None else progress.task.id
        name = f"{progress.task.name}: " if progress.task is not None else f"{shown}: " if named[1:] else ""
        if not isinstance(event, StopPending):
            began = progress.task is None or progress.task.attempt > 0
            is_task = progress.task is not None
            resumable = progress.can_continue
            _report_result(event, shown, name, began=began, resumable=resumable, is_task=is_task)
        elif one not in reported or event.seconds - reported[one] >= _REPORT_SECONDS:
            reported[one] = event.seconds
            trains = progress.can_continue
            request = "ended at once" if now else "asked to save and stop" if trains else "asked to stop"
            # A session that loads is at no step yet.
            place = event.phase if event.phase == "starting" else f"step {event.step}, {event.phase}"
            step = f"; {place}" if trains else ""
            late = not now and event.seconds >= _HINT_SECONDS and one not in hinted
            target = shown if progress.task is None else progress.task.id
            hint = f"; to end it at once, without saving: {_program()} stop {target} --now" if late else ""
            hinted.update([one] if late else [])
            terminal.print_status(f"{name}session {event.session}: {request}{step}{hint}")
    return 0


def _program() -> str:
    """Returns how a person types this program here."""
    return surface.current().program


def _report_result(
    event: StopResult,
    shown: str,
    name: str = "",
    *,
    began: bool = True,
    resumable: bool = True,
    is_task: bool = False,
) -> None:
    state = terminal.format_state(event.state)
    step = "" if event.step is None else f" at step {event.step}"
    if not began:
        terminal.print_status(f"{name}{state} before it started")
    elif not event.was_running:
        terminal.print_status(
            f"{name}{state} while it waited to continue" if is_task else f"{shown} is not running: {state}"
        )
    elif event.state == "succeeded":
        terminal.print_status(f"{name}{state}{step}, before it could be stopped")
    else:
        terminal.print_status(
            f"{name}{state}{step}" + (f"; to continue: {_program()} continue {shown}" if resumable else "")
        )
