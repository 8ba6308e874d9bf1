"""`roost up`, as it is typed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import Terminal, roost
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import package


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab
    lab.close()


def test_the_runs_are_listed_and_queued_after_a_yes(lab: Lab, messages: Messages) -> None:
    package(lab.folder / "runs", "cut", state="crashed")
    package(lab.folder / "runs", "done")
    said = roost("up", "runs", "--dry-run", cwd=lab.folder)
    assert said.returncode == 0 and said.stdout.count("runs/cut") == 1 and "done" not in said.stdout
    (found,) = json.loads(roost("up", "runs", "--json", cwd=lab.folder).stdout)
    assert found["package"].endswith("runs/cut") and found["step"] == 30
    asked = roost("up", "runs", cwd=lab.folder)
    assert asked.returncode == 2
    messages.check(asked.stderr)
    terminal = Terminal("up", "runs", cwd=lab.folder)
    terminal.wait_for("continue this run?")
    terminal.type("n")
    code, shown = terminal.end()
    assert code == 1 and "nothing was queued" in shown
    said = roost("up", "runs", "--yes", cwd=lab.folder)
    assert said.returncode == 0 and "runs/cut: queued as " in said.stderr, said.stderr
    said = roost("up", "runs", cwd=lab.folder)
    assert said.returncode == 0 and not said.stdout
    messages.check(said.stderr)
