"""Going back to a step gives the bits that the run had there, and changes nothing in its package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, UsageError
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.results import black_box, skipped_steps
from roost.package.results.black_box import BlackBox, DebugTarget, FailureNote
from roost.project.package_context import package_code
from roost.train.hook import Hook, Phase
from roost.train.hooks import Validate
from roost.train.trainer import Trainer
from roost.worker.debug import replay
from roost.worker.debug.replay import PackageAsOfSession
from tests.messages import Messages
from tests.project.projects import DATASET, project
from tests.project.trained import trained
from tests.train.parts import state_of


class Here(BaseException):
    """The step is reached."""


class StopBefore(Hook):
    """Keeps the state before a step."""

    phase = Phase.REPORT

    def __init__(self, step: int) -> None:
        self.step, self.first = step, -1
        self.state: dict[str, Any] = {}

    def on_start(self, trainer: Trainer) -> None:
        self.first = trainer.progress.step

    def before_step(self, trainer: Trainer) -> None:
        if trainer.progress.step + 1 == self.step:
            self.state = state_of(trainer)
            raise Here


def target(step: int, **fields: Any) -> DebugTarget:
    return DebugTarget(**{"step": step, "session": 1, "device": "cpu", **fields})


def went(made: PackageFolder, where: DebugTarget, box: BlackBox | None = None) -> StopBefore:
    """The hook at a step of a package."""
    package, hook = PackageAsOfSession(made.path, where.session), StopBefore(where.step)
    start = replay.find_start(package, where, box)
    with (
        package_code(made),
        replay.replay_trainer(package, where, start, device="cpu", hook=hook) as trainer,
        pytest.raises(Here),
    ):
        trainer.fit()
    return hook


def saved(made: PackageFolder, step: int) -> int:
    """The id of the checkpoint of a step."""
    return next(info.id for info in checkpoint.read_manifests(made.checkpoints) if info.step == step)


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in found}


def same(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    """But for what follows from having no checkpoints: saves that are owed, or counted."""
    parts = ("model", "optimizers", "rank-0")
    return all(ours[name] == theirs[name] for name in parts)


def test_every_step_from_everywhere_has_the_same_bits(tmp_path: Path) -> None:
    made = trained(tmp_path, max_steps=8)
    before = files(made.path)
    for step in (3, 6, 8):
        from_seed = went(
            made, target(step), BlackBox(made.path, FailureNote(step=step, epoch=0, batch=0), False, False)
        )
        newest = went(made, target(step))
        older = went(made, target(step, checkpoint=saved(made, 2)))
        assert (from_seed.first, older.first) == (0, 2) and newest.first == (step - 1) // 2 * 2
        assert same(from_seed.state, newest.state) and same(older.state, newest.state), step
    assert files(made.path) == before


def test_it_has_the_bits_of_the_run_itself(tmp_path: Path) -> None:
    made = trained(tmp_path, max_steps=8)
    hook = went(made, target(7, checkpoint=saved(made, 2)))
    _, states = checkpoint.read(made.store().path(saved(made, 6)))
    other = StopBefore(7)
    package = PackageAsOfSession(made.path, 1)
    start = replay.ReplayStart(made.store().lineage()[-2], states, is_box=False, notes=[])
    with (
        package_code(made),
        replay.replay_trainer(package, target(7), start, device="cpu", hook=other) as trainer,
        pytest.raises(Here),
    ):
        trainer.fit()
    assert other.first == 6 and same(hook.state, other.state)


def test_a_validation_that_a_scheduler_counts_is_taken_again(tmp_path: Path) -> None:
    scheduler = {
        "class": "torch.optim.lr_scheduler.StepLR",
        "step_size": 1,
        "gamma": 0.5,
        "unit": "validation",
    }
    optimizer = {"class": "torch.optim.SGD", "lr": 0.1, "scheduler": scheduler}
    made = trained(tmp_path, max_steps=8, validate_every="3", optimizers={"main": optimizer})
    hook = went(made, target(8, checkpoint=saved(made, 2)))
    assert same(hook.state, went(made, target(8, checkpoint=saved(made, 6))).state)


OWN = """
class MySgd(torch.optim.SGD):
    pass

def noam(step):
    return (step + 1) ** -0.5
"""


def test_an_optimizer_and_a_schedule_of_the_packages_own_files(tmp_path: Path) -> None:
    scheduler = {"class": "torch.optim.lr_scheduler.LambdaLR", "lr_lambda": "Dataset.py:noam"}
    optimizer = {"class": "Dataset.py:MySgd", "lr": 0.1, "scheduler": scheduler}
    made = trained(tmp_path, dataset=DATASET + OWN, max_steps=8, optimizers={"main": optimizer})
    hook = went(made, target(8, checkpoint=saved(made, 2)))
    assert same(hook.state, went(made, target(8)).state)


def test_damaged_ones_are_passed_over_and_stay(tmp_path: Path, messages: Messages) -> None:
    made = trained(tmp_path, max_steps=8)
    bad = made.store().path(saved(made, 6))
    (bad / "model.safetensors").write_bytes(b"")
    before = files(made.path)
    start = replay.find_start(PackageAsOfSession(made.path, 1), target(8), None)
    assert start.info is not None and start.info.step == 4 and start.name == f"checkpoint {start.info.id}"
    assert len(start.notes) == 1 and "model.safetensors" in start.notes[0]
    messages.check(start.notes[0])
    assert went(made, target(8)).first == 4
    assert files(made.path) == before


def test_a_box_begins_with_its_own_state(tmp_path: Path, messages: Messages) -> None:
    made = trained(tmp_path, max_steps=4)
    _, states = checkpoint.read(made.store().path(saved(made, 2)))
    path = made.blackbox
    path.mkdir()
    info = checkpoint.Manifest(id=0, step=2, epoch=0, batch=2)
    note = {"note": {"step": 3, "epoch": 0, "batch": 2}}
    checkpoint.write(path, {**states, **note}, info)
    box = black_box.newest_box(path)
    assert box is not None
    start = replay.find_start(PackageAsOfSession(made.path, 1), target(3), box)
    assert start.is_box and "checkpoint" not in start.name
    hook = went(made, target(3), box)
    assert hook.first == 2 and same(hook.state, went(made, target(3)).state)
    other = replay.find_start(PackageAsOfSession(made.path, 1), target(3, checkpoint=saved(made, 2)), box)
    assert not other.is_box
    (box.path / "model.json").write_bytes(b"{}")
    instead = replay.find_start(
        PackageAsOfSession(made.path, 1), target(3), box._replace(note=FailureNote(step=3, epoch=0, batch=2))
    )
    assert instead.info is None and "model.json" in instead.notes[0]
    messages.check(instead.notes[0])


def test_the_line_of_a_box_is_that_of_its_own_checkpoint(tmp_path: Path) -> None:
    """Also where the run has gone on from an older one since."""
    made = project(tmp_path)

    def info(id: int, step: int, line: list[tuple[int, int]]) -> None:
        checkpoint.write(
            made.checkpoints,
            {"model": {}},
            checkpoint.Manifest(id=id, step=step, epoch=0, batch=0, line=line),
        )

    info(0, 2, [(0, 0)])
    info(1, 4, [(0, 1)])
    info(3, 8, [(0, 3)])  # 2, of step 6, is gone
    info(4, 4, [(0, 0), (4, 4)])  # another branch

    def chosen(step: int, tip: int | None) -> int | None:
        box = BlackBox(made.path, FailureNote(step=step, epoch=0, batch=0, checkpoint=tip), False, False)
        found = replay.find_start(PackageAsOfSession(made.path, 1), target(step), box).info
        return found.id if found is not None else None

    assert chosen(9, 3) == 3 and chosen(7, 2) == 1 and chosen(3, 1) == 0
    assert chosen(5, 4) == 4 and chosen(4, 4) == 0 and chosen(2, 0) is None and chosen(9, None) is None
    assert chosen(9, 7) is None
    found = replay.find_start(PackageAsOfSession(made.path, 1), target(9), None).info
    assert found is not None and found.id == 4


def test_a_checkpoint_of_a_later_step_is_refused(tmp_path: Path, messages: Messages) -> None:
    made = trained(tmp_path, max_steps=4)
    id = saved(made, 4)
    with pytest.raises(UsageError, match=f"checkpoint {id} .*step 4.*step 4") as refused:
        replay.find_start(PackageAsOfSession(made.path, 1), target(4, checkpoint=id), None)
    messages.check(refused.value)
    with pytest.raises(NotFound, match="checkpoint 77") as refused:
        replay.find_start(PackageAsOfSession(made.path, 1), target(4, checkpoint=77), None)
    messages.check(refused.value)


def test_a_run_that_only_measured_has_no_steps(tmp_path: Path, messages: Messages) -> None:
    made = project(tmp_path, step_mode="dry")
    with (
        package_code(made),
        pytest.raises(Refused) as refused,
        replay.replay_trainer(
            PackageAsOfSession(made.path, 1),
            target(2),
            replay.ReplayStart(None, {}, is_box=False, notes=[]),
            device="cpu",
            hook=StopBefore(2),
        ),
    ):
        pass
    messages.check(refused.value)


def test_settings_are_those_of_the_session(tmp_path: Path) -> None:
    made = trained(tmp_path, max_steps=4)
    made.new_session({"project": str(tmp_path), "overrides": ["width=9"], "kind": "python"})
    assert made.settings["width"] == 9
    assert (
        PackageAsOfSession(made.path, 1).settings["width"] == 3
        and PackageAsOfSession(made.path, 2).settings["width"] == 9
    )


def test_windows_that_a_rollback_passed_over_are_passed_over_again(tmp_path: Path) -> None:
    made = trained(tmp_path, max_steps=8, on_non_finite="rollback")
    for session, step, kind in ((1, 5, "rollback"), (1, 7, "rollback"), (1, 3, "error"), (2, 4, "rollback")):
        fields: Any = {"session": session, "step": step, "kind": kind}
        skipped_steps.append(
            made.path / skipped_steps.NAME,
            skipped_steps.SkippedStep(**fields, epoch=0, batch=0, error="", samples=[]),
        )
    package, hook = PackageAsOfSession(made.path, 1), StopBefore(7)
    start = replay.find_start(package, target(7), None)
    with (
        package_code(made),
        replay.replay_trainer(package, target(7), start, device="cpu", hook=hook) as trainer,
    ):
        assert trainer.recovery.rolled_back_steps == {5}
        (validate,) = (one for one in trainer.calls.hooks if isinstance(one, Validate))
        assert not validate.probes, "a validation set's first batch may fail as the step does"
        with pytest.raises(Here):
            trainer.fit()
