"""`roost new`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from roost.base.errors import UsageError
from roost.display import table, terminal
from roost.operations.lifecycle.new_project import TEMPLATES, new_project, no_plugins

_TEMPLATE_HELP = "; ".join(f"{name}: {words}" for name, words in TEMPLATES.items())


@click.command("new")
@click.argument("directory", required=False, type=click.Path(path_type=Path))
@click.option(
    "-d", "option", type=click.Path(path_type=Path), help="The folder, if not given as the argument."
)
@click.option("-t", "--template", help=f"{_TEMPLATE_HELP}.  [default: digits]")
@click.option("-MNIST", "mnist", is_flag=True, help="Short for -t mnist.")
@click.option("-p", "plugins", multiple=True, hidden=True)
def command(
    directory: Path | None, option: Path | None, template: str | None, mnist: bool, plugins: tuple[str, ...]
) -> int:
    """Creates a project in a new or empty folder.

    \b
    roost new digits
    roost new mine --template clean
    roost new mine -t experiment          # a project of YAML files only
    roost new -d mnist -MNIST
    roost new old -t dlnest-mnist         # in the contract of DLNest: root_config.json, LifeCycle.py
    """
    if directory and option:
        raise UsageError("two folders are named", received=f"{directory}, {option}", fix="name one folder")
    target = directory or option
    if target is None:
        raise UsageError("no folder is named", fix="type `roost new mine`")
    if mnist and template not in (None, "mnist"):
        raise UsageError("-MNIST is short for -t mnist", setting="-t", received=template, fix="leave out one")
    if plugins:
        raise no_plugins("-p", " ".join(plugins))
    created = new_project(target, template="mnist" if mnist else template or "digits")
    click.echo(f"{terminal.format_path(created.path)}/")
    for line in _short_tree(created.files):
        click.echo(f"  {line}")
    if created.missing:
        terminal.print_status(
            f"the project imports packages that are not installed: {', '.join(created.missing)}"
        )
    click.echo("next:")
    for line in created.next_commands:
        click.echo(f"  {line}")
    return 0


def _short_tree(files: Sequence[str]) -> list[str]:
    """Returns a line for each file, and one for each folder with the names of its files."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        folders.setdefault(f"{folder}/" if folder else name, []).append(name if folder else "")
    return table.format_table(["", ""], [(folder, " ".join(names)) for folder, names in folders.items()])[1:]
