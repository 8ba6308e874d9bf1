"""Scripts that are typed where roost takes a config: the command line that queues one, with the options of
its ``#SBATCH`` lines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from roost.base import safe_read
from roost.base.errors import ConfigError, NotFound, RoostError, UsageError

_PROGRAMS = {".py": "python", ".sh": "bash", ".bash": "bash", ".slurm": "bash", ".sbatch": "bash"}
"""The program that runs a script, by suffix."""
_CONFIGS = (".yaml", ".yml", ".json")
_DIRECTIVE = "#SBATCH"
_MAX_CHARACTERS = 1 << 16


def is_script(name: str) -> bool:
    """Whether a file is a script by its name."""
    return Path(name).suffix in _PROGRAMS


def is_config(name: str) -> bool:
    """Whether a file is a config by its name."""
    return name.endswith(_CONFIGS)


def queueing_advice(arguments: Sequence[str]) -> str:
    """Returns the command line of `roost submit` for a script or program of the user, and what it leaves out.

    Args:
        arguments: As typed: options of another tool, then the script or the program with its arguments.
    """
    from roost.cli.other_tools.option_hints import format_hint
    from roost.cli.other_tools.option_translation import translate_options
    from roost.cli.other_tools.other_options import load_command

    program = translate_options(arguments, load_command("submit")).rest[:1]
    if program and is_script(program[0]) and not os.path.lexists(program[0]):
        return f"there is no file {program[0]}"
    return format_hint(*command_line("submit", arguments))


def command_line(name: str, arguments: Sequence[str], *, own: Sequence[str] = ()) -> tuple[str, str]:
    """Returns the command line of `roost submit` or `roost lease` for the same, and a note on what it leaves
    out.

    Args:
        name: The command.
        arguments: As in `queueing_advice`.
        own: Options of the command itself, which are kept.
    """
    from roost.cli.other_tools.option_translation import translate_options
    from roost.cli.other_tools.other_options import load_command

    command = load_command(name)
    found = translate_options(arguments, command)
    program, notes = found.rest or ["COMMAND"], list[str]()
    if is_config(program[0]) and name != "submit":
        return command_line("submit", arguments, own=own)  # the other commands take only programs
    if is_script(program[0]):
        directives, unread = _directives(Path(program[0]))
        if directives or unread:
            found = translate_options(arguments, command, before=directives)
            notes = [f"its {_DIRECTIVE} lines are comments here"]
        notes += [f"a quote is open in the line {line!r}" for line in unread]
        program = [_PROGRAMS[Path(program[0]).suffix], *program]
    notes += [f"there is nothing like {' '.join(found.left_out)}"] if found.left_out else []
    program = program if is_config(program[0]) else ["--", *program]
    return shlex.join(["roost", name, *found.words, *own, *program]), "; ".join(notes)


def script_error(script: str, arguments: Sequence[str], *, own: Sequence[str] = ()) -> RoostError:
    """Returns the error for a script in the place of a config: that there is none, or how to queue it.

    Args:
        script: As typed.
        arguments: The command line from the script on.
        own: Options of `roost submit` that were typed before it.
    """
    from roost.cli.other_tools.option_hints import format_hint

    if not Path(script).exists():
        fix = "name a config, or a script that exists after `roost run --`"
        return NotFound("there is no such file", received=script, fix=fix)
    if not Path(script).is_file():  # a FIFO, a device
        return ConfigError(f"{script} is not a file", fix="name a config: a file .yaml, .yml or .json")
    hint = format_hint(*command_line("submit", arguments, own=own))
    return UsageError(
        "is a program and no config",
        setting="CONFIG",
        received=script,
        fix=f"{_run_hint(hint)}, or write a config: docs/coming-from.md",
    )


def _run_hint(hint: str) -> str:
    """Returns the hint to run a program now, if it needs no option of the queue; else the hint to queue
    it."""
    plain = "`roost submit -- "
    if plain not in hint:
        return hint
    return f"{hint.replace(plain, '`roost run -- ')} (or `roost submit -- …` to queue it)"


def _directives(script: Path) -> tuple[list[list[str]], list[str]]:
    """Returns the words of each ``#SBATCH`` line of a script, and the lines in which a quote is open; none if
    it cannot be read."""
    try:
        with open(safe_read.open_fd(script), errors="replace") as file:
            text = file.read(_MAX_CHARACTERS)
    except OSError:
        return [], []
    lines: list[list[str]] = []
    unread: list[str] = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break  # as in Slurm: those after the first command are not read
        if line.startswith(f"{_DIRECTIVE} "):
            try:
                lines.append(shlex.split(line.removeprefix(_DIRECTIVE), comments=True))
            except ValueError:  # an open quote
                unread.append(line)
    return lines, unread
