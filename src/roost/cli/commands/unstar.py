"""`roost unstar`."""

from __future__ import annotations

import click

from roost.display import terminal


@click.command("unstar")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
def command(words: tuple[str, ...]) -> int:
    """Removes the stars of packages.

    A word is a path, a name, a task, a sweep, a pattern or a folder, or they are a query as for roost ls.

    \b
    roost unstar runs/NAME
    roost ls starred:true
    """
    from roost.operations.keeping import label_packages

    for one in label_packages.star(words, starred=False):
        terminal.print_status(terminal.escape_name(f"{one.path.name}: not starred any more"))
    return 0
