"""`roost rerun`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roost.cli.commands.continue_ import package_and_overrides
from roost.cli.options.device_option import device_options
from roost.cli.options.follow_options import follow_or_detach, terminal_options
from roost.cli.options.rank_options import ranks_options, take_time_limit
from roost.cli.options.session_options import take_session_options


@click.command("rerun")
@click.argument("arguments", nargs=-1, metavar="PACKAGE|TASK [a.b=c]...")
@click.option("--today", "todays_code", is_flag=True, help="Copy the project's code as it is now.")
@click.option("--name", help="The new package's name; default: the current time.")
@click.option("-d", "--description", help="A short text about the new run; default: that of PACKAGE.")
@click.option(
    "--save-root",
    type=click.Path(path_type=Path),
    help="The folder of the new package; default: that of PACKAGE.",
)
@device_options("as in PACKAGE's newest session")
@ranks_options
@terminal_options
def command(arguments: tuple[str, ...], **options: Any) -> int:
    """Begins the run of PACKAGE again, from step 0, in a new package. PACKAGE is not changed.

    The new run has the code and settings of PACKAGE, or with --today the project's code as it is now. With
    the same code and settings it computes the same bits.

    \b
    roost rerun runs/NAME
    roost rerun runs/NAME seed=1 --name second-seed
    roost rerun runs/NAME --today              # does what I changed since then make a difference?
    roost compare runs/NAME runs/second-seed
    """
    package, arguments = package_and_overrides(arguments, example="roost rerun runs/NAME")
    from roost.operations.lifecycle.rerun import RerunRequest, rerun

    overrides = (*arguments, *take_time_limit(options))
    detach, session = take_session_options(options)
    request = RerunRequest(package=package, overrides=overrides, **session, **options)
    return follow_or_detach(rerun(request), detach=detach)
