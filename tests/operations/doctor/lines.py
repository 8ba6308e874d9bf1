"""The lines of a check, short: level and text."""

from __future__ import annotations

from collections.abc import Iterable

from roost.operations.doctor.diagnosis import Diagnosis


def levels(found: Iterable[Diagnosis]) -> list[str]:
    """The levels of the lines; each that is not ok has a fix."""
    lines = list(found)
    assert all(line.fix for line in lines if line.level != "ok")
    return [line.level for line in lines]


def only(found: Iterable[Diagnosis], level: str, *words: str) -> Diagnosis:
    """The one line, of this level and with these words."""
    (line,) = found
    assert line.level == level and (line.fix or level == "ok"), line
    assert all(word in f"{line.found} {line.fix}" for word in words), line
    return line
