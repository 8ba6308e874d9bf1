"""``limits``: what a session may use, held by its supervisor."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from roost.config.sections.field_types import HAS_UNIT, Natural, Positive, help_text


class LimitSettings(Struct, frozen=True, kw_only=True):
    """``limits``: what a session may use, held by its supervisor."""

    wall_time: Annotated[
        str | None,
        help_text("time within which a session saves and has ended, such as 11h30min", fix=HAS_UNIT),
    ] = None
    grace: Annotated[
        str, help_text("time to save in, once a limit was reached; then it is killed", fix=HAS_UNIT)
    ] = "60s"
    stall_timeout: Annotated[
        str | None,
        help_text("time without a step or output after which all stacks are kept; null: never", fix=HAS_UNIT),
    ] = "30min"
    on_stall: Annotated[Literal["report", "end"], help_text("whether a stalled run is ended, too")] = "report"
    output_mb: Annotated[Positive, help_text("of more output only the first and the last half are kept")] = (
        200
    )
    core_mb: Annotated[Natural, help_text("largest core dump")] = 0
