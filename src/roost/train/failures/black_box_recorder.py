"""The recorder of the black box: keeps the step by which a run fails, so that `roost debug` can replay it."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
import numpy as np
import torch

from roost.base import durable, state_tree
from roost.base.errors import TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.results.black_box import BATCH, NOTE, STATE, FailureNote
from roost.package.resume import environment
from roost.train.accelerators.registry import accelerator_of
from roost.train.checkpointing.checkpoints import Stateful
from roost.train.data.batches import Batches
from roost.train.failures.step_context import StepContext
from roost.train.progress import Progress
from roost.train.step import seeding
from roost.train.step.loss import Window

_MAX_BOXES = 3
"""Failed steps that stay in a package; older ones are removed."""
_RANK = "rank-0"
_PLAIN = (type(None), bool, int, float, complex, str, bytes, np.ndarray)
_COLLECTIONS: tuple[type, ...] = (list, tuple, set, frozenset)
_MAPPINGS: tuple[type, ...] = (dict, OrderedDict, Counter)


class BlackBoxRecorder:
    """Writes failed steps into a package, each in the format of a checkpoint: the parts of the run as
    they were when the step began, its micro-batches, and a `FailureNote`.

    An error of the recorder itself is printed and ignored: the error of the step must not be hidden.

    Args:
        folder: The folder ``blackbox`` of the package; created if needed, the package is not.
        session: Number of the running session.
    """

    def __init__(self, folder: Path, session: int) -> None:
        self.folder, self._session = folder, session

    def keep(
        self,
        context: StepContext,
        note: FailureNote,
        window: Sequence[Any] | None,
        *,
        generators: dict[str, Any] | None,
    ) -> Path | None:
        """Writes a failed step and removes all older ones but the newest two. Called right after the failure.

        Args:
            context: The surroundings of the step.
            note: The note of the step.
            window: The micro-batches of the step; they are not kept if None.
            generators: All random generators as they were when the step began (`seeding.rng_state`). If None,
                or if an optimizer has stepped since, no state is kept and the debugger replays the run.

        Returns:
            The folder of the black box; None if it could not be written.
        """
        try:
            path = self._keep(context, note, window, generators)
        except Exception as error:  # noqa: BLE001  - the step's own error must not be hidden
            print(f"the failed step could not be kept for roost debug: {_first_line(error)}", flush=True)
            return None
        print(f"step {note.step} is kept: roost debug {quote(str(self.folder.parent))}", flush=True)
        return path

    def _keep(
        self,
        context: StepContext,
        note: FailureNote,
        window: Sequence[Any] | None,
        generators: dict[str, Any] | None,
    ) -> Path:
        left_out = list(note.left_out)

        def tried(what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
            try:
                return make()
            except Exception as error:  # noqa: BLE001  - after a CUDA error the device cannot be read
                left_out.append(f"{what}: {_first_line(error)}")
                return {}

        device = context.runner.device
        stack = tried("the stack", lambda: environment.stack(str(device), accelerator_of(device)))
        batch: dict[str, Any] = {}
        state: dict[str, Any] = {}
        if window is not None:
            batch = tried("the batch", lambda: _batch_part(window))
        if generators is not None and not context.stepper.has_stepped:
            state = tried("the state", lambda: _state_parts(context.parts(), generators))
        durable.make_folders(self.folder, below=self.folder.parent)

        def write(trees: dict[str, Any]) -> Path:
            complete = msgspec.structs.replace(note, left_out=left_out, stack=stack)
            return self._write({**trees, NOTE: msgspec.to_builtins(complete)}, context.progress)

        try:
            return write({**state, **batch})
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  - a device cannot be read, or a value cannot be saved
            left_out.append(f"the state: {_first_line(error)}")
        return write(batch if state else {})

    def _write(self, trees: dict[str, Any], progress: Progress) -> Path:
        manifest = Manifest(
            id=checkpoint.next_id(self.folder),
            step=progress.step,
            epoch=progress.epoch,
            batch=progress.batch,
            session=self._session,
            reason="blackbox",
            time=round(time.time(), 3),
        )
        checkpoint.write(self.folder, trees, manifest)
        for id in checkpoint.ids(self.folder)[:-_MAX_BOXES]:
            durable.remove_folder(checkpoint.checkpoint_folder(self.folder, id))
        return checkpoint.checkpoint_folder(self.folder, manifest.id)


def _state_parts(parts: Mapping[str, Stateful], generators: dict[str, Any]) -> dict[str, Any]:
    return {**{name: parts[name].state_dict() for name in STATE if name != _RANK}, _RANK: {"rng": generators}}


def _batch_part(window: Sequence[Any]) -> dict[str, Any]:
    found = {BATCH: {"window": _plain_data(list(window))}}
    state_tree.pack(found)  # copies nothing; finds values that cannot be written before anything is
    return found


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _plain_data(value: Any) -> Any:
    """A nested value with its tensors on the CPU.

    Raises:
        TypeError: A value in it would be read back as another type, or not at all.
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
    raise TypeError(f"it holds a {kind.__module__}.{kind.__qualname__}, which is not plain data")


def redraw_window(loader: Batches, to_device: Callable[[Any], Any], note: FailureNote) -> Window:
    """Draws the micro-batches of a step again, in this process and on the device; leaves every random
    generator as it was.

    Args:
        loader: The training set.
        to_device: Moves a micro-batch to the device (`Runner.to_device`).
        note: Locates the step in the data.

    Raises:
        TrainingError: The set has no indices, and a stream cannot go back.
        Exception: Any error of the set, its collate or `Runner.to_device`.
    """
    batches = loader.redraw(note.epoch, note.batch, note.num_batches)
    if batches is None:
        raise TrainingError(
            "a set without indices cannot be read again",
            fix="replay the run from a checkpoint before the step",
        )
    window = Window()
    for value, num_samples, *_ in batches:
        if num_samples:
            with seeding.isolated():
                window.append(to_device(value))
            window.num_samples.append(num_samples)
    return window
