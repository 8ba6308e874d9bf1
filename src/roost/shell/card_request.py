"""The cards that a verb asks for, by DLNest's options ``-m -mc -DDP -CPU``."""

from __future__ import annotations

from typing import NamedTuple


class CardRequest(NamedTuple):
    """The cards that a verb asks for."""

    memory_mb: int | None = None
    """With several cards the memory of all of them together; None: as earlier runs used, or whole cards."""
    multi_card: bool = False
    """Several cards for one process, if no single card has as much memory."""
    ddp: bool = False
    """One process for each card."""
    cpu: bool = False
