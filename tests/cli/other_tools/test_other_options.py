"""The table of options of other tools: each row answers an option of a command."""

from __future__ import annotations

import shlex

import click
import pytest

from roost.cli.__main__ import COMMANDS, roost
from roost.cli.options.resource_options import take_task_options
from roost.cli.options.session_options import take_session_options
from roost.cli.other_tools import other_options
from roost.cli.other_tools.other_options import OTHER_OPTIONS, OtherOption

ROWS = [row for rows in OTHER_OPTIONS.values() for row in rows]
ARGUMENTS = {
    "run": "CONFIG", "check": "CONFIG", "submit": "CONFIG", "continue": "PACKAGE", "fork": "PACKAGE",
    "predict": "PACKAGE --data test", "analyze": "PACKAGE -s SCRIPT", "export": "PACKAGE --weights pt",
    "lease": "", "tasks": "", "devices": "", "logs": "TASK", "ls": "",
}  # fmt: skip
"""The arguments that each command needs."""


def find(name: str) -> click.Command:
    command = roost.get_command(click.Context(roost), name)
    assert command is not None
    return command


def asked(name: str, option: str) -> OtherOption | None:
    """The row that answers an option of a command; None if there is none or the command has the option."""
    command = find(name)
    has = option in other_options.option_names(command)
    return None if has else other_options.find_row(option, command)


def parse(line: str) -> None:
    """Parses a command line with the real parser, and the values of its options."""
    _, name, *words = shlex.split(line.replace("HOST:PORT", "node1:29500"))
    assert name in COMMANDS, line
    if words == ["--help"]:
        return
    context = find(name).make_context(name, words)
    if name == "submit":
        take_task_options(context.params)
    if name == "run":
        take_session_options({"pdb": False, **context.params})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.names[0]} {row.here}")
def test_each_row_is_reached(row: OtherOption) -> None:
    reached = [name for name in ARGUMENTS for option in row.names if asked(name, option) is row]
    assert reached, "an earlier row always counts"
    assert set(row.commands) <= set(ARGUMENTS) and (not row.example or row.value(row.example) is not None)


def test_memory_of_the_host_and_of_a_card_are_not_confused() -> None:
    for option in ("--mem", "--mem-per-cpu", "--mem-per-gpu"):  # of Slurm: all of the host
        row = other_options.find_row(option, find("submit"))
        assert row is not None and row.here == "--host-memory VALUE"
