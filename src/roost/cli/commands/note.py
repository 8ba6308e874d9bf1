"""`roost note`."""

from __future__ import annotations

import sys

import click

from roost.base.errors import UsageError
from roost.display import terminal


@click.command("note")
@click.argument("package")
@click.argument("text", required=False)
@click.option("--edit", is_flag=True, help="Open the note in $EDITOR.")
@click.option("--delete", is_flag=True, help="Remove the note.")
def command(package: str, text: str | None, edit: bool, delete: bool) -> int:
    """Shows the note of a package, or replaces it.

    TEXT may be -, to read it from stdin. A note may be changed at any time, also while the run trains.

    \b
    roost note runs/NAME "diverged after the warm-up; see run B"
    roost note runs/NAME                       # shows it
    roost note runs/NAME --edit
    roost ls 'note:diverged'
    """
    from roost.operations.keeping import label_packages

    if (text is not None) + edit + delete > 1:
        raise UsageError("a text, --edit and --delete exclude each other", fix="give one of them")
    (found, *others) = label_packages.read([package])
    if others:
        raise UsageError(f"this names {len(others) + 1} packages", received=package, fix="name one of them")
    if text is None and not edit and not delete:
        if found.labels.note is not None:
            click.echo(terminal.escape_text(found.labels.note))
        else:
            terminal.print_status("the package has no note")
        return 0
    if edit:
        edited = click.edit(found.labels.note or "", extension=".md")
        if edited is None:
            terminal.print_status("the note is unchanged")
            return 0
        text = edited.rstrip("\n")
    elif text == "-":
        text = sys.stdin.read().rstrip("\n")
    label_packages.note([str(found.path)], text or None)
    return 0
