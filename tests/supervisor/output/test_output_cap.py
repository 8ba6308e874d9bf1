from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from roost.supervisor.limits import SessionLimits
from roost.supervisor.output import output_cap
from roost.supervisor.output.output_cap import OutputCap, punch_hole, shorten_file
from roost.supervisor.output.output_file import LEFT_OUT_PATTERN, left_out_line
from tests.processes import peak_mb
from tests.supervisor.real_sessions import Session
from tests.waiting import wait_for

MB = 2**20


def left_out(data: bytes) -> int:
    (found,) = re.findall(LEFT_OUT_PATTERN, data)
    return int(found.replace(b",", b""))


def numbered(count: int, *, start: int = 0) -> bytes:
    return b"".join(b"%015d\n" % number for number in range(start, start + count))


def on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.skipif(sys.platform != "linux", reason="holes are punched by fallocate")
def test_a_growing_file_stays_small_and_whole_at_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open(path, "ab", buffering=0) as file:
        cap = OutputCap(file.fileno(), MB)
        everything = b""
        for i in range(20):
            piece = numbered(2**14, start=i * 2**14)  # a quarter of a MB
            everything += piece
            file.write(piece)
            assert 0.05 <= cap.check() <= 1
            assert on_disk(path) < 1.5 * MB
            kept = path.read_bytes()
            assert len(kept) == len(everything), "offsets do not move"
            assert kept[: MB // 2] == everything[: MB // 2]
            assert kept[-MB // 2 :] == everything[-MB // 2 :]
    assert b"\0" in kept
    found = shorten_file(str(path), MB)
    kept = path.read_bytes()
    assert found == left_out(kept) == len(everything) - (len(kept) - len_of_line(kept))
    assert len(kept) <= MB
    head, tail = re.split(LEFT_OUT_PATTERN, kept)[::2]
    assert everything.startswith(head)
    assert everything.endswith(tail)
    assert head.endswith(b"\n")
    assert len(tail) % 16 == 0, "cut between lines"


def len_of_line(data: bytes) -> int:
    found = re.search(LEFT_OUT_PATTERN, data)
    assert found is not None
    return len(found[0])


@pytest.mark.skipif(sys.platform != "linux", reason="holes are punched by fallocate")
def test_a_hole_of_an_earlier_session(tmp_path: Path) -> None:
    """Its supervisor was killed: the file is long and has a hole already."""
    path = tmp_path / "out"
    path.write_bytes(numbered(2**18))  # 4 MB
    with open(path, "ab") as file:
        punch_hole(file.fileno(), MB, 2 * MB)
        OutputCap(file.fileno(), MB).check()
    assert on_disk(path) < 1.2 * MB


def test_what_was_left_out_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "out"
    total = b""
    for session in range(4):
        new = numbered(2**17, start=session * 2**17)
        total += new
        with open(path, "ab") as file:
            file.write(new)
        found = shorten_file(str(path), MB)
        data = path.read_bytes()
        assert left_out(data) == found == len(total) - (len(data) - len_of_line(data))
        assert data.startswith(total[:1000])
        assert data.endswith(total[-1000:])
    assert shorten_file(str(path), MB) == 0, "short already"
    assert path.read_bytes() == data


@pytest.mark.parametrize("number", ["", ",", ",,1", "1" * 4000, "9" + ",999" * 1000])
def test_a_line_of_the_run_that_looks_like_ours(tmp_path: Path, number: str) -> None:
    path = tmp_path / "out"
    fake = b"\n" + left_out_line(0).replace(b"0", number.encode())
    path.write_bytes(b"x" * (MB // 2 - 4096 - len(fake)) + fake + numbered(2**17))
    assert shorten_file(str(path), MB) < path.stat().st_size * 2
    assert path.stat().st_size <= MB


@pytest.mark.parametrize("text", ["ä", "€", "😀", "\n", "a\r"])
def test_no_character_is_cut(tmp_path: Path, text: str) -> None:
    path = tmp_path / "out"
    for shift in range(4):
        path.write_bytes(b"x" * shift + text.encode() * (MB // len(text.encode())))
        path.chmod(0o640)
        assert shorten_file(str(path), MB // 2)
        path.read_bytes().decode()
        assert path.stat().st_size <= MB // 2
        assert path.stat().st_mode & 0o777 == 0o640


def test_bytes_that_are_no_text_stay_as_they_are(tmp_path: Path) -> None:
    path, data = tmp_path / "out", bytes(range(128, 256)) * 2**14
    path.write_bytes(data)
    shorten_file(str(path), MB)
    head, tail = re.split(LEFT_OUT_PATTERN, path.read_bytes())[::2]
    assert data.startswith(head.removesuffix(b"\n"))
    assert data.endswith(tail)
    assert len(head) + len(tail) > MB - 3 * 4096


@pytest.mark.parametrize("size", [0, 1, MB])
def test_a_short_file_is_not_touched(tmp_path: Path, size: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(bytes(size))
    before = path.stat()
    assert shorten_file(str(path), MB) == 0
    assert path.stat() == before
    assert shorten_file(str(tmp_path / "none"), MB) == 0


def test_what_is_no_file_has_no_size(tmp_path: Path) -> None:
    fd = os.open(os.devnull, os.O_WRONLY)
    assert OutputCap(fd, 0).check() == 1
    os.close(fd)
    assert shorten_file(os.devnull, 0) == 0


def test_a_file_that_was_truncated(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open(path, "ab", buffering=0) as file:
        cap = OutputCap(file.fileno(), MB)
        file.write(bytes(4 * MB))
        cap.check()
        file.truncate(0)
        cap.check()
        file.write(b"x" * 4 * MB)
        cap.check()
    assert on_disk(path) < 1.5 * MB


def test_a_disk_without_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, start: int, end: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(output_cap, "punch_hole", refuse)
    path = tmp_path / "out"
    path.write_bytes(bytes(4 * MB))
    with open(path, "ab") as file, pytest.raises(OSError, match="not supported"):
        OutputCap(file.fileno(), MB).check()
    assert shorten_file(str(path), MB) > 0


MOST_MEMORY_MB = 24.0
"""Of guard or supervisor: a tenth more than the interpreter with their modules."""


SPARSE = """
os.write(1, b"first\\n")
os.ftruncate(1, 10 * 2**30)
for i in range(300): os.write(1, b"%015d\\n" % i * 2**10)
here("written")
while not os.path.exists("go"): time.sleep(0.002)
os.write(1, b"last\\n")
end("succeeded", 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="holes are punched by fallocate")
def test_ten_gigabytes(session: Session) -> None:
    """A sparse file, so that only its size is large: nothing here may depend on that."""
    child = session.start_limited(SPARSE, output_bytes=2 * MB)
    session.wait_until("written")
    assert session.output.stat().st_size > 10 * 2**30
    wait_for(lambda: on_disk(session.output) < 2.5 * MB)
    pids = session.supervisor_pid, child.pid
    memory = [peak_mb(pid) for pid in pids]
    assert all(0 < mb < MOST_MEMORY_MB for mb in memory), memory
    (session.folder / "go").touch()
    while child.poll() is None:  # while it is shortened, too
        assert all(peak_mb(pid) < MOST_MEMORY_MB for pid in pids)
    assert child.returncode == 0
    data = session.output.read_bytes()
    assert len(data) <= 2 * MB
    assert data.startswith(b"first\n")
    assert data.endswith(b"last\n")
    assert session.record()["output_left_out_bytes"] == left_out(data) > 9 * 10**9


FLOOD = """
line = b"x" * 99 + b"\\n"
for i in range(10 * 2**30 // 2**20): os.write(1, line * 10486)
end("succeeded", 0)
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="holes are punched by fallocate")
def test_ten_real_gigabytes(session: Session) -> None:
    limit = SessionLimits().output_bytes
    child = session.start(FLOOD)
    most_disk, most_memory = 0, 0.0
    while child.poll() is None:
        most_disk = max(most_disk, on_disk(session.output))
        most_memory = max(most_memory, peak_mb(session.supervisor_pid), peak_mb(child.pid))
    assert child.returncode == 0
    assert most_disk < 2.5 * limit, "the last rewrite holds a second one for a moment"
    assert 0 < most_memory < MOST_MEMORY_MB
    assert session.output.stat().st_size <= limit
    assert session.record()["output_left_out_bytes"] > 9 * 2**30
