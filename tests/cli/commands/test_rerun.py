"""`roost rerun`, as it is typed."""

from __future__ import annotations

from pathlib import Path

from tests.cli.programs import roost
from tests.messages import Messages
from tests.operations.packages import package


def test_it_is_trained_again_and_the_note_says_of_what(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="failed")
    said = roost("rerun", "runs/one", "max_steps=2", "--name", "two", cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert f"rerun of {made.path} with its code" in said.stderr and "max_steps" in said.stderr
    shown = roost("show", "runs/two", cwd=tmp_path).stdout
    assert "rerun of runs/one with its code" in shown
    wrong = roost("rerun", "max_steps=2", cwd=tmp_path)
    assert wrong.returncode == 2
    messages.check(wrong.stderr)
