"""Becoming a worker without `exec`: each thing that an interpreter does at its start and at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roost.supervisor.forkserver import forked_worker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

ROOT = Path(__file__).parents[3]
LOOK = """
import atexit, os, signal, sys, threading, time
main = sys.modules["__main__"]
assert (__name__, __spec__.name, main.__dict__ is globals()) == ("__main__", "roost_worker.__main__", True)
def of_proc(name):
    with open(f"/proc/self/{name}", "rb") as file:
        return file.read().decode().rstrip("\\0").split("\\0")
print(sys.argv[1:], sys.orig_argv[1:], sys.argv[0] == __file__)
print("ROOST_TOKEN=" + os.environ["ROOST_TOKEN"] in of_proc("environ"))
print(os.environ["ROOST_OWN"], os.environ["SET_BY_AN_IMPORT"], os.getenvb(b"ROOST_OWN"))
kept, lost = map(int, open("fds").read().split())
print(os.path.exists(f"/proc/self/fd/{kept}"), os.path.exists(f"/proc/self/fd/{lost}"))
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGPIPE))
print(signal.set_wakeup_fd(-1))
atexit.register(lambda: open("at exit", "w").write("done"))
left_open = open("left open", "w")
left_open.write("flushed")
threading.Thread(target=lambda: (time.sleep(0.1), open("thread", "w").write("waited for"))).start()
"""


def became(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in the place of the worker's."""
    worker = folder / "roost_worker"
    worker.mkdir()
    (worker / "__init__.py").touch()
    (worker / "__main__.py").write_text(code)
    # The template is started with a command of the same room, and finds another program by the worker's name.
    program = (
        "import runpy; from roost.supervisor.forkserver import forked_worker as become\n"
        "become._PROGRAM = 'roost_worker'\n"
        f"runpy.run_path({str(ROOT / 'tests' / 'lab' / 'become_program.py')!r}, run_name='become_program')"
    )
    env = {
        **os.environ,
        "ROOST_TOKEN": forked_worker.TOKEN_PLACEHOLDER,
        "PYTHONPATH": f"{ROOT / 'src'}:{folder}",
    }
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100)


def test_it_is_as_if_it_had_been_started(tmp_path: Path) -> None:
    done = became(tmp_path, LOOK, "PACKAGE", "12")
    assert done.stdout.splitlines() == [
        "prepared",
        "['PACKAGE', '12'] ['-P', '-m', 'roost.worker', 'PACKAGE', '12'] True",
        "True",
        "own yes b'own'",
        "True False",
        "True 1",
        "-1",
    ]
    assert done.returncode == 0 and not done.stderr
    assert (tmp_path / "left open").read_text() == "flushed" and (tmp_path / "at exit").exists()
    assert (tmp_path / "thread").read_text() == "waited for"


@pytest.mark.parametrize(
    ("code", "returncode", "last"),
    [
        ("import sys; sys.exit(75)", 75, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('why')", 1, "why"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("import os; os._exit(7)", 7, ""),
    ],
)
def test_it_ends_as_an_interpreter_ends(tmp_path: Path, code: str, returncode: int, last: str) -> None:
    done = became(tmp_path, code)
    assert [done.returncode, *done.stderr.splitlines()[-1:]] == [returncode, *([last] if last else [])]
    assert "unwound" not in done.stdout


def test_without_room_for_a_token_there_is_none(tmp_path: Path) -> None:
    code = (
        "import os; from roost.supervisor.forkserver.forked_worker import WarmWorker\n"
        "WarmWorker(os.environ, prepare=list)"
    )
    env = {**os.environ, "ROOST_TOKEN": "short", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "OSError: " in done.stderr and "ROOST_TOKEN=000" in done.stderr
