"""The step that a replay was for: it is taken once more, and pdb opens where it fails."""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from roost.base import state_tree
from roost.base.errors import CheckpointError, NotFound
from roost.base.text.durations import format_duration
from roost.base.text.terminal_text import escape_control
from roost.base.traceback_frames import ProjectFiles
from roost.package import environment
from roost.package.checkpoints import checkpoint
from roost.package.results import black_box
from roost.package.results.black_box import BlackBox, FailureNote, DebugTarget
from roost.project.contract import moved
from roost.train.failures.black_box_recorder import redraw_window
from roost.train.failures.step_report import StepReporter, format_error
from roost.train.hook import Hook, Phase
from roost.train.model.module_state import ModuleState
from roost.train.step import seeding
from roost.train.trainer import Trainer
from roost.worker.debug import post_mortem
from roost.worker.debug.nonfinite_trace import NonFiniteTracer, NotFinite
from roost.worker.debug.post_mortem import DebuggerQuit
from roost.worker.debug.replay import ReplayStart

_STATUS_SECONDS = 0.5


class EarlierNonFiniteStep(BaseException):
    """A gradient was not finite before the step of the visit was reached.

    Args:
        step: The step it is of.
    """

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class FailingStepHook(Hook):
    """Says how the replay goes, and ends it at its step, whatever comes of that: raises `DebuggerQuit` then.

    Args:
        visit: Which step, and how.
        box: What is known of the step's failure.
        start: Where the replay begins.
        own: Which files are the person's.
        is_nonfinite: Whether the step fails by a value that is not finite, which nobody raises.
    """

    phase = Phase.REPORT  # after the project's own, the last of all

    def __init__(
        self, visit: DebugTarget, box: BlackBox | None, start: ReplayStart, own: ProjectFiles, *, is_nonfinite: bool
    ) -> None:
        self.visit, self.box, self.start, self.own, self.is_nonfinite = visit, box, start, own, is_nonfinite
        self.exit_code = 0
        self._began = self._told = 0.0
        self._first = 0
        self._is_here = False
        self._quiet = contextlib.ExitStack()

    # ---- the way there ----------------------------------------------------------------------------------

    def quiet(self) -> contextlib.ExitStack:
        """On the way the project prints nothing, and no `breakpoint()` stops it; ended by the arrival."""
        self._quiet.enter_context(contextlib.redirect_stdout(_NullStream()))
        self._quiet.callback(setattr, sys, "breakpointhook", sys.breakpointhook)
        sys.breakpointhook = lambda *_, **__: None
        return self._quiet

    def on_start(self, trainer: Trainer) -> None:
        self._first, self._began = trainer.progress.step, time.monotonic()
        self._told = self._began
        left = self.visit.step - 1 - self._first
        if left:
            _print(f"replaying {left} {'step' if left == 1 else 'steps'} from {self.start.name}")
        elif not self.start.is_box:
            _print(f"from {self.start.name}, which is just before it")
        if self.is_nonfinite and trainer.recovery.on_non_finite == "stop":
            for optim in trainer.stepper.optimizers.values():
                if optim.needs_closure:  # before it, its gradients are those of the step before
                    optim.optimizer.register_step_post_hook(
                        lambda *_: self._require_finite(trainer, weights=True)
                    )
                else:
                    optim.optimizer.register_step_pre_hook(lambda *_: self._require_finite(trainer))

    def before_step(self, trainer: Trainer) -> None:
        if trainer.progress.step + 1 < self.visit.step:
            self._tell(trainer)
            return
        self._is_here = True
        self._quiet.close()
        if self._told > self._began:
            _print("\r\x1b[K", end="")
        self._arrive(trainer)
        raise DebuggerQuit("roost debug")  # what hooks are told of the end

    def _tell(self, trainer: Trainer) -> None:
        now = time.monotonic()
        done = trainer.progress.step - self._first
        if now - self._told >= _STATUS_SECONDS and done:
            self._told = now
            left = self.visit.step - 1 - trainer.progress.step
            more = format_duration(left * (now - self._began) / done)
            _print(f"\r\x1b[Kstep {trainer.progress.step} of {self.visit.step - 1}, {more} more", end="")

    def _require_finite(self, trainer: Trainer, *, weights: bool = False) -> None:
        """Called before an optimizer moves, and after one that evaluates the loss by itself has moved."""
        for optim in trainer.stepper.optimizers.values():
            bad = "" if bool(optim.gradient_norm(float("inf")).isfinite()) else "a gradient"
            if weights and not bad and not all(bool(p.isfinite().all()) for p in optim.parameters):
                bad = "a weight"
            if bad and not self._is_here:
                raise EarlierNonFiniteStep(trainer.progress.step + 1)
            if bad:
                raise NotFinite(f"{bad} is not finite")

    # ---- the step ---------------------------------------------------------------------------------------

    def _arrive(self, trainer: Trainer) -> None:
        note = self.box.note if self.box is not None else None
        if note is None:
            _print(f"step {self.visit.step}: {self._place(trainer).place}")
        for reason in dict.fromkeys([*trainer.inexact, *(note.inexact if note else [])]):
            _print(f"not exactly as it was: {reason}")
        for reason in note.left_out if note else []:
            _print(f"not kept: {reason}")
        if self.start.is_box:
            self._put_back(trainer)
        if trainer.stepper.mode == "compile":
            _print("this step is taken without torch.compile, whose code has no lines to stop at")
        try:
            with torch.compiler.set_stance("force_eager"):  # also what the project has compiled by itself
                values = self._take(trainer)
        except Exception as error:  # noqa: BLE001  - it is what the person came for
            self._tell_error(error, note)
            post_mortem.inspect_error(error, self.own)
            return
        self._tell_passed(trainer, values, note)

    def _put_back(self, trainer: Trainer) -> None:
        """The box was filled after the hooks that come before a step, which now have run a second time."""
        parts = trainer.parts()
        for name in ("model", "optimizers"):
            parts[name].load_state_dict(self.start.states[name])
        for reason in seeding.set_rng_state(self.start.states["rank-0"]["rng"]):
            _print(f"not exactly as it was: {reason}")

    def _take(self, trainer: Trainer) -> Mapping[str, Any]:
        window = self._window(trainer)
        if self.visit.begin:
            return post_mortem.stop_at_first_own_line(self.own, lambda: trainer.take(window))
        return self._hunt(trainer, window) if self.is_nonfinite else trainer.take(window)

    def _hunt(self, trainer: Trainer, window: list[Any]) -> Mapping[str, Any]:
        """Takes the step under a `NonFiniteTracer`, and once more to stop in it at the call that was found."""
        runner, parts = trainer.runner, trainer.parts()
        saved = {name: copy.deepcopy(parts[name].state_dict()) for name in ("model", "optimizers")}
        generators, again = seeding.rng_state(), _copy_window(window)
        # In fp16 the scaler tries scales that are too large, on purpose.
        is_scaled = trainer.stepper.precision == "fp16"
        watch = NonFiniteTracer(self.own, runner, window, backward=not is_scaled)
        try:
            with watch:
                values = trainer.take(window)
            ModuleState(runner).check_finite()
            if is_scaled or not _norm_overflows(values):
                return values
            raise watch.overflow()
        except NotFinite as error:
            _print(f"{error}; it comes from" if watch.origins else f"{error}; no call of torch made it so")
            for origin in watch.origins:
                _print(f"  {origin.place or 'no line of the project'}: {origin.text}")
            first = next((one for one in watch.origins if one.call == error.call), None)
            if first is None:
                raise
        for name, state in saved.items():
            parts[name].load_state_dict(state)
        seeding.set_rng_state(generators)
        with NonFiniteTracer(self.own, runner, again, stop_at=first):
            return trainer.take(again)

    # ---- its micro-batches ------------------------------------------------------------------------------

    def _place(self, trainer: Trainer) -> FailureNote:
        return StepReporter().of(trainer, self.visit.step)

    def _window(self, trainer: Trainer) -> list[Any]:
        """As the step got them: drawn anew, or those of the box where these differ or cannot be drawn."""
        place, kept = self._place(trainer), self._kept(trainer)
        try:
            found: list[Any] = redraw_window(trainer, place)
        except Exception as error:
            if kept is None:
                raise
            _print(f"the batch is that of the box; the set does not give it any more: {format_error(error)}")
            found = kept
        if kept is not None and not _same(kept, found):
            if trainer.loaders["train"].inexact_reasons():
                found = kept
            else:
                _print(
                    "the batch is drawn anew; the one that was kept after the error differs: the step changes"
                )
                _print("it in place, or the data have changed since")
        return found

    def _kept(self, trainer: Trainer) -> list[Any] | None:
        if self.box is None or not self.box.has_batch:
            return None
        try:
            _, states = checkpoint.read(self.box.path, only=[black_box.BATCH])
        except (CheckpointError, NotFound, OSError) as error:
            _print(f"the batch of the box cannot be read: {format_error(error)}")
            return None
        return list(moved(states[black_box.BATCH]["window"], trainer.runner.device))

    # ---- telling ----------------------------------------------------------------------------------------

    def _tell_error(self, error: Exception, note: FailureNote | None) -> None:
        then = note is not None and note.kind == "error" and note.error.split(":")[0] != type(error).__name__
        _print(f"it fails{', and otherwise than then' if then else ''}: {format_error(error)}")

    def _tell_passed(self, trainer: Trainer, values: Mapping[str, Any], note: FailureNote | None) -> None:
        shown = _format_values(values)
        if note is None or self.visit.begin:
            _print(f"step {self.visit.step} went through: {shown}")
            return
        self.exit_code = 1
        _print(f"step {self.visit.step} does not fail this time: {shown}")
        now = environment.stack(str(trainer.runner.device))
        different = environment.stack_differences(note.stack, now)
        if not self.start.is_box and different:
            different.append("the steps before it were taken anew")
        different += note.inexact
        if trainer.stepper.mode == "compile":
            different.append("torch.compile took the step then")
        if self.start.is_box:
            _print("  to go there by taking the steps before it once more: --replay")
        for reason in different or [
            "nothing that roost knows of: files, time, other processes, other threads"
        ]:
            _print(f"  what differs from then: {reason}")


def _norm_overflows(values: Mapping[str, Any]) -> bool:
    """Whether a norm of gradients is not finite."""
    norms = [value for name, value in values.items() if name.endswith("grad_norm")]
    return not all(bool(torch.as_tensor(norm).isfinite().all()) for norm in norms)


def _format_values(values: Mapping[str, Any]) -> str:
    """What a step records, the losses first."""
    names = sorted(values, key=lambda name: not name.endswith("loss"))
    found = [(name, values[name]) for name in names if name != "weight"]
    return ", ".join(f"{n} {float(v):.4g}" for n, v in found if not torch.is_tensor(v) or v.numel() == 1)


def _print(text: str, *, end: str = "\n") -> None:
    print(text if end == "" else escape_control(text), end=end, file=sys.stderr, flush=True)


def _copy_window(window: list[Any]) -> list[Any]:
    try:
        return copy.deepcopy(window)
    except Exception:  # noqa: BLE001  - a batch may hold anything; then the second pass takes this very one
        return window


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    try:
        (skeleton, storages), (other_skeleton, others) = (
            state_tree.pack(list(one)),
            state_tree.pack(list(other)),
        )
    except CheckpointError:
        return False
    return skeleton == other_skeleton and all(storages[name] == others[name] for name in storages)


class _NullStream(io.TextIOBase):
    """A stream whose text nobody reads."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        return len(text)
