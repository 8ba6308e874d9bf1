"""What becomes of a run when a step fails: an error in it, or a loss that is not finite."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import torch
from torch import Tensor

from roost.base import durable
from roost.base.errors import Damaged, NotFound, RoostError, TrainingError
from roost.train import seeding
from roost.train.blackbox import BlackBox, Note, samples_of, window_again
from roost.train.events import Value
from roost.train.rank_state import RankState
from roost.train.windows import Drawn, Windows, undrawn

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

MAX_ROLLBACKS = 3
Kind = Literal["error", "nonfinite", "rollback"]
_NOT_FINITE = "the loss or a gradient is not finite"
_SKIPPED: Mapping[str, Value] = {"skipped": 1.0}


class Rollback(Exception):
    """The run must go back to before this step, whose loss or gradient is not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class Recovery:
    """Decides what a step that fails does to the run, keeps what is needed to look into it, and tells it.

    A step that is passed over counts as a step: the data go on, the weights stay.

    Args:
        on_non_finite: "stop"; "skip" the step; or "rollback": go back to the newest checkpoint before it, and
            pass over its window, at most 3 times.
        on_step_error: "raise"; or "skip", as long as no optimizer has moved in that step.
        max_skipped_steps: Steps that may be skipped before the run fails.
        box: Keeps the step at which the run ends.
        log: Takes a line for each step that was passed over; no file when None.
        session: Number of the running session.
    """

    def __init__(
        self,
        *,
        on_non_finite: Literal["stop", "skip", "rollback"] = "stop",
        on_step_error: Literal["raise", "skip"] = "raise",
        max_skipped_steps: int = 100,
        box: BlackBox | None = None,
        log: Path | None = None,
        session: int = 0,
    ) -> None:
        self.on_non_finite, self.on_step_error = on_non_finite, on_step_error
        self._most, self._box, self._log, self._session = max_skipped_steps, box, log, session
        self.num_skipped = 0
        self.passed_over: set[int] = set()
        """Steps whose windows a rollback passes over."""
        self._flags: list[tuple[int, Tensor]] = []
        """Steps that were looked at since the last row, and whether they were bad: () on the device."""
        self._is_careful = True
        self._sources: list[torch.Generator] = []
        self._drawn: list[Tensor] = []
        self._others: dict[str, Any] = {}

    # ---- one step ---------------------------------------------------------------------------------------

    def prepare(self, trainer: Trainer) -> None:
        """A run that may go back needs something to go back to, from its first step on."""
        checkpoints = trainer.checkpoints
        if self.on_non_finite == "rollback" and checkpoints is not None and checkpoints.newest is None:
            trainer.save("start")

    def begin(self) -> None:
        """Training begins, or goes on: from here on the generators are watched."""
        self._is_careful = self.on_non_finite != "stop" or bool(self.passed_over)
        cuda = [torch.cuda.default_generators[torch.cuda.current_device()]] if seeding.uses_cuda() else []
        self._sources = [torch.default_generator, *cuda] if self._box is not None else []
        self._others = seeding.rng_state(devices=False)

    def _generators(self) -> tuple[dict[str, Any], list[str]]:
        """The generators at the begin of the step that failed, and why some are not."""
        now = seeding.rng_state()
        moved = [
            f"{name} generator is as it was after the error"
            for key, name in (("numpy", "NumPy's"), ("python", "Python's"))
            if not _same(now[key], self._others[key])
        ]
        then = {**now, **dict(zip(("torch", "cuda"), (self._drawn[0], self._drawn[1:]), strict=True))}
        return then, moved

    def attempt(self, trainer: Trainer, windows: Windows) -> tuple[Mapping[str, Value], Drawn]:
        """Draws a window and takes its step; gives what is recorded, and the window.

        Raises:
            Exception: What the step raised, where it may not be passed over; the black box then holds it.
            TrainingError: Too many were passed over.
        """
        drawn = None
        try:
            # Torch's generators as the step finds them, 1 µs. NumPy's and Python's would be 30 µs; steps that
            # draw from those are found out afterwards.
            self._drawn = [source.get_state() for source in self._sources]
            drawn = windows.draw()
            return (self._step(trainer, drawn[0]) if self._is_careful else trainer.take(drawn[0])), drawn
        except Exception as error:
            values = self._failed(trainer, drawn and drawn[0], error)
            if values is None:
                raise
            return values, drawn or undrawn(trainer)

    def _step(self, trainer: Trainer, window: Sequence[Any]) -> Mapping[str, Value]:
        """A step that may be passed over."""
        number = trainer.progress.step + 1
        if number in self.passed_over:
            return _SKIPPED
        guard = trainer.stepper.guard
        assert guard is not None
        guard.flag = None
        values = trainer.take(window)
        if guard.flag is not None:
            self._flags.append((number, guard.flag))
        return values

    def _failed(
        self, trainer: Trainer, window: Sequence[Any] | None, error: Exception
    ) -> Mapping[str, Value] | None:
        """Called inside the ``except`` of a step that raised; gives what is recorded instead of it, or None
        where it may not be passed over: then the black box holds it.

        Args:
            trainer: Its progress is that of the step before.
            window: Its micro-batches; None when drawing them failed.

        Raises:
            TrainingError: Too many were passed over.
        """
        note = self._note(trainer, trainer.progress.step + 1, "error", _said(error))
        may = self.on_step_error == "skip" and not isinstance(error, RoostError)
        if not may or trainer.stepper.has_moved:
            self._keep(trainer, note, window, with_state=True)
            if may:
                error.add_note("not skipped: an optimizer had begun to move in this step already")
            return None
        self._skip(trainer, note)
        guard = trainer.stepper.guard
        if guard is not None and window is not None:
            guard.restore()
        for optim in trainer.stepper.optimizers.values():
            optim.clear()
        # What the frames of the failed step hold is as large as the step itself.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, torch.OutOfMemoryError):
            trainer.note_inexact(f"step {note.step} was skipped for want of memory")
            torch.cuda.empty_cache()
        return _SKIPPED

    # ---- looking, where values are read anyway ----------------------------------------------------------

    def look(self, trainer: Trainer) -> None:
        """Finds out which steps since the last look were bad. A sync point; for rows and saves.

        Raises:
            Rollback: There is one, and the policy goes back.
            TrainingError: Too many were skipped.
        """
        flags, self._flags = self._flags, []
        if not flags:
            return
        bad = torch.stack([flag for _, flag in flags]).tolist()
        for (step, _), is_bad in zip(flags, bad, strict=True):
            if not is_bad:
                continue
            if self.on_non_finite == "rollback":
                raise Rollback(step)
            self._skip(trainer, self._note(trainer, step, "nonfinite", _NOT_FINITE))

    def stop(self, trainer: Trainer, said: str) -> TrainingError:
        """The error of a run that stops at a loss that is not finite; the black box holds the first bad step.

        Args:
            said: What is wrong.
        """
        first = trainer.events.first_bad
        if first is not None:
            note = self._note(trainer, first, "nonfinite", said)
            said = f"{said}, first in step {first} ({_shown(note.samples)})"
            self._keep(trainer, note, None, with_state=False)
        return TrainingError(
            said,
            fix="make the learning rate smaller, clip with max_grad_norm, set on_non_finite, or look for bad "
            "samples; the last checkpoint is from before it",
        )

    # ---- going back -------------------------------------------------------------------------------------

    def roll_back(self, trainer: Trainer, step: int) -> None:
        """Puts the trainer back to the newest good checkpoint before ``step``, and passes over its window.

        Raises:
            TrainingError: It was done too often, or there is no checkpoint.
        """
        note = self._note(trainer, step, "rollback", _NOT_FINITE)
        if len(self.passed_over) == MAX_ROLLBACKS:
            self._keep(trainer, note, None, with_state=False)
            before = ", ".join(map(str, sorted(self.passed_over)))
            raise TrainingError(
                f"step {step} is not finite either, after {MAX_ROLLBACKS} rollbacks (steps {before})",
                fix="make the learning rate smaller or clip with max_grad_norm: it is not the data of a step",
            )
        rank = RankState()
        loaded = self._load(trainer, {**trainer.parts(), "rank-0": rank}, before=step)
        self.passed_over.add(step)
        self._flags = []
        self._write(note)
        rank.restore()
        print(
            f"step {step}: {note.error}; back to checkpoint {loaded} of step {trainer.progress.step}, and "
            f"that window is passed over ({_shown(note.samples)})",
            flush=True,
        )

    def _load(self, trainer: Trainer, parts: Mapping[str, Any], *, before: int) -> int:
        found = trainer.checkpoints.store.line() if trainer.checkpoints is not None else []
        for info in sorted((one for one in found if one.step < before), key=lambda one: -one.id):
            assert trainer.checkpoints is not None
            try:
                trainer.checkpoints.load(parts, id=info.id)
            except (Damaged, NotFound, OSError) as error:
                print(f"not back to checkpoint {info.id}: {error}", flush=True)
            else:
                return info.id
        raise TrainingError(
            f"step {before} is not finite, and there is no checkpoint to go back to",
            setting="on_non_finite",
            received="rollback",
            fix="save more often (checkpoint.every), or use skip",
        )

    # ---- telling ----------------------------------------------------------------------------------------

    def _note(self, trainer: Trainer, step: int, kind: Kind, error: str) -> Note:
        """Where a step's window lies follows from its number: each takes as many micro-batches as the others
        but the last of an epoch."""
        loader, per_step = trainer.loaders["train"], trainer.stepper.batches_per_step
        epoch, number = divmod(step - 1, trainer.steps_per_epoch)
        batch = number * per_step
        newest = [one for one in self._infos(trainer) if one.step < step]
        return Note(
            step=step,
            epoch=epoch,
            batch=batch,
            num_batches=min(per_step, len(loader) - batch),
            samples=samples_of(loader, epoch, batch, min(per_step, len(loader) - batch)),
            kind=kind,
            error=error,
            session=self._session,
            checkpoint=newest[-1].id if newest else None,
            inexact=list(trainer.inexact),
        )

    def _keep(self, trainer: Trainer, note: Note, window: Sequence[Any] | None, *, with_state: bool) -> None:
        """Puts a step into the black box: its window, and its begin's state where that is still there."""
        if self._box is None:
            return
        if window is None and note.kind != "error":
            try:
                window = window_again(trainer, note.epoch, note.batch, note.num_batches)
            except Exception as error:  # noqa: BLE001  - the error that ends the run is another one
                print(f"the batches of step {note.step} could not be drawn again: {error}", flush=True)
        generators = None
        if with_state:
            generators, moved = self._generators()
            note = msgspec.structs.replace(note, inexact=[*note.inexact, *moved])
        self._box.keep(trainer, note, window, generators=generators)

    def _infos(self, trainer: Trainer) -> list[Any]:
        return sorted(trainer.checkpoints.store.line(), key=lambda one: one.id) if trainer.checkpoints else []

    def _skip(self, trainer: Trainer, note: Note) -> None:
        self.num_skipped += 1
        self._write(note)
        print(f"step {note.step} skipped: {note.error} ({_shown(note.samples)})", flush=True)
        if self.num_skipped > self._most:
            raise TrainingError(
                f"{self.num_skipped} steps were skipped; the last one, {note.step}: {note.error}",
                setting="max_skipped_steps",
                received=self._most,
                fix="look at the samples in skipped.jsonl, or allow more",
            )

    def _write(self, note: Note) -> None:
        if self._log is None:
            return
        line = {
            "session": note.session,
            "step": note.step,
            "epoch": note.epoch,
            "batch": note.batch,
            "kind": note.kind,
            "error": note.error,
            "samples": note.samples,
        }
        try:
            fd = durable.open_append(self._log)
            try:
                durable.append(fd, msgspec.json.encode(line) + b"\n")
            finally:
                os.close(fd)
        except OSError as error:
            print(f"not written to {self._log.name}: {error}", flush=True)

    # ---- state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was passed over so far."""
        return {"skipped": self.num_skipped, "passed_over": sorted(self.passed_over)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave. What this session knows already stays: a rollback loads the
        state from before it."""
        self.num_skipped = max(self.num_skipped, state["skipped"])
        self.passed_over |= set(state["passed_over"])


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(np.array_equal(value, other[name]) for name, value in one.items())


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:500]


def _shown(samples: Sequence[int]) -> str:
    named = ", ".join(map(str, samples[:8])) + (", …" if len(samples) > 8 else "")
    return f"samples {named}"
