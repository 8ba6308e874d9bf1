"""`roost du`."""

from __future__ import annotations

import click

from roost.display import table, terminal


@click.command("du")
@click.argument("words", nargs=-1, metavar="[PACKAGE...]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with all sizes in bytes.")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Shows what packages take on the disk, the largest first, what is in the trash, and what the staged
    archives of this machine take.

    A word is a path, a name, a task, a sweep, a pattern or a folder, or they are a query as for roost ls;
    without any, the packages of the current folder. PRUNE is what `roost prune --keep best,last` would free.

    \b
    roost du
    roost du runs 'state:succeeded'
    roost du runs --json
    """
    from roost.base.text.byte_sizes import format_bytes
    from roost.operations.keeping.disk_usage import disk_usage
    from roost.operations.listing.named_packages import select_packages

    found = disk_usage(select_packages(words or ["."]))
    if as_json:
        terminal.print_json(found)
        return 0
    rows = [
        (
            one.name,
            *map(format_bytes, (one.total, one.checkpoints, one.records, one.media, one.code, one.other)),
            format_bytes(one.prunable),
        )
        for one in found.packages
    ]
    header = ("NAME", "TOTAL", "CHECKPOINTS", "RECORDS", "MEDIA", "CODE", "OTHER", "PRUNE")
    for line in table.fit_table(header, rows, left_out=["OTHER", "MEDIA", "CODE", "RECORDS"]):
        click.echo(line)
    prunable = format_bytes(sum(one.prunable for one in found.packages))
    trash = f"; trash {format_bytes(found.trash)}, `roost gc --all` deletes it" if found.trash else ""
    if found.staged:
        trash += f"; staged archives {format_bytes(found.staged)}, `roost gc --staged` deletes them"
    terminal.print_status(f"total {format_bytes(found.total)}; `roost prune` frees {prunable}{trash}")
    return 0
