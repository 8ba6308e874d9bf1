"""``optimizers``: optimizers, parameter groups and schedulers.

In each of these, every key that is not named here is an argument of the class.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from roost.config.sections.field_types import Natural, Patterns, Positive, help_text


class GroupSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``optimizers.<name>.groups``: parameters with separate arguments."""

    params: Annotated[
        Patterns, help_text("globs over parameter names, or `ndim < 2`; the first group that matches wins")
    ]
    lr_scale: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        help_text("factor of the learning rate; by default that of the optimizer"),
    ] = None
    arguments: dict[str, Any] = {}


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """``optimizers.<name>.scheduler``; ``arguments`` may still have ``${total_steps}``."""

    class_: Annotated[str, help_text("path of the scheduler's class")] = field(name="class")
    unit: Annotated[Literal["step", "epoch", "validation"], help_text("what the scheduler counts")] = "step"
    warmup_steps: Annotated[Natural, help_text("steps of linear warm-up before the scheduler")] = 0
    monitor: Annotated[str | None, help_text("metric of the scheduler, such as valid/loss")] = None
    arguments: dict[str, Any] = {}


class OptimizerSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``optimizers``."""

    class_: Annotated[str, help_text("path of the optimizer's class")] = field(name="class")
    params: Annotated[Patterns, help_text("globs over the names of its parameters, or `ndim < 2`")] = "*"
    groups: Annotated[list[GroupSettings], help_text("parameters with separate arguments")] = []
    max_grad_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None, help_text("norm to which gradients are clipped")
    ] = None
    grad_norm_type: Annotated[Annotated[float, Meta(gt=0)], help_text("p of that norm")] = 2.0
    fused: Annotated[bool | Literal["auto"], help_text("whether a single kernel computes the step")] = "auto"
    every_n_steps: Annotated[
        Positive, help_text("the optimizer updates its parameters only in every n-th step")
    ] = 1
    lr_scale: Annotated[
        Annotated[float, Meta(gt=0)], help_text("factor of the learning rate, in addition to the scheduler")
    ] = 1.0
    scheduler: Annotated[SchedulerSettings | None, help_text("scheduler of the learning rate")] = None
    arguments: dict[str, Any] = {}
