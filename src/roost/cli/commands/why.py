"""`roost why`."""

from __future__ import annotations

import click

from roost.display import terminal


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
    from roost.display.task_explanation import format_explanation

    for one in found:
        for line in format_explanation(one):
            click.echo(line)
    return 0
