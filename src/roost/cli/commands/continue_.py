"""`roost continue`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roost.base.errors import UsageError
from roost.cli.options.device_option import device_options
from roost.cli.options.follow_options import follow_or_detach, terminal_options
from roost.cli.options.rank_options import ranks_options, take_time_limit
from roost.cli.options.session_options import take_session_options


@click.command("continue")
@click.argument("arguments", nargs=-1, metavar="[PACKAGE|TASK] [a.b=c]...")
@click.option(
    "-r", "--record", "package", type=click.Path(path_type=Path), help="The package, if not given first."
)
@click.option(
    "-c", "--checkpoint", type=int, metavar="ID", help="Go on from this checkpoint, not the newest."
)
@click.option("--iter", "step", type=int, metavar="STEP", help="Go on from the checkpoint of this step.")
@click.option("-d", "--description", help="A few words about this session.")
@device_options("as the session before")
@ranks_options
@terminal_options
@click.option("--force", is_flag=True, help="Go on though config or code differ; recorded as inexact.")
@click.option("--project", type=click.Path(path_type=Path), help="Where the project is now, for its data.")
def command(arguments: tuple[str, ...], package: Path | None, **options: Any) -> int:
    """Goes on with a package from its newest good checkpoint, bit for bit.

    Settings that do not change what is learned may be changed: limits, checkpoints kept, loader workers. The
    others need --force. It may go on with other devices or another strategy: that is inexact, and is said.

    \b
    roost continue runs/2026-11-20_07-33-13_481
    roost continue runs/NAME max_epochs=20     # further than planned
    roost continue runs/NAME -c 3              # from checkpoint 3, on a new line
    roost continue runs/NAME --iter 1200       # from the checkpoint of step 1200, likewise
    roost continue runs/NAME --devices 3       # on three GPUs, whatever it was before
    """
    if package is None:
        package, arguments = package_and_overrides(arguments, example="roost continue runs/NAME")
    if options["step"] is not None and options["checkpoint"] is not None:
        raise UsageError("--iter and -c both name a checkpoint", fix="leave out one")
    from roost.operations.lifecycle.continue_ import ContinueRequest, continue_

    overrides = (*arguments, *take_time_limit(options))
    detach, session = take_session_options(options)
    request = ContinueRequest(package=package, overrides=overrides, **session, **options)
    return follow_or_detach(continue_(request), detach=detach)


def package_and_overrides(arguments: tuple[str, ...], *, example: str) -> tuple[Path, tuple[str, ...]]:
    """The first argument names a package, or its task; the rest are overrides.

    Args:
        arguments: As they were typed.
        example: What to type, for the message.

    Raises:
        UsageError: None is named.
    """
    from roost.operations.resolve import is_package

    first = arguments[0] if arguments else ""
    if not first or (("=" in first or first[0] in "~+") and not is_package(first)):
        raise UsageError("no package is named", fix=example)
    return Path(first), arguments[1:]
