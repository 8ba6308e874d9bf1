"""Measures the test set once, at the end of a finished run."""

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
    """Evaluates "test" with the best weights, or with the last ones, and writes a row of ``test/<name>``;
    their averages, those of the same checkpoint, give ``test/<average>/<name>``.

    Afterwards the runner holds the weights that were tested, and the averages are those of that checkpoint.
    One that is damaged or cannot be read is said and passed over: the run is finished, and the next best one
    is tested, at last the last weights.

    Args:
        records: Takes the row.
        best: Chooses the weights; the last ones when None.
    """

    phase = Phase.EVAL  # before RECORD, where the records are closed
    __test__ = False  # pytest collects classes of this name otherwise

    def __init__(self, records: Records, best: Rule | None = None) -> None:
        self._records, self._best = records, best
        self.report: Callable[[str], None] = functools.partial(print, flush=True)
        """Is told what came of it."""

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if reason != "finished":
            return
        which = self._load_best(trainer)
        try:
            results = trainer.evaluate("test")
        except Interrupted:
            trainer.confirm_stop()
            trainer.has_unfinished_step = True  # `continue` does it again
            return
        self._records.write(trainer, results)
        if trainer.ranks.is_main:
            self.report(format_row(f"with {which}", results))

    def _load_best(self, trainer: Trainer) -> str:
        """Loads the best weights that can be read; names what the runner holds now."""
        if trainer.checkpoints is None or self._best is None:
            return "the last weights"
        ranked = trainer.checkpoints.ranked(self._best)
        for info in ranked:
            said, failure = f"checkpoint {info.id} of step {info.step}", None
            try:
                _load_weights(trainer, trainer.checkpoints, info.id)
            except (Damaged, NotFound, OSError) as error:
                failure = error
            every = trainer.ranks.control.exchange([failure is None], "the best checkpoint")
            could = [one for [one] in every.wait()]
            if all(could):
                return said
            if any(could):
                unlike = f"rank {could.index(1)} can read {said}, and rank {could.index(0)} cannot"
                raise CheckpointError(
                    f"not tested: {unlike}", fix="put it where every rank sees it"
                ) from failure
            if trainer.ranks.is_main:
                print(f"not tested with {said}: {failure}", flush=True)
        return "the last weights" + (", as no measured checkpoint can be read" if ranked else "")


class _HookStates:
    """Of a checkpoint's part "trainer", the states of the hooks."""

    def __init__(self) -> None:
        self.states: Mapping[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return {"hooks": self.states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.states = state["hooks"]


def _load_weights(trainer: Trainer, checkpoints: Checkpoints, id: int) -> None:
    """Loads the weights of a checkpoint and their averages; when it raises, all are as they were."""
    hooks = _HookStates()
    if trainer.averages:
        checkpoints.load_part(id, "trainer", hooks)
    checkpoints.load_part(id, "model", ModuleState(trainer.runner))
    for name, average in trainer.averages.items():
        state = hooks.states.get(f"{HOOK_PREFIX}{name}")
        if state is None:
            average.clear()  # at that step there was none yet: it is the weights
        else:
            average.load_state_dict(state)
