from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.supervisor.monitoring.memory_peak import ProcessTreePeak, exceeded, resident_kb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MB = 2**20
# A process that only has a child: that one takes memory, past every allocator, on request.
TREE = f"""
import mmap, os, sys
child = os.fork()
if child:
    os.waitpid(child, 0)
    sys.exit()
kept = []
os.write(1, b"1")
while order := os.read(0, 1):
    if order == b"f":
        file = os.open("file", os.O_RDONLY)
        kept.append(mmap.mmap(file, 0, mmap.MAP_PRIVATE, mmap.PROT_READ))
        for page in range(0, len(kept[-1]), {mmap.PAGESIZE}): kept[-1][page]
    elif order == b"0":
        kept.pop().close()
    else:
        kept.append(mmap.mmap(-1, 64 * {MB}, mmap.MAP_SHARED if order == b"s" else mmap.MAP_PRIVATE))
        for page in range(0, len(kept[-1]), {mmap.PAGESIZE}): kept[-1][page] = 1
    os.write(1, b"1")
"""


class Tree:
    """The process whose child takes memory."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self.pid = process, process.pid

    def tell(self, order: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(order)
        self.wait()

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.read(1) == b"1"


@contextmanager
def tree(folder: Path) -> Iterator[Tree]:
    argv = [sys.executable, "-I", "-S", "-c", TREE]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, bufsize=0, cwd=folder) as process:
        found = Tree(process)
        found.wait()
        yield found


def test_the_largest_sum_that_was_seen(tmp_path: Path) -> None:
    with tree(tmp_path) as run:
        peak = ProcessTreePeak(run.pid)
        peak.sample(100.0)
        bare = peak.peak_mb
        assert 0 < bare < 64
        run.tell(b"p")
        peak.sample(100.4)
        assert peak.peak_mb == bare, "too early for another look"
        peak.sample(200.0)
        assert bare + 64 <= peak.peak_mb < bare + 80
        run.tell(b"s")
        peak.sample(300.0)
        most = peak.peak_mb
        assert bare + 128 <= most < bare + 160
        run.tell(b"0")
        run.tell(b"0")
        peak.sample(400.0)
        assert peak.peak_mb == most


def test_pages_of_files_do_not_count() -> None:
    """Of a file on a disk: the pages of one in memory, where `tmp_path` may be, do."""
    with tempfile.TemporaryDirectory() as folder, tree(Path(folder)) as run:
        Path(folder, "file").write_bytes(b"x" * 64 * MB)
        run.tell(b"f")
        peak = ProcessTreePeak(run.pid)
        peak.sample(1.0)
        assert 0 < peak.peak_mb < 64


def test_the_advice_is_not_less_than_what_earlier_sessions_took(tmp_path: Path) -> None:
    file = str(tmp_path / "3.json")
    assert "--host-memory 150MB" in str(exceeded(100, "x", session_file=file).error)
    for number, mb in ((1, 400.0), (2, 90.0)):
        (tmp_path / f"{number}.json").write_text(json.dumps({"peak_tree_memory_mb": mb}))
    (tmp_path / "1.seal.json").write_text("{}")
    (tmp_path / "4.json").write_text("torn")
    assert "--host-memory 600MB" in str(exceeded(100, "x", session_file=file, used_mb=120.0).error)


def test_who_is_gone_has_none() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as child:
        child.wait()
    assert resident_kb(child.pid) == 0
    assert resident_kb(os.getpid()) > 0
