"""Records the sizes of gradients, weights and updates."""

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
    ``stats/grad_norm`` … of all these parameters together.

    A gradient is the one that an optimizer moves with: of the whole window, unscaled, clipped; an update is
    what that optimizer changes; weights are those after the step. Where several optimizers take turns, one
    that does not move in this step has neither gradient nor update; of one that moves several times in a step
    the last time counts. In the mode no_optim none moves, so there are weights alone. A step that is skipped
    has no statistics.

    The norms stay on their device until the row is cut. Only histograms are read back at once.

    Args:
        every: The interval, in steps or epochs: it must be known before a step whether it is looked at.
        params: Globs over the names of the trainable parameters.
        gradients: Whether gradients are looked at.
        weights: Whether weights are.
        updates: Whether updates are, which takes a copy of the weights in such a step.
        histograms: The folder that takes a histogram of each, as ``<step>/gradients.<parameter>.json``;
            made if need be, the one above it not.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: ``every`` is no interval, or a time.
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
        self._looks = False
        """Whether the step that runs is looked at."""
        self._found: dict[str, dict[str, Tensor]] = {}
        """By kind and parameter: () the norm, of the step that runs."""
        self._values: dict[str, dict[str, Tensor]] = {}
        """By kind and parameter: of what a histogram is drawn."""
        self._before: dict[str, Tensor] = {}
        self._handles: list[RemovableHandle] = []
        self._said = False

    def on_start(self, trainer: Trainer) -> None:
        """Finds the parameters.

        Raises:
            ConfigError: A glob matches none.
        """
        found = Parameters(trainer.runner)
        names = found.matching(
            self._params, among=found.trainable, setting="statistics.params", where=self._where
        )
        self._chosen = {name: found.trainable[name] for name in names}

    def before_step(self, trainer: Trainer) -> None:
        step = trainer.progress.step
        self._looks = self._interval.next_step(step, trainer.steps_per_epoch) == step + 1
        self._forget()
        if not self._looks:
            return
        for optim in trainer.stepper.optimizers.values():
            moved = {id(parameter) for parameter in optim.parameters}
            mine = {name: p for name, p in self._chosen.items() if id(p) in moved}
            if mine:
                self._listen(optim, mine)

    def _listen(self, optim: Optim, mine: Mapping[str, Tensor]) -> None:
        """Looks just before the optimizer moves, and just after: when the step is over its gradients may have
        got those of another loss, too."""

        def before(*_: Any) -> None:
            if self._kinds["gradients"] and not optim.needs_closure:
                self._put("gradients", _gradients(mine))
            if self._kinds["updates"]:
                self._before |= {name: p.detach().clone() for name, p in mine.items()}

        def after(*_: Any) -> None:
            if self._kinds["gradients"] and optim.needs_closure:  # it has computed them only now
                self._put("gradients", _gradients(mine))
            if self._kinds["updates"]:
                self._put("updates", {name: p.detach() - self._before.pop(name) for name, p in mine.items()})

        self._handles.append(optim.optimizer.register_step_pre_hook(before))
        self._handles.append(optim.optimizer.register_step_post_hook(after))

    @torch.no_grad()
    def _put(self, kind: str, tensors: Mapping[str, Tensor]) -> None:
        self._found.setdefault(kind, {}).update(norms(tensors))
        if self._folder is not None:
            copies = {name: sharded_tensors.full_tensor(tensor).clone() for name, tensor in tensors.items()}
            self._values.setdefault(kind, {}).update(copies)

    def on_step(self, trainer: Trainer) -> None:
        """Records the norms of what was seen in this step, if it is one that is due."""
        if not self._looks:
            return  # the run's last step counts as due
        if self._kinds["weights"]:
            self._put("weights", {name: p.detach() for name, p in self._chosen.items()})
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
        self._forget()

    def _draw(self, folder: Path) -> None:
        """Writes the histograms; waits for the device."""
        try:
            durable.make_folders(folder, below=folder.parent.parent)
            durable.sweep(folder)  # what a session that was killed here has left
            for kind, values in self._values.items():
                for name, tensor in values.items():
                    suffix, data = encode(Media("histogram", tensor.abs() if tensor.is_complex() else tensor))
                    durable.write(folder / f"{kind}.{name}.{suffix}", data)
        except OSError as error:
            if not self._said:
                print(f"histograms not written: {error}; training goes on", flush=True)
            self._said = True

    def _forget(self) -> None:
        """Lets go of the tensors, and of the optimizers."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._found, self._values, self._before = {}, {}, {}

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        self._forget()


def _gradients(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that there are; a sparse one with its doubles added up, for which a GPU is waited for."""
    found = {name: p.grad.detach() for name, p in parameters.items() if p.grad is not None}
    return {name: one.coalesce().values() if one.is_sparse else one for name, one in found.items()}


def norms(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """() the 2-norm of each, on its device, in float32 where the numbers are shorter. No synchronisation; of
    sharded ones all ranks compute it together."""
    if sharded_tensors.any_sharded(tensors.values()):
        return dict(zip(tensors, sharded_tensors.norms(list(tensors.values())), strict=True))
    wide = [one.float() if one.dtype in (torch.bfloat16, torch.float16) else one for one in tensors.values()]
    return dict(zip(tensors, torch._foreach_norm(wide, 2.0), strict=True)) if wide else {}


def _combined_norm(found: Iterable[Tensor]) -> Tensor:
    """() the norm of all, from their norms."""
    parts = list(found)
    widest = max((one.dtype for one in parts), key=lambda kind: kind.itemsize)
    norm: Tensor = torch.linalg.vector_norm(torch.stack([one.to(parts[0].device, widest) for one in parts]))
    return norm
