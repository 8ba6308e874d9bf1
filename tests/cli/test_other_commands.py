"""What people of other tools type, and what they are told to type here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from roost.cli import other_commands
from roost.cli.__main__ import COMMANDS, roost
from roost.cli.other_commands import OTHER_COMMANDS, OTHER_OPTIONS
from tests.operations.packages import project

ROWS = [row for rows in OTHER_COMMANDS.values() for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.typed)
def test_a_command_of_another_tool_is_answered_with_one_that_runs(row: other_commands.OtherCommand) -> None:
    name, *arguments = shlex.split(row.typed)
    assert name not in COMMANDS, "roost has this command now: the row is never shown"
    hint = other_commands.command_hint(name, arguments)
    assert hint is not None and hint.startswith("type `roost ")
    _, command, *given = shlex.split(row.here)
    if command.startswith("--"):
        return
    found = roost.get_command(click.Context(roost), command)
    assert found is not None, row.here
    found.make_context(command, given, resilient_parsing=True)


def test_each_word_has_one_answer() -> None:
    words = [row.typed.split()[0] for row in ROWS]
    assert len(set(words)) == len(words)


def test_no_answer_ends_or_removes_anything_that_was_not_asked_to_end() -> None:
    ending = {row.typed.split()[0] for row in ROWS if re.match(r"roost (stop|kill)\b", row.here)}
    assert ending == {"gcancel", "scancel", "qdel", "cancel", "abort", "del"}


@pytest.mark.parametrize(
    ("name", "arguments", "line"),
    [
        ("fit", ["--config", "c.yaml"], "roost run c.yaml"),
        ("scancel", ["12"], "roost stop 12"),
        ("squeue", ["-u", "me"], "roost tasks"),
        ("launch", ["train.py"], "roost run CONFIG -DDP"),
        ("resume", ["runs/my run"], "roost continue 'runs/my run'"),
        ("sweep.yaml", [], "roost run sweep.yaml"),
    ],
)
def test_what_was_typed_takes_the_place_of_the_word_in_capitals(
    name: str, arguments: list[str], line: str
) -> None:
    hint = other_commands.command_hint(name, arguments)
    assert hint is not None and f"`{line}`" in hint


def test_an_unknown_word_has_no_answer() -> None:
    assert other_commands.command_hint("rnu", []) is None


@pytest.mark.parametrize("option", OTHER_OPTIONS)
def test_an_option_of_another_tool_is_none_of_run(option: str) -> None:
    command = roost.get_command(click.Context(roost), "run")
    assert command is not None
    assert option not in [flag for one in command.params for flag in one.opts]
    for line in re.findall(r"`(roost [^`]*)`", OTHER_OPTIONS[option]):
        assert line.split()[1] in COMMANDS


def test_an_option_that_is_a_setting_names_the_one_of_the_config(tmp_path: Path) -> None:
    config = str(project(tmp_path / "p"))
    hint = other_commands.option_hint
    assert str(hint("--lr", [config, "--lr", "0.1"], [])).endswith("optimizers.main.lr=0.1")
    assert str(hint("--learning-rate", [config, "--learning-rate=1e-3"], [])).endswith(
        "optimizers.main.lr=1e-3"
    )
    assert str(hint("--num_epochs", [config, "--num_epochs", "3"], [])).endswith("max_epochs=3")
    assert str(hint("--seed", ["nowhere.yaml", "--seed"], [])).endswith("seed=VALUE")
    assert hint("--nonsense", [config], []) is None
