"""``remote``: a copy of the package in a store, kept up to date while the run continues."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.base.interval import parse_duration
from roost.config.sections.field_types import HAS_UNIT, Natural, Positive, help_text

_Rate = Annotated[float, Meta(gt=0)]


class RemoteSettings(Struct, frozen=True, kw_only=True):
    """``remote``: where the package is copied to, how often, and what the copy keeps."""

    url: Annotated[str, help_text("where copies are: s3://bucket/runs, sftp://host/runs, or a folder")]
    every: Annotated[str, help_text("time between two uploads", fix=HAS_UNIT)] = "30s"
    keep: Annotated[
        Positive | Literal["all"], help_text("number of newest checkpoints in the copy; the best stay, too")
    ] = 2
    verify: Annotated[
        Literal["bytes", "size"],
        help_text("bytes: each object is read again after its upload; size: its size is compared"),
    ] = "bytes"
    max_mb_per_second: Annotated[_Rate | None, help_text("bandwidth of the upload; by default all")] = None
    wait: Annotated[
        str,
        help_text("how long a session waits at its end for the last upload; 0s: not at all", fix=HAS_UNIT),
    ] = "5min"
    hold_checkpoints: Annotated[
        bool, help_text("whether a checkpoint that the copy is to have is kept here until it is uploaded")
    ] = False
    max_held_mb: Annotated[Natural, help_text("disk space for checkpoints that are only kept for that")] = (
        10_000
    )
    flush: Annotated[str | None, help_text("command after which a mounted drive certainly has uploaded")] = (
        None
    )


def parse_wait(wait: str) -> float:
    """Returns ``remote.wait`` in seconds; 0: the end of a session does not wait for the last upload.

    Raises:
        ConfigError: It is not a duration.
    """
    return parse_duration(wait, setting="remote.wait", may_be_zero=True)
