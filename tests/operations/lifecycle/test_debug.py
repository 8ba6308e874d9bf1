"""What the command becomes, and what it refuses before it does."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.devices import inventory, lease_files
from roost.devices import lease as leases
from roost.devices.lease import LeaseHolder
from roost.operations.lifecycle.debug import DebugProgram, DebugRequest, debug
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.results import black_box
from roost.package.results.black_box import DebugTarget, FailureNote
from tests.messages import Messages
from tests.operations.packages import package, record_rows, session


def asked(made: PackageFolder, **fields: object) -> tuple[DebugProgram, DebugTarget]:
    program = debug(DebugRequest(package=made.path, **fields))  # type: ignore[arg-type]
    return program, msgspec.json.decode(program.argv[-1], type=DebugTarget)


def box(made: PackageFolder, step: int, *, session: int = 1) -> str:
    """A black box of the package; gives its name."""
    durable.make_folder(made.blackbox, exist_ok=True)
    id = checkpoint.next_id(made.blackbox)
    note = FailureNote(step=step, epoch=0, batch=0, session=session)
    trees = {black_box.NOTE: msgspec.to_builtins(note)}
    checkpoint.write(made.blackbox, trees, Manifest(id=id, step=step - 1, epoch=0, batch=0))
    return checkpoint.checkpoint_folder(made.blackbox, id).name


def test_the_step_that_failed_last(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="failed")
    box(made, 12)
    name = box(made, 31, session=1)
    program, visit = asked(made)
    assert visit == DebugTarget(step=31, session=1, box=name, device="auto", project=str(made.project))
    assert program.argv[1:-1] == ["-P", "-m", "roost.worker", str(made.path), "debug"]
    assert program.folder == made.path and program.notes == []
    assert program.env["PYTHONHASHSEED"] == "0" and program.env["PYTHONDONTWRITEBYTECODE"] == "1"
    assert asked(made, step=12)[1].box == "state_0.ckpt" and asked(made, step=12, begin=True)[1].begin
    assert asked(made, replay=True)[1].replay and not visit.replay


def test_several_ranks_took_it(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="new")
    made.new_session({"overrides": [], "ranks": 3, "strategy": "ddp", "device": "cpu"})
    program, _ = asked(made, step=1)
    (note,) = program.notes
    assert "3 ranks (ddp)" in note
    messages.check(note)


def test_any_other_step_is_stopped_at_before_it(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    box(made, 12)
    _, visit = asked(made, step=13)
    assert (visit.step, visit.box, visit.begin) == (13, None, True)


def test_the_session_is_the_one_that_took_the_step(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    record_rows(made, session(made, "failed"), 20, [])
    assert [asked(made, step=step)[1].session for step in (1, 20, 21, 30)] == [1, 1, 2, 2]


def test_the_device_is_that_of_the_session(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    made.new_session({"device": "cuda"})
    assert asked(made, step=5)[1].device == "auto"
    record_rows(made, 2, 20, [])
    assert asked(made, step=25)[1].device == "cuda"
    program, visit = asked(made, step=25, device="cpu")
    assert visit.device == "cpu" and program.env["CUDA_VISIBLE_DEVICES"] == ""


def test_a_step_that_the_run_has_not_come_to_is_said(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    assert asked(made, step=31)[0].notes == []
    (note,) = asked(made, step=32)[0].notes
    assert "step 30" in note
    messages.check(note)


def test_where_nothing_failed_a_step_is_to_be_named(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    with pytest.raises(NotFound) as refused:
        asked(made)
    assert f"roost debug {made.path} STEP" in str(refused.value)
    assert refused.value.where == made.path
    messages.check(refused.value)


def test_several_ranks_keep_no_step(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    made.new_session({"ranks": 2, "strategy": "ddp"})
    with pytest.raises(NotFound) as refused:
        asked(made)
    assert all(fact in str(refused.value) for fact in ("2 ranks (ddp)", f"roost debug {made.path} STEP"))
    messages.check(refused.value)


def test_a_checkpoint_or_project_that_is_not_there(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    box(made, 12)
    assert asked(made, checkpoint=0)[1].checkpoint == 0
    with pytest.raises(NotFound) as refused:
        asked(made, checkpoint=9)
    assert all(fact in str(refused.value) for fact in (" 9", "0, 1, 2"))
    assert refused.value.where == made.path
    with pytest.raises(NotFound) as refused:
        asked(made, project=tmp_path / "gone")
    assert refused.value.setting == "--project"
    assert str(tmp_path / "gone") in str(refused.value)
    assert asked(made, project=tmp_path)[1].project == str(tmp_path)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        debug(DebugRequest(package=tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(Refused):
        debug(DebugRequest(package=tmp_path / "file"))


def test_it_leases_an_unleased_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """Until it has ended itself: it inherits the lease."""
    monkeypatch.setenv("ROOST_DEVICES", "sim:2x24GB")
    monkeypatch.setenv(lease_files.VARIABLE, str(tmp_path / "leases"))
    made = package(tmp_path / "runs")
    box(made, 12)
    first, other = inventory.read_cards()
    taken = leases.take([first], None, LeaseHolder.this_process())
    program, _ = asked(made)
    assert program.env["ROOST_LEASE"] == program.leases.token
    (lease,) = lease_files.live_leases(other.id)
    assert (lease.token, lease.record.package) == (program.leases.token, str(made.path))
    with pytest.raises(leases.CardsBusy) as refused:
        asked(made)
    assert all(fact in str(refused.value) for fact in ("GPU 0", "-CPU"))
    messages.check(refused.value.fix)
    assert asked(made, device="cpu")[0].leases.fds == ()
    (read_fd, ready_fd), (go_fd, write_fd) = os.pipe(), os.pipe()
    code = f"import os; os.write({ready_fd}, b'1'); os.read({go_fd}, 1)"
    child = os.fork()
    if child == 0:
        os.close(write_fd)
        for fd in (ready_fd, go_fd):
            os.set_inheritable(fd, True)
        replace(program, argv=[sys.executable, "-c", code]).replace_process()
    for fd in (ready_fd, go_fd):
        os.close(fd)
    program.leases.close()
    taken.close()
    assert os.read(read_fd, 1) == b"1" and len(lease_files.live_leases(other.id)) == 1
    os.close(write_fd)
    os.waitpid(child, 0)
    os.close(read_fd)
    assert lease_files.live_leases(other.id) == []
