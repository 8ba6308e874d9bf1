"""`roost debug`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from roost.base.errors import UsageError
from roost.cli import terminal
from roost.cli.options.device_option import device_options, take_device


@click.command("debug")
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("step", required=False, type=click.IntRange(min=1))
@click.option(
    "-c",
    "--checkpoint",
    type=int,
    metavar="ID",
    help="Replay the steps from this checkpoint, not the newest.",
)
@click.option("--replay", is_flag=True, help="Take the steps before it once more, whatever was kept.")
@click.option("--begin", is_flag=True, help="Stop before the step, at the first line of your own.")
@device_options("where it trained", verb="do it")
@click.option("--project", type=click.Path(path_type=Path), help="Where the project is now, for its data.")
def command(**options: Any) -> NoReturn:
    """Stops in pdb at the step that failed, with the batch, the weights and the random numbers it had.

    Without STEP it is the last one that failed; what that needs lies in the package, under blackbox/. Any
    other STEP is reached by taking the steps since the newest checkpoint before it once more. The package
    stays as it is.

    \b
    roost debug runs/NAME              # where it failed
    roost debug runs/NAME --begin      # before it fails
    roost debug runs/NAME 813          # any step, also of a run that is well
    """
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout)):
        raise UsageError("debug needs a terminal, and stdin or stdout is none", fix="type it at a prompt")
    from roost.operations.lifecycle.debug import DebugRequest, debug

    device = take_device(options)
    program = debug(DebugRequest(device=device, **options))
    for note in program.notes:
        terminal.print_status(note)
    program.replace_process()
