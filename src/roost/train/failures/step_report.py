"""Reports of failed and skipped steps: where the step is in the data, its log line, its black box."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from roost.base.exception_record import record_exception
from roost.base.text.word_list import join_names
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.results import skipped_steps
from roost.package.results.black_box import FailureNote
from roost.package.results.skipped_steps import Kind, SkippedStep
from roost.train.checkpointing.checkpoint_writer import FAILURE_WAIT_SECONDS
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import Ranks
from roost.train.failures.black_box_recorder import BlackBoxRecorder, redraw_window
from roost.train.failures.step_context import StepContext
from roost.train.optim.optimizer import Optim
from roost.train.step import seeding

_OUT_OF_MEMORY = re.compile(r"(CUDA out of memory. Tried to allocate [\d.]+ \w+)\. GPU \d+ has")
"""The rest of torch's message describes the GPU's use at that moment, in hundreds of characters; it is
cut."""


class StepReporter:
    """Locates failed steps in the data, logs the skipped ones, and keeps the one by which the run fails in
    the black box.

    Args:
        black_box: Keeps that step; nothing is kept when None.
        log: File that gets a line for each skipped step (see `roost.package.results.skipped_steps`); no file
            when None.
        session: Number of the running session.
    """

    def __init__(
        self, black_box: BlackBoxRecorder | None = None, log: Path | None = None, session: int = 0
    ) -> None:
        self._black_box, self._log, self.session = black_box, log, session
        self._watched_generators: dict[str, torch.Generator] = {}
        self._states: dict[str, torch.Tensor] = {}
        self._host_states: dict[str, Any] = {}
        self._infrequent: list[Optim] = []
        """The optimizers that do not step every time; they count the steps in which they were called."""
        self._call_counts: list[int] = []

    # ---- what a step has changed by the time it fails ----------------------------------------------------

    def begin(self, optims: Iterable[Optim] = ()) -> None:
        """Called when training begins or continues; from here on the random generators and the counters of
        the optimizers are remembered."""
        self._infrequent = [optim for optim in optims if optim.every_n_steps > 1]
        self._watched_generators = seeding.generators_in_use() if self._black_box is not None else {}
        self._host_states = seeding.rng_state(devices=False)

    def before_step(self) -> None:
        """Remembers the state of torch's generators before a step, which costs 1 µs. NumPy's and Python's
        would cost 30 µs; a step that draws from them is detected after it failed."""
        self._states = {key: source.get_state() for key, source in self._watched_generators.items()}
        self._call_counts = [optim.num_calls for optim in self._infrequent]

    def _generators(self) -> tuple[dict[str, Any], list[str]]:
        """The generators as they were when the failed step began, and why some of them are not."""
        now = seeding.rng_state(devices=False)  # after a CUDA error the device cannot be read
        moved = [
            f"{name} generator is as it was after the error"
            for key, name in (("numpy", "NumPy's"), ("python", "Python's"))
            if not _are_same_states(now[key], self._host_states[key])
        ]
        return {**now, **seeding.as_rng_state(self._states)}, moved

    # ---- notes ------------------------------------------------------------------------------------------

    def note_for(self, context: StepContext, step: int, kind: Kind = "error", error: str = "") -> FailureNote:
        """The note of a step: its place in the data follows from its number, because every window has the
        same number of micro-batches except the last one of an epoch. The samples are those of all ranks, so
        the note is the same on every rank, whichever of them failed."""
        loader, per_step = context.loader, context.stepper.batches_per_step
        epoch, number = divmod(step - 1, context.steps_per_epoch)
        batch = number * per_step
        num_batches = min(per_step, len(loader) - batch)
        try:
            older = older_checkpoints(context.checkpoints, context.ranks, step)
        except OSError:  # it must not hide the error of the step
            older = []
        return FailureNote(
            step=step,
            epoch=epoch,
            batch=batch,
            num_batches=num_batches,
            samples=loader.sample_indices(epoch, batch, num_batches),
            kind=kind,
            error=error,
            session=self.session,
            checkpoint=older[0].id if older else None,
            inexact=list(context.inexact),
        )

    def fix_for(self, context: StepContext, steps: Iterable[int]) -> str:
        """The fix of several non-finite steps; names the samples that all their windows have in common."""
        windows = [set(self.note_for(context, step).samples) for step in steps]
        common = set.intersection(*windows) if len(windows) > 1 else set()
        if not common:
            return "lower the learning rate, clip with max_grad_norm, or look at the samples"
        which = "sample" if len(common) == 1 else "samples"
        named = join_names([*map(str, sorted(common))])
        return f"look at {which} {named}, which all of these steps have, or set on_non_finite: skip"

    def keep(
        self, context: StepContext, note: FailureNote, window: Sequence[Any] | None, *, with_state: bool
    ) -> None:
        """Keeps a step in the black box: its window and, if it still exists, the state at its start.

        Args:
            context: The surroundings of the step.
            note: The note of the step.
            window: The micro-batches of the step; drawn again if None, unless drawing them failed.
            with_state: Whether nothing has changed since the step began. Then the run ends by this step, and
                the optimizers' counters are set back to its start.
        """
        if self._black_box is None:
            return
        if window is None and note.kind != "error":
            try:
                window = redraw_window(context.loader, context.runner.to_device, note)
            except Exception as error:  # noqa: BLE001  - the error that ends the run is another one
                print(f"the batches of step {note.step} could not be drawn again: {error}", flush=True)
        generators = None
        if with_state:
            generators, moved = self._generators()
            for optim, count in zip(self._infrequent, self._call_counts, strict=True):
                optim.num_calls = count
            if context.stepper.guard is None and next(context.runner.buffers(), None) is not None:
                moved.append("the buffers are as they were after the error")
            note = msgspec.structs.replace(note, inexact=[*note.inexact, *moved])
        self._black_box.keep(context, note, window, generators=generators)

    def log_skipped(self, note: FailureNote) -> None:
        """Logs the step of a note as skipped."""
        names = set(SkippedStep.__struct_fields__) & set(note.__struct_fields__)
        self.log(SkippedStep(**{name: getattr(note, name) for name in names}))

    def log(self, skipped: SkippedStep) -> None:
        """Logs a skipped step or batch. An error of the disk is printed and otherwise ignored."""
        if self._log is not None:
            _try_write(skipped_steps.append, self._log, skipped)

    def log_rollback(self, step: int) -> None:
        """Logs that the run continues from an earlier step."""
        if self._log is not None:
            _try_write(skipped_steps.append_rewind, self._log, session=self.session, step=step)


def older_checkpoints(checkpoints: Checkpoints | None, ranks: Ranks, step: int) -> list[Manifest]:
    """The checkpoints of the run from before a step, the newest first."""
    if checkpoints is None:
        return []
    # The newest one may still be being written. If one of several ranks failed, the others may never finish
    # writing it, so the wait is limited.
    checkpoints.wait(FAILURE_WAIT_SECONDS if ranks.are_several else None)
    found = checkpoints.store.lineage()
    return sorted((manifest for manifest in found if manifest.step < step), key=lambda manifest: -manifest.id)


def format_error(error: Exception) -> str:
    """An error in one line, with its notes; the error of a loader worker as it was raised there."""
    found = record_exception(error)
    match = _OUT_OF_MEMORY.match(found.text)
    text = match[1] if match is not None else found.text
    lines = [one.strip().partition("\n")[0] for one in (text, *found.notes)]
    return ": ".join(filter(None, (found.name, "; ".join(filter(None, lines)))))[:500]


@contextmanager
def naming_samples(name: str, ids: Sequence[Any]) -> Iterator[None]:
    """Adds to an error a note with the ids of the samples of a batch, which is one of the set ``name``."""
    try:
        yield
    except Exception as error:
        last = f" to {ids[-1]!r}" if len(ids) > 1 else ""
        error.add_note(f"samples {ids[0]!r}{last} of {name}")
        raise


def format_place(note: FailureNote) -> str:
    """``step 5 (epoch 1, batch 5, samples 17, 3)``"""
    return f"step {note.step} ({note.location})"


def _are_same_states(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def _try_write(write: Callable[..., None], *args: Any, **named: Any) -> None:
    try:
        write(*args, **named)
    except OSError as error:
        print(f"not written to {skipped_steps.NAME}: {error}", flush=True)
