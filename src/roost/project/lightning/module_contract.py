"""The contract of Lightning's classes, as far as roost reads it: their methods, and the names of metrics."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from torch import nn

_LIBRARIES = frozenset(["lightning", "pytorch_lightning", "lightning_fabric", "torch", "builtins", "roost"])
_STAGES = {"train": "train|training", "valid": "val|valid|validation", "test": "test"}
_UNUSED = (
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "optimizer_step",
    "optimizer_zero_grad",
    "backward",
    "configure_gradient_clipping",
    "lr_scheduler_step",
    "configure_callbacks",
    "configure_sharded_model",
    "on_save_checkpoint",
    "on_load_checkpoint",
    "on_predict_start",
    "on_predict_epoch_start",
    "on_predict_batch_start",
    "on_predict_batch_end",
    "on_predict_epoch_end",
    "on_predict_end",
    "teardown",
)


def is_module(found: type) -> bool:
    """Whether a class is a LightningModule, or like one."""
    return issubclass(found, nn.Module) and all(
        callable(getattr(found, name, None)) for name in ("training_step", "configure_optimizers")
    )


def is_data_module(found: type) -> bool:
    """Whether a class is a LightningDataModule, or like one."""
    return callable(getattr(found, "train_dataloader", None))


def overrides(owner: Any, name: str) -> bool:
    """Whether an object's class, or a class between it and the library's, has a method of its own."""
    return any(
        name in vars(one) and one.__module__.partition(".")[0] not in _LIBRARIES
        for one in type(owner).__mro__
    )


def call(owner: Any, name: str, *arguments: Any) -> Any:
    """Calls a hook of an object, if its class has one of its own."""
    return getattr(owner, name)(*arguments) if overrides(owner, name) else None


def accepted(method: Callable[..., Any], **offered: Any) -> dict[str, Any]:
    """Returns those of the offered arguments that a method names; all that it names by ``**``."""
    names = inspect.signature(method).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in names.values())
    return {name: value for name, value in offered.items() if takes_all or name in names}


def names_its_index(method: Callable[..., Any], *offered: str) -> bool:
    """Whether the second argument of a step is the index of the batch under a name of its own, such as
    ``idx`` or ``_``: Lightning passes it by its place.

    Args:
        method: The step.
        offered: The names that are passed as such.
    """
    _, second, *_ = [*inspect.signature(method).parameters.values(), None, None]
    if second is None or second.name in offered:
        return False
    return second.kind is second.POSITIONAL_OR_KEYWORD and second.default is second.empty


def unused_methods(owner: Any) -> list[str]:
    """Returns the methods that a class overrides and roost never calls."""
    return [name for name in _UNUSED if overrides(owner, name)]


def row_name(name: str, stage: str) -> str:
    """Returns the name of a logged metric in a row, without ``train/`` or ``valid/``: ``val_loss`` of a
    validation is ``loss``. In training ``loss`` is the loss itself, so ``train_loss`` stays."""
    short = re.sub(rf"^({_STAGES[stage]})[_/]", "", name) or name
    return name if stage == "train" and short in ("loss", "weight", "skipped") else short


def monitor_name(name: str) -> str:
    """Returns the full name of a monitored metric: ``val_loss`` is ``valid/loss``."""
    name = re.sub(r"_(step|epoch)$", "", name)
    for stage, words in _STAGES.items():
        if found := re.match(rf"({words})[_/](.+)", name):
            return f"{stage}/{found[2]}"
    return f"valid/{name}"


def is_torchmetric(value: Any) -> bool:
    """Whether a value is a metric of torchmetrics, or like one."""
    return callable(getattr(value, "compute", None)) and callable(getattr(value, "reset", None))
