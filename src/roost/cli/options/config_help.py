"""`-c`, `--project` and `-f` of the commands that take a config; their help, with the options that the config
declares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from roost.base.errors import RoostError

F = TypeVar("F", bound=Callable[..., Any])

_TYPED_ARGUMENTS = f"{__name__}.given"


def config_options(command: F) -> F:
    """Adds ``-c`` (`config`), ``--project`` and ``-f`` (`tuning`) to a command."""
    path = click.Path(path_type=Path)
    first = "The config, if not given as the first argument."
    tuning = click.option("-f", "--tuning", type=path, help="A second config, which overrides the first.")
    config = click.option("-c", "--config", "config", type=path, help=first)
    return config(project_option(tuning(command)))


def project_option(command: F) -> F:
    """Adds ``--project``, the folder of the code of a config."""
    return click.option(
        "--project",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The folder of the code, if it is not the nearest one, from the config's folder upwards, that "
        "holds the files that the config names.",
    )(command)


def typed_arguments() -> list[str]:
    """Returns the arguments of the current command as they were typed, options too."""
    return list(click.get_current_context().meta.get(_TYPED_ARGUMENTS, []))


class ConfigCommand(click.Command):
    """Shows in `roost run CONFIG --help` the options of CONFIG below those of the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED_ARGUMENTS] = list(args)  # click serves --help before the config argument is parsed
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        opts, _, _ = self.make_parser(ctx).parse_args(list(ctx.meta.get(_TYPED_ARGUMENTS, [])))
        # click marks an option that was not given with an object of its own.
        named = {name: value for name, value in opts.items() if isinstance(value, str)}
        texts = opts["arguments"] if isinstance(opts.get("arguments"), tuple) else ()
        config, *overrides = [*filter(None, [named.get("config")]), *texts] or [""]
        if config and "=" not in config:
            _write_declared_options(formatter, Path(config), named.get("tuning"), overrides)


def _write_declared_options(
    formatter: click.HelpFormatter, config: Path, tuning: str | None, overrides: Sequence[str]
) -> None:
    from roost.operations.lifecycle.explain import declared_options

    try:
        found = declared_options(config, tuning=Path(tuning) if tuning else None, overrides=overrides)
    except (RoostError, OSError) as error:
        formatter.write(f"\nThe options of {config} cannot be shown: {error}\n")
        return
    if not found:
        return
    with formatter.section(f"Options of {config}, as NAME=VALUE"):
        formatter.write_dl([(one.name, f"{one.help} [{one.takes}; {one.default}]".lstrip()) for one in found])
