from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from roost.base.errors import PeerLost, TrainingError
from roost.package.results import skipped_steps
from roost.train.data.stream import Stream
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.distributed.ranks import Ranks
from roost.train.failures import failed_step
from roost.train.failures.recovery import Recovery
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from tests.messages import Messages
from tests.train.parts import MLP, Still, built, loader, plain
from tests.train.team import team


class Items(torch.utils.data.IterableDataset[Any]):
    """Its fifth item cannot be read."""

    def __iter__(self) -> Any:
        still = Still()
        for index in range(8):
            if index == 4:
                raise OSError("a sector of the disk")
            yield still[index]


def test_what_has_no_indices_cannot_pass_over_an_item(tmp_path: Path, messages: Messages) -> None:
    """The step after would fail by the same item, and so would all others."""
    runner = built(MLP)
    stepper = Stepper(
        torch.optim.SGD(runner.parameters(), lr=0.1), guard=NonfiniteGuard(runner, checks_step=False)
    )
    trainer = plain(
        runner,
        Still(),
        loaders={"train": Stream(Items(), batch_size=2, num_batches=4)},
        stepper=stepper,
        recovery=Recovery(on_step_error="skip", log=tmp_path / skipped_steps.NAME),
    )
    with pytest.raises(OSError, match="a sector") as info:
        trainer.fit()
    for note in info.value.__notes__:
        messages.check(note)
    assert trainer.progress.step == 2 and not (tmp_path / skipped_steps.NAME).exists()


@pytest.mark.parametrize(
    ("error", "by_the_machine"),
    [
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), True),
        (WorkerDied("loader worker 0 is gone"), True),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."), True),
        (ValueError("a rotten sample"), False),
    ],
)
def test_what_another_time_would_not_fail(error: Exception, by_the_machine: bool, messages: Messages) -> None:
    found = failed_step.machine_cause(error)
    assert bool(found) == by_the_machine
    messages.check(found)


def test_a_rank_hears_whether_another_one_failed_by_the_machine(messages: Messages) -> None:
    """Only then another time it might not, so that the run is inexact."""
    codes = [failed_step.failure_code(error) for error in (None, ValueError("rotten"), MemoryError())]
    assert codes == [0, 1, 2]
    for others, by_the_machine in ([0, 1], False), ([0, 2], True):
        error = failed_step.peer_error(others, "failed in this step")
        assert str(error) == "rank 1 failed in this step"
        assert bool(failed_step.machine_cause(error)) == by_the_machine
    assert failed_step.machine_cause(PeerLost("rank 1 is gone")) == failed_step.machine_cause(error)
    messages.check(failed_step.machine_cause(error))


def test_of_two_that_fail_in_one_step_one_by_the_machine_is_heard_of_by_both() -> None:
    def work(ranks: Ranks) -> str:
        return failed_step.machine_cause_on_any_rank(
            ranks, MemoryError() if ranks.rank else ValueError("rotten")
        )

    peer, own = team(2, work)
    assert peer == failed_step.machine_cause(PeerLost("rank 1 is gone"))
    assert own == failed_step.machine_cause(MemoryError())


def test_the_frames_of_an_error_are_let_go() -> None:
    class Large:
        pass

    def fails() -> None:
        held = Large()
        kept.append(weakref.ref(held))
        raise KeyError

    kept: list[Any] = []
    try:
        try:
            fails()
        except KeyError as error:
            raise ValueError from error
    except ValueError as error:
        assert kept[0]() is not None
        failed_step.clear_traceback_frames(error)
        gc.collect()
        assert kept[0]() is None


def test_weights_that_are_not_finite_are_named(messages: Messages) -> None:
    runner = built(MLP)
    trainer = plain(runner, Still())
    assert failed_step.describe_nonfinite_weights(trainer.runner) == ""
    with torch.no_grad():
        next(runner.parameters())[0, 0] = torch.nan
    text = failed_step.describe_nonfinite_weights(trainer.runner)
    assert next(name for name, _ in runner.named_parameters()) in text
    messages.check(text)


def test_an_epoch_without_a_sample_is_an_error(messages: Messages) -> None:
    nothing = {"train": loader(Still(), collate=lambda samples: None)}
    trainer = plain(built(MLP), Still(), loaders=nothing, until="2ep")
    with pytest.raises(TrainingError) as raised:
        trainer.fit()
    messages.check(raised.value)
    assert trainer.progress.step < trainer.steps_per_epoch
