"""``init_from``: the weights that a run begins with."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from roost.config.sections.field_types import Natural, help_text


class InitSettings(Struct, frozen=True, kw_only=True):
    """``init_from``, or one entry of it."""

    path: Annotated[str, help_text("a package, a checkpoint, a .safetensors file, or one of torch.save")]
    checkpoint: Annotated[
        Natural | Literal["best", "last"], help_text("of a package: whose weights; an id, best or last")
    ] = "last"
    entry: Annotated[
        str | None, help_text("of a file of torch.save: which of its entries, as a.b, holds the weights")
    ] = None
    average: Annotated[str | None, help_text("of a package: this average in place of the raw weights")] = None
    mapping: Annotated[
        dict[str, str | None],
        help_text("beginnings of names there, and what they are here; null leaves them out"),
    ] = {}
    strict: Annotated[bool, help_text("whether every parameter must be there, and fit")] = True
