"""`roost why`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from roost.cli import terminal


@click.command("why")
@click.argument("task")
@click.option("--json", "as_json", is_flag=True, help="JSON.")
def command(task: str, as_json: bool) -> int:
    """Says why a task waits, or how it ended, and what happened to it, and when.

    The task is named by its id, the beginning of that, its name, or the path of its package; a sweep by its
    id. Of a command it prints the command line, too; of a training that did not succeed how to go on.

    \b
    roost why 01m7ybz8bp
    roost why runs/NAME --json
    """
    from roost.operations.queue.why import why

    found = why(task)
    if as_json:
        terminal.print_json(found)
        return 0
    for one in found:
        click.echo(terminal.escape_line(f"{one.name}: {one.why}"))
        click.echo(terminal.escape_line(f"  package  {terminal.format_path(Path(one.package))}"))
        if one.command:
            click.echo(terminal.escape_line(f"  command  {shlex.join(one.command)}"))
        if one.can_go_on:
            typed = terminal.quote_path(Path(one.package))
            click.echo(
                terminal.escape_line(f"  go on    roost continue {typed}, or roost submit continue {typed}")
            )
        rows = [(terminal.format_time(event.at), event.kind, event.text) for event in one.events]
        for line in terminal.format_table(("", "", ""), rows)[1:] if rows else ():
            click.echo(f"  {line}")
    return 0
