from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base import safe_read
from tests.messages import Messages


def test_a_plain_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom(3_000_000)
    path.write_bytes(data)
    assert safe_read.read(path) == data
    path.write_bytes(b"")
    assert safe_read.read(path) == b""


@pytest.mark.parametrize("size", [0, 5, 1 << 20, (1 << 22) + 12_345])
def test_a_file_is_hashed_while_it_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    data = os.urandom(size)
    path.write_bytes(data)
    read, digest = safe_read.read_hashed(path, max_bytes=size)
    assert read == data and digest == hashlib.sha256(data).hexdigest() == safe_read.sha256(path)
    read[:1] = b"x"[:size]  # writable, and no other object shares it
    path.unlink()
    assert read[1:] == data[1:]
    if size:
        assert read[0] == ord("x")


def test_what_was_read_outlives_a_file_that_is_cut_off(tmp_path: Path) -> None:
    """Memory that is mapped from the file would end the process here."""
    path = tmp_path / "file"
    data = os.urandom(5 << 20)
    path.write_bytes(data)
    read, _ = safe_read.read_hashed(path, max_bytes=len(data))
    os.truncate(path, 0)
    assert read == data


def test_a_process_that_is_forked_does_not_change_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5 << 20))
    program = (
        "import os, pathlib, sys\n"
        "from roost.base import safe_read as regular\n"
        "data, _ = regular.read_hashed(pathlib.Path(sys.argv[1]))\n"
        "if not (child := os.fork()):\n"
        "    data[0] = 3\n"
        "    os._exit(data[0])\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), data[0])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "file")], capture_output=True, text=True
    )
    assert done.stdout.split() == ["3", "0"], done.stderr


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path, messages: Messages) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError) as failed:
        safe_read.read(path, max_bytes=10)
    messages.check(failed.value)
    assert "1099511627776 bytes" in str(failed.value)
    with pytest.raises(OSError) as failed:
        safe_read.read_hashed(path, max_bytes=10)
    messages.check(failed.value)
    assert "1099511627776 bytes" in str(failed.value)


def test_what_is_no_file_is_refused_and_nothing_hangs(tmp_path: Path, messages: Messages) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for read in (safe_read.read, safe_read.read_hashed, safe_read.sha256):
        for name in ("fifo", "link", "."):
            with pytest.raises(OSError) as failed:
                read(tmp_path / name)
            messages.check(failed.value)
        with pytest.raises(FileNotFoundError):
            read(tmp_path / "missing")


def test_who_holds_the_lock_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert safe_read.is_locked(path) is None
    os.mkfifo(tmp_path / "fifo")
    assert safe_read.is_locked(tmp_path / "fifo") is None
    with path.open("w") as file:
        assert safe_read.is_locked(path) is False
        fcntl.flock(file, fcntl.LOCK_SH)
        assert safe_read.is_locked(path) is False
        fcntl.flock(file, fcntl.LOCK_EX)
        assert safe_read.is_locked(path) is True
    assert safe_read.is_locked(path) is False


def test_a_file_below_a_folder_is_opened_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "sub" / "file").write_bytes(b"inside")
    (tmp_path / "outside").write_bytes(b"outside")
    root = tmp_path / "root"
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "folder").symlink_to(root / "sub")
    os.mkfifo(root / "fifo")
    fd = safe_read.open_inside(root, "sub/file")
    assert os.read(fd, 99) == b"inside"
    os.close(fd)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("link", "folder/file", "fifo", "sub", "../outside", "sub/../sub/file", "/etc/passwd", "",
                 "sub//file", "none", "a\0b", "\ud800", "sub/file/x", "x" * 5000):  # fmt: skip
        with pytest.raises(OSError):
            os.close(safe_read.open_inside(root, name))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
