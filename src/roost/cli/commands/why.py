"""`roost why`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from roost.display import table, terminal


@click.command("why")
@click.argument("task")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(task: str, as_json: bool) -> int:
    """Shows why a task waits or how it ended, and its events with their times.

    Of a pending task it shows the priority, and how many tasks are considered before it.

    A task is given by its id, the beginning of its id, its name, or the path of its package; a sweep by its
    id. For a command, its command line is shown; for a training that did not succeed, how to continue it.

    \b
    roost why 01m7ybz8bp
    roost why runs/NAME --json
    """
    from roost.operations.queue.why import waits_for_lost_daemon, why

    if waits_for_lost_daemon(task):
        from roost.operations import lab

        if (note := lab.restart_lost_daemon()) is not None:
            terminal.print_status(note)
    found = why(task)
    if as_json:
        terminal.print_json(found)
        return 0
    for one in found:
        click.echo(terminal.escape_line(f"{one.label} {one.name}: {one.why}"))
        click.echo(terminal.escape_line(f"  package  {terminal.format_path(Path(one.package))}"))
        if one.session_folder:
            click.echo(terminal.escape_line(f"  folder   {terminal.format_path(Path(one.session_folder))}"))
        if one.command:
            click.echo(terminal.escape_line(f"  command  {shlex.join(one.command)}"))
        if one.can_go_on:
            typed = terminal.quote_path(Path(one.package))
            click.echo(
                terminal.escape_line(f"  resume   roost continue {typed}, or roost submit continue {typed}")
            )
        rows = [(terminal.format_time(event.at), event.kind, event.text) for event in one.events]
        for line in table.format_table(("", "", ""), rows)[1:] if rows else ():
            click.echo(f"  {line}")
    return 0
