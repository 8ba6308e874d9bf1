"""`roost debug` on a real terminal, after a real run."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package.package import PackageFolder
from tests.cli.programs import Terminal, roost
from tests.messages import Messages
from tests.system.test_pdb import only, terminals, with_line
from tests.waiting import wait_for

__all__ = ["terminals"]
ERROR = "self.progress.step == 6 and 1 / 0"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PackageFolder]:
    """A run whose seventh step raised an error, in a place that it was moved to."""
    folder = tmp_path_factory.mktemp("failed")
    said = roost("run", with_line(folder / "p", ERROR), "checkpoint.every=4")
    assert said.returncode == 1 and re.search("step 7 .*roost debug", said.stdout), said.stdout + said.stderr
    moved = folder / "elsewhere"
    only(folder / "p").path.rename(moved)
    (folder / "p" / "runs").rmdir()
    yield PackageFolder.open(moved)


def contents(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = ((path, path.stat()) for path in sorted(folder.rglob("*")))
    return {
        str(path): (stat.st_ino, stat.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path, stat in found
    }


@pytest.fixture
def untouchable(failed: PackageFolder) -> Iterator[PackageFolder]:
    """The run, where nothing may be written."""
    paths = [failed.path, *failed.path.rglob("*")]
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(0o555)
    yield failed
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode)


def test_it_stops_where_the_step_failed(untouchable: PackageFolder, terminals: list[Terminal]) -> None:
    """The tests may run as root, which may write everywhere: so the content is compared, too."""
    failed = untouchable
    before = contents(failed.path)
    terminal = Terminal("debug", failed.path, cwd=failed.path.parent)
    terminals.append(terminal)
    shown = terminal.wait_for("(Pdb) ")
    terminal.type("p 'step', self.progress.step + 40, batch[0].shape")
    terminal.wait_for("('step', 46, torch.Size([32, 8]))")
    terminal.type("u")
    terminal.wait_for("-> output = fn(batch)")
    terminal.type("q")
    code, _ = terminal.end()
    assert code == 0
    lines = [line.strip() for line in shown.splitlines()]
    assert re.fullmatch(r"step 7 .*session 1 .*: ZeroDivisionError: division by zero", lines[0])
    assert lines[1].startswith("epoch 1, batch 7, samples ")
    assert any(line.endswith(" blackbox/state_0.ckpt") for line in lines)
    assert any(re.search(r" Model/Runner\.py:\d+ .*\bloss$", line) for line in lines)
    assert contents(failed.path) == before


def test_before_the_step_and_on_into_its_error(failed: PackageFolder, terminals: list[Terminal]) -> None:
    terminal = Terminal("debug", failed.path, "--begin")
    terminals.append(terminal)
    terminal.wait_for("(Pdb) ")
    terminal.seen = ""
    terminal.type("c")
    assert "ZeroDivisionError" in terminal.wait_for("(Pdb) ")
    assert "n, c" in terminal.seen
    terminal.press_ctrl_c_until("--KeyboardInterrupt--")  # ends nothing at a prompt
    terminal.type("q")
    assert terminal.end()[0] == 0


def test_ctrl_c_before_torch_is_there(
    failed: PackageFolder, tmp_path: Path, terminals: list[Terminal]
) -> None:
    (tmp_path / "torch.py").write_text("import signal\nprint('importing', flush=True)\nsignal.pause()\n")
    terminal = Terminal("debug", failed.path, "-CPU", PYTHONPATH=str(tmp_path))
    terminals.append(terminal)
    terminal.wait_for("importing")
    terminal.press_ctrl_c()
    code, shown = terminal.end()
    assert code == -signal.SIGINT and "Traceback" not in shown


def test_beside_the_run(tmp_path: Path, terminals: list[Terminal]) -> None:
    """An earlier step of a run that goes on; the debugger's end is not the run's."""
    waits = f"self.progress.step > 8 and not os.path.exists({str(tmp_path / 'go')!r})"
    config = with_line(
        tmp_path / "p", f"import os, time; [time.sleep(0.01) for _ in iter(lambda: {waits}, False)]"
    )
    assert roost("run", config, "--detach", "checkpoint.every=4").returncode == 0
    made = only(tmp_path / "p")
    try:
        wait_for(lambda: made.store().lineage())
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        terminal = Terminal("debug", made.path, "6", "-CPU", TMPDIR=str(scratch))
        terminals.append(terminal)
        assert "checkpoint 0" in terminal.wait_for("(Pdb) ")
        terminal.type("p 'step', self.progress.step + 40")
        terminal.wait_for("('step', 45)")
        assert list(scratch.glob("roost-debug-*"))
        terminal.hang_up()
        assert terminal.process.wait(100) != 0
        assert not list(scratch.glob("roost-debug-*"))  # torch leaves a folder of its own
        assert made.state == "running"
    finally:
        (tmp_path / "go").touch()
        wait_for(lambda: made.state == "succeeded")


def test_a_loss_that_is_not_finite(tmp_path: Path, terminals: list[Terminal]) -> None:
    line = "batch = [batch[0], (batch[1] * 0 - 2).log()] if self.progress.step == 6 else batch"
    config = with_line(tmp_path / "p", line)
    said = roost("run", config, "checkpoint.every=4", "log_every=16")
    assert said.returncode == 1 and "step 7" in said.stdout
    terminal = Terminal("debug", only(tmp_path / "p").path)
    terminals.append(terminal)
    shown = terminal.wait_for("(Pdb) ")
    assert re.search(r"step 7 .*session 1\b", shown) and re.search(r"\b2 steps .*checkpoint", shown)
    assert re.search(r"\blog .*\bnan\b", shown) and re.search(r"\bin loss\b", shown)
    terminal.type("q")
    assert terminal.end()[0] == 0


def test_it_needs_a_terminal(failed: PackageFolder, messages: Messages) -> None:
    said = roost("debug", failed.path)
    assert said.returncode == 2 and "debug" in said.stderr and said.stderr.count("\n") == 1
    messages.check(said.stderr)


def test_nothing_failed(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal("debug", tmp_path)
    terminals.append(terminal)
    code, shown = terminal.end()
    assert code == 3 and "package" in shown
    assert not list(tmp_path.iterdir())
