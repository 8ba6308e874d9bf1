"""The evaluation of a runner on a whole split: every sample once, exact means. It needs no Trainer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import ConfigError, ContractError
from roost.train.data.batches import Batch, Batches
from roost.train.distributed.lockstep import CONTINUING, ENDING, STOPPING, Lockstep
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.evaluation.metric_sums import MetricSums, means, metric_total

_NO_CONTEXT: AbstractContextManager[object] = nullcontext()


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Sets evaluation mode and no gradients inside the context; restores the mode of each module."""
    training = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, was_training in training:
            part.training = was_training


def evaluate_split(
    runner: Any,
    loader: Batches,
    split: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    forward: AbstractContextManager[object] = _NO_CONTEXT,
    ranks: Ranks = ALONE,
) -> dict[str, float]:
    """Returns the metrics of one split: means over its samples, and the metrics of `Runner.summarize`.

    ``Runner.evaluate`` returns for each batch tensors of shape (B, ...) with a value per sample, or () with
    the mean of the batch. (B,) and () become means in float64; every (B, ...) is passed to `summarize`.

    Several ranks divide the batches among themselves, and each gets the results of all: bit for bit those of
    one process, unless ``evaluate`` draws random numbers. ``evaluate`` is called equally often on each rank,
    so it may use collectives: a rank without a batch left computes one again, which is not counted.

    Args:
        runner: The Runner to evaluate.
        loader: The batches of the split.
        split: The name of the split, for `summarize`.
        stop: Called before each batch.
        forward: Entered around each `Runner.evaluate`.
        ranks: The ranks that evaluate together.

    Raises:
        Interrupted: ``stop()`` returned True on any rank.
        ContractError: ``evaluate`` returned something else.
        PeerLost: Another rank has failed.
    """
    name = loader.name or split
    found, has_samples, batch = MetricSums(keeps_values=_summarizes(runner)), False, None
    with (
        Lockstep(ranks, f"the evaluation of {name}") as lockstep,
        closing(_own_batches(loader, ranks)) as drawn,
    ):
        for turn, (number, one) in enumerate(drawn):
            counts = lockstep.meet(STOPPING if stop() else CONTINUING, one.num_samples)
            if not any(counts):
                continue
            has_samples = True
            if one.num_samples:
                batch = runner.to_device(one.value)
            elif batch is None:
                batch = runner.to_device(_nonempty_batch(loader, turn, counts).value)
            with forward:
                output = runner.evaluate(batch)
            _check_output(output, runner)
            if number is not None and one.num_samples:
                found.add(number, output, one.num_samples)
        if not has_samples:
            raise _nothing_to_evaluate(name)
        totals = found.totals()
        lockstep.meet(ENDING)
    at = f"the results of {name}"
    every = ranks.control.gather(totals, at)
    ranks.warn_of_partial_values(f"{name}/", every)
    results = means(every)
    if _summarizes(runner):
        results.update(_summary_numbers(runner.summarize(found.values(ranks), split)))
    # `summarize` may draw random numbers, and all ranks must decide by the same results.
    return ranks.control.broadcast(results, at)


def _own_batches(loader: Batches, ranks: Ranks) -> Generator[tuple[int | None, Batch], None, None]:
    """Yields the batches of a rank with their numbers; the number None marks a batch that is not counted."""
    if ranks.are_several:
        yield from loader.shard(ranks.rank, ranks.world_size)
        return
    with closing(loader.once()) as batches:
        yield from enumerate(batches)


def _nonempty_batch(loader: Batches, turn: int, counts: Sequence[int]) -> Batch:
    """Returns the first non-empty batch of this turn, in which each rank has one; for a rank whose own
    batches have been empty so far.

    Raises:
        ContractError: The ranks draw different batches.
    """
    rank = next(rank for rank, num_samples in enumerate(counts) if num_samples)
    drawn = (
        loader.redraw(0, min(turn * len(counts) + rank, len(loader) - 1), 1) if loader.has_indices else None
    )
    if drawn is None:  # every rank has drawn it: see `Batches.shard`
        raise ContractError(
            f"{loader.name or 'the set'} has samples on rank {rank}, but not on every rank",
            fix="make the set the same on every rank: roost divides it among the ranks automatically",
        )
    return drawn[0]


def _nothing_to_evaluate(name: str) -> ConfigError:
    return ConfigError(
        f"{name} has nothing to evaluate: every batch is empty",
        fix="check the samples of the set and its collate",
    )


def _summary_numbers(summary: object) -> dict[str, float]:
    try:
        return {str(name): float(value) for name, value in dict(summary).items()}  # type: ignore[call-overload]
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"summarize() must return numbers by name: {error}", received=summary, fix='return {"f1": 0.5}'
        ) from error


def probe_metrics(
    runner: Any,
    loader: Batches,
    *,
    forward: AbstractContextManager[object] = _NO_CONTEXT,
    ranks: Ranks = ALONE,
) -> tuple[set[str] | None, list[str]]:
    """Returns the names that `evaluate_split` would report, from one batch, the same on every rank: so errors
    appear before the first step, not after the first epoch.

    Returns:
        The names of the metrics (None if `Runner.summarize` may add others), and the names of values whose
        shape is not that of a metric.

    Raises:
        Interrupted: A stop was requested on any rank during the probe.
        ContractError: ``evaluate`` does not return a mapping of tensors.
        PeerLost: Another rank has failed.
    """
    with Lockstep(ranks, f"the probe of {loader.name or 'a set'}") as lockstep:
        batch = loader.first_batch()
        if batch is None:
            raise _nothing_to_evaluate(loader.name)
        lockstep.meet(CONTINUING)
        with forward:
            output = runner.evaluate(runner.to_device(batch.value))
        _check_output(output, runner)
        totals = {name: metric_total(name, tensor, batch.num_samples) for name, tensor in output.items()}
        lockstep.meet(ENDING)
    left_out = [name for name, total in totals.items() if total is None and name != "id"]
    return (
        (None, [])
        if _summarizes(runner)
        else ({name for name, total in totals.items() if total is not None}, left_out)
    )


def split_loaders(loaders: Mapping[str, Batches], split: str) -> dict[str, Batches]:
    """Returns the loaders of a split by name: ``valid``, or each ``valid/NAME``.

    Raises:
        ConfigError: There is no such split.
    """
    found = {name: one for name, one in loaders.items() if name == split or name.startswith(split + "/")}
    if not found:
        have = ", ".join(loaders)
        raise ConfigError(f"no split {split!r}; there are: {have}", fix="return it from Dataset.build()")
    return found


def _summarizes(runner: Any) -> bool:
    method = getattr(type(runner), "summarize", None)
    return method is not None and not getattr(method, "is_default", False)


def _check_output(output: object, runner: Any) -> None:
    if isinstance(output, Mapping) and all(isinstance(value, Tensor) for value in output.values()):
        return
    received = {k: type(v).__name__ for k, v in output.items()} if isinstance(output, Mapping) else output
    is_loss = getattr(type(runner).evaluate, "is_default", False)
    raise ContractError(
        "without an evaluate(), the values of loss() are those of the validation, and must be tensors"
        if is_loss
        else "evaluate() must return a mapping of tensors",
        received=received,
        fix='return {"loss": losses, "accuracy": hits}, each of shape (B,) or ()',
    )
