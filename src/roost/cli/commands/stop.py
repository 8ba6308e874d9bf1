"""`roost stop`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.cli import terminal

_SAID_EVERY_SECONDS = 5.0


@click.command("stop")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--now", is_flag=True, help="End it at once, without saving.")
def command(package: Path, now: bool) -> int:
    """Asks a running package to save at its next step edge and end, and waits until it has.

    Ctrl-C ends the waiting, not the stopping. A package that does not run is fine: exit code 0.

    \b
    roost stop runs/NAME
    roost stop runs/NAME --now
    """
    from roost.operations.stop import Ended, stop

    said = None
    for event in stop(package, now=now):
        if isinstance(event, Ended):
            _tell(event, terminal.short(package))
        elif said is None or event.seconds - said >= _SAID_EVERY_SECONDS:
            said = event.seconds
            asked = "ended at once" if now else "asked to save and end"
            terminal.say(f"session {event.session}: {asked}; step {event.step}, {event.phase}")
    return 0


def _tell(event: object, shown: str) -> None:
    from roost.operations.stop import Ended

    assert isinstance(event, Ended)
    state = terminal.state(event.state)
    step = "" if event.step is None else f" at step {event.step}"
    if not event.was_running:
        terminal.say(f"{shown} does not run: {state}")
    elif event.state == "succeeded":
        terminal.say(f"{state}{step}, before it could be stopped")
    else:
        terminal.say(f"{state}{step}; to go on: roost continue {shown}")
