"""The template alone: what a fork of it needs to be, and its end."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import roost
from roost.base.system import process_identity
from roost.supervisor.forkserver import template_client, template_process, torch_template
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


IDLE_SECONDS = 0.3
ENDS_SOON = f"""
import sys
from roost.supervisor.forkserver import template_process
template_process.load_modules()
template_process.serve(sys.argv[1], template_process.Preload(idle_seconds={IDLE_SECONDS}))
"""


def test_it_has_one_thread_and_all_that_a_supervisor_loads() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(roost.__file__).parents[1])!r})\n"
        "from roost.supervisor import guard\n"
        "from roost.supervisor.forkserver import template_process; template_process.load_modules()\n"
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
            template_process._renumber(order)
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


@contextmanager
def template(path: Path, code: str) -> Iterator[subprocess.Popen[bytes]]:
    """A template that listens at a path."""
    path.parent.mkdir(mode=0o700)
    own_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = os.environ | {"PYTHONPATH": str(Path(roost.__file__).parents[1])}
    with own_end, child_end:
        process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=child_end, env=env)
        try:
            wait_for(lambda: template_client.is_listening(path))
            yield process
        finally:
            process.kill()
            process.wait()


def test_it_ends_when_it_was_idle_and_leaves_no_socket(tmp_path: Path) -> None:
    path = tmp_path / "warm" / "template"
    with template(path, ENDS_SOON) as process:
        assert process.wait(timeout=100) == 0
    assert not path.exists()
    assert torch_template._IDLE_SECONDS <= 300


def test_it_is_not_idle_while_a_guard_lives(tmp_path: Path) -> None:
    path = tmp_path / "warm" / "template"
    with template(path, ENDS_SOON) as process:
        guard = template_client._request_guard(path, [])
        assert guard is not None
        with guard.stderr:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(timeout=3 * IDLE_SECONDS)
            guard.stdin.close()
            assert guard.wait(timeout=100) == 1
        assert process.wait(timeout=100) == 0


def test_it_leaves_the_socket_of_a_later_one(tmp_path: Path) -> None:
    path = tmp_path / "warm" / "template"
    with template(path, ENDS_SOON) as process:
        path.unlink()
        path.touch()
        assert process.wait(timeout=100) == 0
    assert path.exists()


def test_it_ends_with_the_process_that_keeps_it(tmp_path: Path) -> None:
    code = (
        "import signal; from roost.supervisor.forkserver.template_pool import TemplatePool\n"
        "pool = TemplatePool(); pool.open()\n"
        "print(pool._guards.process.pid, pool.guard_template, flush=True); signal.pause()"
    )
    env = os.environ | {template_client.FOLDER_VARIABLE: str(tmp_path / "warm")}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=env) as owner:
        assert owner.stdout is not None
        number, path = owner.stdout.readline().decode().split()
        pid, ticks, boot = int(number), process_identity.start_ticks(int(number)), process_identity.boot_id()
        try:
            wait_for(Path(path).exists)
            assert Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == b"roost: template"
        finally:
            owner.kill()
    wait_for(lambda: not process_identity.is_alive(pid, ticks, boot))
    assert not Path(path).exists()
