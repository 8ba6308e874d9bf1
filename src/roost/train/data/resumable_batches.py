"""`ResumableBatches`: the batches of a loader, epoch after epoch, for a loop of the user's own."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from roost.base.errors import Refused
from roost.train.data.batches import Batch, Batches
from roost.train.data.external_loader import ExternalLoader, is_external_loader


class ResumableBatches:
    """The batches of a loader; each ``for`` yields the rest of the current epoch.

    A loop that is left early, by ``break`` or an error, loses no batch: the next ``for`` continues after the
    newest batch, in the same epoch.

    Args:
        loader: `roost.Loader`, torch's DataLoader, or another loader that `is_external_loader` knows; it must
            know its length.
        seed: The seed of the random numbers of a loader that is not roost's.

    Attributes:
        epoch: The current epoch, from 0.
        batch: The number of batches of it that were yielded.

    Raises:
        Refused: The object is no loader.
    """

    def __init__(self, loader: Any, *, seed: int = 0) -> None:
        if not isinstance(loader, Batches) and not is_external_loader(loader):
            what, fix = "is no loader", "give a torch DataLoader or a roost.Loader"
            raise Refused(what, setting="resumable", received=type(loader).__name__, fix=fix)
        self._batches = loader if isinstance(loader, Batches) else ExternalLoader(loader, seed=seed)
        self._drawn: Generator[Batch, None, None] | None = None
        self.epoch, self.batch = 0, 0

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        while True:
            if self._drawn is None:
                self._drawn = self._batches.epochs(self.epoch, self.batch)
            try:
                drawn = next(self._drawn)
            except BaseException:
                self._drawn = None  # a generator that raised has ended; the next one begins at the same batch
                raise
            # Before the batch is handed out: what is saved while it is used must not yield it again.
            self.batch += 1
            if drawn.ends_epoch:
                self.epoch, self.batch = self.epoch + 1, 0
            if drawn.num_samples:
                yield drawn.value
            if drawn.ends_epoch:
                return

    def state_dict(self) -> dict[str, Any]:
        """Returns the position after the newest batch, and the loader's own state, as plain data."""
        return {"epoch": self.epoch, "batch": self.batch, "loader": self._batches.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a result of `state_dict`."""
        self._stop_drawing()
        self._batches.load_state_dict(state["loader"])
        self.epoch, self.batch = state["epoch"], state["batch"]

    def inexact_reasons(self) -> list[str]:
        """See `Batches.inexact_reasons`."""
        return self._batches.inexact_reasons()

    def close(self) -> None:
        """Ends the loader's workers; the next batch starts them again."""
        self._stop_drawing()
        self._batches.close()

    def _stop_drawing(self) -> None:
        if self._drawn is not None:
            self._drawn.close()
            self._drawn = None
