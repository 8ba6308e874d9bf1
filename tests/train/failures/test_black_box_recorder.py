"""A failed step is kept whole, or as far as it can be; and what keeps it never fails."""

from __future__ import annotations

import errno
from collections import namedtuple
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roost.base import durable
from roost.package.checkpoints import checkpoint
from roost.package.results import black_box
from roost.package.results.black_box import FailureNote
from roost.train.failures.black_box_recorder import BlackBoxRecorder, redraw_window
from roost.train.failures.recovery import Recovery
from roost.train.failures.step_context import StepContext
from roost.train.hook import Hook, Phase
from roost.train.step import seeding
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Points, bits, built, loader, plain

Point = namedtuple("Point", ["x", "y"])


class Seen(Hook):
    """Remembers the windows of a run."""

    phase = Phase.MODEL

    def __init__(self) -> None:
        self.windows: list[Any] = []

    def on_start(self, trainer: Trainer) -> None:
        take = trainer.take_step

        def taken(window: Sequence[Any]) -> Any:
            self.windows.append(list(window))
            return take(window)

        trainer.take_step = taken


def context(kind: type[MLP] = MLP) -> StepContext:
    return plain(built(kind), Points()).step_context


def note(**fields: Any) -> FailureNote:
    return FailureNote(**{"step": 3, "epoch": 0, "batch": 2, "error": "ValueError: no", **fields})


def states(path: Path) -> dict[str, Any]:
    return checkpoint.read(path)[1]


def test_everything_of_the_step_is_kept(tmp_path: Path) -> None:
    trainer = plain(built(MLP), Points(), until=2)
    trainer.fit()
    trainer.stepper.has_stepped = False  # as the loop sets it before each step
    generators = seeding.rng_state()
    before = {name: bits(part.state_dict()) for name, part in trainer.parts().items()}
    before["rank-0"] = bits({"rng": generators})
    window = [[torch.randn(4, 6), torch.arange(4)], {"name": "a", "array": np.arange(3), "nested": (1, None)}]
    torch.rand(5)  # the step's own
    path = BlackBoxRecorder(tmp_path / "blackbox", 2).keep(
        trainer.step_context, note(samples=[5, 1], checkpoint=4), window, generators=generators
    )
    assert path is not None
    box = black_box.newest_box(tmp_path / "blackbox")
    assert box is not None and box.path == path and box.has_state and box.has_batch
    assert box.note.samples == [5, 1] and box.note.checkpoint == 4 and box.note.left_out == []
    assert box.note.stack["torch"] == torch.__version__
    info, found = checkpoint.read(path)
    assert (info.step, info.session, info.reason) == (2, 2, "blackbox")
    assert {name: bits(found[name]) for name in before} == before
    assert bits(found["batch"]) == bits({"window": window})


def test_the_generators_of_the_step_are_kept_by_a_trainer(tmp_path: Path) -> None:
    class Fails(MLP):
        def loss(self, batch: Any) -> Any:
            found = super().loss(batch)
            if self.progress.step == 5:
                raise ValueError(float(found["loss"].detach()))
            return found

    recovery = Recovery(black_box=BlackBoxRecorder(tmp_path / "blackbox", 1), session=1)
    trainer = plain(built(Fails), Points(), until=9, recovery=recovery)
    with pytest.raises(ValueError) as failed:
        trainer.fit()
    found = states(checkpoint.checkpoint_folder(tmp_path / "blackbox", 0))
    again = plain(built(Fails, seed=9), Points(), until=9)
    for name in ("model", "optimizers", "trainer"):
        again.parts()[name].load_state_dict(found[name])
    seeding.set_rng_state(found["rank-0"]["rng"])
    with pytest.raises(ValueError, match=str(failed.value)):
        again.take_step(found["batch"]["window"])


def test_the_newest_three_stay(tmp_path: Path) -> None:
    box, trainer = BlackBoxRecorder(tmp_path, 1), plain(built(MLP), Points())
    for step in range(1, 6):
        box.keep(trainer.step_context, note(step=step), None, generators=None)
    assert [found.note.step for found in black_box.read_boxes(tmp_path)] == [5, 4, 3]
    assert not any(found.has_state or found.has_batch for found in black_box.read_boxes(tmp_path))


@pytest.mark.parametrize(
    ("held", "named"),
    [
        (object(), "builtins.object"),
        (Point(1, 2), "test_black_box_recorder.Point"),
        (torch.nn.Parameter(torch.ones(2)), "torch.nn.parameter.Parameter"),
        (torch.ones(2).to_sparse(), "sparse"),
        (np.array([object()]), "object"),
    ],
)
def test_a_batch_that_would_come_back_as_something_else_is_left_out(
    tmp_path: Path, held: Any, named: str, messages: Messages
) -> None:
    path = BlackBoxRecorder(tmp_path, 1).keep(
        context(),
        note(),
        [[torch.ones(2), {"held": held}]],
        generators=seeding.rng_state(),
    )
    box = black_box.newest_box(tmp_path)
    assert path is not None and box is not None and box.has_state and not box.has_batch
    (why,) = box.note.left_out
    assert named in why
    messages.check(why)


def test_a_state_that_cannot_be_read_leaves_the_batch(tmp_path: Path, messages: Messages) -> None:
    class Gone(MLP):
        def get_extra_state(self) -> Any:
            raise RuntimeError("CUDA error: device-side assert triggered\nand more")

    path = BlackBoxRecorder(tmp_path, 1).keep(
        context(Gone), note(), [torch.ones(2)], generators=seeding.rng_state()
    )
    box = black_box.newest_box(tmp_path)
    assert path is not None and box is not None and not box.has_state and box.has_batch
    (why,) = box.note.left_out
    assert why.endswith("RuntimeError: CUDA error: device-side assert triggered")
    messages.check(why)


def test_a_state_that_no_checkpoint_holds_leaves_the_batch(tmp_path: Path) -> None:
    class Odd(MLP):
        def get_extra_state(self) -> Any:
            return object()

    BlackBoxRecorder(tmp_path, 1).keep(context(Odd), note(), [torch.ones(2)], generators=seeding.rng_state())
    box = black_box.newest_box(tmp_path)
    assert box is not None and not box.has_state and box.has_batch
    assert "builtins.object" in box.note.left_out[0]
    assert [path.name for path in tmp_path.iterdir()] == ["state_0.ckpt"]


def test_after_an_optimizer_has_moved_there_is_no_state_to_keep(tmp_path: Path) -> None:
    step = context()
    step.stepper.has_stepped = True
    BlackBoxRecorder(tmp_path, 1).keep(step, note(), [torch.ones(2)], generators=seeding.rng_state())
    box = black_box.newest_box(tmp_path)
    assert box is not None and not box.has_state and box.has_batch


def test_a_full_disk_is_said_and_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "fault", full)
    box = BlackBoxRecorder(tmp_path / "blackbox", 1)
    assert box.keep(context(), note(), None, generators=seeding.rng_state()) is None
    said = capsys.readouterr().out
    assert "No space left" in said and said.count("\n") == 1
    messages.check(said)
    assert list((tmp_path / "blackbox").iterdir()) == []


def test_in_a_package_that_is_gone_nothing_is_kept(tmp_path: Path) -> None:
    box = BlackBoxRecorder(tmp_path / "gone" / "blackbox", 1)
    assert box.keep(context(), note(), None, generators=seeding.rng_state()) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_window_is_drawn_again_bit_for_bit(accumulation: int) -> None:
    seen, runner = Seen(), built(MLP)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), accumulation=accumulation)
    trainer = plain(runner, Points(), [seen], until=5, stepper=stepper)
    trainer.fit()
    before = bits(seeding.rng_state())
    place = 0
    for number, window in enumerate(seen.windows):
        epoch, batch = divmod(place, 7)
        note = FailureNote(step=number + 1, epoch=epoch, batch=batch, num_batches=len(window), samples=[])
        again = redraw_window(trainer.loaders["train"], trainer.runner.to_device, note)
        assert bits(list(again)) == bits(list(window)), number
        place += len(window)
    assert bits(seeding.rng_state()) == before


def test_the_samples_of_a_window() -> None:
    drawn = loader(Points())
    order = drawn.plan.order(2).tolist()
    assert drawn.sample_indices(2, 1, 2) == order[4:12]
    assert drawn.sample_indices(2, 6, 1) == order[24:]
    assert drawn.sample_indices(2, 6, 3) == order[24:]  # an epoch ends with its last batch
