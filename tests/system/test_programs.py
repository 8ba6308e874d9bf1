"""Programs of other people as runs, by the real commands: seen from outside, killed, resumed, misused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roost.package import records
from roost.package.package import PackageFolder
from roost.package.session_schema import ENDED_STATES
from tests.waiting import wait_for

ARGPARSE = """
import argparse, json, os, time
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--resume")
asked = parser.parse_args()
state = json.load(open(asked.resume)) if asked.resume else {"epoch": 0, "loss": 1.0}
for epoch in range(state["epoch"], asked.epochs):
    for step in range(5):
        state["loss"] = state["loss"] * 0.75 + 0.01 * step
        print(f"Epoch [{epoch + 1}/{asked.epochs}], Step [{step + 1}/5], Loss: {state['loss']!r}")
        time.sleep(0.15)
    state["epoch"] = epoch + 1
    os.makedirs("out", exist_ok=True)
    with open(f"out/{epoch + 1}.pt.part", "w") as file:
        json.dump(state, file)
    os.rename(f"out/{epoch + 1}.pt.part", f"out/{epoch + 1}.pt")
"""
BARS = """
import sys, time
for epoch in range(2):
    for step in range(1, 11):
        bar, rest = "#" * step, f"[00:00<00:01, 9it/s, loss={1 / step}]"
        sys.stderr.write(f"\\repoch {epoch}: {step * 10:3d}%|{bar:<10}| {step}/10 {rest}")
        sys.stderr.flush()
    print()
    print(f"done with epoch {epoch}: accuracy {epoch / 2}, speed 12 img/s")
"""
TENSORBOARD = """
from torch.utils.tensorboard import SummaryWriter
import csv, os
os.mkfifo("pipe.csv")
with SummaryWriter("logs") as writer, open("table.csv", "w") as file:
    rows = csv.writer(file)
    rows.writerow(["step", "from_table"])
    writer.add_scalar("hp_metric", -1, 0)
    for step in range(20):
        writer.add_scalar("train/loss", 1 / (step + 1), step)
        rows.writerow([step, step * 2])
"""
WANDB = """
import wandb
run = wandb.init(project="p", config={"lr": 0.1})
for step in range(10):
    wandb.log({"loss": 1 / (step + 1), "nested": {"value": step}, "text": "no number"})
run.finish()
"""


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user whose `python` is that of the tests, and who has no account of W&B."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "code").mkdir()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return tmp_path / "code"


def start(code: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "roost", *arguments]
    return subprocess.Popen(command, cwd=code, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def roost(code: Path, *arguments: str, expected: int = 0) -> str:
    process = start(code, *arguments)
    output, _ = process.communicate(timeout=100)
    assert process.returncode == expected, output
    return output


def run_script(code: Path, text: str, *arguments: str, expected: int = 0) -> tuple[PackageFolder, str]:
    (code / "main.py").write_text(text)
    output = roost(code, "run", "--name", "it", *arguments, "--", "python", "main.py", expected=expected)
    return PackageFolder.open(code / "runs" / "it"), output


def has_rows(package: Path, session: int) -> bool:
    """Whether a session has recorded some rows, after its first checkpoint."""
    rows = records.read_tail(package / "records" / f"{session}.jsonl")
    return any((package / "out").glob("*.pt")) and len(rows) > 3


def series(package: PackageFolder, name: str) -> tuple[list[int], list[float]]:
    return records.fold(package.path / "records").series[name]


@contextlib.contextmanager
def killed_when(code: Path, reached: Callable[[], bool], *arguments: str) -> Iterator[None]:
    """Kills the program, its observer and all that started them in the midst of the run."""
    process = start(code, *arguments)
    try:
        while not reached():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        yield
    finally:
        for pid in processes_of(code):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
    # Its guard, which has no path on its command line, may live until it has recorded the end.
    wait_for(lambda: all(PackageFolder(one).state in ENDED_STATES for one in (code / "runs").iterdir()))


def processes_of(folder: Path) -> list[int]:
    """All processes that work in a folder, or have its path on their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (place / "cmdline").read_bytes() + os.fsencode(os.readlink(place / "cwd"))  # noqa: PTH115
            if os.fsencode(folder) in words and int(place.name) != os.getpid():
                found.append(int(place.name))
    return found


def test_a_script_with_checkpoints_of_its_own_is_killed_and_resumed(code: Path) -> None:
    (code / "main.py").write_text(ARGPARSE)
    asked = ("--resume-with", "--resume {checkpoint}", "--", "python", "main.py")
    roost(code, "run", "--name", "whole", *asked)
    package = code / "runs" / "cut"
    for session in (1, 2):
        begun = lambda session=session: has_rows(package, session)  # noqa: E731
        with killed_when(code, begun, "run", "--name", "cut", *asked):
            pass
    output = roost(code, "run", "--name", "cut", *asked)
    assert f"resumes from its checkpoint {package / 'out'}" in output
    whole, cut = PackageFolder.open(code / "runs" / "whole"), PackageFolder.open(package)
    assert cut.state == "succeeded" and len(cut.sessions()) == 3
    assert series(cut, "loss") == series(whole, "loss") and len(series(cut, "loss")[0]) == 20
    assert (package / "out" / "4.pt").read_bytes() == (code / "runs" / "whole" / "out" / "4.pt").read_bytes()
    assert not (code / "out").exists()
    refused = roost(code, "run", "--name", "cut", "--", "python", "main.py", expected=5)
    assert "is another run (succeeded): --resume-with was `--resume '{checkpoint}'`, is not given" in refused
    roost(code, "verify", "runs/cut")


def test_a_script_that_fails_is_restarted(code: Path) -> None:
    text = (
        "import os, sys\nprint('loss', 1 + len(sys.argv))\nif len(sys.argv) > 1: sys.exit(0)\n"
        "for name in ('last.pt', 'best.pt'):\n"
        "    open(os.path.join(os.environ['ROOST_CHECKPOINT_DIR'], name), 'w').write('x')\n"
        "raise ValueError('once')"
    )
    asked = ("--restart", "2", "--resume-with", "{checkpoint}", "--checkpoint", "last*.pt")
    package, output = run_script(code, text, *asked)
    assert f"resumes from its checkpoint {package.path / 'Checkpoints' / 'last.pt'}" in output
    assert len(package.sessions()) == 2 and "restart 1 of 2" in output
    assert series(package, "loss")[1] == [2.0, 3.0]


def test_a_script_that_only_prints(code: Path) -> None:
    package, output = run_script(code, BARS, "--metric", r"speed=(\d+) img/s", "--metric", "never=x(y)z")
    assert series(package, "accuracy")[1] == [0.0, 0.5] and series(package, "speed")[1] == [12.0, 12.0]
    assert series(package, "loss")[1][-1] == 0.1
    assert output.count("--metric never matched no line") == 1
    environment = (package.path / "environment.json").read_text()
    assert '"torch"' in environment and sys.executable in environment
    listed = roost(code, "ls")
    assert "it" in listed and "succeeded" in listed
    assert "loss" in roost(code, "show", "runs/it")


def test_a_script_that_writes_event_files_and_tables(code: Path) -> None:
    package, _ = run_script(code, TENSORBOARD)
    steps, values = series(package, "train/loss")
    assert steps == list(range(20)) and values[-1] == pytest.approx(1 / 20)
    assert series(package, "from_table")[1][-1] == 38.0
    assert "hp_metric" not in records.fold(package.path / "records").series, "Lightning's, of every start"


def test_what_a_script_writes_through_a_link_is_named(code: Path) -> None:
    (code / "data").mkdir()
    (code / "data" / "old").touch()
    (code / ".gitignore").write_text("data\nmore\n")
    (code / "more").write_text("")
    for command in (["init", "--quiet"], ["add", ".gitignore"]):
        subprocess.run(["git", "-C", str(code), *command], check=True)
    os.utime(code / "more", (0, 0))
    os.utime(code / "data" / "old", (0, 0))
    package, output = run_script(code, "open('data/new', 'w').close(); open('more').close(); print('loss 1')")
    assert "through links of the copy: data;" in output and (package.path / "data" / "new").exists()


def test_a_script_that_calls_wandb(code: Path) -> None:
    package, _ = run_script(code, WANDB)
    steps, values = series(package, "loss")
    assert steps == list(range(10)) and values == [1 / (step + 1) for step in range(10)]
    assert series(package, "nested/value")[1] == [float(step) for step in range(10)]
    assert list((package.path / "wandb").glob("offline-run-*"))
    assert not list((package.path / "system").glob("*.calls.jsonl"))


BAD: dict[str, tuple[str, int, str]] = {
    "exits at once": ("raise SystemExit(3)", 3, "exited with 3"),
    "fails and writes over a file of its package": (
        "open('manifest.json', 'w').write('[]'); print('no data'); raise SystemExit(1)",
        1,
        "exited with 1: no data",
    ),
    "is killed": (
        "import os; os.kill(os.getpid(), 9)",
        1,
        "roost: the command crashed: killed by SIGKILL",
    ),
    "forks and leaves": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\nprint('left')",
        0,
        "what it starts ends with it",
    ),
    "changes its folder": ("import os; os.chdir('/'); print('loss 0.5')", 0, "loss 0.5"),
    "needs a terminal": ("input('name? ')", 1, "EOF"),
    "closes its output": ("import os; os.close(1); os.close(2)", 0, "succeeded"),
}


@pytest.mark.parametrize("name", BAD)
def test_scripts_that_misbehave(code: Path, name: str) -> None:
    text, expected, said = BAD[name]
    package, output = run_script(code, text, expected=expected)
    assert said in output
    assert package.state == ("succeeded" if expected == 0 else "crashed" if name == "is killed" else "failed")
    assert not processes_of(code)


def test_a_script_that_deletes_its_own_package(code: Path) -> None:
    (code / "main.py").write_text(
        "import os, shutil; shutil.rmtree(os.environ['ROOST_PACKAGE']); print('loss 1')"
    )
    process = start(code, "run", "--name", "it", "--", "python", "main.py")
    output, _ = process.communicate(timeout=100)
    assert process.returncode == 3 and "was deleted while its session ran" in output, output
    assert "Traceback" not in output


def test_a_script_that_writes_over_files_of_its_package(code: Path) -> None:
    text = (
        "import os\nfor name in ('args.json', 'manifest.json', 'request.json'): open(name, 'w').write('[]')\n"
        "for name in ('records', 'media', 'sessions', 'system'): os.makedirs(name, exist_ok=True)\n"
        "os.unlink('provenance.json'); print('loss 1')"
    )
    package, output = run_script(code, text)
    assert "manifest.json of its package: its own is now program.manifest.json" in output
    assert (package.path / "program.manifest.json").read_text() == "[]"
    assert json.loads((package.path / "args.json").read_text()) == {}
    assert "loss" in roost(code, "show", "runs/it")
    assert "loss 1" in roost(code, "continue", "runs/it")


def test_a_program_does_not_outlive_its_guard_and_supervisor(code: Path) -> None:
    (code / "main.py").write_text("import os, time\nprint('pid', os.getpid(), '.')\ntime.sleep(1000)")
    process = start(code, "run", "--name", "it", "--", "python", "main.py")
    output = code / "runs" / "it" / "_output.txt"
    wait_for(lambda: output.exists() and output.read_text().endswith(".\n"))
    pids = [int(output.read_text().split()[1])]
    for _ in range(3):  # its task, the supervisor, and the guard
        pids.append(int(Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2].split()[1]))
    for pid in reversed(pids[2:]):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=100)
    wait_for(lambda: not any(map(is_running, pids[:2])))


def is_running(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def test_a_flood_of_output_is_bounded(code: Path) -> None:
    flood = (
        "import sys\nfor _ in range(300):\n    sys.stdout.write('x' * (1 << 20))\nprint()\nprint('loss 0.25')"
    )
    package, _ = run_script(code, flood)
    assert series(package, "loss")[1] == [0.25]
    assert package.output.stat().st_size < 210 << 20


def test_what_a_program_gets(code: Path) -> None:
    shown = "import os\nfor one in os.environ.items():\n    if one[0].startswith('ROOST_'): print(*one)"
    package, output = run_script(code, shown, "--time-limit", "1h")
    for name in ("ROOST_PACKAGE", "ROOST_CHECKPOINT_DIR", "ROOST_DEADLINE"):
        assert name in output
    assert "ROOST_RESUME_FROM" not in output and f"ROOST_PACKAGE {package.path}" in output


def test_a_program_that_is_asked_to_stop(code: Path) -> None:
    text = (
        "import signal, sys, time\n"
        "def stop(*_): print('loss 0.125'); sys.exit(9)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('ready')\ntime.sleep(1000)"
    )
    (code / "main.py").write_text(text)
    process = start(code, "run", "--name", "it", "--", "python", "main.py")
    package = code / "runs" / "it"
    assert process.stdout is not None
    # Before this line Ctrl-C is not yet an answer to the run.
    assert any("Ctrl-C asks the program to end" in line for line in process.stdout)
    assert "ready\n" in process.stdout
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 75 and "by SIGTERM; Ctrl-C again" in said, said
    assert PackageFolder.open(package).state == "stopped" and series(PackageFolder.open(package), "loss")[
        1
    ] == [0.125]
