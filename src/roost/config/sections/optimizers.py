"""``optimizers``: what moves the parameters, and how fast.

In an optimizer, a parameter group and a scheduler every key that is not named here is an argument of the
class.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from roost.config.sections.field_types import Natural, Patterns, Positive, help_text


class GroupSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``optimizers.<name>.groups``: parameters with arguments of their own."""

    params: Annotated[Patterns, help_text("globs over parameter names; the first group that matches wins")]
    lr_scale: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        help_text("learning rate times this; that of the optimizer if left out"),
    ] = None
    arguments: dict[str, Any] = {}


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """``optimizers.<name>.scheduler``; ``arguments`` may still hold ``${total_steps}``."""

    class_: Annotated[str, help_text("path of the scheduler's class")] = field(name="class")
    unit: Annotated[Literal["step", "epoch", "validation"], help_text("what the scheduler counts")] = "step"
    warmup_steps: Annotated[Natural, help_text("steps of linear warm-up before it")] = 0
    monitor: Annotated[str | None, help_text("value it looks at, such as valid/loss")] = None
    arguments: dict[str, Any] = {}


class OptimizerSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``optimizers``."""

    class_: Annotated[str, help_text("path of the optimizer's class")] = field(name="class")
    params: Annotated[Patterns, help_text("globs over the names of the parameters it trains")] = "*"
    groups: Annotated[list[GroupSettings], help_text("parameters with arguments of their own")] = []
    max_grad_norm: Annotated[
        Annotated[float, Meta(gt=0)] | None, help_text("norm to which gradients are clipped")
    ] = None
    grad_norm_type: Annotated[Annotated[float, Meta(gt=0)], help_text("p of the norm")] = 2.0
    fused: Annotated[bool | Literal["auto"], help_text("whether one kernel does the whole step")] = "auto"
    every_n_steps: Annotated[Positive, help_text("it moves in every n-th step only")] = 1
    lr_scale: Annotated[
        Annotated[float, Meta(gt=0)], help_text("learning rate times this, whatever the scheduler says")
    ] = 1.0
    scheduler: Annotated[SchedulerSettings | None, help_text("changes the learning rate")] = None
    arguments: dict[str, Any] = {}
