"""Differences of lines: right for any text, and fast for bad ones."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from roost.operations.comparing.line_diff import LineDiff, split_lines


def texts(seed: int) -> tuple[bytes, bytes]:
    """Two texts of few different lines, one made from the other."""
    chance = random.Random(seed)
    lines = [f"{chance.randrange(12)}" for _ in range(chance.randrange(60))]
    other = lines.copy()
    for _ in range(chance.randrange(10)):
        at = chance.randrange(len(other) + 1)
        other[at : at + chance.randrange(3)] = [f"{chance.randrange(14)}" for _ in range(chance.randrange(3))]
    ends = ["", "\n"]
    return tuple(("\n".join(one) + chance.choice(ends)).encode() for one in (lines, other))  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(40))
def test_patch_makes_the_second_from_the_first(tmp_path: Path, seed: int) -> None:
    first, second = texts(seed)
    found = LineDiff(split_lines(first), split_lines(second))
    lines = list(found.unified())
    body = [line for line in lines if line[0] in "+-"]
    assert (found.added, found.removed) == (
        sum(line[0] == "+" for line in body),
        sum(line[0] == "-" for line in body),
    )
    (tmp_path / "a").write_bytes(first)
    patch = "".join(f"{line}\n" for line in ["--- a", "+++ a", *lines])
    if lines:
        command = ["patch", "-s", "-p0", "--posix", "a"]
        subprocess.run(command, input=patch.encode(), cwd=tmp_path, check=True, timeout=100)
    assert (tmp_path / "a").read_bytes() == second


def test_a_change_in_the_middle() -> None:
    first = [b"%d\n" % number for number in range(20)]
    second = [*first[:9], b"new\n", *first[10:]]
    found = LineDiff(first, second)
    assert (found.added, found.removed) == (1, 1)
    assert list(found.unified()) == [
        "@@ -7,7 +7,7 @@", " 6", " 7", " 8", "-9", "+new", " 10", " 11", " 12",
    ]  # fmt: skip
    assert list(LineDiff(first, first).unified()) == []


def test_the_end_of_the_last_line_and_bytes_that_are_no_text() -> None:
    found = LineDiff(split_lines(b"a\n\xff\xe9"), split_lines(b"a\n\xff\xe9\n"))
    assert list(found.unified()) == [
        "@@ -1,2 +1,2 @@", " a", "-\\xff\\xe9", "\\ No newline at end of file", "+\\xff\\xe9",
    ]  # fmt: skip
    assert split_lines(b"") == [] and split_lines(b"\n") == [b"\n"]


@pytest.mark.parametrize("kind", ["every second line", "two lines only", "anchors between"])
def test_bad_texts_take_seconds_not_minutes(kind: str) -> None:
    chance = random.Random(0)

    def lines() -> list[bytes]:
        if kind == "two lines only":
            return [b"%d\n" % chance.randrange(2) for _ in range(200_000)]
        return [b"anchor %d\n" % n if n % 500 == 0 else b"%d\n" % chance.randrange(2) for n in range(200_000)]

    first, second = lines(), lines()
    if kind == "every second line":
        first = [b"%d\n" % number for number in range(40_000)]
        second = [line if number % 2 else b"new" + line for number, line in enumerate(first)]
    began = time.monotonic()
    found = LineDiff(first, second)
    assert time.monotonic() - began < 30  # difflib alone takes more than ten minutes
    if kind == "every second line":
        assert (found.added, found.removed) == (20_000, 20_000)
    assert found.added - found.removed == len(second) - len(first)
