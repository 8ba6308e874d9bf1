"""DLNest's command lines, ``python -m DLNest.Run`` and the others, as commands of roost.

A program of DLNest is replaced by `roost`, so that signals and the exit code are its own.
"""

# Not durable: opens /dev/null in place of an output that is not shown

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, NoReturn

from roost.base.errors import RoostError, UsageError
from roost.base.system.loopback import is_loopback
from roost.base.text.suggestions import did_you_mean
from roost.display import terminal

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_CPU = -1
_NEWEST, _UNTRAINED = "-1", "-2"


class ProgramOption(NamedTuple):
    """An option of a program of DLNest."""

    shown: str
    """The word for its value; empty: it has none; with dots: it has several."""
    translate: Callable[[Sequence[str]], list[str]]
    """Returns what to write here for its values."""


class DlnestProgram(NamedTuple):
    """A program of DLNest, ``python -m DLNest.NAME``."""

    words: tuple[str, ...]
    """The command of roost."""
    options: Mapping[str, ProgramOption]
    required: tuple[str, ...] = ()
    takes_settings: bool = False
    """Whether further words are settings, ``key=value``."""


def _same(option: str) -> Callable[[Sequence[str]], list[str]]:
    return lambda values: [option, *values]


def _nothing(values: Sequence[str]) -> list[str]:
    return []


def _host(values: Sequence[str]) -> list[str]:
    (host,) = values
    return [] if is_loopback(host) else ["-u", host]


def _checkpoint(values: Sequence[str]) -> list[str]:
    (id,) = values
    if id == _UNTRAINED:
        return ["--untrained"]
    return [] if id == _NEWEST else ["-c", id]


def _devices(values: Sequence[str]) -> list[str]:
    """Returns the options for numbers of cards, of which -1 is the CPU."""
    numbers = [one for value in values for one in value.split(",") if one]
    wrong = next((one for one in numbers if not _NUMBER.fullmatch(one)), None)
    if wrong is not None or not numbers:
        fix = "write -devices 0 1, or -devices -1 for the CPU"
        raise UsageError("is not the number of a card", setting="-devices", received=wrong, fix=fix)
    cards = [int(one) for one in numbers if int(one) != _CPU]
    return ["--devices", f"{','.join(map(str, cards))},"] if cards else ["-CPU"]


def _one_device(values: Sequence[str]) -> list[str]:
    """Returns the options for the cards of an analysis, for which roost itself chooses the card."""
    return ["-CPU"] if "-CPU" in _devices(values) else []


_PORT = ProgramOption("PORT", _same("--port"))
_CPU_OPTION = ProgramOption("", _same("-CPU"))
_ADDRESS = {"-u": ProgramOption("HOST", _host), "-p": ProgramOption("PORT", _same("-p"))}
PROGRAMS: Mapping[str, DlnestProgram] = MappingProxyType(
    {
        "Server": DlnestProgram(("server",), {"--port": _PORT, "-port": _PORT}),
        "Client": DlnestProgram(("client",), _ADDRESS),
        "Simple": DlnestProgram(("simple",), _ADDRESS),
        "Local": DlnestProgram(("local",), {}),
        "Run": DlnestProgram(
            ("run",),
            {
                "-c": ProgramOption("CFG", _same("-c")),
                "-d": ProgramOption("TEXT", _same("-d")),
                "-f": ProgramOption("JSON", _same("-f")),
                "-devices": ProgramOption("ID...", _devices),
                "-ns": ProgramOption("", _same("-ns")),
                "-ss": ProgramOption("", _nothing),
                "-sd": ProgramOption("", _same("-sd")),
                "-DDP": ProgramOption("", _same("-DDP")),
                "-CPU": _CPU_OPTION,
            },
            required=("-c",),
            takes_settings=True,
        ),
        "Analyze": DlnestProgram(
            ("analyze",),
            {
                "-r": ProgramOption("PKG", _same("-r")),
                "-s": ProgramOption("SCRIPT", _same("-s")),
                "-c": ProgramOption("ID", _checkpoint),
                "-devices": ProgramOption("ID...", _one_device),
                "-CPU": _CPU_OPTION,
            },
            required=("-r", "-s"),
        ),
    }
)
"""The programs by their names."""
_SILENT = "-ss"


class TranslatedProgram(NamedTuple):
    """A command line of DLNest as one of roost."""

    words: list[str]
    """After ``roost``."""
    notes: list[str]
    """Lines for the user about what is not as it was."""
    is_silent: bool
    """Whether the output of the run is not shown."""


def main(name: str, arguments: Sequence[str]) -> int:
    """Replaces this process by `roost`; returns the exit code if the command line is wrong.

    Args:
        name: The name of the program, such as ``Run``.
        arguments: Its arguments.
    """
    if "-h" in arguments or "--help" in arguments:
        print(_usage(name))
        return 0
    try:
        found = translate(name, arguments)
    except RoostError as error:
        terminal.print_error(str(error))
        return error.exit_code
    for note in found.notes:
        terminal.print_status(note)
    terminal.print_status(terminal.escape_name(shlex.join(["roost", *found.words])))
    if found.is_silent:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _replace_process([sys.executable, "-m", "roost", *found.words])


def _replace_process(command: list[str]) -> NoReturn:
    os.execv(command[0], command)


def translate(name: str, arguments: Sequence[str]) -> TranslatedProgram:
    """Returns the command line of roost for one of DLNest.

    Args:
        name: The name of the program.
        arguments: Its arguments.

    Raises:
        UsageError: An option is unknown or has no value, or a word belongs to none. DLNest ignores them.
    """
    program, rest = PROGRAMS[name], list(arguments)
    given: dict[str, list[str]] = {}
    settings: list[str] = []
    while rest:
        typed = rest.pop(0)
        option, equals, value = typed.partition("=")
        if not typed.startswith("-"):
            if not (program.takes_settings and equals):
                raise UsageError(f"{name} has no use for the word {typed!r}", fix=f"write `{_usage(name)}`")
            settings.append(typed)
            continue
        if option not in program.options:
            raise _unknown_option(name, option)
        given[option] = _take_values(name, option, [value] if equals else None, rest)
    for option in program.required:
        if option not in given:
            raise UsageError(f"{name} needs {option}", fix=f"write `{_usage(name)}`")
    notes = _settle_devices(name, given)
    options = [program.options[option].translate(values) for option, values in given.items()]
    once = [one for at, one in enumerate(options) if one not in options[:at]]  # -CPU, and -devices -1
    words = [word for one in once for word in one]
    return TranslatedProgram([*program.words, *words, *settings], notes, _SILENT in given)


def _settle_devices(name: str, given: dict[str, list[str]]) -> list[str]:
    """Keeps the cards that DLNest uses; returns notes for the user."""
    values = given.get("-devices", [])
    if name == "Run" and "-DDP" not in given and len(values) > 1:
        given["-devices"] = values[:1]
        return [f"only the card {values[0]} is used; with -DDP all of them are"]
    if name == "Analyze" and values and _one_device(values) == []:
        return ["the card is chosen among those that are free; CUDA_VISIBLE_DEVICES restricts them"]
    return []


def _take_values(name: str, option: str, value: list[str] | None, rest: list[str]) -> list[str]:
    """Removes the values of an option from the rest of the line, and returns them."""
    shown = PROGRAMS[name].options[option].shown
    found = [] if value is None else value
    if not shown:
        if found:
            raise UsageError("has no value", setting=option, received=found[0], fix=f"write {option}")
        return []
    is_list = shown.endswith("...")
    while rest and (is_list or not found) and (not rest[0].startswith("-") or _NUMBER.fullmatch(rest[0])):
        if is_list and "=" in rest[0]:
            break
        found.append(rest.pop(0))
    if not found or not found[0]:
        raise UsageError(f"{name} needs {option} {shown}", fix=f"write `{_usage(name)}`")
    return found


def _unknown_option(name: str, option: str) -> UsageError:
    known = PROGRAMS[name].options
    options = f"its options are {', '.join(known)}" if known else "it has none"
    return UsageError(f"{name} has no option {option!r}", fix=f"{did_you_mean(option, known)}{options}")


def _usage(name: str) -> str:
    program = PROGRAMS[name]
    words = []
    for option, about in program.options.items():
        written = f"{option} {about.shown}".rstrip()
        words.append(written if option in program.required else f"[{written}]")
    more = ["[KEY=VALUE...]"] if program.takes_settings else []
    return " ".join(["python -m", f"roost.compat.dlnest.{name}", *words, *more])
