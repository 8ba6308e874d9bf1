"""Steps that fail in one of several ranks: all pass over the same ones, or all go back."""

from __future__ import annotations

import contextlib
import functools
import io
import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from roost.base.errors import PeerLost, TrainingError
from roost.package.results import skipped_steps
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.distributed.ranks import Ranks
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Records, Save
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import CNN, Pictures, bits, built, guard_of, rows_of
from tests.train.team import team

RANK, STEP = 1, 5
"""Where and when it fails."""


class Bad(Pictures):
    """A sample of them cannot be read."""

    def __init__(self, bad: int | None) -> None:
        super().__init__()
        self.bad = bad

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == self.bad:
            raise ValueError("torn")
        return super().__getitem__(index)


class Failing(CNN):
    """One rank's loss fails in some steps."""

    ranks: Ranks
    how: str
    steps: tuple[int, ...]

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        found = dict(super().loss(batch))
        if self.ranks.rank != RANK or self.progress.step + 1 not in self.steps:
            return found
        if self.how == "nan":
            found["loss"] = found["loss"] * math.nan
        if self.how == "loss":
            raise ValueError("no good")
        return found

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        values = super().update(stepper, batches)
        if self.how == "after" and self.ranks.rank == RANK and self.progress.step + 1 in self.steps:
            raise ValueError("too late")
        return values


class End(NamedTuple):
    """What came of a rank's run."""

    said: str
    weights: Any
    progress: tuple[int, int]
    """Step and samples."""
    lines: list[str]
    """That it printed of steps that failed."""
    rows: list[dict[str, Any]]
    log: list[tuple[int, str, str]]
    """Step, kind and error of the steps that were passed over."""
    samples: list[list[int]]
    """Of these steps."""


class Damages(Hook):
    """Damages the checkpoint of the step before that which fails."""

    phase, every = Phase.REPORT, "1"

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step != STEP or not trainer.ranks.is_main:
            return
        checkpoints = trainer.checkpoints
        assert checkpoints is not None and checkpoints.wait()
        [*_, last] = checkpoints.store.lineage()
        assert last.step == STEP - 1
        (checkpoints.store.path(last.id) / "model.safetensors").write_bytes(b"")


def run(
    ranks: Ranks,
    folder: Path,
    how: str,
    *,
    steps: tuple[int, ...] = (STEP,),
    hooks: Sequence[Hook] = (),
    **recovery: Any,
) -> End:
    """A run of 14 steps, two epochs, with a checkpoint each 2 and a row each 3."""
    runner = built(Failing)
    runner.ranks, runner.how, runner.steps = ranks, how, steps
    plan = ShardedPlan(BatchPlan(26, 4, seed=3), ranks.rank, ranks.world_size)
    own = next(iter(plan.batches(0, STEP - 1))).indices  # the share of this rank in that step
    bad = own[0] if how == "read" and ranks.rank == RANK else None
    trainer = Trainer(
        runner,
        {"train": Loader(Bad(bad), plan=plan, seed=3)},
        Stepper(
            torch.optim.AdamW(runner.parameters(), lr=0.05, fused=True),
            guard=guard_of(runner, recovery),
            ranks=ranks,
            agrees_on_failures=recovery.get("on_step_error") == "skip",
        ),
        hooks=[Records(folder / "records", 3), Save("2"), *hooks],
        checkpoints=Checkpoints(folder / "Checkpoints", ranks=ranks),
        until="2ep",
        seed=3,
        recovery=Recovery(log=folder / "skipped.jsonl" if ranks.is_main else None, **recovery),
        ranks=ranks,
    )
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            said = trainer.fit()
        except (ValueError, TrainingError, PeerLost, RuntimeError) as error:
            said = f"{type(error).__name__}: {error}"
    log = skipped_steps.read(folder / "skipped.jsonl", {}) if ranks.is_main else []
    return End(
        said,
        bits(dict(runner.state_dict())),
        (trainer.progress.step, trainer.progress.samples),
        [line for line in printed.getvalue().splitlines() if "step" in line],
        rows_of(folder) if ranks.is_main else [],
        [(one.step, one.kind, one.error) for one in log],
        [one.samples for one in log],
    )


def ends(how: str, **recovery: Any) -> list[End]:
    with tempfile.TemporaryDirectory() as name:
        return team(3, lambda ranks: run(ranks, Path(name), how, **recovery))


@functools.cache
def undisturbed(policy: str) -> End:
    """Where nothing fails."""
    return ends("", **{policy: "skip"})[0]


def assert_together(found: list[End]) -> None:
    first = found[0]
    assert [one.said for one in found] == ["finished"] * 3
    assert all(one.weights == first.weights and one.progress == first.progress for one in found)
    assert all(math.isfinite(value) for row in first.rows for value in row.values() if value is not None)


@pytest.mark.parametrize(
    ("how", "policy", "error"),
    [
        ("nan", "on_non_finite", ""),
        ("loss", "on_step_error", "PeerLost: .*rank 1\\b.*ValueError: no good"),
        ("read", "on_step_error", "PeerLost: .*rank 1\\b.*ValueError: torn"),
    ],
)
def test_all_pass_over_the_step_in_which_one_fails(
    how: str, policy: str, error: str, messages: Messages
) -> None:
    """Its buffers are restored, and rank 0 prints and records the error of the other rank."""
    found = ends(how, **{policy: "skip"})
    assert_together(found)
    [first, *_] = found
    assert first.progress[0] == 14
    [(step, kind, logged)] = first.log
    assert step == STEP and kind == ("error" if error else "nonfinite") and re.match(error, logged)
    messages.check(logged)
    assert first.samples == [next(BatchPlan(26, 4, seed=3).batches(0, STEP - 1)).indices], "of all ranks"
    assert len(first.lines) == 1 and re.search(rf"\bskipped\b.*\b{STEP}\b", first.lines[0])
    without = undisturbed(policy)
    assert without.log == [] and without.weights != first.weights


def test_all_go_back_together(messages: Messages) -> None:
    found = ends("nan", on_non_finite="rollback")
    assert_together(found)
    assert found[0].progress[0] == 14 and [step for step, *_ in found[0].log] == [STEP]
    assert all(len(one.lines) == 1 and "checkpoint" in one.lines[0] for one in found)
    messages.check(found[0].lines[0])


def test_all_go_back_together_past_a_checkpoint_that_is_damaged(messages: Messages) -> None:
    found = ends("nan", on_non_finite="rollback", hooks=[Damages()])
    assert_together(found)
    assert all(re.search(r"\bstep 2\b", one.lines[0]) for one in found)
    messages.check(found[0].lines[0])


def test_none_is_left_where_there_are_too_many(messages: Messages) -> None:
    found = ends("loss", steps=(3, 4, 5), on_step_error="skip", max_skipped_steps=2)
    assert all(re.search(r"\bmax_skipped_steps\b.*\b3\b.*\b5\b", one.said) for one in found)
    messages.check(found[0].said)


def test_what_comes_after_the_step_cannot_be_passed_over() -> None:
    """The others have moved. They end, too: by what they hear of it."""
    first, second, third = ends("after", on_step_error="skip")
    assert second.said == "ValueError: too late"
    assert first.said != "finished" != third.said
