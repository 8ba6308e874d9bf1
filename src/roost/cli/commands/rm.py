"""`roost rm`."""

from __future__ import annotations

import click

from roost.display import table, terminal


@click.command("rm")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(words: tuple[str, ...], yes: bool) -> int:
    """Moves packages into the trash of their folder.

    A word is a path, a name, a task, a sweep, a pattern or a folder, or they are a query as for roost ls. All
    are listed before a question is asked. Nothing is removed if one of them runs, waits in the queue, is
    analyzed, is starred, or is needed by another package. `roost restore` takes a package back, `roost gc`
    deletes what is in the trash.

    \b
    roost rm runs/NAME
    roost rm 'state:failed' --yes
    roost restore NAME
    """
    from roost.base.text.byte_sizes import format_bytes
    from roost.cli.confirmation import confirm
    from roost.operations.keeping import trash

    found = trash.plan_removal(words)
    rows = [
        (
            one.path.name,
            terminal.format_state(one.summary.state),
            format_bytes(one.num_bytes),
            ", ".join(one.summary.tags),
            f"{one.summary.metric} {terminal.format_number(one.summary.last)}" if one.summary.metric else "",
        )
        for one in found
    ]
    header = ("NAME", "STATE", "SIZE", "TAGS", "LAST")
    for line in table.fit_table(header, rows, left_out=["LAST", "TAGS"]):
        click.echo(line)
    count = "1 package" if len(found) == 1 else f"{len(found)} packages"
    total = f"{count}, {format_bytes(sum(one.num_bytes for one in found))}"
    if not confirm(f"move {total} to the trash?", yes=yes):
        return 1
    moved = [to for _, to in trash.remove([one.path for one in found])]
    places = sorted({terminal.format_path(to.parent) for to in moved})
    names = terminal.quote_path(found[0].path) if len(found) == 1 else "NAME"
    terminal.print_status(f"moved {total} to {', '.join(places)}; to take one back: roost restore {names}")
    return 0
