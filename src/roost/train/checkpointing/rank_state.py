"""The part of a checkpoint that belongs to one rank: its random generators and its unrecorded metrics."""

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
    """Saves the random generators. Loading only remembers them, because the code that still runs before the
    first step (hooks, building of loaders) may draw from them; `restore` is called last. The unrecorded
    metrics of rank 0 are part of the trainer's state.

    Args:
        trainer: The trainer of this rank; None in a hand-written loop in one process.
    """

    def __init__(self, trainer: Trainer | None = None) -> None:
        ranks = trainer.ranks if trainer is not None else ALONE
        self.name = f"rank-{ranks.rank}"
        self.optional = not ranks.is_main
        """Whether a checkpoint may lack this part, because it was saved by fewer ranks."""
        self._events = trainer.events if trainer is not None and self.optional else None
        self.generators: dict[str, Any] | None = None
        """The state of the generators for `restore`."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every generator and, on ranks other than 0, the unrecorded metrics."""
        own = {"events": self._events.state_dict()} if self._events is not None else {}
        return {"rng": seeding.rng_state(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remembers the generators for `restore`; loads the metrics."""
        self.load_generators(state)
        if self._events is not None:
            self._events.load_state_dict(state["events"])

    def load_generators(self, state: dict[str, Any]) -> None:
        """Remembers the generators for `restore`, without the metrics."""
        self.generators = state["rng"]

    def restore(self) -> list[str]:
        """Sets the generators to the loaded state, if one was loaded; returns why some could not be set."""
        return [] if self.generators is None else seeding.set_rng_state(self.generators)


class _PartReader:
    """Reads another rank's part of a checkpoint.

    Args:
        take: Called with the state of that part.
    """

    def __init__(self, take: Callable[[dict[str, Any]], None]) -> None:
        self._take = take

    def state_dict(self) -> dict[str, Any]:
        """Empty; this part is never saved."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._take(state)


def load(trainer: Trainer, checkpoints: Checkpoints, own: RankState, *, id: int | None) -> list[str]:
    """Loads a checkpoint into all parts of a trainer, also one of another number of ranks. The caller must
    call ``own.restore()`` afterwards. See `Checkpoints.load`.

    Args:
        trainer: The trainer of this rank.
        checkpoints: Its checkpoints.
        own: The state of this rank.
        id: The checkpoint to load; the newest good one when None.

    Returns:
        A line for each damaged checkpoint that was set aside.
    """
    manifest, said = checkpoints.load(trainer.parts(own), id=id)
    if manifest is not None and manifest.ranks != trainer.ranks.world_size:
        _adapt_to_ranks(trainer, checkpoints, own, manifest)
    return said


def _adapt_to_ranks(trainer: Trainer, checkpoints: Checkpoints, own: RankState, manifest: Manifest) -> None:
    """Adapts a checkpoint of another number of ranks: rank 0 merges the unrecorded metrics of all old ranks,
    so that no value is lost. A new rank gets generators of its own, or those of rank 0 if all ranks draw the
    same numbers."""
    rank, events = trainer.ranks.rank, trainer.events
    if trainer.ranks.is_main:
        for other in range(1, manifest.ranks):
            checkpoints.load_part(
                manifest.id, f"rank-{other}", _PartReader(lambda state: events.merge(state["events"]))
            )
        return
    events.load_state_dict({"names": events.state_dict()["names"], "sums": [], "waiting": []})
    if rank < manifest.ranks:
        return
    if trainer.has_own_seed:
        seeding.seed_all(seeding.mix(trainer.seed, "train", rank, manifest.step))
        own.generators = seeding.rng_state()
    else:
        checkpoints.load_part(manifest.id, "rank-0", _PartReader(own.load_generators))
