"""`roost fork`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roost.base.errors import UsageError
from roost.cli.commands.continue_ import package_and_overrides
from roost.cli.options.device_option import device_options
from roost.cli.options.follow_options import follow_or_detach, terminal_options
from roost.cli.options.rank_options import ranks_options, take_time_limit
from roost.cli.options.session_options import take_session_options
from roost.cli.options.trust_option import trust_option


@click.command("fork")
@click.argument("arguments", nargs=-1, metavar="PACKAGE|TASK [a.b=c]...")
@click.option("--at", "step", type=int, metavar="STEP", help="The step of the checkpoint to resume from.")
@click.option(
    "-c", "--checkpoint", type=int, metavar="ID", help="The checkpoint by its id instead of its step."
)
@click.option("--name", help="The new package's name; default: the current time.")
@click.option("-d", "--description", help="A short text about the new run.")
@click.option(
    "--save-root",
    type=click.Path(path_type=Path),
    help="The folder of the new package; default: that of PACKAGE.",
)
@device_options("as in PACKAGE's newest session")
@ranks_options
@terminal_options
@trust_option
def command(arguments: tuple[str, ...], **options: Any) -> int:
    """Resumes from a checkpoint of PACKAGE in a new package. PACKAGE is not changed, and may be running.

    The fork has the code and settings of PACKAGE, its newest good checkpoint or the given one, and its
    records up to there. With the same settings it computes the same bits; every setting can be changed as
    long as the checkpoint fits.

    \b
    roost fork runs/NAME --at 1200 optimizers.main.lr=1e-4
    roost fork runs/NAME max_epochs=40 --name longer
    roost plot runs/NAME runs/longer -o both.png
    """
    package, arguments = package_and_overrides(arguments, example="roost fork runs/NAME --at STEP")
    if options["step"] is not None and options["checkpoint"] is not None:
        raise UsageError("--at and -c both name a checkpoint", fix="leave out one")
    from roost.operations.lifecycle.fork import ForkRequest, fork

    overrides = (*arguments, *take_time_limit(options))
    detach, session = take_session_options(options)
    request = ForkRequest(package=package, overrides=overrides, **session, **options)
    return follow_or_detach(fork(request), detach=detach)
