"""``init_from``: the initial weights of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from roost.config.sections.field_types import Natural, help_text


class InitSettings(Struct, frozen=True, kw_only=True):
    """``init_from``, or an entry of it."""

    path: Annotated[str, help_text("a package, a checkpoint, a .safetensors file, or a file of torch.save")]
    checkpoint: Annotated[
        Natural | Literal["best", "last"],
        help_text("for a package: the checkpoint to load; an id, best or last"),
    ] = "last"
    entry: Annotated[
        str | None, help_text("for a file of torch.save: the entry with the weights, such as a.b")
    ] = None
    average: Annotated[
        str | None, help_text("for a package: the average to load in place of the trained weights")
    ] = None
    mapping: Annotated[
        dict[str, str | None],
        help_text("prefixes of names in the file, and their replacements; null drops the names"),
    ] = {}
    strict: Annotated[bool, help_text("whether every parameter must be found and fit")] = True
