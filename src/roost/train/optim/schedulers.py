"""Learning-rate schedulers from the config: any class, with a warm-up, tried on a copy before the run."""

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
"""Trial steps of a scheduler before the run: many wrong values fail only in a step, perhaps after hours."""


def build_scheduler(
    settings: SchedulerSettings,
    optimizer: torch.optim.Optimizer,
    *,
    key: str,
    totals: Mapping[str, int],
    root: Path | None = None,
    where: Where = lambda key: None,
) -> Any:
    """Builds the scheduler of an optimizer.

    Args:
        settings: The scheduler's section, with the totals filled in.
        optimizer: The optimizer whose learning rates it changes.
        key: The section's dotted key, for messages.
        totals: ``total_steps`` if it is known, and ``steps_per_epoch``.
        root: The project's folder. None: the working folder.
        where: Returns where a dotted key was set, for messages.

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
        raise ConfigError(
            f"is not a scheduler: it has no {lacks[0]}()", received=settings.class_, **at, fix=fix
        )
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
        what = f"the run ends after {total} steps, during the warm-up"
        print(f"warning: {key}.warmup_steps is {settings.warmup_steps}: {what}", flush=True)
    return Warmup(scheduler, optimizer, settings.warmup_steps, waits=settings.unit == "step")


# --- a warm-up ------------------------------------------------------------------------------------------


class Warmup:
    """A scheduler with a linear warm-up before it, or at the same time.

    In the first n steps the learning rates are multiplied by 1/(n+1), 2/(n+1), … n/(n+1), through the
    ``lr_scale`` of the parameter groups, so that any scheduler can be wrapped. (Torch's `SequentialLR` cannot
    contain nested schedulers nor `ReduceLROnPlateau`, and counts in one unit.)

    Args:
        scheduler: The scheduler to wrap.
        optimizer: Its optimizer.
        steps: Steps of the warm-up.
        waits: Whether the scheduler starts after the warm-up. One that counts epochs or validations counts
            all of them.
    """

    def __init__(self, scheduler: Any, optimizer: torch.optim.Optimizer, steps: int, *, waits: bool) -> None:
        self.scheduler, self.steps, self._waits = scheduler, steps, waits
        self._optimizer = optimizer
        self.scales = [group.get(LR_SCALE, 1.0) for group in optimizer.param_groups]
        self._warmup_steps_done = 0
        self._scale()

    def advance_warmup(self) -> None:
        """Counts a step of the run; called before `step`, which may count another unit."""
        if self._warmup_steps_done <= self.steps:
            self._warmup_steps_done += 1
            self._scale()

    def step(self, *metric: float) -> None:
        """Steps the scheduler, unless it waits for the end of the warm-up."""
        if not self._waits or self._warmup_steps_done > self.steps:
            self.scheduler.step(*metric)

    def _scale(self) -> None:
        factor = min(1.0, (self._warmup_steps_done + 1) / (self.steps + 1))
        # Groups that a hook has added have no warm-up.
        for group, scale in zip(self._optimizer.param_groups, self.scales, strict=False):
            if scale * factor == 1.0:
                group.pop(LR_SCALE, None)
            else:
                group[LR_SCALE] = scale * factor

    @property
    def remaining_steps(self) -> int:
        """The steps for which the scheduler still waits."""
        return max(0, self.steps - self._warmup_steps_done) if self._waits else 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the steps of the warm-up so far, and the scheduler's state."""
        return {"climbed": self._warmup_steps_done, "scheduler": self.scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`.

        Raises:
            CheckpointError: The state has no warm-up.
        """
        if state.keys() != {"climbed", "scheduler"}:
            raise CheckpointError(
                "the checkpoint holds the state of a scheduler without warm-up, or of an older roost",
                fix="continue the package with its own settings, and with the roost that wrote it",
            )
        self.scheduler.load_state_dict(state["scheduler"])
        self._warmup_steps_done = state["climbed"]
        self._scale()


# --- before the run -------------------------------------------------------------------------------------


class _StandIn(torch.optim.Optimizer):
    """An optimizer with the groups and defaults of another one: all that torch's schedulers read."""

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
                    raise ValueError(f"the learning rate becomes {rate}")


def _check_steps(
    scheduler: Any, spec: Mapping[str, Any], before: _StandIn, key: str, root: Path | None, where: Where
) -> None:
    """Steps a copy of a library's scheduler a few times, on a stand-in for the optimizer.

    Args:
        scheduler: As built for the optimizer of the run.
        spec: The section it was built from.
        before: A stand-in made before the scheduler was built.
        key: The dotted key of ``spec``, for messages.
        root: The project's folder.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A step fails, or a learning rate is negative or not finite.
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
    """Refuses a scheduler without the metric that it needs, and a metric that it does not use."""
    name = type(scheduler).__name__
    if _needs_metric(scheduler) and (unit != "validation" or monitor is None):
        fix = "set unit: validation and monitor: valid/loss"
        raise ConfigError(f"{name} needs a metric", **at, fix=fix)
    if monitor is not None and not _arguments_of_step(scheduler):
        raise ConfigError(f"{name} uses no metric", received=monitor, **at_monitor, fix="remove it")
    if monitor is not None and unit != "validation":
        fix = "set unit: validation"
        raise ConfigError("is known only after a validation", received=monitor, **at_monitor, fix=fix)


def check_schedules(optims: Mapping[str, Optim]) -> None:
    """Checks the schedulers of ``Runner.optimizers()``, as `build_scheduler` checks those of a config.

    Raises:
        ConfigError: A metric is missing or unused: torch would fail at the end of the epoch.
    """
    for name, optim in optims.items():
        if optim.scheduler is not None:
            at = {"setting": f"Runner.optimizers()[{name!r}]"}
            own = optim.scheduler.scheduler if isinstance(optim.scheduler, Warmup) else optim.scheduler
            _check_metric(own, optim.unit, optim.monitor, at, {"setting": f"{at['setting']}.monitor"})


def _nested_schedulers(
    scheduler: Any, spec: Mapping[str, Any], key: str
) -> Iterator[tuple[Any, Mapping[str, Any], str]]:
    """Yields a library's scheduler with its spec and key, and those of the schedulers nested in it."""
    if ".py:" in spec["class"]:
        return  # a project's scheduler may read more of an optimizer than a stand-in has
    yield scheduler, spec, key
    held = getattr(scheduler, "_schedulers", ())
    for number, (one, inner) in enumerate(zip(held, spec.get("schedulers", ()), strict=False)):
        yield from _nested_schedulers(one, inner, f"{key}.schedulers.{number}")


def _check_sequence(scheduler: Any, key: str, where: Where) -> None:
    """Refuses a scheduler that a SequentialLR cannot start at a milestone, because it lacks a method."""
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


def check_loaded_length(optims: Mapping[str, Optim], *, remaining_steps: int, remaining_epochs: int) -> None:
    """Refuses to continue a run for longer than a OneCycleLR lasts: its state keeps the length for which it
    was created.

    Args:
        optims: The optimizers, with the state of the checkpoint.
        remaining_steps: The steps up to the end of the run.
        remaining_epochs: The ends of epochs in them.

    Raises:
        ConfigError: A OneCycleLR ends before the run.
    """
    for name, optim in optims.items():
        waits = optim.scheduler.remaining_steps if isinstance(optim.scheduler, Warmup) else 0
        units = {"step": remaining_steps - waits, "epoch": remaining_epochs}.get(optim.unit, 0)
        for one in _one_cycles(optim.scheduler):
            if one.last_epoch + units > one.total_steps:
                raise ConfigError(
                    f"OneCycleLR was created for {one.total_steps} steps and has taken {one.last_epoch}; the "
                    f"run has {units} more",
                    setting=f"optimizers.{name}.scheduler",
                    fix="use `roost fork`: in the new package the schedule has the length of the new end",
                )


def _one_cycles(scheduler: Any) -> list[lr_scheduler.OneCycleLR]:
    """Returns a scheduler, or those that step with it, as far as they fail in the step after their last."""
    inner = scheduler.scheduler if isinstance(scheduler, Warmup) else scheduler
    ones = inner._schedulers if isinstance(inner, lr_scheduler.ChainedScheduler) else [inner]
    return [one for one in ones if isinstance(one, lr_scheduler.OneCycleLR)]


def _check_length(
    settings: SchedulerSettings, scheduler: Any, totals: Mapping[str, int], at: dict[str, Any]
) -> None:
    """Refuses a OneCycleLR that is shorter than the run: it would fail in the step after its last."""
    total = totals.get("total_steps")
    if total is None or settings.unit == "validation":
        return
    units = total - settings.warmup_steps if settings.unit == "step" else total // totals["steps_per_epoch"]
    for one in _one_cycles(scheduler):
        if one.total_steps < units:
            raise ConfigError(
                f"OneCycleLR ends after {one.total_steps} steps, but the run needs {units}, one each "
                f"{settings.unit}",
                **at,
                fix='give it total_steps: "${total_steps}" with unit: step',
            )
