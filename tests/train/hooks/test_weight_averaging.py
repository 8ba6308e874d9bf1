from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn

from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import BestRule as Rule
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.failures.recovery import Recovery
from roost.train.hook import Hook, Phase
from roost.train.hooks import Averaging, Best, EarlyStop, Records, Save, Unsaved, Validate
from roost.train.hooks import Test as Tests
from roost.train.step import seeding
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import (
    CNN,
    MLP,
    STEPS_PER_EPOCH,
    Crash,
    CrashAt,
    Pictures,
    Recipe,
    Still,
    StopAt,
    assert_equal,
    best_of,
    bits,
    built,
    loader,
    outcome,
    plain,
    rows_of,
    weights,
)

EMA = partial(Averaging, "ema", decay=0.8)
SWA = partial(Averaging, "swa", method="swa", every="1ep", start="2ep")


def average_of(trainer: Trainer, name: str) -> Averaging:
    (hook,) = (hook for hook in trainer.calls.hooks if hook.name == f"average/{name}")
    assert isinstance(hook, Averaging)
    return hook


# --- the bits of a loop by hand ---------------------------------------------------------------------------


def test_the_bits_of_the_loop_that_people_write() -> None:
    trainer = plain(built(CNN), Pictures(), [EMA(), SWA()], until="4ep")
    trainer.fit()

    runner = built(CNN)
    ema = AveragedModel(runner.net, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    swa = AveragedModel(runner.net, multi_avg_fn=get_swa_multi_avg_fn())
    optimizer = torch.optim.SGD(runner.parameters(), lr=0.1)
    drawn = loader(Pictures()).epochs()
    seeding.seed_all(seeding.mix(3, "train"))
    for epoch in range(1, 5):
        for _ in range(STEPS_PER_EPOCH):
            optimizer.zero_grad()
            runner.loss(next(drawn).value)["loss"].backward()
            optimizer.step()
            ema.update_parameters(runner.net)
        if epoch >= 2:
            swa.update_parameters(runner.net)
    drawn.close()

    assert weights(trainer.runner) == weights(runner), "the averages changed nothing"
    for name, theirs in (("ema", ema), ("swa", swa)):
        ours = average_of(trainer, name).average
        assert ours.count == theirs.n_averaged
        for parameter, expected in theirs.module.named_parameters():
            assert torch.equal(ours.state_dict()["weights"][f"net.{parameter}"], expected), (name, parameter)


@pytest.mark.parametrize(
    ("every", "start", "counted"),
    [(1, 0, 9), (4, 0, 2), (4, 5, 1), ("1ep", 0, 1), (1, "1ep", 3), (2, 7, 1), (1, 100, 0), ("2/ep", 0, 2)],
)
def test_when_it_takes_in_the_weights(every: Any, start: Any, counted: int) -> None:
    """The run ends after step 9, in which everything is due; an average takes in what its interval meets."""
    hook = Averaging(every=every, start=start)
    plain(built(MLP), Still(), [hook], until=9).fit()
    assert hook.average.count == counted


def test_a_beginning_after_the_end_is_said(capsys: pytest.CaptureFixture[str], messages: Messages) -> None:
    plain(built(MLP), Still(), [Averaging(start="2ep")], until=9).fit()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]
    assert all(fact in line for fact in (" ema ", "step 14", "step 9"))
    messages.check(line)


def test_an_end_that_is_moved_gives_the_same_bits(tmp_path: Path) -> None:
    hooks = (partial(Averaging, every=4), partial(Averaging, "swa", method="swa", every="1ep"))
    for until, folder in (("10", "moved"), ("2ep", "moved"), ("2ep", "whole")):
        trainer = Recipe(until=until, hooks=hooks).make(tmp_path / folder)
        trainer.fit()
        found = {name: bits(average_of(trainer, name).state_dict()) for name in ("ema", "swa")}
        if folder == "moved":
            moved = found
    assert moved == found


# --- what decides by it -----------------------------------------------------------------------------------

RULE = Rule(monitor="valid/ema/loss", top_k=2)


class Worsens(MLP):
    """Gets better and better, and its average worse after step 3."""

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        values, step = super().evaluate(batch), self.progress.step
        shown = self.net[0].weight
        assert self._trainer is not None
        average = self._trainer.averages["ema"].state_dict()["weights"].get("net.0.weight")
        is_average = average is not None and shown.data_ptr() == average.data_ptr()
        return {**values, "loss": values["loss"] * 0 + (abs(step - 3) if is_average else -step)}


def deciding(folder: Path, kind: type[Worsens] = Worsens) -> Trainer:
    rows = Records(folder / "records", "100")
    return plain(
        built(kind),
        Still(),
        [
            EMA(),
            rows,
            Save("100"),
            Validate("1"),
            Best([RULE]),
            EarlyStop("valid/ema/loss", patience=4),
            Unsaved(),
            Tests(rows, RULE),
        ],
        until=9,
        loaders={name: loader(Still(9), 4, shuffle=False) for name in ("valid", "test")},
        checkpoints=Checkpoints(folder / "Checkpoints", RetentionPolicy(fast=1, best=(RULE,))),
    )


def test_best_early_stop_and_test_follow_the_average(tmp_path: Path) -> None:
    trainer = deciding(tmp_path)
    assert trainer.fit() == "finished" and trainer.progress.step == 7, "four validations after step 3"
    assert not trainer.inexact
    assert best_of(tmp_path, RULE) == [(3, 0.0), (2, 1.0)]
    rows = rows_of(tmp_path)
    assert [row["valid/ema/loss"] for row in rows[:-1]] == [abs(step - 3) for step in range(1, 8)]
    assert [row["valid/loss"] for row in rows[:-1]] == [-step for step in range(1, 8)]
    (best,) = [info for info in checkpoint.read_manifests(tmp_path / "Checkpoints") if info.step == 3]
    assert best.metrics["valid/loss"] == -3 and best.metrics["valid/ema/loss"] == 0
    _, states = checkpoint.read(checkpoint.checkpoint_folder(tmp_path / "Checkpoints", best.id))
    state = states["trainer"]["hooks"]["average/ema"]
    assert state["count"] == 3 and list(state["weights"]) == list(states["model"]["state"])
    assert bits(average_of(trainer, "ema").state_dict()) == bits(state), "its average was tested"
    assert weights(trainer.runner) == bits(states["model"]["state"])
    tested = {name: value for name, value in rows[-1].items() if name.startswith("test/")}
    assert tested == {name.replace("valid", "test"): value for name, value in trainer.evaluate().items()}
    assert tested["test/accuracy"] >= 0 and tested["test/ema/loss"] == abs(trainer.progress.step - 3)


def test_a_stop_inside_the_evaluation_of_an_average_leaves_the_weights(tmp_path: Path) -> None:
    class Stops(Worsens):
        def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
            values = super().evaluate(batch)
            if stop and self.progress.step == 5 and float(values["loss"][0]) > 0:
                assert self._trainer is not None
                self._trainer.request_stop("now")
            return values

    stop = [True]
    trainer = deciding(tmp_path / "cut", Stops)
    assert trainer.fit() == "now" and trainer.progress.step == 5
    stop.clear()
    whole = deciding(tmp_path / "whole")
    whole.fit()
    again = deciding(tmp_path / "cut")
    assert again.fit() == "finished"
    assert_equal(outcome(again, tmp_path / "cut"), outcome(whole, tmp_path / "whole"))


# --- going on ---------------------------------------------------------------------------------------------

RECIPE = Recipe(runner=CNN, dataset=Pictures, until="3ep", hooks=(EMA, SWA))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("end", [StopAt, CrashAt])
def test_cut_anywhere_it_goes_on_exactly(end: type[StopAt], workers: int, tmp_path: Path) -> None:
    whole = RECIPE.make(tmp_path / "whole")
    whole.fit()
    expected = outcome(whole, tmp_path / "whole")
    for step in (3, 14) if workers else (7, 17):
        folder = tmp_path / str(step)
        with suppress(Crash):
            RECIPE.make(folder, end(step), workers=workers).fit()
        again = RECIPE.make(folder, workers=2 - workers)
        again.fit()
        assert_equal(outcome(again, folder), expected)
    assert any("valid/swa/loss" in row for row in expected["rows"])


def test_a_rollback_takes_the_average_back_too(tmp_path: Path) -> None:
    class Breaks(MLP):
        """Whose loss is not finite at one step, the first time that it comes there."""

        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            values = super().loss(batch)
            return {**values, "loss": values["loss"] * (torch.nan if self.progress.step == 9 else 1)}

    recovery = {"on_non_finite": "rollback"}
    trainer = Recipe(runner=Breaks, hooks=(EMA,), recovery=recovery).make(tmp_path)
    assert trainer.fit() == "finished"
    hook = average_of(trainer, "ema")
    assert hook.average.count == trainer.progress.step == 14
    assert all(value.isfinite().all() for value in hook.state_dict()["weights"].values())


def test_a_rollback_to_before_there_was_an_average(tmp_path: Path) -> None:
    recipe = Recipe(recovery={"on_non_finite": "rollback"}, save="100")
    recipe.make(tmp_path, StopAt(3)).fit()

    class Breaks(MLP):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            values = super().loss(batch)
            return {**values, "loss": values["loss"] * (torch.nan if self.progress.step == 5 else 1)}

    again = Recipe(runner=Breaks, hooks=(EMA,), recovery={"on_non_finite": "rollback"}, save="100")
    trainer = again.make(tmp_path)
    trainer.fit()
    assert average_of(trainer, "ema").average.count == trainer.progress.step - 3


def test_one_that_is_added_begins_there_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    Recipe(hooks=(EMA,)).make(tmp_path, StopAt(5)).fit()
    assert "average" not in capsys.readouterr().out
    trainer = Recipe(hooks=(EMA, partial(Averaging, "other", method="swa"))).make(tmp_path)
    trainer.fit()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "average" in line]
    assert " other " in line
    messages.check(line)
    assert average_of(trainer, "other").average.count == 9
    assert average_of(trainer, "ema").average.count == 14


def test_another_method_begins_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    Recipe(hooks=(EMA,)).make(tmp_path, StopAt(5)).fit()
    trainer = Recipe(hooks=(partial(Averaging, "ema", method="swa"),)).make(tmp_path)
    trainer.fit()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "average" in line]
    assert " ema " in line
    messages.check(line)
    assert average_of(trainer, "ema").average.count == 9


def test_an_interval_of_the_clock_is_named_inexact(messages: Messages) -> None:
    trainer = plain(built(MLP), Still(), [Averaging(every="10min")], until=3)
    trainer.fit()
    (reason,) = trainer.inexact
    assert reason.startswith("wall clock: ") and "ema" in reason and "10min" in reason
    messages.check(reason)


# --- other steps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_in_16_bits(precision: Any) -> None:
    def made(*hooks: Hook) -> Trainer:
        runner = built(MLP)
        stepper = Stepper(torch.optim.AdamW(runner.parameters(), lr=0.02), precision=precision)
        sets = {"valid": loader(Still(), 8, shuffle=False)}
        return plain(runner, Still(), [Validate("3"), *hooks], until=12, stepper=stepper, loaders=sets)

    trainer, beside = made(EMA()), made()
    trainer.fit()
    beside.fit()
    assert weights(trainer.runner) == weights(beside.runner)
    found = average_of(trainer, "ema").state_dict()["weights"].values()
    assert {value.dtype for value in found} == {torch.float32}


def test_a_compiled_step_goes_on_with_its_kernels() -> None:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(debug_backend_override=">=0:eager"):
        found = []
        for hooks in ([EMA()], []):
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
            runner = built(CNN)
            stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), mode="compile")
            sets = {"valid": loader(Pictures(), 8, shuffle=False)}
            given = [Validate("2"), *hooks]
            plain(runner, Pictures(), given, until=9, stepper=stepper, loaders=sets).fit()
            found.append((weights(runner), torch._dynamo.utils.counters["stats"]["unique_graphs"]))
    torch._dynamo.reset()
    assert found[0] == found[1]


def test_a_skipped_step_leaves_a_finite_average() -> None:
    class Breaks(MLP):
        def loss(self, batch: Any) -> Mapping[str, Tensor]:
            values = super().loss(batch)
            return {**values, "loss": values["loss"] * (torch.nan if self.progress.step == 2 else 1)}

    runner = built(Breaks)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), guard=NonfiniteGuard(runner))
    trainer = plain(
        runner, Still(), [EMA()], until=5, stepper=stepper, recovery=Recovery(on_non_finite="skip")
    )
    trainer.fit()
    assert all(
        value.isfinite().all() for value in average_of(trainer, "ema").state_dict()["weights"].values()
    )


def test_the_projects_hooks_come_first() -> None:
    """One that changes the weights in the same phase is included, as it comes before the averages."""

    class Clamps(Hook):
        phase = Phase.MODEL

        def on_step(self, trainer: Trainer) -> None:
            with torch.no_grad():
                for parameter in trainer.runner.parameters():
                    parameter.clamp_(-0.01, 0.01)

    trainer = plain(built(MLP), Still(), [Clamps(), EMA()], until=3)
    trainer.fit()
    found = average_of(trainer, "ema").state_dict()["weights"].values()
    assert all(value.abs().max() <= 0.01 for value in found)
