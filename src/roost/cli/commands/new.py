"""`roost new`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.base.errors import UsageError
from roost.cli import terminal


@click.command("new")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option("-d", "option", type=click.Path(path_type=Path), help="The folder, if not given first.")
@click.option("-t", "--template", default="digits", show_default=True, help="digits, or clean: the smallest.")
def command(directory: Path | None, option: Path | None, template: str) -> int:
    """Makes a project in a new or empty folder.

    \b
    roost new digits
    roost new mine --template clean
    """
    target = directory or option
    if target is None:
        raise UsageError("no folder is named", fix="roost new mine")
    from roost.operations.new_project import new_project

    created = new_project(target, template=template)
    click.echo(f"{terminal.short(created.path)}: {', '.join(created.files)}")
    click.echo(f"next: {created.next_command}")
    return 0
