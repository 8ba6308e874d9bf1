"""Measures the test set once, at the end of a finished run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.package.retention import Best as Rule
from roost.train.evaluation import Interrupted
from roost.train.hook import Hook, Phase
from roost.train.hooks.console import metrics
from roost.train.hooks.records import Records
from roost.train.module_state import ModuleState

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Test(Hook):
    """Evaluates "test" with the best weights, or with the last ones, and writes a row of ``test/<name>``.

    Afterwards the runner holds the weights that were tested.

    Args:
        records: Takes the row.
        best: Chooses the weights; the last ones when None.
    """

    phase = Phase.EVAL  # before RECORD, where the records are closed
    __test__ = False  # pytest collects classes of this name otherwise

    def __init__(self, records: Records, best: Rule | None = None) -> None:
        self._records, self._best = records, best

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        if reason != "finished":
            return
        which = "the last weights"
        info = trainer.checkpoints.best(self._best) if trainer.checkpoints and self._best else None
        if info is not None and trainer.checkpoints is not None:
            trainer.checkpoints.load_part(info.id, "model", ModuleState(trainer.runner))
            which = f"checkpoint {info.id} of step {info.step}"
        try:
            results = trainer.evaluate("test")
        except Interrupted:
            trainer.cut_short = True  # `continue` does it again
            return
        self._records.write(trainer, results)
        print(f"with {which}  {metrics(results)}", flush=True)
