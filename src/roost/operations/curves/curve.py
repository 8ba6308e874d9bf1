"""The result types of `roost.operations.curves.envelope`. Apart from it, because that module needs NumPy."""

from __future__ import annotations

import msgspec


class NonfiniteGap(msgspec.Struct, frozen=True):
    """The non-finite values of one kind in a column."""

    column: int
    kind: str
    """nan, inf or -inf."""
    points: int
    first_step: int


class CurveEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """The curve of one metric. The lists have an entry for each column of pixels that has a finite value."""

    name: str
    points: int
    """The number of values between the two steps, non-finite ones included."""
    columns: list[int]
    """Column numbers from 0; a column begins at step ``from_step + column * (to_step - from_step + 1) /
    width``."""
    counts: list[int]
    """The number of finite values in each column."""
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
    """Curves of some metrics of a run."""

    names: list[str]
    """The names of all recorded metrics."""
    from_step: int | None
    """The first step of column 0; None if there is no curve."""
    to_step: int | None
    """The last step of the last column."""
    width: int
    curves: list[CurveEnvelope]
    cursor: str
    """The position after these records, from which ``records/follow`` continues."""
