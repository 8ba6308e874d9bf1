"""Hooks that a check adds between those of the run: they report its stages."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from roost.base.errors import Refused
from roost.base.text.byte_sizes import format_bytes
from roost.package.checkpoints.checkpoint import Manifest
from roost.train import hooks
from roost.train.accelerators.registry import accelerator_of
from roost.train.evaluation import split_evaluation
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
        self._has_test, self._test_summary = False, ""

    def hooks(self, given: Sequence[Hook]) -> list[Hook]:
        """Returns the hooks of the run, with callback hooks before and after their phases."""
        first = [
            CallbackHook(0, Phase.MODEL, start=self._start, before=self._before_step, step=self._after_step),
            CallbackHook(1, Phase.EVAL, step=self._before_eval, stop=self._before_test),
            CallbackHook(2, Phase.DECIDE, step=self._after_eval, stop=self._after_test),
            CallbackHook(3, Phase.RECORD, step=lambda trainer: self._reporter.begin("row")),
        ]
        last = [
            CallbackHook(4, Phase.RECORD, step=self._after_row),
            CallbackHook(5, Phase.SAVE, step=self._after_save),
        ]
        for hook in given:
            if isinstance(hook, hooks.Test):
                hook.report = self._note_test
        return [*first, *without_console(given), *last]

    def _note_test(self, text: str) -> None:
        self._test_summary = text

    def _start(self, trainer: Trainer) -> None:
        self._observe_batches(trainer)
        self._warn_of_values_without_metric(trainer)

    def _observe_batches(self, trainer: Trainer) -> None:
        """Describes the last batch of each step before the step is taken."""
        take_step = trainer.take_step

        def observed_step(window: Sequence[Any]) -> Mapping[str, Any]:
            self._batch = describe_value(window[-1])
            return take_step(window)

        trainer.take_step = observed_step

    def _warn_of_values_without_metric(self, trainer: Trainer) -> None:
        """Records a warning for each value of `Runner.evaluate` that is no metric; `Validate` has printed
        it."""
        if any(isinstance(hook, hooks.Validate) for hook in trainer.calls.hooks):
            with split_evaluation.evaluation_mode(trainer.runner):
                for name, loader in split_evaluation.split_loaders(trainer.loaders, "valid").items():
                    _, left_out = split_evaluation.probe_metrics(
                        trainer.runner, loader, forward=trainer.autocast()
                    )
                    for key in left_out:
                        self._reporter.warn(f"{name}/{key} is not a metric", is_printed=True)

    def _before_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == 0:
            found = {name for hook in trainer.calls.hooks for name in hook.monitors(trainer).values()}
            self._reporter.done(f"decides by {', '.join(sorted(found))}" if found else "")
        self._samples, self._batch = trainer.progress.samples, "nothing"
        is_first = trainer.progress.step == 0
        self._reporter.begin(
            "first step" if is_first else "last step" if self._is_last(trainer) else "next step"
        )

    def _is_last(self, trainer: Trainer) -> bool:
        left = len(trainer.loaders["train"]) - trainer.progress.batch
        return trainer.progress.batch > 0 and left <= trainer.stepper.batches_per_step

    def _after_step(self, trainer: Trainer) -> None:
        # So that the step's time and its errors are counted here.
        accelerator_of(trainer.runner.device).synchronize()
        per_step = trainer.stepper.batches_per_step
        last = f", the last of up to {per_step}" if per_step > 1 else ""
        number = trainer.progress.samples - self._samples
        self._reporter.done(f"{number} sample{'s' * (number != 1)}; a batch{last}: {self._batch}")
        if trainer.progress.step == 1 and trainer.checkpoints is not None:
            self._reporter.begin("save")
            _require_space(trainer, self._place)
            trainer.request_save()
        self._reporter.begin("hooks")
        trainer.agenda.request("record")
        if trainer.progress.step == self._steps:
            self.final_state = fingerprints_after_step(trainer)

    def _before_eval(self, trainer: Trainer) -> None:
        self._reporter.begin("validation")

    def _after_eval(self, trainer: Trainer) -> None:
        if trainer.results:
            self._reporter.done(format_metrics(trainer.results))
            self._reporter.record_measurements(validation=dict(trainer.results))
            self._warn_of_nonfinite(trainer.results)
        self._reporter.begin("hooks")

    def _after_row(self, trainer: Trainer) -> None:
        valid = trainer.results.keys()
        self._reporter.done(
            format_metrics({name: value for name, value in trainer.row.items() if name not in valid})
        )
        self._reporter.begin("save")

    def _after_save(self, trainer: Trainer) -> None:
        newest = trainer.checkpoints.newest if trainer.checkpoints is not None else None
        if newest is not None and newest.step == trainer.progress.step:
            self._reporter.done(f"{format_bytes(newest.size_bytes)} in {len(newest.files)} files")
            self.saved = self.saved or newest
        self._reporter.begin("hooks")

    def _before_test(self, trainer: Trainer) -> None:
        self._has_test = any(isinstance(hook, hooks.Test) for hook in trainer.calls.hooks)
        if self._has_test:
            self._reporter.begin("test")

    def _after_test(self, trainer: Trainer) -> None:
        found = {name: value for name, value in trainer.row.items() if name.partition("/")[0] == "test"}
        if self._has_test and not found:
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


def _require_space(trainer: Trainer, place: Path) -> None:
    """Makes sure that the checkpoints of a check fit on the disk, before one is written.

    Raises:
        Refused: The disk has not enough free space.
    """
    needed = _MAX_CHECKPOINTS * sum(_num_bytes(part.state_dict()) for part in trainer.parts().values())
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
