"""``limits``: the limits of a session, enforced by its supervisor."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from roost.base import limit_defaults
from roost.config.sections.field_types import HAS_UNIT, Natural, Positive, help_text


class LimitSettings(Struct, frozen=True, kw_only=True):
    """``limits``: the limits of a session, enforced by its supervisor."""

    wall_time: Annotated[
        str | None,
        help_text("time within which a session must save and end, such as 11h30min", fix=HAS_UNIT),
    ] = None
    deadline_file: Annotated[
        str | None,
        help_text("file with the time by which a session must end; it may change meanwhile"),
    ] = None
    session_length: Annotated[
        str | None,
        help_text(
            "24h: how long the machine lasts, in place of Colab's or Kaggle's limit; never",
            fix=HAS_UNIT,
        ),
    ] = None
    grace: Annotated[
        str, help_text("time to save after a limit was reached; then the session is killed", fix=HAS_UNIT)
    ] = f"{limit_defaults.GRACE_SECONDS}s"
    stall_timeout: Annotated[
        str | None,
        help_text(
            "time without a step or output after which all stacks are recorded; null: never", fix=HAS_UNIT
        ),
    ] = f"{limit_defaults.STALL_MINUTES}min"
    on_stall: Annotated[
        Literal["report", "end"], help_text("report: record the stacks only; end: also end the run")
    ] = "report"
    output_mb: Annotated[
        Positive, help_text("MB of output kept; of more, the beginning and the end, half each")
    ] = limit_defaults.OUTPUT_MB
    core_mb: Annotated[Natural, help_text("largest core dump in MB")] = limit_defaults.CORE_MB
