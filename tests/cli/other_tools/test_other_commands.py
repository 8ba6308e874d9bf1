"""Commands of other tools, and what is advised to type here."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from roost.base.errors import ConfigError
from roost.cli.__main__ import COMMANDS, roost
from roost.cli.other_tools import other_commands
from roost.cli.other_tools.other_commands import OTHER_COMMANDS
from roost.config import layers
from roost.config.other_tools import known_tools
from roost.config.other_tools.known_tools import TOOLS
from roost.operations.queue import sweep
from roost.package.project_preflight import check_new_config
from tests.cli.other_tools.test_other_options import find, parse
from tests.messages import Messages
from tests.operations.packages import project

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
        ("sweep", ["sweep.yaml"], "roost submit CONFIG optimizers.main.lr=1e-3,1e-4 seed=0..4"),
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
        ("wandb sweep sweep.yaml", "roost submit CONFIG optimizers.main.lr=1e-3,1e-4 seed=0..4"),
        ("sbatch --mem 8G c.yaml seed=1", "roost submit --host-memory 8GB c.yaml seed=1"),
        ("srun --gres=gpu:2 c.yaml", "roost submit --gpus 2 c.yaml"),
        ("python train.py --lr 1", "roost submit -- python train.py --lr 1"),
        ("job.sh 3", "roost submit -- bash job.sh 3"),
        ("validate --config c.yaml", "roost evaluate PACKAGE"),
        ("test runs/a", "roost evaluate runs/a"),
    ],
)
def test_the_options_and_the_program_are_translated(
    typed: str, advised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").touch()
    name, *arguments = shlex.split(typed)
    assert f"type `{advised}`" in str(other_commands.command_hint(name, arguments))


def test_the_command_that_measures_is_advised_for_measuring() -> None:
    for word in ("test", "validate", "eval"):
        hint = str(other_commands.command_hint(word, []))
        assert (
            "`roost evaluate PACKAGE`" in hint
            and "`roost show PACKAGE`" in hint
            and "`test_at_end`" in hint
            and "validate_every" in hint
        )


@pytest.mark.parametrize("name", ["run", "submit", "check"])
def test_an_option_of_a_script_queues_the_script(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    command = find(name)
    hint = other_commands.option_hint("--lr", ["train.py", "--lr", "0.1"], command)
    assert hint == "type `roost submit -- python train.py --lr 0.1`"
    hint = other_commands.option_hint("--lr", ["python", "train.py", "--lr", "1"], command)
    assert hint == "type `roost submit -- python train.py --lr 1`"
    hint = other_commands.option_hint("--mem", ["--mem", "8G", "train.py"], command)
    assert hint == "type `roost submit --host-memory 8GB -- python train.py`"


def test_a_command_line_in_an_option_is_no_script() -> None:
    hint = other_commands.option_hint("--wrap", ["c.yaml", "--wrap", "python x.py"], find("submit"))
    assert hint == "type `roost submit -- sh -c 'python x.py'`"


def test_an_option_that_is_a_setting_names_the_one_of_the_config(tmp_path: Path) -> None:
    config = str(project(tmp_path / "p"))
    command = find("run")

    def hint(option: str, typed: list[str]) -> str | None:
        return other_commands.option_hint(option, typed, command)

    assert str(hint("--lr", [config, "--lr", "0.1"])).endswith("optimizers.main.lr=0.1")
    assert str(hint("--learning-rate", [config, "--learning-rate=1e-3"])).endswith("optimizers.main.lr=1e-3")
    assert str(hint("--num_epochs", [config, "--num_epochs", "3"])).endswith("max_epochs=3")
    assert str(hint("--seed", ["nowhere.yaml", "--seed"])).endswith("seed=VALUE")
    assert hint("--nonsense", [config]) is None


@pytest.mark.parametrize("option", ["-m", "--multirun", "--sweep"])
def test_a_sweep_is_answered_with_the_values_that_were_typed(option: str) -> None:
    typed = ["c.yaml", option, "optimizers.main.lr=1e-3,1e-4", "seed=0..2"]
    hint = str(other_commands.option_hint(option, typed, find("run")))
    assert "`roost submit c.yaml optimizers.main.lr=1e-3,1e-4 seed=0..2`" in hint
    bare = str(other_commands.option_hint(option, [option], find("run")))
    assert "`roost submit CONFIG seed=0..4`" in bare


_TEXTS = [
    *(row.note for row in ROWS),
    *(text for tool in TOOLS for text in tool.keys.values()),
]
_LINES = sorted(
    {row.here for row in ROWS} | {line for text in _TEXTS for line in re.findall(r"`(roost [^`]*)`", text)}
)
_CONFIG = "CONFIG"


@pytest.mark.parametrize("line", [line for line in _LINES if not line.startswith("roost --")])
def test_every_command_that_is_proposed_is_accepted(line: str, tmp_path: Path) -> None:
    config = str(project(tmp_path / "p"))
    _, command, *given = shlex.split(line)
    found = roost.get_command(click.Context(roost), command)
    assert command in COMMANDS and found is not None
    if given in ([], ["--help"]):  # only named
        return
    typed = [config if one == _CONFIG else one for one in given]
    found.make_context(command, typed)
    overrides = [] if "--" in typed else [one for one in typed if "=" in one and not one.startswith("-")]
    for combination in sweep.expand(overrides):
        check_new_config(layers.load(config, overrides=combination), project=tmp_path / "p")


@pytest.mark.parametrize(
    ("key", "text"),
    sorted({(key, text) for tool in TOOLS for key, text in tool.keys.items() if known_tools.value_of(text)}),
)
def test_every_value_that_is_proposed_is_accepted(key: str, text: str, tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    setting, value = str(known_tools.setting_of(text)), known_tools.value_of(text)
    changed = layers.load(config, overrides=[f"{setting.replace('NAME', 'main')}={value}"])
    check_new_config(changed, project=tmp_path / "p")


_CONFIGS = Path(__file__).parents[2] / "config" / "other_tools" / "configs"
_NAMED = {
    "accelerate.yaml": ("accelerate", ["num_processes is `devices`", "mixed_precision is `precision`"]),
    "detectron2.yaml": ("detectron2", ["SOLVER.MAX_ITER is `max_steps`"]),
    "hugging_face.json": ("Hugging Face's Trainer", ["num_train_epochs is `max_epochs`"]),
    "hydra.yaml": ("Hydra", ["defaults is `include`", "hydra.sweeper.params is `roost submit CONFIG "]),
    "lightning.yaml": (
        "Lightning's CLI",
        ["model.class_path is `runner`", "trainer.max_epochs is `max_epochs`"],
    ),
    "speechain.yaml": ("SpeeChain", ["num_epochs is `max_epochs`", "data_cfg is `dataset`"]),
    "wandb_grid.yaml": ("Weights & Biases sweeps", ["parameters is `roost submit CONFIG "]),
    "wandb_sweep.yaml": ("Weights & Biases sweeps", ["run_cap is not needed", "metric is `roost ls "]),
}


@pytest.mark.parametrize("command", ["run", "check", "submit"])
@pytest.mark.parametrize("name", _NAMED)
def test_a_whole_config_of_another_tool_is_answered_in_one_line(
    name: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    tool, facts = _NAMED[name]
    shutil.copytree(project(tmp_path / "p").parent, tmp_path / "q")
    shutil.copy(_CONFIGS / name, tmp_path / "q")
    monkeypatch.chdir(tmp_path / "q")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError) as refused:
        roost.main([command, name], standalone_mode=False)
    text = str(refused.value)
    assert text.startswith(f"this looks like a config of {tool}; ") and "\n" not in text
    assert all(fact in text for fact in facts) and str(refused.value.where).startswith(f"{name}:")
    page, _, section = re.findall(r"docs/(coming-from|from-speechain)\.md(#([\w-]+))?", text)[-1]
    assert section or page == "from-speechain"
    assert sorted(tmp_path.rglob("*")) == before
    messages.check(refused.value)


def test_every_config_there_is_tested() -> None:
    assert {one.name for one in _CONFIGS.iterdir()} == _NAMED.keys()
