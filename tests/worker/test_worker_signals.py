from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import roost
from roost.base.system.worker_protocol import STACKS_SIGNAL, STACKS_VARIABLE
from roost.worker.worker_signals import StopSignals


class Target:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def request_stop(self, reason: str) -> None:
        self.reasons.append(reason)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_is_passed_on(number: signal.Signals, own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    stop.attach(target)
    assert target.reasons == []
    os.kill(os.getpid(), number)
    on_request = number == signal.SIGTERM  # Ctrl-C and `roost stop` come as this one
    assert len(target.reasons) == 1 and target.reasons[0].endswith("request" if on_request else number.name)


def test_one_that_came_while_the_run_was_built_is_not_lost(own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    os.kill(os.getpid(), signal.SIGUSR1)
    stop.attach(target)
    assert len(target.reasons) == 1 and target.reasons[0].endswith("SIGUSR1")


def test_the_first_reason_counts(own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    stop.attach(target)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert len(set(target.reasons)) == 1 and target.reasons[0].endswith("request")


def test_a_process_that_the_project_forks_dies_of_it(own_signals: None) -> None:
    stop, target = StopSignals(), Target()
    stop.attach(target)
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    child = context.Process(target=lambda: (ready.set(), [time.sleep(0.01) for _ in range(6000)]))
    child.start()
    assert ready.wait(100)  # Python forgets a signal that comes while it forks
    child.terminate()
    child.join(100)
    assert child.exitcode == -signal.SIGTERM and target.reasons == []
    child.kill()


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="a real-time signal")

PROGRAM = f"""
import os, signal, subprocess, sys
sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})
from roost.worker import worker_signals as stacks
stacks.register_stack_dump()
def here(): os.kill(os.getpid(), {STACKS_SIGNAL})
here()
print(os.environ.get({STACKS_VARIABLE!r}), len(os.listdir("/proc/self/fd")), flush=True)
program = "import os; print(len(os.listdir('/proc/self/fd')))"
subprocess.run([sys.executable, "-I", "-S", "-c", program], close_fds=False)
"""


@linux_only
def test_a_signal_that_no_library_uses() -> None:
    assert signal.SIGRTMIN < STACKS_SIGNAL < signal.SIGRTMAX


@linux_only
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


@linux_only
def test_without_a_supervisor_nothing_is_registered() -> None:
    done = subprocess.run([sys.executable, "-I", "-S", "-c", PROGRAM], env={}, capture_output=True)
    assert done.returncode == -STACKS_SIGNAL
