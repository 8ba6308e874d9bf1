from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from roost.package.checkpoints import checkpoint
from roost.package.results import black_box, skipped_steps
from roost.train.failures import step_report
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.failures.recovery import Recovery
from roost.train.failures.step_report import StepReporter
from roost.train.optim.optimizer import Optim
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import CNN, MLP, Pictures, Points, Recipe, StopAt, built, loader, plain


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("no good"), "ValueError: no good"),
        (ValueError("no good\nat all"), "ValueError: no good"),
        (AssertionError(), "AssertionError"),
        (torch.OutOfMemoryError("no more"), "OutOfMemoryError: no more"),
        (
            torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.81 GiB of "
                "which 1.06 GiB is free. Including non-PyTorch memory, this process has 138.74 GiB in use."
            ),
            "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
        (ValueError("x" * 1000), "ValueError: " + "x" * 488),
    ],
)
def test_an_error_in_one_line(error: Exception, line: str) -> None:
    assert step_report.format_error(error) == line


def test_its_notes_are_part_of_the_line() -> None:
    error = OSError("no such picture")
    error.add_note("while reading sample 3 of Pictures")
    assert step_report.format_error(error) == "OSError: no such picture; while reading sample 3 of Pictures"


def test_where_a_step_lies_follows_from_its_number() -> None:
    trainer = plain(built(MLP), Points())
    seen = [
        (one.epoch, one.batch, one.num_batches, one.samples) for one in map(note_of(trainer), range(1, 15))
    ]
    plan = loader(Points()).plan
    expected = [
        (epoch, batch, 1, draw.indices) for epoch in (0, 1) for batch, draw in enumerate(plan.batches(epoch))
    ]
    assert seen == expected


def test_where_a_step_of_several_batches_lies(tmp_path: Path) -> None:
    """The last of an epoch is short."""
    trainer = Recipe(accumulation=3).make(tmp_path)
    seen = [
        (one.epoch, one.batch, one.num_batches, len(one.samples))
        for one in map(note_of(trainer), range(1, 7))
    ]
    assert seen == [(0, 0, 3, 12), (0, 3, 3, 12), (0, 6, 1, 2), (1, 0, 3, 12), (1, 3, 3, 12), (1, 6, 1, 2)]


def note_of(trainer: Any) -> Any:
    return lambda step: StepReporter(session=4).note_for(trainer.step_context, step, "error", "no good")


def test_a_note_names_the_newest_checkpoint_before_the_step(tmp_path: Path) -> None:
    recipe = Recipe(save=3, validate=100)
    recipe.make(tmp_path, StopAt(8)).fit()
    trainer = recipe.make(tmp_path)
    assert [note_of(trainer)(step).checkpoint for step in (1, 6, 7, 8, 9)] == [None, None, 1, 1, 2]


def test_a_place_names_no_more_samples_than_one_can_read(messages: Messages) -> None:
    trainer = plain(built(MLP), Points(), loaders={"train": loader(Points(), 10, shuffle=False)})
    many, few = (step_report.format_place(note_of(trainer)(step)) for step in (2, 3))
    assert re.findall(r"\d+", many) == ["2", "1", "2", *map(str, range(10, 18)), "10"]
    assert re.findall(r"\d+", few) == ["3", "1", "3", *map(str, range(20, 26))]
    messages.check(many)
    messages.check(few)


def test_skipped_steps_are_logged(tmp_path: Path) -> None:
    trainer, log = plain(built(MLP), Points()), tmp_path / skipped_steps.NAME
    reporter = StepReporter(log=log, session=2)
    for step in (3, 5):
        reporter.log_skipped(reporter.note_for(trainer.step_context, step, "nonfinite", "no good"))
    reporter.log_rollback(4)
    (one,) = skipped_steps.read(log)
    assert (one.session, one.step, one.batch, one.kind, one.error) == (2, 3, 2, "nonfinite", "no good")


def box_after(tmp_path: Path, trainer: Any, draw: Any) -> black_box.BlackBox:
    """A box that was kept after something was drawn."""
    reporter = StepReporter(BlackBoxRecorder(tmp_path, 1))
    reporter.begin()
    reporter.before_step()
    draw()
    reporter.keep(
        trainer.step_context,
        reporter.note_for(trainer.step_context, 1, "error", "no good"),
        [],
        with_state=True,
    )
    found = black_box.newest_box(tmp_path)
    assert found is not None
    return found


def test_the_generators_of_a_step_are_those_of_its_begin(tmp_path: Path) -> None:
    trainer = plain(built(MLP), Points())
    begun = torch.get_rng_state()
    box = box_after(tmp_path, trainer, lambda: torch.randn(3))
    _, states = checkpoint.read(box.path, only=["rank-0"])
    kept: Tensor = states["rank-0"]["rng"]["torch"]
    assert torch.equal(kept, begun) and not torch.equal(torch.get_rng_state(), begun)
    assert box.note.inexact == []


def test_what_is_not_as_it_was_is_said(tmp_path: Path, messages: Messages) -> None:
    trainer = plain(built(CNN), Pictures())
    box = box_after(tmp_path, trainer, lambda: np.random.rand())
    numpy, buffers = box.note.inexact
    assert "NumPy" in numpy and "buffers" in buffers
    messages.check(numpy)
    messages.check(buffers)


class Falling(MLP):
    """Whose third step fails."""

    def loss(self, batch: Any) -> Any:
        if self.progress.step == 2:
            raise ValueError("no good")
        return super().loss(batch)


def test_whose_turn_it_is_in_a_step_is_as_at_its_begin(tmp_path: Path) -> None:
    runner = built(Falling)
    optim = Optim(torch.optim.SGD(runner.parameters(), lr=0.1), every_n_steps=3)
    recovery = Recovery(black_box=BlackBoxRecorder(tmp_path, 1))
    with pytest.raises(ValueError, match="no good"):
        plain(runner, Points(), until=3, stepper=Stepper(optim), recovery=recovery).fit()
    box = black_box.newest_box(tmp_path)
    assert box is not None and box.has_state
    _, states = checkpoint.read(box.path, only=["optimizers"])
    assert states["optimizers"]["main"]["asked"] == 2
