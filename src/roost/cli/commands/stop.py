"""`roost stop`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.cli import terminal

if TYPE_CHECKING:
    from roost.operations.lifecycle.stop import StopResult
    from roost.operations.queue.task_control import StopProgress

_REPORT_SECONDS = 5.0


@click.command("stop")
@click.argument("named", nargs=-1, required=True, metavar="PACKAGE|TASK...")
@click.option("--now", is_flag=True, help="End it at once, without saving.")
def command(named: tuple[str, ...], now: bool) -> int:
    """Asks what runs to save at its next step edge and end, and waits until it has.

    A package is given by its path, a task by its id, the beginning of that, or its name; a sweep by its id or
    its name. A task that waits never begins. Ctrl-C ends the waiting, not the stopping. A package that does
    not run is fine: exit code 0.

    \b
    roost stop runs/NAME
    roost stop runs/NAME --now
    roost stop 01m7ybz8bp 01m7ybz8c4       # tasks, as `roost tasks` shows them
    """
    return stop_and_report(named, now=now)


def stop_and_report(named: tuple[str, ...], *, now: bool) -> int:
    """Asks tasks and packages to end, and tells how that goes."""
    from roost.operations.lifecycle.stop import StopPending
    from roost.operations.queue.task_control import stop_all as events

    said: dict[Path, float] = {}
    for told in events(named, now=now):
        event = told.event
        name = f"{told.task.name}: " if told.task is not None else f"{_shown(told)}: " if named[1:] else ""
        if not isinstance(event, StopPending):
            began = told.task is None or told.task.attempt > 0
            is_task = told.task is not None
            _report_result(
                event, _shown(told), name, began=began, can_go_on=told.can_continue, is_task=is_task
            )
        elif told.package not in said or event.seconds - said[told.package] >= _REPORT_SECONDS:
            said[told.package] = event.seconds
            trains = told.can_continue
            asked = "ended at once" if now else "asked to save and end" if trains else "asked to end"
            step = f"; step {event.step}, {event.phase}" if trains else ""
            terminal.print_status(f"{name}session {event.session}: {asked}{step}")
    return 0


def _shown(told: StopProgress) -> str:
    return terminal.quote_path(told.package)


def _report_result(
    event: StopResult,
    shown: str,
    name: str = "",
    *,
    began: bool = True,
    can_go_on: bool = True,
    is_task: bool = False,
) -> None:
    state = terminal.format_state(event.state)
    step = "" if event.step is None else f" at step {event.step}"
    if not began:
        terminal.print_status(f"{name}{state} before it began")
    elif not event.was_running:
        terminal.print_status(
            f"{name}{state} while it waited to go on" if is_task else f"{shown} does not run: {state}"
        )
    elif event.state == "succeeded":
        terminal.print_status(f"{name}{state}{step}, before it could be stopped")
    else:
        terminal.print_status(
            f"{name}{state}{step}" + (f"; to go on: roost continue {shown}" if can_go_on else "")
        )
