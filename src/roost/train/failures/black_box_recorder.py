"""Keeping the step at which a run ends, so that `roost debug` can stop in it."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from roost.base import durable, state_tree
from roost.base.errors import TrainingError
from roost.package import environment
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.results.black_box import BATCH, NOTE, STATE, FailureNote
from roost.train.step import seeding
from roost.train.step.loss import Window

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_MAX_BOXES = 3
"""That stay in a package."""
_RANK = "rank-0"
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.ndarray)
_COLLECTIONS: tuple[type, ...] = (list, tuple, set, frozenset)
_MAPPINGS: tuple[type, ...] = (dict, OrderedDict, Counter)


class BlackBoxRecorder:
    """Writes failed steps into a package, each as a checkpoint of its own kind: the parts of the trainer as
    they were at the step's begin, its micro-batches, and a `FailureNote`.

    Whatever goes wrong with that is printed and passed over: the step's own error is the one to tell.

    Args:
        folder: The package's ``blackbox``; made if need be, the package not.
        session: Number of the running session.
    """

    def __init__(self, folder: Path, session: int) -> None:
        self.folder, self._session = folder, session

    def keep(
        self,
        trainer: Trainer,
        note: FailureNote,
        window: Sequence[Any] | None,
        *,
        generators: dict[str, Any] | None,
    ) -> Path | None:
        """Keeps a step, and of older ones the newest two. Called where the step has failed.

        Args:
            trainer: Its progress is that of the step before.
            note: Which step.
            window: Its micro-batches; None: they are not kept.
            generators: All random generators as they were at the step's begin (`seeding.rng_state`). None, or
                where an optimizer has moved since: no state is kept, and whoever debugs replays the run.

        Returns:
            The box; None when it could not be written.
        """
        try:
            path = self._keep(trainer, note, window, generators)
        except Exception as error:  # noqa: BLE001  - the step's own error must not be hidden
            print(f"the failed step could not be kept: {_first_line(error)}", flush=True)
            return None
        print(f"step {note.step} is kept: roost debug {quote(str(self.folder.parent))}", flush=True)
        return path

    def _keep(
        self,
        trainer: Trainer,
        note: FailureNote,
        window: Sequence[Any] | None,
        generators: dict[str, Any] | None,
    ) -> Path:
        left_out = list(note.left_out)

        def tried(what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
            try:
                return make()
            except Exception as error:  # noqa: BLE001  - after an error of CUDA nothing on it can be read
                left_out.append(f"{what}: {_first_line(error)}")
                return {}

        stack = tried("the stack", lambda: environment.stack(str(trainer.runner.device)))
        batch: dict[str, Any] = {}
        state: dict[str, Any] = {}
        if window is not None:
            batch = tried("the batch", lambda: _batch_part(window))
        if generators is not None and not trainer.stepper.has_stepped:
            state = tried("the state", lambda: _state_parts(trainer, generators))
        durable.make_folders(self.folder, below=self.folder.parent)

        def write(trees: dict[str, Any]) -> Path:
            said = msgspec.structs.replace(note, left_out=left_out, stack=stack)
            return self._write({**trees, NOTE: msgspec.to_builtins(said)}, trainer)

        try:
            return write({**state, **batch})
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  - reading a device, or what no checkpoint can hold
            left_out.append(f"the state: {_first_line(error)}")
        return write(batch if state else {})

    def _write(self, trees: dict[str, Any], trainer: Trainer) -> Path:
        progress = trainer.progress
        info = Manifest(
            id=checkpoint.next_id(self.folder),
            step=progress.step,
            epoch=progress.epoch,
            batch=progress.batch,
            session=self._session,
            reason="blackbox",
            time=round(time.time(), 3),
        )
        checkpoint.write(self.folder, trees, info)
        for id in checkpoint.ids(self.folder)[:-_MAX_BOXES]:
            durable.remove_folder(checkpoint.checkpoint_folder(self.folder, id))
        return checkpoint.checkpoint_folder(self.folder, info.id)


def _state_parts(trainer: Trainer, generators: dict[str, Any]) -> dict[str, Any]:
    parts = trainer.parts()
    return {**{name: parts[name].state_dict() for name in STATE if name != _RANK}, _RANK: {"rng": generators}}


def _batch_part(window: Sequence[Any]) -> dict[str, Any]:
    found = {BATCH: {"window": _plain_data(list(window))}}
    state_tree.pack(found)  # copies nothing, and what cannot be written is known before the rest is
    return found


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _plain_data(value: Any) -> Any:
    """A nest on the CPU, if it comes back from a file as just what it is.

    Raises:
        TypeError: Something in it would come back as something else, or not at all.
    """
    kind = type(value)
    if kind in _PLAIN or isinstance(value, np.generic):
        return value
    if kind is torch.Tensor:
        return value.detach().cpu()
    if kind in _COLLECTIONS:
        return kind(_plain_data(one) for one in value)
    if kind is deque:
        return deque((_plain_data(one) for one in value), value.maxlen)
    if kind in _MAPPINGS:
        return kind({_plain_data(key): _plain_data(one) for key, one in value.items()})
    raise TypeError(f"it holds a {kind.__module__}.{kind.__qualname__}, which is no plain data")


def redraw_window(trainer: Trainer, note: FailureNote) -> Window:
    """Draws the micro-batches of a step once more, in this process, as the step gets them; every generator is
    afterwards as before.

    Raises:
        TrainingError: A stream cannot go back.
        Exception: Whatever the set, its collate or `Runner.to_device` raises.
    """
    batches = trainer.loaders["train"].redraw(note.epoch, note.batch, note.num_batches)
    if batches is None:
        raise TrainingError(
            "what has no indices cannot be drawn from again", fix="replay the run from a checkpoint before it"
        )
    window = Window()
    for value, num_samples, *_ in batches:
        if num_samples:
            with seeding.isolated():
                window.append(trainer.runner.to_device(value))
            window.num_samples.append(num_samples)
    return window
