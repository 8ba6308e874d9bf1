"""What a project writes: a Dataset and a Runner (DESIGN, section 4)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from roost.base.errors import ContractError
from roost.train.data.fetch import Collate
from roost.train.events import Value
from roost.train.optim.optimizer import Optim
from roost.train.progress import Progress
from roost.train.reporting.media_files import Media
from roost.train.step.stepper import Stepper

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


@dataclass(frozen=True)
class Data:
    """The sets of a run.

    A set is one of:

    - map-style, with ``len()`` and ``[index]``: roost makes the batches, in the order that the settings ask
      for. Some settings need one number for each of its samples, an attribute or a method without arguments:
      ``lengths`` (``data.sort_by_length``, ``data.max_tokens``), ``weights`` (``data.weighted``);
    - an iterable, such as torch's ``IterableDataset``: roost makes the batches, in the order in which the
      samples come. To be trained on without ``len()`` it needs ``data.steps_per_epoch``;
    - `roost.Sampled`: a function that makes whole batches;
    - somebody else's loader, which makes its own batches: torch's ``DataLoader``, torchdata's
      ``StatefulDataLoader`` or a node of it.

    Args:
        train: One, or several map-style sets by name, which ``data.mix`` joins.
        valid: One, or several by name; none when None.
        test: Likewise.
        collate: Joins samples to a batch; torch's default when None. Or several of them by split: ``train``,
            ``valid``, ``test``, ``predict`` (see `Dataset.predict`), and before these the name of one set,
            such as ``valid/NAME``.
        info: Handed to the Runner as ``self.info``.
    """

    train: Any
    valid: Any = None
    test: Any = None
    collate: Collate | Mapping[str, Collate | None] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


class Dataset:
    """Override `build`, `prepare` for what is done once per machine, and `predict` for data without labels.

    Attributes:
        args: All settings, yours included.
    """

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.args = args

    def prepare(self) -> None:
        """Once per machine, before any rank: download, unpack."""

    def build(self) -> Data:
        """The sets."""
        raise ContractError(
            f"{type(self).__name__} has no build()",
            fix="write `def build(self) -> roost.Data` in your Dataset",
        )

    def predict(self, source: str) -> Any:
        """The set that `roost predict --data SOURCE` goes through where SOURCE names none of `build`'s:
        map-style, or an iterable. Called after `build`. Without it roost reads .npy, .npz and .csv itself.

        Args:
            source: As it was typed; of a file or folder that is there its absolute path.
        """
        raise NotImplementedError


class Runner(nn.Module):
    """The model with its loss and its metrics. Override `build`, `loss`, and usually `evaluate`.

    Attributes:
        args: All settings, yours included.
        info: What the Dataset handed over.
    """

    def __init__(self, args: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.args: Mapping[str, Any] = args or {}
        self.info: Mapping[str, Any] = info or {}
        self._logged = _Log()
        self._trainer: Trainer | None = None
        self._attached_device: torch.device | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        # nn.Module would let self.loss = nn.MSELoss() shadow the method, and the loop would call the module.
        taken = getattr(type(self), name, None)
        if inspect.isroutine(taken) or isinstance(taken, property):
            raise ContractError(
                f"self.{name} is a {'property' if isinstance(taken, property) else 'method'} of the Runner "
                "and would be lost",
                received=type(value).__name__,
                fix=f"call it self.{name}_{'module' if isinstance(value, nn.Module) else 'value'}",
            )
        super().__setattr__(name, value)

    def attach(self, trainer: Trainer) -> None:
        """Called by the Trainer, so that `log` and `progress` work."""
        self.__dict__["_trainer"] = trainer  # past nn.Module: a trainer is no part of the model
        self._attached_device = self.device  # looking it up costs 3 µs, and a step may be 100

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        parameter = next(self.parameters(), None)
        return parameter.device if parameter is not None else torch.device("cpu")

    @property
    def progress(self) -> Progress:
        """Where the run is: step, epoch, fraction, …"""
        return self._trainer.progress if self._trainer is not None else Progress()

    def build(self) -> None:
        """Makes the modules; called once, seeded. Afterwards everything is moved to the device."""
        raise ContractError(
            f"{type(self).__name__} has no build()", fix="write `def build(self)` in your Runner"
        )

    def optimizers(self) -> Mapping[str, Optim | torch.optim.Optimizer]:
        """The optimizers by name; those of the config when not overridden."""
        raise NotImplementedError

    def loss(self, batch: Any) -> Tensor | Mapping[str, Tensor]:
        """The loss of a batch, its mean; or a mapping with "loss", optionally "weight" (samples when
        absent), and whatever else shall be recorded as ``train/<name>``."""
        raise ContractError(
            f"{type(self).__name__} has no loss()", fix="write `def loss(self, batch)` in your Runner"
        )

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        """Per sample (B, ...), or the batch's mean (); called without gradients. The loss when not
        overridden. Means become ``valid/<name>``; "id" is not averaged."""
        if type(self).loss is Runner.loss:
            raise ContractError(
                f"{type(self).__name__} has no evaluate(), which a validation or test set needs",
                fix="write `def evaluate(self, batch)` in your Runner, or give no such set",
            )
        output = self.loss(batch)
        return (
            {"loss": output}
            if isinstance(output, Tensor)
            else {k: v for k, v in output.items() if k != "weight"}
        )

    def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
        """Metrics of the whole split, from all values of all its samples in the set's order, on the CPU."""
        return {}

    summarize.is_default = True  # type: ignore[attr-defined]

    def predict(self, batch: Any) -> Mapping[str, Any]:
        """For data without labels: by name a tensor or array (B, ...), or a list with a text, number or list
        for each sample. Called by `roost predict`, without gradients."""
        raise ContractError(
            f"{type(self).__name__} has no predict()",
            fix="write `def predict(self, batch)` in your Runner; it gives results by name, for each sample",
        )

    def visualize(self, batch: Any) -> Mapping[str, Media]:
        """Figures, strings or `roost.Media` by name, stored under ``media/<step>/``."""
        return {}

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Value]:
        """One step, whatever it takes: all optimizers on `loss`. A GAN overrides it and runs its two."""
        values = stepper.run(self.loss, batches, optimizer=stepper.every_optimizer)
        self._logged.check(values)
        return values

    def to_device(self, batch: Any) -> Any:
        """The batch on the device: any nest of tensors, and of objects that have ``to``."""
        device = self._attached_device or self.device
        return batch if device.type == "cpu" else moved(batch, device)

    def log(self, **values: Value) -> None:
        """Adds tensors or numbers to the row as ``train/<name>``; costs no synchronisation.

        Each call counts the same in the row's mean, whatever the batch size; what `loss` returns is weighted
        by its samples. Outside of training it is dropped, and that is said once: return it from `evaluate`.

        Raises:
            ContractError: "weight" is no name for it; nor, in `update`, is one that `loss` returns too.
        """
        if self._trainer is None:
            return
        if not self.training:
            self._logged.say_dropped(values)
            return
        self._logged.add(values)
        self._trainer.events.log({k: v.detach() if isinstance(v, Tensor) else v for k, v in values.items()})

    def print(self, *values: object) -> None:
        """Prints on rank 0 alone."""
        if not _are_ranks() or dist.get_rank() == 0:
            print(*values, flush=True)

    def all_gather(self, tensor: Tensor) -> Tensor:
        """(ranks, ...) the tensor of every rank, of the same shape on each; with one process, its own. Every
        rank must call it, as often as the others: `loss` and `evaluate` are called equally often on all. No
        gradient flows back through the tensors of several ranks."""
        if not _are_ranks():
            return tensor.unsqueeze(0)
        # NCCL moves nothing that lies on the CPU.
        device = self.device if dist.get_backend() == "nccl" else tensor.device
        own = tensor.detach().to(device).contiguous()
        found = own.new_empty(dist.get_world_size(), *own.shape)
        dist.all_gather(list(found), own)
        return found.to(tensor.device)


def _are_ranks() -> bool:
    return dist.is_available() and dist.is_initialized()


class _Log:
    """The names given to `Runner.log`. Two means of one name, differently weighted, would be one number."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._said = False

    def add(self, names: Iterable[str]) -> None:
        self._names.update(names)
        if "weight" in self._names:
            raise ContractError(
                "log(weight=...) would weight the row instead of being recorded", fix="take another name"
            )
        if "skipped" in self._names:
            raise ContractError(
                "log(skipped=...) is what roost itself records of steps that moved nothing",
                fix="take another name",
            )

    def check(self, returned: Iterable[str]) -> None:
        for name in self._names.intersection(returned):
            raise ContractError(
                f"loss() returns {name!r}, and self.log() is given it too",
                fix="return it, which weights it by the samples, or take another name for log()",
            )

    def say_dropped(self, names: Iterable[str]) -> None:
        if not self._said:
            self._said = True
            shown = ", ".join(names)
            print(f"self.log({shown}) outside of training is dropped: return it from evaluate()", flush=True)


def moved(value: Any, device: torch.device) -> Any:
    """A nest of tensors on another device; copies to CUDA do not wait for each other.

    What knows how to move itself is asked first, whatever else it is: a tokenizer's batch is a mapping too.
    """
    if isinstance(value, Tensor):
        # Elsewhere the host could read, or give away, memory that is still being copied.
        return value.to(device, non_blocking=device.type == "cuda")
    if callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, Mapping):
        return _moved_mapping(value, device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(item, device) for item in value)
    return value


def _moved_mapping(value: Mapping[Any, Any], device: torch.device) -> Mapping[Any, Any]:
    items = {name: moved(item, device) for name, item in value.items()}
    if type(value) is dict or not isinstance(value, MutableMapping):  # one that is fixed cannot be refilled
        return items
    made = copy.copy(value)
    made.update(items)
    return made
