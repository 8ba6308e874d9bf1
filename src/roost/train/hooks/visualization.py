"""The hook that stores the media of `Runner.visualize`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from roost.base import durable
from roost.base.errors import ContractError, RanksApart, RoostError
from roost.train.data.batches import Batch, Batches, Interrupted
from roost.train.distributed import sharded_tensors
from roost.train.distributed.lockstep import CONTINUING, ENDING, Lockstep
from roost.train.evaluation import split_evaluation
from roost.train.hook import Hook, Phase
from roost.train.reporting import media_files
from roost.train.step import seeding

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_LIBRARY_FOLDERS = (str(Path(__file__).parents[2]), str(Path(torch.__file__).parent))


class Visualize(Hook):
    """Calls `Runner.visualize` with the first validation samples, always the same ones, and stores the media
    that it returns under ``<step>/``.

    An error of `visualize` is printed, and training continues. All ranks call it, because the weights may be
    sharded over them, and rank 0 stores the media. With sharded weights an error ends the run.

    Args:
        folder: The folder ``media`` of the package; created if needed, its parent is not.
        every: The interval; only on request when None.
        samples: Number of samples; those of the set's first batch when None.
    """

    phase = Phase.EVAL
    serves = "visualize"

    def __init__(
        self, folder: Path | str, every: str | int | None = None, *, samples: int | None = None
    ) -> None:
        self._folder, self._samples = Path(folder), samples
        # Without an interval it would be due at every step.
        self.every = [] if every is None else every
        self._has_warned_of_size = self._has_warned_of_disk = False
        self._is_shared = False
        """Whether sharded weights are being gathered, which needs all ranks."""

    def on_step(self, trainer: Trainer) -> None:
        try:
            found = self._shown(trainer)
        except (Interrupted, RanksApart):
            raise
        except Exception as error:
            if self._is_shared:
                error.add_note("training ends: other ranks may wait for this rank's weights in visualize()")
                raise
            # A failed picture must not end the training.
            print(f"visualize failed at step {trainer.progress.step}, training continues:", flush=True)
            print(_short_traceback(error), end="", file=sys.stderr, flush=True)
            return
        try:
            self._store(trainer, found)
        except OSError as error:
            if not self._has_warned_of_disk:
                print(f"media not written: {error}; training continues", flush=True)
            self._has_warned_of_disk = True

    def show(self, trainer: Trainer) -> list[Path]:
        """Visualizes the first validation set, or the training set if there is none; returns the files.

        Raises:
            Interrupted: A stop was requested meanwhile, on any rank.
            ContractError: `Runner.visualize` returned a value that cannot be stored.
            OSError: A file could not be written.
            Exception: Any error of `Runner.visualize`.
        """
        return self._store(trainer, self._shown(trainer))

    def _shown(self, trainer: Trainer) -> dict[str, bytes]:
        names = [name for name in trainer.loaders if name.startswith("valid")] or ["train"]
        trainer.publish("visualizing")
        with (
            split_evaluation.evaluation_mode(trainer.runner),
            seeding.isolated(seeding.mix(trainer.seed, "visualize")),
            Lockstep(trainer.ranks, "visualize()") as lockstep,
        ):
            first = self._first(trainer.loaders[names[0]], names[0], prints=trainer.ranks.is_main)
            lockstep.meet(CONTINUING)
            batch = trainer.runner.to_device(first.value)
            self._is_shared = trainer.ranks.are_several and sharded_tensors.any_sharded(
                trainer.runner.parameters()
            )
            with trainer.autocast():
                shown = trainer.runner.visualize(batch)
            self._is_shared = False
            found = media_files.encode_named(shown) if trainer.ranks.is_main else {}
            lockstep.meet(ENDING)
        return found

    def _store(self, trainer: Trainer, found: Mapping[str, bytes]) -> list[Path]:
        if not trainer.ranks.is_main:
            return []
        folder = self._folder / str(trainer.progress.step)
        durable.make_folders(folder, below=self._folder.parent)
        durable.sweep(folder)  # removes the partial files of a session that was killed here
        for name, data in found.items():
            durable.write(folder / name, data)
        return [folder / name for name in found]

    def _first(self, loader: Batches, name: str, *, prints: bool) -> Batch:
        found = loader.first_batch() if self._samples is None else loader.first_samples(self._samples)
        if found is None:
            raise ContractError(f"{name} is empty", fix="check what the set and its collate return")
        # A set may have fewer samples; the batches of an external loader can be neither cut nor joined.
        if (
            prints
            and self._samples is not None
            and found.num_samples != self._samples
            and not self._has_warned_of_size
        ):
            self._has_warned_of_size = True
            what = f"visualize_samples is {self._samples}, and {name} gives"
            print(f"{what} {found.num_samples} samples here: all of these are shown", flush=True)
        return found


def _short_traceback(error: Exception) -> str:
    """The traceback with only the frames of the project; with all frames if there are none. An error of roost
    without a frame of the project needs no traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARY_FOLDERS)]
    if not own and isinstance(error, RoostError):
        return f"{error}\n"
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own or list(frames))]
    return "".join([*lines, *traceback.format_exception_only(error)])
