"""``checkpoint``: when to save and what to keep."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.config.sections.field_types import Every, Natural, Positive, help_text


class BestSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``checkpoint.best``: a track of the best checkpoints by a metric."""

    monitor: Annotated[str, help_text("metric that decides, such as valid/loss")]
    mode: Annotated[Literal["min", "max"], help_text("whether smaller or larger values are better")]
    top_k: Annotated[Positive, help_text("number of best checkpoints kept")] = 1


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """``checkpoint``: when to save and what to keep."""

    every: Annotated[
        Every | Annotated[list[Every], Meta(min_length=1)], help_text("when to save; one interval or several")
    ] = "1ep"
    fast: Annotated[Natural, help_text("number of newest checkpoints kept")] = 2
    slow: Annotated[Natural, help_text("number of newest checkpoints kept of every slow_every-th save")] = 0
    slow_every: Annotated[
        Positive, help_text("scheduled saves from one checkpoint of the slow track to the next")
    ] = 100
    held: Annotated[Natural, help_text("number of newest checkpoints kept that a hook requested to hold")] = 1
    best: Annotated[list[BestSettings], help_text("best checkpoints kept, by metric")] = []
    asynchronous: Annotated[bool, help_text("whether training continues while a checkpoint is written")] = (
        True
    )
