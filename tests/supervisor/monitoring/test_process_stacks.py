from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import roost
from roost.base.system import process_identity
from roost.supervisor.monitoring.process_stacks import read_available, sample_processes
from roost.supervisor.processes.process_tree import kill_tree
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a signal and /proc of Linux")

PROGRAM = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})
from roost.worker import worker_signals as stacks
fd = int(os.environ.get("ROOST_STACKS_FD", -1))
stacks.register_stack_dump()
def ready():
    os.write(1, b"1")
    while True: signal.pause()
def deep(n):
    return ready() if n == 0 else deep(n - 1)
"""


@contextmanager
def running(code: str, *, registered: bool = True, threads: int = 1) -> Iterator[tuple[int, int, int]]:
    """(pid, our end of the pipe, its end) of a program of which so many threads have come to `ready`."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    env = {"ROOST_STACKS_FD": str(theirs)} if registered else {}
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM + code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=env, pass_fds=[theirs]) as child:
        os.close(theirs)
        try:
            assert child.stdout is not None
            assert child.stdout.read(threads) == b"1" * threads
            yield child.pid, ours, theirs
            assert child.poll() is None, "it must not die of being asked"
        finally:
            kill_tree(child.pid, include_root=False)
            child.kill()
    os.close(ours)


def test_the_stacks_of_a_process() -> None:
    with running("def train_step(): ready()\ntrain_step()") as (pid, ours, theirs):
        (look,) = sample_processes([pid], read_fd=ours, workers_fd=theirs)
        assert look.pid == pid
        assert look.state in "RS"
        assert look.name.startswith("python")
        assert b"in train_step" in look.stacks
        assert b"--- process %d (python" % pid in look.format()


def test_all_threads_and_more_than_a_pipe_holds() -> None:
    code = (
        "for i in range(40): threading.Thread(target=lambda: deep(95), daemon=True).start()\n"
        "signal.pause = lambda: time.sleep(100)\n"
        "deep(95)"
    )
    with running(code, threads=41) as (pid, ours, theirs):
        found = [b""]

        def all_are_there() -> bool:
            """A busy machine may interrupt the answer for longer than its reader waits."""
            (look,) = sample_processes([pid], read_fd=ours, workers_fd=theirs)
            found[0] = look.stacks
            return look.stacks.count(b"in ready") == 41

        wait_for(all_are_there)
        assert len(found[0]) > 1 << 16
        assert found[0].count(b"hread 0x") == 41


def test_a_forked_child_writes_its_own_stacks() -> None:
    code = "def loader(): ready()\nif os.fork() == 0: loader()\nwhile True: signal.pause()"
    with running(code) as (pid, ours, theirs):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        parent, child = sample_processes([pid, int(children[0])], read_fd=ours, workers_fd=theirs)
        assert b"in loader" not in parent.stacks
        assert b"in loader" in child.stacks


def test_who_cannot_answer_is_not_asked() -> None:
    """The signal would end a program without the handler; its stacks would go into another file."""
    with running("ready()", registered=False) as (pid, ours, theirs):
        (look,) = sample_processes([pid], read_fd=ours, workers_fd=theirs)
        assert look.stacks == b""
        assert b'File "' not in look.format() and str(pid).encode() in look.format()
    with running("os.dup2(os.open('/dev/null', os.O_WRONLY), fd)\nready()") as (pid, ours, theirs):
        (look,) = sample_processes([pid], read_fd=ours, workers_fd=theirs)
        assert look.stacks == b""


def test_a_paused_process_is_named_and_left_alone() -> None:
    with running("ready()") as (pid, ours, theirs):
        os.kill(pid, 19)
        wait_for(lambda: (stat := process_identity.read_stat(pid)) is not None and stat.state == "T")
        (look,) = sample_processes([pid], read_fd=ours, workers_fd=theirs)
        assert (look.state, look.stacks) == ("T", b"")
        os.kill(pid, 18)
        wait_for(lambda: (stat := process_identity.read_stat(pid)) is not None and stat.state == "S")
        assert read_available(ours) == b"", "nothing comes late"


def test_a_process_that_holds_the_gil_in_c() -> None:
    with running("import time\nos.write(1, b'1')\nsum(range(10**12))") as (pid, ours, theirs):
        (look,) = sample_processes([pid], read_fd=ours, workers_fd=theirs)
        assert b'File "<string>"' in look.stacks


def test_who_has_gone_meanwhile() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as child:
        child.wait()
    ours, theirs = os.pipe()
    assert sample_processes([child.pid], read_fd=ours, workers_fd=theirs) == []
    os.close(ours)
    os.close(theirs)
