"""Following a run: on a terminal, through pipes, to the end and to a stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roost.cli import live_run, surface
from roost.cli.live_run import Screen, _InterruptCounter, _newest_metrics
from roost.cli.plain_output import PlainScreen
from roost.operations.sessions.running_session import RunningSession, running_session
from roost.package import live_progress, sessions
from roost.package.package import PackageFolder
from roost.package.results import skipped_steps
from roost.package.results.skipped_steps import SkippedStep
from tests.cli.programs import ROOST, Terminal, roost
from tests.messages import Messages
from tests.operations.packages import package, project, session
from tests.waiting import wait_for

ENDLESS = {"max_epochs": "1000000", "validate_every": "200", "log_every": "50"}


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.kill()


def the_package(config: Path) -> PackageFolder:
    (path,) = wait_for(lambda: list(config.parent.glob("runs/*/sessions/1.json")))
    return PackageFolder.open(path.parent.parent)


def trains(made: PackageFolder) -> bool:
    seen = live_progress.read(made.progress)
    return seen is not None and seen.step > 3


def test_through_pipes(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="2")
    said = roost("run", config, "-d", "piped", cwd=tmp_path)
    made = the_package(config)
    assert said.returncode == 0, said.stderr
    written = made.output.read_bytes()
    assert said.stdout.encode() == written, f"{said.stdout!r} is not {written!r}"
    assert "epoch 2/2" in said.stdout
    first, *_, ended, path = said.stderr.splitlines()
    name = made.path.relative_to(tmp_path)
    assert first.startswith(f"{name}: session 1") and "Ctrl-C" in first
    assert re.match(r"succeeded\b.* [\d.]+s  valid/loss", ended) and path.endswith(f" {name}")


def test_a_failed_run(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    runner = tmp_path / "p" / "Model" / "Runner.py"
    runner.write_text(runner.read_text().replace("x, y = batch", "raise ValueError('no good')"))
    said = roost("run", config)
    assert said.returncode == 1
    assert re.search(r"^failed\b.* 0\b.* [\d.]+s$", said.stderr, re.MULTILINE)
    assert "no good" not in said.stderr, "only the run itself prints it"
    assert said.stdout.splitlines()[-2] == "ValueError: no good"
    assert "sessions/1.traceback.txt" in said.stdout.splitlines()[-1]
    (row,) = json.loads(roost("ls", tmp_path / "p", "--json").stdout)
    assert row["state"] == "failed" and row["error"] == "ValueError: no good"
    assert "ValueError: no good" in roost("ls", tmp_path / "p").stdout


def test_overrides_that_hold_no_longer_are_typed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = package(tmp_path / "runs", state="stopped")
    number = session(made, "failed", reason="host_memory", error="out of host memory", exit_code=1)
    request = made.path / "sessions" / f"{number}.request.json"
    given = ["max_epochs=12", "checkpoint.best=[a, b]"]
    request.write_text(json.dumps({**json.loads(request.read_text()), "overrides": given}))
    assert live_run.watch(running_session(made, number), live_run.stop_or_end, "") == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("after fixing the cause: roost continue ")
    assert last.endswith(" max_epochs=12 'checkpoint.best=[a, b]'")
    (made.path / "records" / f"{number}.jsonl").touch()  # it had begun: they hold
    assert live_run.watch(running_session(made, number), live_run.stop_or_end, "") == 1
    assert "max_epochs=12" not in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.soak
def test_what_is_mended_after_a_failure_is_the_packages_own_code(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="2", log_every="1")
    runner = tmp_path / "p" / "Model" / "Runner.py"
    whole = runner.read_text()
    bad = "if self.progress.step == 7: raise ValueError('no good')"
    runner.write_text(whole.replace("x, y = batch", f"{bad}\n        x, y = batch"))
    said = roost("run", config, "checkpoint.every=4", cwd=tmp_path)
    (made,) = (tmp_path / "p" / "runs").iterdir()
    last, shown = said.stderr.splitlines()[-1], made.relative_to(tmp_path)
    assert f"{shown}/Model/Runner.py" in last and f"roost continue {shown} --force" in last
    assert re.search(r"step 8\b.*epoch 1\b.*batch 8\b", said.stdout)
    assert re.search(r"^failed\b.* 7\b", said.stderr, re.MULTILINE)
    runner.write_text(whole)
    again = roost("continue", made)
    assert again.returncode == 1 and "Model/Runner.py" in again.stderr
    (made / "Model" / "Runner.py").write_text(whole)
    assert roost("continue", made, "--force").returncode == 0
    result = roost("verify", made)
    assert result.returncode == 0 and "inexact" in result.stdout


def test_what_is_mended_is_what_the_failed_rank_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = "rank 2 failed: ValueError: x"
    made = package(tmp_path / "runs", state="failed", reason="exception", error=error, exit_code=1)
    for rank, name in ((0, "Dataset/Dataset.py"), (2, "Model/Runner.py")):
        sessions.traceback_file(made.path, 1, rank).write_text(f'  File "{made.path / name}", line 3, in f\n')
    assert live_run.watch(running_session(made, 1), live_run.stop_or_end, "") == 1
    assert "roost continue" in (said := capsys.readouterr().err)
    assert "Model/Runner.py" in said and "Dataset.py" not in said


def test_ctrl_c_is_counted_from_one_in_a_restarted_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package(tmp_path / "runs", state="failed", restarted_as=2)
    session(made, "succeeded")
    made.output.write_bytes(b"x")  # something to show of the first
    asked = []

    def screen(running: RunningSession) -> PlainScreen:
        os.kill(os.getpid(), signal.SIGINT)
        return PlainScreen()

    def note(running: RunningSession, screen: Screen, number: int) -> bool:
        asked.append((running.number, number))
        return True

    monkeypatch.setattr(live_run, "_screen", screen)
    assert live_run.watch(running_session(made, 1), note, "") == 0
    assert asked == [(1, 1), (2, 1)]


def test_the_output_that_is_named_is_that_of_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = package(tmp_path / "runs", state="failed", error="ValueError: no good", exit_code=1)
    output = made.path / "_output_node_1.txt"
    output.touch()
    assert live_run.watch(replace(running_session(made, 1), output=output), live_run.stop_or_end, "") == 1
    assert f" {output}\n" in capsys.readouterr().err


def test_the_end_of_a_run_with_many_metrics_is_one_short_line(tmp_path: Path) -> None:
    row = {"step": 1, "epoch": 0, "valid/loss": 1.0, **{f"test/m{n}": 1.0 for n in range(14)}}
    said = _newest_metrics(package(tmp_path / "runs", rows=[row]))
    assert said.startswith("test/m0 1  ") and said.rpartition("  ")[0].endswith("test/m11 1")
    assert said.rpartition("  ")[2].startswith("… 3 ")


@pytest.mark.parametrize("newest", [2.0, 0.0])
def test_skipped_steps_are_counted_over_the_whole_run(
    newest: float, tmp_path: Path, messages: Messages
) -> None:
    rows = [{"step": 1, "epoch": 0, "valid/loss": 1.0, "train/skipped": newest}]
    made = package(tmp_path / "runs", rows=rows, checkpoints=False)
    assert _newest_metrics(made) == "valid/loss 1" + ("  train/skipped 2" if newest else "")
    for step in (1, 4, 7):
        skipped_steps.append(
            made.path / skipped_steps.NAME,
            SkippedStep(session=1, step=step, epoch=0, batch=0, kind="error", error="x", samples=[]),
        )
    result = _newest_metrics(made)
    assert result.startswith("valid/loss 1  3 ")
    messages.check(result)


def test_a_bar_and_ctrl_c(tmp_path: Path, terminals: list[Terminal]) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    terminal = Terminal("run", config, cwd=tmp_path)
    terminals.append(terminal)
    terminal.wait_for("samples/s")
    terminal.wait_for("valid/loss")
    terminal.press_ctrl_c()
    terminal.wait_for("saving")
    code, shown = terminal.end()
    made = the_package(config)
    assert code == 75, shown
    assert f"roost continue {made.path.relative_to(tmp_path)}" in shown
    assert made.state == "stopped" and made.store().lineage()[-1].step > 0
    assert "\x1b[?25h" in shown  # the cursor is back
    assert "\x1b[31m" not in shown  # NO_COLOR, which every test sets


def test_a_notebook_gets_plain_lines(tmp_path: Path, terminals: list[Terminal]) -> None:
    """Its `!roost run` has a terminal, of which the notebook keeps every byte."""
    config = project(tmp_path / "p", max_epochs="2")
    terminal = Terminal("run", config, cwd=tmp_path, JPY_PARENT_PID="1")
    terminals.append(terminal)
    code, shown = terminal.end()
    assert code == 0, shown
    assert "valid: " in shown and "finished" in shown
    assert "\x1b[" not in shown and "ETA" not in shown


def test_a_second_ctrl_c(tmp_path: Path, terminals: list[Terminal]) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    # A hook that hangs in its stop: the first Ctrl-C would wait for ever.
    (tmp_path / "p" / "Hooks.py").write_text(
        "import time, roost\n"
        "class Hang(roost.Hook):\n"
        "    phase = roost.Phase.REPORT\n"
        "    def on_stop(self, trainer, reason): time.sleep(1000)\n"
    )
    with config.open("a") as file:
        file.write("hooks: [Hooks.py:Hang]\n")
    terminal = Terminal("run", config, cwd=tmp_path)
    terminals.append(terminal)
    wait_for(lambda: trains(the_package(config)))
    terminal.press_ctrl_c()
    terminal.wait_for("saving")
    terminal.press_ctrl_c()
    code, shown = terminal.end()
    assert code == 130, shown
    assert the_package(config).state == "stopped"


@pytest.mark.parametrize("how", ["SIGKILL to the program", "the terminal is gone"])
def test_a_run_survives_the_program_that_watches_it(
    tmp_path: Path, how: str, terminals: list[Terminal]
) -> None:
    config = project(tmp_path / "p", max_epochs="2")
    terminal = Terminal("run", config, cwd=tmp_path)
    terminals.append(terminal)
    made = the_package(config)
    if how.startswith("SIGKILL"):
        os.kill(terminal.process.pid, signal.SIGKILL)
    else:
        terminal.hang_up()
    assert terminal.process.wait(100) != 0
    assert made.state == "running"
    wait_for(lambda: made.state != "running")
    assert made.state == "succeeded", made.output.read_text()


def test_sigterm_saves_and_stops(tmp_path: Path) -> None:
    config = project(tmp_path / "p", **ENDLESS)
    child = subprocess.Popen([*ROOST, "run", str(config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    made = the_package(config)
    wait_for(lambda: trains(made))
    again = roost("run", config, "--name", made.path.name)
    assert again.returncode == 5 and "session 1" in again.stderr
    second = roost("continue", made.path)
    assert second.returncode == 5 and "session 1" in second.stderr
    child.terminate()
    _, said = child.communicate(timeout=100)
    assert child.returncode == 75 and b"roost continue" in said
    assert made.state == "stopped"


def test_the_reader_of_the_output_may_close_it(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="1")
    command = f"{' '.join(ROOST)} run {config} | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1 and "succeeded" in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_notebook_leaves_sigterm_to_its_kernel() -> None:
    """Jupyter sends it after an interrupt: as a second signal it would end the run without saving."""
    before = signal.getsignal(signal.SIGTERM)
    with surface.installed(surface.Surface(stop_signals=(signal.SIGINT,))), _InterruptCounter() as pressed:
        assert signal.getsignal(signal.SIGTERM) is before
        os.kill(os.getpid(), signal.SIGINT)
        assert pressed.number == 1
    with _InterruptCounter() as pressed:
        os.kill(os.getpid(), signal.SIGTERM)
        assert pressed.number == 1
