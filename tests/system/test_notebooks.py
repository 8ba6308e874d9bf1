"""Notebooks with a real kernel, run by nbclient: runs are shown, interrupted, run again, and outlive the
kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.package.session_schema import LIVE_STATES
from tests.cli.programs import Terminal, roost
from tests.operations.packages import project
from tests.system.kernels import errors, notebook, shown, text
from tests.waiting import wait_for

ENDLESS = "max_epochs=1000000 validate_every=20 log_every=10"


def step_of(made: PackageFolder) -> int:
    seen = live_progress.read(made.progress)
    return seen.step if seen is not None else 0


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """The config of a small project, whose runs have ended afterwards."""
    made = project(tmp_path / "p", max_epochs="2")
    yield made
    for path in made.parent.glob("runs/*"):
        if PackageFolder.open(path).state in LIVE_STATES:
            roost("kill", path)


@pytest.mark.timeout(300)
def test_a_run_in_a_cell(config: Path) -> None:
    runs = config.parent / "runs"
    with notebook(config.parent) as book:
        assert (
            text(book.run("import sys, roost\nprint('IPython.utils' in sys.modules)\n%load_ext roost")) != ""
        )

        # to its end: one output, replaced by each update, and the lines that a terminal shows
        cell = book.run("name = 'one'\n%roost run config.yaml --name {name}")
        (view,) = shown(cell, "text/html")
        assert "epoch 2/2" in view and "100%" in view and '<img alt="curves: loss' in view
        first, *_, last = text(cell).splitlines()
        assert first.startswith("runs/one: session 1: interrupting the cell saves and stops it")
        assert last == "package: runs/one"
        assert PackageFolder.open(runs / "one").sessions()[0].request.command[0] == "roost"
        assert "finished" in text(book.run("%roost run config.yaml --name one"))

        # other commands: their text, their pictures, their errors
        assert "one" in text(book.run("%roost ls")) and "succeeded" in text(book.run("%roost show one"))
        assert "epoch 2/2" in text(book.run("%roost logs one"))
        (picture,) = shown(book.run("%roost plot one"), "image/png")
        assert picture.startswith("iVBOR")
        cell = book.fail("%roost run nothing.yaml")
        assert errors(cell) == ["%roost run nothing.yaml: exit code 3"] and "there is no such config" in text(
            cell
        )
        assert "close the quotation" in text(book.fail("%roost ls 'a"))
        assert "type it in a terminal" in text(book.fail("%roost client"))
        assert "epoch 2/2" in text(book.run("!{sys.executable} -m roost logs one"))
        lines = text(book.run("!{sys.executable} -m roost run config.yaml --name typed")).splitlines()
        assert lines[-1] == "package: runs/typed" and not any(
            "\x1b" in line or "\r" in line for line in lines
        )
        assert "<table" in shown(book.run("roost.open_package('runs/one')"), "text/html")[0]

        # a run that fails stops the cells below
        runner = config.parent / "Model" / "Runner.py"
        runner.write_text(runner.read_text().replace("x, y = batch", "raise ValueError('<b>no good')"))
        cell = book.fail("%roost run config.yaml")
        assert "ValueError: &lt;b&gt;no good" in shown(cell, "text/html")[0]
        assert "failed at step 0" in text(cell) and "%roost run" in text(cell)


@pytest.mark.timeout(300)
def test_an_interrupted_cell_and_a_dead_kernel(config: Path) -> None:
    runner = config.parent / "Model" / "Runner.py"  # a step that leaves the processor to others
    runner.write_text(
        runner.read_text().replace("x, y = batch", "__import__('time').sleep(0.02)\n        x, y = batch")
    )
    with notebook(config.parent) as book:
        book.run("%load_ext roost")
        # interrupted: saved and stopped; run again: continued
        source = f"%roost run config.yaml {ENDLESS} --name long"
        for session in (1, 2):
            book.start(source, until=lambda shown: " step " in shown and "<img" in shown)
            book.interrupt()
            book.wait(lambda shown: "saving at the end of the step" in shown)
            cell = book.finish()
            assert errors(cell) == [f"{source}: exit code 75"], text(cell)
            assert "saving at the end of the step" not in shown(cell, "text/html")[0], "it has saved"
            assert "stopped at step" in text(cell) and "to continue: %roost continue runs/long" in text(cell)
            assert text(cell).endswith("or run this cell again\n")
            made = PackageFolder.open(config.parent / "runs" / "long")
            assert [one.state for one in made.sessions()] == ["stopped"] * session
            assert book.size < 50_000

        # SIGTERM after an interrupt, with which Jupyter ends a kernel, does not end the run without saving
        book.start(source, until=lambda shown: "text/html" in shown and " step " in shown)
        book.interrupt()
        book.wait(lambda shown: "saving at the end of the step" in shown)
        book.terminate()
        wait_for(lambda: made.sessions()[-1].state == "stopped")
    with notebook(config.parent) as book:
        book.run("%load_ext roost")
        # the kernel is killed: the run goes on, and another kernel shows it
        book.start(source, until=lambda shown: "text/html" in shown and " step " in shown)
        book.kill()
    step = step_of(made)
    wait_for(lambda: step_of(made) > step)
    with notebook(config.parent) as book:
        book.run("%load_ext roost")
        book.start("%roost attach runs/long", until=lambda shown: " step " in shown and "<img" in shown)
        book.interrupt()
        cell = book.finish()
        assert "detached; the run continues" in text(cell) and not errors(cell)
        assert made.sessions()[-1].state == "running"
        book.run("%roost stop runs/long")
        assert [one.state for one in made.sessions()] == ["stopped"] * 4


def test_a_cell_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    source = (
        "%%roost --name one\nfor step in range(3):\n    print(f'step {step} loss {1 / (step + 1):.3f}')\n"
    )
    with notebook(tmp_path / "p") as book:
        book.run("%load_ext roost")
        cell = book.run(source)
        assert "step 2 loss 0.333" in shown(cell, "text/html")[0] and "package: runs/one" in text(cell)
        assert "  %%roost --name one\n" in text(book.run("%roost ls"))
        assert "has ended with success" in text(book.run(source))
        cell = book.fail("%%roost\n\n1 / 0")
        assert 'cell.py", line 3' in shown(cell, "text/html")[0].replace("&quot;", '"'), "as in the cell"
        assert errors(cell) == ["%%roost: exit code 1"] and "%roost continue runs/" in text(cell)
        assert "No such option '--nosuch'.\n" in text(book.fail("%%roost --nosuch\n1")), "no other advice"

        # in place the file of the cell stays, for a run in the background and for those that continue it
        book.run("%%roost --in-place --detach --name placed\nprint('loss', 1)")
        wait_for(lambda: PackageFolder.open(tmp_path / "p" / "runs" / "placed").state == "succeeded")
        book.run("%roost continue placed")

        (tmp_path / "p" / "cell.py").mkdir()
        assert "error: Is a directory" in text(book.fail(source))
        (tmp_path / "p" / "cell.py").rmdir()
        (tmp_path / "p" / "cell.py").write_text("mine")
        assert "rename the file" in text(book.fail(source))
    assert (tmp_path / "p" / "cell.py").read_text() == "mine"


LOOP = """
run = roost.init({"seed": 1}, name="one")
model = torch.nn.Linear(1, 1)
print(run.load_checkpoint(model=model))
run.log({"loss": 1.5})
run.save_checkpoint(model=model)
"""


def test_a_loop_in_cells(tmp_path: Path) -> None:
    """The cell is run again without `finish`, and after an error of another cell the kernel ends."""
    (tmp_path / "p").mkdir()
    made = PackageFolder(tmp_path / "p" / "runs" / "one")
    with notebook(tmp_path / "p") as book:
        book.run("import roost, torch")
        assert text(book.run(LOOP)) == "0\n"
        book.fail("1 / 0")
        assert text(book.run(LOOP)) == "1\n"
        assert [one.state for one in made.sessions()] == ["stopped", "running"]
        assert "other settings" in errors(book.fail(LOOP.replace('"seed": 1', '"seed": 2')))[0]
        book.run("run.log({'loss': 2})  # which that call did not end")
        assert "<table" in shown(book.run("run"), "text/html")[0]
        book.fail("1 / 0")
    assert [one.state for one in made.sessions()] == ["stopped", "stopped"]
    assert made.sessions()[-1].error is None


def test_at_a_prompt_of_ipython(tmp_path: Path, config: Path) -> None:
    """Without a kernel the magic has the terminal."""
    program = [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner"]
    terminal = Terminal(program=program, cwd=config.parent, IPYTHONDIR=str(tmp_path / "ipython"))
    try:
        terminal.wait_for("In [1]")
        terminal.type("%load_ext roost")
        terminal.wait_for("In [2]")
        terminal.type("%roost run config.yaml --name one")
        seen = terminal.wait_for("In [3]")
        assert "Ctrl-C saves and stops it" in seen and "package: runs/one" in seen
    finally:
        terminal.kill()
