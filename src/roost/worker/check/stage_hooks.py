"""Hooks that a check adds between those of the run: they report its stages."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from torch import Tensor

from roost.base.errors import Refused
from roost.base.text.byte_sizes import format_bytes
from roost.package.checkpoints.checkpoint import Manifest
from roost.train import hooks
from roost.train.accelerators.registry import accelerator_of
from roost.train.checkpointing.checkpoints import Stateful
from roost.train.hook import Hook, Phase
from roost.train.hooks.console import format_metrics
from roost.train.trainer import Trainer
from roost.worker.check.resume_comparison import Fingerprints, fingerprints_after_step
from roost.worker.check.short_run import CallbackHook, without_console
from roost.worker.check.stages import StageReporter

_MAX_CHECKPOINTS = 3
"""Most checkpoints of a check that are on the disk at one time."""
_MAX_CHARACTERS = 120
"""Longest description of a batch."""


class StageHooks:
    """Follows the shortened run and reports each of its stages.

    Args:
        reporter: Gets the stages.
        steps: Steps of the run.
        place: Folder of its package, on the disk that takes the checkpoints.
    """

    def __init__(self, reporter: StageReporter, *, steps: int, place: Path) -> None:
        self._reporter, self._steps, self._place = reporter, steps, place
        self._samples, self._batch = 0, ""
        self.saved: Manifest | None = None
        """The checkpoint of the first step."""
        self.final_state: Fingerprints = {}
        """The state right after the last step."""
        self._validate: hooks.Validate | None = None
        self._test: hooks.Test | None = None
        self._test_summary = ""

    def hooks(self, given: Sequence[Hook]) -> list[Hook]:
        """Returns the hooks of the run, with callback hooks before and after their phases."""
        first = [
            CallbackHook(
                0, Phase.MODEL, start=self._observe_batches, before=self._before_step, step=self._after_step
            ),
            CallbackHook(1, Phase.EVAL, step=self._before_eval, stop=self._before_test),
            CallbackHook(2, Phase.DECIDE, step=self._after_eval, stop=self._after_test),
            CallbackHook(3, Phase.RECORD, step=lambda trainer: self._reporter.begin("row")),
        ]
        last = [
            CallbackHook(4, Phase.RECORD, step=self._after_row),
            CallbackHook(5, Phase.SAVE, step=self._after_save),
        ]
        for hook in given:
            if isinstance(hook, hooks.Validate):
                self._validate = hook
            if isinstance(hook, hooks.Test):
                self._test, hook.report = hook, self._note_test
        return [*first, *without_console(given), *last]

    def _note_test(self, text: str) -> None:
        self._test_summary = text

    def _observe_batches(self, trainer: Trainer) -> None:
        """Describes the last batch of each step before the step is taken."""
        take_step = trainer.take_step

        def observed_step(window: Sequence[Any]) -> Mapping[str, Any]:
            self._batch = describe_value(window[-1])
            return take_step(window)

        trainer.take_step = observed_step

    def _before_step(self, trainer: Trainer) -> None:
        progress = trainer.progress
        if progress.step == 0:
            self._end_start({name for _, name in trainer.calls.monitors(trainer)})
        self._samples, self._batch = progress.samples, "nothing"
        # A shortened epoch has at most two windows: what comes after another one is the last.
        self._reporter.begin(
            "first step" if progress.step == 0 else "last step" if progress.batch else "next step"
        )

    def _end_start(self, monitors: Set[str]) -> None:
        """Records a warning for each value of `Runner.evaluate` that is no metric, which `Validate` has
        printed."""
        for name in self._validate.left_out if self._validate is not None else ():
            self._reporter.warn(f"{name} is not a metric", is_printed=True)
        self._reporter.done(f"decides by {', '.join(sorted(monitors))}" if monitors else "")

    def _after_step(self, trainer: Trainer) -> None:
        # So that the step's time and its errors are counted here.
        accelerator_of(trainer.runner.device).synchronize()
        progress, per_step = trainer.progress, trainer.stepper.batches_per_step
        last = f", the last of up to {per_step}" if per_step > 1 else ""
        number = progress.samples - self._samples
        self._reporter.done(f"{number} sample{'s' * (number != 1)}; a batch{last}: {self._batch}")
        if progress.step == 1 and trainer.checkpoints is not None:
            self._reporter.begin("save")
            _require_space(trainer.parts(), self._place)
            trainer.request_save()
        self._reporter.begin("hooks")
        trainer.agenda.request("record")
        if progress.step == self._steps:
            self.final_state = fingerprints_after_step(trainer.parts())

    def _before_eval(self, trainer: Trainer) -> None:
        self._reporter.begin("validation")

    def _after_eval(self, trainer: Trainer) -> None:
        if results := trainer.results:
            self._reporter.done(format_metrics(results))
            self._reporter.record_measurements(validation=dict(results))
            self._warn_of_nonfinite(results)
        self._reporter.begin("hooks")

    def _after_row(self, trainer: Trainer) -> None:
        valid = trainer.results.keys()
        self._reporter.done(
            format_metrics({name: value for name, value in trainer.row.items() if name not in valid})
        )
        self._reporter.begin("save")

    def _after_save(self, trainer: Trainer) -> None:
        newest = trainer.newest_checkpoint
        if newest is not None and newest.step == trainer.progress.step:
            self._reporter.done(f"{format_bytes(newest.size_bytes)} in {len(newest.files)} files")
            self.saved = self.saved or newest
        self._reporter.begin("hooks")

    def _before_test(self, trainer: Trainer) -> None:
        if self._test is not None:
            self._reporter.begin("test")

    def _after_test(self, trainer: Trainer) -> None:
        found = {name: value for name, value in trainer.row.items() if name.partition("/")[0] == "test"}
        if self._test is not None and not found:
            return  # the test failed: `fit` raises its error after `on_stop` of all hooks
        if found:
            self._reporter.done(self._test_summary)
            self._reporter.record_measurements(test=found)
            self._warn_of_nonfinite(found)
        self._reporter.begin("hooks")

    def _warn_of_nonfinite(self, found: Mapping[str, float]) -> None:
        for name, value in found.items():
            if not math.isfinite(value):
                self._reporter.warn(f"{name} is {value}, so no hook can decide by it")


def _require_space(parts: Mapping[str, Stateful], place: Path) -> None:
    """Makes sure that the checkpoints of a check fit on the disk, before one is written.

    Raises:
        Refused: The disk has not enough free space.
    """
    needed = _MAX_CHECKPOINTS * sum(_num_bytes(part.state_dict()) for part in parts.values())
    free = shutil.disk_usage(place).free
    if needed > free:
        sizes = f"{format_bytes(needed)}, and the disk of {place.parent} has {format_bytes(free)} left"
        raise Refused(
            f"the check saves {sizes}",
            fix="name a folder on a larger disk for them: TMPDIR=/path roost check ...",
        )


def _num_bytes(state: Any) -> int:
    """Returns the bytes of all tensors in a nest."""
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, Mapping):
        return sum(map(_num_bytes, state.values()))
    return sum(map(_num_bytes, state)) if isinstance(state, list | tuple) else 0


def describe_value(value: Any) -> str:
    """Describes a batch in one short line: ``float32 (64, 3), int64 (64,)``."""
    text = _describe_nest(value)
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + " …"


def _describe_nest(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_describe_nest(one)}" for name, one in value.items())
    if isinstance(value, list | tuple) and any(
        isinstance(one, Tensor | Mapping | list | tuple) for one in value
    ):
        return ", ".join(map(_describe_nest, value))
    if isinstance(value, list | tuple):
        return f"{len(value)} {type(value[0]).__name__}" if value else "nothing"
    return f"{type(value).__name__} {value.shape}" if hasattr(value, "shape") else type(value).__name__
