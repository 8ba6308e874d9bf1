from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.base import regular


def test_a_plain_file_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    data = os.urandom(3_000_000)
    path.write_bytes(data)
    assert regular.read(path) == data
    path.write_bytes(b"")
    assert regular.read(path) == b""


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="1099511627776 bytes, more than 10"):
        regular.read(path, at_most=10)


def test_what_is_no_file_is_refused_and_nothing_hangs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("fifo", "link", "."):
        with pytest.raises(OSError, match="no plain file"):
            regular.read(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        regular.read(tmp_path / "missing")
