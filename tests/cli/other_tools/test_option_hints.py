"""Hints for options of other tools: what is advised is what the real parsers take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from roost.cli.other_tools.option_hints import option_hint
from tests.cli.other_tools.test_other_options import ARGUMENTS, ROWS, asked, find, parse
from tests.operations.packages import project


@pytest.mark.parametrize("option", dict.fromkeys(name for row in ROWS for name in row.names))
def test_the_advice_for_an_option_parses(option: str) -> None:
    answering = [(name, row) for name in ARGUMENTS if (row := asked(name, option)) is not None]
    assert answering or option in ("-c", "-d"), "these two are answered in #SBATCH lines alone"
    for name, row in answering:
        for typed in ([option, row.example] if row.example else [option], [option]):
            hint = option_hint(option, typed, find(name))
            assert hint, (option, name)
            for advised in re.findall(r"`([^`]*)`", hint):
                whole = advised.startswith("roost ")
                parse(advised if whole else f"roost {name} {ARGUMENTS[name]} {advised}")


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
    hint = str(option_hint(option, words, find(name)))
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
        hint = str(option_hint(option, [option, value], find(name)))
        assert hint.startswith(f"there is nothing like {typed}; ")


def test_an_option_that_is_a_setting_names_the_one_of_the_config(tmp_path: Path) -> None:
    config = str(project(tmp_path / "p"))

    def hint(option: str, arguments: list[str]) -> str | None:
        return option_hint(option, arguments, find("run"))

    assert str(hint("--lr", [config, "--lr", "0.1"])).endswith("optimizers.main.lr=0.1")
    assert str(hint("--learning-rate", [config, "--learning-rate=1e-3"])).endswith("optimizers.main.lr=1e-3")
    assert str(hint("--num_epochs", [config, "--num_epochs", "3"])).endswith("max_epochs=3")
    assert str(hint("--seed", ["nowhere.yaml", "--seed"])).endswith("seed=VALUE")
    assert hint("--nonsense", [config]) is None
