"""Programs after ``--``: the options of `roost run` and `roost submit` that apply to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from roost.base.errors import UsageError
from roost.base.text.typed_path import typed_path
from roost.cli.options.config_help import ConfigCommand

if TYPE_CHECKING:
    from roost.operations.programs.program_package import TypedProgram

F = TypeVar("F", bound=Callable[..., Any])

_PROGRAM = f"{__name__}.program"
_OPTIONS = {
    "source": "--from",
    "in_place": "--in-place",
    "metrics": "--metric",
    "resume_with": "--resume-with",
    "checkpoint_pattern": "--checkpoint",
    "stage": "--stage",
}


def program_options(command: F) -> F:
    """Adds the options to a command, which reads them by `take_program_options`."""
    for option in reversed(
        (
            click.option(
                "--in-place",
                is_flag=True,
                help="With --: run the program where it was typed; the package holds no code.",
            ),
            click.option(
                "--from",
                "source",
                metavar="SOURCE",
                help="With --: code of another place, a folder, an archive, or git+URL@commit.",
            ),
            click.option(
                "--metric",
                "metrics",
                multiple=True,
                metavar="NAME=REGEX",
                help="With --: a metric in its output; the first group is the number. Can be repeated.",
            ),
            click.option(
                "--resume-with",
                metavar="ARGUMENTS",
                help="With --: added from the second session on, such as '--resume {checkpoint}'.",
            ),
            click.option(
                "--checkpoint",
                "checkpoint_pattern",
                metavar="GLOB",
                help="With --: its checkpoints, such as 'last*.pt'; the newest one is {checkpoint}.",
            ),
            click.option(
                "--stage",
                multiple=True,
                metavar="ARCHIVE[#sha256=HEX]",
                help="With --: unpacked to a local disk first; ROOST_STAGED is its folder. Can be repeated.",
            ),
        )
    ):
        command = option(command)
    return command


class ProgramCommand(ConfigCommand):
    """Takes everything after ``--`` as the command line of a program, even if it looks like options of its
    own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[_PROGRAM] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def typed_program() -> list[str] | None:
    """Returns the command line after ``--`` of the current command; None without one."""
    found = click.get_current_context().meta.get(_PROGRAM)
    return None if found is None else list(found)


def take_program_options(
    options: dict[str, Any],
    arguments: Sequence[str],
    *,
    command: str,
    absent: dict[str, str],
    remote: str | None = None,
) -> TypedProgram | None:
    """Removes the options of a program from those of a command; returns the program, or None if none was
    typed.

    Args:
        options: The options of the command.
        arguments: The words before ``--``: for a program only ``save_root=DIR``.
        command: The name of the command.
        absent: Names and spellings of the options that do not apply to a program.
        remote: The store of its remote copy, if there is to be one.

    Raises:
        UsageError: An option applies to programs only, or not to programs; or no program is given.
    """
    typed = typed_program()
    given: dict[str, Any] = {name: options.pop(name) for name in _OPTIONS}
    if typed is None:
        named = [_OPTIONS[name] for name, value in given.items() if value]
        if named:
            example = f"type `roost {command} {named[0]} … -- python train.py`"
            raise UsageError(f"{' and '.join(named)} is for a program after --", fix=example)
        return None
    example = f"type `roost {command} -- python train.py`"
    roots = [one.removeprefix("save_root=") for one in arguments if one.startswith("save_root=")]
    others = [one for one in arguments if not one.startswith("save_root=")]
    if others or not typed:
        what = f"{others[0]!r} is written before --" if others else "no command is given after --"
        raise UsageError(what, fix=example)
    wrong = [spelling for name, spelling in absent.items() if options.get(name)]
    if wrong:
        raise UsageError(f"{' and '.join(wrong)} is not for a command", fix="leave it out")
    from roost.operations.programs.program_package import TypedProgram

    return TypedProgram(
        command=typed,
        folder=Path.cwd(),
        root=(Path.cwd() / typed_path(roots[-1])) if roots else None,
        name=options["name"],
        description=options["description"],
        remote=remote,
        **given,
    )
