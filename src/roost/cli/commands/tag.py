"""`roost tag`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.base.errors import UsageError
from roost.display import table, terminal


@click.command("tag")
@click.argument("words", nargs=-1, metavar="[TAG,TAG] [PACKAGE...]")
@click.option("--remove", is_flag=True, help="Remove the tags instead.")
def command(words: tuple[str, ...], remove: bool) -> int:
    """Adds tags to packages, or lists them.

    The first word is one tag, or several with commas; those after it are packages: paths, names, tasks,
    sweeps, patterns, folders, or a query as for roost ls. With one word the tags of that package are listed;
    without any, all tags of the current folder. A tag may be given at any time, also while the run trains.

    \b
    roost tag baseline runs/A runs/B
    roost tag best,paper 'valid/loss<0.1'
    roost tag debug --remove runs/A
    roost tag                                  # which tags there are
    roost ls tag:baseline
    """
    from roost.operations.keeping import label_packages

    if len(words) > 1:
        tags = label_packages.split_tags(words[0])
        for one in label_packages.tag(words[1:], tags, remove=remove):
            terminal.print_status(terminal.escape_name(f"{one.path.name}: {', '.join(one.labels.tags)}"))
        return 0
    if remove:
        raise UsageError("--remove needs tags and packages", fix="roost tag TAG --remove PACKAGE")
    if words:
        for one in label_packages.read(words):
            click.echo(terminal.escape_name(f"{one.path.name}: {', '.join(one.labels.tags)}"))
        return 0
    rows = [(tag, str(count)) for tag, count in label_packages.used_tags(Path.cwd())]
    if not rows:
        terminal.print_status("no package here has a tag")
        return 0
    for line in table.format_table(("TAG", "PACKAGES"), rows):
        click.echo(line)
    return 0
