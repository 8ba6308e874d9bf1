from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from roost.worker.worker_output import DiskFullTolerantOutput


def test_what_a_full_disk_refuses_is_lost_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "output"
    fd = os.open("/dev/full", os.O_WRONLY)
    stream = DiskFullTolerantOutput(fd)
    try:
        assert stream.write(b"12345") == 5
        assert stream.write(b"678") == 3
        room = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.dup2(room, fd)  # the disk has space again
        os.close(room)
        stream.write(b"after\n")
        stream.write(b"more\n")
    finally:
        os.close(fd)
    assert file.read_bytes() == b"\nroost: 8 bytes of output were lost: disk full\nafter\nmore\n"


def test_print_and_tracebacks_of_a_process_never_fail() -> None:
    program = (
        "import sys, traceback\n"
        "from roost.worker import worker_output; worker_output.tolerate_full_disk()\n"
        "print('lost', flush=True)\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: traceback.print_exc()\n"
        "sys.exit(7)"
    )
    with open("/dev/full", "wb") as full:
        assert subprocess.run([sys.executable, "-c", program], stdout=full, stderr=full).returncode == 7


def test_what_is_printed_comes_at_once_and_in_order() -> None:
    program = (
        "import os, sys\n"
        "from roost.worker import worker_output; worker_output.tolerate_full_disk()\n"
        "print('a\\ud800'); os.write(1, b'b\\n'); print('cc', end=''); os.write(1, b'd')\n"
        "print('e', file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert (done.returncode, done.stdout) == (0, b"a\\ud800\nb\nccde\n")


BURST = """
import os, subprocess, sys, threading, time
from roost.worker import worker_output
worker_output.tolerate_full_disk()
buffer = worker_output.BurstBuffer()
with buffer:
    for number in range(2000):
        print("out", number)
        print("err", number, file=sys.stderr)
    print("before the fork")
    if os.fork() == 0:
        print("child")
        os._exit(0)
    os.wait()
    print("shown soon")
    seen = threading.Event()
    while "shown soon" not in open(sys.argv[1]).read():
        time.sleep(0.001)
    print("closed", end="")
    sys.stdout.close()
with buffer:
    print(" and open again")
print("unbuffered")
os._exit(0)
"""


def test_a_burst_keeps_its_order_and_loses_nothing(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with output.open("wb") as to:
        subprocess.run([sys.executable, "-c", BURST, output], stdout=to, stderr=to, check=True, timeout=100)
    expected = [f"{kind} {number}" for number in range(2000) for kind in ("out", "err")]
    expected += ["before the fork", "child", "shown soon", "closed and open again", "unbuffered"]
    assert output.read_text().splitlines() == expected


LATE = """
import os, sys, threading
from roost.worker import worker_output
worker_output.tolerate_full_disk()
buffer, write, begun = worker_output.BurstBuffer(), os.write, threading.Event()
def slow(fd, data):
    if threading.current_thread().name == "flush-output":
        begun.set()
        threading.Event().wait(0.5)
    return write(fd, data)
os.write = slow
with buffer:
    print("line")
    begun.wait()
os._exit(0 if os.fstat(1).st_size == 5 else 3)
"""


def test_all_is_written_at_the_end_of_a_burst(tmp_path: Path) -> None:
    """Also what the thread has begun to write."""
    with (tmp_path / "output").open("wb") as to:
        assert subprocess.run([sys.executable, "-c", LATE], stdout=to, timeout=100).returncode == 0
