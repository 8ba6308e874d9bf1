"""`roost lab`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.base.errors import NotFound
from roost.display import terminal


@click.group("lab", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Controls the lab itself: its daemon and its queue.

    `roost submit` and the commands that change a task start the daemon if none runs. If the daemon is stopped
    or killed, no task is lost, and running tasks continue.

    \b
    roost lab status
    roost lab rebuild --help
    """


@command.command("start")
def start() -> int:
    """Starts the daemon if none runs.

    \b
    roost lab start
    """
    from roost.operations import lab

    found = lab.ensure_daemon()
    terminal.print_status(f"the lab's daemon runs: pid {found.pid}")
    return 0


@command.command("stop")
def stop() -> int:
    """Ends the daemon. Running tasks continue; pending tasks stay in the queue.

    \b
    roost lab stop
    """
    from roost.operations import lab

    found = lab.stop()
    terminal.print_status(
        "no daemon runs" if found is None else f"the lab's daemon (pid {found.pid}) has ended"
    )
    return 0


@command.command("enable")
def enable() -> int:
    """Starts the daemon with the machine, by a systemd unit of the user.

    \b
    roost lab enable && loginctl enable-linger
    """
    from roost.operations import systemd_unit

    found = systemd_unit.enable()
    for note in found.notes:
        terminal.print_status(note)
    terminal.print_status(f"enabled: {found.file}")
    return 0


@command.command("disable")
def disable() -> int:
    """Removes the systemd unit. The daemon and running tasks continue.

    \b
    roost lab disable
    """
    from roost.operations import systemd_unit

    found = systemd_unit.disable()
    terminal.print_status("no unit is enabled" if found is None else f"removed: {found}")
    return 0


@command.command("restart")
def restart() -> int:
    """Ends the daemon and starts a new one. Running tasks continue.

    This is needed after an update of roost.

    \b
    roost lab restart
    """
    from roost.operations import lab

    lab.stop()
    return int(start.main([], standalone_mode=False))


@command.command("log")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="How many lines."
)
def log(lines: int) -> int:
    """Prints the last lines of the daemon's log.

    \b
    roost lab log -n 100
    """
    from roost.operations import lab

    found = lab.log(lines)
    for line in found:
        click.echo(terminal.escape_line(line))
    if not found and lines:
        click.echo("the log is empty: the daemon logs only problems", err=True)
    return 0


@command.command("status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> int:
    """Shows the daemon, the number of tasks and the folder. The exit code is 3 if no daemon runs.

    \b
    roost lab status
    """
    from roost.operations import lab

    found = lab.status()
    daemon = found.daemon
    code = 0 if daemon is not None else NotFound.exit_code
    if as_json:
        terminal.print_json(found)
        return code
    runs = "none runs; `roost lab start`, `roost submit` or a change of a task starts one"
    if daemon is not None:
        runs = f"pid {daemon.pid}, roost {daemon.version}, since {terminal.format_time(daemon.started)}"
    click.echo(f"daemon  {runs}")
    click.echo(f"tasks   {format_counts(found.tasks)}")
    if found.warm:
        have = "process has" if found.warm == 1 else "processes have"
        click.echo(f"warm    {found.warm} {have} torch imported, 0.3 GB each")
    click.echo(f"folder  {terminal.escape_line(found.folder)}")
    return code


@command.command("rebuild")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--take-over",
    "lost",
    type=click.Path(path_type=Path),
    metavar="STATE",
    help="Also take the tasks of a lab that no longer exists; STATE was its ROOST_STATE.",
)
def rebuild(folders: tuple[Path, ...], lost: Path | None) -> int:
    """Rebuilds a damaged or lost queue from the packages.

    Packages are searched for in all folders from which tasks were submitted, and in FOLDERS. The old queue is
    kept under another name. Tasks of other labs (another ROOST_STATE or machine) are skipped.

    \b
    roost lab stop && roost lab rebuild
    roost lab rebuild ~/project/runs
    """
    from roost.operations import lab

    found = lab.rebuild(folders, lost=lost)
    for note in found.notes:
        terminal.print_status(note)
    click.echo(f"tasks   {format_counts(found.tasks)}")
    if found.old_queue is not None:
        click.echo(f"before  {terminal.escape_line(str(found.old_queue))}")
    return 0


def format_counts(tasks: dict[str, int]) -> str:
    """Returns ``3 running, 12 pending``."""
    return ", ".join(f"{count} {state}" for state, count in tasks.items()) or "none"
