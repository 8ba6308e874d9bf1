"""The part of a checkpoint that belongs to one rank: its random generators and its unrecorded metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from roost.package.checkpoints.checkpoint import Manifest
from roost.train.checkpointing.checkpoints import Checkpoints, Stateful
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.events import Events
from roost.train.step import seeding


class RankState:
    """Saves the random generators. Loading only remembers them, because the code that still runs before the
    first step (hooks, building of loaders) may draw from them; `restore` is called last. The unrecorded
    metrics of rank 0 are part of the trainer's state.

    Args:
        ranks: The ranks that train together.
        events: The unrecorded metrics of this rank; None in a hand-written loop in one process.
        own_seed: The seed of the run, if this rank draws random numbers of its own; None: it draws those of
            rank 0. Only needed by a rank that the saving run did not have.
    """

    def __init__(
        self, ranks: Ranks = ALONE, events: Events | None = None, *, own_seed: int | None = None
    ) -> None:
        self.name = f"rank-{ranks.rank}"
        self.optional = not ranks.is_main
        """Whether a checkpoint may lack this part, because it was saved by fewer ranks."""
        self.generators: dict[str, Any] | None = None
        """The state of the generators for `restore`."""
        self._ranks, self._events, self._own_seed = ranks, events, own_seed
        self._saved_events = events if self.optional else None

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of every generator and, on ranks other than 0, the unrecorded metrics."""
        own = {"events": self._saved_events.state_dict()} if self._saved_events is not None else {}
        return {"rng": seeding.rng_state(), **own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Remembers the generators for `restore`; loads the metrics."""
        self.load_generators(state)
        if self._saved_events is not None:
            self._saved_events.load_state_dict(state["events"])

    def load_generators(self, state: dict[str, Any]) -> None:
        """Remembers the generators for `restore`, without the metrics."""
        self.generators = state["rng"]

    def restore(self) -> list[str]:
        """Sets the generators to the loaded state, if one was loaded; returns why some could not be set."""
        return [] if self.generators is None else seeding.set_rng_state(self.generators)

    # ---- a checkpoint of another number of ranks --------------------------------------------------------

    def load_checkpoint(
        self, checkpoints: Checkpoints, parts: Mapping[str, Stateful], *, id: int | None
    ) -> list[str]:
        """Loads a checkpoint into all parts of a run, also one of another number of ranks. The caller must
        call `restore` afterwards. See `Checkpoints.load`.

        Args:
            checkpoints: The checkpoints of the run.
            parts: The parts of the run on this rank, this one included.
            id: The checkpoint to load; the newest good one when None.

        Returns:
            A line for each damaged checkpoint that was set aside.
        """
        manifest, lines = checkpoints.load(parts, id=id)
        if manifest is not None and manifest.ranks != self._ranks.world_size:
            self._adapt(checkpoints, manifest)
        return lines

    def _adapt(self, checkpoints: Checkpoints, manifest: Manifest) -> None:
        """Adapts a checkpoint of another number of ranks: rank 0 merges the unrecorded metrics of all old
        ranks, so that no value is lost. A new rank gets generators of its own, or those of rank 0 if all
        ranks draw the same numbers."""
        rank, events = self._ranks.rank, self._events
        assert events is not None
        if self._ranks.is_main:
            for other in range(1, manifest.ranks):
                checkpoints.load_part(
                    manifest.id, f"rank-{other}", _PartReader(lambda state: events.merge(state["events"]))
                )
            return
        events.load_state_dict({"names": events.state_dict()["names"], "sums": [], "waiting": []})
        if rank < manifest.ranks:
            return
        if self._own_seed is not None:
            seeding.seed_all(seeding.mix(self._own_seed, "train", rank, manifest.step))
            self.generators = seeding.rng_state()
        else:
            checkpoints.load_part(manifest.id, "rank-0", _PartReader(self.load_generators))


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
