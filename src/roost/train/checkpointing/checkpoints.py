"""The checkpoints of a run: a folder in which any training loop saves, and from which it loads."""

# Not durable: makes the folder that a hand-written loop names

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
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
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.checkpoints.retention import RetentionPolicy
from roost.package.owner import owner_file
from roost.package.package import PackageFolder
from roost.train.checkpointing import checkpoint_writer
from roost.train.checkpointing.checkpoint_writer import PendingSave, WritePace
from roost.train.checkpointing.staging import Staging
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.progress import Progress

T = TypeVar("T")
CheckpointContent = tuple[Manifest, dict[str, Any]]
"""The manifest and the states that `checkpoint.read` returns."""


class Stateful(Protocol):
    """An object with a state, by torch's convention."""

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
        pickles: Lets values that are neither plain data nor tensors be pickled, and says which pickles are
            read. None: such a value is an error.
    """

    def __init__(
        self,
        place: PackageFolder | Path | str,
        policy: RetentionPolicy | None = None,
        *,
        session: int = 0,
        asynchronous: bool = True,
        ranks: Ranks = ALONE,
        pickles: Pickles | None = None,
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
        self.hold: Callable[[Sequence[Manifest], Collection[int]], set[int]] | None = None
        """Called with all checkpoints and the ids that a track keeps; returns further ids that stay."""
        self.asynchronous = asynchronous
        self._session, self._ranks, self._pickles = session, ranks, pickles
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
        files = part_files.pack(
            states,
            rank=self._ranks.rank,
            leaf_of=self._staging.leaf,
            may_pickle=self._pickles is not None,
        )
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
        if self._package is not None:
            owner_file.require_not_taken_over(self._package.path, self._session)
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
        stays = kept if self.hold is None else kept | self.hold(found, kept)
        for manifest in found:
            if manifest.id not in stays:
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
        found, said = self._load_together(
            functools.partial(_read_parts, names=list(parts), pickles=self._pickles), id
        )
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
        if found is None and self._package is not None:
            self.store.refuse_restart_from_zero(self._package.kept_ids())
        return found, said

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
        _, states = checkpoint.read(self.store.path(id), only=[name], pickles=self._pickles)
        part.load_state_dict(states[name])


def _read_parts(path: Path, *, names: Sequence[str], pickles: Pickles | None) -> CheckpointContent:
    """Reads some parts of a checkpoint and verifies every byte of all its parts."""
    return checkpoint.read(path, only=names, verify_all=True, pickles=pickles)


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
