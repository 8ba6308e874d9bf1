"""Compares a trainer that resumes a checkpoint with the one that wrote it, bit for bit.

The states are compared by fingerprints, so that only one model is in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from roost.base import state_tree
from roost.train import hooks
from roost.train.checkpointing.checkpoints import Stateful
from roost.train.hook import Hook, Phase
from roost.train.trainer import Trainer
from roost.worker.check.short_run import CallbackHook, without_console

_COMPARED_PARTS = ("model", "optimizers", "rank-0")
"""Parts of a checkpoint that are equal in two equal runs after a step; the others contain times."""
Fingerprints = dict[str, str]
"""Fingerprints by the dotted names of the values, such as ``model.net.0.weight``."""


def fingerprints(states: Mapping[str, Any]) -> Fingerprints:
    """Returns a fingerprint of each value in the parts of a checkpoint. A sync point: it reads them all.

    Of the part ``trainer`` only the state of the hooks is included: the rest contains times.

    Raises:
        CheckpointError: A state contains a value that cannot be saved.
    """
    found: Fingerprints = {}
    for name, state in states.items():
        skeleton, leaves = state_tree.pack(state["hooks"] if name == "trainer" else state)
        found.update((f"{name}.{path}", text) for path, text in _plain_values(skeleton, ""))
        for path, leaf in leaves.items():
            found[f"{name}.{path}"] = f"{leaf.dtype} {leaf.shape} {hashlib.sha256(leaf.data).hexdigest()}"
    return found


def _plain_values(skeleton: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yields the values in the skeleton itself (no tensors), with their paths."""
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(skeleton, dict):
        pairs = skeleton.items()
    elif isinstance(skeleton, list):
        pairs = enumerate(skeleton)
    else:
        yield path, repr(skeleton)
        return
    for key, value in pairs:
        yield from _plain_values(value, f"{path}.{key}" if path else str(key))


def differing(one: Fingerprints, other: Fingerprints) -> list[str]:
    """Returns the names of the values that differ or are in only one of the two."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def fingerprints_after_step(parts: Mapping[str, Stateful]) -> Fingerprints:
    """Returns the fingerprints of the parts that are equal in two equal runs after a step."""
    return fingerprints({name: parts[name].state_dict() for name in _COMPARED_PARTS})


class ReloadComparison:
    """Compares a new trainer that resumes a checkpoint with the trainer that wrote it.

    Args:
        saved: Fingerprints of the checkpoint.
        after: Fingerprints of the first trainer right after its next step; empty: do not compare a step.
    """

    def __init__(self, saved: Fingerprints, after: Fingerprints) -> None:
        self._saved, self._after = saved, after
        self.not_restored: list[str] = []
        """Names of the values that differ from the checkpoint after it was loaded."""
        self.differing_after_step: list[str] | None = None
        """Names of the values that differ after the next step; None: not compared."""

    def hooks(self, given: Sequence[Hook]) -> list[Hook]:
        """Returns the hooks of the run after a callback hook that compares."""
        return [
            CallbackHook(0, Phase.MODEL, start=self._start, step=self._step),
            *(hook for hook in without_console(given) if not isinstance(hook, hooks.Test)),
        ]

    def _start(self, trainer: Trainer) -> None:
        # The random generators are restored last, after `on_start` of all hooks: the next step compares them.
        parts = {name: part.state_dict() for name, part in trainer.parts().items() if name != "rank-0"}
        found = fingerprints(parts)
        names = {name for name in {**found, **self._saved} if name.partition(".")[0] in parts}
        self.not_restored = [name for name in differing(self._saved, found) if name in names]

    def _step(self, trainer: Trainer) -> None:
        if self._after:
            self.differing_after_step = differing(self._after, fingerprints_after_step(trainer.parts()))
        trainer.checkpoints = None  # no session will resume this one
        trainer.request_stop("compared")
