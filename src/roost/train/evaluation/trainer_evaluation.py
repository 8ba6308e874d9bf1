"""The evaluation of a split during a training: with the runner's weights, and with their averages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from roost.base.errors import ContractError
from roost.train.data.batches import Batches
from roost.train.distributed.ranks import Ranks
from roost.train.evaluation import split_evaluation
from roost.train.evaluation.split_evaluation import ProbedMetrics
from roost.train.failures.skipped_batches import SkippedBatches
from roost.train.optim.weight_average import Average
from roost.train.step import seeding


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """Evaluates splits: with the weights of a runner, and with each average of them.

    Random generators and the training mode are restored afterwards.
    """

    runner: Any
    loaders: Mapping[str, Batches]
    """The sets by name: "valid" or several "valid/<name>", …"""
    averages: Mapping[str, Average]
    ranks: Ranks
    seed: int
    """The seed of the training."""
    autocast: Callable[[], AbstractContextManager[object]]
    """Returns a new context for forward passes."""
    evaluation_function: Callable[[str], Callable[[Any], Any]]
    """Returns what evaluates a batch of a set, by its name: `Runner.evaluate`, compiled or not."""
    skips: SkippedBatches | None = None
    """Skips batches that fail. None: they raise."""

    def evaluate(self, split: str, *, step: int, should_stop: Callable[[], bool]) -> dict[str, float]:
        """Returns the metrics of a split by full name: of the runner's weights, and of each average.

        All of them use the same data and the same random numbers. An average without an update equals the
        weights, and has their metrics, so that a hook can decide by them from the first validation on.

        Args:
            split: The split, or one of its sets.
            step: The step after which it is evaluated, on which its random numbers depend.
            should_stop: Called at each batch; True interrupts the evaluation, on all ranks.

        Raises:
            Interrupted: `should_stop` returned True on any rank.
            ConfigError: There is no such split.
            ContractError: ``Runner.evaluate`` does not return a mapping of tensors.
            PeerLost: Another rank has failed.
            TrainingError: Too many batches were skipped.
        """
        raw = self._measure(split, step, should_stop)
        results = dict(raw)
        for name, average in self.averages.items():
            values = raw
            if average.count:
                with average.swapped(self.runner):
                    values = self._measure(split, step, should_stop)
            _refuse_duplicates(
                results, of_average := {_average_key(name, key): value for key, value in values.items()}
            )
            results.update(of_average)
        return results

    def _measure(self, split: str, step: int, should_stop: Callable[[], bool]) -> dict[str, float]:
        """Returns the metrics of a split with the current weights of the runner."""
        results: dict[str, float] = {}
        # Each rank evaluates other batches, so it must draw other random numbers.
        rank = [] if self.ranks.is_main else [self.ranks.rank]
        with (
            split_evaluation.evaluation_mode(self.runner),
            seeding.isolated(seeding.mix(self.seed, split, step, *rank)),
        ):
            for name, loader in split_evaluation.split_loaders(self.loaders, split).items():
                values = split_evaluation.evaluate_split(
                    self.runner,
                    loader,
                    name,
                    stop=should_stop,
                    forward=self.autocast(),
                    ranks=self.ranks,
                    skips=self.skips,
                    evaluate=self.evaluation_function(name),
                )
                results.update({f"{name}/{key}": value for key, value in values.items()})
        return results

    def probe(self, split: str) -> ProbedMetrics:
        """Returns the names of the metrics that `evaluate` will return, from one batch of each set. Prints a
        line for each value that is no metric.

        Raises:
            ContractError: ``Runner.evaluate`` does not return a mapping of tensors.
        """
        known: set[str] | None = set()
        left_out: list[str] = []
        with (
            split_evaluation.evaluation_mode(self.runner),
            seeding.isolated(seeding.mix(self.seed, "probe")),
        ):
            for name, loader in split_evaluation.split_loaders(self.loaders, split).items():
                try:
                    found, others = split_evaluation.probe_metrics(
                        self.runner,
                        loader,
                        forward=self.autocast(),
                        ranks=self.ranks,
                        evaluate=self.evaluation_function(name),
                    )
                except Exception as error:
                    if self.skips is None or not self.skips.may_skip(error):
                        raise
                    known = None  # the evaluation itself will skip the batch, and find the names by others
                    continue
                known = None if found is None or known is None else known | {f"{name}/{key}" for key in found}
                left_out += [f"{name}/{key}" for key in others]
        for text in left_out if self.ranks.is_main else ():
            print(f"{text} is not a metric: its shape is not (B,) or ()", flush=True)
        if known is None:
            return ProbedMetrics(None, left_out)
        raw = set(known)
        for average in self.averages:
            _refuse_duplicates(known, of_average := {_average_key(average, key) for key in raw})
            known |= of_average
        return ProbedMetrics(known, left_out)


def _average_key(average: str, key: str) -> str:
    """Returns the name of an average's metric: for ``ema``, ``valid/noisy/loss`` is
    ``valid/ema/noisy/loss``."""
    split, _, rest = key.partition("/")
    return f"{split}/{average}/{rest}"


def _refuse_duplicates(known: Collection[str], more: Collection[str]) -> None:
    double = sorted(set(known).intersection(more))
    if double:
        raise ContractError(
            f"{double[0]} is both a metric of evaluate() and the name of an average's metric",
            setting="averages",
            fix="give the average another name",
        )
