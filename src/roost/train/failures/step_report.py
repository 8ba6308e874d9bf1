"""What is told and kept of a step that fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from roost.base.exception_record import record_exception
from roost.base.text.word_list import join_names
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.results import skipped_steps
from roost.package.results.black_box import FailureNote
from roost.package.results.skipped_steps import Kind, SkippedStep
from roost.train.checkpointing.pending_save import FAILURE_WAIT_SECONDS
from roost.train.failures.black_box_recorder import BlackBoxRecorder, redraw_window
from roost.train.step import seeding

if TYPE_CHECKING:
    from roost.train.optim.optimizer import Optim
    from roost.train.trainer import Trainer

_OUT_OF_MEMORY = re.compile(r"(CUDA out of memory. Tried to allocate [\d.]+ \w+)\. GPU \d+ has")
"""What follows is about all that uses the GPU: hundreds of characters, and gone by the time they are read."""


class StepReporter:
    """Says where in the data a step lies, writes down those that are passed over, and puts into the black box
    the one by which the run ends.

    Args:
        box: Keeps that step; nothing is kept when None.
        log: Takes a line for each step that was passed over (see `roost.package.results.skipped_steps`); no
        file when None.
        session: Number of the running session.
    """

    def __init__(
        self, box: BlackBoxRecorder | None = None, log: Path | None = None, session: int = 0
    ) -> None:
        self._box, self._log, self._session = box, log, session
        self._generators_watched: list[torch.Generator] = []
        self._states: list[torch.Tensor] = []
        self._host_states: dict[str, Any] = {}
        self._infrequent: list[Optim] = []
        """Those that do not move in every step, and count when they are to."""
        self._turns: list[int] = []

    # ---- what a step has moved by the time it fails ------------------------------------------------------

    def begin(self, optims: Iterable[Optim] = ()) -> None:
        """Training begins, or goes on: from here on the generators are watched, and whose turn it is."""
        self._infrequent = [optim for optim in optims if optim.every_n_steps > 1]
        cuda = [torch.cuda.default_generators[torch.cuda.current_device()]] if seeding.uses_cuda() else []
        self._generators_watched = [torch.default_generator, *cuda] if self._box is not None else []
        self._host_states = seeding.rng_state(devices=False)

    def before_step(self) -> None:
        """Remembers torch's generators as a step finds them, 1 µs. NumPy's and Python's would be 30 µs; steps
        that draw from those are found out afterwards."""
        self._states = [source.get_state() for source in self._generators_watched]
        self._turns = [optim.num_calls for optim in self._infrequent]

    def _generators(self) -> tuple[dict[str, Any], list[str]]:
        """The generators at the begin of the step that failed, and why some are not."""
        now = seeding.rng_state(devices=False)  # after an error of CUDA nothing can be read from it
        moved = [
            f"{name} generator is as it was after the error"
            for key, name in (("numpy", "NumPy's"), ("python", "Python's"))
            if not _are_same_states(now[key], self._host_states[key])
        ]
        then = {**now, **dict(zip(("torch", "cuda"), (self._states[0], self._states[1:]), strict=True))}
        return then, moved

    # ---- notes ------------------------------------------------------------------------------------------

    def note_for(self, trainer: Trainer, step: int, kind: Kind = "error", error: str = "") -> FailureNote:
        """Where a step's window lies, which follows from its number: each takes as many micro-batches as the
        others but the last of an epoch. Its samples are those of all ranks: the same for each, whoever met
        what is wrong with them."""
        loader, per_step = trainer.loaders["train"], trainer.stepper.batches_per_step
        epoch, number = divmod(step - 1, trainer.steps_per_epoch)
        batch = number * per_step
        num_batches = min(per_step, len(loader) - batch)
        try:
            older = older_checkpoints(trainer, step)
        except OSError:  # the step's own error is the one to tell
            older = []
        return FailureNote(
            step=step,
            epoch=epoch,
            batch=batch,
            num_batches=num_batches,
            samples=loader.sample_indices(epoch, batch, num_batches),
            kind=kind,
            error=error,
            session=self._session,
            checkpoint=older[0].id if older else None,
            inexact=list(trainer.inexact),
        )

    def fix_for(self, trainer: Trainer, steps: Iterable[int]) -> str:
        """What to do about several bad steps: their windows may have a sample in common."""
        windows = [set(self.note_for(trainer, step).samples) for step in steps]
        common = set.intersection(*windows) if len(windows) > 1 else set()
        if not common:
            return "make the learning rate smaller, clip with max_grad_norm, or look at the samples"
        which = "sample" if len(common) == 1 else "samples"
        named = join_names([*map(str, sorted(common))])
        return f"look at {which} {named}, in every one of these steps; or set on_non_finite: skip"

    def keep(
        self, trainer: Trainer, note: FailureNote, window: Sequence[Any] | None, *, with_state: bool
    ) -> None:
        """Puts a step into the black box: its window, and its begin's state where that is still there.

        Args:
            trainer: Where it is.
            note: Which step.
            window: Its micro-batches; None: they are drawn again, unless drawing them was what failed.
            with_state: Whether nothing has moved since the step began. Then the run ends by it, and the
                optimizers forget that it had asked them.
        """
        if self._box is None:
            return
        if window is None and note.kind != "error":
            try:
                window = redraw_window(trainer, note)
            except Exception as error:  # noqa: BLE001  - the error that ends the run is another one
                print(f"the batches of step {note.step} could not be drawn again: {error}", flush=True)
        generators = None
        if with_state:
            generators, moved = self._generators()
            for optim, asked in zip(self._infrequent, self._turns, strict=True):
                optim.num_calls = asked
            if trainer.stepper.guard is None and next(trainer.runner.buffers(), None) is not None:
                moved.append("the buffers are as they were after the error")
            note = msgspec.structs.replace(note, inexact=[*note.inexact, *moved])
        self._box.keep(trainer, note, window, generators=generators)

    def log_skipped(self, note: FailureNote) -> None:
        """Writes down that a step was passed over. A full disk is said, and passed over itself."""
        if self._log is not None:
            fields = {name: getattr(note, name) for name in SkippedStep.__struct_fields__}
            _try_write(skipped_steps.append, self._log, SkippedStep(**fields))

    def log_rollback(self, step: int) -> None:
        """Writes down that the run goes on from an earlier step."""
        if self._log is not None:
            _try_write(skipped_steps.append_rewind, self._log, session=self._session, step=step)


def older_checkpoints(trainer: Trainer, step: int) -> list[Manifest]:
    """The run's checkpoints from before a step, the newest first."""
    if trainer.checkpoints is None:
        return []
    # The newest may be on its way; but in one of several ranks that fails, the others need not go on with it.
    trainer.checkpoints.wait(FAILURE_WAIT_SECONDS if trainer.ranks.are_several else None)
    found = trainer.checkpoints.store.lineage()
    return sorted((info for info in found if info.step < step), key=lambda info: -info.id)


def format_error(error: Exception) -> str:
    """An error in one line, with its notes; that of a loader worker as it was raised there."""
    found = record_exception(error)
    match = _OUT_OF_MEMORY.match(found.text)
    text = match[1] if match is not None else found.text
    lines = [one.strip().partition("\n")[0] for one in (text, *found.notes)]
    return ": ".join(filter(None, (found.name, "; ".join(filter(None, lines)))))[:500]


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
