"""The hook that evaluates the test set once, at the end of a finished run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from roost.base.errors import CheckpointError, Damaged, NotFound
from roost.package.checkpoints.retention import BestRule as Rule
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.batches import Interrupted
from roost.train.hook import Hook, Phase
from roost.train.hooks.console import format_row
from roost.train.hooks.records import Records
from roost.train.model.module_state import ModuleState
from roost.train.optim.weight_average import HOOK_PREFIX

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Test(Hook):
    """Evaluates "test" with the best weights, or with the last ones, and writes a row of ``test/<name>``. The
    averages of the same checkpoint give ``test/<average>/<name>``.

    Afterwards the runner has the weights that were tested, and the averages are those of that checkpoint. A
    checkpoint that is damaged or cannot be read is reported and skipped: the next best one is tested, and the
    last weights if none can be read.

    Args:
        records: Writes the row.
        best: The rule that chooses the weights; the last weights when None.
    """

    phase = Phase.EVAL  # before RECORD, where the records are closed
    __test__ = False  # pytest collects classes of this name otherwise

    def __init__(self, records: Records, best: Rule | None = None) -> None:
        self._records, self._best = records, best
        self.report: Callable[[str], None] = functools.partial(print, flush=True)
        """Prints the results; the checks of `roost check` replace it."""

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if reason != "finished":
            return
        which = self._load_best(trainer)
        try:
            results = trainer.evaluate("test")
        except Interrupted:
            trainer.confirm_stop()
            trainer.has_unfinished_step = True  # `continue` tests again
            return
        self._records.write(trainer, results)
        if trainer.ranks.is_main:
            self.report(format_row(f"with {which}", results))

    def _load_best(self, trainer: Trainer) -> str:
        """Loads the best weights that can be read; returns the name of the weights that the runner has
        now."""
        if trainer.checkpoints is None or self._best is None:
            return "the last weights"
        ranked = trainer.checkpoints.ranked(self._best)
        for info in ranked:
            name, failure = f"checkpoint {info.id} of step {info.step}", None
            try:
                _load_weights(trainer, trainer.checkpoints, info.id)
            except (Damaged, NotFound, OSError) as error:
                failure = error
            every = trainer.ranks.control.exchange([failure is None], "the best checkpoint")
            could = [one for [one] in every.wait()]
            if all(could):
                return name
            if any(could):
                difference = f"rank {could.index(1)} can read {name}, but rank {could.index(0)} cannot"
                raise CheckpointError(
                    f"not tested: {difference}", fix="put the package on a disk that every rank can read"
                ) from failure
            if trainer.ranks.is_main:
                print(f"not tested with {name}: {failure}", flush=True)
        return "the last weights" + (", as no measured checkpoint can be read" if ranked else "")


class _HookStates:
    """Reads the states of the hooks from the part "trainer" of a checkpoint."""

    def __init__(self) -> None:
        self.states: Mapping[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"hooks": self.states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.states = state["hooks"]


def _load_weights(trainer: Trainer, checkpoints: Checkpoints, id: int) -> None:
    """Loads the weights of a checkpoint and its averages; if it raises, nothing has changed."""
    hooks = _HookStates()
    if trainer.averages:
        checkpoints.load_part(id, "trainer", hooks)
    checkpoints.load_part(id, "model", ModuleState(trainer.runner))
    for name, average in trainer.averages.items():
        state = hooks.states.get(f"{HOOK_PREFIX}{name}")
        if state is None:
            average.clear()  # the average did not exist at that step; it equals the weights
        else:
            average.load_state_dict(state)
