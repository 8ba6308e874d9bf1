"""Names what a run changes and no checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.train.hook import Hook, Phase
from roost.train.model.plain_attributes import PlainAttributes
from roost.train.optim.optimizer import Optim

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Unsaved(Hook):
    """At a save, names as inexact what has changed since the session's start and would be otherwise after a
    resume: plain attributes of the runner, and which parameters its optimizers move."""

    phase = Phase.REPORT  # starts last: what another hook's start puts into the runner is no change

    def __init__(self) -> None:
        self._plain: PlainAttributes | None = None
        self._moved: dict[str, list[list[int]]] = {}
        """Of each optimizer, the identities of what its groups move."""
        self._own: set[int] = set()

    def on_start(self, trainer: Trainer) -> None:
        self._plain = PlainAttributes(trainer.runner)
        self._moved = {name: _parameter_ids(optim) for name, optim in trainer.stepper.optimizers.items()}
        self._own = {id(parameter) for parameter in trainer.runner.parameters()}

    def before_save(self, trainer: Trainer) -> None:
        for name in self._plain.changed() if self._plain is not None else []:
            trainer.note_inexact(
                f"self.{name} of the Runner changed in training, and no checkpoint holds it; "
                "make it a buffer, or give it in get_extra_state()"
            )
        left = self._own - {id(parameter) for parameter in trainer.runner.parameters()}
        for name, before in self._moved.items():
            now = _parameter_ids(trainer.stepper.optimizers[name])
            if now != before:
                trainer.note_inexact(
                    f"the parameters of optimizer {name} changed in training: no later session can take over "
                    "its state; give it all of them at the start, and freeze those that come later"
                )
            elif not left.isdisjoint(one for group in now for one in group):
                trainer.note_inexact(
                    f"optimizer {name} still moves parameters that the Runner has replaced: change them in "
                    "place"
                )


def _parameter_ids(optim: Optim) -> list[list[int]]:
    return [[id(parameter) for parameter in group["params"]] for group in optim.optimizer.param_groups]
