"""Titles of processes, as the kernel shows them to ``ps``."""

from __future__ import annotations

import subprocess
import sys

import pytest

from roost.base.system import process_title

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

SHOW = """
import os, sys
from roost.base.system import process_title
process_title.set_title(*sys.argv[1:3])
def of_proc(name):
    with open(f"/proc/self/{name}", "rb") as file: return file.read()
print(of_proc("cmdline").rstrip(b"\\0").decode(), of_proc("comm").decode().strip(), sep="\\n")
print(b"MARK=1" in of_proc("environ").split(b"\\0"), os.environ["MARK"], sys.argv[1], flush=True)
subprocess = __import__("subprocess")
print(subprocess.run(["ps", "-o", "args=", "-p", str(os.getpid())], stdout=subprocess.PIPE).stdout.decode())
"""


def shown(role: str, package: str, *more: str) -> list[str]:
    command = [sys.executable, "-c", SHOW, role, package, *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={"MARK": "1", "PATH": "/bin"})
    return done.stdout.decode().splitlines()


@pytest.mark.needs_program("ps")
def test_the_kernel_shows_it_and_the_environment_is_left() -> None:
    title, name, kept, ps, *_ = shown("worker", "/runs/a run é")
    assert title == ps == "roost: worker a run é"
    assert name == title[:15] and kept == "True 1 worker"
    assert shown("template", "")[:2] == ["roost: template", "roost: template"]


def test_a_title_is_as_long_as_the_command_at_most() -> None:
    code = (
        "from roost.base.system import process_title; process_title.set_title('x' * 9999, '');"
        "found = open('/proc/self/cmdline', 'rb').read(); print(len(found), found[-1])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.split()
    assert [int(one) for one in done] == [sum(len(one) + 1 for one in command), 0]


def test_there_is_room_for_the_longest_name() -> None:
    name = "n" * 255
    assert shown("supervisor", name, process_title.TITLE_ROOM)[0] == f"roost: supervisor {name}"
