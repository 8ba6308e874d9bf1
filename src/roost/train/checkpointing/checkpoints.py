"""Saving and loading the state of a run; usable in any loop."""

# Not durable: makes the folder that a hand-written loop names

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from torch import Tensor

from roost.base import durable
from roost.base.errors import CheckpointError
from roost.package.checkpoints import checkpoint, part_files, retention
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.checkpoint_store import CheckpointStore
from roost.package.checkpoints.part_files import PartFile
from roost.package.checkpoints.retention import RetentionPolicy
from roost.package.package import PackageFolder
from roost.train.checkpointing import checkpoint_writer
from roost.train.checkpointing.checkpoint_writer import WritePace
from roost.train.checkpointing.pending_save import PendingSave
from roost.train.checkpointing.staging import Staging
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.progress import Progress

T = TypeVar("T")
CheckpointContent = tuple[Manifest, dict[str, Any]]
"""What `checkpoint.read` gives."""


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

    `save` returns once the state is copied; what is changed from there on does not change what is written.

    Whoever loads the newest one, or saves, owns the folder: `load` sets damaged ones aside, and the first
    `save` sweeps what a killed one left. Until then nothing is changed, so another process may look.

    Args:
        place: A package, or a folder, which is made if need be.
        policy: What stays on disk.
        session: Number of the running session.
        asynchronous: Whether the files are written behind, while the program goes on; one checkpoint at a
            time. Otherwise a checkpoint stands when `save` returns.
        ranks: Who saves and loads together, each its part; all must call the same.
    """

    def __init__(
        self,
        place: PackageFolder | Path | str,
        policy: RetentionPolicy | None = None,
        *,
        session: int = 0,
        asynchronous: bool = True,
        ranks: Ranks = ALONE,
    ) -> None:
        self._package = place if isinstance(place, PackageFolder) else None
        if isinstance(place, PackageFolder):
            self.store = place.store()
        else:
            Path(place).mkdir(parents=True, exist_ok=True)
            self.store = CheckpointStore(Path(place))
        self.policy = policy or RetentionPolicy()
        self.adapt: Callable[[Manifest, Mapping[str, Any]], None] | None = None
        """Changes what was read of a checkpoint before it is loaded."""
        self.asynchronous = asynchronous
        self._session, self._ranks = session, ranks
        self._staging = Staging()
        self._saved: PendingSave | None = None
        self._parent: Manifest | None = None
        self._swept = False
        self._last = time.monotonic()
        """When the last was saved."""
        self.seconds = 0.0
        """What the newest that was saved took to be written, without rests."""

    @property
    def newest(self) -> Manifest | None:
        """What stands and was saved last, or was loaded last."""
        return self._parent

    def hurry(self) -> None:
        """Has what is being written take no rests, as it does beside the training; from any thread."""
        if self._saved is not None:
            self._saved.hurry()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until what was saved last stands, or has failed; at most so many seconds. Gives whether it
        does."""
        return self._saved is None or self._saved.wait_until_done(seconds)

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
        defer: Sequence[Tensor] = (),
        prints_error: bool = True,
    ) -> PendingSave:
        """Copies the state, and saves it durably behind; then what no track keeps is removed. Where the one
        before is not written yet, waits for it.

        Args:
            parts: What to save, by name.
            progress: Where the run is.
            reason: start, scheduled, best, held, requested, signal or final.
            held: Put it into the held track.
            scheduled: Which scheduled save this is, counted from 0.
            metrics: What was measured at this very step, for the best track.
            inexact: Why the run is not exact any more.
            defer: Tensors of them that are copied while the program goes on; it must call `PendingSave.wait_until_copied`
                before it changes one of them.
            prints_error: Whether an error is printed if nobody waits for it.

        Returns:
            What knows when it stands.

        Raises:
            OSError: It could not be written (disk full, …) and is not asynchronous; older ones are untouched.
            CheckpointError: A part holds something that cannot be saved.
        """
        self.wait()
        info = Manifest(
            id=0,
            step=progress.step,
            epoch=progress.epoch,
            batch=progress.batch,
            session=self._session,
            reason=reason,
            held=held,
            scheduled=scheduled,
            # A manifest is JSON, which has no NaN; and what is not finite is never the best.
            metrics={name: value for name, value in (metrics or {}).items() if math.isfinite(value)},
            time=round(time.time(), 3),
            inexact=list(inexact or []),
        )
        self._staging.begin(defer=defer if self.asynchronous else ())
        states = {name: part.state_dict() for name, part in parts.items()}
        files = part_files.pack(states, rank=self._ranks.rank, leaf_of=self._staging.leaf)
        self._staging.start_gpu_copies()
        write = functools.partial(self._write, files, info)
        rest = checkpoint_writer.rest_ratio(self.seconds, self._since_last())
        self._saved = PendingSave(
            self._staging, write, asynchronous=self.asynchronous, prints_error=prints_error, rest=rest
        )
        if not defer:
            self._saved.wait_until_copied()
        return self._saved

    def _since_last(self) -> float:
        now = time.monotonic()
        interval, self._last = now - self._last, now
        return interval

    def _write(self, files: list[PartFile], info: Manifest, pace: WritePace, torn: bool) -> Path:
        """Called by one thread at a time; by all ranks."""
        folder, begun = self.store.folder, time.perf_counter()
        info = checkpoint_writer.write(
            folder,
            files,
            functools.partial(self._complete_info, info),
            ranks=self._ranks,
            pace=pace,
            torn=torn,
            before=self._sweep,
        )
        self._parent = info
        self.store = CheckpointStore(folder)  # the new one is the tip from here on
        if self._ranks.is_main:
            try:
                self._retain(info.inexact)
            except OSError as error:
                print(f"older checkpoints not tidied up: {error}; the next save tries again", flush=True)
        checkpoint_writer.end_together(
            self._ranks
        )  # whoever looks at the folder next finds the same on every rank
        self.seconds = time.perf_counter() - begun - pace.rested_seconds
        return checkpoint.checkpoint_folder(folder, info.id)

    def _complete_info(self, info: Manifest, id: int) -> Manifest:
        parent = self._parent
        return msgspec.structs.replace(
            info,
            id=id,
            parent=parent.id if parent is not None else None,
            line=checkpoint.lineage_after(parent, id),
        )

    def _sweep(self) -> None:
        if not self._swept:
            durable.sweep(self.store.folder)
            self._swept = True

    def _retain(self, inexact: list[str]) -> None:
        """Removes what no track keeps, and only now that the new checkpoint stands."""
        found = checkpoint.read_manifests(self.store.folder)
        kept = retention.retained_ids(found, self.policy)
        for info in found:
            if info.id not in kept:
                durable.remove_folder(checkpoint.checkpoint_folder(self.store.folder, info.id))
        if self._package is not None:
            left = [info for info in found if info.id in kept]
            self._package.write_derived(retention.track_ids(left, self.policy), inexact)

    def _refuse_restart_from_zero(self) -> None:
        """Where checkpoints stood and none is left, to begin at step 0 would bury the run in silence."""
        kept = self._package.kept_ids() if self._package is not None else set()
        if kept:
            raise CheckpointError(
                f"the package had checkpoints ({', '.join(map(str, sorted(kept)))}) and has none now",
                where=self.store.folder.parent,
                fix="bring them back, or start anew with `roost run`",
            )

    def load(
        self, parts: Mapping[str, Stateful], *, id: int | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """Loads the newest good checkpoint, or checkpoint ``id`` and no other, into ``parts``.

        Returns:
            Its manifest, None when there is none yet; and a line for each damaged one that was set aside.

        Raises:
            NotFound: There is no checkpoint ``id``.
            CheckpointError: It is damaged, or all are, or it needs a newer roost or torch, or does not fit.
            OSError: It could not be read; nothing was set aside.
        """
        self.wait()
        found, said = self._load_together(functools.partial(_read, names=list(parts)), id)
        if found is None:
            return None, said
        if self.adapt is not None:
            self.adapt(*found)
        load_parts(parts, *found)
        self._parent = found[0]
        return self._parent, said

    def verify_parent(self, *, at: Manifest | None = None) -> tuple[Manifest | None, list[str]]:
        """As `load`, but for loading: its bytes are compared, and the next save goes on from there.

        Args:
            at: Go on from this one, whose bytes were compared already.
        """
        self.wait()
        self._parent, said = (at, []) if at is not None else self._read_newest_or(checkpoint.verify, None)
        return self._parent, said

    def _load_together(
        self, load: Callable[[Path], CheckpointContent], id: int | None
    ) -> tuple[CheckpointContent | None, list[str]]:
        """Rank 0 looks for a good one, and compares every byte; the others read that one."""
        ranks = self._ranks
        if not ranks.are_several:
            return self._read_newest_or(load, id)
        found, said = checkpoint_writer.read_together(
            ranks, lambda: self._read_newest_or(load, id) if ranks.is_main else (None, [])
        )
        chosen = ranks.saving.broadcast(found[0].id if found is not None else None, "the start")
        if chosen is None:
            return None, said
        return checkpoint_writer.read_together(ranks, lambda: found or load(self.store.path(chosen))), said

    def _read_newest_or(self, load: Callable[[Path], T], id: int | None) -> tuple[T | None, list[str]]:
        if id is not None:
            return load(self.store.path(id)), []
        found, said = self.store.newest_good(load)
        if found is None:
            self._refuse_restart_from_zero()
        return found, said

    def best(self, rule: retention.BestRule) -> Manifest | None:
        """The best checkpoint of the run so far by ``rule``, None when none was measured."""
        return next(iter(self.ranked(rule)), None)

    def ranked(self, rule: retention.BestRule) -> list[Manifest]:
        """All checkpoints of the run that were measured by ``rule``, the best first, not only its top k."""
        self.wait()
        line = self.store.lineage()
        return retention.best_checkpoints(line, msgspec.structs.replace(rule, top_k=len(line)))

    def load_part(self, id: int, name: str, part: Stateful) -> None:
        """Loads one part of one checkpoint, for example the best weights for a test; sets nothing aside.

        Raises:
            NotFound: There is no checkpoint ``id``.
            Damaged: It is damaged; ``part`` is as it was.
            CheckpointError: It cannot be read by this roost or this torch, or does not fit.
            OSError: It could not be read.
        """
        self.wait()
        _, states = checkpoint.read(self.store.path(id), only=[name])
        part.load_state_dict(states[name])


def _read(path: Path, *, names: Sequence[str]) -> CheckpointContent:
    """Some parts of a checkpoint, each of whose bytes was compared, those of the other parts, too."""
    return checkpoint.read(path, only=names, verify_all=True)


def load_parts(parts: Mapping[str, Stateful], info: Manifest, states: Mapping[str, Any]) -> None:
    """Loads into ``parts`` what was read of a checkpoint.

    Raises:
        CheckpointError: It lacks a part, or one does not fit.
    """
    held = checkpoint.part_names(info)
    for name, part in parts.items():
        if name not in states and getattr(part, "optional", False):
            continue  # as of a rank that there was not when it was saved
        if name not in states:
            raise CheckpointError(f"checkpoint {info.id} holds no {name!r}; it holds {', '.join(held)}")
        try:
            part.load_state_dict(states[name])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"checkpoint {info.id}: the state of {name!r} does not fit this version: {error!r}",
                fix="continue it with the roost and the code that wrote it",
            ) from error
