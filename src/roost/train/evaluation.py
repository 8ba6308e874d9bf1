"""Measuring a runner over a whole split: every sample once, exact means. For any loop; see `measuring`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import ConfigError, ContractError
from roost.train.data.batches import Batches, Interrupted

_PLAIN: AbstractContextManager[object] = nullcontext()


@contextmanager
def mode(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; afterwards each module has the mode it had."""
    training = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, was_training in training:
            part.training = was_training


def run(
    runner: Any,
    loader: Batches,
    split: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    forward: AbstractContextManager[object] = _PLAIN,
) -> dict[str, float]:
    """The metrics of one split: means over its samples, and what `Runner.summarize` adds.

    ``Runner.evaluate`` gives per batch tensors of shape (B, ...) with a value per sample, or () with the
    batch's mean. (B,) and () become means in float64; everything (B, ...) goes to `summarize`.

    Args:
        runner: What is measured.
        loader: Its batches.
        split: Its name, for `summarize`.
        stop: Asked before each batch.
        forward: Entered around each `Runner.evaluate`.

    Raises:
        Interrupted: ``stop()`` said so between two batches.
        ContractError: ``evaluate`` gave something else.
    """
    sums: dict[str, tuple[Tensor, int]] = {}
    columns: dict[str, list[Tensor]] = {}
    keep, has_samples = _summarizes(runner), False
    with closing(loader.once()) as batches:
        for value, num_samples, _ in batches:
            if stop():
                raise Interrupted
            if not num_samples:
                continue
            has_samples = True
            batch = runner.to_device(value)
            with forward:
                output = runner.evaluate(batch)
            _check(output)
            for name, tensor in output.items():
                _add(sums, name, tensor, num_samples)
                if keep and tensor.dim():
                    columns.setdefault(name, []).append(tensor.detach().cpu())
    if not has_samples:
        raise _nothing(loader.name or split)
    results = {name: float(total) / count for name, (total, count) in sums.items()}
    if keep:
        values = {name: _joined(name, parts) for name, parts in columns.items()}
        results.update(_numbers(runner.summarize(values, split)))
    return results


def _joined(name: str, parts: list[Tensor]) -> Tensor:
    shapes = list(dict.fromkeys(tuple(part.shape[1:]) for part in parts))
    if len(shapes) > 1:
        raise ContractError(
            f"the rows of {name!r} have the shape {shapes[0]} in one batch and {shapes[1]} in another, and a "
            "summary of the whole set needs one",
            fix="pad them to one length, in collate or evaluate(); or measure each batch by itself",
        )
    return torch.cat(parts)


def _nothing(name: str) -> ConfigError:
    return ConfigError(
        f"{name} has nothing to evaluate: every batch is empty",
        fix="look at what the set and its collate give",
    )


def _numbers(summary: object) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in dict(summary).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"summarize() must return numbers by name: {error}", received=summary, fix='return {"f1": 0.5}'
        ) from error


def probe(
    runner: Any, loader: Batches, *, forward: AbstractContextManager[object] = _PLAIN
) -> tuple[set[str] | None, list[str]]:
    """What `run` would report, from one batch: found out before the first step, not after the first epoch.

    Returns:
        The names of the metrics, None when `Runner.summarize` may add others; and those of values that
        become no metric because of their shape.

    Raises:
        ContractError: ``evaluate`` gives something else than it must.
    """
    batch = loader.first()
    if batch is None:
        raise _nothing(loader.name)
    with forward:
        output = runner.evaluate(runner.to_device(batch.value))
    _check(output)
    sums: dict[str, tuple[Tensor, int]] = {}
    for name, tensor in output.items():
        _add(sums, name, tensor, batch.num_samples)
    left_out = [name for name in output if name not in sums and name != "id"]
    return (None, []) if _summarizes(runner) else (set(sums), left_out)


def loaders_of(loaders: Mapping[str, Batches], split: str) -> dict[str, Batches]:
    """The sets of a split by name: ``valid``, or each ``valid/NAME``.

    Raises:
        ConfigError: There is none.
    """
    found = {name: one for name, one in loaders.items() if name == split or name.startswith(split + "/")}
    if not found:
        have = ", ".join(loaders)
        raise ConfigError(f"no split {split!r}; there are: {have}", fix="return it from Dataset.build()")
    return found


def _summarizes(runner: Any) -> bool:
    method = getattr(type(runner), "summarize", None)
    return method is not None and not getattr(method, "is_default", False)


def _check(output: object) -> None:
    if isinstance(output, Mapping) and all(isinstance(value, Tensor) for value in output.values()):
        return
    received = {k: type(v).__name__ for k, v in output.items()} if isinstance(output, Mapping) else output
    raise ContractError(
        "evaluate() must return a mapping of tensors",
        received=received,
        fix='return {"loss": losses, "accuracy": hits}, each of shape (B,) or ()',
    )


def _add(sums: dict[str, tuple[Tensor, int]], name: str, tensor: Tensor, num_samples: int) -> None:
    if name == "id" or tensor.dim() > 1 or tensor.is_complex():
        return
    if tensor.dim() == 1 and len(tensor) != num_samples:
        raise ContractError(
            f"evaluate() gave {len(tensor)} values for a batch of {num_samples} samples",
            setting=name,
            fix="give one value per sample (B,) or the batch's mean ()",
        )
    # float64 also where the values are float32: a mean over a million samples keeps its digits.
    wide = tensor.detach().to(torch.float32 if tensor.device.type == "mps" else torch.float64)
    value = wide.sum() if wide.dim() else wide * num_samples
    total, count = sums.get(name, (0.0, 0))
    sums[name] = (total + value, count + num_samples)
