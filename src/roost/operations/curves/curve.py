"""What `roost.operations.curves.envelope` gives. Apart from what makes it, which needs numpy."""

from __future__ import annotations

import msgspec


class NonfiniteGap(msgspec.Struct, frozen=True):
    """Values of a column that are not finite."""

    column: int
    kind: str
    """nan, inf or -inf."""
    points: int
    first_step: int


class CurveEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """One metric. The lists have an entry for each column of pixels in which a finite value is."""

    name: str
    points: int
    """How many values there are between the two steps, those that are not finite among them."""
    columns: list[int]
    """From 0; their steps are ``from_step + column * (to_step - from_step + 1) / width`` on."""
    counts: list[int]
    """How many finite values are in each."""
    first_steps: list[int]
    first: list[float]
    min_steps: list[int]
    min: list[float]
    max_steps: list[int]
    max: list[float]
    last_steps: list[int]
    last: list[float]
    gaps: list[NonfiniteGap]


class RecordedCurves(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has recorded."""

    names: list[str]
    """All that can be asked for."""
    from_step: int | None
    """The first step of column 0; None if there is no curve."""
    to_step: int | None
    """The last step of the last column."""
    width: int
    curves: list[CurveEnvelope]
    cursor: str
    """Where what is recorded later begins: for ``records/follow``."""
