"""``init_from``: the weights that a run begins with."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from roost.config.sections.field_types import Natural, about


class InitSettings(Struct, frozen=True, kw_only=True):
    """``init_from``, or one entry of it."""

    path: Annotated[str, about("a package, a checkpoint, a .safetensors file, or one of torch.save")]
    checkpoint: Annotated[
        Natural | Literal["best", "last"], about("of a package: whose weights; an id, best or last")
    ] = "last"
    entry: Annotated[
        str | None, about("of a file of torch.save: which of its entries, as a.b, holds the weights")
    ] = None
    average: Annotated[str | None, about("of a package: this average in place of the raw weights")] = None
    mapping: Annotated[
        dict[str, str | None],
        about("beginnings of names there, and what they are here; null leaves them out"),
    ] = {}
    strict: Annotated[bool, about("whether every parameter must be there, and fit")] = True
