"""A script in the place of a config: the command line that queues it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from roost.cli.other_tools import batch_script
from tests.cli.programs import roost
from tests.lab.labs import Lab
from tests.messages import Messages

SCRIPT = """#!/bin/bash
#SBATCH --job-name=big
#SBATCH --gres=gpu:a100:2   # two
#SBATCH -t 1-12:00 -c 1
#SBATCH --mem=1G
#SBATCH -p gpu --mail-user="me@example.org"
#SBATCH --comment="open

#SBATCH --unknown value
#SBATCH --retry=1
echo "$SLURM_JOB_ID"
#SBATCH --mem=64G
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "job.sh"
    path.write_text(SCRIPT)
    return path


def test_the_options_of_a_script_are_translated(script: Path) -> None:
    line, note = batch_script.command_line("submit", [str(script), "a b"])
    own = "--name big --gpus 2 --time-limit 1d12h00m --cpus 1 --host-memory 1GB --retry 1"
    assert line == f"roost submit {own} -- bash {script} 'a b'"
    assert note.endswith("-p gpu --mail-user=me@example.org --unknown value") and "#SBATCH" in note
    assert "a quote is open in the line '#SBATCH --comment=\"open'" in note


@pytest.mark.parametrize(
    ("directives", "words", "left_out"),
    [
        ("--cpus-per-task=4 --mem-per-cpu=4G", "--cpus 4 --host-memory 16GB", ""),
        ("--mem-per-cpu=4G -n 2 -c 4", "--cpus 4 --host-memory 32GB", "-n 2"),
        ("--mem-per-cpu=4G", "--host-memory 4GB", ""),
        ("--mem-per-gpu=16G --gpus=2", "--gpus 2 --host-memory 32GB", ""),
        ("--mem-per-gpu=16G", "", "--mem-per-gpu=16G"),
        ("--begin=now+1hour --priority=TOP", "--begin +1h", "--priority=TOP"),
        ("-b now+60 --time=00:00", "--begin +60s", "--time=00:00"),
        ("--begin=2099-01-01T00:00 --priority=3", "--priority 3", "--begin=2099-01-01T00:00"),
        ("--job-name=-x", "", "--job-name=-x"),
        ("--job-name=a/b -G 0", "--gpus 0", "--job-name=a/b"),
    ],
)
def test_a_value_is_translated_or_named(tmp_path: Path, directives: str, words: str, left_out: str) -> None:
    script = tmp_path / "job.sh"
    script.write_text("".join(f"#SBATCH {directives}\n"))
    line, note = batch_script.command_line("submit", [str(script)])
    assert line == " ".join(filter(None, ["roost submit", words, f"-- bash {script}"]))
    assert note.partition("; there is nothing like ")[2] == left_out


@pytest.mark.parametrize("suffix", [".sh", ".py"])
def test_a_script_that_is_no_file_is_refused_at_once(tmp_path: Path, suffix: str) -> None:
    script = str(tmp_path / f"job{suffix}")
    for command in (["run", script], ["check", script], ["submit", script, "--gpus", "1"]):
        said = roost(*command, cwd=tmp_path)
        assert said.returncode == 3 and "there is no such file" in said.stderr
    hint = batch_script.queueing_advice(["--mem", "2G", script, "3"])
    assert hint == f"there is no file {script}"
    os.mkfifo(script)
    for command in (["run", script], ["check", script], ["submit", script, "--gpus", "1"]):
        said = roost(*command, cwd=tmp_path)
        assert said.returncode == 4 and "is not a file" in said.stderr
    assert batch_script.command_line("submit", [script])[1] == ""
    Path(script).unlink()
    Path(script).mkdir()
    assert "is a folder" in roost("run", script, cwd=tmp_path).stderr


def test_what_is_typed_before_the_script_counts_instead(script: Path) -> None:
    line, _ = batch_script.command_line("submit", ["--mem", "2G", "-J", "small", str(script)])
    assert "--host-memory 2GB" in line and "--name small" in line and "1GB" not in line and "big" not in line


def test_a_script_that_cannot_be_read_and_a_program(tmp_path: Path) -> None:
    assert batch_script.command_line("submit", [str(tmp_path / "none.sh")])[1] == ""
    assert batch_script.command_line("lease", ["--gres=gpu:2", "python", "x.py"]) == (
        "roost lease --gpus 2 -- python x.py",
        "",
    )


def test_the_advice_queues_the_script(script: Path, tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path, "sim:2x24GB")
    with lab.here():
        said = roost("submit", "job.sh", "--mem", "2G", cwd=tmp_path)
        assert said.returncode == 2 and "`roost submit --name big " in said.stderr
        said = roost("submit", "job.sh", cwd=tmp_path)
        assert said.returncode == 2
        messages.check(said.stderr)
        advised = said.stderr.partition("`roost ")[2].partition("`")[0]
        words = shlex.split(advised)
        assert roost(words[0], "--begin", "+2h", *words[1:], cwd=tmp_path).returncode == 0
        (task,) = lab.tasks()
        assert (task.name, task.need.cards, task.need.host_memory_mb, task.retries) == ("big", 2, 1024, 1)
        assert task.need.time_limit == 129_600.0
    lab.close()
