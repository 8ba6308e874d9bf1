"""The hook that reports attributes which training changes and no checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.train.hook import Hook, Phase
from roost.train.model.plain_attributes import PlainAttributes
from roost.train.optim.optimizer import Optim

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Unsaved(Hook):
    """At each save, notes the run as inexact if something changed since the start of the session that a
    resume would not restore: plain attributes of the runner, and the parameters of its optimizers."""

    phase = Phase.REPORT  # starts last: attributes set by the start of other hooks are no changes

    def __init__(self) -> None:
        self._plain: PlainAttributes | None = None
        self._moved: dict[str, list[list[int]]] = {}
        """By optimizer, the ids of the parameters in its groups."""
        self._own: set[int] = set()

    def on_start(self, trainer: Trainer) -> None:
        self._plain = PlainAttributes(trainer.runner)
        self._moved = {name: _parameter_ids(optim) for name, optim in trainer.stepper.optimizers.items()}
        self._own = {id(parameter) for parameter in trainer.runner.parameters()}

    def before_save(self, trainer: Trainer) -> None:
        for name in self._plain.changed() if self._plain is not None else []:
            trainer.note_inexact(
                f"self.{name} of the Runner changed in training, and no checkpoint holds it; "
                "make it a buffer, or return it from get_extra_state()"
            )
        left = self._own - {id(parameter) for parameter in trainer.runner.parameters()}
        for name, before in self._moved.items():
            now = _parameter_ids(trainer.stepper.optimizers[name])
            if now != before:
                trainer.note_inexact(
                    f"the parameters of optimizer {name} changed in training, so no later session can load "
                    "its state; give it all parameters at the start, and freeze those that are used later"
                )
            elif not left.isdisjoint(one for group in now for one in group):
                trainer.note_inexact(
                    f"optimizer {name} still updates parameters that the Runner has replaced; change them in "
                    "place"
                )


def _parameter_ids(optim: Optim) -> list[list[int]]:
    return [[id(parameter) for parameter in group["params"]] for group in optim.optimizer.param_groups]
