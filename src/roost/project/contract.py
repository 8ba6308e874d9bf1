"""The classes that a project derives from: Dataset and Runner (DESIGN, section 4)."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from roost.base.errors import ContractError
from roost.train.accelerators.registry import accelerator_of
from roost.train.data.fetch import Collate
from roost.train.events import Value
from roost.train.hook import Hook
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
    - an external loader, which makes its own batches: torch's ``DataLoader``, torchdata's
      ``StatefulDataLoader`` or a node of it.

    A set that is evaluated may have ``ids``, a number or text for each sample (by default its index), and
    ``groups``, the labels of the samples by the name of a group, by which results are averaged:
    ``{"speaker": ["anna", "ben", ...]}``; each an attribute or a method without arguments.

    Args:
        train: One set, or several map-style sets by name, which ``data.mix`` joins.
        valid: One set, or several by name; None is no validation.
        test: One set, or several by name; None is no test.
        collate: The function that joins samples to a batch; torch's default when None. Or several by split:
            ``train``, ``valid``, ``test``, ``predict`` (see `Dataset.predict`), or by the name of one set,
            such as ``valid/NAME``, which goes before its split.
        info: Passed to the Runner as ``self.info``.
    """

    train: Any
    valid: Any = None
    test: Any = None
    collate: Collate | Mapping[str, Collate | None] | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


class Dataset:
    """The data of a run. Override `build`; `prepare` for downloads, once per machine; `predict` for data
    without labels.

    Attributes:
        args: All settings, the project's own included.
    """

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.args = args

    def prepare(self) -> None:
        """Downloads and unpacks; called once per machine, before any rank calls `build`."""

    def build(self) -> Data:
        """Returns the sets; called on every rank, seeded."""
        raise ContractError(
            f"{type(self).__name__} has no build()",
            fix="write `def build(self) -> roost.Data` in your Dataset",
        )

    def predict(self, source: str) -> Any:
        """Returns the set for `roost predict --data SOURCE` where SOURCE is not a set of `build`: map-style,
        or an iterable. Called after `build`. Without this method roost reads .npy, .npz and .csv itself.

        Args:
            source: The text of ``--data``; for an existing file or folder its absolute path.
        """
        raise NotImplementedError


class Runner(nn.Module):
    """The model with its loss and its metrics. Override `build`, `loss`, and usually `evaluate`.

    Attributes:
        args: All settings, the project's own included.
        info: The ``info`` of `Data`.
        totals: ``steps_per_epoch``, and ``total_steps`` if the end of the run is a number of steps or epochs;
            known from `optimizers` on.
    """

    def __init__(self, args: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.args: Mapping[str, Any] = args or {}
        self.info: Mapping[str, Any] = info or {}
        self.totals: Mapping[str, int] = {}
        self._logged = _LoggedNames()
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
        """Connects the Runner to its Trainer, which calls this, so that `log` and `progress` work."""
        self.__dict__["_trainer"] = trainer  # past nn.Module: the trainer is not a part of the model
        self._attached_device = self.device  # looking it up costs 3 µs, and a step may be 100

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        parameter = next(self.parameters(), None)
        return parameter.device if parameter is not None else torch.device("cpu")

    @property
    def progress(self) -> Progress:
        """The position of the run: step, epoch, fraction, …"""
        return self._trainer.progress if self._trainer is not None else Progress()

    def build(self) -> None:
        """Creates the modules; called once, seeded. Afterwards the Runner is moved to the device."""
        raise ContractError(
            f"{type(self).__name__} has no build()", fix="write `def build(self)` in your Runner"
        )

    def optimizers(self) -> Mapping[str, Optim | torch.optim.Optimizer]:
        """Returns the optimizers by name; those of the config when not overridden."""
        raise NotImplementedError

    def hooks(self) -> Sequence[Hook]:
        """Returns hooks that belong to this Runner; they come after those of the config. By default none."""
        return ()

    def loss(self, batch: Any) -> Tensor | Mapping[str, Tensor]:
        """Returns the mean loss of a batch, a scalar; or a mapping with "loss", optionally "weight" (by
        default the number of samples), and further values to record as ``train/<name>``."""
        raise ContractError(
            f"{type(self).__name__} has no loss()", fix="write `def loss(self, batch)` in your Runner"
        )

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        """Returns metrics by name, per sample (B, ...) or the batch's mean (); called without gradients. By
        default the loss. Their means become ``valid/<name>``; "id" is not averaged."""
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

    evaluate.is_default = True  # type: ignore[attr-defined]

    def test(self, batch: Any, **variant: Any) -> Mapping[str, Any]:
        """Returns results by name, of test sets: for each sample a number (B,), or a text, list, array,
        `Media` or path of a file; or the batch's mean (). Called by `roost evaluate`, and without arguments
        at the end of a training (`test_at_end`), never by a validation. By default `evaluate`.

        Args:
            batch: A batch of a test set.
            variant: The arguments of a variant, such as the width of a beam search.
        """
        return self.evaluate(batch, **variant)

    test.is_default = True  # type: ignore[attr-defined]

    worst_cases: Sequence[tuple[str, str, int]] = ()
    """The cases that an evaluation lists: metric, ``max`` or ``min``, and how many, such as
    ``("wer", "max", 10)``."""

    test_metrics: Mapping[str, Any] = MappingProxyType({})
    """Metrics of a whole test set by name, computed from the results of `test` for all samples: a function,
    or an object of torchmetrics, whose arguments are called as these results; or a pair of it and their
    names."""

    def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float | None]:
        """Returns metrics of the whole split, from the values of all its samples in the set's order, on the
        CPU. None in place of a number hides the metric of this name, which only helped."""
        return {}

    summarize.is_default = True  # type: ignore[attr-defined]

    def predict(self, batch: Any) -> Mapping[str, Any]:
        """Returns predictions for data without labels, by name: a tensor or array (B, ...), or a list with a
        text, number or list for each sample. Called by `roost predict`, without gradients."""
        raise ContractError(
            f"{type(self).__name__} has no predict()",
            fix="write `def predict(self, batch)` in your Runner, for a run that exists in the package's "
            "copy of it: it returns results by name, for each sample",
        )

    def visualize(self, batch: Any) -> Mapping[str, Media]:
        """Returns figures, strings or `roost.Media` by name, stored under ``media/<step>/``."""
        return {}

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Value]:
        """Takes one step and returns its values: all optimizers on `loss`. A GAN overrides it to take two."""
        values = stepper.run(self.loss, batches, optimizer=stepper.every_optimizer)
        self._logged.check(values)
        return values

    def to_device(self, batch: Any) -> Any:
        """Returns the batch on the device: any nest of tensors and of objects with a method ``to``."""
        device = self._attached_device or self.device
        return batch if device.type == "cpu" else move_to_device(batch, device)

    def log(self, **values: Value) -> None:
        """Adds tensors or numbers to the row as ``train/<name>``, without a synchronisation.

        Each call has the same weight in the row's mean, whatever the batch size; values that `loss` returns
        are weighted by samples. Outside of training values are dropped with one warning: return them from
        `evaluate`.

        Raises:
            ContractError: A value is named "weight" or "skipped", or `loss` returns the same name.
        """
        if self._trainer is None:
            return
        if not self.training:
            self._logged.warn_dropped(values)
            return
        self._logged.add(values)
        self._trainer.events.log({k: v.detach() if isinstance(v, Tensor) else v for k, v in values.items()})

    def print(self, *values: object) -> None:
        """Prints on rank 0 only."""
        if not _are_ranks() or dist.get_rank() == 0:
            print(*values, flush=True)

    def all_gather(self, tensor: Tensor) -> Tensor:
        """Returns the tensors of all ranks, (ranks, ...), of one shape on every rank; with one process (1,
        ...). Every rank must call it equally often, as `loss` and `evaluate` are. No gradient flows back
        through the result of several ranks."""
        if not _are_ranks():
            return tensor.unsqueeze(0)
        # NCCL cannot send tensors on the CPU.
        device = self.device if dist.get_backend() == "nccl" else tensor.device
        own = tensor.detach().to(device).contiguous()
        found = own.new_empty(dist.get_world_size(), *own.shape)
        dist.all_gather(list(found), own)
        return found.to(tensor.device)


def _are_ranks() -> bool:
    return dist.is_available() and dist.is_initialized()


class _LoggedNames:
    """The names given to `Runner.log`, checked against those of `loss`: two means of one name with different
    weights would become one number."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._has_warned = False

    def add(self, names: Iterable[str]) -> None:
        self._names.update(names)
        if "weight" in self._names:
            raise ContractError(
                "log(weight=...) would weight the row instead of being recorded", fix="take another name"
            )
        if "skipped" in self._names:
            raise ContractError(
                "log(skipped=...) is the name under which roost records skipped steps",
                fix="take another name",
            )

    def check(self, returned: Iterable[str]) -> None:
        for name in self._names.intersection(returned):
            raise ContractError(
                f"loss() returns {name!r}, and self.log() is given it too",
                fix="return it, which weights it by the samples, or take another name for log()",
            )

    def warn_dropped(self, names: Iterable[str]) -> None:
        if not self._has_warned:
            self._has_warned = True
            shown = ", ".join(names)
            print(f"self.log({shown}) outside of training is dropped: return it from evaluate()", flush=True)


def move_to_device(value: Any, device: torch.device) -> Any:
    """Returns a nest of tensors on another device; copies to CUDA are asynchronous.

    An object with a method ``to`` is moved by it, even if it is also a mapping, like a tokenizer's batch.
    """
    if isinstance(value, Tensor):
        # On other devices the host could read or free memory that is still being copied.
        return value.to(device, non_blocking=accelerator_of(device).copies_concurrently)
    if callable(getattr(value, "to", None)):
        return value.to(device)
    if isinstance(value, Mapping):
        return _moved_mapping(value, device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(move_to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(move_to_device(item, device) for item in value)
    return value


def _moved_mapping(value: Mapping[Any, Any], device: torch.device) -> Mapping[Any, Any]:
    items = {name: move_to_device(item, device) for name, item in value.items()}
    if type(value) is dict or not isinstance(
        value, MutableMapping
    ):  # an immutable mapping cannot be refilled
        return items
    made = copy.copy(value)
    made.update(items)
    return made
