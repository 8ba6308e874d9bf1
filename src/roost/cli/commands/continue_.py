"""`roost continue`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from roost.base.errors import UsageError
from roost.cli.options.checkpoint_option import checkpoint_option
from roost.cli.options.device_option import device_options
from roost.cli.options.follow_options import follow_or_detach, terminal_options
from roost.cli.options.rank_options import ranks_options, take_time_limit
from roost.cli.options.session_options import take_session_options
from roost.cli.options.steal_option import steal_option
from roost.cli.options.trust_option import trust_option


@click.command("continue")
@click.argument("arguments", nargs=-1, metavar="[PACKAGE|TASK] [a.b=c]...")
@click.option(
    "-r", "--record", "package", type=click.Path(path_type=Path), help="The package, if not given first."
)
@checkpoint_option("Resume from this checkpoint")
@click.option("--iter", "step", type=int, metavar="STEP", help="Resume from the checkpoint of this step.")
@click.option("-d", "--description", help="A short text about this session.")
@device_options("as in the previous session")
@ranks_options
@terminal_options
@click.option("--force", is_flag=True, help="Resume even if config or code differ; recorded as inexact.")
@steal_option
@trust_option
@click.option(
    "--project", type=click.Path(path_type=Path), help="The current path of the project, to find its data."
)
def command(arguments: tuple[str, ...], package: Path | None, **options: Any) -> int:
    """Resumes a package from its newest good checkpoint, with the same bits as without the interruption.

    Settings that do not influence the result can be changed: limits, kept checkpoints, loader workers. Other
    settings need --force. With other devices or another strategy the run is inexact; a line says so, and it
    is recorded. A finished run whose limits leave nothing to train is not started: a line names the override
    that would train more, and the exit code is 0.

    \b
    roost continue runs/2026-11-20_07-33-13_481
    roost continue runs/NAME max_epochs=20     # train longer than planned
    roost continue runs/NAME -c 3              # from checkpoint 3, as a new branch; also: -c best
    roost continue runs/NAME --iter 1200       # from the checkpoint of step 1200
    roost continue runs/NAME --devices 3       # on three GPUs, whatever the last session used
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
    """Splits the arguments of a command into the package (or its task) and the overrides.

    Args:
        arguments: The arguments as typed.
        example: A correct command line, for the message.

    Raises:
        UsageError: The first argument is no package.
    """
    from roost.operations.resolve import is_package

    first = arguments[0] if arguments else ""
    if not first or (("=" in first or first[0] in "~+") and not is_package(first)):
        raise UsageError("no package is named", fix=f"type `{example}`")
    return Path(first), arguments[1:]
