"""Stores pictures of what the runner does."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from roost.base import durable
from roost.base.errors import ContractError
from roost.train import evaluation, media, seeding
from roost.train.hook import Hook, Phase

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class Visualize(Hook):
    """Calls `Runner.visualize` with the first validation batch and stores what it gives under ``<step>/``.

    A picture that fails is reported, and training goes on.

    Args:
        folder: The package's ``media``.
        every: The interval; only on request when None.
    """

    phase = Phase.EVAL
    serves = "visualize"

    def __init__(self, folder: Path | str, every: str | int | None = None) -> None:
        self._folder = Path(folder)
        # Without an interval it would be due at every step.
        self.every = [] if every is None else every

    def on_step(self, trainer: Trainer) -> None:
        try:
            self.show(trainer)
        except Exception:  # noqa: BLE001  - a user's picture must not end a user's training
            print(f"visualize failed at step {trainer.progress.step}, training goes on:", flush=True)
            traceback.print_exc()

    def show(self, trainer: Trainer) -> list[Path]:
        """Shows the first validation batch, or the first of training where there is no validation; gives the
        files.

        Raises:
            ContractError: `Runner.visualize` gave what cannot be stored.
            OSError: A file could not be written.
            Exception: Whatever it raised.
        """
        names = [name for name in trainer.loaders if name.startswith("valid")] or ["train"]
        with evaluation.mode(trainer.runner), seeding.isolated(seeding.mix(trainer.seed, "visualize")):
            first = trainer.loaders[names[0]].first()
            if first is None:
                raise ContractError(f"{names[0]} is empty", fix="look at what the set and its collate give")
            batch = trainer.runner.to_device(first.value)
            with trainer.autocast():
                shown = trainer.runner.visualize(batch)
        folder, files = self._folder / str(trainer.progress.step), []
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in shown.items():
            suffix, data = media.encode(value)
            files.append(folder / f"{name.replace('/', '_')}.{suffix}")
            durable.write(files[-1], data)
        return files
