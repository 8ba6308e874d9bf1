"""Commands of other tools, and what is advised to type here."""

from __future__ import annotations

import re
import shlex

import pytest

from roost.cli import other_commands
from roost.cli.__main__ import COMMANDS
from roost.cli.other_commands import OTHER_COMMANDS
from tests.cli.test_other_options import find, parse

ROWS = [row for rows in OTHER_COMMANDS.values() for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.typed)
def test_a_command_of_another_tool_is_answered_with_one_that_runs(row: other_commands.OtherCommand) -> None:
    name, *arguments = shlex.split(row.typed)
    assert name not in COMMANDS, "roost has this command now: the row is never shown"
    hint = other_commands.command_hint(name, arguments)
    assert hint is not None and hint.startswith("type `roost ")
    for line in re.findall(r"`(roost [^`]*)`", hint):
        if line.split()[1] in COMMANDS and len(line.split()) > 2:
            parse(line)
        else:
            assert line.split()[1] in (*COMMANDS, "--help", "--version")


def test_each_word_has_one_answer() -> None:
    words = [row.typed.split()[0] for row in ROWS]
    assert len(set(words)) == len(words)


def test_no_answer_ends_or_removes_anything_that_was_not_asked_to_end() -> None:
    ending = {row.typed.split()[0] for row in ROWS if re.match(r"roost (stop|kill)\b", row.here)}
    assert ending == {"gcancel", "scancel", "qdel", "cancel", "abort"}


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


@pytest.mark.parametrize(
    ("typed", "advised"),
    [
        ("sbatch --mem 8G -J x job.sh", "roost submit --host-memory 8GB --name x -- bash job.sh"),
        ("gbatch --gpus 1 python train.py --lr 3", "roost submit --gpus 1 -- python train.py --lr 3"),
        ("srun --gres=gpu:2 -t 60 python x.py", "roost lease --gpus 2 --time-limit 60min -- python x.py"),
        ("accelerate launch train.py", "roost run CONFIG -DDP"),
        ("wandb login", "roost run CONFIG +mirrors.wandb.project=NAME"),
        ("python train.py --lr 1", "roost submit -- python train.py --lr 1"),
        ("job.sh 3", "roost submit -- bash job.sh 3"),
        ("validate --config c.yaml", "roost show PACKAGE"),
        ("test runs/a", "roost show runs/a"),
    ],
)
def test_the_options_and_the_program_are_translated(typed: str, advised: str) -> None:
    name, *arguments = shlex.split(typed)
    assert f"type `{advised}`" in str(other_commands.command_hint(name, arguments))


def test_no_command_that_does_not_measure_is_advised_for_measuring() -> None:
    for word in ("test", "validate", "eval", "evaluate"):
        hint = str(other_commands.command_hint(word, []))
        assert "`roost show PACKAGE`" in hint and "`test_at_end`" in hint and "validate_every" in hint


@pytest.mark.parametrize("name", ["run", "submit", "check"])
def test_an_option_of_a_script_queues_the_script(name: str) -> None:
    command = find(name)
    hint = other_commands.option_hint("--lr", ["train.py", "--lr", "0.1"], command)
    assert hint == "type `roost submit -- python train.py --lr 0.1`"
    hint = other_commands.option_hint("--lr", ["python", "train.py", "--lr", "1"], command)
    assert hint == "type `roost submit -- python train.py --lr 1`"
    hint = other_commands.option_hint("--mem", ["--mem", "8G", "train.py"], command)
    assert hint == "type `roost submit --host-memory 8GB -- python train.py`"
