"""Saving now, and when the disk does not want to; that a save is exact is proven in test_trainer."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from roost.base import durable
from roost.base.errors import TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.retention import RetentionPolicy
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.checkpointing.staging import Staging
from roost.train.hook import Hook, Phase
from roost.train.hooks import Averaging, Console, Save
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, Still, built, plain


def full_disk(operation: str, path: str) -> None:
    if operation == "write" and "Checkpoints" in path:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_without_checkpoints_nothing_is_saved() -> None:
    assert plain(built(MLP), Still(), until=3).save("requested") is False


def test_a_full_disk_is_said_and_forgets_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    place = tmp_path / "Checkpoints"
    checkpoints = Checkpoints(place, asynchronous=False)
    trainer = plain(built(MLP), Still(), [Save("100")], until=3, checkpoints=checkpoints)
    trainer.request_save(hold=True)
    monkeypatch.setattr(durable, "fault", full_disk)
    assert trainer.save("held") is False
    messages.check(capsys.readouterr().out)
    assert not trainer.requested("hold"), "a later save is not held in its place"
    trainer.request_stop("test")
    with pytest.raises(TrainingError, match=r"\[Errno 28\].*`roost continue`") as caught:
        trainer.save("signal")
    messages.check(caught.value)
    monkeypatch.setattr(durable, "fault", None)
    assert trainer.save("signal") is True
    assert [(info.reason, info.held) for info in checkpoint.read_manifests(place)] == [("signal", False)]


# --- beside the training ----------------------------------------------------------------------------------


class Wide(MLP):
    """Large enough that its state is copied beside the next forward and backward."""

    def build(self) -> None:
        super().build()
        self.wide = nn.Linear(1100, 1100)

    def loss(self, batch: Any) -> Any:
        values = dict(super().loss(batch))
        return {**values, "loss": values["loss"] + self.wide(torch.ones(1, 1100)).square().mean()}


class Renorms(MLP):
    """Its forward pass changes a parameter."""

    def build(self) -> None:
        super().build()
        self.table = nn.Embedding(1500, 800, max_norm=0.5)

    def loss(self, batch: Any) -> Any:
        values = dict(super().loss(batch))
        return {**values, "loss": values["loss"] + self.table(torch.arange(1500)).square().sum()}


class RenormsLater(Renorms):
    """It does so from step 4 on."""

    def loss(self, batch: Any) -> Any:
        self.table.max_norm = 0.5 if self.progress.step >= 3 else None
        return super().loss(batch)


class Follows(Wide):
    """A teacher that no optimizer moves follows in the forward pass, unseen by torch."""

    def build(self) -> None:
        super().build()
        self.teacher = nn.Linear(6, 2)
        self.teacher.requires_grad_(False)

    def loss(self, batch: Any) -> Any:
        self.teacher.weight.data.mul_(0.9).add_(self.wide.weight.data[:2, :6])
        return super().loss(batch)


class Shrinks(Wide):
    """Its forward pass changes what an optimizer moves, unseen by torch."""

    def loss(self, batch: Any) -> Any:
        self.wide.weight.data.mul_(0.999)
        return super().loss(batch)


class Looks(Hook):
    """Notes after which steps a state is still being copied."""

    phase = Phase.REPORT

    def __init__(self) -> None:
        self.late: list[int] = []

    def on_step(self, trainer: Trainer) -> None:
        if trainer.checkpointer.is_copying:
            self.late.append(trainer.progress.step)


def run_of(kind: type[MLP], folder: Path, *hooks: Hook, asynchronous: bool, until: int = 6) -> Trainer:
    runner = built(kind)
    stepper = Stepper(torch.optim.Adam(runner.parameters(), lr=0.01))
    place = Checkpoints(folder, RetentionPolicy(fast=100), asynchronous=asynchronous)
    looks = [Save("2"), Averaging("ema"), *hooks]
    trainer = plain(runner, Still(), looks, until=until, stepper=stepper, checkpoints=place)
    assert trainer.fit() == "finished"
    return trainer


def digests(folder: Path) -> list[tuple[int, dict[str, str]]]:
    """Of each checkpoint its step, and what its files hold but for times."""
    found = []
    for info in checkpoint.read_manifests(folder):
        checkpoint.verify(checkpoint.checkpoint_folder(folder, info.id))
        text = json.loads((checkpoint.checkpoint_folder(folder, info.id) / "trainer.json").read_text())
        text["progress"]["seconds"] = 0.0
        files = {name: entry["sha256"] for name, entry in info.files.items() if name != "trainer.json"}
        found.append((info.step, {**files, "trainer.json": json.dumps(text)}))
    return found


def copies_late(staging: Staging, copy: Any = Staging.copy_deferred) -> None:
    """As on a busy machine: the forward pass is over by then."""
    time.sleep(0.02)
    copy(staging)


@pytest.mark.parametrize(
    ("kind", "late"), [(MLP, []), (Wide, [2, 4]), (Renorms, []), (Follows, [2, 4]), (Shrinks, [])]
)
def test_written_beside_the_training_every_byte_is_as_written_before_it_goes_on(
    tmp_path: Path, kind: type[MLP], late: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Staging, "copy_deferred", copies_late)
    looks = Looks()
    run_of(kind, tmp_path / "beside", looks, asynchronous=True)
    run_of(kind, tmp_path / "before", asynchronous=False)
    beside, before = digests(tmp_path / "beside"), digests(tmp_path / "before")
    assert [step for step, _ in beside] == [2, 4, 6] and beside == before
    assert [step for step in looks.late if kind is not MLP] == late


def test_a_state_that_forward_changes_unforeseen_is_not_written_torn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy of step 4 would hold some of step 5: it is given up, and step 5 is saved instead."""

    run_of(RenormsLater, tmp_path / "before", Saves5(), asynchronous=False)
    capsys.readouterr()
    run_of(RenormsLater, tmp_path / "beside", asynchronous=True)
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "checkpoint" in said
    before = dict(digests(tmp_path / "before"))
    beside = dict(digests(tmp_path / "beside"))
    assert beside.keys() in ({2, 5, 6}, {2, 6}) and 4 not in beside
    for step, files in beside.items():
        assert files["model.safetensors"] == before[step]["model.safetensors"], step


class Saves5(Hook):
    """Asks for one more save."""

    phase = Phase.SCHEDULE

    def on_step(self, trainer: Trainer) -> None:
        if trainer.progress.step == 5:
            trainer.request_save()


def test_the_last_save_fails_the_run_also_where_one_before_it_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(durable, "fault", full_disk)
    with pytest.raises(TrainingError, match=r"\[Errno 28\].*`roost continue`"):
        run_of(MLP, tmp_path / "Checkpoints", asynchronous=True)
    assert capsys.readouterr().out.count("[Errno 28]") == 2


def test_the_last_save_that_fails_names_the_step_to_go_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    """And is reported once, where it is caught: the run has failed, though it took its last step."""

    class Fills(Hook):
        phase = Phase.SCHEDULE

        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step == 3:
                monkeypatch.setattr(durable, "fault", full_disk)

    hooks = [Save("2"), Fills(), Console()]
    place = Checkpoints(tmp_path / "Checkpoints", asynchronous=False)
    trainer = plain(built(MLP), Still(), hooks, until=3, checkpoints=place)
    with pytest.raises(TrainingError, match=r"`roost continue`.*\bstep 2$") as raised:
        trainer.fit()
    assert trainer.has_failed and "[Errno 28]" not in capsys.readouterr().out
    messages.check(raised.value)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_where_the_folder_was_removed_a_run_ends_at_its_next_save(
    tmp_path: Path, asynchronous: bool, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    place, steps = tmp_path / "runs" / "one" / "Checkpoints", []

    class Removes(Hook):
        phase = Phase.SCHEDULE

        def on_step(self, trainer: Trainer) -> None:
            steps.append(trainer.progress.step)
            if trainer.progress.step == 3:
                trainer.checkpointer.finish()
                shutil.rmtree(place.parent)

    checkpoints = Checkpoints(place, asynchronous=asynchronous)
    trainer = plain(built(MLP), Still(), [Save("2"), Removes()], until=99, checkpoints=checkpoints)
    with pytest.raises(TrainingError) as raised:
        trainer.fit()
    assert raised.value.where == place
    messages.check(raised.value)
    assert steps[-1] in (4, 5, 6), "one that is written beside it is heard of at the next save at the latest"
    assert not place.parent.exists() and capsys.readouterr().out == ""


def test_a_run_that_fails_while_it_saves_leaves_what_it_saved(tmp_path: Path) -> None:
    class Fails(Hook):
        phase = Phase.REPORT

        def on_step(self, trainer: Trainer) -> None:
            if trainer.progress.step == 4:
                raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        run_of(Wide, tmp_path, Fails(), asynchronous=True)
    assert [step for step, _ in digests(tmp_path)] == [2, 4]


def killed_at(number: int) -> durable.Fault:
    """Kills this process at the call of that number, from 0."""
    left = iter(range(number))

    def fault(operation: str, path: str) -> None:
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault


def test_killed_at_any_instant_of_a_save_the_previous_one_remains(tmp_path: Path) -> None:
    """In the thread that writes, at each call that changes the disk; and then the run goes on."""
    operations: list[str] = []
    durable.fault = lambda operation, path: operations.append(operation)
    try:
        run_of(MLP, tmp_path / "counted", asynchronous=True, until=3)
    finally:
        durable.fault = None
    whole = digests(tmp_path / "counted")
    assert [step for step, _ in whole] == [2, 3] and len(operations) > 20
    committed = operations.index("rename") + 1
    for number in sorted({*range(0, len(operations), 7), committed - 1, committed}):
        folder = tmp_path / str(number)
        pid = os.fork()
        if not pid:
            durable.fault = killed_at(number)
            run_of(MLP, folder, asynchronous=True, until=3)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
        assert digests(folder) == whole[: number >= committed]
    run_of(MLP, folder, asynchronous=True, until=3)
    assert digests(folder) == whole and not list(folder.glob(".*")), "it goes on, and sweeps what is left"
