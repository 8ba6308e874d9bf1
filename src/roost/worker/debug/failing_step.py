"""The last step of a replay, which is taken once more; pdb opens where it fails."""

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
from roost.config.step_modes import STEP_MODES
from roost.package.checkpoints import checkpoint
from roost.package.results import black_box
from roost.package.results.black_box import BlackBox, DebugTarget, FailureNote
from roost.package.resume import environment
from roost.project.contract import move_to_device
from roost.train.accelerators.registry import accelerator_of
from roost.train.failures.black_box_recorder import redraw_window
from roost.train.failures.step_context import StepContext
from roost.train.failures.step_report import StepReporter, format_error
from roost.train.hook import Hook, Phase
from roost.train.model.module_state import ModuleState
from roost.train.step import seeding
from roost.train.step.loss import StepFunction
from roost.train.trainer import Trainer
from roost.worker.debug import post_mortem
from roost.worker.debug.nonfinite_trace import NonFiniteTracer, NotFinite
from roost.worker.debug.post_mortem import DebuggerQuit
from roost.worker.debug.replay import ReplayStart

_STATUS_SECONDS = 0.5


class EarlierNonFiniteStep(BaseException):
    """A gradient is not finite in a step before the requested one.

    Args:
        step: Number of that step.
    """

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class FailingStepHook(Hook):
    """Prints the progress of a replay, takes its last step in the debugger, and always ends the replay there
    by raising `DebuggerQuit`.

    Args:
        target: The requested step and options.
        box: Black box of the step's failure, if there is one.
        start: State at which the replay starts.
        own: The project's files.
        is_nonfinite: Whether the step failed by a non-finite value, for which torch raises no error.
    """

    phase = Phase.REPORT  # the last of all, after the project's hooks

    def __init__(
        self,
        target: DebugTarget,
        box: BlackBox | None,
        start: ReplayStart,
        own: ProjectFiles,
        *,
        is_nonfinite: bool,
    ) -> None:
        self.target, self.box, self.start, self.own, self.is_nonfinite = target, box, start, own, is_nonfinite
        self.exit_code = 0
        self._began = self._printed_at = 0.0
        self._first = 0
        self._is_last_step = False
        self._quiet = contextlib.ExitStack()

    def quiet(self) -> contextlib.ExitStack:
        """Suppresses the project's output and `breakpoint()` until the requested step is reached."""
        self._quiet.enter_context(contextlib.redirect_stdout(_NullStream()))
        self._quiet.callback(setattr, sys, "breakpointhook", sys.breakpointhook)
        sys.breakpointhook = lambda *_, **__: None
        return self._quiet

    def on_start(self, trainer: Trainer) -> None:
        context = trainer.step_context
        self._first, self._began = context.progress.step, time.monotonic()
        self._printed_at = self._began
        num_steps = self.target.step - 1 - self._first
        if num_steps:
            _print(f"replaying {num_steps} {'step' if num_steps == 1 else 'steps'} from {self.start.name}")
        elif not self.start.is_box:
            _print(f"from {self.start.name}, which is the state just before it")
        if self.is_nonfinite and trainer.recovery.on_non_finite == "stop":
            for optim in context.stepper.optimizers.values():
                if optim.needs_closure:  # in the pre-hook its gradients would be those of the step before
                    optim.optimizer.register_step_post_hook(
                        lambda *_: self._require_finite(context, weights=True)
                    )
                else:
                    optim.optimizer.register_step_pre_hook(lambda *_: self._require_finite(context))

    def before_step(self, trainer: Trainer) -> None:
        done = trainer.progress.step
        if done + 1 < self.target.step:
            self._print_status(done)
            return
        self._is_last_step = True
        self._quiet.close()
        if self._printed_at > self._began:
            _print("\r\x1b[K", end="")
        last = FailingStep(
            self.target,
            self.box,
            self.start,
            self.own,
            is_nonfinite=self.is_nonfinite,
            context=trainer.step_context,
            take_step=trainer.take_step,
        )
        self.exit_code = last.take()
        raise DebuggerQuit("roost debug")  # the reason that `on_stop` of the hooks gets

    def _print_status(self, step: int) -> None:
        now = time.monotonic()
        done = step - self._first
        if now - self._printed_at >= _STATUS_SECONDS and done:
            self._printed_at = now
            num_steps = self.target.step - 1 - step
            remaining = format_duration(num_steps * (now - self._began) / done)
            _print(f"\r\x1b[Kstep {step} of {self.target.step - 1}, {remaining} left", end="")

    def _require_finite(self, context: StepContext, *, weights: bool = False) -> None:
        """Called before an optimizer step; for an optimizer with a closure, after its step."""
        for optim in context.stepper.optimizers.values():
            bad = "" if bool(optim.gradient_norm(float("inf")).isfinite()) else "a gradient"
            if weights and not bad and not all(bool(p.isfinite().all()) for p in optim.parameters):
                bad = "a weight"
            if bad and not self._is_last_step:
                raise EarlierNonFiniteStep(context.progress.step + 1)
            if bad:
                raise NotFinite(f"{bad} is not finite")


class FailingStep:
    """The requested step, taken once more: pdb opens where it fails.

    Args:
        target, box, start, own, is_nonfinite: As of `FailingStepHook`.
        context: The parts of the trainer that has replayed the steps before.
        take_step: Takes the step of a window, as in the run.
    """

    def __init__(
        self,
        target: DebugTarget,
        box: BlackBox | None,
        start: ReplayStart,
        own: ProjectFiles,
        *,
        is_nonfinite: bool,
        context: StepContext,
        take_step: StepFunction,
    ) -> None:
        self.target, self.box, self.start, self.own, self.is_nonfinite = target, box, start, own, is_nonfinite
        self._context, self._take_step = context, take_step
        self._compiles = STEP_MODES[context.stepper.mode].compiles

    def take(self) -> int:
        """Takes the step; returns the exit code, which is not 0 if the step does not fail again."""
        note = self.box.note if self.box is not None else None
        if note is None:
            _print(f"step {self.target.step}: {self._place().location}")
        for reason in dict.fromkeys([*self._context.inexact, *(note.inexact if note else [])]):
            _print(f"not exactly as it was: {reason}")
        for reason in note.left_out if note else []:
            _print(f"not from_box: {reason}")
        if self.start.is_box:
            self._restore_box()
        if self._compiles:
            _print("this step is taken without torch.compile: compiled code has no lines to stop at")
        try:
            with torch.compiler.set_stance("force_eager"):  # also for code that the project compiles
                values = self._take()
        except Exception as error:  # noqa: BLE001  - the error that the user wants to see
            self._print_error(error, note)
            post_mortem.inspect_error(error, self.own)
            return 0
        if note is None or self.target.begin:
            _print(f"step {self.target.step} went through: {_format_values(values)}")
            return 0
        self._print_passed(values, note)
        return 1

    def _restore_box(self) -> None:
        """Restores the state of the black box again: it was saved after the hooks' `before_step`, which have
        run a second time now."""
        parts = self._context.parts()
        for name in ("model", "optimizers"):
            parts[name].load_state_dict(self.start.states[name])
        for reason in seeding.set_rng_state(self.start.states["rank-0"]["rng"]):
            _print(f"not exactly as it was: {reason}")

    def _take(self) -> Mapping[str, Any]:
        window = self._window()
        if self.target.begin:
            return post_mortem.stop_at_first_own_line(self.own, lambda: self._take_step(window))
        return self._trace_nonfinite(window) if self.is_nonfinite else self._take_step(window)

    def _trace_nonfinite(self, window: list[Any]) -> Mapping[str, Any]:
        """Takes the step under a `NonFiniteTracer`, then once more to stop at the call that was found."""
        runner, parts = self._context.runner, self._context.parts()
        saved = {name: copy.deepcopy(parts[name].state_dict()) for name in ("model", "optimizers")}
        generators, window_copy = seeding.rng_state(), _copy_window(window)
        # In fp16 the gradient scaler tries scales that are too large, on purpose.
        is_scaled = self._context.stepper.precision == "fp16"
        watch = NonFiniteTracer(self.own, runner, window, backward=not is_scaled)
        try:
            with watch:
                values = self._take_step(window)
            ModuleState(runner).check_finite()
            if is_scaled or not _norm_overflows(values):
                return values
            raise watch.overflow()
        except NotFinite as error:
            _print(f"{error}; it comes from" if watch.origins else f"{error}; no call of torch made it")
            for origin in watch.origins:
                _print(f"  {origin.place or 'no line of the project'}: {origin.text}")
            first = next((one for one in watch.origins if one.call == error.call), None)
            if first is None:
                raise
        for name, state in saved.items():
            parts[name].load_state_dict(state)
        seeding.set_rng_state(generators)
        with NonFiniteTracer(self.own, runner, window_copy, stop_at=first):
            return self._take_step(window_copy)

    # ---- its window -------------------------------------------------------------------------------------

    def _place(self) -> FailureNote:
        return StepReporter().note_for(self._context, self.target.step)

    def _window(self) -> list[Any]:
        """Returns the step's micro-batches, drawn again from the loader. Those of the black box are taken if
        drawing fails, or if they differ and the loader is inexact."""
        loader, place, from_box = self._context.loader, self._place(), self._batch_of_box()
        try:
            found: list[Any] = redraw_window(loader, self._context.runner.to_device, place)
        except Exception as error:
            if from_box is None:
                raise
            _print(f"the batch is that of the black box; the set no longer gives it: {format_error(error)}")
            found = from_box
        if from_box is not None and not _same(from_box, found):
            if loader.inexact_reasons():
                found = from_box
            else:
                _print("the batch is drawn again; the one in the black box differs: the step changes")
                _print("it in place, or the data have changed since then")
        return found

    def _batch_of_box(self) -> list[Any] | None:
        if self.box is None or not self.box.has_batch:
            return None
        try:
            _, states = checkpoint.read(self.box.path, only=[black_box.BATCH])
        except (CheckpointError, NotFound, OSError) as error:
            _print(f"the batch of the black box cannot be read: {format_error(error)}")
            return None
        return list(move_to_device(states[black_box.BATCH]["window"], self._context.runner.device))

    # ---- messages ---------------------------------------------------------------------------------------

    def _print_error(self, error: Exception, note: FailureNote | None) -> None:
        differs = (
            note is not None and note.kind == "error" and note.error.split(":")[0] != type(error).__name__
        )
        _print(f"it fails{', with another error than in the run' if differs else ''}: {format_error(error)}")

    def _print_passed(self, values: Mapping[str, Any], note: FailureNote) -> None:
        _print(f"step {self.target.step} does not fail this time: {_format_values(values)}")
        device = self._context.runner.device
        now = environment.stack(str(device), accelerator_of(device))
        different = environment.stack_differences(note.stack, now)
        if not self.start.is_box and different:
            different.append("the steps before it were replayed")
        different += note.inexact
        if self._compiles:
            different.append("the run used torch.compile for the step")
        if self.start.is_box:
            _print("  to replay the steps before it as well: --replay")
        for reason in different or [
            "nothing that roost records; perhaps files, the time, other processes or threads"
        ]:
            _print(f"  what differs from the run: {reason}")


def _norm_overflows(values: Mapping[str, Any]) -> bool:
    """Whether a gradient norm of the step is not finite."""
    norms = [value for name, value in values.items() if name.endswith("grad_norm")]
    return not all(bool(torch.as_tensor(norm).isfinite().all()) for norm in norms)


def _format_values(values: Mapping[str, Any]) -> str:
    """Formats the recorded scalars of a step, the losses first."""
    names = sorted(values, key=lambda name: not name.endswith("loss"))
    found = [(name, values[name]) for name in names if name != "weight"]
    return ", ".join(f"{n} {float(v):.4g}" for n, v in found if not torch.is_tensor(v) or v.numel() == 1)


def _print(text: str, *, end: str = "\n") -> None:
    print(text if end == "" else escape_control(text), end=end, file=sys.stderr, flush=True)


def _copy_window(window: list[Any]) -> list[Any]:
    try:
        return copy.deepcopy(window)
    except Exception:  # noqa: BLE001  - a batch may hold anything; then the second pass takes the same object
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
    """A text stream that discards its text."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        return len(text)
