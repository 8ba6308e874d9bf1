"""What belongs to one rank alone: the random generators, and the open window of its metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roost.package.checkpoints.checkpoint import Manifest
from roost.train.distributed.ranks import ALONE
from roost.train.step import seeding

if TYPE_CHECKING:
    from roost.train.checkpointing.checkpoints import Checkpoints
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
        self.generators: dict[str, Any] | None = None
        """Those that `restore` puts in place."""

    def state_dict(self) -> dict[str, Any]:
        """The state of every generator."""
        own = {"events": self._events.state_dict()} if self._events is not None else {}
        return {"rng": seeding.rng_state(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remembers the generators for `restore`."""
        self.load_generators(state)
        if self._events is not None:
            self._events.load_state_dict(state["events"])

    def load_generators(self, state: dict[str, Any]) -> None:
        """As `load_state_dict`, and nothing else."""
        self.generators = state["rng"]

    def restore(self) -> list[str]:
        """Puts the generators to what was loaded, if anything was; gives why one of them could not be."""
        return [] if self.generators is None else seeding.set_rng_state(self.generators)


class _PartReader:
    """What is taken of another rank's part of a checkpoint.

    Args:
        take: Takes it, out of the whole part.
    """

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take = take

    def state_dict(self) -> dict[str, Any]:
        """Never saved."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._take(state)


def load(trainer: Trainer, checkpoints: Checkpoints, own: RankState, *, id: int | None) -> list[str]:
    """Loads a checkpoint, also of another number of ranks, into all parts of a trainer; then ``own`` is to be
    restored. See `Checkpoints.load`.

    Args:
        trainer: Of this rank.
        checkpoints: Its checkpoints.
        own: What belongs to this rank alone.
        id: That one and no other; the newest good one when None.

    Returns:
        A line for each damaged one that was set aside.
    """
    info, said = checkpoints.load(trainer.parts(own), id=id)
    if info is not None and info.ranks != trainer.ranks.world_size:
        _adapt_to_ranks(trainer, checkpoints, own, info)
    return said


def _adapt_to_ranks(trainer: Trainer, checkpoints: Checkpoints, own: RankState, info: Manifest) -> None:
    """Rank 0 takes over the open windows of all, so that no value is lost. A rank that was not there draws
    from a generator of its own, or as rank 0 does where all draw the same."""
    rank, events = trainer.ranks.rank, trainer.events
    if trainer.ranks.is_main:
        for other in range(1, info.ranks):
            checkpoints.load_part(
                info.id, f"rank-{other}", _PartReader(lambda state: events.merge(state["events"]))
            )
        return
    events.load_state_dict({"names": events.state_dict()["names"], "sums": [], "waiting": []})
    if rank < info.ranks:
        return
    if trainer.has_own_seed:
        seeding.seed_all(seeding.mix(trainer.seed, "train", rank, info.step))
        own.generators = seeding.rng_state()
    else:
        checkpoints.load_part(info.id, "rank-0", _PartReader(own.load_generators))
