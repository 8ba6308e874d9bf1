"""The strategies: how the ranks of a session share the work."""

from __future__ import annotations

from typing import Literal

StrategyName = Literal["single", "ddp", "fsdp"]
"""One process; several, each with the whole model; several, each with a shard of it."""
