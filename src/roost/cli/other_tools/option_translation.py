"""The translation of another tool's command line, such as one of sbatch, into options of a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from roost.cli.other_tools import option_values
from roost.cli.other_tools.other_options import OtherOption, find_row, option_names

_SAME_NAMES: dict[str, Callable[[str], str | None]] = {
    "--begin": option_values.begin,
    "--priority": option_values.own_priority,
}
"""The options that both have and whose values differ, with what translates a value."""
_MEMORY_OF_UNIT = ("--mem-per-cpu", "--mem-per-gpu")


class TranslatedOptions(NamedTuple):
    """Options of another tool, as options of a command of roost."""

    words: list[str]
    """What to write here."""
    left_out: list[str]
    """The options that have no counterpart, as they are typed there."""
    rest: list[str]
    """The arguments from the first one that is no option."""


def translate_options(
    arguments: Sequence[str], command: click.Command, *, before: Iterable[Sequence[str]] = ()
) -> TranslatedOptions:
    """Translates the options at the beginning of another tool's command line; those that it has in common
    with the command are kept.

    Args:
        arguments: The command line.
        command: The command of roost.
        before: Further lines of options, of which the same ones on the command line count instead.
    """
    written: dict[str, list[str]] = {}  # by option: the last one counts
    left_out: list[str] = []
    typed: dict[str, str | None] = {}
    for line in before:
        left_out += _translate_line(line, command, written, left_out, typed)
    rest = _translate_line(arguments, command, written, left_out, typed)
    for name in _MEMORY_OF_UNIT:
        if (value := typed.get(name)) is None or "--host-memory" not in option_names(command):
            continue
        total = option_values.memory_times(value, _num_units(name, written, typed))
        if total is None:
            left_out.append(f"{name}={value}")
        else:
            written.setdefault("--host-memory", ["--host-memory", total])
    if rest[:1] == ["--"]:
        del rest[0]
    return TranslatedOptions([word for words in written.values() for word in words], left_out, rest)


def _num_units(name: str, written: Mapping[str, list[str]], typed: Mapping[str, str | None]) -> int:
    """Returns by what the memory of one core or card is multiplied; 0 if that is not known."""
    if name == "--mem-per-gpu":
        _, number = written.get("--gpus", ["", "0"])
        return int(number) if number.isdecimal() else 0
    _, cores = written.get("--cpus", ["", "1"])
    tasks = next((typed[one] for one in ("-n", "--ntasks", "--ntasks-per-node") if one in typed), "1") or ""
    return int(cores) * int(tasks) if cores.isdecimal() and tasks.isdecimal() else 0


def _translate_line(
    line: Sequence[str],
    command: click.Command,
    written: dict[str, list[str]],
    left_out: list[str],
    typed_values: dict[str, str | None],
) -> list[str]:
    """Adds the options at the beginning of a line to those that are written and left out, and to
    ``typed_values``; returns the rest of the line."""
    known, left = option_names(command), list(line)
    while left and left[0].startswith("-") and left[0] not in ("-", "--"):
        typed = left.pop(0)
        name, value = (typed, None) if typed in known and len(typed) > 2 else _split_option(typed)
        row = find_row(name, command)
        takes_value = bool(row.example) if row is not None else known.get(name, False)
        if takes_value and value is None and left:
            value = left.pop(0)
        typed_values[name] = value
        if name in _MEMORY_OF_UNIT and row is not None and row.here:
            continue  # once the number of cores and cards is known
        if row is not None and row.here and not row.here.startswith("roost ") and _holds(row, value):
            words = shlex.split(row.written(value))
            written[words[0]] = words
        elif row is None and name in known and (here := _value_here(name, value)) is not None:
            written[name] = [name, *here]
        else:
            separator = "=" if name.startswith("--") else " "
            left_out.append(name if value is None else f"{name}{separator}{value}")
    return left


def _value_here(name: str, value: str | None) -> list[str] | None:
    """Returns the value of an option that both have, as words; None if it does not exist here."""
    if value is None or name not in _SAME_NAMES:
        return [] if value is None else [value]
    found = _SAME_NAMES[name](value)
    return None if found is None else shlex.split(found)


def _holds(row: OtherOption, value: str | None) -> bool:
    return not row.example or (value is not None and row.value(value) is not None)


def _split_option(typed: str) -> tuple[str, str | None]:
    if typed.startswith("--"):
        name, equals, value = typed.partition("=")
        return name, value if equals else None
    return typed[:2], typed[2:] or None
