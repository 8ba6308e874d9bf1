"""Reading output that grows, has a hole, and is replaced at the end."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.operations.reading.output_reader import OutputReader, tail_offset
from roost.operations.sessions.running_session import RunningSession, follow
from roost.supervisor.output.output_file import LEFT_OUT_PATTERN
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

BLOCK = 4096
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2

linux = pytest.mark.skipif(sys.platform != "linux", reason="punches holes as Linux does")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(tmp_path)
    yield session
    session.close()


def punch(path: Path, start: int, length: int) -> None:
    """Takes blocks out of a file, as the supervisor does."""
    fd = os.open(path, os.O_WRONLY)
    mode = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    done = ctypes.CDLL(None).fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(length))
    os.close(fd)
    assert done == 0


def test_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    with OutputReader(path) as output:
        assert list(output.read_new()) == []
        path.write_bytes(b"one\n\xff\x00")
        assert b"".join(output.read_new()) == b"one\n\xff\x00"
        assert list(output.read_new()) == []
        with path.open("ab") as file:
            file.write(b"x" * 200_000)
        assert b"".join(output.read_new()) == b"x" * 200_000
    with OutputReader(path, offset=4) as output:
        assert next(iter(output.read_new())).startswith(b"\xff\x00xxx")


@linux
def test_what_is_written_while_a_hole_is_searched_is_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "_output.txt"
    path.write_bytes(b"one\n")
    search = os.lseek

    def search_and_write(fd: int, offset: int, whence: int) -> int:
        try:
            return search(fd, offset, whence)
        except OSError:
            if whence == os.SEEK_DATA and path.stat().st_size == 4:
                path.write_bytes(b"one\ntwo\n")
            raise

    monkeypatch.setattr(os, "lseek", search_and_write)
    with OutputReader(path) as output:
        assert b"".join(output.read_new()) == b"one\ntwo\n"


@linux
def test_a_hole_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    head, lost, tail = b"h" * BLOCK * 2, b"?" * BLOCK * 30, b"t" * 100
    path.write_bytes(head + lost + tail)
    punch(path, len(head), len(lost))
    with OutputReader(path) as output:
        shown = b"".join(output.read_new())
    before, left_out, after = re.split(LEFT_OUT_PATTERN, shown)
    assert (before, left_out, after) == (head + b"\n", b"122,880", tail)


@linux
def test_a_hole_below_a_follower_and_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    path.write_bytes(b"a" * BLOCK * 4)
    with OutputReader(path) as output:
        b"".join(output.read_new())
        punch(path, BLOCK, BLOCK * 3)
        assert list(output.read_new()) == []
        os.truncate(path, BLOCK * 6)
        assert re.findall(LEFT_OUT_PATTERN, b"".join(output.read_new())) == [b"8,192"]
        assert list(output.read_new()) == []
        with path.open("ab") as file:
            file.write(b"end")
        assert b"".join(output.read_new()) == b"end"


def test_a_file_that_is_replaced_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "_output.txt"
    path.write_bytes(b"first " * 1000)
    with OutputReader(path) as output:
        b"".join(output.read_new())
        with path.open("ab") as file:
            file.write(b"last")
        (tmp_path / "new").write_bytes(b"short")
        (tmp_path / "new").replace(path)
        assert b"".join(output.read_new()) == b"last"


CHATTY = """
def say(start, stop):
    for number in range(start, stop, 1024):
        os.write(1, b"".join(b"%015d\\n" % i for i in range(number, number + 1024)))
def wait(name):
    while not os.path.exists(name): time.sleep(0.002)
say(0, 2**10); wait("head"); say(2**10, 2**19); wait("cut"); say(2**19, 2**19 + 2**12); end("succeeded", 0)
"""


@linux
def test_a_live_session_is_followed_through_its_cut_to_its_end(session: Session) -> None:
    """It prints 8 MB of which 1 MB may stay. The follower has seen the head when the middle is taken out, and
    the hole when the file is replaced by a shorter one."""
    everything = b"".join(b"%015d\n" % i for i in range(2**19 + 2**12))
    child = session.start_limited(CHATTY, output_bytes=2**20)
    running = RunningSession(session.folder, 1, session.folder / "none", session.file, session.output)
    seen, events = b"", follow(running)
    while len(seen) < 16 * 2**10:
        seen += output_of(next(events))
    (session.folder / "head").touch()
    wait_for(lambda: session.output.stat().st_size == 16 * 2**19)
    wait_for(lambda: session.output.stat().st_blocks * 512 < 1.5 * 2**20)
    while not re.search(LEFT_OUT_PATTERN, seen):
        seen += output_of(next(events))
    (session.folder / "cut").touch()
    assert child.wait(100) == 0
    *pieces, ended = events
    seen += b"".join(map(output_of, pieces))
    # On a busy machine the middle is taken out in several parts while it is read: a line for each.
    texts, left_out = re.split(LEFT_OUT_PATTERN, seen)[::2], re.split(LEFT_OUT_PATTERN, seen)[1::2]
    head, tail = texts[0], texts[-1]
    assert not isinstance(ended, bytes) and ended.state == "succeeded"
    assert session.output.stat().st_size <= 2**20
    assert everything.startswith(head.removesuffix(b"\n")) and len(head) >= 2**19
    assert everything.endswith(tail) and len(tail) >= 2**19 + 16 * 2**12
    total = sum(map(len, texts)) - len(left_out) + sum(int(one.replace(b",", b"")) for one in left_out)
    assert total == len(everything)


def output_of(event: object) -> bytes:
    assert isinstance(event, bytes)
    return event


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
