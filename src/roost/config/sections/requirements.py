"""``require``: what a session needs of the machine, checked before it starts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from roost.config.sections.field_types import help_text


class RequireSettings(Struct, frozen=True, kw_only=True):
    """``require``: what a session needs of the machine, checked before it starts."""

    gpu: Annotated[
        str | list[str] | None,
        help_text("model of each GPU: a part of its name, or a pattern (*A100*); or one of a list"),
    ] = None
    memory: Annotated[
        str | None, help_text("least memory of each GPU, such as 20GB; in powers of 1000, as makers name it")
    ] = None
    torch: Annotated[str | None, help_text('versions of torch, such as ">=2.4" or ">=2.4,<3"')] = None
    cuda: Annotated[str | None, help_text('versions of CUDA for which torch was built, such as ">=12.1"')] = (
        None
    )
