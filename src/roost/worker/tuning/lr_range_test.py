"""The learning-rate range test: a ramp of the learning rate, from the initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable

from roost.package.results.tuning_report import RangeTestFinding, TargetFinding
from roost.worker.tuning import lr_suggestion
from roost.worker.tuning.budget import Budget
from roost.worker.tuning.candidate_rounds import CandidateFailed
from roost.worker.tuning.measured_run import MeasuredRun

FIRST_RATE, LAST_RATE = 1e-7, 10.0
NUM_STEPS = 100
_MIN_STEPS = 40
_SAME = 2.0
"""A suggestion within this factor of the present rate changes nothing: the test is no more precise."""


def ramp_rates(
    run: MeasuredRun, budget: Budget, report: Callable[[str], None]
) -> RangeTestFinding | TargetFinding:
    """Raises the learning rate exponentially, a step at each rate, until the loss diverges; the weights of
    the run are thrown away. Returns the finding, or one without candidates that says why there is no test.

    Args:
        run: The run, whose initial weights are kept.
        budget: The time; with too little of it there are fewer steps.
        report: Prints a line about the result.
    """
    optimizers = run.trainer.stepper.optimizers
    if len(optimizers) > 1:
        return _none(
            f"there are several optimizers ({', '.join(optimizers)}): the loss depends on all of them"
        )
    [(name, optim)] = optimizers.items()
    groups = optim.optimizer.param_groups
    if any("lr" not in group or not float(group["lr"]) for group in groups):
        return _none("the optimizer has a parameter group without a learning rate")
    seconds = run.step_seconds
    num_steps = min(NUM_STEPS, int(budget.left / max(seconds, 1e-9)))
    if num_steps < _MIN_STEPS:
        reason = f"the time does not suffice for {_MIN_STEPS} steps of {seconds:.2g} s"
        return _none(reason, is_late=True)
    run.restore()
    present = optim.lr
    factor = (LAST_RATE / FIRST_RATE) ** (1 / (num_steps - 1))
    rates = [FIRST_RATE * factor**step for step in range(num_steps)]
    try:
        losses = run.ramp(run.loader(), rates, lr_suggestion.has_diverged)
    except CandidateFailed as error:
        return _none(str(error))
    finally:
        run.restore()
    found = lr_suggestion.suggest(rates, losses)
    finding = RangeTestFinding(
        optimizer=name,
        present=present,
        rates=rates[: len(found.smoothed)],
        losses=losses[: len(found.smoothed)],  # the last one may not be finite
        smoothed=found.smoothed,
        reason=found.reason,
        steepest=found.steepest,
        divergence=found.divergence,
        suggestion=found.suggestion,
    )
    differs = found.suggestion is not None and abs(math.log(found.suggestion / present)) > math.log(_SAME)
    if differs and run.has_configured_optimizers:
        finding.changes = {f"optimizers.{name}.lr": float(f"{found.suggestion:.2g}")}
    if found.suggestion is None:
        report(found.reason)
    else:
        report(f"{found.suggestion:.2g} (now {present:.2g})")
    return finding


def _none(reason: str, *, is_late: bool = False) -> TargetFinding:
    return TargetFinding(target="lr", setting="lr", present="", chosen="", reason=reason, is_late=is_late)
