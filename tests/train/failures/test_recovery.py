"""What becomes of a run whose steps fail."""

from __future__ import annotations

import errno
import gc
import itertools
import json
import math
import os
import re
import signal
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from roost.base import durable, traceback_frames
from roost.base.errors import ContractError, TrainingError
from roost.base.exception_record import record_exception
from roost.base.traceback_frames import ProjectFiles
from roost.cli.progress_bar import NewestMetrics
from roost.package import records
from roost.package.checkpoints import checkpoint
from roost.package.results import black_box, skipped_steps
from roost.train import events as events_module
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.failures import step_report
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Records, Save, Schedule, Validate
from roost.train.optim.optimizer import Optim
from roost.train.step import seeding
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import (
    CNN,
    MLP,
    STEPS_PER_EPOCH,
    Classifier,
    Crash,
    CrashAt,
    Gan,
    Pictures,
    Points,
    Recipe,
    Still,
    StopAt,
    assert_equal,
    bits,
    built,
    guard_of,
    loader,
    outcome,
    plain,
    rows_of,
    weights,
)

SKIP: dict[str, Any] = {"on_non_finite": "skip"}
BACK: dict[str, Any] = {"on_non_finite": "rollback"}
PASS: dict[str, Any] = {"on_step_error": "skip"}


class NoGradient(torch.autograd.Function):
    """The identity, whose gradient is NaN, or that has none."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, error: Exception | None) -> Tensor:
        ctx.error = error
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        if ctx.error is not None:
            raise ctx.error
        return gradient * math.nan, None


class Failing(Classifier):
    """Fails in the steps that are named: ``nan`` is about the loss, ``grad`` the gradient alone; ``loss``
    raises an error in it, ``backward`` in the backward pass, ``before`` before either."""

    plan: ClassVar[dict[str, Any]] = {}

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        step = self.progress.step + 1
        found = dict(super().loss(batch))
        if self.fails("nan", step):
            found["loss"] = found["loss"] * math.nan
        if self.fails("grad", step):
            found["loss"] = NoGradient.apply(found["loss"], None)  # type: ignore[no-untyped-call]
        if self.fails("loss", step):
            raise self.error()
        if self.fails("backward", step):
            found["loss"] = NoGradient.apply(found["loss"], self.error())  # type: ignore[no-untyped-call]
        return found

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        if self.fails("before", self.progress.step + 1):
            raise self.error()
        return super().update(stepper, batches)

    def fails(self, how: str, step: int) -> bool:
        return step in self.plan.get(how, ())

    def error(self) -> Exception:
        error: Exception = self.plan.get("error", ValueError)("no good")
        return error


class FailingMLP(Failing, MLP):
    pass


class FailingCNN(Failing, CNN):
    pass


@pytest.fixture(autouse=True)
def nothing_fails() -> Iterator[None]:
    yield
    Failing.plan = {}


def fails(**steps: Any) -> None:
    """Which steps of every `Failing` fail, and how."""
    Failing.plan = steps


RECIPE = Recipe(runner=FailingMLP)


def lines_of(folder: Path) -> list[tuple[int, int, str]]:
    """(session, step, kind) of the steps that were passed over."""
    found = skipped_steps.read(folder / skipped_steps.NAME, records.fold(folder / "records").starts)
    return [(one.session, one.step, one.kind) for one in found]


def steps_of(folder: Path) -> list[int]:
    """The steps of the checkpoints on disk."""
    return [info.step for info in checkpoint.read_manifests(folder / "Checkpoints")]


def cut(recipe: Recipe, folder: Path, step: int, *, by_crash: bool) -> None:
    """A session that ends after a step: by a crash, or stopped and saved."""
    trainer = recipe.make(folder, (CrashAt if by_crash else StopAt)(step))
    if by_crash:
        with pytest.raises(Crash):
            trainer.fit()
    else:
        assert trainer.fit() == "test"


def samples_in(step: int, *, accumulation: int = 1) -> list[int]:
    """The samples of a step of a `Recipe`."""
    plan = BatchPlan(26, 4, seed=3)
    windows = -(-plan.num_batches // accumulation)
    epoch, window = divmod(step - 1, windows)
    chosen = itertools.islice(plan.batches(epoch, window * accumulation), accumulation)
    return [sample for draw in chosen for sample in draw.indices]


# --- stop -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "clips", "first"), [("nan", True, 5), ("nan", False, 5), ("grad", True, 5), ("grad", False, 6)]
)
@pytest.mark.parametrize("log", [1, 2, 3, 100])
def test_a_run_stops_and_names_the_first_bad_step(
    tmp_path: Path, how: str, clips: bool, first: int, log: int, messages: Messages
) -> None:
    """Without clipping the gradient is not checked, so the next step finds it, and the error says so."""
    fails(**{how: [5]})
    trainer = replace(RECIPE, log=log, save=4, validate=100).make(tmp_path)
    if not clips:
        trainer.stepper.optimizers["main"].max_grad_norm = None
    with pytest.raises(TrainingError) as raised:
        trainer.fit()
    assert (f"gradient of step {first - 1}" in str(raised.value)) != clips
    messages.check(raised.value)
    assert steps_of(tmp_path) == [4]
    box = black_box.newest_box(tmp_path / "blackbox")
    assert box is not None and box.has_batch and not box.has_state
    assert (box.note.step, box.note.kind, box.note.checkpoint) == (first, "nonfinite", 0)
    assert (box.note.epoch, box.note.batch) == (0, (first - 1) % STEPS_PER_EPOCH)
    assert box.note.samples == samples_in(first)
    assert step_report.format_place(box.note) in str(raised.value)


@pytest.mark.parametrize("clips", [True, False])
@pytest.mark.parametrize("first", [2, 6])
def test_the_advice_is_what_is_not_done_already(
    tmp_path: Path, clips: bool, first: int, messages: Messages
) -> None:
    fails(nan=[first])
    trainer = replace(RECIPE, log=1, save=4, validate=100).make(tmp_path)
    if not clips:
        trainer.stepper.optimizers["main"].max_grad_norm = None
    with pytest.raises(TrainingError) as found:
        trainer.fit()
    text = str(found.value)
    assert ("max_grad_norm" in text) != clips and "on_non_finite" in text
    assert ("checkpoint 0" in text) == (first == 6)
    assert f"in the row of step {first - 1}" in text
    messages.check(text)


def test_an_error_that_ends_the_run_names_its_step_and_its_samples(
    tmp_path: Path, messages: Messages
) -> None:
    fails(loss=[5])
    with pytest.raises(ValueError, match="no good") as found:
        RECIPE.make(tmp_path).fit()
    (note,) = found.value.__notes__
    assert re.findall(r"\d+", note) == ["5", "1", "5", *map(str, samples_in(5))]
    messages.check(note)
    record = record_exception(found.value)
    assert "\n".join(traceback_frames.format_chain(record, ProjectFiles([]))).endswith(record.notes[0])
    assert traceback_frames.exception_summary(record) == "ValueError: no good", "a line of a table is short"


def test_the_first_bad_step_is_known_however_long_a_row_is(tmp_path: Path, messages: Messages) -> None:
    """Some of its steps were added up before."""
    fails(nan=range(1030, 5000))
    fold = events_module._FOLD_STEPS
    assert fold < 1030 < 2 * fold
    trainer = plain(built(FailingMLP), Still(), [Records(tmp_path, 2100)], until=2100)
    with pytest.raises(TrainingError, match=r"\bstep 2100\b.*\bstep 1030 \(epoch 148, batch 1,") as raised:
        trainer.fit()
    messages.check(raised.value)


@pytest.mark.parametrize("step", [2, 3, 4])
def test_a_save_between_rows_looks_first(tmp_path: Path, step: int, messages: Messages) -> None:
    fails(nan=[step])
    with pytest.raises(TrainingError, match=rf"\bstep {step} \(epoch 1, batch {step},") as raised:
        replace(RECIPE, log=100, save=4, validate=100).make(tmp_path).fit()
    messages.check(raised.value)
    assert steps_of(tmp_path) == []


def test_looking_cuts_no_row(tmp_path: Path) -> None:
    """A save at another step changes no bit of any row."""
    saved = replace(RECIPE, log=5, save=2, validate=100)
    trainer = saved.make(tmp_path / "a")
    trainer.fit()
    other = replace(saved, save=100).make(tmp_path / "b")
    other.fit()
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


class Breaks(Hook):
    """Lets the next update break the weights, by a finite gradient."""

    phase = Phase.SCHEDULE

    def __init__(self, step: int) -> None:
        self.step = step

    def before_step(self, trainer: Trainer) -> None:
        (group,) = trainer.stepper.optimizers["main"].optimizer.param_groups
        group["lr"] = math.inf if trainer.progress.step + 1 == self.step else 0.01


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_weights_that_a_finite_gradient_broke_are_not_saved(
    tmp_path: Path, policy: str, messages: Messages
) -> None:
    recipe = replace(RECIPE, log=100, save=4, validate=100, recovery={"on_non_finite": policy})
    with pytest.raises(TrainingError, match=r"\b4\b.*net\.0\.weight.*\bstep 4 ") as raised:
        recipe.make(tmp_path, Breaks(4)).fit()
    messages.check(raised.value)
    assert steps_of(tmp_path) == []


def test_skipping_does_not_help_weights_that_broke(tmp_path: Path) -> None:
    recipe = replace(RECIPE, log=6, save=100, validate=100, recovery=SKIP)
    with pytest.raises(TrainingError, match=r"\b4\b.*net\.0\.weight.*\bstep 4 "):
        recipe.make(tmp_path, Breaks(4)).fit()
    assert lines_of(tmp_path) == []


@pytest.mark.parametrize("log", [1, 6])
def test_a_rollback_mends_weights_that_broke(tmp_path: Path, log: int) -> None:
    """The step that broke them is passed over, not the ones after it."""
    trainer = replace(RECIPE, log=log, save=3, validate=100, recovery=BACK).make(tmp_path, Breaks(4))
    assert trainer.fit() == "finished"
    assert trainer.recovery.rolled_back_steps == {4}


def test_a_bad_step_with_a_validation_makes_no_best_checkpoint(tmp_path: Path, messages: Messages) -> None:
    """Its accuracy is a number all the same."""
    fails(nan=[3])
    trainer = replace(RECIPE, log=100, save=100, validate=3).make(tmp_path)
    with pytest.raises(TrainingError, match=r"train/loss\b.*\bnan\b.*\bstep 3\b.*\bstep 3 ") as raised:
        trainer.fit()
    messages.check(raised.value)
    assert steps_of(tmp_path) == []
    assert rows_of(tmp_path)[-1]["step"] == 3


# --- skip -------------------------------------------------------------------------------------------------


def optim_of(module: nn.Module, name: str) -> Optim:
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        if name == "SGD"
        else torch.optim.AdamW(module.parameters(), lr=0.02, fused=name == "fused")
    )
    return Optim(optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9), max_grad_norm=0.5)


def batches(dataset: Any, num: int) -> Iterator[Any]:
    for batch in itertools.islice(loader(dataset).epochs(), num):
        yield batch.value


@pytest.mark.parametrize(
    ("name", "bad", "how"),
    [
        (("SGD", "AdamW", "fused")[(row + column) % 3], bad, how)  # each pair of two values occurs
        for row, bad in enumerate([[4], [1], [1, 2, 9], [7, 14]])
        for column, how in enumerate(["nan", "grad", "loss", "backward"])
    ],
)
def test_it_is_as_if_the_window_had_not_been_there(
    tmp_path: Path, name: str, bad: list[int], how: str
) -> None:
    """Against a loop by hand: weights, buffers, optimizer; the schedule goes on."""
    dataset = Pictures()
    by_hand = built(CNN)
    optim = optim_of(by_hand, name)
    optim.optimizer._opt_called = True  # type: ignore[attr-defined]  # or torch warns of a schedule without steps
    seeding.seed_all(seeding.mix(3, "train"))
    for step, (x, y) in enumerate(batches(dataset, 14), start=1):
        if step not in bad:
            optim.optimizer.zero_grad()
            nn.functional.cross_entropy(by_hand.net(x), y).backward()
            nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
            optim.optimizer.step()
        optim.scheduler.step()

    fails(**{how: bad})
    ours = built(FailingCNN)
    policy = SKIP if how in ("nan", "grad") else PASS
    stepper = Stepper(optim_of(ours, name), guard=guard_of(ours, policy))
    log = tmp_path / skipped_steps.NAME
    trainer = plain(
        ours,
        dataset,
        [Schedule(), Records(tmp_path / "records", 3)],
        until="2ep",
        stepper=stepper,
        recovery=Recovery(**policy, log=log, session=1),
    )
    trainer.fit()
    assert weights(ours) == weights(by_hand)
    mine, theirs = stepper.optimizers["main"], optim
    assert bits(mine.optimizer.state_dict()) == bits(theirs.optimizer.state_dict())
    assert bits(mine.scheduler.state_dict()) == bits(theirs.scheduler.state_dict())
    kind = "nonfinite" if policy is SKIP else "error"
    assert [(one.step, one.kind, one.samples) for one in skipped_steps.read(log)] == [
        (step, kind, samples_in(step)) for step in bad
    ]


@pytest.mark.parametrize(("how", "policy"), [("nan", SKIP), ("loss", PASS)])
def test_rows_leave_them_out_and_count_them(tmp_path: Path, how: str, policy: dict[str, Any]) -> None:
    fails(**{how: [2, 5, 6, 7]})
    recipe = replace(RECIPE, log=1, validate=100, save=100, recovery=policy)
    each = recipe.make(tmp_path / "each")
    each.fit()
    one = {row["step"]: row for row in rows_of(tmp_path / "each")}
    assert all(("train/skipped" in row) == (step in (2, 5, 6, 7)) for step, row in one.items())
    assert "train/loss" not in one[2] and one[2]["train/skipped"] == 1.0

    replace(recipe, log=4).make(tmp_path / "four").fit()
    four = {row["step"]: row for row in rows_of(tmp_path / "four")}
    assert {step: row.get("train/skipped") for step, row in four.items()} == {
        4: 1.0,
        8: 3.0,
        12: None,
        14: None,
    }
    for step, good in ((4, [1, 3, 4]), (8, [8])):
        assert four[step]["train/loss"] == pytest.approx(sum(one[n]["train/loss"] for n in good) / len(good))


class Logs(FailingMLP):
    """Logs beside what its loss gives."""

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        step = self.progress.step + 1
        self.log(own_loss=math.nan if self.fails("nan", step) else float(step), number=float(step))
        return super().loss(batch)


@pytest.mark.parametrize(("how", "policy"), [("nan", SKIP), ("loss", PASS), ("backward", PASS)])
def test_what_was_logged_in_a_skipped_step_is_left_out_too(
    tmp_path: Path, how: str, policy: dict[str, Any]
) -> None:
    fails(**{how: [2, 4]})
    recipe = replace(RECIPE, runner=Logs, log=4, save=3, validate=100, until=4, accumulation=1)
    replace(recipe, recovery=policy).make(tmp_path).fit()
    (row,) = rows_of(tmp_path)
    assert (row["train/own_loss"], row["train/number"], row["train/skipped"]) == (2.0, 2.0, 2.0)


def test_a_logged_loss_that_is_not_finite_names_its_step(tmp_path: Path) -> None:
    fails(nan=[3])
    with pytest.raises(TrainingError, match=r"train/own_loss\b.*\bnan\b.*\bstep 4\b.*\bstep 3 "):
        replace(RECIPE, runner=Logs, log=4, save=100, validate=100).make(tmp_path).fit()


def test_a_row_without_a_good_step_has_no_mean(tmp_path: Path) -> None:
    fails(nan=[3, 4])
    replace(RECIPE, log=2, validate=4, save=100, recovery=SKIP).make(tmp_path).fit()
    row = next(row for row in rows_of(tmp_path) if row["step"] == 4)
    assert row["train/skipped"] == 2.0 and "train/loss" not in row and row["valid/loss"] > 0


@pytest.mark.parametrize("most", [0, 2])
@pytest.mark.parametrize(
    ("how", "policy"), [("nan", SKIP), ("grad", SKIP), ("loss", PASS), ("backward", PASS)]
)
def test_too_many_are_an_error(
    tmp_path: Path, how: str, policy: dict[str, Any], most: int, messages: Messages
) -> None:
    """The step that was one too many is kept, and its own error reported."""
    fails(**{how: [2, 4, 5, 7]})
    recipe = replace(RECIPE, log=3, validate=100, save=100, recovery={**policy, "max_skipped_steps": most})
    with pytest.raises(TrainingError, match=rf"\b{most + 1}\b") as raised:
        recipe.make(tmp_path).fit()
    last = [2, 4, 5][most]
    assert raised.value.setting == "max_skipped_steps" and re.search(rf"\b{last}\b", str(raised.value))
    messages.check(raised.value)
    assert isinstance(raised.value.__cause__, ValueError) == (policy is PASS)
    assert [step for _, step, _ in lines_of(tmp_path)] == [2, 4, 5][: most + 1]
    box = black_box.newest_box(tmp_path / "blackbox")
    assert box is not None and box.note.step == last and box.has_batch and box.has_state == (policy is PASS)


def test_no_more_than_allowed_over_all_sessions(tmp_path: Path) -> None:
    fails(loss=[2, 4, 9])
    recipe = replace(RECIPE, save=1, recovery={**PASS, "max_skipped_steps": 2})
    recipe.make(tmp_path, StopAt(6)).fit()
    with pytest.raises(TrainingError, match=r"\b3\b.*\b9\b") as raised:
        recipe.make(tmp_path).fit()
    assert raised.value.setting == "max_skipped_steps"


@pytest.mark.parametrize(("how", "policy"), [("nan", SKIP), ("loss", PASS)])
@pytest.mark.parametrize("log", [1, 5])
def test_a_run_that_was_cut_skips_the_same(
    tmp_path: Path, how: str, policy: dict[str, Any], log: int
) -> None:
    """Cut after each step, before and after a skip, with flags that are not checked yet."""
    fails(**{how: [3, 4, 9]})
    recipe = replace(RECIPE, log=log, save=3, validate=4, recovery=policy)
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    expected = outcome(whole, tmp_path / "whole")
    assert [step for _, step, _ in lines_of(tmp_path / "whole")] == [3, 4, 9]
    for step in range(1, 14):
        folder = tmp_path / str(step)
        cut(recipe, folder, step, by_crash=step % 2 == log % 2)
        rest = recipe.make(folder)
        assert rest.fit() == "finished"
        assert_equal(outcome(rest, folder), expected)
        assert [step for _, step, _ in lines_of(folder)] == [3, 4, 9]


@pytest.mark.parametrize(("how", "policy"), [("nan", SKIP), ("nan", BACK), ("loss", PASS)])
def test_a_run_that_ended_by_it_goes_on_with_another_policy(
    tmp_path: Path, how: str, policy: dict[str, Any]
) -> None:
    """As if it had had that policy from its beginning."""
    fails(**{how: [6]})
    recipe = replace(RECIPE, save=4, log=3)
    with pytest.raises((TrainingError, ValueError)):
        recipe.make(tmp_path / "met").fit()
    mended = replace(recipe, recovery=policy)
    rest = mended.make(tmp_path / "met")
    assert rest.fit() == "finished"
    whole = mended.make(tmp_path / "whole")
    whole.fit()
    assert_equal(outcome(rest, tmp_path / "met"), outcome(whole, tmp_path / "whole"))


class HalfBadGan(Gan):
    """The loss of one of the two is not finite in step 2."""

    bad: ClassVar[str] = "d"

    def d_loss(self, batch: Any) -> Tensor:
        return super().d_loss(batch) * (math.nan if self.is_bad("d") else 1.0)

    def g_loss(self, batch: Any) -> Tensor:
        return super().g_loss(batch) * (math.nan if self.is_bad("g") else 1.0)

    def is_bad(self, name: str) -> bool:
        return self.bad == name and self.progress.step == 1


@pytest.mark.parametrize("bad", ["d", "g"])
def test_of_two_losses_one_may_be_bad(tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its optimizer does not move, the other one does; the step counts as skipped."""
    monkeypatch.setattr(HalfBadGan, "bad", bad)
    runner = built(HalfBadGan)
    optims = {name: torch.optim.SGD(getattr(runner, name).parameters(), lr=0.1) for name in "dg"}
    seen: list[Any] = []

    class Looks(Hook):
        def on_step(self, trainer: Trainer) -> None:
            seen.append({name: weights(getattr(runner, name)) for name in "dg"})

    hooks = [Looks(), Records(tmp_path, 3)]
    recovery = Recovery(on_non_finite="skip")
    plain(
        runner, Still(), hooks, stepper=Stepper(optims, guard=NonfiniteGuard(runner)), recovery=recovery
    ).fit()
    moved = {name: seen[0][name] != seen[1][name] for name in "dg"}
    assert moved == {"d": bad != "d", "g": bad != "g"}
    (row,) = rows_of_records(tmp_path)
    assert (
        row["train/skipped"] == 1.0
        and math.isfinite(row["train/d_loss"])
        and math.isfinite(row["train/g_loss"])
    )
    assert recovery.num_skipped == 1


def rows_of_records(folder: Path) -> list[dict[str, Any]]:
    return records.fold(folder).rows


class Selects(FailingMLP):
    """Records what it likes."""

    def update(self, stepper: Stepper, batches: Sequence[Any]) -> Mapping[str, Any]:
        return {"my_loss": super().update(stepper, batches)["loss"]}


def test_whatever_an_update_records_a_bad_step_is_left_out(tmp_path: Path) -> None:
    fails(nan=[2])
    replace(RECIPE, runner=Selects, log=3, validate=100, save=100, recovery=SKIP).make(tmp_path).fit()
    assert all(math.isfinite(row["train/my_loss"]) for row in rows_of(tmp_path))


def test_bad_steps_are_reported_at_the_end_without_records() -> None:
    fails(nan=[15, 22])
    runner = built(FailingMLP)
    recovery = Recovery(on_non_finite="skip")
    trainer = plain(
        runner,
        Still(),
        until=23,
        stepper=Stepper(torch.optim.SGD(runner.parameters(), lr=0.01), guard=NonfiniteGuard(runner)),
        recovery=recovery,
    )
    trainer.fit()
    assert recovery.num_skipped == 2


@pytest.mark.parametrize("policy", [SKIP, BACK, PASS])
def test_a_policy_needs_a_guard(policy: dict[str, Any], messages: Messages) -> None:
    trainer = plain(built(MLP), Still(), recovery=Recovery(**policy))
    with pytest.raises(ContractError, match=r"NonfiniteGuard") as refused:
        trainer.fit()
    assert refused.value.setting == next(iter(policy))
    messages.check(refused.value)


# --- rollback ---------------------------------------------------------------------------------------------


def never_met(recipe: Recipe, folder: Path, *steps: int) -> dict[str, Any]:
    """The outcome of a run that knows from its beginning which windows to pass over."""
    trainer = recipe.make(folder)
    trainer.recovery.rolled_back_steps = set(steps)
    before, Failing.plan = Failing.plan, {}
    assert trainer.fit() == "finished"
    Failing.plan = before
    return outcome(trainer, folder)


@pytest.mark.parametrize(
    ("bad", "options"),
    [
        ([5], {}),
        ([1], {}),  # there is nothing but the beginning
        ([4], {"save": 4, "log": 4}),  # at the step of a save
        ([5], {"save": 4, "log": 100}),  # seen by a save, not by a row
        ([5], {"save": ["3", "1ep"], "log": 7}),
        ([7], {"log": 3}),  # the short last window of an epoch
        ([8], {"save": "1ep"}),  # the first one of an epoch
        ([14], {"log": 3}),  # the last one of all
        ([4, 5], {"log": 7, "save": 100}),  # several in the time of one row
        ([3, 6, 12], {"save": 2, "log": 5}),
        ([6], {"unit": "epoch", "validate": 2}),
        ([7], {"unit": "validation", "validate": 2, "save": 3, "log": 8}),
        ([4], {"accumulation": 2, "log": 3}),  # the short last window
        ([3, 6], {"accumulation": 3, "log": 1, "until": "3ep"}),
        ([9], {"runner": FailingCNN, "dataset": Pictures}),
        ([9], {"workers": 2}),
        ([10], {"patience": 2, "validate": 2, "log": 4, "until": "3ep"}),
    ],
    ids=str,
)
def test_a_rollback_passes_over_the_window(tmp_path: Path, bad: list[int], options: dict[str, Any]) -> None:
    """All is as in a run that has never met it: weights, optimizer, schedule, rows, best list, patience."""
    fails(nan=bad[::2], grad=bad[1::2])
    recipe = replace(RECIPE, recovery=BACK, **options)
    expected = never_met(recipe, tmp_path / "never", *bad)
    trainer = recipe.make(tmp_path / "met")
    assert trainer.fit() == "finished"
    assert_equal(outcome(trainer, tmp_path / "met"), expected)
    assert lines_of(tmp_path / "met") == [(1, step, "rollback") for step in bad]
    assert trainer.recovery.rolled_back_steps == set(bad)


@pytest.mark.parametrize("recipe", [
    replace(RECIPE, recovery=BACK, save=3, log=5, validate=4),
    replace(RECIPE, recovery=BACK, save=100, log=2, validate=3, accumulation=2, until="4ep"),
], ids=["often", "never"])  # fmt: skip
def test_a_run_that_was_cut_anywhere_goes_back_the_same(tmp_path: Path, recipe: Recipe) -> None:
    """Before a rollback, after it, and behind the window; twice over."""
    fails(nan=[5, 8])
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    expected = outcome(whole, tmp_path / "whole")
    for first, second in [(n, n + 3) for n in range(1, whole.progress.step - 3)]:
        folder = tmp_path / f"{first} {second}"
        cut(recipe, folder, first, by_crash=first % 2 == 0)
        cut(recipe, folder, second, by_crash=first % 4 < 2)
        rest = recipe.make(folder)
        assert rest.fit() == "finished"
        assert_equal(outcome(rest, folder), expected)
        assert [step for _, step, _ in lines_of(folder)] == [5, 8]


class AtRollback(Hook):
    """Does something in the middle of the first rollback of its process."""

    def __init__(self, what: Any) -> None:
        self.what: Any = what

    def on_rollback(self, trainer: Trainer) -> None:
        what, self.what = self.what, None
        if what is not None:
            what(trainer)


def crash(trainer: Trainer) -> None:
    raise Crash


def test_a_crash_in_the_middle_of_a_rollback(tmp_path: Path) -> None:
    fails(nan=[6])
    recipe = replace(RECIPE, recovery=BACK, save=4, log=3)
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    with pytest.raises(Crash):
        recipe.make(tmp_path / "cut", AtRollback(crash)).fit()
    rest = recipe.make(tmp_path / "cut")
    assert rest.fit() == "finished"
    assert_equal(outcome(rest, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_a_stop_in_the_middle_of_a_rollback(tmp_path: Path) -> None:
    """Nothing is left to save; the session that goes on goes back itself."""
    fails(nan=[6])
    recipe = replace(RECIPE, recovery=BACK, save=4, log=3)
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    stopped = recipe.make(tmp_path / "cut", AtRollback(lambda trainer: trainer.request_stop("test")))
    assert stopped.fit() == "test"
    assert stopped.progress.step == 4 and steps_of(tmp_path / "cut")[-1] == 4
    rest = recipe.make(tmp_path / "cut")
    assert rest.fit() == "finished"
    assert_equal(outcome(rest, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))
    assert [step for _, step, _ in lines_of(tmp_path / "cut")] == [6]


def test_a_stop_whose_save_finds_a_bad_step(tmp_path: Path) -> None:
    fails(nan=[6])
    recipe = replace(RECIPE, recovery=BACK, save=4, log=100, validate=100)
    assert recipe.make(tmp_path, StopAt(6)).fit() == "test"
    assert steps_of(tmp_path)[-1] == 4
    rest = recipe.make(tmp_path)
    assert rest.fit() == "finished"
    assert rest.recovery.rolled_back_steps == {6}


def test_what_the_hooks_draw_while_it_goes_back_changes_nothing(tmp_path: Path) -> None:
    fails(nan=[6])
    recipe = replace(RECIPE, recovery=BACK, save=4, log=3)
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    draws = recipe.make(tmp_path / "draws", AtRollback(lambda trainer: torch.randn(3)))
    draws.fit()
    assert_equal(outcome(draws, tmp_path / "draws"), outcome(whole, tmp_path / "whole"))


class Sums(Hook):
    """Has no state before its first step is over."""

    phase = Phase.EVAL

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}

    def on_step(self, trainer: Trainer) -> None:
        self.seen.setdefault("steps", []).append(trainer.progress.step)

    def state_dict(self) -> dict[str, Any]:
        return self.seen

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = {name: list(steps) for name, steps in state.items()}


@pytest.mark.parametrize("save", [3, 100])
def test_hooks_go_back_too_also_to_no_state_at_all(tmp_path: Path, save: int) -> None:
    fails(nan=[5])
    hook = Sums()
    replace(RECIPE, recovery=BACK, save=save, log=2, validate=100).make(tmp_path, hook).fit()
    assert hook.seen == {"steps": list(range(1, 15))}


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_taken(tmp_path: Path) -> None:
    fails(nan=[8])
    recipe = replace(RECIPE, recovery=BACK, save=3, log=4, validate=100)

    def damage(trainer: Trainer) -> None:
        if trainer.progress.step == 7:
            trainer.checkpoints.wait()
            (path,) = (tmp_path / "met" / "Checkpoints" / "state_2.ckpt").glob("model.safetensors")
            path.write_bytes(path.read_bytes()[:-1] + b"\x7f")

    class Damages(Hook):
        def on_step(self, trainer: Trainer) -> None:
            if self.once:
                damage(trainer)
                self.once = trainer.progress.step != 7

        once = True

    expected = never_met(recipe, tmp_path / "never", 8)
    trainer = recipe.make(tmp_path / "met", Damages())
    assert trainer.fit() == "finished"
    assert_equal(outcome(trainer, tmp_path / "met"), expected)
    aside = [path.name for path in (tmp_path / "met" / "Checkpoints").glob("*.corrupt*")]
    assert len(aside) == 1 and aside[0].startswith("state_2")


def test_without_a_checkpoint_there_is_no_way_back(tmp_path: Path, messages: Messages) -> None:
    fails(nan=[2])
    runner = built(FailingMLP)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), guard=NonfiniteGuard(runner))
    trainer = plain(
        runner, Still(), [Records(tmp_path, 1)], stepper=stepper, recovery=Recovery(on_non_finite="rollback")
    )
    with pytest.raises(TrainingError, match="step 2") as raised:
        trainer.fit()
    assert raised.value.setting == "on_non_finite"
    messages.check(raised.value)


@pytest.mark.parametrize(
    "bad", [[3, 5, 6, 9], range(4, 100), range(1, 100)], ids=["four", "for ever", "at once"]
)
@pytest.mark.parametrize("log", [1, 20])
def test_three_times_and_no_more(tmp_path: Path, bad: Any, log: int, messages: Messages) -> None:
    fails(nan=bad)
    recipe = replace(RECIPE, recovery=BACK, save=2, log=log, validate=100)
    first, second, third, fourth = list(bad)[:4]
    text, said = rf"\bstep {fourth}\b.*\b3\b.*\b{first}, {second}, {third}\b", set()
    for _ in range(2):  # to go on gives the same
        with pytest.raises(TrainingError, match=text) as raised:
            recipe.make(tmp_path).fit()
        said.add(str(raised.value))
        assert raised.value.__context__ is None  # no traceback of how roost goes back
    (line,) = said
    messages.check(line)
    box = black_box.newest_box(tmp_path / "blackbox")
    assert box is not None and box.note.step == fourth and box.has_batch
    assert [step for _, step, _ in lines_of(tmp_path)] == [first, second, third]
    assert all(step < fourth for step in steps_of(tmp_path))


def test_a_sample_that_all_bad_steps_have_is_named(tmp_path: Path, messages: Messages) -> None:
    recipe = replace(RECIPE, recovery=BACK, save=2, log=1, validate=100, until="5ep")
    plan = recipe.make(tmp_path / "plan").loaders["train"].plan
    fails(
        nan=[
            epoch * plan.num_batches + batch + 1
            for epoch in range(4)
            for batch, draw in enumerate(plan.batches(epoch))
            if 17 in draw.indices
        ]
    )
    with pytest.raises(TrainingError, match="sample 17") as raised:
        recipe.make(tmp_path / "met").fit()
    messages.check(raised.value)


class Poisons(Hook):
    """Breaks the weights after step 3, whatever its window was; or only when a rollback has come by."""

    phase = Phase.MODEL

    def __init__(self, *, late: bool) -> None:
        self.late = late

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == 3 and not self.late:
            with torch.no_grad():
                next(trainer.runner.parameters()).mul_(math.nan)

    def on_rollback(self, trainer: Trainer) -> None:
        self.late = False


@pytest.mark.parametrize("late", [False, True])
def test_what_is_not_the_fault_of_a_window_is_not_tried_for_ever(
    tmp_path: Path, late: bool, messages: Messages
) -> None:
    fails(nan=[3] if late else [])
    recipe = replace(RECIPE, recovery=BACK, save=1, log=100, validate=100)
    with pytest.raises(TrainingError, match=r"\bstep 3\b.*\bstep 3\b") as raised:
        recipe.make(tmp_path, Poisons(late=late)).fit()
    messages.check(raised.value)
    assert steps_of(tmp_path)[-1] == 2


def test_a_bad_first_step_of_a_later_session(tmp_path: Path) -> None:
    fails(nan=[7])
    recipe = replace(RECIPE, recovery=BACK, save=100, log=3, validate=100)
    expected = never_met(recipe, tmp_path / "never", 7)
    assert recipe.make(tmp_path / "met", StopAt(6)).fit() == "test"
    rest = recipe.make(tmp_path / "met")
    assert rest.fit() == "finished"
    assert_equal(outcome(rest, tmp_path / "met"), expected)
    assert lines_of(tmp_path / "met") == [(2, 7, "rollback")]


@pytest.mark.parametrize("then", [SKIP, {}, PASS])
def test_what_was_passed_over_stays_so_when_the_policy_changes(tmp_path: Path, then: dict[str, Any]) -> None:
    """The checkpoint is from after the rollback and before the window."""
    fails(nan=[6])
    recipe = replace(RECIPE, recovery=BACK, save=2, log=6, validate=100)
    expected = never_met(recipe, tmp_path / "never", 6)

    class Stops(Hook):
        went_back = False

        def on_step(self, trainer: Trainer) -> None:
            if self.went_back and trainer.progress.step == 5:
                trainer.request_stop("test")

        def on_rollback(self, trainer: Trainer) -> None:
            self.went_back = True

    assert recipe.make(tmp_path / "met", Stops()).fit() == "test"
    assert steps_of(tmp_path / "met")[-1] == 5
    fails()
    rest = replace(recipe, recovery=then).make(tmp_path / "met")
    assert rest.fit() == "finished"
    assert_equal(outcome(rest, tmp_path / "met"), expected)
    assert lines_of(tmp_path / "met") == [(2, 6, "rollback")]


def test_errors_that_were_skipped_are_counted_once(tmp_path: Path) -> None:
    """Those between the checkpoint and the bad step are met again."""
    fails(loss=[5], nan=[6])
    recipe = replace(RECIPE, recovery={**BACK, **PASS, "max_skipped_steps": 1}, save=4, log=6)
    trainer = recipe.make(tmp_path)
    assert trainer.fit() == "finished"
    assert trainer.recovery.num_skipped == 1
    assert lines_of(tmp_path) == [(1, 5, "error"), (1, 6, "rollback")]


def test_an_error_that_does_not_come_again_was_not_skipped(tmp_path: Path) -> None:
    """The step in which it came was undone by a rollback, and taken."""
    fails(loss=[5], nan=[6])
    recipe = replace(RECIPE, recovery={**BACK, **PASS}, save=4, log=6)
    trainer = recipe.make(tmp_path, AtRollback(lambda trainer: fails(nan=[6])))
    assert trainer.fit() == "finished"
    assert trainer.recovery.num_skipped == 0
    assert lines_of(tmp_path) == [(1, 6, "rollback")]


def test_the_records_of_a_rollback_fold_and_no_row_is_seen_twice(tmp_path: Path) -> None:
    """A row that the run went back behind is gone for each reader: of all, of the newest, of what comes."""
    fails(nan=[9])
    path = tmp_path / "records" / "1.jsonl"
    newest = NewestMetrics(path)
    seen: list[tuple[int, str]] = []

    class Follows(Hook):
        phase = Phase.REPORT

        def on_step(self, trainer: Trainer) -> None:
            seen.append((trainer.progress.step, newest.text()))

        def on_rollback(self, trainer: Trainer) -> None:
            seen.append((-trainer.progress.step, newest.text()))

    runner = built(FailingMLP)
    plain(
        runner,
        Points(),
        [Records(tmp_path / "records", 2, session=1), Save(5), Validate(6), Follows()],
        until=14,
        stepper=Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), guard=NonfiniteGuard(runner)),
        loaders={"valid": loader(Points(), 8, shuffle=False)},
        checkpoints=Checkpoints(tmp_path / "Checkpoints"),
        recovery=Recovery(**BACK),
    ).fit()
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row.get("step", -row.get("start_step", 0)) for row in written] == [
        0, 2, 4, 6, 8, -5, 6, 8, 10, 12, 14,
    ]  # fmt: skip
    assert [row["step"] for row in records.read_tail(path)] == [2, 4, 6, 8, 10, 12, 14]
    columns = records.fold(tmp_path / "records")
    assert columns.series["valid/loss"][0] == [6, 12, 14]
    assert columns.perf["perf/forward_ms"][0] == [2, 4, 6, 8, 10, 12, 14]
    back = next(text for step, text in seen if step == -5)
    assert "valid/loss" not in back and "train/loss" not in back


def test_the_clock_counts_the_steps_that_were_taken_twice(tmp_path: Path) -> None:
    fails(nan=[9])
    trainer = replace(RECIPE, recovery=BACK, save=5, log=2, validate=100).make(tmp_path)
    trainer.fit()
    timing, progress = trainer.stepper.timing, trainer.progress
    assert timing.session_span(progress.step, progress.samples).steps == 14 + 10 - 5


# --- errors -----------------------------------------------------------------------------------------------


class Rotten(Points):
    """Some samples cannot be read."""

    def __init__(self, rotten: Sequence[int]) -> None:
        super().__init__()
        self.rotten = set(rotten)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index in self.rotten:
            raise OSError(f"sample {index} is rotten")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_sample_that_cannot_be_read(tmp_path: Path, workers: int, accumulation: int) -> None:
    """Its whole window is passed over, in each epoch; the rest is drawn as before, with any loader."""
    bad = [2, 5] if accumulation == 1 else [3]
    rotten = {samples_in(step, accumulation=accumulation)[-1] for step in bad}
    recipe = replace(
        RECIPE, log=3, save=2, accumulation=accumulation, workers=workers, recovery=PASS,
        dataset=lambda: Rotten([*rotten]),
    )  # fmt: skip
    trainer = replace(recipe, validate=100).make(tmp_path)
    trainer.loaders = {"train": trainer.loaders["train"], "valid": loader(Points(), 8, shuffle=False)}
    assert trainer.fit() == "finished"
    last = trainer.progress.step
    expected = [n for n in range(1, last + 1) if rotten & set(samples_in(n, accumulation=accumulation))]
    assert [step for _, step, _ in lines_of(tmp_path)] == expected and len(expected) >= 2 * len(rotten)
    skipped = skipped_steps.read(tmp_path / skipped_steps.NAME)
    assert [one.samples for one in skipped] == [samples_in(n, accumulation=accumulation) for n in expected]
    assert re.fullmatch(r"OSError: sample (\d+) is rotten; .*\bsample \1\b.*Rotten", skipped[0].error)
    assert trainer.progress.epoch == 2 and trainer.progress.samples == 52 - sum(
        len(one.samples) for one in skipped
    )


class Deadly(Points):
    """One sample kills the worker that reads it."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index, self.home = index, os.getpid()

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == self.index and os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_sample_that_kills_its_worker(tmp_path: Path, workers: int, accumulation: int) -> None:
    """Its window is passed over, and no other one, although the worker is many batches ahead."""
    deadly = samples_in(5 if accumulation == 1 else 2, accumulation=accumulation)[-1]
    recipe = replace(
        RECIPE, workers=workers, accumulation=accumulation, recovery=PASS, dataset=lambda: Deadly(deadly)
    )
    trainer = recipe.make(tmp_path)
    trainer.loaders = {"train": trainer.loaders["train"], "valid": loader(Points(), 8, shuffle=False)}
    assert trainer.fit() == "finished"
    last = trainer.progress.step
    expected = [n for n in range(1, last + 1) if deadly in samples_in(n, accumulation=accumulation)]
    assert [(step, kind) for _, step, kind in lines_of(tmp_path)] == [(n, "error") for n in expected]
    skipped = skipped_steps.read(tmp_path / skipped_steps.NAME)[0]
    assert re.search(rf"^WorkerDied: .*\bsample {deadly}\b", skipped.error)
    assert [re.findall(r"\bstep (\d+)\b", one) for one in trainer.inexact] == [[str(n)] for n in expected]


class Unmovable(FailingMLP):
    def to_device(self, batch: Any) -> Any:
        if self.training and self.fails("move", self.progress.step + 1):
            raise self.error()
        return super().to_device(batch)


def test_a_batch_that_cannot_be_moved(tmp_path: Path) -> None:
    fails(move=[2, 7])
    trainer = replace(RECIPE, runner=Unmovable, recovery=PASS).make(tmp_path)
    assert trainer.fit() == "finished"
    assert lines_of(tmp_path) == [(1, 2, "error"), (1, 7, "error")]
    assert trainer.progress.samples == 52 - 4 - 2


ERRORS = [ValueError, torch.OutOfMemoryError, ZeroDivisionError, StopIteration, AssertionError]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("how", ["loss", "backward", "before"])
def test_any_error_of_a_step_may_be_skipped(tmp_path: Path, how: str, error: type[Exception]) -> None:
    fails(**{how: [3]}, error=error)
    trainer = replace(RECIPE, recovery=PASS).make(tmp_path)
    assert trainer.fit() == "finished"
    (skipped,) = skipped_steps.read(tmp_path / skipped_steps.NAME)
    assert skipped == skipped_steps.SkippedStep(
        session=1,
        step=3,
        epoch=0,
        batch=2,
        kind="error",
        error=f"{error.__name__}: no good",
        samples=samples_in(3),
    )
    assert bool(trainer.inexact) == (error is torch.OutOfMemoryError)


@pytest.mark.parametrize(
    ("error", "by_the_machine"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), True),
        (RuntimeError("DataLoader worker (pid(s) 7, 8) exited"), True),
        (WorkerDied("loader worker 1 (pid 7) was killed from outside"), True),
        (ValueError("Caught ValueError in DataLoader worker process 0."), False),
    ],
)
def test_what_the_machine_did_to_a_step_is_inexact(
    tmp_path: Path, error: Exception, by_the_machine: bool, messages: Messages
) -> None:
    fails(loss=[3], error=lambda _: error)
    trainer = replace(RECIPE, recovery=PASS).make(tmp_path)
    assert trainer.fit() == "finished"
    assert len(trainer.inexact) == by_the_machine
    for one in trainer.inexact:
        assert "step 3" in one
        messages.check(one)


@pytest.mark.parametrize("how", ["loss", "backward"])
@pytest.mark.parametrize("chained", [False, True])
def test_the_memory_of_a_failed_step_is_free_before_the_next(tmp_path: Path, how: str, chained: bool) -> None:
    """Also where the person's code has caught the error and raised another one, and keeps the first."""
    alive: list[weakref.ref[Tensor]] = []
    found: list[int] = []

    class Large(FailingMLP):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            found.append(sum(ref() is not None for ref in alive))
            hidden = self.net(batch[0])
            alive.append(weakref.ref(hidden))
            try:
                return self.deeper(batch, hidden)
            except torch.OutOfMemoryError as error:
                if chained:
                    raise RuntimeError("worse") from error
                raise

        def deeper(self, batch: Any, hidden: Tensor) -> Mapping[str, Tensor]:
            inner = hidden * 2
            alive.append(weakref.ref(inner))
            try:
                values = super().loss(batch)
            except torch.OutOfMemoryError as error:
                kept = [error]  # a cycle, which only the garbage collector would end
                assert kept
                raise
            return {**values, "loss": values["loss"] + inner.sum() * 0}

    fails(**{how: [3, 4]}, error=torch.OutOfMemoryError)
    trainer = replace(RECIPE, runner=Large, recovery=PASS, until=6, validate=100).make(tmp_path)
    gc_was = gc.isenabled()
    gc.disable()
    try:
        trainer.fit()
    finally:
        if gc_was:
            gc.enable()
    assert found == [0] * 6
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in trainer.runner.parameters())


@pytest.mark.parametrize("error", [TrainingError, ContractError])
def test_what_roost_has_to_say_is_never_skipped(tmp_path: Path, error: type[Exception]) -> None:
    fails(loss=[3], error=error)
    with pytest.raises(error, match="no good"):
        replace(RECIPE, recovery=PASS).make(tmp_path).fit()
    assert lines_of(tmp_path) == []


@pytest.mark.skipif(not hasattr(torch, "AcceleratorError"), reason="this torch has no such error")
def test_a_device_that_is_lost_ends_the_run(tmp_path: Path, messages: Messages) -> None:
    fails(loss=[3], error=torch.AcceleratorError)
    with pytest.raises(torch.AcceleratorError, match="no good") as raised:
        replace(RECIPE, recovery=PASS).make(tmp_path).fit()
    messages.check(raised.value.__notes__[0])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_who_ends_the_process_ends_it(tmp_path: Path, error: Any) -> None:
    fails(loss=[3], error=error)
    with pytest.raises(error):
        replace(RECIPE, recovery=PASS).make(tmp_path).fit()
    assert lines_of(tmp_path) == [] and black_box.newest_box(tmp_path / "blackbox") is None


class LateGan(Gan):
    """Fails when one of its optimizers has moved."""

    def g_loss(self, batch: Any) -> Tensor:
        if self.progress.step == 2:
            raise ValueError("no good")
        return super().g_loss(batch)


def test_a_step_in_which_an_optimizer_has_moved_is_not_skipped(tmp_path: Path, messages: Messages) -> None:
    runner = built(LateGan)
    optims = {name: torch.optim.SGD(getattr(runner, name).parameters(), lr=0.1) for name in "dg"}
    log = tmp_path / skipped_steps.NAME
    trainer = plain(
        runner,
        Still(),
        stepper=Stepper(optims, guard=NonfiniteGuard(runner, checks_step=False)),
        recovery=Recovery(**PASS, log=log),
    )
    with pytest.raises(ValueError, match="no good") as raised:
        trainer.fit()
    messages.check(raised.value.__notes__[0])
    assert skipped_steps.read(log) == []


@pytest.mark.parametrize("recovery", [{}, PASS])
def test_an_error_that_ends_the_run_is_as_it_was(tmp_path: Path, recovery: dict[str, Any]) -> None:
    """The person's own frames are in its traceback, and the black box holds the step's begin."""
    fails(loss=[3], error=ContractError if recovery else ValueError)
    trainer = replace(RECIPE, recovery=recovery, save=2).make(tmp_path)
    with pytest.raises((ValueError, ContractError), match="no good") as raised:
        trainer.fit()
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "loss"
    assert raised.value.__cause__ is None
    assert hasattr(raised.value, "__notes__") != bool(recovery), "a mistake has no step"
    box = black_box.newest_box(tmp_path / "blackbox")
    assert box is not None and box.has_state and box.has_batch
    assert (box.note.step, box.note.kind, box.note.samples) == (3, "error", samples_in(3))


def test_buffers_are_kept_from_the_very_step_that_failed(tmp_path: Path) -> None:
    """An error before anything was kept in a step must not bring back those of the step before."""
    fails(before=[3])
    runner = built(FailingCNN)
    trainer = plain(
        runner,
        Pictures(),
        until=3,
        stepper=Stepper(
            torch.optim.SGD(runner.parameters(), lr=0.1), guard=NonfiniteGuard(runner, checks_step=False)
        ),
        recovery=Recovery(**PASS),
    )
    trainer.fit()
    assert int(runner.get_submodule("net.1").num_batches_tracked) == 2


def test_in_fp16_a_step_that_failed_after_unscaling_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = built(MLP)
    optim = Optim(torch.optim.SGD(runner.parameters(), lr=0.1), max_grad_norm=1.0)
    clip = Optim.clip

    def fails_once(self: Optim) -> Tensor:
        if trainer.progress.step == 1:
            raise torch.OutOfMemoryError("no good")
        return clip(self)

    monkeypatch.setattr(Optim, "clip", fails_once)
    recovery = Recovery(**PASS)
    trainer = plain(
        runner,
        Still(),
        until=4,
        stepper=Stepper(optim, precision="fp16", guard=NonfiniteGuard(runner, checks_step=False)),
        recovery=recovery,
    )
    trainer.fit()
    assert recovery.num_skipped == 1


def test_a_full_disk_does_not_end_a_run_that_skips(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails(loss=[2], nan=[4])

    def full(operation: str, path: str) -> None:
        if skipped_steps.NAME in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    durable.fault = full
    try:
        trainer = replace(RECIPE, recovery={**BACK, **PASS}, log=3).make(tmp_path)
        assert trainer.fit() == "finished"
    finally:
        durable.fault = None
    assert trainer.recovery.num_skipped == 1
    assert re.search(r"skipped\.jsonl.*\[Errno 28\] No space left on device", capsys.readouterr().out)


def finds_nothing(samples: list[Any]) -> Any:
    return None


def cannot_read(samples: list[Any]) -> Any:
    raise ValueError("damaged")


@pytest.mark.parametrize(
    ("collate", "said"),
    [
        (finds_nothing, None),
        (cannot_read, rf"\b{STEPS_PER_EPOCH}\b.*ValueError: damaged"),
    ],
)
def test_a_whole_epoch_without_a_sample_is_an_error(
    tmp_path: Path, collate: Any, said: str | None, messages: Messages
) -> None:
    trainer = replace(RECIPE, recovery=PASS).make(tmp_path)
    trainer.loaders["train"] = loader(Still(), collate=collate)
    with pytest.raises(TrainingError, match=said) as raised:
        trainer.fit()
    messages.check(raised.value)
    assert trainer.progress.step == STEPS_PER_EPOCH - 1
