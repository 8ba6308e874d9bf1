"""The hook that saves checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roost.train.hook import Hook, Phase

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Save(Hook):
    """Saves at its intervals, on request (`Best`, `Trainer.request_save`) and in the last step of the run.

    Scheduled saves are counted separately: the slow track keeps every n-th of them, however many other saves
    come between.
    """

    phase = Phase.SAVE
    serves = "save"

    def __init__(self, every: str | int | Sequence[str | int] = "1ep") -> None:
        self.every = every
        self._scheduled = 0

    def on_step(self, trainer: Trainer) -> None:
        if trainer.due_now:
            number = self._scheduled
            self._scheduled += 1  # before the save, because the checkpoint has this count
            trainer.save("scheduled", scheduled=number)
        else:
            trainer.save(_reason(trainer))

    def state_dict(self) -> dict[str, Any]:
        return {"scheduled": self._scheduled}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scheduled = state["scheduled"]


def _reason(trainer: Trainer) -> str:
    if trainer.requested("best"):
        return "best"
    if trainer.requested("hold"):
        return "held"
    return "final" if trainer.finished else "requested"
