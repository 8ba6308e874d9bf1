from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from roost.base.errors import ConfigError, ContractError
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.distributed.ranks import Ranks
from roost.train.hook import Hook
from roost.train.hooks import Averaging, Records, Test, Validate, Visualize
from roost.train.reporting.media_files import Media
from roost.train.step import seeding
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Points, Still, bits, built, loader, plain, rows_of, weights
from tests.train.team import silent, team

EMA = partial(Averaging, "ema", decay=0.8)


class Draws(MLP):
    """Whose metrics depend on what is drawn."""

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        values = super().evaluate(batch)
        return {**values, "loss": values["loss"] + torch.rand(len(values["loss"])), "drawn": torch.rand(())}


def measured(*hooks: Hook, kind: type[MLP] = Draws, until: Any = 5, sets: Any = ("valid",)) -> Trainer:
    loaders = {name: loader(Points(9), 4, shuffle=False) for name in sets}
    trainer = plain(built(kind), Still(), hooks, until=until, loaders=loaders)
    trainer.fit()
    return trainer


def test_both_are_measured_with_the_same_data_and_random_numbers() -> None:
    trainer = measured(EMA())
    before, own = seeding.rng_state(), weights(trainer.runner)
    results = trainer.evaluate()
    assert bits(seeding.rng_state()) == bits(before) and weights(trainer.runner) == own
    names = ("loss", "accuracy", "drawn")
    assert list(results) == [f"valid/{name}" for name in names] + [f"valid/ema/{name}" for name in names]
    assert results["valid/ema/drawn"] == results["valid/drawn"]
    assert results["valid/ema/loss"] != results["valid/loss"]
    average = trainer.averages.pop("ema")
    assert {f"valid/{name}": results[f"valid/{name}"] for name in names} == trainer.evaluate()
    trainer.runner.load_state_dict(average.state_dict()["weights"])
    assert {f"valid/{name}": results[f"valid/ema/{name}"] for name in names} == trainer.evaluate()


def test_several_sets_and_averages() -> None:
    trainer = measured(EMA(), Averaging("slow"), sets=("valid/a", "valid/b"))
    expected = {f"valid/{s}/{m}" for s in "ab" for m in ("loss", "accuracy", "drawn")}
    for name in ("ema", "slow"):
        expected |= {f"valid/{name}/{s}/{m}" for s in "ab" for m in ("loss", "accuracy", "drawn")}
    assert trainer.evaluate().keys() == expected == trainer.probe("valid").names
    assert "valid/ema/a/loss" in trainer.evaluate("valid/a")


def test_one_without_validation_is_not_measured() -> None:
    assert not any("ema" in name for name in measured(Averaging(validate=False)).evaluate())


def test_before_its_first_update_it_is_the_weights() -> None:
    results = measured(Averaging(start=100)).evaluate()
    for name in ("loss", "accuracy", "drawn"):
        assert results[f"valid/ema/{name}"] == results[f"valid/{name}"]


def test_the_name_of_a_set_is_refused(messages: Messages) -> None:
    with pytest.raises(ConfigError, match="valid/noisy/loss") as refused:
        measured(Averaging("noisy"), sets=("valid/clean", "valid/noisy"))
    assert refused.value.setting == "averages.noisy"
    messages.check(refused.value)
    measured(Averaging("noisy", validate=False), sets=("valid/clean", "valid/noisy"))


@pytest.mark.parametrize("probes", [True, False])
def test_a_metric_that_is_called_like_one_of_the_average_is_refused(probes: bool, messages: Messages) -> None:
    class Doubles(MLP):
        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            return {"loss": torch.ones(()), "ema/loss": torch.ones(())}

    with pytest.raises(ContractError, match="valid/ema/loss") as refused:
        measured(EMA(), Validate("1", probes=probes), kind=Doubles)
    messages.check(refused.value)


# ---- several ranks -------------------------------------------------------------------------------------


class Shown(MLP):
    """With a picture, and a word of each validation."""

    fails = False

    def visualize(self, batch: Any) -> Mapping[str, Any]:
        if self.fails:
            raise KeyError("picture")
        return {"logits": Media("histogram", self.net(batch[0]))}

    def summarize(self, values: Mapping[str, Tensor], split: str) -> Mapping[str, float]:
        self.print(f"{split}: {len(values['loss'])}")
        return {}


def of_rank(ranks: Ranks, folder: Path, *hooks: Hook) -> Trainer:
    """A trainer of one of several ranks, which evaluates and shows and tests."""
    runner = built(Shown)
    records = Records(folder / "records", 2)
    sets = {name: loader(Still(9), 4, shuffle=False) for name in ("valid", "test")}
    own = [records, Validate("2"), Visualize(folder / "media", "3", samples=20), Test(records), EMA(), *hooks]
    return plain(
        runner,
        Still(),
        own,
        until=4,
        stepper=Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), ranks=ranks),
        loaders={
            "train": Loader(
                Still(), plan=ShardedPlan(BatchPlan(26, 4, seed=3), ranks.rank, ranks.world_size)
            ),
            **sets,
        },
        ranks=ranks,
    )


def test_ranks_evaluate_together_and_one_writes(tmp_path: Path) -> None:
    def fit(ranks: Ranks) -> dict[str, Any]:
        folder = tmp_path / str(ranks.rank)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            trainer = of_rank(ranks, folder)
            assert trainer.fit() == "finished"
        files = sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
        trainer.note_inexact("for a test")
        # What one process measures with the same weights, to the bit.
        again = plain(trainer.runner, Still(), loaders={"valid": trainer.loaders["valid"]})
        alone = again.evaluate("valid") if ranks.is_main else {}
        together = trainer.evaluate("valid")
        return {"row": trainer.row, "files": files, "said": said.getvalue(), "alone": alone, "all": together}

    first, second = team(2, fit)
    assert first["row"] == second["row"] and first["row"].keys() >= {"test/loss", "test/ema/loss"}
    assert first["files"] == ["media/3/logits.json", "media/4/logits.json", "records/1.jsonl"]
    assert second["files"] == [] and second["said"] == ""
    assert re.search(r"\bvalid\b.*\b9\b", first["said"]) and "valid: 9\n" in first["said"]
    rows = rows_of(tmp_path / "0")
    assert [row["step"] for row in rows] == [2, 4, 4] and "test/loss" in rows[-1], "the test has its own"
    assert first["all"] == second["all"]
    assert {name: first["all"][name] for name in first["alone"]} == first["alone"] != {}


class StopIn(Hook):
    """One rank is asked to stop in the middle of what it evaluates, as by a signal."""

    def __init__(self, ranks: Ranks, split: str) -> None:
        self._ranks, self._split = ranks, split

    def on_start(self, trainer: Trainer) -> None:
        loader = trainer.loaders[self._split]
        share = loader.shard

        def stopped(rank: int, world: int) -> Any:
            for one in share(rank, world):
                if self._ranks.rank == 1:
                    trainer.request_stop("SIGTERM")
                yield one

        loader.shard = stopped  # type: ignore[method-assign]


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_stop_of_one_rank_drops_the_evaluation_of_all(
    split: str, tmp_path: Path, messages: Messages
) -> None:
    def fit(ranks: Ranks) -> list[Any]:
        trainer = of_rank(ranks, tmp_path, StopIn(ranks, split))
        reason = trainer.fit()
        return [
            reason,
            trainer.progress.step,
            trainer.agenda.pending,
            trainer.has_unfinished_step,
            trainer.results,
        ]

    with silent():
        first, second = team(2, fit)
    owed = [2, "Validate", True] if split == "valid" else [4, "", True]
    assert second[:-1] == ["SIGTERM", *owed] and first[1:-1] == owed
    messages.check(first[0])
    assert bool(first[-1]) == bool(second[-1]) == (split == "test")


def test_a_picture_that_fails_on_one_rank_is_dropped_on_all(tmp_path: Path, messages: Messages) -> None:
    def fit(ranks: Ranks) -> str:
        trainer = of_rank(ranks, tmp_path)
        trainer.runner.fails = ranks.rank == 1
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            assert trainer.fit() == "finished"
        return errors.getvalue()

    with silent():
        first, second = team(2, fit)
    line, again = first.splitlines()
    assert line == again and "rank 1" in line and "visualize()" in line
    messages.check(line)
    assert second.count("KeyError: 'picture'") == 2 and not (tmp_path / "media").exists()
