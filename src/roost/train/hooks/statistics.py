"""The hook that records norms and histograms of gradients, weights and updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from roost.base import durable
from roost.base.interval import parse_steps
from roost.config.settings import Where
from roost.package.records import STATS
from roost.train.distributed import sharded_tensors
from roost.train.hook import Hook, Phase
from roost.train.model.parameters import Parameters
from roost.train.optim.optimizer import Optim
from roost.train.reporting.media_files import Media, encode

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_NORMS = {"gradients": "grad_norm", "weights": "weight_norm", "updates": "update_norm"}


class Statistics(Hook):
    """Records norms as ``stats/grad_norm/<parameter>``, ``stats/weight_norm/…``, ``stats/update_norm/…``, and
    the norms of all these parameters together as ``stats/grad_norm`` and so on.

    The gradient is the one that the optimizer uses: of the whole window, unscaled, clipped. The update is the
    change that this optimizer makes; weights are those after the step. If several optimizers take turns, one
    that does not step in this step has neither gradient nor update; if an optimizer steps several times in
    one step, the last time counts. In the mode no_optim no optimizer steps, so only weights are recorded. A
    skipped step has no statistics.

    The norms stay on their device until the row is written. Only histograms are read back at once.

    Args:
        every: The interval, in steps or epochs: before a step it must be known whether it is recorded.
        params: Globs over the names of the trainable parameters.
        gradients: Whether to record gradients.
        weights: Whether to record weights.
        updates: Whether to record updates, which takes a copy of the weights in such a step.
        histograms: The folder for a histogram of each tensor, ``<step>/gradients.<parameter>.json``; created
            if needed, its parent is not.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: ``every`` is not an interval, or is a time.
    """

    phase = Phase.MODEL

    def __init__(
        self,
        every: str | int = 100,
        params: str | Sequence[str] = "*",
        *,
        gradients: bool = True,
        weights: bool = True,
        updates: bool = False,
        histograms: Path | str | None = None,
        where: Where = lambda key: None,
    ) -> None:
        self.every = every
        self._interval = parse_steps(every, setting="statistics.every")
        self._params, self._where = params, where
        self._kinds = {"gradients": gradients, "weights": weights, "updates": updates}
        self._folder = Path(histograms) if histograms is not None else None
        self._chosen: dict[str, Tensor] = {}
        self._is_recorded = False
        """Whether the current step is recorded."""
        self._found: dict[str, dict[str, Tensor]] = {}
        """By kind and parameter: () the norm in the current step."""
        self._values: dict[str, dict[str, Tensor]] = {}
        """By kind and parameter: the tensor of a histogram."""
        self._before: dict[str, Tensor] = {}
        self._handles: list[RemovableHandle] = []
        self._has_warned = False

    def on_start(self, trainer: Trainer) -> None:
        """Finds the parameters.

        Raises:
            ConfigError: A glob matches no parameter.
        """
        found = Parameters(trainer.runner)
        names = found.matching(
            self._params, among=found.trainable, setting="statistics.params", where=self._where
        )
        self._chosen = {name: found.trainable[name] for name in names}

    def before_step(self, trainer: Trainer) -> None:
        step = trainer.progress.step
        self._is_recorded = self._interval.next_step(step, trainer.steps_per_epoch) == step + 1
        self._clear()
        if not self._is_recorded:
            return
        for optim in trainer.stepper.optimizers.values():
            moved = {id(parameter) for parameter in optim.parameters}
            mine = {name: p for name, p in self._chosen.items() if id(p) in moved}
            if mine:
                self._register_hooks(optim, mine)

    def _register_hooks(self, optim: Optim, mine: Mapping[str, Tensor]) -> None:
        """Registers hooks that record just before and just after the optimizer steps: at the end of the
        trainer's step, the gradients may include those of another loss."""

        def before(*_: Any) -> None:
            if self._kinds["gradients"] and not optim.needs_closure:
                self._record("gradients", _gradients(mine))
            if self._kinds["updates"]:
                self._before |= {name: p.detach().clone() for name, p in mine.items()}

        def after(*_: Any) -> None:
            if self._kinds["gradients"] and optim.needs_closure:  # computed by the closure within the step
                self._record("gradients", _gradients(mine))
            if self._kinds["updates"]:
                self._record(
                    "updates", {name: p.detach() - self._before.pop(name) for name, p in mine.items()}
                )

        self._handles.append(optim.optimizer.register_step_pre_hook(before))
        self._handles.append(optim.optimizer.register_step_post_hook(after))

    @torch.no_grad()
    def _record(self, kind: str, tensors: Mapping[str, Tensor]) -> None:
        self._found.setdefault(kind, {}).update(norms(tensors))
        if self._folder is not None:
            copies = {name: sharded_tensors.full_tensor(tensor).clone() for name, tensor in tensors.items()}
            self._values.setdefault(kind, {}).update(copies)

    def on_step(self, trainer: Trainer) -> None:
        """Logs the norms of this step, if it is recorded."""
        if not self._is_recorded:
            return  # the agenda calls this also in the last step of the run
        if self._kinds["weights"]:
            self._record("weights", {name: p.detach() for name, p in self._chosen.items()})
        values: dict[str, Tensor] = {}
        for kind, found in self._found.items():
            if found:
                name = f"{STATS}{_NORMS[kind]}"
                values[name] = _combined_norm(found.values())
                values.update({f"{name}/{parameter}": norm for parameter, norm in found.items()})
        if values:
            trainer.events.log(values, of_step=True)
        if self._folder is not None and trainer.ranks.is_main:
            self._draw(self._folder / str(trainer.progress.step))
        self._clear()

    def _draw(self, folder: Path) -> None:
        """Writes the histograms. A sync point."""
        try:
            durable.make_folders(folder, below=folder.parent.parent)
            durable.sweep(folder)  # removes the partial files of a session that was killed here
            for kind, values in self._values.items():
                for name, tensor in values.items():
                    suffix, data = encode(Media("histogram", tensor.abs() if tensor.is_complex() else tensor))
                    durable.write(folder / f"{kind}.{name}.{suffix}", data)
        except OSError as error:
            if not self._has_warned:
                print(f"histograms not written: {error}; training continues", flush=True)
            self._has_warned = True

    def _clear(self) -> None:
        """Frees the tensors and removes the hooks of the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._found, self._values, self._before = {}, {}, {}

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        self._clear()


def _gradients(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The existing gradients; a sparse one is coalesced, which is a sync point on a GPU."""
    found = {name: p.grad.detach() for name, p in parameters.items() if p.grad is not None}
    return {name: one.coalesce().values() if one.is_sparse else one for name, one in found.items()}


def norms(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """() the 2-norm of each tensor, on its device, in float32 for 16-bit types. No sync with the device. For
    sharded tensors it is a collective of all ranks."""
    if sharded_tensors.any_sharded(tensors.values()):
        return dict(zip(tensors, sharded_tensors.norms(list(tensors.values())), strict=True))
    wide = [one.float() if one.dtype in (torch.bfloat16, torch.float16) else one for one in tensors.values()]
    return dict(zip(tensors, torch._foreach_norm(wide, 2.0), strict=True)) if wide else {}


def _combined_norm(found: Iterable[Tensor]) -> Tensor:
    """() the norm of all tensors together, from their norms."""
    parts = list(found)
    widest = max((one.dtype for one in parts), key=lambda kind: kind.itemsize)
    norm: Tensor = torch.linalg.vector_norm(torch.stack([one.to(parts[0].device, widest) for one in parts]))
    return norm
