"""Options of other tools: what is advised is what the real parsers take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from roost.cli.__main__ import COMMANDS, roost
from roost.cli.options.resource_options import take_task_options
from roost.cli.options.session_options import take_session_options
from roost.cli.other_tools import other_options
from roost.cli.other_tools.other_options import OTHER_OPTIONS, OtherOption
from tests.operations.packages import project

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


@pytest.mark.parametrize("option", dict.fromkeys(name for row in ROWS for name in row.names))
def test_the_advice_for_an_option_parses(option: str) -> None:
    answering = [(name, row) for name in ARGUMENTS if (row := asked(name, option)) is not None]
    assert answering or option in ("-c", "-d"), "these two are answered in #SBATCH lines alone"
    for name, row in answering:
        for typed in ([option, row.example] if row.example else [option], [option]):
            hint = other_options.option_hint(option, typed, find(name))
            assert hint, (option, name)
            for advised in re.findall(r"`([^`]*)`", hint):
                whole = advised.startswith("roost ")
                parse(advised if whole else f"roost {name} {ARGUMENTS[name]} {advised}")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.names[0]} {row.here}")
def test_each_row_is_reached(row: OtherOption) -> None:
    reached = [name for name in ARGUMENTS for option in row.names if asked(name, option) is row]
    assert reached, "an earlier row always counts"
    assert set(row.commands) <= set(ARGUMENTS) and (not row.example or row.value(row.example) is not None)


@pytest.mark.parametrize(
    ("name", "typed", "advised"),
    [
        ("submit", "--mem 8G", "--host-memory 8GB"),
        ("run", "--mem=8G", "--host-memory 8GB"),
        ("submit", "--gpu-memory 20G", "-m 20GB"),
        ("submit", "--gres=gpu:a100:2", "--gpus 2"),
        ("run", "--gres gpu", "--devices 1"),
        ("run", "--gpus 2", "-DDP --devices 2"),
        ("submit", "-t 90", "--time-limit 90min"),
        ("submit", "-t1-12", "--time-limit 1d12h"),
        ("submit", "-Jbig", "--name big"),
        ("submit", "--array=0-9%4", "roost submit CONFIG seed=0..9 --max-parallel 4"),
        ("submit", "--dependency afterok:3:4,afterany:5", "--after 3 --after 4 --after-any 5"),
        ("submit", "--nice=100", "--priority -100"),
        ("submit", "--dry-run", "roost check CONFIG"),
        ("submit", "--test-only", "roost check CONFIG"),
        ("submit", "--wrap 'python a.py'", "roost submit -- sh -c 'python a.py'"),
        ("run", "--trainer.accelerator gpu", "--device cuda"),
        ("submit", "--accelerator gpu", "-CPU"),
        ("run", "--trainer.max_epochs 5", None),
        ("run", "--resume-from last", "roost continue PACKAGE"),
        ("continue", "--ckpt_path last", "-c 3"),
        ("run", "--config-name base", "-c base.yaml"),
        ("run", "-m lr=1,2", "roost submit CONFIG lr=1,2"),
        ("run", "--priority 3", "roost submit CONFIG --priority 3"),
        ("run", "--dependency afterok:3", "roost submit CONFIG --after 3"),
        ("tasks", "--states PENDING", "--state pending"),
        ("predict", "--config c.yaml", ""),
        ("ls", "--sort-by valid/loss", "--sort valid/loss"),
        ("ls", "--where 'valid/loss<1'", "'valid/loss<1'"),
    ],
)
def test_the_value_that_was_typed_is_translated(name: str, typed: str, advised: str | None) -> None:
    words = shlex.split(typed)
    option = words[0].partition("=")[0] if words[0].startswith("--") else words[0][:2]
    hint = str(other_options.option_hint(option, words, find(name)))
    if advised is None:
        assert hint.endswith("max_epochs=5")
    else:
        assert f"`{advised}`" in hint or (not advised and "`" not in hint and "leave it out" in hint)


def test_a_value_that_does_not_exist_here_is_not_translated_to_another_one() -> None:
    for name, typed in (
        ("run", "--accelerator tpu"),
        ("submit", "--mem 0"),
        ("run", "--mixed_precision fp8"),
    ):
        option, value = typed.split()
        hint = str(other_options.option_hint(option, [option, value], find(name)))
        assert hint.startswith(f"there is nothing like {typed}; ")


def test_memory_of_the_host_and_of_a_card_are_not_confused() -> None:
    for option in ("--mem", "--mem-per-cpu", "--mem-per-gpu"):  # of Slurm: all of the host
        row = other_options.find_row(option, find("submit"))
        assert row is not None and row.here == "--host-memory VALUE"


def test_an_option_that_is_a_setting_names_the_one_of_the_config(tmp_path: Path) -> None:
    config = str(project(tmp_path / "p"))

    def hint(option: str, arguments: list[str]) -> str | None:
        return other_options.option_hint(option, arguments, find("run"))

    assert str(hint("--lr", [config, "--lr", "0.1"])).endswith("optimizers.main.lr=0.1")
    assert str(hint("--learning-rate", [config, "--learning-rate=1e-3"])).endswith("optimizers.main.lr=1e-3")
    assert str(hint("--num_epochs", [config, "--num_epochs", "3"])).endswith("max_epochs=3")
    assert str(hint("--seed", ["nowhere.yaml", "--seed"])).endswith("seed=VALUE")
    assert hint("--nonsense", [config]) is None


def test_a_command_line_is_translated_to_its_first_word() -> None:
    typed = shlex.split("-J big --gres=gpu:2 --mem=8G --mem 9G -p gpu --priority 3 -CPU job.sh --mem")
    found = other_options.translate_options(typed, find("submit"))
    assert found.words == ["--name", "big", "--gpus", "2", "--host-memory", "9GB", "--priority", "3", "-CPU"]
    assert found.left_out == ["-p gpu"] and found.rest == ["job.sh", "--mem"]
