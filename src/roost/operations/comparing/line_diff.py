"""The lines in which two texts differ, in bounded time.

`difflib` alone takes minutes for some files of a megabyte. Here the lines that occur once in both texts
divide them first (patience diff), and difflib compares the short parts between, up to a limit; what is left
then counts as replaced. The result is always a correct difference, if not always the shortest one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

_PART_COST = 1 << 18
"""Parts with more pairs of lines than this are not compared by difflib."""
_MAX_COST = 1 << 24
"""Pairs of lines that difflib compares in all."""
_CONTEXT = 3

Block = tuple[int, int, int]
"""Equal lines: the first in each text, and their number."""


class LineDiff:
    """The difference of two texts.

    Args:
        first: The lines of one, with their line ends.
        second: The lines of the other.
    """

    def __init__(self, first: Sequence[bytes], second: Sequence[bytes]) -> None:
        self._first, self._second = first, second
        self._blocks = _join(sorted(_matching_blocks(first, second)))
        equal = sum(length for _, _, length in self._blocks)
        self.added, self.removed = len(second) - equal, len(first) - equal
        """The number of lines that only one of the texts has."""

    def unified(self) -> Iterator[str]:
        """Yields the difference as by ``diff -u``, without the names of the files. Bytes that are not UTF-8
        are escaped."""
        matcher = _KnownBlocks(self._first, self._second, self._blocks)
        for group in matcher.get_grouped_opcodes(_CONTEXT):
            (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
            yield f"@@ -{_range(a, b)} +{_range(c, d)} @@"
            for kind, a, b, c, d in group:
                if kind == "equal":
                    yield from _marked(" ", self._first[a:b])
                else:
                    yield from _marked("-", self._first[a:b])
                    yield from _marked("+", self._second[c:d])


def split_lines(data: bytes) -> list[bytes]:
    """Returns the lines of a text, each with its line end."""
    lines = data.split(b"\n")
    return [*(line + b"\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]


class _KnownBlocks(SequenceMatcher[bytes]):
    """difflib's opcodes for blocks that are known already."""

    def __init__(self, first: Sequence[bytes], second: Sequence[bytes], blocks: Sequence[Block]) -> None:
        super().__init__(None, (), ())
        self.a, self.b, self._blocks = first, second, blocks

    def get_matching_blocks(self) -> list:  # type: ignore[type-arg]  # difflib's type has no public name
        return [*self._blocks, (len(self.a), len(self.b), 0)]


def _marked(mark: str, lines: Sequence[bytes]) -> Iterator[str]:
    for line in lines:
        yield mark + line.removesuffix(b"\n").decode("utf-8", "backslashreplace")
        if not line.endswith(b"\n"):
            yield "\\ No newline at end of file"


def _range(begin: int, end: int) -> str:
    """Returns a range of lines as ``diff -u`` writes it."""
    if end - begin == 1:
        return str(begin + 1)
    return f"{begin + 1 if end > begin else begin},{end - begin}"


def _join(blocks: Sequence[Block]) -> list[Block]:
    """Joins blocks that follow each other."""
    found: list[Block] = []
    for a, b, length in blocks:
        if found and (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]) == (a, b):
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + length)
        elif length:
            found.append((a, b, length))
    return found


def _matching_blocks(a: Sequence[bytes], b: Sequence[bytes]) -> Iterator[Block]:
    """Yields blocks of equal lines, in any order."""
    parts, cost = [(0, len(a), 0, len(b))], 0
    while parts:
        a_low, a_high, b_low, b_high = parts.pop()
        start = (a_low, b_low)
        while a_low < a_high and b_low < b_high and a[a_low] == b[b_low]:
            a_low, b_low = a_low + 1, b_low + 1
        yield (*start, a_low - start[0])
        end = a_high
        while a_low < a_high and b_low < b_high and a[a_high - 1] == b[b_high - 1]:
            a_high, b_high = a_high - 1, b_high - 1
        yield (a_high, b_high, end - a_high)
        pairs = (a_high - a_low) * (b_high - b_low)
        if not pairs:
            continue
        if pairs <= _PART_COST:
            cost += pairs
            if cost <= _MAX_COST:
                matcher = SequenceMatcher(None, a[a_low:a_high], b[b_low:b_high], autojunk=False)
                for i, j, length in matcher.get_matching_blocks():
                    yield a_low + i, b_low + j, length
        elif anchors := _anchors(a, a_low, a_high, b, b_low, b_high):
            corners = [(a_low, b_low), *anchors, (a_high, b_high)]
            parts += [(i, next_i, j, next_j) for (i, j), (next_i, next_j) in pairwise(corners)]


def _anchors(
    a: Sequence[bytes], a_low: int, a_high: int, b: Sequence[bytes], b_low: int, b_high: int
) -> list[tuple[int, int]]:
    """Returns the longest ascending series of lines that occur once in both parts."""
    in_a, in_b = Counter(a[a_low:a_high]), Counter(b[b_low:b_high])
    places = {b[j]: j for j in range(b_low, b_high) if in_b[b[j]] == 1}
    pairs = [(i, places[a[i]]) for i in range(a_low, a_high) if in_a[a[i]] == 1 and a[i] in places]
    ends: list[int] = []  # the line of b that ends the best series of each length
    last: list[int] = []  # the pair to which it belongs
    before: list[int] = []
    for number, (_, j) in enumerate(pairs):
        at = bisect_left(ends, j)
        before.append(last[at - 1] if at else -1)
        ends[at : at + 1], last[at : at + 1] = [j], [number]
    found, number = [], last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
