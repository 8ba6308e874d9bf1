"""``checkpoint``: when to save and what to keep."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.config.sections.field_types import Every, Natural, Positive, help_text


class BestSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``checkpoint.best``."""

    monitor: Annotated[str, help_text("recorded value that decides, such as valid/loss")]
    mode: Annotated[Literal["min", "max"], help_text("whether small or large values are good")]
    top_k: Annotated[Positive, help_text("checkpoints kept")] = 1


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """``checkpoint``: when to save and what to keep."""

    every: Annotated[
        Every | Annotated[list[Every], Meta(min_length=1)], help_text("when to save; one or several")
    ] = "1ep"
    fast: Annotated[Natural, help_text("newest checkpoints kept")] = 2
    slow: Annotated[Natural, help_text("checkpoints kept of every slow_every-th save")] = 0
    slow_every: Annotated[Positive, help_text("scheduled saves between two of the slow track")] = 100
    held: Annotated[Natural, help_text("checkpoints kept of those a hook asked to hold")] = 1
    best: Annotated[list[BestSettings], help_text("checkpoints kept for a recorded value")] = []
    asynchronous: Annotated[bool, help_text("whether training goes on while one is written")] = True
