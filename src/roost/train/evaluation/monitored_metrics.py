"""The metrics that hooks decide by: those of a validation, and the values of the row of its step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import nan

from roost.base.errors import ConfigError
from roost.base.text.suggestions import closest_match
from roost.base.text.word_list import join_names
from roost.config.step_modes import STEP_MODES
from roost.package.records import STATS
from roost.train.events import Events
from roost.train.progress import Progress
from roost.train.step.stepper import Stepper

_MAX_LISTED_NAMES = 30


def is_row_value(name: str) -> bool:
    """Whether the name is that of a training value of a row, not of a metric of a validation."""
    return name == "lr" or name.startswith(("train/", "lr/", STATS))


def row_values(values: Mapping[str, float], stepper: Stepper, progress: Progress) -> dict[str, float]:
    """Returns the row of the newest step, without the results of a validation and without times.

    Args:
        values: The result of `Events.row` or `Events.peek`.
        stepper: Has taken the step; the learning rates are those of its optimizers.
        progress: The position after the step.
    """
    row = {name if name.startswith(STATS) else f"train/{name}": value for name, value in values.items()}
    if progress.empty_batches:
        row["train/empty_batches"] = progress.empty_batches  # so far
    # If no optimizer takes a step, the row has no learning rate.
    moving = stepper.optimizers if STEP_MODES[stepper.mode].trains else {}
    for name, optim in moving.items():
        rates = optim.rates_of_the_step
        row["lr" if name == "main" else f"lr/{name}"] = rates[0]
        if len(set(rates)) > 1:
            row.update({f"lr/{name}/{group}": rate for group, rate in enumerate(rates)})
    return row


def with_row_values(
    results: Mapping[str, float],
    monitors: Iterable[tuple[str, str]],
    *,
    events: Events,
    stepper: Stepper,
    progress: Progress,
) -> dict[str, float]:
    """Returns the results of a validation, and those values of its step's row that a hook decides by. The
    open window is read, a synchronisation, only if there is such a value.

    A value of earlier rows that is absent since the last row (all its steps were skipped, or its optimizer
    took no step) is NaN, which is never better.

    Args:
        results: The metrics of the validation.
        monitors: The metrics that hooks decide by, each after the setting that names it.
        events: The metrics since the last row.
        stepper: Has taken the step.
        progress: The position after the step.

    Raises:
        ConfigError: A hook decides by a metric that is never reported.
    """
    missing = [(setting, monitor) for setting, monitor in monitors if monitor not in results]
    if not missing:
        return dict(results)
    row = row_values(events.peek(), stepper, progress)
    found = dict(results)
    for setting, monitor in missing:
        name = monitor if monitor.startswith(STATS) else monitor.removeprefix("train/")
        if monitor in row:
            found[monitor] = row[monitor]
        elif is_row_value(monitor) and events.has_reported(name):
            found[monitor] = nan
        else:
            check_monitor(results, monitor, setting=setting, row=row)
    return found


def check_monitor(results: Collection[str], monitor: str, *, setting: str, row: Collection[str] = ()) -> None:
    """Checks that the metric ``monitor`` is reported.

    Args:
        results: The names of the metrics of a validation.
        monitor: The name of the metric.
        setting: The setting that names it.
        row: The names of the other values of the row, if known.

    Raises:
        ConfigError: It is not reported; the message lists the reported names.
    """
    if monitor in results or monitor in row:
        return
    near = f"did you mean {found}? " if (found := closest_match(monitor, [*results, *row])) else ""
    reported = ", ".join(sorted(results)) or "nothing"
    reported += f"; the row of its step has: {join_names(sorted(row), _MAX_LISTED_NAMES)}" if row else ""
    raise ConfigError(
        f"{monitor!r} is never reported; a validation reports: {reported}",
        setting=setting,
        fix=f"{near}choose one of these, or return it from Runner.evaluate()"
        + (" or Runner.loss()" if monitor.startswith("train/") else ""),
    )
