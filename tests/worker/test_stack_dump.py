from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import roost
from roost.base.system.worker_protocol import STACKS_SIGNAL, STACKS_VARIABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a real-time signal")

PROGRAM = f"""
import os, signal, subprocess, sys
sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})
from roost.worker import stack_dump as stacks
stacks.register()
def here(): os.kill(os.getpid(), {STACKS_SIGNAL})
here()
print(os.environ.get({STACKS_VARIABLE!r}), len(os.listdir("/proc/self/fd")), flush=True)
program = "import os; print(len(os.listdir('/proc/self/fd')))"
subprocess.run([sys.executable, "-I", "-S", "-c", program], close_fds=False)
"""


def test_a_signal_that_no_library_uses() -> None:
    assert signal.SIGRTMIN < STACKS_SIGNAL < signal.SIGRTMAX


def test_it_answers_into_the_pipe_and_its_programs_do_not_have_it() -> None:
    ours, theirs = os.pipe()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM],
        env={STACKS_VARIABLE: str(theirs)},
        pass_fds=[theirs],
        capture_output=True,
        text=True,
        check=True,
    )
    os.close(theirs)
    with open(ours) as pipe:
        assert "in here" in pipe.read()
    variable, own, below = done.stdout.split()
    assert variable == "None"
    assert int(below) == int(own) - 1


def test_without_a_supervisor_nothing_is_registered() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM], env={}, capture_output=True)
    assert done.returncode == -STACKS_SIGNAL
