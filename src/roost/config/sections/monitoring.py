"""The sections that look at a run, and those that decide by what they see."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.config.sections.field_types import Every, Natural, Patterns, Positive, help_text


class EarlyStoppingSettings(Struct, frozen=True, kw_only=True):
    """``early_stopping``: ends a run that no longer gets better."""

    monitor: Annotated[str, help_text("recorded value that decides, such as valid/loss")]
    mode: Annotated[Literal["min", "max"], help_text("whether small or large values are good")] = "min"
    patience: Annotated[Positive, help_text("validations without improvement before the stop")] = 3
    min_delta: Annotated[Annotated[float, Meta(ge=0)], help_text("least change that is an improvement")] = 0.0
    min_delta_mode: Annotated[
        Literal["absolute", "relative"],
        help_text("whether min_delta is a difference, or a share of the best value's size"),
    ] = "absolute"


class AverageSettings(Struct, frozen=True, kw_only=True):
    """One entry of ``averages``: weights averaged over steps, kept beside those that are trained."""

    method: Annotated[
        Literal["ema", "swa"], help_text("ema: newer weights count more; swa: all count the same")
    ] = "ema"
    decay: Annotated[
        Annotated[float, Meta(ge=0, lt=1)], help_text("with ema, the share that the average keeps each time")
    ] = 0.999
    every: Annotated[Every, help_text("when the average takes in the weights: 1 (each step), 10, 1ep")] = 1
    start: Annotated[Every, help_text("step, or epoch (5ep), whose weights are the first of the average")] = 0
    validate: Annotated[bool, help_text("whether it is validated and tested, too, as valid/NAME/...")] = True


class StatisticsSettings(Struct, frozen=True, kw_only=True):
    """``statistics``: sizes of gradients, weights and updates, by parameter, in the rows as ``stats/...``."""

    every: Annotated[Every, help_text("when to look: 100 steps, 1ep, 10/ep")] = 100
    params: Annotated[Patterns, help_text("globs over the names of the parameters")] = "*"
    gradients: Annotated[bool, help_text("whether the norm of each gradient is recorded")] = True
    weights: Annotated[bool, help_text("whether the norm of each weight is recorded")] = True
    updates: Annotated[
        bool, help_text("whether the norm of each change by a step is recorded; copies the weights")
    ] = False
    histograms: Annotated[bool, help_text("whether histograms of them are kept under media/")] = False


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """``profile``: a window of steps that torch's profiler looks at."""

    start_step: Annotated[Natural, help_text("steps of the session before the window")] = 10
    steps: Annotated[Positive, help_text("steps in the window")] = 5
    memory: Annotated[bool, help_text("whether memory is traced, too")] = False
    stacks: Annotated[bool, help_text("whether the lines of code are kept, too")] = False
