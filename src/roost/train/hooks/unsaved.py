"""Names what a run changes and no checkpoint holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roost.train.hook import Hook, Phase
from roost.train.plain_state import PlainState

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Unsaved(Hook):
    """At the first save of a session, names the plain attributes of the runner that have changed since its
    start as inexact: a resumed run begins with other values."""

    phase = Phase.REPORT  # starts last: what another hook's start puts into the runner is no change

    def __init__(self) -> None:
        self._plain: PlainState | None = None

    def on_start(self, trainer: Trainer) -> None:
        self._plain = PlainState(trainer.runner)

    def before_save(self, trainer: Trainer) -> None:
        for name in self._plain.changed() if self._plain is not None else []:
            trainer.note_inexact(
                f"self.{name} of the Runner changed in training, and no checkpoint holds it; "
                "make it a buffer, or give it in get_extra_state()"
            )
