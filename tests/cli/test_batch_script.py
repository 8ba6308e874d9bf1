"""A script in the place of a config: the command line that queues it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from roost.cli import batch_script
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
