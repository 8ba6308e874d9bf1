"""The evaluation of a split by a trainer: with the runner's weights, and with their averages."""

from __future__ import annotations

from collections.abc import Collection
from time import perf_counter
from typing import TYPE_CHECKING

from roost.base.errors import ContractError
from roost.train.evaluation import monitored_metrics, split_evaluation
from roost.train.step import seeding
from roost.train.step.timing import VALIDATE

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


def evaluate(trainer: Trainer, split: str) -> dict[str, float]:
    """Returns the metrics of a split by full name: of the runner's weights, and of each average.

    All of them use the same data and the same random numbers. An average without an update equals the
    weights, and has their metrics, so that a hook can decide by them from the first validation on.

    Raises:
        Interrupted: A stop was requested on any rank during the evaluation.
        ConfigError: There is no such split.
        ContractError: ``Runner.evaluate`` does not return a mapping of tensors.
        PeerLost: Another rank has failed.
    """
    trainer.saves.wait_until_copied()  # before an average replaces the weights
    started = perf_counter()
    raw = _measure(trainer, split)
    results = dict(raw)
    for name, average in trainer.averages.items():
        values = raw
        if average.count:
            with average.swapped(trainer.runner):
                values = _measure(trainer, split)
        _refuse_duplicates(
            results, of_average := {_average_key(name, key): value for key, value in values.items()}
        )
        results.update(of_average)
    trainer.stepper.timing.spent[VALIDATE] += perf_counter() - started
    return results


def _measure(trainer: Trainer, split: str) -> dict[str, float]:
    """Returns the metrics of a split with the current weights of the runner."""
    phase = "testing" if split == "test" else "validating"
    results: dict[str, float] = {}

    def should_stop() -> bool:
        trainer.publish(phase)  # at each batch, so that the evaluation does not look like a stall
        return trainer.wants_to_stop

    # Each rank evaluates other batches, so it must draw other random numbers.
    rank = [] if trainer.ranks.is_main else [trainer.ranks.rank]
    with (
        split_evaluation.evaluation_mode(trainer.runner),
        seeding.isolated(seeding.mix(trainer.seed, split, trainer.progress.step, *rank)),
    ):
        for name, loader in split_evaluation.split_loaders(trainer.loaders, split).items():
            values = split_evaluation.evaluate_split(
                trainer.runner,
                loader,
                name,
                stop=should_stop,
                forward=trainer.autocast(),
                ranks=trainer.ranks,
            )
            results.update({f"{name}/{key}": value for key, value in values.items()})
    return results


def probe_split(trainer: Trainer, split: str) -> set[str] | None:
    """Returns the names of the metrics that `evaluate` will return, from one batch of each set; None if only
    the whole split can show them. Prints a line for each value that does not become a metric.

    Raises:
        ContractError: ``Runner.evaluate`` does not return a mapping of tensors.
    """
    known: set[str] | None = set()
    with (
        split_evaluation.evaluation_mode(trainer.runner),
        seeding.isolated(seeding.mix(trainer.seed, "probe")),
    ):
        for name, loader in split_evaluation.split_loaders(trainer.loaders, split).items():
            found, left_out = split_evaluation.probe_metrics(
                trainer.runner, loader, forward=trainer.autocast(), ranks=trainer.ranks
            )
            known = None if found is None or known is None else known | {f"{name}/{key}" for key in found}
            for key in left_out if trainer.ranks.is_main else ():
                print(f"{name}/{key} is not a metric: its shape is not (B,) or ()", flush=True)
    if known is None:
        return None
    raw = set(known)
    for average in trainer.averages:
        _refuse_duplicates(known, of_average := {_average_key(average, key) for key in raw})
        known |= of_average
    return known


def validate(trainer: Trainer) -> dict[str, float]:
    """Evaluates "valid" and calls `on_eval`; the results belong to this step's row and checkpoint."""
    trainer.results = monitored_metrics.with_row_values(trainer, evaluate(trainer, "valid"))
    trainer.agenda.request("record")
    for hook in trainer.calls.eval:
        hook.on_eval(trainer, trainer.results)
    return trainer.results


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
