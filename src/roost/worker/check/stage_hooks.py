"""Hooks that a check adds between those of the run: they report its stages, and compare a second run that
resumes its checkpoint with the first."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
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
from roost.worker.check.data_excerpt import ObservedBatches
from roost.worker.check.stages import StageReporter
from roost.worker.check.state_fingerprints import Fingerprints, differing, fingerprints

_MAX_CHECKPOINTS = 3
"""Most checkpoints of a check that are on the disk at one time."""
_COMPARED_PARTS = ("model", "optimizers", "rank-0")
"""Parts of a checkpoint that are equal in two equal runs after a step; the others contain times."""

TrainerCallback = Callable[[Trainer], None]


class CallbackHook(Hook):
    """Calls functions at one position among the hooks of a trainer.

    Args:
        number: Makes its name unique.
        phase: Its phase; it is placed before or after all other hooks of that phase.
        start, before, step, stop: Called in `on_start`, `before_step`, `on_step`, and in `on_stop` of a run
            that has finished.
    """

    def __init__(
        self,
        number: int,
        phase: Phase,
        *,
        start: TrainerCallback | None = None,
        before: TrainerCallback | None = None,
        step: TrainerCallback | None = None,
        stop: TrainerCallback | None = None,
    ) -> None:
        self._number, self.phase = number, phase
        self._start, self._before, self._step, self._stop = start, before, step, stop

    @property
    def name(self) -> str:
        return f"check {self._number}"

    def on_start(self, trainer: Trainer) -> None:
        if self._start:
            self._start(trainer)

    def before_step(self, trainer: Trainer) -> None:
        if self._before:
            self._before(trainer)

    def on_step(self, trainer: Trainer) -> None:
        if self._step:
            self._step(trainer)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if self._stop and reason == "finished":
            self._stop(trainer)


class StageHooks:
    """Follows the shortened run and reports each of its stages.

    Args:
        reporter: Gets the stages.
        steps: Steps of the run.
        place: Folder of its package, on the disk that takes the checkpoints.
    """

    def __init__(self, reporter: StageReporter, *, steps: int, place: Path) -> None:
        self._reporter, self._steps, self._place = reporter, steps, place
        self._samples = 0
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
        self._samples = trainer.progress.samples
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
        loader = trainer.loaders["train"]
        description = loader.newest if isinstance(loader, ObservedBatches) else ""
        per_step = trainer.stepper.batches_per_step
        last = f", the last of up to {per_step}" if per_step > 1 else ""
        number = trainer.progress.samples - self._samples
        self._reporter.done(f"{number} sample{'s' * (number != 1)}; a batch{last}: {description}")
        if trainer.progress.step == 1 and trainer.checkpoints is not None:
            self._reporter.begin("save")
            _require_space(trainer, self._place)
            trainer.request_save()
        self._reporter.begin("hooks")
        trainer.agenda.request("record")
        if trainer.progress.step == self._steps:
            self.final_state = _state(trainer)

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


class ReloadComparison:
    """Compares a new trainer that resumes a checkpoint with the trainer that wrote it.

    Args:
        saved: Fingerprints of the checkpoint.
        after: Fingerprints of the first trainer right after its next step; empty: do not compare a step.
    """

    def __init__(self, saved: Fingerprints, after: Fingerprints) -> None:
        self._saved, self._after = saved, after
        self.not_restored: list[str] = []
        """Names of the values that differ from the checkpoint after it was loaded."""
        self.differing_after_step: list[str] | None = None
        """Names of the values that differ after the next step; None: not compared."""

    def hooks(self, given: Sequence[Hook]) -> list[Hook]:
        """Returns the hooks of the run after a callback hook that compares."""
        return [
            CallbackHook(0, Phase.MODEL, start=self._start, step=self._step),
            *(hook for hook in without_console(given) if not isinstance(hook, hooks.Test)),
        ]

    def _start(self, trainer: Trainer) -> None:
        # The random generators are restored last, after `on_start` of all hooks: the next step compares them.
        parts = {name: part.state_dict() for name, part in trainer.parts().items() if name != "rank-0"}
        found = fingerprints(parts)
        names = {name for name in {**found, **self._saved} if name.partition(".")[0] in parts}
        self.not_restored = [name for name in differing(self._saved, found) if name in names]

    def _step(self, trainer: Trainer) -> None:
        if self._after:
            self.differing_after_step = differing(self._after, _state(trainer))
        trainer.checkpoints = None  # no session will resume this one
        trainer.request_stop("compared")


def without_console(given: Sequence[Hook]) -> list[Hook]:
    """Returns the hooks without the console; pictures are left out because they have a stage of their own."""
    return [
        _NoVisualize() if isinstance(hook, hooks.Visualize) else hook
        for hook in given
        if not isinstance(hook, hooks.Console)
    ]


class _NoVisualize(Hook):
    """Serves requests for a picture, without showing one."""

    phase = Phase.EVAL
    every = ()
    serves = "visualize"

    def on_step(self, trainer: Trainer) -> None:
        pass


def _state(trainer: Trainer) -> Fingerprints:
    parts = trainer.parts()
    return fingerprints({name: parts[name].state_dict() for name in _COMPARED_PARTS})


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
