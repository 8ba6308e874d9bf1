"""`roost debug`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from roost.base.errors import UsageError
from roost.cli.options.checkpoint_option import checkpoint_option
from roost.cli.options.device_option import device_options, take_device
from roost.display import terminal


@click.command("debug")
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("step", required=False, type=click.IntRange(min=1))
@checkpoint_option("Replay from this checkpoint", default="last (default: before the step)")
@click.option(
    "--replay", is_flag=True, help="Replay from a checkpoint even if the black box has the failed step."
)
@click.option("--begin", is_flag=True, help="Stop before the step, at the first line of your own code.")
@device_options("as in training", verb="replay")
@click.option(
    "--project", type=click.Path(path_type=Path), help="The current path of the project, to find its data."
)
def command(**options: Any) -> NoReturn:
    """Opens pdb at the step that failed, with its batch, weights and random states.

    Without STEP it is the last step that failed, from the black box in the package (blackbox/). Any other
    STEP is reached by replaying the steps since the newest checkpoint before it. The package is not changed.

    \b
    roost debug runs/NAME              # where the step failed
    roost debug runs/NAME --begin      # before the step fails
    roost debug runs/NAME 813          # any step, also of a run that did not fail
    """
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError(
            "debug needs a terminal as stdin and stdout", fix="run it without pipes in a terminal"
        )
    from roost.operations.lifecycle.debug import DebugRequest, debug

    device = take_device(options)
    program = debug(DebugRequest(device=device, **options))
    for note in program.notes:
        terminal.print_status(note)
    program.replace_process()
