"""How fast a run will be, by a few steps of it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import Literal

import torch

from roost.worker.miniature.excerpt import ShortLoader
from roost.train.hook import Hook, Phase
from roost.train.loader import Loader
from roost.train.recovery import Recovery
from roost.train.trainer import Trainer
from roost.train.until import Until

MEASURED = Until(steps=20, seconds=1.0)
"""How many steps are measured: whichever comes first, and one at least."""


class Clock(Hook):
    """Notices when each step ends."""

    phase = Phase.MODEL

    def __init__(self) -> None:
        self._at: list[float] = []

    def before_step(self, trainer: Trainer) -> None:
        if not self._at:
            self._at.append(perf_counter())

    def on_step(self, trainer: Trainer) -> None:
        if trainer.runner.device.type == "cuda":
            torch.cuda.synchronize()
        self._at.append(perf_counter())

    @property
    def step_seconds(self) -> float:
        """Of a step with its data; of several without the first, which starts the workers."""
        first = 1 if len(self._at) > 2 else 0
        return (self._at[-1] - self._at[first]) / max(1, len(self._at) - 1 - first)


def step_seconds(trainer: Trainer, train: Loader) -> float:
    """What a step takes. It takes some, and changes the weights.

    Args:
        trainer: Has taken steps, so that what is done once is done.
        train: Draws whole batches.
    """
    clock = Clock()
    with unheard():
        Trainer(
            trainer.runner,
            {"train": train},
            trainer.stepper,
            hooks=[clock],
            until=MEASURED,
            seed=trainer.seed,
            recovery=_recovery(trainer),
        ).fit()
    return clock.step_seconds


def _recovery(trainer: Trainer) -> Recovery:
    """Passes over what the run does; it has no checkpoint to go back to."""
    given = trainer.recovery
    policy: Literal["stop", "skip"] = "stop" if given.on_non_finite == "stop" else "skip"
    return Recovery(on_non_finite=policy, on_step_error=given.on_step_error)


def evaluation_seconds(trainer: Trainer, whole: Mapping[str, Loader], split: str) -> float:
    """What an evaluation of all sets of a split takes, by the few batches of a shortened trainer."""
    seconds = 0.0
    for name, loader in trainer.loaders.items():
        if name.partition("/")[0] == split and isinstance(loader, ShortLoader):
            begun = perf_counter()
            with unheard():
                trainer.evaluate(name)
            seconds += (perf_counter() - begun) * whole[name].plan.num_samples / loader.num_samples
    return seconds


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """What is printed here was printed before; after an error it is printed again."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    except BaseException:
        print(said.getvalue(), end="", flush=True)
        raise
