"""Hints for options that a command does not have: what to write instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from roost.base.errors import RoostError
from roost.cli.other_tools.other_options import find_row, load_command, option_names


def option_hint(option: str, arguments: Sequence[str], command: click.Command) -> str | None:
    """Returns what to write for an option that a command does not have; None if nothing is known.

    Args:
        option: The unknown option, with its dashes.
        arguments: All arguments of the command.
        command: The command.
    """
    row = find_row(option, command)
    if row is not None:
        value = value_after(option, arguments)
        if (
            row.example
            and value is not None
            and row.value(value) is None
            and not row.here.startswith("roost ")
        ):
            known = f"{option} {row.example} is `{row.written(None)}`" if row.here else row.note
            return f"there is nothing like {option} {value}; {known}"
        return format_hint(_with_typed(row.written(value), arguments), row.note)
    if command.name in ("run", "check") and (there := _written_for_submit(option, arguments)) is not None:
        return f"only a task of the queue has it: `roost submit CONFIG {there}`"
    name = option.removeprefix("--trainer.").lstrip("-").replace("-", "_")
    if not option.startswith("--") or f"--{name.replace('_', '-')}" in option_names(command):
        return None
    value = value_after(option, arguments)
    typed = "VALUE" if value is None else shlex.quote(value)
    if meant := _settings_named(name, arguments):
        return "a setting is written without dashes: " + " or ".join(f"{key}={typed}" for key in meant)
    return None


def _with_typed(line: str, arguments: Sequence[str]) -> str:
    """Returns a command line with the config that was typed; that of a sweep also with the settings."""
    config = next((one for one in arguments if one.endswith((".yaml", ".yml", ".json"))), "CONFIG")
    words = [config if one == "CONFIG" else one for one in shlex.split(line)]
    given = [one for one in arguments if "=" in one and not one.startswith("-")]
    if words[:2] == ["roost", "submit"] and given and "=" in words[-1]:
        words = [*(one for one in words if "=" not in one), *given]
    return shlex.join(words) if line.startswith("roost ") else line


def _written_for_submit(option: str, arguments: Sequence[str]) -> str | None:
    """Returns what to write for `roost submit`; None if it has no such option either."""
    submit, value = load_command("submit"), value_after(option, arguments)
    if (row := find_row(option, submit)) is not None:
        return row.written(value) if row.here and not row.here.startswith("roost ") else None
    if (takes_value := option_names(submit).get(option)) is None:
        return None
    return f"{option} {'VALUE' if value is None else shlex.quote(value)}" if takes_value else option


def format_hint(line: str, note: str = "") -> str:
    """Returns an advice as text: what to type or to write, and the note about it."""
    if not line:
        return note
    verb = "type" if line.startswith("roost ") else "write"
    return f"{verb} `{line}`" + (f" ({note})" if note else "")


def value_after(option: str, arguments: Sequence[str]) -> str | None:
    """Returns the value that was typed for an option; None if there is none."""
    for at, one in enumerate(arguments):
        if one.startswith(f"{option}="):
            return one.partition("=")[2]
        if len(option) == 2 and one.startswith(option) and len(one) > 2 and one[1] != "-":
            return one[2:]
        if one == option and at + 1 < len(arguments) and not arguments[at + 1].startswith("--"):
            return arguments[at + 1]
    return None


def _settings_named(name: str, arguments: Sequence[str]) -> list[str]:
    """Returns the settings of that name, or which another tool calls so, in the config or package among the
    arguments; else in a config with one optimizer ``main``."""
    from roost.config import layers, settings
    from roost.config.other_tools import synonyms

    known = list(settings.known_keys({"optimizers": {"main": {}}}))
    known.append("optimizers.main.lr")
    for one in arguments:
        path = Path(one) / "args.json" if Path(one).is_dir() else Path(one)
        if path.suffix in (".yaml", ".yml", ".json") and path.is_file():
            try:
                config = layers.load(path)
            except (RoostError, OSError):
                break
            known = config.known_keys()
            break
    if name in known:
        return [name]
    meant = synonyms.find_setting(name, known)
    found = [meant] if meant is not None else synonyms.nested_keys(name, known)
    return found if len(found) <= 3 else []
