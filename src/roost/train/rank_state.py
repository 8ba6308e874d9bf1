"""What belongs to one rank alone: the random generators, and the open window of its metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roost.package.checkpoint import Info
from roost.train import seeding
from roost.train.events import Events
from roost.train.ranks import ALONE

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class RankState:
    """Saves the generators as they are; loading only remembers, because what still runs before the first
    step (hooks, building of loaders) may draw from them: `restore` comes last. The window of rank 0 is part
    of the trainer's state.

    Args:
        trainer: Of this rank; None in a loop of one's own, in one process.
    """

    def __init__(self, trainer: Trainer | None = None) -> None:
        ranks = trainer.ranks if trainer is not None else ALONE
        self.name = f"rank-{ranks.rank}"
        self.optional = not ranks.is_main
        """Whether a checkpoint, of fewer ranks, may be without."""
        self._events = trainer.events if trainer is not None and self.optional else None
        self._loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        """The state of every generator."""
        own = {"events": self._events.state_dict()} if self._events is not None else {}
        return {"rng": seeding.rng_state(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remembers the generators for `restore`."""
        self._loaded = state["rng"]
        if self._events is not None:
            self._events.load_state_dict(state["events"])

    def restore(self) -> list[str]:
        """Puts the generators to what was loaded, if anything was; gives why one of them could not be."""
        return [] if self._loaded is None else seeding.set_rng_state(self._loaded)


class _Merged:
    """A rank's part of a checkpoint of which only the window of metrics is taken, by rank 0."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def state_dict(self) -> dict[str, Any]:
        """Never saved."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._events.merge(state["events"])


def of_other_ranks(trainer: Trainer, info: Info) -> None:
    """After loading a checkpoint of another number of ranks: rank 0 takes over the open windows of all, so
    that no value is lost, and a rank that was not there draws from a generator of its own."""
    ranks, checkpoints = trainer.ranks, trainer.checkpoints
    assert checkpoints is not None
    if not ranks.is_main:
        names = trainer.events.state_dict()["names"]
        trainer.events.load_state_dict({"names": names, "sums": [], "waiting": []})
        if ranks.rank >= info.ranks:
            seeding.seed_all(seeding.mix(trainer.seed, "train", ranks.rank, info.step))
        return
    for rank in range(1, info.ranks):
        checkpoints.load_part(info.id, f"rank-{rank}", _Merged(trainer.events))
