"""The template alone: what a fork of it needs to be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import roost
from roost.supervisor.forkserver import guard_template

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


def test_it_has_one_thread_and_all_that_a_supervisor_loads() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})\n"
        "from roost.supervisor import guard\n"
        "from roost.supervisor.forkserver import guard_template; guard_template.load_modules()\n"
        "names = ['base.durable', 'supervisor.session_watch', 'supervisor.session_restart']\n"
        "names += ['supervisor.output.output_cap']\n"
        "loaded = all(f'roost.{name}' in sys.modules for name in names)\n"
        "print(loaded, open('/proc/self/status').read())"
    )
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.startswith("True ") and "\nThreads:\t1\n" in done.stdout


def placed(order: list[int]) -> list[str]:
    """What a child finds as 0, 2, 3, …, which was given files under these numbers."""
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = os.dup2(write_fd, 100)
            os.closerange(3, 100)
            for number in range(len(order)):
                made = os.memfd_create(f"file-{number}")
                os.dup2(made, 50 + number)
                os.close(made)
            for number, fd in enumerate(order):
                os.dup2(50 + number, fd)
                os.close(50 + number)
            guard_template._renumber(order)
            there = [0, 2, *range(3, 1 + len(order))]
            found = {fd: Path(f"/proc/self/fd/{fd}") for fd in range(100)}
            names = [str(found[fd].readlink()) for fd in there]
            left = [fd for fd in range(3, 100) if fd not in there and os.path.lexists(found[fd])]
            os.write(answer, "\n".join([*names, f"left {left}"]).encode())
        finally:
            os._exit(0)
    os.close(write_fd)
    os.waitpid(pid, 0)
    with open(read_fd, "rb") as pipe:
        return pipe.read().decode().splitlines()


@pytest.mark.parametrize("order", [[3, 4, 5], [5, 4, 3], [4, 3, 6, 5], [9, 3, 12, 4, 10]])
def test_each_descriptor_gets_its_number_whatever_it_had(order: list[int]) -> None:
    names = [f"/memfd:file-{number} (deleted)" for number in range(len(order))]
    assert placed(order) == [*names, "left []"]
