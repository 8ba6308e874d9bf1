"""Saving and loading the state of a run.

A save, from the request to the renamed folder and what follows it:

```
Trainer.save
    Checkpointer.save
        finish the previous save                # its hooks are called, if they were not yet
        prepare                                 # the state must be finite; hooks make their files durable
        Checkpoints.save
            copy                                # `staging`; some tensors during the next step: `late_copies`
            PendingSave starts a thread         # `checkpoint_writer`; training continues
                write                           # each rank its files
                commit                          # the manifest, and one rename
                retain                          # remove the checkpoints that no track keeps
    Checkpointer.finish, after a later step
        Hook.on_save
```

A loop without a Trainer calls `Checkpoints.save`: it copies, and its thread does the rest.
"""

# Not durable: makes the folder that a hand-written loop names

from __future__ import annotations

import errno
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeVar

import msgspec
from torch import Tensor

from roost.base import durable
from roost.base.errors import CheckpointError, TrainingError
from roost.package.checkpoints import checkpoint, part_files, retention
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.checkpoint_store import CheckpointStore
from roost.package.checkpoints.part_files import PartFile
from roost.package.checkpoints.retention import RetentionPolicy
from roost.package.package import PackageFolder
from roost.train.checkpointing import checkpoint_writer
from roost.train.checkpointing.checkpoint_writer import (
    FAILURE_WAIT_SECONDS,
    PendingSave,
    TornCopy,
    WritePace,
    prepare_together,
)
from roost.train.checkpointing.late_copies import LateCopies
from roost.train.checkpointing.staging import Staging
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.progress import Progress
from roost.train.step.timing import SAVE, Timing

T = TypeVar("T")
CheckpointContent = tuple[Manifest, dict[str, Any]]
"""The manifest and the states that `checkpoint.read` returns."""
_LONG_WAIT_SECONDS = 10.0


class Stateful(Protocol):
    """An object with a state, by torch's convention."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class StateToSave:
    """The state that a checkpoint will hold, and what its manifest will say."""

    parts: Mapping[str, Stateful]
    progress: Progress
    held: bool
    """Whether the checkpoint is in the held track."""
    metrics: Mapping[str, float]
    """Metrics measured at exactly this step, for the best track."""
    inexact: list[str]
    """Why the run is not exact any more."""


class Checkpointer:
    """Saves the state of a run while its training continues.

    State that the next forward and backward pass may change is copied at once; the tensors of `late_copies`
    are copied during these passes, and code that changes them calls `wait_until_copied` first. A thread then
    writes the copy, and `on_save` is called at the next `poll`. With several ranks it is called before the
    next save or at the end, so at the same step on each.

    Args:
        checkpoints: Where to save; None: nothing is saved.
        ranks: The ranks that train and save together.
        timing: The time that saving takes from training is counted here.
        late_copies: The tensors that may be copied late.
        prepare: Called on every rank before the copy: checks that the state may be saved, makes durable what
            must not be older outside a checkpoint than inside it, and returns the state.
        drop_requests: Called when the state is copied, or could not be: the requests for this save are
            served.
        request_save: Called if a copy was torn, so that the state is saved again.
        on_save: Called with the folder of each committed checkpoint.
        publish: Called with the phase of the run: "saving", then "training".
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        *,
        ranks: Ranks,
        timing: Timing,
        late_copies: LateCopies,
        prepare: Callable[[], StateToSave],
        drop_requests: Callable[[], None],
        request_save: Callable[[], None],
        on_save: Callable[[Path], None],
        publish: Callable[[str], None],
    ) -> None:
        self.checkpoints = checkpoints
        self._ranks, self._timing, self._late_copies = ranks, timing, late_copies
        self._prepare, self._drop_requests, self._request_save = prepare, drop_requests, request_save
        self._on_save, self._publish = on_save, publish
        self._pending: PendingSave | None = None
        """The save that is being written."""
        self._waited, self._has_warned = 0.0, False

    def begin(self) -> None:
        """Called when training begins or continues, before the first step."""
        if self.checkpoints is not None and self.checkpoints.asynchronous:
            self._late_copies.begin_first_step()

    # ---- saving -----------------------------------------------------------------------------------------

    def save(self, reason: str, *, scheduled: int | None = None, is_last: bool = False) -> bool:
        """Saves the current state. If the disk fails, it prints the error and training continues with the
        older checkpoints, except in the last save and when the folder of the checkpoints was removed.

        Args:
            reason: start, scheduled, best, held, requested, signal or final.
            scheduled: Number of the scheduled save, counted from 0; None for other reasons.
            is_last: Whether this is the last save of the session.

        Returns:
            Whether a checkpoint is committed or being written; at the start and at the end: whether it is
            committed.

        Raises:
            TrainingError: The state is not finite, so the newest good checkpoint must remain the newest; or
                the last checkpoint could not be written; or the folder of the checkpoints was removed.
        """
        checkpoints = self.checkpoints
        if checkpoints is None:
            return False
        self._finish_previous()
        waits = is_last or reason == "start"
        late = [] if waits else self._late_copies.tensors()
        start = perf_counter()
        self._publish("saving")
        try:
            state = prepare_together(self._ranks, self._prepare)
            self._pending = checkpoints.save(
                state.parts,
                state.progress,
                reason=reason,
                held=state.held,
                scheduled=scheduled,
                metrics=state.metrics,
                inexact=state.inexact,
                defer=late,
                prints_error=self._ranks.are_several,
            )
        except OSError as error:
            return self._failed(error, is_last=is_last)
        finally:
            self._drop_requests()
            self._timing.spent[SAVE] += perf_counter() - start
        if waits or not checkpoints.asynchronous:
            return self.finish(is_last=is_last)
        self._publish("training")
        return True

    def _finish_previous(self) -> None:
        start = perf_counter()
        self.finish()
        self._waited += perf_counter() - start
        if self._waited > _LONG_WAIT_SECONDS and not self._has_warned:
            self._has_warned = True
            print(
                f"training has waited {self._waited:.0f} s for checkpoints that were still being written "
                "when the next one was due; save less often (checkpoint.every)",
                flush=True,
            )

    # ---- while a save is being written ------------------------------------------------------------------

    @property
    def is_copying(self) -> bool:
        """Whether the state must not change yet, because tensors are still being copied."""
        return self._pending is not None and not self._pending.is_copied

    def before_optimizer_step(self) -> None:
        """Called in each step, before an optimizer changes weights."""
        if self._late_copies.is_in_first_step:
            self._late_copies.end_first_pass()
        if self._pending is not None:
            self.wait_until_copied()

    def wait_until_copied(self) -> None:
        """Waits until the state is copied; called before a hook runs, or any other code changes it. On a GPU
        it does not block: later kernels are ordered after the copy."""
        if self._pending is not None:
            start = perf_counter()
            self._pending.wait_until_copied()
            self._timing.spent[SAVE] += perf_counter() - start

    def poll(self) -> None:
        """Called after a step, before its hooks: finishes a save that is done."""
        if self._pending is None:
            return
        self.wait_until_copied()  # if no optimizer has stepped, the copy may be still to be made
        if self._pending.is_done and not self._ranks.are_several:
            self.finish()

    def finish(self, *, is_last: bool = False) -> bool:
        """Waits until the pending save is committed, then calls `on_save`.

        Args:
            is_last: Whether this is the last save of the session.

        Returns:
            Whether it was committed; False also if no save is pending.

        Raises:
            TrainingError: The last checkpoint could not be written, or the folder was removed.
            PeerLost: Another rank has ended.
        """
        saved = self._pending
        if saved is None:
            return False
        start = perf_counter()
        if not saved.is_done:
            self._publish("saving")
        self.wait_until_copied()
        self._pending = None
        try:
            path = saved.wait()
        except OSError as error:
            return self._failed(error, is_last=is_last, is_reported=saved.is_reported)
        except TornCopy as error:
            self._late_copies.give_up()
            print(f"checkpoint not written: {error}; it is saved again, copied before training", flush=True)
            if not self._ranks.are_several:  # otherwise the caller is about to save
                self._request_save()
            return False
        finally:
            self._timing.spent[SAVE] += perf_counter() - start
        self._on_save(path)
        self._publish("training")
        return True

    def finish_after_failure(self) -> None:
        """As `finish`, for a run that fails: gives up a save that the other ranks do not complete in
        `FAILURE_WAIT_SECONDS`. They may be waiting for this rank within the step, until it ends."""
        if self._ranks.are_several and self.checkpoints is not None:
            self.wait_until_copied()
            if not self.checkpoints.wait(FAILURE_WAIT_SECONDS):
                self._pending = None
        self.finish()

    def _failed(self, error: OSError, *, is_last: bool, is_reported: bool = False) -> bool:
        checkpoints = self.checkpoints
        assert checkpoints is not None
        if not checkpoints.store.folder.exists():
            raise TrainingError(
                "the folder of the checkpoints was removed, so no further training can be saved",
                where=checkpoints.store.folder,
                fix="start the run again; there is no checkpoint to continue from",
            ) from error
        if is_last:
            before = checkpoints.newest
            begins = (
                f"continues from step {before.step}" if before else "begins at step 0: there is no checkpoint"
            )
            raise TrainingError(
                f"the last checkpoint could not be written: {error}",
                fix=f"{_fix_of(error)}, then run `roost continue`; it {begins}",
            ) from error
        if not is_reported:
            print(f"checkpoint not written: {error}; training continues, older ones are intact", flush=True)
        return False


def _fix_of(error: OSError) -> str:
    """Returns what to do so that the next session can save."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free disk space"
    if error.errno in (errno.EPERM, errno.EACCES, errno.EROFS):
        return "make the package's Checkpoints writable"
    return "repair the disk or its mount"


class Checkpoints:
    """Checkpoints in a package, or in any folder.

    ```
    checkpoints = Checkpoints("checkpoints")
    checkpoints.load({"model": model, "optimizer": optimizer, "progress": progress})
    ...
    checkpoints.save({"model": model, "optimizer": optimizer, "progress": progress}, progress)
    ```

    `save` returns once the state is copied; later changes do not affect the checkpoint.

    The object that loads the newest checkpoint, or saves, owns the folder: `load` sets damaged checkpoints
    aside, and the first `save` removes what a killed save left behind. Before these calls nothing is changed,
    so another process may use the folder for reading.

    Args:
        place: A package, or a folder, which is created if needed.
        policy: Decides which checkpoints stay on disk.
        session: Number of the running session.
        asynchronous: Whether a thread writes the files while the program continues, one checkpoint at a time.
            Otherwise a checkpoint is committed when `save` returns.
        ranks: The ranks that save and load together, each its part; all of them must make the same calls.
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
        """Called with the manifest and the states of a checkpoint before they are loaded; may change them."""
        self.asynchronous = asynchronous
        self._session, self._ranks = session, ranks
        self._staging = Staging()
        self._saved: PendingSave | None = None
        self._parent: Manifest | None = None
        self._swept = False
        self._last_save_time = time.monotonic()
        """The time of the last save."""
        self.seconds = 0.0
        """The seconds that the newest saved checkpoint took to be written, without rests."""

    @property
    def newest(self) -> Manifest | None:
        """The manifest of the committed checkpoint that was saved or loaded last; None if there is none."""
        return self._parent

    # ---- saving -----------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Writes the pending checkpoint at full speed, without the rests during training; may be called from
        any thread."""
        if self._saved is not None:
            self._saved.hurry()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until the last save is committed or has failed, at most ``seconds``; returns whether it is
        done by then."""
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
        """Copies the state and saves it durably; then removes the checkpoints that no track keeps. Waits
        first if the previous checkpoint is still being written.

        Args:
            parts: The objects to save, by name.
            progress: The progress of the run.
            reason: start, scheduled, best, held, requested, signal or final.
            held: Whether the checkpoint is in the held track.
            scheduled: Number of the scheduled save, counted from 0.
            metrics: Metrics measured at exactly this step, for the best track.
            inexact: Why the run is not exact any more.
            defer: Tensors of the parts that are copied while the program continues; it must call
                `PendingSave.wait_until_copied` before it changes one of them.
            prints_error: Whether an error is printed if `PendingSave.wait` is not called.

        Returns:
            The pending save, which reports when the checkpoint is committed.

        Raises:
            OSError: It could not be written (disk full, …) and is not asynchronous; older ones are intact.
            CheckpointError: A part has a value that cannot be saved.
        """
        self.wait()
        manifest = Manifest(
            id=0,
            step=progress.step,
            epoch=progress.epoch,
            batch=progress.batch,
            session=self._session,
            reason=reason,
            held=held,
            scheduled=scheduled,
            # A manifest is JSON, which has no NaN; a value that is not finite is never the best.
            metrics={name: value for name, value in (metrics or {}).items() if math.isfinite(value)},
            time=round(time.time(), 3),
            inexact=list(inexact or []),
        )
        files = self._copy(parts, defer if self.asynchronous else ())
        write = functools.partial(self._write_and_retain, files, manifest)
        rest = checkpoint_writer.rest_ratio(self.seconds, self._since_last())
        self._saved = PendingSave(
            self._staging, write, asynchronous=self.asynchronous, prints_error=prints_error, rest=rest
        )
        if not defer:
            self._saved.wait_until_copied()
        return self._saved

    def _copy(self, parts: Mapping[str, Stateful], defer: Sequence[Tensor]) -> list[PartFile]:
        """Copies the states, but for the tensors to defer; returns the files to write. Their bytes are the
        copies, and complete when `PendingSave` has made the deferred ones."""
        self._staging.begin(defer=defer)
        states = {name: part.state_dict() for name, part in parts.items()}
        files = part_files.pack(states, rank=self._ranks.rank, leaf_of=self._staging.leaf)
        self._staging.start_gpu_copies()
        return files

    def _since_last(self) -> float:
        now = time.monotonic()
        interval, self._last_save_time = now - self._last_save_time, now
        return interval

    def _write_and_retain(
        self, files: list[PartFile], manifest: Manifest, pace: WritePace, torn: bool
    ) -> Path:
        """Writes and commits one checkpoint, then removes those that no track keeps; called by one thread at
        a time, and by all ranks."""
        folder, start = self.store.folder, time.perf_counter()
        manifest = checkpoint_writer.write(
            folder,
            files,
            functools.partial(self._with_lineage, manifest),
            ranks=self._ranks,
            pace=pace,
            torn=torn,
            before=self._sweep,
        )
        self._parent = manifest
        self.store = CheckpointStore(folder)  # the lineage now ends at the new one
        if self._ranks.is_main:
            try:
                self._retain(manifest.inexact)
            except OSError as error:
                print(f"older checkpoints not removed: {error}; the next save tries again", flush=True)
        checkpoint_writer.end_together(self._ranks)  # from now on every rank sees the same folder
        self.seconds = time.perf_counter() - start - pace.rested_seconds
        return checkpoint.checkpoint_folder(folder, manifest.id)

    def _with_lineage(self, manifest: Manifest, id: int) -> Manifest:
        parent = self._parent
        return msgspec.structs.replace(
            manifest,
            id=id,
            parent=parent.id if parent is not None else None,
            line=checkpoint.lineage_after(parent, id),
        )

    def _sweep(self) -> None:
        if not self._swept:
            durable.sweep(self.store.folder)
            self._swept = True

    def _retain(self, inexact: list[str]) -> None:
        """Removes the checkpoints that no track keeps; called only after the new one is committed."""
        found = checkpoint.read_manifests(self.store.folder)
        kept = retention.retained_ids(found, self.policy)
        for manifest in found:
            if manifest.id not in kept:
                durable.remove_folder(checkpoint.checkpoint_folder(self.store.folder, manifest.id))
        if self._package is not None:
            left = [manifest for manifest in found if manifest.id in kept]
            self._package.write_derived(retention.track_ids(left, self.policy), inexact)

    # ---- loading ----------------------------------------------------------------------------------------

    def load(
        self, parts: Mapping[str, Stateful], *, id: int | None = None
    ) -> tuple[Manifest | None, list[str]]:
        """Loads checkpoint ``id``, or the newest good one, into ``parts``.

        Returns:
            Its manifest, None if there is no checkpoint yet; and a line for each damaged one that was set
            aside.

        Raises:
            NotFound: There is no checkpoint ``id``.
            CheckpointError: It is damaged, or all are; or it needs a newer roost or torch, or does not fit.
            OSError: It could not be read; nothing was set aside.
        """
        self.wait()
        found, said = self._load_together(functools.partial(_read_parts, names=list(parts)), id)
        if found is None:
            return None, said
        if self.adapt is not None:
            self.adapt(*found)
        load_parts(parts, *found)
        self._parent = found[0]
        return self._parent, said

    def verify_parent(self, *, verified: Manifest | None = None) -> tuple[Manifest | None, list[str]]:
        """As `load`, without loading: verifies every byte of the newest good checkpoint, which becomes the
        parent of the next save.

        Args:
            verified: Makes this checkpoint the parent, which was verified already.
        """
        self.wait()
        self._parent, said = (verified, []) if verified is not None else self._read(checkpoint.verify, None)
        return self._parent, said

    def _load_together(
        self, load: Callable[[Path], CheckpointContent], id: int | None
    ) -> tuple[CheckpointContent | None, list[str]]:
        """Lets rank 0 find a good checkpoint and verify every byte of it; the other ranks read that one."""
        ranks = self._ranks
        if not ranks.are_several:
            return self._read(load, id)
        found, said = checkpoint_writer.read_together(
            ranks, lambda: self._read(load, id) if ranks.is_main else (None, [])
        )
        chosen = ranks.saving.broadcast(found[0].id if found is not None else None, "the start")
        if chosen is None:
            return None, said
        return checkpoint_writer.read_together(ranks, lambda: found or load(self.store.path(chosen))), said

    def _read(self, load: Callable[[Path], T], id: int | None) -> tuple[T | None, list[str]]:
        if id is not None:
            return load(self.store.path(id)), []
        found, said = self.store.newest_good(load)
        if found is None:
            self._refuse_restart_from_zero()
        return found, said

    def _refuse_restart_from_zero(self) -> None:
        """Refuses to begin at step 0 if the package had checkpoints and all are gone: the run would be
        replaced without notice."""
        kept = self._package.kept_ids() if self._package is not None else set()
        if kept:
            raise CheckpointError(
                f"the package had checkpoints ({', '.join(map(str, sorted(kept)))}) and has none now",
                where=self.store.folder.parent,
                fix="restore them, or start a new run with `roost run`",
            )

    def best(self, rule: retention.BestRule) -> Manifest | None:
        """Returns the best checkpoint of the run so far by ``rule``; None if none was measured."""
        return next(iter(self.ranked(rule)), None)

    def ranked(self, rule: retention.BestRule) -> list[Manifest]:
        """Returns all checkpoints of the run that were measured by ``rule``, the best first, not only its top
        k."""
        self.wait()
        line = self.store.lineage()
        return retention.best_checkpoints(line, msgspec.structs.replace(rule, top_k=len(line)))

    def load_part(self, id: int, name: str, part: Stateful) -> None:
        """Loads one part of one checkpoint, for example the best weights for a test. Sets no checkpoint
        aside.

        Raises:
            NotFound: There is no checkpoint ``id``.
            Damaged: It is damaged; ``part`` is as it was.
            CheckpointError: It cannot be read by this roost or this torch, or does not fit.
            OSError: It could not be read.
        """
        self.wait()
        _, states = checkpoint.read(self.store.path(id), only=[name])
        part.load_state_dict(states[name])


def _read_parts(path: Path, *, names: Sequence[str]) -> CheckpointContent:
    """Reads some parts of a checkpoint and verifies every byte of all its parts."""
    return checkpoint.read(path, only=names, verify_all=True)


def load_parts(parts: Mapping[str, Stateful], manifest: Manifest, states: Mapping[str, Any]) -> None:
    """Loads the states that were read from a checkpoint into ``parts``.

    Raises:
        CheckpointError: The checkpoint lacks a part, or one does not fit.
    """
    names = checkpoint.part_names(manifest)
    for name, part in parts.items():
        if name not in states and getattr(part, "optional", False):
            continue  # such as the part of a rank that the saving run did not have
        if name not in states:
            raise CheckpointError(f"checkpoint {manifest.id} has no part {name!r}; it has {', '.join(names)}")
        try:
            part.load_state_dict(states[name])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"checkpoint {manifest.id}: the state of {name!r} does not fit this version: {error!r}",
                fix="continue with the version of roost and the code that wrote it",
            ) from error
