"""`roost doctor` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.programs import Terminal, roost
from tests.operations.packages import package


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("ROOST_DEVICES", "cpu")


def test_all_of_this_machine(tmp_path: Path) -> None:
    said = roost("doctor", "--json", cwd=tmp_path)
    lines = json.loads(said.stdout)["lines"]
    assert {"GPUs", "machine", "installation", "lab"} == {line["topic"] for line in lines}
    assert all(line["fix"] for line in lines if line["level"] != "ok")
    (torch,) = (line for line in lines if line["check"] == "torch")
    assert torch["level"] == "ok" and torch["found"].startswith("torch 2.")  # the real one
    assert said.returncode == any(line["level"] == "problem" for line in lines)
    assert {one.name for one in tmp_path.iterdir()} <= {"state"}


def test_a_failed_package_is_a_problem_on_a_terminal(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="failed", error="its disk \x1b[31mis full")
    terminal = Terminal("doctor", made.path)
    code, shown = terminal.end()
    assert code == 1 and "has failed: its disk" in shown and "\x1b[31mis full" not in shown
    assert "roost why" in shown and "1 problem" in shown
    said = roost("doctor", "no-package")
    assert said.returncode == 3 and said.stdout == "" and said.stderr
