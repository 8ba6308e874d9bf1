"""Saving and loading the state of a run; usable in any loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from roost.base import durable
from roost.base.errors import CheckpointError
from roost.package import checkpoint, retention
from roost.package.checkpoint import Info
from roost.package.package import Package
from roost.package.retention import Policy
from roost.package.store import Store
from roost.train.progress import Progress

T = TypeVar("T")


class Stateful(Protocol):
    """What can be saved: torch's convention."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


class Checkpoints:
    """Checkpoints in a package, or in any folder.

    ```
    checkpoints = Checkpoints("checkpoints")
    checkpoints.load({"model": model, "optimizer": optimizer, "progress": progress})
    ...
    checkpoints.save({"model": model, "optimizer": optimizer, "progress": progress}, progress)
    ```

    Whoever loads the newest one, or saves, owns the folder: `load` sets damaged ones aside, and the first
    `save` sweeps what a killed one left. Until then nothing is changed, so another process may look.

    Args:
        place: A package, or a folder, which is made if need be.
        policy: What stays on disk.
        session: Number of the running session.
    """

    def __init__(
        self, place: Package | Path | str, policy: Policy | None = None, *, session: int = 0
    ) -> None:
        self._package = place if isinstance(place, Package) else None
        if isinstance(place, Package):
            self.store = place.store()
        else:
            Path(place).mkdir(parents=True, exist_ok=True)
            self.store = Store(Path(place))
        self.policy = policy or Policy()
        self.adapt: Callable[[Info, Mapping[str, Any]], None] | None = None
        """Changes what was read of a checkpoint before it is loaded."""
        self._session = session
        self._parent: Info | None = None
        self._swept = False

    @property
    def newest(self) -> Info | None:
        """What was saved or loaded last."""
        return self._parent

    def save(
        self,
        parts: Mapping[str, Stateful],
        progress: Progress,
        *,
        reason: str = "scheduled",
        held: bool = False,
        scheduled: int | None = None,
        metrics: Mapping[str, float] | None = None,
        inexact: list[str] | None = None,
    ) -> Path:
        """Saves durably: when this returns the checkpoint stands; then what no track keeps is removed.

        Args:
            parts: What to save, by name.
            progress: Where the run is.
            reason: start, scheduled, best, held, requested, signal or final.
            held: Put it into the held track.
            scheduled: Which scheduled save this is, counted from 0.
            metrics: What was measured at this very step, for the best track.
            inexact: Why the run is not exact any more.

        Returns:
            The checkpoint's folder.

        Raises:
            OSError: It could not be written (disk full, …); the older checkpoints are untouched.
        """
        if not self._swept:
            durable.sweep(self.store.folder)
            self._swept = True
        id = checkpoint.next_id(self.store.folder)
        info = Info(
            id=id,
            step=progress.step,
            epoch=progress.epoch,
            batch=progress.batch,
            parent=self._parent.id if self._parent else None,
            line=checkpoint.line_after(self._parent, id),
            session=self._session,
            reason=reason,
            held=held,
            scheduled=scheduled,
            # A manifest is JSON, which has no NaN; and what is not finite is never the best.
            metrics={name: value for name, value in (metrics or {}).items() if math.isfinite(value)},
            time=round(time.time(), 3),
            inexact=inexact or [],
        )
        states = {name: part.state_dict() for name, part in parts.items()}
        self._parent = checkpoint.write(self.store.folder, states, info)
        self.store = Store(self.store.folder)  # the new one is the tip from here on
        try:
            self._retain(info.inexact)
        except OSError as error:
            print(f"older checkpoints not tidied up: {error}; the next save tries again", flush=True)
        return checkpoint.folder_of(self.store.folder, id)

    def _retain(self, inexact: list[str]) -> None:
        """Removes what no track keeps, and only now that the new checkpoint stands."""
        found = checkpoint.infos(self.store.folder)
        kept = retention.retained(found, self.policy)
        for info in found:
            if info.id not in kept:
                durable.remove_folder(checkpoint.folder_of(self.store.folder, info.id))
        if self._package is not None:
            left = [info for info in found if info.id in kept]
            self._package.write_derived(retention.tracks(left, self.policy), inexact)

    def _refuse_new_beginning(self) -> None:
        """Where checkpoints stood and none is left, to begin at step 0 would bury the run in silence."""
        kept = self._package.kept() if self._package is not None else set()
        if kept:
            raise CheckpointError(
                f"the package had checkpoints ({', '.join(map(str, sorted(kept)))}) and has none now",
                where=self.store.folder.parent,
                fix="bring them back, or start anew with `roost run`",
            )

    def load(self, parts: Mapping[str, Stateful], *, id: int | None = None) -> tuple[Info | None, list[str]]:
        """Loads the newest good checkpoint, or checkpoint ``id`` and no other, into ``parts``.

        Returns:
            Its manifest, None when there is none yet; and a line for each damaged one that was set aside.

        Raises:
            NotFound: There is no checkpoint ``id``.
            CheckpointError: It is damaged, or all are, or it needs a newer roost or torch, or does not fit.
            OSError: It could not be read; nothing was set aside.
        """
        found, said = self._found(checkpoint.read, id)
        if found is None:
            return None, said
        if self.adapt is not None:
            self.adapt(*found)
        fill(parts, *found)
        self._parent = found[0]
        return self._parent, said

    def go_on(self, *, at: Info | None = None) -> tuple[Info | None, list[str]]:
        """As `load`, but for loading: its bytes are compared, and the next save goes on from there.

        Args:
            at: Go on from this one, whose bytes were compared already.
        """
        self._parent, said = (at, []) if at is not None else self._found(checkpoint.verify, None)
        return self._parent, said

    def _found(self, load: Callable[[Path], T], id: int | None) -> tuple[T | None, list[str]]:
        if id is not None:
            return load(self.store.path(id)), []
        found, said = self.store.newest_good(load)
        if found is None:
            self._refuse_new_beginning()
        return found, said

    def best(self, rule: retention.Best) -> Info | None:
        """The best checkpoint of the run so far by ``rule``, None when none was measured."""
        return next(iter(self.ranked(rule)), None)

    def ranked(self, rule: retention.Best) -> list[Info]:
        """All checkpoints of the run that were measured by ``rule``, the best first, not only its top k."""
        line = self.store.line()
        return retention.best_of(line, msgspec.structs.replace(rule, top_k=len(line)))

    def load_part(self, id: int, name: str, part: Stateful) -> None:
        """Loads one part of one checkpoint, for example the best weights for a test; sets nothing aside.

        Raises:
            NotFound: There is no checkpoint ``id``.
            Damaged: It is damaged; ``part`` is as it was.
            CheckpointError: It cannot be read by this roost or this torch, or does not fit.
            OSError: It could not be read.
        """
        _, states = checkpoint.read(self.store.path(id), only=[name])
        part.load_state_dict(states[name])


def fill(parts: Mapping[str, Stateful], info: Info, states: Mapping[str, Any]) -> None:
    """Loads into ``parts`` what was read of a checkpoint.

    Raises:
        CheckpointError: It lacks a part, or one does not fit.
    """
    for name, part in parts.items():
        if name not in states:
            raise CheckpointError(f"checkpoint {info.id} holds no {name!r}; it holds {', '.join(states)}")
        try:
            part.load_state_dict(states[name])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"checkpoint {info.id}: the state of {name!r} does not fit this version: {error!r}",
                fix="continue it with the roost and the code that wrote it",
            ) from error
