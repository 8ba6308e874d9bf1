from __future__ import annotations

import os
from pathlib import Path

from roost.analysis.analyzers import call_output
from roost.supervisor.output.output_cap import punch_hole


def copied(source: Path, begin: int, end: int, **most: int) -> bytes:
    to = source.with_name("copy")
    fd = os.open(source, os.O_RDONLY)
    try:
        call_output.copy(fd, begin, end, to, **most)
    finally:
        os.close(fd)
    return to.read_bytes()


def test_the_part_between_two_offsets(tmp_path: Path) -> None:
    source = tmp_path / "output"
    source.write_bytes(b"before" + b"its own" + b"after")
    assert copied(source, 6, 13) == b"its own" and copied(source, 6, 6) == b""
    assert copied(source, 13, 1000) == b"after", "the file was shortened since"
    assert [path.name for path in tmp_path.iterdir() if "tmp" in path.name] == []


def test_the_first_and_the_last_half_of_much(tmp_path: Path) -> None:
    source = tmp_path / "output"
    source.write_bytes(b"a" * 100 + b"b" * 1000 + b"c" * 100)
    found = copied(source, 0, 1200, max_bytes=200)
    assert found.startswith(b"a" * 100 + b"\nroost: 1,000 bytes") and found.endswith(b"\n" + b"c" * 100)


def test_what_the_supervisor_has_left_out(tmp_path: Path) -> None:
    source = tmp_path / "output"
    source.write_bytes(b"x" * (1 << 20))
    fd = os.open(source, os.O_WRONLY)
    punch_hole(fd, 1 << 16, 1 << 19)
    os.close(fd)
    found = copied(source, 0, 1 << 20)
    assert b"\0" not in found and b"roost: 458,752 bytes of output are not kept" in found
    assert len(found) < (1 << 20) - 458_752 + 200
