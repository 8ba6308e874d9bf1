"""The sections for early stopping, averages, statistics and the profiler."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from roost.config.sections.field_types import Every, Natural, Patterns, Positive, help_text


class EarlyStoppingSettings(Struct, frozen=True, kw_only=True):
    """``early_stopping``: ends a run that no longer improves."""

    monitor: Annotated[str, help_text("metric that decides, such as valid/loss")]
    mode: Annotated[Literal["min", "max"], help_text("whether smaller or larger values are better")] = "min"
    patience: Annotated[Positive, help_text("validations without improvement before the stop")] = 3
    min_delta: Annotated[
        Annotated[float, Meta(ge=0)], help_text("smallest change that counts as an improvement")
    ] = 0.0
    min_delta_mode: Annotated[
        Literal["absolute", "relative"],
        help_text("whether min_delta is a difference, or a share of the best value"),
    ] = "absolute"


class AverageSettings(Struct, frozen=True, kw_only=True):
    """An entry of ``averages``: weights averaged over steps, in addition to the trained weights."""

    method: Annotated[
        Literal["ema", "swa"], help_text("ema: newer weights count more; swa: all weights count equally")
    ] = "ema"
    decay: Annotated[
        Annotated[float, Meta(ge=0, lt=1)], help_text("with ema, the share of the old average in each update")
    ] = 0.999
    every: Annotated[Every, help_text("when the average is updated: 1 (each step), 10, 1ep")] = 1
    start: Annotated[Every, help_text("step, or epoch (5ep), from which weights are averaged")] = 0
    validate: Annotated[
        bool, help_text("whether the average is also validated and tested, as valid/NAME/...")
    ] = True


class StatisticsSettings(Struct, frozen=True, kw_only=True):
    """``statistics``: sizes of gradients, weights and updates, by parameter, in the rows as ``stats/...``."""

    every: Annotated[Every, help_text("when to record them: 100 steps, 1ep, 10/ep")] = 100
    params: Annotated[Patterns, help_text("globs over the names of the parameters")] = "*"
    gradients: Annotated[bool, help_text("whether the norm of each gradient is recorded")] = True
    weights: Annotated[bool, help_text("whether the norm of each weight is recorded")] = True
    updates: Annotated[
        bool, help_text("whether the norm of each update by a step is recorded; copies the weights")
    ] = False
    histograms: Annotated[bool, help_text("whether histograms of them are stored under media/")] = False


class ProfileSettings(Struct, frozen=True, kw_only=True):
    """``profile``: consecutive steps recorded by torch's profiler, and what holds the run back in those
    after them."""

    start_step: Annotated[Natural, help_text("steps of the session before the first recorded one")] = 10
    steps: Annotated[Positive, help_text("number of recorded steps")] = 5
    seconds: Annotated[
        Annotated[float, Meta(gt=0, le=3600)],
        help_text("time after them that is measured for `roost profile`"),
    ] = 20.0
    memory: Annotated[bool, help_text("whether memory is recorded, too")] = False
    stacks: Annotated[bool, help_text("whether lines of code are recorded, too")] = False
