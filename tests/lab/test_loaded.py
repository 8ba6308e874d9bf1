"""When a template refuses to be one; test_warm.py has it whole, with torch."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from roost.lab.become import HOPELESS, NO_TOKEN

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SRC = Path(__file__).parents[2] / "src"
PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from roost.lab import loaded
def load():
    {load}
    return list
loaded._load = load
loaded.serve(Path(sys.argv[1]))
"""


def started(path: Path, load: str) -> subprocess.Popen[str]:
    """A template that loads this; its stdin ends when nobody holds it."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {**os.environ, "ROOST_TOKEN": NO_TOKEN, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", PROGRAM.format(load=load), str(path)]
    with ours, its:
        return subprocess.Popen(command, stdin=its, stderr=subprocess.PIPE, env=env, text=True)


@pytest.mark.parametrize(
    ("load", "why"),
    [
        ("os.open('/dev/null', os.O_RDONLY)", "what was imported has opened ['"),
        (
            "threading.Thread(target=time.sleep, args=[9], daemon=True).start()",
            "what was imported has started threads, of which a fork copies one",
        ),
        (
            "loaded._refuse('what was imported draws random numbers')",
            "what was imported draws random numbers",
        ),
    ],
)
def test_what_a_child_could_not_do_without_is_refused(tmp_path: Path, load: str, why: str) -> None:
    process = started(tmp_path / "socket", load)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == HOPELESS and said.startswith(f"no warm start: {why}")
    assert not list(tmp_path.iterdir())


def test_what_a_killed_one_has_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "socket.new").touch()
    process = started(tmp_path / "socket", "pass")
    assert process.communicate(timeout=20)[1] == "" and process.returncode == 0  # its stdin had ended
    assert [file.name for file in tmp_path.iterdir()] == ["socket"]
