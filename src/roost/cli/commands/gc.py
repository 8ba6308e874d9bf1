"""`roost gc`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from roost.base.errors import UsageError
from roost.display import table, terminal

_DEFAULT_AGE = "30d"


@click.command("gc")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER...]")
@click.option("--older", metavar="TIME", help=f"Those removed before this time; default {_DEFAULT_AGE}.")
@click.option("--all", "is_all", is_flag=True, help="Everything in the trash.")
@click.option("--staged", is_flag=True, help="Staged archives of this machine, in place of the trash.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(folders: tuple[Path, ...], older: str | None, is_all: bool, staged: bool, yes: bool) -> int:
    """Deletes packages in the trash for ever; with --staged, staged archives that no run uses.

    Without a FOLDER of packages, the trash of the current folder, of its runs and of its Saves. What is to be
    deleted is listed before a question is asked. A deletion that was interrupted is finished. With --staged a
    FOLDER is one that data.stage.to names.

    \b
    roost gc                                   # what was removed 30 days ago, or earlier
    roost gc runs --older 7d
    roost gc --all --yes
    roost gc --staged --older 7d               # staged archives that were not used for a week
    """
    from roost.base.interval import parse_duration
    from roost.base.text.byte_sizes import format_bytes
    from roost.cli.confirmation import confirm
    from roost.operations.keeping import trash

    if is_all and older is not None:
        raise UsageError("--all and --older exclude each other", received=older, fix="leave out one of them")
    age = 0.0 if is_all else parse_duration(older or _DEFAULT_AGE, setting="--older")
    if staged:
        return _delete_staged(folders, before=time.time() - age, yes=yes)
    roots = trash.find_roots(folders)
    known = trash.entries(roots)
    found = [one for one in known if is_all or one.removed < time.time() - age]
    rows = [(one.name, terminal.format_time(one.removed), format_bytes(one.num_bytes)) for one in found]
    for line in table.fit_table(("NAME", "REMOVED", "SIZE"), rows) if rows else []:
        click.echo(line)
    kept = [one for one in known if one not in found]
    if kept:
        size = format_bytes(sum(one.num_bytes for one in kept))
        terminal.print_status(f"kept: {len(kept)} removed later than that, {size}")
    total = sum(one.num_bytes for one in found)
    count = "1 package" if len(found) == 1 else f"{len(found)} packages"
    if found and not confirm(f"delete {count}, {format_bytes(total)}, for ever?", yes=yes):
        return 1
    done = list(trash.delete(roots, found))
    for one in done:
        if one.error is not None:
            terminal.print_error(f"{one.path}: {one.error}")
    freed = sum(one.num_bytes for one in done if one.error is None)
    terminal.print_status(f"freed {format_bytes(freed)}")
    return 1 if any(one.error is not None for one in done) else 0


def _delete_staged(folders: tuple[Path, ...], *, before: float, yes: bool) -> int:
    from roost.base.text.byte_sizes import format_bytes
    from roost.cli.confirmation import confirm
    from roost.operations.keeping import staged_data

    known = staged_data.staged_archives(folders)
    found = [one for one in known if one.last_used <= before and not one.in_use]
    rows = [
        (one.archive, terminal.format_time(one.last_used), format_bytes(one.num_bytes), one.sha256[:12])
        for one in found
    ]
    for line in table.fit_table(("ARCHIVE", "USED", "SIZE", "SHA256"), rows) if rows else []:
        click.echo(line)
    if in_use := sum(one.in_use for one in known):
        terminal.print_status(f"kept: {in_use} in use")
    if later := len(known) - len(found) - in_use:
        terminal.print_status(f"kept: {later} used later than that")
    total = sum(one.num_bytes for one in found)
    count = "1 staged archive" if len(found) == 1 else f"{len(found)} staged archives"
    if found and not confirm(f"delete {count}, {format_bytes(total)}?", yes=yes):
        return 1
    done = list(staged_data.remove_staged(found))
    terminal.print_status(f"freed {format_bytes(sum(one.num_bytes for one, is_done in done if is_done))}")
    return 0
