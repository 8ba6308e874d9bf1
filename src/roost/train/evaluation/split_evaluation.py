"""The evaluation of a runner on a whole split: every sample once, exact means. It needs no Trainer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from roost.base.errors import ConfigError, ContractError, TrainingError
from roost.train.data.batches import Batch, Batches
from roost.train.distributed.lockstep import CONTINUING, ENDING, STOPPING, Lockstep
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.evaluation.metric_sums import MetricSums, means, metric_total
from roost.train.failures.skipped_batches import SkippedBatches

_NOT_COUNTED, _GOOD, _SKIPPED = range(3)
"""The outcome of a batch, as the ranks exchange it."""
_NO_CONTEXT: AbstractContextManager[object] = nullcontext()


class ProbedMetrics(NamedTuple):
    """What an evaluation will report, as far as one batch of each set shows it."""

    names: set[str] | None
    """The names of the metrics; None if `Runner.summarize` may add others."""
    left_out: list[str]
    """The names of values that are no metrics, because of their shape."""


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
    skips: SkippedBatches | None = None,
    evaluate: Callable[[Any], Any] | None = None,
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
        skips: Skips batches that fail; their number is the metric "skipped". None: they raise. With several
            ranks, each batch then costs one more exchange between them.
        evaluate: What evaluates a batch. None: `Runner.evaluate`.

    Raises:
        Interrupted: ``stop()`` returned True on any rank.
        ContractError: ``evaluate`` returned something else.
        PeerLost: Another rank has failed.
        TrainingError: Too many batches were skipped, or all.
    """
    name, evaluate = loader.name or split, evaluate or runner.evaluate
    found, has_samples, batch = MetricSums(keeps_values=_summarizes(runner)), False, None
    num_good, skipped_before = 0, skips.num_skipped if skips is not None else 0
    with (
        Lockstep(ranks, f"the evaluation of {name}") as lockstep,
        closing(_own_batches(loader, ranks, split, skips)) as drawn,
    ):
        for turn, (number, one) in enumerate(drawn):
            counts = lockstep.meet(STOPPING if stop() else CONTINUING, one.num_samples)
            if not any(counts):
                continue
            has_samples = True
            output, counted = None, number if one.num_samples else None
            try:
                if one.num_samples:
                    batch = runner.to_device(one.value)
                elif batch is None:
                    batch = runner.to_device(_nonempty_batch(loader, turn, counts).value)
                with forward:
                    output = evaluate(batch)
                _check_output(output, runner)
            except Exception as error:
                if skips is None or not skips.may_skip(error):
                    raise
                batch = None
                if counted is not None:
                    skips.skip(loader, split, counted, error)
            if output is not None and counted is not None:
                found.add(counted, output, one.num_samples)
            if skips is not None:
                outcome = (_GOOD if output is not None else _SKIPPED) if counted is not None else _NOT_COUNTED
                outcomes = lockstep.meet(CONTINUING, outcome)
                num_good += outcomes.count(_GOOD)
                skips.count(outcomes.count(_SKIPPED))
        num_skipped = skips.num_skipped - skipped_before if skips is not None else 0
        if skips is not None and num_skipped:
            last = skips.report()
            if not num_good:
                raise TrainingError(
                    f"every batch of {name} was skipped, the last one by: {last}",
                    fix="correct Runner.evaluate, or the samples of the set",
                )
        if not has_samples:
            raise _nothing_to_evaluate(name)
        totals = found.totals()
        lockstep.meet(ENDING)
    at = f"the results of {name}"
    every = ranks.control.gather(totals, at)
    ranks.warn_of_partial_values(f"{name}/", every)
    results = means(every)
    if _summarizes(runner):
        _add_summary(results, summary_numbers(runner.summarize(found.values(ranks), split)))
    if num_skipped:
        results["skipped"] = float(num_skipped)
    # `summarize` may draw random numbers, and all ranks must decide by the same results.
    return ranks.control.broadcast(results, at)


def _own_batches(
    loader: Batches, ranks: Ranks, split: str, skips: SkippedBatches | None
) -> Generator[tuple[int | None, Batch], None, None]:
    """Yields the batches of a rank with their numbers; the number None marks a batch that is not counted."""
    if ranks.are_several:
        yield from loader.shard(ranks.rank, ranks.world_size)
        return
    if skips is not None and loader.has_indices:
        yield from _past_failures(loader, split, skips)
        return
    with closing(loader.once()) as batches:
        yield from enumerate(batches)


def _past_failures(
    loader: Batches, split: str, skips: SkippedBatches
) -> Generator[tuple[int | None, Batch], None, None]:
    """Yields the batches of a pass with their numbers, without those that cannot be drawn."""
    number = 0
    while number < len(loader):
        rest = loader.excerpt([range(number, len(loader))]) if number else loader
        try:
            with closing(rest.once()) as batches:
                for batch in batches:
                    yield number, batch
                    number += 1
        except Exception as error:
            if not skips.may_skip(error):
                raise
            skips.skip(loader, split, number, error)
            skips.count(1)
            number += 1
        finally:
            if rest is not loader:
                rest.close()


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


def summary_numbers(summary: object) -> dict[str, float | None]:
    """Returns what `Runner.summarize` returned as numbers by name; None hides the metric of this name.

    Raises:
        ContractError: It is something else.
    """
    try:
        items = dict(summary).items()  # type: ignore[call-overload]
        return {str(name): None if value is None else float(value) for name, value in items}
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"summarize() must return numbers by name: {error}", received=summary, fix='return {"f1": 0.5}'
        ) from error


def _add_summary(results: dict[str, float], summary: Mapping[str, float | None]) -> None:
    for name, value in summary.items():
        if value is None:
            results.pop(name, None)
        else:
            results[name] = value


def probe_metrics(
    runner: Any,
    loader: Batches,
    *,
    forward: AbstractContextManager[object] = _NO_CONTEXT,
    ranks: Ranks = ALONE,
    evaluate: Callable[[Any], Any] | None = None,
) -> ProbedMetrics:
    """Returns the names that `evaluate_split` would report, from one batch, the same on every rank: so errors
    appear before the first step, not after the first epoch.

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
            output = (evaluate or runner.evaluate)(runner.to_device(batch.value))
        _check_output(output, runner)
        totals = {name: metric_total(name, tensor, batch.num_samples) for name, tensor in output.items()}
        lockstep.meet(ENDING)
    if _summarizes(runner):
        return ProbedMetrics(None, [])
    names = {name for name, total in totals.items() if total is not None}
    return ProbedMetrics(names, [name for name in totals if name not in names and name != "id"])


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
