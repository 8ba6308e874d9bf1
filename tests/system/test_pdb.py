"""`--pdb` on a real terminal: a breakpoint, an error, and where there is no terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package.package import PackageFolder
from tests.cli.programs import Terminal, roost
from tests.messages import Messages
from tests.operations.packages import project


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.kill()


def with_line(folder: Path, line: str, **settings: str) -> Path:
    """A project whose loss begins with ``line``."""
    config = project(folder, max_epochs="1", **settings)
    runner = folder / "Model" / "Runner.py"
    runner.write_text(runner.read_text().replace("x, y = batch", f"{line}; x, y = batch", 1))
    return config


def only(folder: Path) -> PackageFolder:
    (path,) = (folder / "runs").iterdir()
    return PackageFolder.open(path)


def test_a_breakpoint(tmp_path: Path, terminals: list[Terminal]) -> None:
    line = "self.progress.step == 2 and breakpoint()"
    terminal = Terminal("run", with_line(tmp_path / "p", line), "--pdb")
    terminals.append(terminal)
    terminal.wait_for("(Pdb) ")
    os.write(terminal.fd, b"p 'step', self.progress.step + 40\n")
    terminal.wait_for("('step', 42)")
    os.write(terminal.fd, b"c\n")
    code, shown = terminal.end()
    assert code == 0 and "succeeded" in shown, shown
    assert only(tmp_path / "p").state == "succeeded"


def test_an_error_opens_pdb_where_it_was_raised(tmp_path: Path, terminals: list[Terminal]) -> None:
    """At the person's own line, wherever in a library that was."""
    line = "cause = 41; __import__('json').loads('{')"
    terminal = Terminal("run", with_line(tmp_path / "p", line), "--pdb")
    terminals.append(terminal)
    assert " Model/Runner.py:" in terminal.wait_for("(Pdb) ")
    os.write(terminal.fd, b"p 'cause', cause + 1\n")
    terminal.wait_for("('cause', 42)")
    os.write(terminal.fd, b"q\n")
    code, shown = terminal.end()
    assert code == 1 and "JSONDecodeError" in shown
    assert only(tmp_path / "p").state == "failed"


def test_quitting_at_a_breakpoint_stops_the_run(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal("run", with_line(tmp_path / "p", "self.progress.step == 2 and breakpoint()"), "--pdb")
    terminals.append(terminal)
    terminal.wait_for(" pdb")
    terminal.wait_for("(Pdb) ")
    os.write(terminal.fd, b"\x1a")  # Ctrl-Z, which would let the shell read along
    os.write(terminal.fd, b"q\n")
    code, shown = terminal.end()
    assert code == 75 and "BdbQuit" not in shown and shown.count("(Pdb)") == 1, shown
    assert only(tmp_path / "p").state == "stopped"


def test_ctrl_c_at_the_prompt_saves_and_stops_once_it_goes_on(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    line = "self.progress.step == 2 and breakpoint()"
    terminal = Terminal("run", with_line(tmp_path / "p", line), "--pdb")
    terminals.append(terminal)
    terminal.wait_for("(Pdb) ")
    terminal.press_ctrl_c()
    terminal.wait_for("saving")
    os.write(terminal.fd, b"c\n")
    code, shown = terminal.end()
    assert code == 75, shown
    assert only(tmp_path / "p").store().lineage()[-1].step >= 3


def test_without_the_flag_a_breakpoint_is_an_error_that_names_it(tmp_path: Path) -> None:
    said = roost("run", with_line(tmp_path / "p", "breakpoint()"))
    assert said.returncode == 5, said.stderr
    assert "roost run --pdb" in said.stdout and "Runner.py:" in said.stdout


@pytest.mark.parametrize("also", [[], ["--detach"]])
def test_it_needs_a_terminal(tmp_path: Path, also: list[str], messages: Messages) -> None:
    config = project(tmp_path / "p")
    said = roost("run", config, "--pdb", *also)
    assert said.returncode == 2 and "--pdb" in said.stderr
    messages.check(said.stderr)
    assert not (tmp_path / "p" / "runs").exists()
