"""Hooks: objects that the trainer calls at named points of the loop, in the fixed order of their phases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from roost.base.errors import ContractError
from roost.base.interval import NEVER, Interval

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

H = TypeVar("H", bound="Hook")


class Phase(IntEnum):
    """The order of hooks within one step. RECORD comes before SAVE and both after EVAL and DECIDE, so that a
    checkpoint holds the metric, the patience and the list of best checkpoints of its own step."""

    MODEL = 0
    SCHEDULE = 1
    EVAL = 2
    DECIDE = 3
    RECORD = 4
    SAVE = 5
    REPORT = 6


class Hook:
    """An object that the trainer calls. Override what you need; what you do not override costs nothing.

    ``every`` limits `on_step` to an interval ("100", "2ep", "10/ep") or several; the last step of the run is
    always due. None: each step. An empty list: only when the request that the hook `serves` is made.
    The state that `state_dict` returns is saved under the hook's `name`.
    """

    phase: Phase = Phase.DECIDE
    every: str | int | Sequence[str | int] | None = None
    serves: str | None = None
    """The request that makes `on_step` due at once: save, validate or visualize."""

    args: Mapping[str, Any] = MappingProxyType({})
    """All settings, if the config names the hook."""

    @property
    def name(self) -> str:
        """The name under which the state is saved; unique among the hooks of a trainer."""
        return type(self).__name__

    def monitors(self, trainer: Trainer) -> Mapping[str, str]:
        """Returns the metrics that this hook decides by, each under the setting that names it. A metric that
        no validation reports is an error before the first step."""
        return {}

    def on_start(self, trainer: Trainer) -> None:
        """Called when everything is built and restored, before the first step."""

    def before_step(self, trainer: Trainer) -> None:
        """Called before each step."""

    def on_step(self, trainer: Trainer) -> None:
        """Called after a step, when due."""

    def on_epoch(self, trainer: Trainer) -> None:
        """Called after the last step of an epoch, in the same phase as `on_step`."""

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        """Called after a validation; ``results`` are its metrics by full name (``valid/loss``)."""

    def before_save(self, trainer: Trainer) -> None:
        """Called before a checkpoint is written: make durable what must not be newer inside it than
        outside."""

    def on_save(self, trainer: Trainer, path: Path) -> None:
        """Called after the checkpoint at ``path`` is committed. If it is written concurrently with the
        training, that is some steps later; with several ranks, before the next save, at the same step on
        each."""

    def on_rollback(self, trainer: Trainer) -> None:
        """Called after a rollback: all state, that of this hook included, is that of a checkpoint again."""

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        """Called at the end of the session. ``reason`` is "finished", the reason of the stop, or the
        error."""

    def state_dict(self) -> dict[str, Any]:
        """Returns what must survive a restart. Not for phase REPORT, which comes after the save."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""


class Call:
    """A method of a hook that is called after a step (`on_step` or `on_epoch`), with its schedule."""

    __slots__ = ("each_step", "epoch_only", "hook", "intervals", "next_second", "next_step")

    def __init__(self, hook: Hook, *, epoch_only: bool) -> None:
        self.hook, self.epoch_only = hook, epoch_only
        self.each_step = not epoch_only and hook.every is None
        given = [] if epoch_only or hook.every is None else hook.every
        given = [given] if isinstance(given, str | int) else given
        self.intervals = [Interval.parse(one, setting=f"{hook.name}.every") for one in given]
        self.next_step = 0
        self.next_second = float("inf")

    def schedule(self, step: int, steps_per_epoch: int, now: float) -> None:
        """Computes when the call is due next, from ``step`` and the clock's ``now`` (seconds)."""
        if self.epoch_only:
            self.next_step = step - step % steps_per_epoch + steps_per_epoch
            return
        if self.each_step:
            self.next_step = step + 1
            return
        self.next_step = min((i.next_step(step, steps_per_epoch) for i in self.intervals), default=NEVER)
        self.next_second = now + min((i.seconds for i in self.intervals if i.seconds), default=float("inf"))

    def due(self, step: int, now: float) -> bool:
        """Whether the call is due after ``step``."""
        return step >= self.next_step or now >= self.next_second

    @property
    def key(self) -> str:
        """The name of this call, unique in a trainer; in the checkpoint if a stop interrupted the step's
        work."""
        return f"{self.hook.name}.on_epoch" if self.epoch_only else self.hook.name

    def is_requested(self, requests: Set[str]) -> bool:
        """Whether the hook serves one of the requests."""
        return not self.epoch_only and self.hook.serves in requests

    def __call__(self, trainer: Trainer) -> None:
        if self.epoch_only:
            self.hook.on_epoch(trainer)
        else:
            self.hook.on_step(trainer)


_METHODS = (
    "on_start",
    "before_step",
    "on_step",
    "on_epoch",
    "on_eval",
    "before_save",
    "on_save",
    "on_rollback",
    "on_stop",
)


class CallLists:
    """The hooks to call at each point of the loop. Built once, from overridden methods only.

    Args:
        hooks: Sorted by phase; within a phase this order is kept.

    Raises:
        ContractError: Two hooks have one name, an object is not a `Hook`, or a REPORT hook has state.
    """

    def __init__(self, hooks: Sequence[Hook]) -> None:
        names: set[str] = set()
        for hook in hooks:
            if not isinstance(hook, Hook):
                raise ContractError("is not a hook", received=hook, fix="derive it from roost.Hook")
            if hook.name in names:
                raise ContractError(
                    f"two hooks are named {hook.name!r}, so their states cannot be distinguished",
                    fix="override `name` in one of them",
                )
            names.add(hook.name)
            if hook.phase is Phase.REPORT and _overrides(hook, "state_dict"):
                raise ContractError(
                    f"{hook.name} has state, but its phase REPORT comes after SAVE: a checkpoint would hold "
                    "the state of the previous step",
                    fix="choose an earlier phase, for example roost.Phase.DECIDE",
                )
        self.hooks = sorted(hooks, key=lambda hook: hook.phase)
        self.start = self._having("on_start")
        self.before_step = self._having("before_step")
        self.eval = self._having("on_eval")
        self.before_save = self._having("before_save")
        self.save = self._having("on_save")
        self.rollback = self._having("on_rollback")
        self.stop = self._having("on_stop")
        self.with_state = self._having("state_dict")
        self.step = [
            Call(hook, epoch_only=epoch_only)
            for hook in self.hooks
            for epoch_only, method in ((False, "on_step"), (True, "on_epoch"))
            if _overrides(hook, method)
        ]

    def _having(self, method: str) -> list[Hook]:
        return [hook for hook in self.hooks if _overrides(hook, method)]

    def of_kind(self, kind: type[H]) -> list[H]:
        """Returns the hooks of a kind."""
        return [hook for hook in self.hooks if isinstance(hook, kind)]

    def monitors(self, trainer: Trainer) -> list[tuple[str, str]]:
        """Returns the metrics that the hooks decide by, each after the setting that names it."""
        return [pair for hook in self.hooks for pair in hook.monitors(trainer).items()]

    def table(self) -> str:
        """Returns a table with phase, name, methods and interval of each hook, in calling order."""
        rows = [("phase", "hook", "methods", "every"), *(self._row(hook) for hook in self.hooks)]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
        return "\n".join("  ".join(row).rstrip() for row in padded)

    def _row(self, hook: Hook) -> tuple[str, str, str, str]:
        methods = [method for method in _METHODS if _overrides(hook, method)]
        every = hook.every if hook.every is not None else "each" if "on_step" in methods else ""
        shown = every if isinstance(every, str | int) else " ".join(map(str, every)) or "on request"
        return hook.phase.name, hook.name, " ".join(methods), str(shown)


def _overrides(hook: Hook, method: str) -> bool:
    return getattr(type(hook), method) is not getattr(Hook, method)


def note_wall_clock_interval(
    trainer: Trainer, what: str, every: str | int | Sequence[str | int] | None
) -> None:
    """Notes the run as inexact if rows, validations or the like come by the clock. Saves may: they do not
    affect training."""
    given = [every] if isinstance(every, str | int) else every or []
    if any(Interval.parse(one, setting=f"{what}.every").seconds for one in given):
        trainer.note_inexact(f"wall clock: {what} comes every {' or '.join(map(str, given))}")
