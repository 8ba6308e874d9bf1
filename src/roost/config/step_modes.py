"""The step modes: how a step is computed, of the setting ``step_mode`` and of a Stepper."""

from __future__ import annotations

from typing import Literal, NamedTuple

StepMode = Literal["eager", "compile", "dry", "no_optim"]


class StepModeTraits(NamedTuple):
    """The consequences of a step mode."""

    compiles: bool = False
    """Whether loss functions, `Runner.evaluate` and `Runner.predict` are compiled by torch.compile."""
    computes: bool = True
    """Whether losses and gradients are computed; otherwise a step only takes its batches."""
    trains: bool = True
    """Whether the optimizers take steps; otherwise the run only measures: it saves no checkpoints, calls no
    hooks of the project, and cannot be continued or queued."""


STEP_MODES: dict[StepMode, StepModeTraits] = {
    "eager": StepModeTraits(),
    "compile": StepModeTraits(compiles=True),
    "dry": StepModeTraits(computes=False, trains=False),
    "no_optim": StepModeTraits(trains=False),
}
