"""A new package that goes on from a checkpoint of another one."""

from __future__ import annotations

import errno
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.errors import ConfigError, Damaged, NotFound, Refused, RoostError, UsageError
from roost.config import layers
from roost.operations.lifecycle.debug import DebugRequest, debug
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.package import lineage
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from roost.supervisor import guard_start
from tests.dlnest_project import dlnest_project
from tests.lab.labs import kill_guard
from tests.messages import Messages
from tests.operations.packages import UNFINISHED, VALUES, add_checkpoint, package, session


def forked(made: PackageFolder, **asked: Any) -> PackageFolder:
    """Forks it and ends that before it does anything: what was made is what counts here."""
    started = fork(ForkRequest(package=made.path, **asked))
    assert started.process is not None and started.is_new and started.session == 1
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()
    return PackageFolder.open(started.package)


def nothing_was_made(made: PackageFolder) -> None:
    assert [path.name for path in made.path.parent.iterdir()] == [made.path.name]


def seen(folder: Path) -> dict[str, tuple[int, ...]]:
    """All of a folder that a write to it would change."""
    found = {str(path): path.lstat() for path in [folder, *folder.rglob("*")]}
    return {name: (s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino) for name, s in found.items()}


def test_what_is_made(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    (made.path / "environment.json").write_text('{"stack": {"threads": 1}}')
    before = seen(made.path)
    new = forked(
        made, step=20, overrides=["optimizers.main.lr=0.5", "+mine=2"], name="new", description="try"
    )
    assert seen(made.path) == before, "nothing of the source changes"
    assert new.path == tmp_path / "runs" / "new" and (new.path / "_desc: try").is_file()
    assert new.args == {
        **UNFINISHED,
        "optimizers": {"main": {**VALUES["optimizers"]["main"], "lr": 0.5}},
        "mine": 2,
    }
    assert new.provenance["optimizers.main.lr"] == new.provenance["mine"] == "command line"
    assert new.manifest["files"] == made.manifest["files"] and not new.changed_files()
    (info,) = checkpoint.read_manifests(new.checkpoints)
    assert (info.id, info.step, info.session) == (1, 20, 0) and new.kept_ids() == {1}
    assert checkpoint.verify(checkpoint.checkpoint_folder(new.checkpoints, 1)) == info
    assert [row["step"] for row in new.records().rows] == [10, 20]
    assert (new.path / "environment.json").read_text() == (made.path / "environment.json").read_text()
    parent = lineage.parent_of(new)
    assert parent is not None and (parent.package, parent.path) == ("one", str(made.path))
    assert (parent.checkpoint, parent.step) == (1, 20)
    assert parent.sha256 == checkpoint.manifest_digest(checkpoint.checkpoint_folder(made.checkpoints, 1))
    mine, rate = map(str, parent.changed)
    assert mine.startswith("mine: ") and mine.endswith(" -> 2") and rate == "optimizers.main.lr: 0.1 -> 0.5"


def test_without_a_step_it_is_the_newest_and_the_name_is_the_time(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    new = forked(made)
    assert checkpoint.ids(new.checkpoints) == [2] and new.path.name.startswith("20")
    assert checkpoint.ids(forked(made, checkpoint=0, save_root=tmp_path / "other").checkpoints) == [0]
    assert len(list((tmp_path / "other").iterdir())) == 1


def test_the_settings_are_those_in_effect(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    request = json.loads((made.path / "sessions" / "1.request.json").read_text())
    (made.path / "sessions" / "1.request.json").write_text(
        json.dumps({**request, "overrides": ["max_epochs=9"]})
    )
    new = forked(made, overrides=["model.features=8"])
    assert new.args["max_epochs"] == 9
    assert "session 1" in new.provenance["max_epochs"]
    messages.check(new.provenance["max_epochs"])
    parent = lineage.parent_of(new)
    assert parent is not None and parent.changed == [], "what is as it was is no change"


def test_a_fork_of_a_fork_knows_all_before_it(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    first = forked(made, step=20, name="first")
    second = forked(first, name="second")
    shutil.rmtree(made.path)
    shutil.rmtree(first.path)
    assert [(one.package, one.step) for one in lineage.ancestry(second)] == [("first", 20), ("one", 20)]
    assert [row["step"] for row in second.records().rows] == [10, 20]


def test_a_run_that_goes_on_meanwhile(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    assert checkpoint.ids(forked(made).checkpoints) == [2]


def test_code_that_was_changed_in_the_package_runs_and_is_named(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    with (made.path / "Model" / "Runner.py").open("a") as file:
        file.write("# changed\n")
    new = forked(made)
    assert (new.path / "Model" / "Runner.py").read_text().endswith("# changed\n") and not new.changed_files()
    (inexact,) = new.sessions()[0].request["inexact"]
    assert inexact.startswith("Model/Runner.py ")
    messages.check(inexact)
    (made.path / "Model" / "Runner.py").unlink()
    with pytest.raises(ConfigError, match=r"Model/Runner\.py"):
        fork(ForkRequest(package=made.path))


@pytest.fixture
def removing() -> Iterator[list[Path]]:
    """Folders that are removed, one after the other, as soon as a checkpoint is being copied."""
    waiting: list[Path] = []

    def fault(operation: str, path: str) -> None:
        if operation == "open" and path.endswith("model.json") and waiting:
            shutil.rmtree(waiting.pop(0))

    durable.fault = fault
    yield waiting
    durable.fault = None


def test_a_checkpoint_that_its_run_removes_meanwhile(
    tmp_path: Path, removing: list[Path], messages: Messages
) -> None:
    made = package(
        tmp_path / "runs", state="running", rows=[{"step": s, "epoch": 1, "valid/loss": 1} for s in (1, 2, 3)]
    )
    removing.append(checkpoint.checkpoint_folder(made.checkpoints, 2))
    with pytest.raises(NotFound) as refused:
        fork(ForkRequest(package=made.path, step=3))
    assert all(fact in str(refused.value) for fact in ("state_2.ckpt", "2, 1"))
    assert refused.value.where == made.path
    messages.check(refused.value)
    nothing_was_made(made)
    removing.append(checkpoint.checkpoint_folder(made.checkpoints, 1))
    assert checkpoint.ids(forked(made).checkpoints) == [0], "then another one is copied"


def test_a_damaged_checkpoint(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    file = checkpoint.checkpoint_folder(made.checkpoints, 2) / "model.json"
    file.write_bytes(b"?" + file.read_bytes()[1:])
    with pytest.raises(Damaged) as refused:
        fork(ForkRequest(package=made.path, step=30))
    assert all(fact in str(refused.value) for fact in ("state_2.ckpt", "model.json", "20, 10"))
    assert refused.value.where == made.path
    messages.check(refused.value)
    nothing_was_made(made)
    started = fork(ForkRequest(package=made.path))
    assert started.process is not None
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()
    assert any("state_2.ckpt" in note for note in started.notes)
    assert any("step 20" in note for note in started.notes)
    assert checkpoint.ids(made.checkpoints) == [0, 1, 2], "nothing is set aside in the source"


def test_best_that_stays_behind_is_said(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    started = fork(ForkRequest(package=made.path, overrides=["max_epochs=4"]))
    assert started.process is not None
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()
    assert any(note.endswith("max_epochs: 12 -> 4") for note in started.notes)
    assert any("valid/loss 0.5" in note and "step 20" in note for note in started.notes)


def test_a_run_at_its_goal_is_refused(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    for asked in ({}, {"step": 30}, {"checkpoint": 2}, {"overrides": ["optimizers.main.lr=1"]}):
        with pytest.raises(Refused) as refused:
            fork(ForkRequest(package=made.path, **asked))  # type: ignore[arg-type]
        assert "step 30" in refused.value.message and "max_epochs: 3" in refused.value.message
        assert "max_epochs=6" in str(refused.value.fix) and "--at 20" in str(refused.value.fix)
        assert refused.value.exit_code == 5
    messages.check(refused.value)
    nothing_was_made(made)


@pytest.mark.parametrize("state", ["succeeded", "stopped"])
def test_a_limit_that_the_checkpoint_has_reached_is_refused(tmp_path: Path, state: str) -> None:
    made = package(tmp_path / "runs", state=state)
    for asked, limit, raised in (
        ({"overrides": ["max_epochs=2"]}, "max_epochs: 2", "max_epochs=6"),
        ({"overrides": ["max_epochs=99", "max_steps=30"]}, "max_steps: 30", "max_steps=60"),
        ({"step": 20, "overrides": ["max_epochs=2"]}, "max_epochs: 2", "max_epochs=4"),
        ({"checkpoint": "best", "overrides": ["max_epochs=1"]}, "max_epochs: 1", "max_epochs=4"),
    ):
        with pytest.raises(Refused, match=limit) as refused:
            fork(ForkRequest(package=made.path, **asked))  # type: ignore[arg-type]
        assert raised in str(refused.value.fix)
    nothing_was_made(made)


def test_from_the_best_checkpoint(tmp_path: Path) -> None:
    new = forked(package(tmp_path / "runs", state="stopped"), checkpoint="best")
    assert [info.id for info in checkpoint.read_manifests(new.checkpoints)] == [1]


@pytest.mark.parametrize(
    ("asked", "kind", "setting", "fact"),
    [
        ({"step": 15}, NotFound, None, "30, 20, 10"),
        ({"checkpoint": 7}, NotFound, None, "0, 1, 2"),
        ({"overrides": ["max_epoch=3"]}, ConfigError, None, "'max_epochs'"),
        ({"overrides": ["max_epochs=many"]}, ConfigError, "max_epochs", "'many'"),
        ({"overrides": ["runner=Model/Other.py:Runner"]}, ConfigError, "runner", "Model/Other.py"),
        (
            {"overrides": ["optimizers.main.class=torch.optim.Adam"]},
            ConfigError,
            "optimizers.main.class",
            "torch.optim.SGD",
        ),
        ({"overrides": ["+mirrors.csv.file=../x.csv"]}, ConfigError, "mirrors.csv.file", "'../x.csv'"),
        ({"name": "one"}, Refused, None, "runs/one"),
        ({"name": "a/b"}, UsageError, "--name", "'a/b'"),
        ({"description": "."}, UsageError, None, "'.'"),
    ],
)
def test_bad_input_makes_nothing(
    tmp_path: Path,
    asked: dict[str, Any],
    kind: type[RoostError],
    setting: str | None,
    fact: str,
    messages: Messages,
) -> None:
    made = package(tmp_path / "runs", state="stopped")
    with pytest.raises(kind) as refused:
        fork(ForkRequest(package=made.path, **asked))
    assert refused.value.setting == setting and fact in str(refused.value)
    if "overrides" in asked:
        assert refused.value.where == "command line"
    messages.check(refused.value)
    nothing_was_made(made)


def test_packages_that_cannot_be_forked(tmp_path: Path, messages: Messages) -> None:
    python = PackageFolder.create(
        tmp_path / "a", name="python", values={"lr": 0.1}, request={"kind": "python"}
    )
    with pytest.raises(Refused) as refused:
        fork(ForkRequest(package=python.path))
    assert "roost.open_package" in str(refused.value)
    assert refused.value.where == python.path
    bare = package(tmp_path / "b", state="stopped", checkpoints=False)
    with pytest.raises(NotFound) as refused:
        fork(ForkRequest(package=bare.path))
    assert refused.value.where == bare.path
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        fork(ForkRequest(package=bare.path, step=3))
    assert "step 3" in str(refused.value)
    assert refused.value.where == bare.path
    messages.check(refused.value)
    with pytest.raises(NotFound) as refused:
        fork(ForkRequest(package=tmp_path / "nowhere"))
    assert str(tmp_path / "nowhere") in str(refused.value)


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")

    def fault(operation: str, path: str) -> None:
        if path.endswith("0.jsonl"):
            raise OSError(28, "No space left on device", path)

    durable.fault = fault
    try:
        with pytest.raises(OSError, match="No space"):
            fork(ForkRequest(package=made.path))
    finally:
        durable.fault = None
    nothing_was_made(made)


def test_the_device_is_that_of_the_source(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "stopped")
    request = made.path / "sessions" / "2.request.json"
    request.write_text(json.dumps({**json.loads(request.read_text()), "device": "cpu"}))
    assert forked(made).sessions()[0].request["device"] == "cpu"
    assert forked(made, device="auto").sessions()[0].request["device"] == "auto"


def test_the_ranks_are_those_of_the_source(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    made.new_session({"overrides": [], "device": "cpu", "devices": 2, "strategy": "fsdp", "ranks": 2})
    request = forked(made).sessions()[0].request
    assert (request["device"], request["strategy"], request["ranks"]) == ("cpu", "fsdp", 2)


def test_other_batches_inside_an_epoch_are_said(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    info = checkpoint.Manifest(id=3, step=35, epoch=3, batch=5, line=[(0, 3)], session=1)
    checkpoint.write(made.checkpoints, {"model": {}}, info)
    for asked, is_said in (("+data.batch_size=8", True), ("+data.num_workers=1", False)):
        for step in (35, 30):
            started = fork(ForkRequest(package=made.path, step=step, overrides=[asked]))
            assert started.process is not None
            started.process.send_signal(signal.SIGQUIT)
            started.process.wait()
            assert any("epoch" in note and " 5 " in note for note in started.notes) is (
                is_said and step == 35
            )


def test_a_step_of_before_the_fork_is_debugged_where_it_was_taken(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    new = forked(made, step=20)
    with pytest.raises(NotFound) as refused:
        debug(DebugRequest(package=new.path, step=15))
    assert all(fact in str(refused.value) for fact in ("step 15", "step 20", f"roost debug {made.path} 15"))
    assert refused.value.where == new.path
    messages.check(refused.value)


def test_a_fork_of_a_project_of_dlnest(tmp_path: Path) -> None:
    """Also of a finished one, as its own code decides when it ends."""
    tools = tmp_path / "tools.py"
    tools.write_text("x = 1\n")
    own = {"other_file_paths": [str(tools)], "optimizers": {"main": {"class": "a"}}}
    config = dlnest_project(tmp_path / "p", **own)
    made = prepare_training(layers.load(config)).create("one")
    session(made, "succeeded")
    add_checkpoint(made, 0, {"step": 10, "epoch": 1, "valid/loss": 1.0})
    new = forked(made, overrides=["epochs=9", "optimizers.main.class=b", "roost.seed=4"], name="new")
    assert new.path == tmp_path / "p/Saves/new"
    assert (new.request["kind"], new.request["places"]) == ("dlnest", {str(tools): "tools.py"})
    assert (new.args["epochs"], new.args["roost"]["seed"]) == (9, 4)
    assert (new.path / "tools.py").read_text() == "x = 1\n" and not new.changed_files()
    assert new.derived["ckpt_fast"] == [], "a save that the project did not decide on is in no track"
    again = forked(new, overrides=["save_root=Other"])
    assert again.path.parent == tmp_path / "p/Other" and again.request["kind"] == "dlnest"


def test_a_fork_whose_session_does_not_start_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package(tmp_path / "runs")
    request = ForkRequest(package=made.path, name="two", overrides=["max_epochs=9"], description="more")
    with monkeypatch.context() as patch:
        patch.setattr(guard_start, "_send_spec", kill_guard)
        with pytest.raises(guard_start.StartInterrupted):
            fork(request)
        nothing_was_made(made)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "fault", refuse_description)
        with pytest.raises(OSError, match="No space left"):
            fork(request)
    nothing_was_made(made)


def refuse_description(operation: str, path: str) -> None:
    if operation == "write" and "_desc" in path:
        raise OSError(errno.ENOSPC, "No space left on device", path)
