"""The messages about the last step of a replay and the batch it gets; the rest is in test_debug_task.py."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from roost.base.traceback_frames import ProjectFiles
from roost.package.results import black_box
from roost.package.results.black_box import BlackBox, DebugTarget, FailureNote
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.step import seeding
from roost.train.step.loss import Window
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from roost.worker.debug.failing_step import EarlierNonFiniteStep, FailingStep, FailingStepHook
from roost.worker.debug.post_mortem import DebuggerQuit
from roost.worker.debug.replay import ReplayStart
from tests.messages import Messages
from tests.train.parts import MLP, Points, bits, built, plain

OWN = ProjectFiles([Path(__file__).parent])


class Unseeded(Points):
    """Draws from a generator of its own."""

    generator = torch.Generator().manual_seed(0)

    def __getitem__(self, index: int) -> Any:
        return torch.rand(6, generator=self.generator), self.y[index]


def make(runner: Any = None, dataset: Any = None, **options: Any) -> Trainer:
    trainer = plain(runner or built(MLP), dataset or Points(), until=9, **options)
    trainer.runner.train()
    return trainer


START = ReplayStart(None, {}, is_box=False, notes=[])


def arrival(
    box: BlackBox | None = None, *, step: int = 1, begin: bool = False, is_nonfinite: bool = False
) -> FailingStepHook:
    target = DebugTarget(step=step, session=1, begin=begin)
    return FailingStepHook(target, box, START, OWN, is_nonfinite=is_nonfinite)


def window_drawn_again(trainer: Trainer, box: BlackBox | None = None) -> list[Any]:
    """The window that the first step of a replay takes."""
    target, context = DebugTarget(step=1, session=1, begin=False), trainer.step_context
    found = FailingStep(
        target, box, START, OWN, is_nonfinite=False, context=context, take_step=trainer.take_step
    )
    return found._window()


def box(folder: Path, trainer: Trainer, window: list[Any], **fields: Any) -> BlackBox:
    note = FailureNote(**{"step": 1, "epoch": 0, "batch": 0, "error": "ValueError: no", **fields})
    BlackBoxRecorder(folder, 1).keep(trainer.step_context, note, window, generators=None)
    found = black_box.newest_box(folder)
    assert found is not None
    return found


def window_of(trainer: Trainer) -> list[Any]:
    """The first window as a step gets it."""
    seen: list[Any] = []

    def take(window: Any) -> Any:
        seen.append(window)
        raise DebuggerQuit

    trainer.take_step = take
    with pytest.raises(DebuggerQuit):
        trainer.fit()
    return list(seen[0])


@pytest.mark.parametrize("accumulation", [1, 3])
def test_the_batch_is_that_of_the_run(accumulation: int) -> None:
    def fresh() -> Trainer:
        runner = built(MLP)
        stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), accumulation=accumulation)
        return make(runner, stepper=stepper)

    found = window_drawn_again(fresh())
    assert bits(list(found)) == bits(window_of(fresh()))
    if accumulation > 1:
        assert isinstance(found, Window) and found.num_samples == [4, 4, 4]


def test_a_kept_batch_that_differs_gives_way_to_the_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    trainer = make()
    window = window_of(make())
    same = box(tmp_path / "same", trainer, window)
    assert bits(list(window_drawn_again(trainer, same))) == bits(window)
    assert not capsys.readouterr().err
    changed = box(tmp_path / "changed", trainer, [[torch.zeros(4, 6), torch.zeros(4)]])
    assert bits(list(window_drawn_again(trainer, changed))) == bits(window)
    messages.check(capsys.readouterr().err)


def test_a_kept_batch_that_is_damaged_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window = window_of(make())
    found = box(tmp_path, make(), window)
    (found.path / "batch.safetensors").write_bytes(b"")
    assert bits(list(window_drawn_again(make(), found))) == bits(window)
    assert ": Damaged" in capsys.readouterr().err


def test_a_set_that_ignores_the_seeds_gives_way_to_the_kept_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make(dataset=Unseeded())
    kept = [[torch.ones(4, 6), torch.arange(4)]]
    assert bits(list(window_drawn_again(trainer, box(tmp_path, trainer, kept)))) == bits(kept)
    assert not capsys.readouterr().err


def test_a_step_that_goes_through_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    trainer, hook = make(), arrival()
    with pytest.raises(DebuggerQuit):
        hook.before_step(trainer)
    said = capsys.readouterr().err
    names = ", ".join(map(str, trainer.loaders["train"].sample_indices(0, 0, 1)))
    first, *_, last = said.splitlines()
    assert re.match(r"step 1\b.*epoch 1, batch 1\b", first) and first.endswith(f" {names}")
    assert re.search(r"step 1 .* 0\.\d", last) and hook.exit_code == 0


def test_one_that_failed_then_and_not_now_names_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = make()
    found = box(
        tmp_path, trainer, window_of(make()), inexact=["NumPy's generator is as it was after the error"]
    )
    found = found._replace(
        note=FailureNote(**{**_fields(found.note), "stack": {"threads": 99, "torch": "1.0"}})
    )
    hook, trainer.stepper.mode = arrival(found), "compile"
    with pytest.raises(DebuggerQuit):
        hook.before_step(trainer)
    said = capsys.readouterr().err
    assert hook.exit_code == 1 and re.search(r"step 1 .*loss", said)
    for facts in (
        "torch.compile ",
        rf"torch .*1\.0.*{re.escape(torch.__version__)}",
        "threads .*99",
        "NumPy's ",
    ):
        assert any(re.search(facts, line) for line in said.splitlines()), facts


class Looks(MLP):
    """Notes whether its loss is being compiled."""

    seen: ClassVar[list[bool]] = []

    def loss(self, batch: Any) -> Any:
        self.seen.append(torch.compiler.is_compiling())
        return super().loss(batch)


@pytest.mark.parametrize("is_nonfinite", [False, True])
def test_a_step_that_was_compiled_is_taken_as_it_is_written(
    is_nonfinite: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = built(Looks)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), mode="compile")
    with pytest.raises(DebuggerQuit):
        arrival(is_nonfinite=is_nonfinite).before_step(make(runner, stepper=stepper))
    said = capsys.readouterr().err
    assert "torch.compile" in said and re.search(r"step 1 .* 0\.\d", said)
    assert Looks.seen.pop() is False and not Looks.seen


def _fields(note: FailureNote) -> dict[str, Any]:
    return {name: getattr(note, name) for name in note.__struct_fields__}


def test_on_the_way_nothing_is_printed_and_no_breakpoint_stops(capsys: pytest.CaptureFixture[str]) -> None:
    hook, before = arrival(step=3), sys.breakpointhook
    with hook.quiet():
        print("on the way")
        breakpoint()  # noqa: T100  - it must not stop
        trainer = make()
        trainer.progress.step = 1
        hook.on_start(trainer)
        hook.before_step(trainer)
        trainer.progress.step = 2
        with pytest.raises(DebuggerQuit):
            hook.before_step(trainer)
        print("here")
        assert sys.breakpointhook is before
    said = capsys.readouterr()
    assert said.out == "here\n" and re.search(r"\b1\b.*\bseed\b", said.err)


def test_who_evaluates_the_loss_by_itself_is_looked_at_after_its_step() -> None:
    """Before it, its gradients are those of the step before; after its last evaluation it may move."""
    runner = built(MLP)
    trainer = make(runner, stepper=Stepper(torch.optim.LBFGS(runner.parameters(), lr=1.0, max_iter=1)))
    hook = arrival(step=3, is_nonfinite=True)
    hook.on_start(trainer)
    for parameter in runner.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    trainer.take_step(window := window_of(make()))
    with torch.no_grad():
        next(runner.parameters()).fill_(float("inf"))
    with pytest.raises(EarlierNonFiniteStep) as caught:
        trainer.take_step(window)
    assert caught.value.step == 1, "the step in progress"


def test_a_hunt_leaves_nothing_behind_when_the_step_is_well() -> None:
    """The watched step is the step itself."""
    trainer, other = make(), make()
    before = seeding.rng_state()
    with pytest.raises(DebuggerQuit):
        arrival(is_nonfinite=True).before_step(trainer)
    seeding.set_rng_state(before)
    with pytest.raises(DebuggerQuit):
        arrival().before_step(other)
    assert bits(dict(trainer.runner.state_dict())) == bits(dict(other.runner.state_dict()))
