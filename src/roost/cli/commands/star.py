"""`roost star`."""

from __future__ import annotations

import click

from roost.display import terminal


@click.command("star")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
def command(words: tuple[str, ...]) -> int:
    """Stars packages: a starred package is neither removed nor pruned.

    A word is a path, a name, a task, a sweep, a pattern or a folder, or they are a query as for roost ls.

    \b
    roost star runs/NAME
    roost ls starred:true
    """
    from roost.operations.keeping import label_packages

    for one in label_packages.star(words, starred=True):
        terminal.print_status(terminal.escape_name(f"{one.path.name}: starred"))
    return 0
