"""Stores pictures of what the runner does."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """Calls `Runner.visualize` with the first validation samples, always the same ones, and stores what it
    gives under ``<step>/``.

    A picture that fails is reported, and training goes on. Of several ranks all compute it, because the
    weights may lie on all of them, and rank 0 stores it. Where they do, `visualize` must not fail.

    Args:
        folder: The package's ``media``; made if need be, the one above it not.
        every: The interval; only on request when None.
        samples: How many samples; those of the set's first batch when None.
    """

    phase = Phase.EVAL
    serves = "visualize"

    def __init__(
        self, folder: Path | str, every: str | int | None = None, *, samples: int | None = None
    ) -> None:
        self._folder, self._samples = Path(folder), samples
        # Without an interval it would be due at every step.
        self.every = [] if every is None else every
        self._said = self._said_unwritten = False
        self._is_shared = False
        """Whether weights are gathered just now, by all ranks that hold some."""

    def on_step(self, trainer: Trainer) -> None:
        try:
            found = self._shown(trainer)
        except (Interrupted, RanksApart):
            raise
        except Exception as error:
            if self._is_shared:
                error.add_note("training ends: other ranks may wait for this one's weights in visualize()")
                raise
            # A user's picture must not end a user's training.
            print(f"visualize failed at step {trainer.progress.step}, training goes on:", flush=True)
            print(_short_traceback(error), end="", file=sys.stderr, flush=True)
            return
        try:
            self._store(trainer, found)
        except OSError as error:
            if not self._said_unwritten:
                print(f"pictures not written: {error}; training goes on", flush=True)
            self._said_unwritten = True

    def show(self, trainer: Trainer) -> list[Path]:
        """Shows the first validation set, or that of training where there is no validation; gives the files.

        Raises:
            Interrupted: A stop was requested meanwhile, of any rank.
            ContractError: `Runner.visualize` gave what cannot be stored.
            OSError: A file could not be written.
            Exception: Whatever it raised.
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
            first = self._first(trainer.loaders[names[0]], names[0], says=trainer.ranks.is_main)
            lockstep.meet(CONTINUING)
            batch = trainer.runner.to_device(first.value)
            self._is_shared = trainer.ranks.are_several and sharded_tensors.any_sharded(
                trainer.runner.parameters()
            )
            with trainer.autocast():
                shown = trainer.runner.visualize(batch)
            self._is_shared = False
            found = _encode_files(shown) if trainer.ranks.is_main else {}
            lockstep.meet(ENDING)
        return found

    def _store(self, trainer: Trainer, found: Mapping[str, bytes]) -> list[Path]:
        if not trainer.ranks.is_main:
            return []
        folder = self._folder / str(trainer.progress.step)
        durable.make_folders(folder, below=self._folder.parent)
        durable.sweep(folder)  # what a session that was killed here has left
        for name, data in found.items():
            durable.write(folder / name, data)
        return [folder / name for name in found]

    def _first(self, loader: Batches, name: str, *, says: bool) -> Batch:
        found = loader.first_batch() if self._samples is None else loader.first_samples(self._samples)
        if found is None:
            raise ContractError(f"{name} is empty", fix="look at what the set and its collate give")
        # A set may have fewer; a loader of the project's own gives batches that nobody can cut or join.
        if says and self._samples is not None and found.num_samples != self._samples and not self._said:
            self._said = True
            what = f"visualize_samples is {self._samples}, and {name} gives"
            print(f"{what} {found.num_samples} samples here: these are shown", flush=True)
        return found


def _encode_files(shown: Mapping[str, Any]) -> dict[str, bytes]:
    """What is to be written, by the name of the file.

    Raises:
        ContractError: It is no mapping, a name is none, something cannot be stored, or two have one name.
    """
    if not isinstance(shown, Mapping):
        raise ContractError(
            "visualize() gives no pictures by name",
            received=type(shown).__name__,
            fix='return a dict: {"first": roost.Media("image", pixels)}',
        )
    found: dict[str, bytes] = {}
    for name, value in shown.items():
        if (
            not isinstance(name, str)
            or name.startswith(".")
            or not name.isprintable()
            or not 0 < len(name) <= 80
        ):
            raise ContractError(
                "visualize() gives a name that no file can have",
                received=name,
                fix="give texts of up to 80 characters that do not begin with a dot",
            )
        for suffix, data in media_files.encode_files(value).items():
            file = f"{name.replace('/', '_')}.{suffix}"
            if file in found:
                raise ContractError(
                    f"visualize() gives two that would be the file {file}", fix="give them other names"
                )
            found[file] = data
    return found


def _short_traceback(error: Exception) -> str:
    """The traceback with the user's own lines; the whole one where there are none. What roost itself says
    needs none then."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARY_FOLDERS)]
    if not own and isinstance(error, RoostError):
        return f"{error}\n"
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own or list(frames))]
    return "".join([*lines, *traceback.format_exception_only(error)])
