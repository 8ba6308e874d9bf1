"""Intervals of wall-clock time, which make a run inexact: they are due at another step each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roost.base.interval import Interval

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


def note_wall_clock_interval(
    trainer: Trainer, what: str, every: str | int | Sequence[str | int] | None
) -> None:
    """Notes the run as inexact if rows, validations or the like come by the clock. Saves may: they do not
    affect training."""
    given = [every] if isinstance(every, str | int) else every or []
    if any(Interval.parse(one, setting=f"{what}.every").seconds for one in given):
        trainer.note_inexact(f"wall clock: {what} comes every {' or '.join(map(str, given))}")
