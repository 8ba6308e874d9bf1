"""What belongs to one rank alone: the random generators."""

from __future__ import annotations

from typing import Any

from roost.train import seeding


class RankState:
    """Saves the generators as they are; loading only remembers, because what still runs before the first
    step (hooks, building of loaders) may draw from them: `restore` comes last."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The state of every generator."""
        return {"rng": seeding.rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remembers the state for `restore`."""
        self._loaded = state["rng"]

    def restore(self) -> list[str]:
        """Puts the generators to what was loaded, if anything was; gives why one of them could not be."""
        return [] if self._loaded is None else seeding.set_rng_state(self._loaded)
