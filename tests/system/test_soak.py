"""What takes longer than CI may; `make soak` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_a_thousand_kills() -> None:
    """Its lines go to the terminal with ``-s``; on a failure pytest shows them all."""
    soak("--kills", "1000")


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("saves", [[], ["--synchronous"]], ids=["behind", "at-once"])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("ranks", ["1", "2", "3"])
def test_kills_of_ranks(ranks: str, strategy: str, saves: list[str]) -> None:
    """Every kind of project, and of data, is ended in each cell."""
    soak("--kills", "200", "--every", "--ranks", ranks, "--strategy", strategy, *saves)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_of_a_project_of_dlnest() -> None:
    soak("--kills", "400", script="soak_dlnest.py")


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_kills_of_an_evaluation() -> None:
    soak("--kills", "50", script="soak_evaluation.py")


def soak(*options: str, script: str = "soak_resume.py") -> None:
    path = Path(__file__).with_name(script)
    assert subprocess.run([sys.executable, str(path), *options]).returncode == 0
