"""Reading output that grows, has a hole, and is replaced at the end."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from roost.operations.output import Output, tail_offset

BLOCK = 4096
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2

linux = pytest.mark.skipif(sys.platform != "linux", reason="punches holes as Linux does")


def punch(path: Path, start: int, length: int) -> None:
    """Takes blocks out of a file, as the supervisor does."""
    fd = os.open(path, os.O_WRONLY)
    mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    done = ctypes.CDLL(None).fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(length))
    os.close(fd)
    assert done == 0


def test_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    with Output(path) as output:
        assert list(output.new()) == []
        path.write_bytes(b"one\n\xff\x00")
        assert b"".join(output.new()) == b"one\n\xff\x00"
        assert list(output.new()) == []
        with path.open("ab") as file:
            file.write(b"x" * 200_000)
        assert b"".join(output.new()) == b"x" * 200_000
    with Output(path, offset=4) as output:
        assert next(iter(output.new())).startswith(b"\xff\x00xxx")


@linux
def test_a_hole_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    head, lost, tail = b"h" * BLOCK * 2, b"?" * BLOCK * 30, b"t" * 100
    path.write_bytes(head + lost + tail)
    punch(path, len(head), len(lost))
    with Output(path) as output:
        shown = b"".join(output.new())
    line = b"\nroost: 122,880 bytes of output are not kept here (limits.output_mb)\n"
    assert shown == head + line + tail


@linux
def test_a_hole_below_a_follower_and_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    path.write_bytes(b"a" * BLOCK * 4)
    with Output(path) as output:
        b"".join(output.new())
        punch(path, BLOCK, BLOCK * 3)
        assert list(output.new()) == []
        os.truncate(path, BLOCK * 6)
        assert b"".join(output.new()).count(b"roost: 8,192 bytes") == 1
        assert list(output.new()) == []
        with path.open("ab") as file:
            file.write(b"end")
        assert b"".join(output.new()) == b"end"


def test_a_file_that_is_replaced_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    path.write_bytes(b"first " * 1000)
    with Output(path) as output:
        b"".join(output.new())
        with path.open("ab") as file:
            file.write(b"last")
        (tmp_path / "new").write_bytes(b"short")
        (tmp_path / "new").replace(path)
        assert b"".join(output.new()) == b"last"


def test_the_tail_of_nothing(tmp_path: Path) -> None:
    assert tail_offset(tmp_path / "none", 3) == 0
    (tmp_path / "empty").write_bytes(b"")
    assert tail_offset(tmp_path / "empty", 3) == 0


@linux
def test_the_tail_ends_at_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 10 * 2**30)  # 10 GB that nobody reads through
    with path.open("ab") as file:
        file.write(b"one\ntwo\nthree\n")
    assert tail_offset(path, 2) == 10 * 2**30 + len(b"one\n")
    assert tail_offset(path, 100) == 10 * 2**30
