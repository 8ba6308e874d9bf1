"""What a session has printed, as roost reads and writes it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from roost.supervisor.output.output_file import LEFT_OUT_PATTERN, last_line, left_out_line


@pytest.mark.parametrize(
    ("before", "printed", "said"),
    [
        (b"", b"a\nValueError: boom\n", "ValueError: boom"),
        (b"", b"a\n  b  \n\n \n", "b"),
        (b"of an earlier session\n", b"", ""),
        (b"of an earlier session\n", b"of this one", "of this one"),
        (b"", b"why\n\nroost: the guard of this session was killed; it goes on without\n", "why"),
        (b"", b"\xff\n", "\ufffd"),
        (b"", b"x" * 10_000, "x" * 200),
        (b"", b"why\n" + bytes(1000), "why"),
        (b"", b"a\x1b\x07\tb", "ab"),
    ],
)
def test_the_last_line_of_a_session(tmp_path: Path, before: bytes, printed: bytes, said: str) -> None:
    path = tmp_path / "_output.txt"
    path.write_bytes(before + printed)
    assert last_line(str(path), len(before)) == said


def test_of_what_was_shortened_the_tail_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"end\n")
    assert last_line(str(tmp_path / "short"), 1000) == "end"


def test_what_is_no_file_has_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("fifo")
    assert [last_line(str(tmp_path / name), 0) for name in ("fifo", "link", "gone")] == ["", "", ""]


def test_the_line_of_a_cut_has_the_words_of_earlier_sessions() -> None:
    """The output of a package that continues has their line: its number is added to that of the next cut."""
    line = b"roost: 12,345,678 bytes of output are not kept here (limits.output_mb)\n"
    assert left_out_line(12_345_678) == line
    assert re.findall(LEFT_OUT_PATTERN, line) == [b"12,345,678"]
