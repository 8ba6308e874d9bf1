"""`roost restore`."""

from __future__ import annotations

import click

from roost.display import table, terminal


@click.command("restore")
@click.argument("words", nargs=-1, metavar="[NAME...]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the removed packages, and their sizes.")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Takes removed packages back from the trash; without a name, lists the trash.

    NAME is the name or the path that the package had, a pattern in quotes, or its path in the trash. If
    another package has its name by now, it gets a suffix.

    \b
    roost restore                              # what is in the trash
    roost restore runs/NAME
    roost restore 'lr-*'
    """
    from msgspec import structs

    from roost.base.text.byte_sizes import format_bytes
    from roost.operations.keeping import trash

    if words:
        for _, to in trash.restore(words):
            click.echo(terminal.format_path(to))
        return 0
    found = trash.entries(trash.find_roots([]))
    if as_json:
        terminal.print_json([{**structs.asdict(one), "path": str(one.path)} for one in found])
        return 0
    if not found:
        terminal.print_status("the trash of this folder and of its runs is empty")
        return 0
    rows = [
        (
            one.name,
            terminal.format_time(one.removed),
            format_bytes(one.num_bytes),
            terminal.format_path(one.path),
        )
        for one in found
    ]
    for line in table.fit_table(("NAME", "REMOVED", "SIZE", "PATH"), rows, left_out=["PATH"]):
        click.echo(line)
    return 0
