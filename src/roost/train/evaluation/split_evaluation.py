"""Measuring a runner over a whole split: every sample once, exact means. For any loop; see `measuring`."""

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
    """Evaluation mode and no gradients inside; afterwards each module has the mode it had."""
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
    """The metrics of one split: means over its samples, and what `Runner.summarize` adds.

    ``Runner.evaluate`` gives per batch tensors of shape (B, ...) with a value per sample, or () with the
    batch's mean. (B,) and () become means in float64; everything (B, ...) goes to `summarize`.

    Several ranks share the batches out, and each gets the results of all: bit for bit those of one process,
    as long as ``evaluate`` draws nothing at random. It is called equally often on each, so it may talk to
    the other ranks: one that has no batch left computes another once more, and that counts nothing.

    Args:
        runner: What is measured.
        loader: Its batches.
        split: Its name, for `summarize`.
        stop: Asked before each batch.
        forward: Entered around each `Runner.evaluate`.
        ranks: Who measures together.

    Raises:
        Interrupted: ``stop()`` said so between two batches, on any rank.
        ContractError: ``evaluate`` gave something else.
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
            _check_output(output)
            if number is not None and one.num_samples:
                found.add(number, output, one.num_samples)
        if not has_samples:
            raise _nothing_to_evaluate(name)
        totals = found.totals()
        lockstep.meet(ENDING)
    at = f"the results of {name}"
    every = ranks.control.gather(totals, at)
    ranks.note_given_by_some(f"{name}/", every)
    results = means(every)
    if _summarizes(runner):
        results.update(_summary_numbers(runner.summarize(found.values(ranks), split)))
    # `summarize` may draw at random, and all decide by the results.
    return ranks.control.broadcast(results, at)


def _own_batches(loader: Batches, ranks: Ranks) -> Generator[tuple[int | None, Batch], None, None]:
    """What a rank computes, each with its number among all batches; None where it counts nothing."""
    if ranks.are_several:
        yield from loader.shard(ranks.rank, ranks.world)
        return
    with closing(loader.once()) as batches:
        yield from enumerate(batches)


def _nonempty_batch(loader: Batches, turn: int, counts: Sequence[int]) -> Batch:
    """Of the batches of this turn, one for each rank, the first that holds something; for a rank whose own
    have been empty so far.

    Raises:
        ContractError: The ranks draw other batches.
    """
    rank = next(rank for rank, num_samples in enumerate(counts) if num_samples)
    drawn = (
        loader.redraw(0, min(turn * len(counts) + rank, len(loader) - 1), 1) if loader.has_indices else None
    )
    if drawn is None:  # every rank has drawn it: see `Batches.shard`
        raise ContractError(
            f"{loader.name or 'the set'} gives rank {rank} samples where it gives another rank none",
            fix="let the set be the same on every rank: roost shares it out by itself",
        )
    return drawn[0]


def _nothing_to_evaluate(name: str) -> ConfigError:
    return ConfigError(
        f"{name} has nothing to evaluate: every batch is empty",
        fix="look at what the set and its collate give",
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
    """What `evaluate_split` would report, from one batch, the same on every rank: found out before the first step, not
    after the first epoch.

    Returns:
        The names of the metrics, None when `Runner.summarize` may add others; and those of values that
        become no metric because of their shape.

    Raises:
        Interrupted: A stop was requested meanwhile, on any rank.
        ContractError: ``evaluate`` gives something else than it must.
        PeerLost: Another rank has failed.
    """
    with Lockstep(ranks, f"a look at {loader.name or 'a set'}") as lockstep:
        batch = loader.first_batch()
        if batch is None:
            raise _nothing_to_evaluate(loader.name)
        lockstep.meet(CONTINUING)
        with forward:
            output = runner.evaluate(runner.to_device(batch.value))
        _check_output(output)
        totals = {name: metric_total(name, tensor, batch.num_samples) for name, tensor in output.items()}
        lockstep.meet(ENDING)
    left_out = [name for name, total in totals.items() if total is None and name != "id"]
    return (
        (None, [])
        if _summarizes(runner)
        else ({name for name, total in totals.items() if total is not None}, left_out)
    )


def split_loaders(loaders: Mapping[str, Batches], split: str) -> dict[str, Batches]:
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


def _check_output(output: object) -> None:
    if isinstance(output, Mapping) and all(isinstance(value, Tensor) for value in output.values()):
        return
    received = {k: type(v).__name__ for k, v in output.items()} if isinstance(output, Mapping) else output
    raise ContractError(
        "evaluate() must return a mapping of tensors",
        received=received,
        fix='return {"loss": losses, "accuracy": hits}, each of shape (B,) or ()',
    )
