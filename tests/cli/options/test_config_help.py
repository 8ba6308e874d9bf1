"""`roost run CONFIG --help`: the options of that config."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.programs import roost
from tests.messages import Messages
from tests.operations.packages import project

OPTIONS = """{channels: {type: int, default: 32, min: 1, help: channels of the first convolution},
  act: {type: str, choices: [relu, gelu]}}"""


def config(folder: Path, options: str = OPTIONS) -> Path:
    return project(folder, options=options)


@pytest.mark.parametrize("command", ["run", "check"])
def test_options_follow_the_help_of_the_command(command: str, tmp_path: Path, messages: Messages) -> None:
    path = config(tmp_path / "p")
    for arguments in ([path, "--help"], ["-h", path, "seed=3"], ["-CPU", "seed=3", "-c", path, "--help"]):
        said = roost(command, *arguments)
        assert said.returncode == 0 and said.stderr == ""
        plain = roost(command, "--help").stdout + "\n"
        assert said.stdout.startswith(plain)
        words = " ".join(said.stdout.removeprefix(plain).split())
        assert f"{path}, " in words and "NAME=VALUE: channels channels of the first convolution" in words
        assert re.search(r"\[[^]]* >= 1; [^]]*\b32\]", words) and re.search(
            r"act \['relu' \w+ 'gelu'; ", words
        )
        messages.check(words.partition(": ")[2])


def test_a_tuning_file_and_overrides_count(tmp_path: Path) -> None:
    path = config(tmp_path / "p")
    (tmp_path / "tune.yaml").write_text("options: {channels: {default: 8}}\n")
    said = roost("run", path, "options.channels.min=2", "-f", tmp_path / "tune.yaml", "--help")
    assert re.search(r"\[[^]]* >= 2; [^]]* 8\]", " ".join(said.stdout.split()))
    said = roost("run", path, "channels=16", "--help")
    assert re.search(r"\[[^]]* >= 1; [^]]* 32; [^]]* 16\]", " ".join(said.stdout.split()))


def test_a_config_without_options_adds_nothing(tmp_path: Path) -> None:
    assert roost("run", project(tmp_path / "p"), "--help").stdout == roost("run", "--help").stdout


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("[", "config.yaml:"),
        ("{channels: {type: number}}", "options.channels.type: "),
        ("3", "options"),
    ],
)
def test_a_broken_config_gives_the_help_and_one_line(options: str, why: str, tmp_path: Path) -> None:
    said = roost("run", config(tmp_path / "p", options), "--help")
    plain = roost("run", "--help").stdout
    assert said.returncode == 0 and said.stdout.startswith(plain)
    _, line = said.stdout.removeprefix(plain).split("\n", 1)
    assert line.count("\n") == 1 and str(tmp_path / "p") in line and why in line


def test_one_that_is_missing(tmp_path: Path, messages: Messages) -> None:
    said = roost("run", tmp_path / "nowhere.yaml", "--help")
    assert said.returncode == 0 and "nowhere.yaml" in said.stdout.splitlines()[-1]
    messages.check(said.stdout.splitlines()[-1])


def test_explain_shows_them(tmp_path: Path) -> None:
    head, values, *layers = roost("run", config(tmp_path / "p"), "--explain", "channels").stdout.splitlines()
    assert head == "channels: channels of the first convolution" and values.endswith(" >= 1")
    assert [line.split() for line in layers] == [["option", "32"]]
