"""Learning-rate schedulers from the config: any class, tried on a stand-in before the run, with a warm-up."""

from __future__ import annotations

import copy
import inspect
import math
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.optim import lr_scheduler

from roost.base.errors import CheckpointError, ConfigError
from roost.config import call_arguments, objects
from roost.config.sections.optimizers import SchedulerSettings
from roost.config.settings import Where
from roost.train.optim.optimizer import LR_SCALE, Optim

_TRIAL_STEPS = 3
"""Steps of a scheduler before the run: many values fail only when it steps, perhaps after hours."""


def build_scheduler(
    settings: SchedulerSettings,
    optimizer: torch.optim.Optimizer,
    *,
    key: str,
    totals: Mapping[str, int],
    root: Path | None = None,
    where: Where = lambda key: None,
) -> Any:
    """The scheduler of an optimizer.

    Args:
        settings: Its section, with the totals filled in.
        optimizer: Whose learning rates it changes.
        key: The section's dotted key, for messages.
        totals: ``total_steps`` where it is known, and ``steps_per_epoch``.
        root: The project's folder; the working folder if left out.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: The class path or an argument does not fit, or the scheduler would fail in the run.
    """
    spec = {"class": settings.class_, **settings.arguments}
    at = {"setting": key, "where": where(f"{key}.class")}
    before = _StandIn(optimizer)
    scheduler: Any = objects.build(spec, root, key, where, optimizer=optimizer)
    lacks = [name for name in ("step", "state_dict", "load_state_dict") if not hasattr(scheduler, name)]
    if lacks:
        fix = "write a class with step(), state_dict() and load_state_dict()"
        raise ConfigError(f"is no scheduler: it has no {lacks[0]}()", received=settings.class_, **at, fix=fix)
    at_monitor = {"setting": f"{key}.monitor", "where": where(f"{key}.monitor")}
    _check_metric(scheduler, settings.unit, settings.monitor, at, at_monitor)
    _check_length(settings, scheduler, totals, at)
    for one, inner, path in _nested_schedulers(scheduler, spec, key):
        _check_sequence(one, path, where)
        _check_steps(one, inner, before, path, root, where)
    if not settings.warmup_steps:
        return scheduler
    total = totals.get("total_steps")
    if total is not None and settings.warmup_steps >= total:
        what = f"the run ends after {total} steps, with the learning rate still climbing"
        print(f"warning: {key}.warmup_steps is {settings.warmup_steps}: {what}", flush=True)
    return Warmup(scheduler, optimizer, settings.warmup_steps, waits=settings.unit == "step")


# --- a warm-up ------------------------------------------------------------------------------------------


class Warmup:
    """A scheduler with a linear warm-up before it, or beside it.

    The learning rates are multiplied by 1/(n+1), 2/(n+1), … n/(n+1) in the first n steps, by the ``lr_scale``
    of the parameter groups: so the scheduler inside may be any. (Torch's own way, a `SequentialLR`, cannot
    hold those that hold others, nor `ReduceLROnPlateau`, and counts in one unit.)

    Args:
        scheduler: Changes the learning rates itself.
        optimizer: Its optimizer.
        steps: Steps of the warm-up.
        waits: Whether the scheduler begins after it. One that counts epochs or validations counts them all.
    """

    def __init__(self, scheduler: Any, optimizer: torch.optim.Optimizer, steps: int, *, waits: bool) -> None:
        self.scheduler, self.steps, self._waits = scheduler, steps, waits
        self._optimizer = optimizer
        self.scales = [group.get(LR_SCALE, 1.0) for group in optimizer.param_groups]
        self._warmup_steps_done = 0
        self._scale()

    def advance_warmup(self) -> None:
        """A step of the run is over; called before `step`, whatever that one counts."""
        if self._warmup_steps_done <= self.steps:
            self._warmup_steps_done += 1
            self._scale()

    def step(self, *metric: float) -> None:
        """What the scheduler counts is over; it is passed over in a warm-up that it waits for."""
        if not self._waits or self._warmup_steps_done > self.steps:
            self.scheduler.step(*metric)

    def _scale(self) -> None:
        factor = min(1.0, (self._warmup_steps_done + 1) / (self.steps + 1))
        # A hook may have added groups: they are not warmed up.
        for group, scale in zip(self._optimizer.param_groups, self.scales, strict=False):
            if scale * factor == 1.0:
                group.pop(LR_SCALE, None)
            else:
                group[LR_SCALE] = scale * factor

    def state_dict(self) -> dict[str, Any]:
        """How far it climbed, and the scheduler's state."""
        return {"climbed": self._warmup_steps_done, "scheduler": self.scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave.

        Raises:
            CheckpointError: It is the state of another scheduler.
        """
        if state.keys() != {"climbed", "scheduler"}:
            raise CheckpointError(
                "the checkpoint holds the state of a scheduler without warm-up, or that of an older roost",
                fix="continue the package with its own settings, and with the roost that wrote it",
            )
        self.scheduler.load_state_dict(state["scheduler"])
        self._warmup_steps_done = state["climbed"]
        self._scale()


# --- before the run -------------------------------------------------------------------------------------


class _StandIn(torch.optim.Optimizer):
    """Has the groups and defaults of an optimizer, which is all that torch's schedulers look at."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        groups = [{**group, "params": [torch.zeros(1)]} for group in optimizer.param_groups]
        super().__init__(groups, dict(optimizer.defaults))


def _take_trial_steps(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no optimizer steps before it
        for _ in range(_TRIAL_STEPS):
            scheduler.step(*([1.0] if _needs_metric(scheduler) else []))
            for rate in (float(group["lr"]) for group in optimizer.param_groups):
                if not math.isfinite(rate) or rate < 0:
                    raise ValueError(f"it makes the learning rate {rate}")


def _check_steps(
    scheduler: Any, spec: Mapping[str, Any], before: _StandIn, key: str, root: Path | None, where: Where
) -> None:
    """Steps a copy of a library's scheduler a few times, on a stand-in.

    Args:
        scheduler: As it was built for the optimizer of the run.
        spec: What it was built from.
        before: The optimizer before that.
        key: The dotted key of the spec, for messages.
        root: The project's folder.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: It fails, or gives a learning rate that is none.
    """
    project = Path.cwd() if root is None else root
    stand_in = _StandIn(scheduler.optimizer)
    copied = copy.deepcopy(scheduler, {id(scheduler.optimizer): stand_in})
    try:
        _take_trial_steps(copied, stand_in)
    except Exception as error:
        if objects.raised_in_project(error, project):
            raise

        def attempt(other: Mapping[str, Any]) -> None:
            optimizer = _StandIn(before)
            _take_trial_steps(objects.build(other, project, key, where, optimizer=optimizer), optimizer)

        guilty = call_arguments.find_bad_argument(spec, attempt)
        at = key if guilty is None else f"{key}.{guilty}"
        given = {name: value for name, value in spec.items() if name != "class"}
        raise ConfigError(
            f"{spec['class']} cannot step with {'these arguments' if guilty is None else 'this'}: "
            f"{objects.describe_error(error)}",
            setting=at,
            received=given if guilty is None else spec[guilty],
            where=where(at),
            fix=call_arguments.describe_arguments(type(scheduler)),
        ) from error


def _arguments_of_step(scheduler: Any) -> list[inspect.Parameter]:
    _, *found = inspect.signature(type(scheduler).step).parameters.values()
    return [one for one in found if one.name != "epoch"]


def _needs_metric(scheduler: Any) -> bool:
    return any(one.default is inspect.Parameter.empty for one in _arguments_of_step(scheduler))


def _check_metric(
    scheduler: Any, unit: str, monitor: str | None, at: dict[str, Any], at_monitor: dict[str, Any]
) -> None:
    """Refuses a scheduler without the metric that it looks at, and a metric that it does not look at."""
    name = type(scheduler).__name__
    if _needs_metric(scheduler) and (unit != "validation" or monitor is None):
        fix = "set unit: validation and monitor: valid/loss"
        raise ConfigError(f"{name} looks at a metric", **at, fix=fix)
    if monitor is not None and not _arguments_of_step(scheduler):
        raise ConfigError(f"{name} looks at no metric", received=monitor, **at_monitor, fix="remove it")
    if monitor is not None and unit != "validation":
        fix = "set unit: validation"
        raise ConfigError("is known after a validation alone", received=monitor, **at_monitor, fix=fix)


def check_schedules(optims: Mapping[str, Optim]) -> None:
    """Looks over schedulers that were made by hand, as `build_scheduler` does those of a config.

    Raises:
        ConfigError: A metric is missing, or nobody looks at it: torch would fail at the end of the epoch.
    """
    for name, optim in optims.items():
        if optim.scheduler is not None:
            at = {"setting": f"Runner.optimizers()[{name!r}]"}
            own = optim.scheduler.scheduler if isinstance(optim.scheduler, Warmup) else optim.scheduler
            _check_metric(own, optim.unit, optim.monitor, at, {"setting": f"{at['setting']}.monitor"})


def _nested_schedulers(
    scheduler: Any, spec: Mapping[str, Any], key: str
) -> Iterator[tuple[Any, Mapping[str, Any], str]]:
    """The scheduler with its spec and the key of that, and likewise those of a library that it holds."""
    if ".py:" in spec["class"]:
        return  # one of the project may look at more of an optimizer than there is of a stand-in
    yield scheduler, spec, key
    held = getattr(scheduler, "_schedulers", ())
    for number, (one, inner) in enumerate(zip(held, spec.get("schedulers", ()), strict=False)):
        yield from _nested_schedulers(one, inner, f"{key}.schedulers.{number}")


def _check_sequence(scheduler: Any, key: str, where: Where) -> None:
    """Refuses what would fail at a milestone: torch starts a scheduler there by a method that some lack."""
    if not isinstance(scheduler, lr_scheduler.SequentialLR):
        return
    for number, one in enumerate(scheduler._schedulers):
        if number and getattr(type(one), "get_lr", None) is lr_scheduler.LRScheduler.get_lr:
            at = f"{key}.schedulers.{number}"
            raise ConfigError(
                f"a SequentialLR cannot start a {type(one).__name__} at a milestone",
                setting=at,
                where=where(at),
                fix="put it first, or put its own schedulers into this list",
            )


def _check_length(
    settings: SchedulerSettings, scheduler: Any, totals: Mapping[str, int], at: dict[str, Any]
) -> None:
    """Refuses a OneCycleLR that is shorter than the run: it would fail in the step after its last one."""
    total = totals.get("total_steps")
    ones = scheduler._schedulers if isinstance(scheduler, lr_scheduler.ChainedScheduler) else [scheduler]
    if total is None or settings.unit == "validation":
        return
    units = total - settings.warmup_steps if settings.unit == "step" else total // totals["steps_per_epoch"]
    for one in ones:
        if isinstance(one, lr_scheduler.OneCycleLR) and one.total_steps < units:
            raise ConfigError(
                f"OneCycleLR ends after {one.total_steps} steps, and it would take {units}, one each "
                f"{settings.unit} of the run",
                **at,
                fix='give it total_steps: "${total_steps}" with unit: step',
            )
