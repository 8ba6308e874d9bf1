"""One way to name a checkpoint."""

from __future__ import annotations

import importlib

import click
import pytest

COMMANDS = ["analyze", "continue_", "debug", "export", "fork", "predict"]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_takes_last_best_and_an_id(name: str) -> None:
    command: click.Command = importlib.import_module(f"roost.cli.commands.{name}").command
    (option,) = [one for one in command.params if "--checkpoint" in one.opts]
    assert isinstance(option, click.Option) and option.opts[0] == "-c"
    assert option.type is click.STRING, "the words are parsed in one place, not here"
    assert option.help is not None
    assert all(word in option.help for word in ("last", "best", "id"))
