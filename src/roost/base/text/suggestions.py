"""Suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 80
"""Longer names are not compared: the cost is quadratic, and such names are rarely typed by hand."""


def edit_distance(a: str, b: str) -> int:
    """Returns the restricted Damerau-Levenshtein distance: the number of letters to insert, delete, replace
    or swap with a neighbour to make ``b`` from ``a``."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        before, last, row = row, before, [i]
        for j, other in enumerate(b, 1):
            steps = min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == b[j - 2] and a[i - 2] == other:
                steps = min(steps, last[j - 2] + 1)
            row.append(steps)
    return row[-1]


def closest_match(name: str, candidates: Iterable[str], *, max_distance: int | None = None) -> str | None:
    """Returns the candidate most similar to ``name``, or None if none is similar.

    Args:
        name: The name as the user wrote it.
        candidates: The names that exist.
        max_distance: The greatest `edit_distance` that is accepted, case included. If None, a third of the
            letters may differ, case is ignored, and a name that is the beginning or end of a candidate is
            accepted, too (``batch`` for ``batch_size``).
    """
    if len(name) > _LONGEST:
        return None
    folded = name if max_distance is not None else name.lower()
    limit = max_distance if max_distance is not None else max(1, len(name) // 3)
    best: tuple[int, int, str] | None = None
    for candidate in candidates:
        other = candidate if max_distance is not None else candidate.lower()
        steps, letters = _match_distance(folded, other, limit, loose=max_distance is None)
        if steps <= limit and (best is None or (steps, letters, candidate) < best):
            best = (steps, letters, candidate)
    return best[2] if best else None


def _match_distance(name: str, other: str, limit: int, *, loose: bool) -> tuple[int, int]:
    """Returns the distance that is compared with the limit, and the edit distance."""
    if len(other) > _LONGEST or (not loose and abs(len(name) - len(other)) > limit):
        return limit + 1, limit + 1
    part = loose and len(name) >= 3 and (other.startswith(name) or other.endswith(name))
    letters = edit_distance(name, other)
    # A beginning or end counts as the least similar match that is still accepted.
    return min(letters, limit) if part else letters, letters


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Returns ``did you mean 'x'? `` for a fix; an empty text if no candidate is similar to ``name``."""
    meant = closest_match(name, candidates)
    return f"did you mean {meant!r}? " if meant is not None else ""
