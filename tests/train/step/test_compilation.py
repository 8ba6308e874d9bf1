from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional

from roost.base.errors import ContractError
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.hooks import Validate
from roost.train.optim.optimizer import Optim
from roost.train.step import compilation as compiled_module
from roost.train.step import seeding
from roost.train.step.compilation import CompiledFunction
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Still, StopAt, built, loader, plain, state_of, weights


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing of what was compiled before, and torch's settings as they were."""
    config = torch._dynamo.config
    with config.patch(
        recompile_limit=config.recompile_limit,
        accumulated_recompile_limit=config.accumulated_recompile_limit,
        fail_on_recompile_limit_hit=False,
    ):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


@pytest.fixture
def traced() -> Iterator[None]:
    """Everything that torch.compile does but the kernels, which take seconds to make."""
    with torch._dynamo.config.patch(debug_backend_override=">=0:eager"):
        yield


def num_compiled() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def stepper_of(runner: nn.Module, mode: Any = "compile", **options: Any) -> Stepper:
    optim = Optim(torch.optim.AdamW(runner.parameters(), lr=0.02), max_grad_norm=0.5)
    return Stepper(optim, mode=mode, **options)


# --- the bits ---------------------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.needs_program("g++")
def test_equals_torch_compile_by_hand_and_goes_on_exactly(tmp_path: Path) -> None:
    """In bf16, with dropout, accumulation 3 and a short window at the end of each epoch. A run that goes on
    from right before a short window compiles the short batch first, and gets the bits of the whole run."""

    def trainer(folder: Path, *hooks: Any) -> Trainer:
        runner = built(MLP)
        stepper = stepper_of(runner, precision="bf16", accumulation=3)
        return plain(runner, Still(), hooks, until="2ep", stepper=stepper, checkpoints=Checkpoints(folder))

    whole = trainer(tmp_path / "whole")
    whole.fit()

    by_hand = built(MLP)
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=0.02)
    forward = torch.compile(lambda x, y: functional.cross_entropy(by_hand.net(x), y), dynamic=False)
    data, plan = Still(), BatchPlan(26, 4, seed=3)
    seeding.seed_all(seeding.mix(3, "train"))
    for epoch in (0, 1):
        batches = [draw.indices for draw in plan.batches(epoch)]
        for first in range(0, len(batches), 3):
            window = batches[first : first + 3]
            optimizer.zero_grad()
            for indices in window:
                with torch.autocast("cpu", torch.bfloat16):
                    loss = forward(data.x[indices], data.y[indices])
                (loss * (len(indices) / sum(map(len, window)))).backward()
            nn.utils.clip_grad_norm_(by_hand.parameters(), 0.5)
            optimizer.step()
    assert weights(whole.runner) == weights(by_hand)

    torch._dynamo.reset()
    for leg in (StopAt(2), StopAt(5)):
        trainer(tmp_path / "legs", leg).fit()
        torch._dynamo.reset()
    last = trainer(tmp_path / "legs")
    last.fit()
    ours, theirs = state_of(last), state_of(whole)
    assert ours["model"] == theirs["model"] and ours["optimizers"] == theirs["optimizers"]
    assert ours["rank-0"] == theirs["rank-0"]


# --- names ------------------------------------------------------------------------------------------------


def test_names_are_bare_and_either_mode_loads_the_other(traced: None, tmp_path: Path) -> None:
    def trainer(mode: str, *hooks: Any) -> Trainer:
        runner = built(MLP)
        stepper = stepper_of(runner, mode)
        return plain(runner, Still(), hooks, until=6, stepper=stepper, checkpoints=Checkpoints(tmp_path))

    trainer("compile", StopAt(2)).fit()
    trainer("eager", StopAt(4)).fit()
    last = trainer("compile")
    assert last.fit() == "finished"
    assert set(last.runner.state_dict()) == set(built(MLP).state_dict())
    straight = built(MLP)
    plain(straight, Still(), until=6, stepper=stepper_of(straight, "eager")).fit()
    assert weights(last.runner) == weights(straight), "without kernels both compute the same"


# --- what a loss function may do --------------------------------------------------------------------------


class Talks(MLP):
    """Logs and prints."""

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        values = super().loss(batch)
        self.log(extra=values["accuracy"], one=1.0)
        return values


def test_what_is_logged_joins_the_row_and_is_compiled_once(traced: None) -> None:
    runner, plainly = built(Talks), built(Talks)
    before = num_compiled()
    trainer = plain(runner, Still(24), until="3ep", stepper=stepper_of(runner))
    trainer.fit()
    eager = plain(plainly, Still(24), until="3ep", stepper=stepper_of(plainly, "eager"))
    eager.fit()
    row = trainer.events.row()
    assert row == eager.events.row() and row["one"] == 1.0 and "extra" in row
    assert num_compiled() - before == 1
    # A runner that was wrapped by one trainer serves the next.
    plain(runner, Still(24), until=1, stepper=stepper_of(runner)).fit()


class Warms(MLP):
    """Takes a number from a tensor that it fills in each step, and from one that changes with the epoch."""

    def build(self) -> None:
        super().build()
        self.register_buffer("factor", torch.ones(()))
        self.scales = {"loss": 0.5}

    def update(self, stepper: Stepper, batches: Any) -> Any:
        self.factor.fill_(1.0 + self.progress.step)
        return super().update(stepper, batches)

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        values = dict(super().loss(batch))
        values["loss"] = values["loss"] * self.factor * self.scales["loss"] * (1 + self.progress.epoch)
        return values


def test_numbers_that_change_seldom_or_lie_in_tensors(traced: None) -> None:
    """More epochs than torch keeps kernels by itself."""
    runner, plainly, data = built(Warms), built(Warms), Still(48)
    trainer = plain(runner, data, until="20ep", stepper=stepper_of(runner))
    assert trainer.fit() == "finished"
    plain(plainly, data, until="20ep", stepper=stepper_of(plainly, "eager")).fit()
    assert weights(runner) == weights(plainly)


class Counts(MLP):
    """Reads a number that changes in each step."""

    def loss(self, batch: Any) -> Mapping[str, Tensor]:
        values = super().loss(batch)
        return {**values, "loss": values["loss"] * (1 + self.progress.step / 1000)}


def test_a_number_that_changes_in_each_step_is_an_early_error(traced: None, messages: Messages) -> None:
    runner = built(Counts)
    trainer = plain(runner, Still(), until="9ep", stepper=stepper_of(runner))
    with pytest.raises(
        ContractError, match=r"\b16\b.*\b17\b.*'compile'.*compile_dynamic: true.*Runner\.update"
    ) as refused:
        trainer.fit()
    assert refused.value.setting == "step_mode"
    messages.check(refused.value)


def test_functions_made_in_each_step_are_not_kept(traced: None) -> None:
    module = nn.Linear(3, 1)
    stepper = stepper_of(module)
    before = num_compiled()
    for _ in range(70):
        stepper.run(lambda batch: module(batch).mean(), [torch.ones(2, 3)])
    assert stepper._compiled is not None and len(stepper._compiled._made) <= 32
    assert num_compiled() - before == 1


def test_with_dynamic_shapes_that_error_does_not_name_them(traced: None, messages: Messages) -> None:
    runner = built(Counts)
    stepper = stepper_of(runner, compile_dynamic=True)
    with pytest.raises(ContractError) as refused:
        plain(runner, Still(), until="9ep", stepper=stepper).fit()
    assert refused.value.setting == "step_mode" and "compile_dynamic" not in str(refused.value)
    messages.check(refused.value)


# --- shapes -----------------------------------------------------------------------------------------------


def batch_of(length: int) -> Any:
    return {"text": [torch.ones(3, length)], "names": ("a", "b"), "none": None}


def mean(batch: Any) -> Tensor:
    return batch["text"][0].mean()


def test_a_ninth_shape_is_an_error_that_names_it(traced: None, messages: Messages) -> None:
    compiled = CompiledFunction(mean, dynamic=False)
    for length in [*range(1, 9), *range(1, 9)]:
        assert float(compiled(batch_of(length))) == 1.0
    with pytest.raises(ContractError, match=r"\b8\b.*\(3, 9\).*compile_dynamic: true.*collate") as refused:
        compiled(batch_of(9))
    assert refused.value.setting == "step_mode"
    messages.check(refused.value)


def test_with_dynamic_shapes_there_is_one_kernel(traced: None) -> None:
    compiled, before = CompiledFunction(mean, dynamic=True), num_compiled()
    for length in range(4, 40):
        assert float(compiled(batch_of(length))) == 1.0
    assert num_compiled() - before == 1


def test_a_long_compilation_is_printed_once_for_each_shape(
    traced: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for dynamic, shapes in ((False, ["3x4", "3x5"]), (True, ["3x4"])):
        monkeypatch.setattr(compiled_module, "_MIN_REPORTED_SECONDS", 0.0)
        compiled = CompiledFunction(mean, dynamic=dynamic)
        for length in (4, 4, 5, 4, 5):
            compiled(batch_of(length))
        said = capsys.readouterr().out.splitlines()
        assert [re.findall(r"\d+x\d+", line) for line in said] == [[one] for one in shapes]
        assert all(re.search(r"\b\d+ s\b", line) for line in said)
        monkeypatch.setattr(compiled_module, "_MIN_REPORTED_SECONDS", float("inf"))
        CompiledFunction(mean, dynamic=dynamic)(batch_of(4))
        assert capsys.readouterr().out == ""


# --- evaluations ------------------------------------------------------------------------------------------


class TellsHow(MLP):
    """A metric of `evaluate` says whether it was compiled."""

    factor = 1

    def evaluate(self, batch: Any) -> Mapping[str, Tensor]:
        how = torch.ones(()) * torch.compiler.is_compiling()
        return {**super().evaluate(batch), "compiled": how * self.factor / self.factor}


@pytest.mark.parametrize("mode", ["compile", "eager"])
def test_a_validation_is_compiled_as_the_step_is(mode: Any, traced: None, tmp_path: Path) -> None:
    runner = built(TellsHow)
    loaders = {"valid": loader(Still(), 8, shuffle=False), "test": loader(Still(), 5, shuffle=False)}
    trainer = plain(
        runner, Still(), [Validate("1ep")], until="1ep", stepper=stepper_of(runner, mode), loaders=loaders
    )
    trainer.fit()
    assert trainer.results["valid/compiled"] == (mode == "compile"), "the short last batch, too"
    assert trainer.evaluate("test")["test/compiled"] == (mode == "compile")


def test_further_shapes_are_evaluated_uncompiled(
    traced: None, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    runner, reasons = built(TellsHow), list[str]()
    stepper = stepper_of(runner)
    for name in ("valid/a", "valid/b"):  # each set has its own limit
        evaluate = stepper.evaluation_function(runner, name, reasons.append)
        sizes = [*range(2, 13), 2]
        batches = [(torch.zeros(n, 6), torch.zeros(n, dtype=torch.long)) for n in sizes]
        how = [float(evaluate(batch)["compiled"]) for batch in batches]
        assert how == [1.0] * 8 + [0.0] * 3 + [1.0]
    said = capsys.readouterr().out.splitlines()
    first, second = [text for text in said if not text.startswith("compiled in")]
    assert first.startswith("valid/a") and second.startswith("valid/b")
    messages.check(first)
    assert not reasons, "the order of the batches decides it"


def test_a_number_that_changes_ends_only_the_compilation(
    traced: None, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(compiled_module, "_INITIAL_RECOMPILES", 4)
    torch._dynamo.config.recompile_limit = 4
    runner, reasons = built(TellsHow), list[str]()
    evaluate = stepper_of(runner).evaluation_function(runner, "valid", reasons.append)
    batch, how = (torch.zeros(4, 6), torch.zeros(4, dtype=torch.long)), []
    for runner.factor in range(1, 10):
        how.append(float(evaluate(batch)["compiled"]))
    assert how[0] == 1.0 and how[-1] == 0.0 and sorted(how, reverse=True) == how
    [reason] = reasons
    messages.check(reason)
