"""A trainer with one, two and three ranks: the same batches in the same order, and the same training within a
stated bound."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import default_collate

from roost.package.checkpoints import checkpoint
from roost.package.results import skipped_steps
from roost.train.checkpointing import checkpointer
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan, shard_slice
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.failures import step_report
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Save
from roost.train.optim.optimizer import Optim
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.train.parts import BATCH_SIZE, STEPS_PER_EPOCH, Classifier, Points, built, weights
from tests.train.team import silent, team

STEPS = 20
ROTTEN = 17
"""The sample without which a collate gives a batch."""
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}
"""How far losses and weights of several ranks may be from those of one, relatively, after `STEPS` steps."""


class Numbered(Points):
    """Each sample says which one it is."""

    def __getitem__(self, index: int) -> Any:
        return *super().__getitem__(index), index


class Recorded(Classifier):
    """Keeps the samples of each step: those of each micro-batch that count, in their order."""

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        self.to(getattr(torch, self.args["dtype"]))
        self.steps: list[list[list[int]]] = []
        self.num_stand_ins = 0

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, y = batch[0].to(next(self.parameters()).dtype), batch[1]
        each = functional.cross_entropy(self.net(x), y, reduction="none")
        if not self.args["weighs"]:
            return {"loss": each.mean()}
        weight = x[:, 0].abs()
        return {"loss": (each * weight).sum() / weight.sum(), "weight": weight.sum()}

    def update(self, stepper: Any, batches: Sequence[Any]) -> Mapping[str, Any]:
        counts = getattr(batches, "num_samples", [len(batch[0]) for batch in batches])
        self.steps.append([batch[2][:count].tolist() for batch, count in zip(batches, counts, strict=True)])
        self.num_stand_ins += counts.count(0)
        return super().update(stepper, batches)


class Losses(Hook):
    """Cuts a row each step."""

    phase, every = Phase.RECORD, "1"

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_step(self, trainer: Trainer) -> None:
        self.rows.append(trainer.events.row())


def without_rotten(samples: list[Any]) -> Any:
    return None if any(index == ROTTEN for *_, index in samples) else default_collate(samples)


def made(
    ranks: Ranks,
    *hooks: Hook,
    until: int = STEPS,
    folder: Path | None = None,
    dtype: str = "float64",
    weighs: bool = False,
    accumulation: int = 1,
    collate: Any = None,
) -> Trainer:
    """The trainer of one rank."""
    runner = built(Recorded, args={"dtype": dtype, "weighs": weighs})
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1, momentum=0.9)
    dataset = Numbered()
    plan = BatchPlan(len(dataset), BATCH_SIZE, seed=3)
    own = ShardedPlan(plan, ranks.rank, ranks.world_size) if ranks.are_several else plan
    return Trainer(
        runner,
        {"train": Loader(dataset, plan=own, seed=3, collate=collate)},
        Stepper(Optim(optimizer, max_grad_norm=1.0), accumulation=accumulation, ranks=ranks),
        hooks=hooks,
        checkpoints=None if folder is None else Checkpoints(folder / "Checkpoints", ranks=ranks),
        recovery=Recovery(log=folder / skipped_steps.NAME if folder is not None and ranks.is_main else None),
        until=until,
        seed=3,
        ranks=ranks,
    )


def trained(ranks: Ranks, **options: Any) -> dict[str, Any]:
    """What a whole run gives on one rank."""
    losses = Losses()
    trainer = made(ranks, losses, **options)
    with silent():
        trainer.fit()
    runner = trainer.runner
    return {
        "steps": runner.steps,
        "stand-ins": runner.num_stand_ins,
        "rows": losses.rows,
        "weights": torch.cat([one.detach().reshape(-1) for one in runner.parameters()]),
        "bits": weights(runner),
        "samples": trainer.progress.samples,
    }


def together(every: Sequence[Mapping[str, Any]]) -> list[list[list[int]]]:
    """The samples of each step's micro-batches, one rank's behind the other's."""
    steps = zip(*(one["steps"] for one in every), strict=True)
    return [[list(itertools.chain(*parts)) for parts in zip(*shares, strict=True)] for shares in steps]


def close(ours: Mapping[str, Any], theirs: Mapping[str, Any], bound: float) -> None:
    """Rows and weights, relatively."""
    torch.testing.assert_close(ours["weights"], theirs["weights"], rtol=bound, atol=bound)
    assert [sorted(row) for row in ours["rows"]] == [sorted(row) for row in theirs["rows"]]
    for own, other in zip(ours["rows"], theirs["rows"], strict=True):
        assert own == pytest.approx(other, rel=bound)


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize(
    "options",
    [{"dtype": "float32"}, {}, {"weighs": True}, {"accumulation": 3}, {"weighs": True, "accumulation": 3}],
    ids=str,
)
def test_as_many_ranks_as_one(world: int, options: dict[str, Any]) -> None:
    """The last batch of an epoch has two samples: of three ranks one is left over."""
    [alone] = team(1, lambda _: trained(ALONE, **options))
    every = team(world, lambda ranks: trained(ranks, **options))
    assert together(every) == alone["steps"]
    epochs = STEPS // -(-STEPS_PER_EPOCH // options.get("accumulation", 1))
    assert every[-1]["stand-ins"] == (epochs if world == 3 else 0)
    for one in every:
        assert one["bits"] == every[0]["bits"] and one["rows"] == every[0]["rows"]
        assert one["samples"] == alone["samples"]
        close(one, alone, BOUNDS[getattr(torch, options.get("dtype", "float64"))])


def test_for_a_share_without_a_batch_another_stands_in() -> None:
    """What the other ranks have of the batch is trained on."""
    [whole] = team(1, lambda _: trained(ALONE))
    every = team(3, lambda ranks: trained(ranks, collate=without_rotten))
    expected = []
    for [batch] in whole["steps"]:
        shares = [batch[shard_slice(len(batch), rank, 3)] for rank in range(3)]
        expected.append([[index for part in shares if ROTTEN not in part for index in part]])
    assert together(every) == expected != whole["steps"]
    assert every[0]["samples"] == sum(len(batch) for [batch] in expected)
    assert all(one["bits"] == every[0]["bits"] and one["rows"] == every[0]["rows"] for one in every)


def test_a_batch_of_which_no_share_holds_anything_is_passed_over(tmp_path: Path) -> None:
    """As in one process, and it is written down once."""

    def without_last(samples: Sequence[Any]) -> Any:
        """The last batch of an epoch has two samples."""
        return None if {one[-1] for one in samples} & last else default_collate(samples)

    last = {
        index
        for draw in list(BatchPlan(len(Numbered()), BATCH_SIZE, seed=3).batches(0))[-1:]
        for index in draw.indices
    }
    options: dict[str, Any] = {"collate": without_last, "until": STEPS_PER_EPOCH}
    [alone] = team(1, lambda _: trained(ALONE, folder=tmp_path / "alone", **options))
    every = team(2, lambda ranks: trained(ranks, folder=tmp_path / "ranks", **options))
    assert together(every) == alone["steps"]
    for one in every:
        close(one, alone, 1e-12)
        assert one["samples"] == alone["samples"]
    notes = [skipped_steps.read(tmp_path / folder / skipped_steps.NAME, []) for folder in ("alone", "ranks")]
    assert [[(note.step, note.kind) for note in of] for of in notes] == [[(STEPS_PER_EPOCH, "empty")]] * 2


def test_a_checkpoint_goes_on_with_other_ranks(tmp_path: Path) -> None:
    """Nothing cuts a row on the way: it holds the steps of all, whichever rank took them."""

    def leg(ranks: Ranks, until: int, folder: Path) -> Any:
        trainer = made(
            ranks if ranks.are_several else ALONE, Save("3"), until=until, folder=folder, weighs=True
        )
        with silent():
            trainer.fit()
        return weights(trainer.runner), trainer.events.peek(), trainer.runner.steps

    taken = []
    for world, until in ((3, 5), (2, 9), (1, 12), (3, 16), (2, STEPS)):
        every = team(world, functools.partial(leg, until=until, folder=tmp_path / "legs"))
        assert all(one[:2] == every[0][:2] for one in every)
        taken += together([{"steps": one[2]} for one in every])
    [whole] = team(1, functools.partial(leg, until=STEPS, folder=tmp_path / "whole"))
    assert taken == whole[2]
    assert every[0][1] == pytest.approx(whole[1], rel=1e-12)
    newest = checkpoint.read_manifests(tmp_path / "legs" / "Checkpoints")[-1]
    assert newest.step == STEPS and newest.ranks == 2


class Fails(Hook):
    """Rank 1 fails in the step after a save: in its loss, perhaps while the other one waits in its own."""

    phase = Phase.SCHEDULE

    def __init__(self, where: str) -> None:
        self.where = where

    def on_start(self, trainer: Trainer) -> None:
        vars(trainer.runner)["loss"] = functools.partial(self._loss, trainer)

    def _loss(self, trainer: Trainer, batch: Any) -> Any:
        if trainer.progress.step == 3:
            if trainer.ranks.rank == 1:
                raise SystemExit(3) if self.where == "exit" else KeyError(self.where)
            if self.where == "together":
                torch.distributed.barrier()
        return type(trainer.runner).loss(trainer.runner, batch)


class FailsBefore(Fails):
    """Before that step. A state is copied by then: no hook runs beside that."""

    def before_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == 3 and trainer.ranks.rank == 1:
            raise KeyError(self.where)


@pytest.mark.parametrize("where", ["before", "loss", "exit", "together"])
def test_a_rank_that_fails_beside_a_save_does_not_wait_for_the_others(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it in their step, and what they have not copied by then is given up."""
    for module in (checkpointer, step_report):  # only "together" waits for all of it
        monkeypatch.setattr(module, "FAILURE_WAIT_SECONDS", 0.1 if where == "together" else 10.0)

    def work(ranks: Ranks) -> str:
        fails = FailsBefore if where == "before" else Fails
        trainer = made(ranks, fails(where), Save("3"), until=9, folder=tmp_path)
        try:
            with silent():
                return trainer.fit()
        except BaseException as error:  # noqa: BLE001  - what each rank ends by
            return type(error).__name__

    assert team(2, work, seconds=20)[1] == ("SystemExit" if where == "exit" else "KeyError")
    saved = [info.step for info in checkpoint.read_manifests(tmp_path / "Checkpoints")]
    assert saved == ([] if where == "together" else [3])


# --- asked from outside -----------------------------------------------------------------------------------


class Asked(Hook):
    """On one rank alone, before its fourth step, another thread makes a request."""

    phase = Phase.SCHEDULE

    def __init__(self, rank: int, what: str, *args: Any) -> None:
        self.rank, self.what, self.args_ = rank, what, args

    def before_step(self, trainer: Trainer) -> None:
        if trainer.ranks.rank == self.rank and trainer.progress.step == 3:
            asks = threading.Thread(target=getattr(trainer, self.what), args=self.args_)
            asks.start()
            asks.join()


def test_a_save_that_one_rank_was_asked_for_is_one_of_all(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> int:
        trainer = made(ranks, Asked(2, "request_save"), Save("1000"), until=9, folder=tmp_path)
        with silent():
            trainer.fit()
        return trainer.progress.step

    assert team(3, work) == [9, 9, 9]
    first, last = checkpoint.read_manifests(tmp_path / "Checkpoints")
    assert first.reason == "requested" and 4 <= first.step <= 6 and last.step == 9
    assert {"rank-0", "rank-1", "rank-2"} <= set(checkpoint.part_names(first))


def test_a_stop_that_one_rank_was_asked_for_stops_all_at_one_step(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> tuple[str, int]:
        trainer = made(ranks, Asked(1, "request_stop", "SIGTERM"), Save("1000"), folder=tmp_path)
        with silent():
            return trainer.fit(), trainer.progress.step

    first, second, third = team(3, work)
    assert first == third and "rank 1" in first[0] and first[1] == second[1]
    assert second[0] == "SIGTERM" and 3 <= second[1] <= 5
    [info] = checkpoint.read_manifests(tmp_path / "Checkpoints")
    assert (info.step, info.reason, info.ranks) == (second[1], "signal", 3)
