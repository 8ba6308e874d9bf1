from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import roost
from roost.base import durable
from roost.base.errors import ConfigError, ContractError, TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.live_progress import ProgressFile, read
from roost.train import trainer as trainer_module
from roost.train.accelerators.registry import accelerator_of
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.hook import Hook, Phase
from roost.train.hooks import Best, Console, Records, Save, Test, Validate
from roost.train.hooks.best_checkpoint import Rule
from roost.train.optim.optimizer import Optim
from roost.train.reporting.progress_publisher import ProgressPublisher
from roost.train.step import seeding
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import (
    CNN,
    MLP,
    STEPS_PER_EPOCH,
    Crash,
    CrashAt,
    Gan,
    Pictures,
    Points,
    Recipe,
    Steps,
    Still,
    StopAt,
    assert_equal,
    bits,
    built,
    loader,
    outcome,
    plain,
    rows_of,
    state_of,
    weights,
)
from tests.waiting import wait_for

# --- against a loop written by hand -----------------------------------------------------------------------


def batches(
    dataset: TensorDataset | Still, epochs: int, batch_size: int = 4
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of `parts.loader`, indexed by hand."""
    plan = BatchPlan(len(dataset), batch_size, seed=3)
    x, y = dataset.tensors if isinstance(dataset, TensorDataset) else (dataset.x, dataset.y)
    for epoch in range(epochs):
        for indices, _ in plan.batches(epoch):
            yield x[indices], y[indices]


def seeded_as_a_trainer() -> None:
    seeding.seed_all(seeding.mix(3, "train"))


@pytest.mark.parametrize("dataset", [Still(), TensorDataset(Still().x, Still().y)], ids=["samples", "arrays"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_equals_a_loop_by_hand(name: str, dataset: Any) -> None:
    def optimizer(module: nn.Module) -> torch.optim.Optimizer:
        if name == "SGD":
            return torch.optim.SGD(
                module.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3
            )
        return torch.optim.AdamW(module.parameters(), lr=0.01)

    by_hand = built(MLP)
    chosen = optimizer(by_hand)
    seeded_as_a_trainer()
    for x, y in batches(dataset, epochs=2):
        chosen.zero_grad()
        nn.functional.cross_entropy(by_hand.net(x), y).backward()
        chosen.step()

    ours = built(MLP)
    stepper = Stepper(optimizer(ours))
    assert plain(ours, dataset, until="2ep", stepper=stepper).fit() == "finished"
    assert weights(ours) == weights(by_hand)
    assert bits(stepper.optimizers["main"].optimizer.state_dict()) == bits(chosen.state_dict())


def test_clipping_and_warm_up_equal_a_loop_by_hand(tmp_path: Path) -> None:
    def parts(module: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.25, total_iters=3)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=11)
        return optimizer, torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], [3])

    dataset = Still()
    by_hand = built(MLP)
    optimizer, scheduler = parts(by_hand)
    seeded_as_a_trainer()
    norms, rates = [], []
    for x, y in batches(dataset, epochs=2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(by_hand.net(x), y).backward()
        norms.append(float(nn.utils.clip_grad_norm_(by_hand.parameters(), 0.3)))
        optimizer.step()
        rates.append(optimizer.param_groups[0]["lr"])
        scheduler.step()

    ours = built(MLP)
    optim = Optim(*parts(ours), max_grad_norm=0.3)
    hooks = [roost.train.hooks.Schedule(), Records(tmp_path, 1)]
    plain(ours, dataset, hooks, until="2ep", stepper=Stepper(optim)).fit()
    assert weights(ours) == weights(by_hand)
    rows = [json.loads(line) for line in (tmp_path / "1.jsonl").read_text().splitlines()[1:]]
    assert [row["train/grad_norm"] for row in rows] == norms
    assert [row["lr"] for row in rows] == rates


class Weighted(roost.Runner):
    """A loss that weighs its samples, in float64."""

    def build(self) -> None:
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        x, weight = batch
        losses = (self.net(x).squeeze(1) - x.sum(1)).square()
        return {"loss": (losses * weight).sum() / weight.sum(), "weight": weight.sum()}


def test_the_device_of_the_runner_is_the_current_one_and_may_be_inexact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a loop without a worker, too: checkpoints hold the generator of the current device."""
    cpu, found = accelerator_of("cpu"), []
    monkeypatch.setattr(cpu, "set_current", found.append)
    monkeypatch.setattr(cpu, "inexact_reasons", lambda module: [f"the {type(module).__name__}"])
    trainer = plain(built(MLP), Still(), until=2)
    trainer.fit()
    assert found == [torch.device("cpu")] and trainer.inexact == ["the MLP"]


def test_accumulation_equals_one_big_batch() -> None:
    """Windows of 3 micro-batches; the epoch ends with one of 1 micro-batch with 2 samples."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(26, 6, generator=generator, dtype=torch.float64)
    data = TensorDataset(x, torch.rand(26, generator=generator, dtype=torch.float64) + 0.1)

    by_hand = built(Weighted)
    optimizer = torch.optim.SGD(by_hand.parameters(), lr=0.05, momentum=0.9)
    order = BatchPlan(26, 4, seed=3)
    for epoch in range(2):
        small = [draw.indices for draw in order.batches(epoch)]
        for first in range(0, len(small), 3):
            indices = list(itertools.chain(*small[first : first + 3]))
            optimizer.zero_grad()
            by_hand.loss([tensor[indices] for tensor in data.tensors])["loss"].backward()
            optimizer.step()

    ours = built(Weighted)
    stepper = Stepper(torch.optim.SGD(ours.parameters(), lr=0.05, momentum=0.9), accumulation=3)
    trainer = plain(ours, data, until="2ep", stepper=stepper)
    trainer.fit()
    assert trainer.progress.step == 6
    for one, other in zip(ours.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_gan_equals_a_loop_by_hand() -> None:
    def optimizers(gan: Gan) -> dict[str, torch.optim.Optimizer]:
        return {
            "d": torch.optim.Adam(gan.d.parameters(), lr=0.01),
            "g": torch.optim.Adam(gan.g.parameters(), lr=0.02),
        }

    dataset = Still()
    by_hand = built(Gan)
    chosen = optimizers(by_hand)
    seeded_as_a_trainer()
    for batch in batches(dataset, epochs=2):
        for name, loss in (("d", by_hand.d_loss), ("g", by_hand.g_loss)):
            chosen[name].zero_grad()
            loss(batch).backward()
            chosen[name].step()

    ours = built(Gan)
    trainer = plain(ours, dataset, until="2ep", stepper=Stepper(optimizers(ours)))
    trainer.fit()
    assert weights(ours) == weights(by_hand)
    assert trainer.events.row().keys() == {"d_loss", "g_loss"}


# --- exact resume -----------------------------------------------------------------------------------------

LAST = 2 * STEPS_PER_EPOCH

RECIPES = {
    "mlp": Recipe(),
    "cnn": Recipe(runner=CNN, dataset=Pictures, validate="1ep", save="3", log="3", unit="epoch"),
    # Every hook of ours and of others around a validation that comes at the epochs' edges too.
    "watched": Recipe(
        validate=["3", "1ep"],
        save=["1ep", "5"],
        unit="epoch",
        hooks=[
            lambda: Steps(Phase.MODEL, "3", name="model"),
            lambda: Steps(Phase.EVAL, None, name="each"),
            lambda: Steps(Phase.EVAL, ["3", "1ep"], name="before"),
            lambda: Steps(Phase.DECIDE, "1ep", name="after"),
        ],
    ),
    "accumulating": Recipe(accumulation=3, until="4ep", validate="2", save="3"),
    "by validation": Recipe(unit="validation", patience=2, until="3ep"),
}


@pytest.fixture(scope="module", params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return RECIPES[request.param]


@pytest.fixture(scope="module")
def straight(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, Any]]:
    """Steps and outcome of the run without interruption."""
    folder = tmp_path_factory.mktemp("straight")
    trainer = recipe.make(folder)
    assert trainer.fit() == "finished"
    return trainer.progress.step, outcome(trainer, folder)


def test_twice_is_the_same(recipe: Recipe, straight: tuple[int, dict[str, Any]], tmp_path: Path) -> None:
    trainer = recipe.make(tmp_path)
    trainer.fit()
    assert_equal(outcome(trainer, tmp_path), straight[1])


@pytest.mark.parametrize(
    ("recipe", "phase"),
    [*((name, Phase.MODEL) for name in RECIPES), ("mlp", Phase.REPORT), ("accumulating", Phase.REPORT)],
    indirect=["recipe"],
)
def test_stopped_at_any_step_it_goes_on_exactly(
    recipe: Recipe, straight: tuple[int, dict[str, Any]], phase: Phase, tmp_path: Path
) -> None:
    """A stop in phase MODEL drops the validation of that step, which the next session then does first."""
    steps, wanted = straight
    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        first = recipe.make(folder, StopAt(step, phase))
        reason = first.fit()
        # A stop in the last step stops nothing, unless it has cut a validation.
        assert (
            reason == "finished" if first.progress.step == steps and not first.has_unfinished_step else "test"
        ), step
        second = recipe.make(folder)
        assert second.fit() == "finished", step
        assert_equal(outcome(second, folder), wanted)


@pytest.mark.parametrize(
    ("recipe", "phase"), [("mlp", Phase.REPORT), ("watched", Phase.MODEL)], indirect=["recipe"]
)
def test_crashed_at_any_step_it_goes_on_exactly(
    recipe: Recipe, straight: tuple[int, dict[str, Any]], phase: Phase, tmp_path: Path
) -> None:
    steps, wanted = straight
    for step in range(1, steps + 1):
        folder = tmp_path / str(step)
        with pytest.raises(Crash):
            recipe.make(folder, CrashAt(step, phase)).fit()
        second = recipe.make(folder)
        assert second.fit() == "finished", step
        assert_equal(outcome(second, folder), wanted)


@pytest.mark.parametrize("stops", [(1, 2, 3), (3, 6, 7), (6, 7, 8), (2, 9, 14)])
def test_many_legs(
    recipe: Recipe, straight: tuple[int, dict[str, Any]], stops: tuple[int, ...], tmp_path: Path
) -> None:
    for number, step in enumerate(stops):
        recipe.make(tmp_path, StopAt(step, Phase.MODEL if number % 2 else Phase.REPORT)).fit()
    last = recipe.make(tmp_path)
    assert last.fit() == "finished"
    assert_equal(outcome(last, tmp_path), straight[1])


def test_other_workers_in_each_leg(tmp_path: Path) -> None:
    recipe = RECIPES["mlp"]
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    folder = tmp_path / "legs"
    recipe.make(folder, StopAt(5), workers=0).fit()
    recipe.make(folder, StopAt(9, Phase.MODEL), workers=2).fit()
    last = recipe.make(folder, workers=0)
    last.fit()
    assert_equal(outcome(last, folder), outcome(whole, tmp_path / "whole"))


class StopsInValidation(MLP):
    """Asks for a stop in the middle of the validation of one step."""

    at: int

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        if self.progress.step == self.at:  # in the first of several batches
            assert self._trainer is not None
            self._trainer.request_stop("test")
        return super().evaluate(batch)


class Asks(Hook):
    """Makes requests in one step, before the validation."""

    phase = Phase.SCHEDULE

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == self.step:
            trainer.request_validate()
            trainer.request_save(hold=True)


@pytest.mark.parametrize("step", [5, STEPS_PER_EPOCH, LAST - 1, LAST])
def test_requests_that_were_open_at_a_cut_are_served_by_the_next_session(step: int, tmp_path: Path) -> None:
    asking = Recipe(hooks=[lambda: Asks(step)])
    whole = asking.make(tmp_path / "whole")
    whole.fit()
    folder = tmp_path / "cut"
    cut = asking.make(folder, StopAt(step, Phase.MODEL))
    assert cut.fit() == "test"
    assert cut.agenda.pending == "Validate"
    again = asking.make(folder, StopAt(step, Phase.MODEL))
    again.request_stop("at once")
    assert again.fit() == "at once", "a second stop cuts it again"
    last = asking.make(folder)
    assert last.fit() == "finished"
    assert_equal(outcome(last, folder), outcome(whole, tmp_path / "whole"))
    held = [info.step for info in checkpoint.read_manifests(folder / "Checkpoints") if info.held]
    assert held[-1] == step


@pytest.mark.parametrize("step", [3, LAST])
def test_a_stop_in_the_middle_of_a_validation(step: int, tmp_path: Path) -> None:
    recipe = Recipe(runner=StopsInValidation)
    StopsInValidation.at = step
    assert recipe.make(tmp_path / "cut").fit() == "test"
    assert [row["step"] for row in rows_of(tmp_path / "cut") if "valid/loss" in row] == list(
        range(3, step, 3)
    )
    StopsInValidation.at = -1
    last = recipe.make(tmp_path / "cut")
    assert last.fit() == "finished"
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    assert_equal(outcome(last, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_what_was_pending_is_done_once_and_saved_without_a_save_hook(tmp_path: Path) -> None:
    """Also when nothing else saves: the checkpoint must not stay "pending" for ever."""

    def make(*hooks: Hook) -> Trainer:
        loaders = {"valid": loader(Still(), 8, shuffle=False)}
        checkpoints = Checkpoints(tmp_path / "Checkpoints")
        return plain(
            built(MLP), Still(), [*hooks, Validate("2")], until=2, loaders=loaders, checkpoints=checkpoints
        )

    assert make(StopAt(2, Phase.MODEL)).fit() == "test"
    steps = Steps()
    assert make(steps).fit() == "finished"
    assert steps.evals == [2]
    steps = Steps()
    assert make(steps).fit() == "finished"
    assert steps.evals == [2], "restored, not called again"


def test_the_checkpoint_of_a_pending_step_is_not_pending_any_more(tmp_path: Path) -> None:
    """Once a later session has done what was cut, the one after it must not do it again."""
    steps = [lambda: Steps(Phase.EVAL, "100")]
    Recipe(hooks=steps).make(tmp_path, StopAt(LAST, Phase.MODEL)).fit()
    second = Recipe(hooks=steps).make(tmp_path)
    second.fit()
    wanted, ids = outcome(second, tmp_path), checkpoint.ids(tmp_path / "Checkpoints")
    third = Recipe(hooks=steps).make(tmp_path)
    assert third.fit() == "finished"
    assert_equal(outcome(third, tmp_path), wanted)
    assert checkpoint.ids(tmp_path / "Checkpoints") == ids


def test_a_validation_that_came_by_the_clock_is_pending_too(tmp_path: Path) -> None:
    """Every nanosecond: it is due at once after each step, and after a restart as well."""
    recipe = Recipe(validate="0.000000001s")
    assert recipe.make(tmp_path, StopAt(5, Phase.MODEL)).fit() == "test"
    steps = Steps()
    second = recipe.make(tmp_path, StopAt(6), steps)
    second.fit()
    assert steps.evals == [5, 6]


def test_evaluation_mode_of_a_part_is_kept(tmp_path: Path) -> None:
    """Freezing batch norm by `eval()` in the middle of a run is state like any other."""

    class Freezes(Hook):
        phase = Phase.MODEL

        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step == 2:
                trainer.runner.net[1].eval()

    recipe = Recipe(runner=CNN, dataset=Pictures, hooks=[Freezes])
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    recipe.make(tmp_path / "cut", StopAt(5)).fit()
    last = recipe.make(tmp_path / "cut")
    last.fit()
    assert_equal(outcome(last, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_how_far_it_is_is_known_from_the_first_step_on(tmp_path: Path) -> None:
    """`Runner.progress.fraction` may be part of a loss."""

    class Anneals(MLP):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            values = super().loss(batch)
            return {"loss": values["loss"] * (1 - self.progress.fraction)}

    recipe = Recipe(runner=Anneals)
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    recipe.make(tmp_path / "cut", StopAt(5)).fit()
    last = recipe.make(tmp_path / "cut")
    last.fit()
    assert_equal(outcome(last, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


def test_a_run_that_was_cut_before_its_first_step_begins_at_the_beginning(tmp_path: Path) -> None:
    recipe = RECIPES["mlp"]
    first = recipe.make(tmp_path)
    first.request_stop("early")
    assert first.fit() == "early"
    assert checkpoint.ids(tmp_path / "Checkpoints") == []
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    second = recipe.make(tmp_path)
    second.fit()
    assert_equal(outcome(second, tmp_path), outcome(whole, tmp_path / "whole"))


class Pauses(Hook):
    """Sleeps before the first step that it sees."""

    phase = Phase.SCHEDULE

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def before_step(self, trainer: Trainer) -> None:
        time.sleep(self.seconds)
        self.seconds = 0.0


def test_the_time_of_earlier_sessions_counts(tmp_path: Path) -> None:
    recipe = Recipe(save="1")
    first = recipe.make(tmp_path, Pauses(0.5), StopAt(5))
    first.fit()
    second = recipe.make(tmp_path)
    second.fit()
    assert second.progress.seconds >= first.progress.seconds >= 0.5


def test_a_chosen_checkpoint_and_none(tmp_path: Path) -> None:
    recipe = Recipe(save="1")
    recipe.make(tmp_path, StopAt(5)).fit()
    before = Recipe(save="1").make(tmp_path)
    first = checkpoint.read_manifests(tmp_path / "Checkpoints")[0]
    before.fit(checkpoint=first.id)
    assert before.checkpoints is not None and before.checkpoints.newest is not None
    lines = [info.line for info in checkpoint.read_manifests(tmp_path / "Checkpoints") if info.step == LAST]
    assert lines[-1][0] == (0, first.id)
    afresh = Steps()
    recipe.make(tmp_path, afresh).fit(resume=False)
    assert afresh.steps == list(range(1, LAST + 1))


def test_a_finished_run_stays_finished(recipe: Recipe, tmp_path: Path) -> None:
    first = recipe.make(tmp_path)
    first.fit()
    wanted = outcome(first, tmp_path)
    ids = checkpoint.ids(tmp_path / "Checkpoints")
    second = recipe.make(tmp_path)
    assert second.fit() == "finished"
    assert_equal(outcome(second, tmp_path), wanted)
    assert checkpoint.ids(tmp_path / "Checkpoints") == ids


# --- saving -----------------------------------------------------------------------------------------------


class StopsInLoss(MLP):
    """Asks for a stop while step 5 is being computed, as a signal does."""

    finished = False

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        if self.progress.step == 4:
            assert self._trainer is not None
            self._trainer.request_stop("test", finished=self.finished)
        return super().loss(batch)


@pytest.fixture
def nothing_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer looks around for a hook or at its end alone, not also because time has passed."""
    monkeypatch.setattr(trainer_module, "_MIN_PUBLISH_SECONDS", 1e9)


def test_a_step_at_which_nothing_is_due_only_trains(nothing_by_the_clock: None) -> None:
    """The alarm is set again after each work: else every step would publish and go through all hooks."""
    hook = Steps(every="4")
    trainer = plain(built(MLP), Still(), [hook], until=9)
    looked: list[int] = []
    trainer.publish = lambda phase: looked.append(trainer.progress.step)  # type: ignore[method-assign]
    assert trainer.fit() == "finished"
    assert looked == [0, 4, STEPS_PER_EPOCH, 8, 9, 9], "at the start, when a call is due, at the end"
    assert (hook.steps, hook.epochs) == ([4, 8, 9], [STEPS_PER_EPOCH])


def test_work_that_is_due_by_the_clock_alone_comes_with_the_first_step_after(
    nothing_by_the_clock: None,
) -> None:
    now = 0.0

    class TakesASecond(MLP):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            nonlocal now
            now += 1.0
            return super().loss(batch)

    hook = Steps(every="2.5s")
    trainer = plain(built(TakesASecond), Still(), [hook], until=10)
    trainer.clock = lambda: now
    assert trainer.fit() == "finished"
    assert hook.steps == [3, 6, 9, 10], "and with the last step, as everything"


def test_a_checkpoint_holds_the_metrics_of_its_own_step_alone(
    tmp_path: Path, nothing_by_the_clock: None
) -> None:
    """Validated at step 4, stopped at step 5, where no hook is due."""
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    trainer = plain(
        built(StopsInLoss),
        Still(),
        [Validate("4"), Records(tmp_path / "records", "100"), Console()],
        until=9,
        loaders=loaders,
        checkpoints=Checkpoints(tmp_path / "Checkpoints"),
    )
    assert trainer.fit() == "test"
    (info,) = checkpoint.read_manifests(tmp_path / "Checkpoints")
    assert (info.step, info.reason, info.metrics) == (5, "signal", {})


@pytest.fixture
def no_space() -> Iterator[Callable[[bool], None]]:
    """Fills the disk for what the durable module writes below a checkpoint, and frees it."""

    def fail(operation: str, path: str) -> None:
        if operation == "write" and ".ckpt" in path:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def fill(full: bool) -> None:
        durable.fault = fail if full else None

    yield fill
    durable.fault = None


class Fills(Hook):
    """Fills the disk from one step on to another."""

    phase = Phase.MODEL

    def __init__(self, fill: Callable[[bool], None], first: int, last: int) -> None:
        self.fill, self.first, self.last = fill, first, last

    def on_step(self, trainer: Trainer) -> None:
        assert trainer.checkpoints is not None
        trainer.checkpoints.wait()  # what was begun meets the disk of its own step
        self.fill(self.first <= trainer.progress.step <= self.last)


def test_a_full_disk_is_said_and_training_goes_on(
    no_space: Callable[[bool], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Recipe(save="2", validate="100", until=6)
    trainer = recipe.make(tmp_path, Fills(no_space, 4, 5))
    assert trainer.fit() == "finished"
    assert [info.step for info in checkpoint.read_manifests(tmp_path / "Checkpoints")] == [2, 6]
    said = capsys.readouterr().out
    assert said.count("No space left on device") == 1
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    ours, theirs = state_of(trainer), state_of(whole)
    assert_equal(
        {n: ours[n] for n in ("model", "optimizers", "rank-0")},
        {n: theirs[n] for n in ("model", "optimizers", "rank-0")},
    )


def test_a_disk_that_is_full_at_the_end_is_an_error(no_space: Callable[[bool], None], tmp_path: Path) -> None:
    recipe = Recipe(save="2", validate="100", until=6)
    with pytest.raises(TrainingError, match=r"No space left.*`roost continue`"):
        recipe.make(tmp_path, Fills(no_space, 3, 6)).fit()
    no_space(False)
    (info,) = checkpoint.read_manifests(tmp_path / "Checkpoints")
    assert info.step == 2
    checkpoint.verify(checkpoint.checkpoint_folder(tmp_path / "Checkpoints", info.id))
    again = recipe.make(tmp_path)
    assert again.fit() == "finished"
    whole = recipe.make(tmp_path / "whole")
    whole.fit()
    assert_equal(outcome(again, tmp_path), outcome(whole, tmp_path / "whole"))


class Diverges(MLP):
    """Its loss is NaN from step 6 on, and so are its weights."""

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        values = dict(super().loss(batch))
        if self.progress.step >= 5:
            values["loss"] = values["loss"] * float("nan")
        return values


@pytest.mark.parametrize(("log", "save", "newest_step"), [("6", "6", 4), ("1", "1", 5), ("100", "3", 4)])
def test_a_nan_loss_ends_the_run_and_saves_nothing(
    log: str, save: str, newest_step: int, tmp_path: Path
) -> None:
    """Whatever comes first, a row or a save, finds it; what was saved before stays the newest."""
    recipe = Recipe(runner=Diverges, log=log, save=["2", save], validate="100")
    trainer = recipe.make(tmp_path)
    with pytest.raises(TrainingError):
        trainer.fit()
    newest = checkpoint.read_manifests(tmp_path / "Checkpoints")[-1]
    assert newest.step == newest_step
    _, states = checkpoint.read(checkpoint.checkpoint_folder(tmp_path / "Checkpoints", newest.id))
    assert all(tensor.isfinite().all() for tensor in states["model"]["state"].values())


def test_the_row_of_a_nan_is_written(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"train/loss\b.*\bnan\b.*\bstep 6\b"):
        Recipe(runner=Diverges, log="3", validate="100").make(tmp_path).fit()
    last = json.loads((tmp_path / "records" / "1.jsonl").read_text().splitlines()[-1])
    assert (last["step"], last["train/loss"]) == (6, None)
    assert last["nonfinite"]["train/loss"] == "nan"


def test_a_metric_that_is_nan_loses_no_checkpoint(tmp_path: Path) -> None:
    class Undefined(MLP):
        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            return {**super().evaluate(batch), "precision": torch.tensor(float("nan"))}

    recipe = Recipe(runner=Undefined, save="3")
    recipe.make(tmp_path, StopAt(6)).fit()
    second = recipe.make(tmp_path)
    assert second.fit() == "finished"
    assert not list((tmp_path / "Checkpoints").glob("*.corrupt*"))
    assert second.progress.step == LAST


# --- the order of things ----------------------------------------------------------------------------------


def test_hooks_are_called_in_the_order_of_their_phases() -> None:
    seen: list[str] = []

    class Notes(Hook):
        def __init__(self, name: str, phase: Phase) -> None:
            self._name, self.phase = name, phase

        @property
        def name(self) -> str:
            return self._name

        def on_start(self, trainer: Trainer) -> None:
            seen.append(f"{self.name} start")

        def before_step(self, trainer: Trainer) -> None:
            seen.append(f"{self.name} before")

        def on_step(self, trainer: Trainer) -> None:
            seen.append(self.name)

        def on_epoch(self, trainer: Trainer) -> None:
            seen.append(f"{self.name} epoch")

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            seen.append(f"{self.name} {reason}")

    hooks = [Notes(phase.name, phase) for phase in reversed(Phase)]
    plain(built(MLP), Still(8), [*hooks, Notes("SECOND", Phase.MODEL)], until=2).fit()
    names = ["MODEL", "SECOND", *[phase.name for phase in Phase][1:]]
    first = [*[f"{name} before" for name in names], *names]
    edge = [f"{name} before" for name in names], [x for name in names for x in (name, f"{name} epoch")]
    assert seen == [
        *[f"{name} start" for name in names],
        *first,
        *edge[0],
        *edge[1],
        *[f"{name} finished" for name in names],
    ]


@pytest.mark.parametrize("failing", ["on_step", "on_stop", "both"])
def test_every_hook_hears_of_the_end_and_the_first_error_counts(failing: str) -> None:
    class Fails(Hook):
        def on_step(self, trainer: Trainer) -> None:
            if failing != "on_stop":
                raise Crash("first")

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            if failing != "on_step":
                raise RuntimeError("second")

    class Hears(Hook):
        phase = Phase.REPORT
        reason = ""

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            self.reason = reason

    hears = Hears()
    with pytest.raises(RuntimeError if failing == "on_stop" else Crash):
        plain(built(MLP), Still(), [Fails(), hears]).fit()
    assert hears.reason == ("finished" if failing == "on_stop" else "Crash: first")


def test_a_hook_that_fails_at_the_start_closes_the_others(tmp_path: Path) -> None:
    class Fails(Hook):
        phase = Phase.REPORT

        def on_start(self, trainer: Trainer) -> None:
            raise Crash

    class Hears(Hook):
        was_called = False

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            self.was_called = True

    hears = Hears()
    with pytest.raises(Crash):
        plain(built(MLP), Still(), [hears, Fails()]).fit()
    assert hears.was_called


def test_requests_are_served_in_the_same_step(tmp_path: Path) -> None:
    steps = Steps()
    trainer = Recipe(validate="100", save="100").make(tmp_path, Asks(5), steps)
    trainer.fit()
    assert steps.evals == [5, LAST]
    first = checkpoint.read_manifests(tmp_path / "Checkpoints")[0]
    assert (first.step, first.held) == (5, True)


def test_a_row_that_no_hook_reports_does_not_wake_the_loop(tmp_path: Path) -> None:
    """What is asked for by a row and by a validation is of that step alone."""
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    for hooks in ([Records(tmp_path, "2")], [Validate("2")]):
        trainer = plain(built(MLP), Still(), hooks, until=5, loaders=loaders)
        trainer.fit()
        assert not trainer.requested("report") and not trainer.requested("record")


def test_a_request_of_the_last_phase_is_served_in_the_next_step(tmp_path: Path) -> None:
    late = Asks(2)
    late.phase = Phase.REPORT  # type: ignore[misc]
    checkpoints = Checkpoints(tmp_path)
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    hooks = [late, Save("100"), Validate("100")]
    plain(built(MLP), Still(), hooks, until=5, checkpoints=checkpoints, loaders=loaders).fit()
    first = checkpoint.read_manifests(tmp_path)[0]
    assert (first.step, first.held, bool(first.metrics)) == (3, True, True)


def test_a_request_does_not_call_on_epoch(tmp_path: Path) -> None:
    class Serves(Steps):
        serves = "save"

    class Named(Hook):
        serves, every = "validate", ()

        def __init__(self, phase: Phase) -> None:
            self.phase = phase

        def on_step(self, trainer: Trainer) -> None:
            """Serves a set that no hook uses."""

    hook = Serves(Phase.DECIDE, "100")
    others = [Asks(2), Named(Phase.EVAL), Save("100")]
    plain(built(MLP), Still(), [*others, hook], until=3, checkpoints=Checkpoints(tmp_path)).fit()
    assert (hook.steps, hook.epochs) == ([2, 3], [])


def test_a_run_stopped_by_its_goal_writes_row_and_checkpoint_at_that_step(tmp_path: Path) -> None:
    class Enough(Hook):
        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step == 5:
                trainer.request_stop("good enough", finished=True)

    trainer = Recipe(validate="100").make(tmp_path, Enough())
    assert trainer.fit() == "finished" and trainer.ended_early
    assert rows_of(tmp_path)[-1]["step"] == 5
    assert checkpoint.read_manifests(tmp_path / "Checkpoints")[-1].step == 5


def test_a_goal_that_is_reached_inside_a_step(tmp_path: Path, nothing_by_the_clock: None) -> None:
    class Reaches(StopsInLoss):
        finished = True

    rows = Records(tmp_path / "records", "100")
    trainer = plain(
        built(Reaches), Still(), [rows, Save("100")], until=9, checkpoints=Checkpoints(tmp_path / "c")
    )
    assert trainer.fit() == "finished"
    assert [row["step"] for row in rows_of(tmp_path)] == [5]
    assert [info.step for info in checkpoint.read_manifests(tmp_path / "c")] == [5]


def test_plan_prints_phases_and_hooks(tmp_path: Path) -> None:
    lines = Recipe().make(tmp_path, StopAt(3)).plan().splitlines()
    assert lines[0].split() == ["phase", "hook", "methods", "every"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["SCHEDULE", "Schedule"],
        ["EVAL", "Validate"],
        ["DECIDE", "Best"],
        ["DECIDE", "EarlyStop"],
        ["RECORD", "Records"],
        ["SAVE", "Save"],
        ["REPORT", "StopAt"],
    ]
    assert lines[2].split()[2:] == ["on_start", "on_step", "3"]


def test_the_board_shows_where_it_is(tmp_path: Path) -> None:
    board = ProgressFile(tmp_path / "progress")
    plain(built(MLP), Still(), until=9, board=board).fit()
    snapshot = read(tmp_path / "progress")
    assert snapshot is not None
    assert (snapshot.step, snapshot.epoch, snapshot.batch, snapshot.phase) == (9, 1, 2, "ended")
    assert (snapshot.total_steps, snapshot.steps_per_epoch, snapshot.samples) == (9, 7, 34)
    assert snapshot.fraction == 1.0


def test_ends_by_time_too() -> None:
    trainer = plain(built(MLP), Still(), until="0.05s")
    assert trainer.fit() == "finished"
    assert trainer.progress.seconds >= 0.05


# --- evaluation -------------------------------------------------------------------------------------------


def test_evaluate_leaves_generators_and_mode_alone(tmp_path: Path) -> None:
    trainer = Recipe().make(tmp_path)
    trainer.runner.net[2].eval()
    before = seeding.rng_state()
    first = trainer.evaluate()
    assert bits(seeding.rng_state()) == bits(before)
    assert trainer.runner.training and not trainer.runner.net[2].training
    torch.randn(5)
    assert trainer.evaluate() == first, "what the set draws does not depend on what was drawn before"


def test_several_splits_have_distinct_names(messages: Messages) -> None:
    loaders = {name: loader(Still(n), 8, shuffle=False) for name, n in (("valid/a", 9), ("valid/b", 5))}
    trainer = plain(built(MLP), Still(), loaders=loaders)
    assert trainer.evaluate().keys() == {f"valid/{x}/{m}" for x in "ab" for m in ("loss", "accuracy")}
    with pytest.raises(ConfigError, match=r"'test'.*: train, valid/a, valid/b") as refused:
        trainer.evaluate("test")
    messages.check(refused.value)


def test_a_monitor_that_is_never_reported_is_an_error_that_names_what_is(tmp_path: Path) -> None:
    loaders = {"valid": loader(Still(), 8, shuffle=False)}
    hooks = [Validate(1), Best([Rule(monitor="valid/f1", mode="max")])]
    with pytest.raises(ConfigError, match=r"'valid/f1'.*: valid/accuracy, valid/loss"):
        plain(built(MLP), Still(), hooks, loaders=loaders).fit()


# --- what is inexact --------------------------------------------------------------------------------------


def test_a_set_that_ignores_seeding_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    class Own(Points):
        generator = torch.Generator().manual_seed(0)

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return self.x[index] + torch.randn(6, generator=self.generator), self.y[index]

    recipe = Recipe(dataset=Own)
    recipe.make(tmp_path, StopAt(4)).fit()
    second = recipe.make(tmp_path)
    second.fit()
    (why,) = second.inexact
    messages.check(why)
    assert checkpoint.read_manifests(tmp_path / "Checkpoints")[-1].inexact == second.inexact
    assert capsys.readouterr().out.count("inexact: ") == 2, "once a session"


def test_a_loss_that_is_no_number(tmp_path: Path) -> None:
    class PerSample(MLP):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            return self.evaluate(batch)

    with pytest.raises(ContractError, match=r"loss\(\).*\(4,\)"):
        Recipe(runner=PerSample).make(tmp_path).fit()
    assert checkpoint.ids(tmp_path / "Checkpoints") == []


def test_no_worker_is_left_after_an_evaluation_at_the_end(tmp_path: Path) -> None:
    """The test set is read after the training has ended."""
    loaders = {name: loader(Still(), shuffle=False, num_workers=1) for name in ("train", "test")}
    records = Records(tmp_path, session=1)
    trainer = plain(built(MLP), Still(), [records, Test(records, None)], loaders=loaders, until=2)
    trainer.fit()
    assert multiprocessing.active_children() == []


class Slow(Still):
    """Its samples take an hour, but for the first ones."""

    draws_randomness = False

    def __init__(self, asked: Path) -> None:
        super().__init__()
        self.asked = asked

    def __getitem__(self, index: int) -> Any:
        if index >= 8:
            self.asked.touch()
            time.sleep(3600)
        return super().__getitem__(index)


def test_a_stop_is_heard_while_the_run_is_prepared(tmp_path: Path) -> None:
    """Here while it measures how many workers the set needs."""
    reasons = []

    class Hears(Hook):
        def on_start(self, trainer: Trainer) -> None:
            trainer.request_stop("a person asked")

        def on_stop(self, trainer: Trainer, reason: str) -> None:
            reasons.append(reason)

    slow = loader(Slow(tmp_path / "asked"), 26, num_workers=None)
    slow.fetch.draws_randomness = True
    trainer = plain(built(MLP), Still(), [Hears()], loaders={"train": slow})
    assert trainer.fit() == "a person asked"
    assert (trainer.progress.step, reasons) == (0, ["a person asked"])
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_stop_does_not_wait_for_a_sample(split: str, tmp_path: Path) -> None:
    """Whether it is waited for by the training or by a validation."""
    slow = loader(Slow(tmp_path / "asked"), shuffle=False, num_workers=2)
    other = loader(Still(), shuffle=False)
    loaders = {"train": other, "valid": other, split: slow}
    trainer = plain(built(MLP), Still(), [Validate("2")], loaders=loaders, until="9ep")

    def stop() -> None:
        wait_for(lambda: trainer.progress.step == 2 and (tmp_path / "asked").exists())
        trainer.request_stop("a person asked")

    asking = threading.Thread(target=stop)
    asking.start()
    assert trainer.fit() == "a person asked"
    asking.join()
    assert trainer.progress.step == 2 and trainer.progress.batch == 2
    assert multiprocessing.active_children() == []


def test_a_run_that_continues_is_never_published_at_step_0(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain(built(MLP), Still(), [Save("1ep")], until=2, checkpoints=Checkpoints(tmp_path)).fit()
    steps: list[int] = []
    monkeypatch.setattr(ProgressPublisher, "publish", lambda _, progress, phase: steps.append(progress.step))
    plain(built(MLP), Still(), [Save("1ep")], until=4, checkpoints=Checkpoints(tmp_path)).fit()
    assert steps[0] == 2 and steps[-1] == 4
