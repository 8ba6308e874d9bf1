"""Another session of an existing package."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import CheckpointError, ConfigError, NotFound, Refused, RoostError, UsageError
from roost.cli import live_run
from roost.config import layers
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.reading.package_schema import DamagedPackage
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.running_session import running_session
from roost.operations.sessions.session_request import StartedSession
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from tests.dlnest_project import dlnest_project
from tests.messages import Messages
from tests.operations.packages import add_checkpoint, package, session


def begun(made: PackageFolder, **asked: Any) -> StartedSession:
    """Starts a session and kills it before it does anything: its request is what counts here."""
    started = continue_(ContinueRequest(package=made.path, **asked))
    assert started.process is not None
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()
    return started


def test_goes_further_than_planned(finished: PackageFolder) -> None:
    before = finished.records()
    started = continue_(ContinueRequest(package=finished.path, overrides=["max_epochs=3"]))
    assert started.process is not None and started.process.wait(100) == 0, finished.output.read_text()
    after = finished.records()
    (note,) = started.notes
    assert started.session == 2 and note.endswith("max_epochs: 2 -> 3")
    assert finished.settings["max_epochs"] == 3 and finished.args["max_epochs"] == 2
    assert after.rows[: len(before.rows)] == before.rows and after.rows[-1]["epoch"] == 3
    assert finished.state == "succeeded"
    os.close(finished.lock())


def test_a_package_whose_checkpoints_are_gone_is_refused_before_a_session(
    finished: PackageFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in finished.checkpoints.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = [one.number for one in finished.sessions()]
    with pytest.raises(CheckpointError, match=r"had checkpoints .* and has none now"):
        continue_(ContinueRequest(package=finished.path, overrides=["max_epochs=3"]))
    assert [one.number for one in finished.sessions()] == before
    number = session(finished, "failed", error="the package has none now", exit_code=1)
    live_run.watch(running_session(finished, number), live_run.stop_or_end, "")
    assert capsys.readouterr().err.splitlines()[-1].startswith("its checkpoints are gone: restore them")


def test_a_package_of_a_newer_roost_gets_no_session(finished: PackageFolder, messages: Messages) -> None:
    request = finished.path / "request.json"
    request.write_text(request.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(Refused) as caught:
        continue_(ContinueRequest(package=finished.path, overrides=["max_epochs=3"]))
    messages.check(caught.value)
    assert [one.number for one in PackageFolder.open(finished.path).sessions()] == [1]


@pytest.mark.parametrize("name", ["_output.txt", "progress"])
def test_a_fifo_in_the_place_of_what_a_session_writes(finished: PackageFolder, name: str) -> None:
    (finished.path / name).unlink()
    os.mkfifo(finished.path / name)
    with pytest.raises(RoostError, match=f"{name} is not a file") as refused:
        continue_(ContinueRequest(package=finished.path, overrides=["max_epochs=3"]))
    assert refused.value.fix == "rename it: a session creates a new one"
    assert len(finished.sessions()) == 1
    (finished.path / name).rename(finished.path / "aside")
    begun(finished, overrides=["max_epochs=3"])


def test_a_finished_run_has_nothing_to_do(finished: PackageFolder, messages: Messages) -> None:
    newest = finished.store().lineage()[-1].id
    for overrides in ([], ["max_epochs=2"], ["max_epochs=1"], ["log_every=1", "max_epochs=2"]):
        for at in (None, "last", newest):
            started = continue_(ContinueRequest(package=finished.path, overrides=overrides, checkpoint=at))
            assert started.session is None
            (note,) = started.notes
            assert note.endswith(f"roost continue {finished.path} max_epochs=4")
    messages.check(note)
    with pytest.raises(Refused, match="lr: "):
        continue_(ContinueRequest(package=finished.path, overrides=["optimizers.main.lr=9"]))
    forced = ContinueRequest(package=finished.path, overrides=["optimizers.main.lr=9"], force=True)
    assert continue_(forced).session is None
    assert len(finished.sessions()) == 1
    os.close(finished.lock())


def test_the_test_at_the_end_may_be_repeated(finished: PackageFolder) -> None:
    """And the session says that it trains nothing."""
    started = continue_(ContinueRequest(package=finished.path, overrides=["test_at_end=last"]))
    assert started.process is not None and started.process.wait(100) == 0, finished.output.read_text()
    assert "nothing is left to train: " in finished.output.read_text()


def test_from_the_best_checkpoint(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    begun(made, checkpoint="best")
    assert made.sessions()[1].request["checkpoint"] == 1
    with pytest.raises(UsageError, match="'bset'"):
        continue_(ContinueRequest(package=made.path, checkpoint="bset"))


def test_what_is_written_down(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    started = begun(made, overrides=["max_epochs=9"], description="on", checkpoint=1, command=["roost"])
    request = made.sessions()[1].request
    assert started.session == 2
    assert request["overrides"] == ["max_epochs=9"] and request["checkpoint"] == 1
    assert request["force"] is False and request["inexact"] == [] and request["kind"] == "train"
    assert request["project"] == str(tmp_path / "runs-source") and request["command"] == ["roost"]
    assert (made.path / "_desc: on").is_file()


def test_what_is_left_behind_by_an_older_checkpoint(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    first, *_, newest = made.store().lineage()
    (note,) = (one for one in begun(made, checkpoint=first.id).notes if "left behind" in one)
    assert f"steps {first.step + 1} to {newest.step} are left behind" in note
    assert f"`roost fork {made.path} -c {first.id}`" in note


def test_nothing_is_left_behind_by_the_newest_checkpoint(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    newest = made.store().lineage()[-1].id
    assert not any("left behind" in one for one in begun(made, checkpoint=newest).notes)


def test_what_needs_force(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    with pytest.raises(Refused, match=r"model\.features: 8 -> 9"):
        continue_(ContinueRequest(package=made.path, overrides=["model.features=9"]))
    assert len(made.sessions()) == 1
    started = begun(made, overrides=["model.features=9"], force=True)
    request = made.sessions()[1].request
    assert request["force"] is True and request["inexact"] == ["model.features: 8 -> 9"]
    assert started.notes == ["changed: model.features: 8 -> 9 (inexact)"]
    # Forced once, it is how the run is now.
    assert begun(made).notes == []


def test_force_that_was_not_needed_is_not_recorded(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    begun(made, force=True)
    assert made.sessions()[1].request["force"] is False


def test_changed_code(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    with (made.path / "Model" / "Runner.py").open("a") as file:
        file.write("# harmless?\n")
    with pytest.raises(Refused, match=r"Model/Runner\.py"):
        continue_(ContinueRequest(package=made.path))
    started = begun(made, force=True)
    (inexact,) = made.sessions()[-1].request["inexact"]
    changed, note = started.notes
    assert changed.startswith("changed: Model/Runner.py")
    assert inexact.startswith("Model/Runner.py ") and "Model/Runner.py" in note
    messages.check(inexact)
    messages.check(note)
    begun(made)  # forced once, it is how the run is now
    assert made.sessions()[-1].request["inexact"] == []
    (made.path / "Model" / "Runner.py").unlink()
    with pytest.raises(Refused, match=r"Model/Runner\.py"):
        continue_(ContinueRequest(package=made.path))


def test_code_that_was_mended_in_the_project_only(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="failed")
    mended = tmp_path / "runs-source" / "Model" / "Runner.py"
    mended.write_text(mended.read_text() + "# mended\n")
    (note,) = begun(made).notes
    assert "Model/Runner.py" in note
    (made.path / "Model" / "Runner.py").write_text(mended.read_text())
    (note,) = begun(made, force=True).notes
    assert note.startswith("changed: Model/Runner.py")


def test_the_device_is_that_of_the_session_before(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    for device in ("cpu", None, "auto", None):
        begun(made, device=device)
    assert [one.request["device"] for one in made.sessions()] == ["auto", "cpu", "cpu", "auto", "auto"]


def test_requests_of_a_session_that_failed_before_its_first_step_hold_no_longer(
    tmp_path: Path, messages: Messages
) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "failed", reason="settings", exit_code=1)
    path = made.path / "sessions" / "2.request.json"
    asked = {"overrides": ["max_epochs=9"], "device": "cuda", "devices": 2, "strategy": "ddp", "ranks": 2}
    path.write_text(json.dumps(json.loads(path.read_bytes()) | asked))
    started = begun(made)
    request = made.sessions()[-1].request
    assert (request["device"], request["ranks"], made.settings["max_epochs"]) == ("auto", 1, 12)
    messages.check(started.notes)
    assert begun(made, overrides=["max_epochs=9"]).notes == ["changed: max_epochs: 12 -> 9"]


def test_the_ranks_are_those_of_the_session_before(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    made.new_session({"overrides": [], "device": "cpu", "devices": 3, "strategy": "fsdp", "ranks": 3})
    begun(made)
    begun(made, ranks=RankRequest(devices=2))
    found = [(one.request["ranks"], one.request["strategy"]) for one in made.sessions()[2:]]
    assert found == [(3, "fsdp"), (2, "fsdp")]


def test_a_checkpoint_that_does_not_exist_names_those_that_do(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    with pytest.raises(NotFound) as refused:
        continue_(ContinueRequest(package=made.path, checkpoint=7))
    assert all(fact in str(refused.value) for fact in (" 7", "0, 1, 2"))
    assert refused.value.where == made.path
    os.close(made.lock())


def test_a_running_package(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="running")
    with pytest.raises(Refused) as refused:
        continue_(ContinueRequest(package=made.path))
    assert "session 1" in str(refused.value)
    assert refused.value.where == made.path
    messages.check(refused.value.fix)


@pytest.mark.parametrize(
    "override",
    [
        "max_epochs=soon",
        "max_epoch=3",
        "runner",
        "runner=Model/No.py:Runner",
        "optimizers.main.class=os.system",
        "+mirrors.csv.file=../x.csv",
        "+mirrors.csv.file=Model/Runner.py/x.csv",
    ],
)
def test_a_wrong_override(tmp_path: Path, override: str, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="stopped")
    with pytest.raises(ConfigError) as refused:
        continue_(ContinueRequest(package=made.path, overrides=[override], force=True))
    key, _, value = override.removeprefix("+").partition("=")
    if value:
        assert refused.value.where == "command line" and key in str(refused.value)
    messages.check(refused.value)
    assert len(made.sessions()) == 1
    os.close(made.lock())


def test_a_session_that_never_started_can_be_followed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="new")
    assert begun(made).session == 1


def test_links_are_renewed(tmp_path: Path) -> None:
    source = tmp_path / "runs-source"
    package(tmp_path / "runs", "first")  # makes the project
    (source / "big.bin").write_bytes(bytes(11 * 2**20))
    made = package(tmp_path / "runs", state="stopped")
    assert (made.path / "big.bin").is_symlink()
    source.rename(tmp_path / "moved")
    assert any("big.bin" in note and "--project" in note for note in begun(made).notes)
    assert begun(made, project=tmp_path / "moved").notes == []
    assert (made.path / "big.bin").stat().st_size == 11 * 2**20
    assert made.sessions()[-1].request["project"] == str(tmp_path / "moved")
    with pytest.raises(NotFound) as refused:
        continue_(ContinueRequest(package=made.path, project=tmp_path / "nowhere"))
    assert refused.value.setting == "--project"


def test_a_package_that_was_moved(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    session(made, "crashed")
    shutil.move(made.path, tmp_path / "elsewhere")
    assert begun(PackageFolder.open(tmp_path / "elsewhere")).session == 3


def test_a_damaged_package(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    (made.path / "manifest.json").write_text("[]")
    with pytest.raises(DamagedPackage) as refused:
        continue_(ContinueRequest(package=made.path))
    assert "manifest.json" in str(refused.value)
    assert refused.value.where == made.path
    os.close(made.lock())


def test_no_package(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        continue_(ContinueRequest(package=tmp_path))
    assert str(tmp_path) in str(refused.value)
    messages.check(refused.value)


def of_dlnest(tmp_path: Path, state: str) -> PackageFolder:
    """A package with a session that ended so, and a checkpoint."""
    config = dlnest_project(tmp_path / "p", max_epochs=5)
    made = prepare_training(layers.load(config)).create("one")
    session(made, state)
    add_checkpoint(made, 0, {"step": 10, "epoch": 1, "valid/loss": 1.0})
    return made


def test_a_finished_project_of_dlnest_trains_on(tmp_path: Path) -> None:
    """Its own code decides when it ends, after at least one more epoch."""
    made = of_dlnest(tmp_path, "succeeded")
    assert begun(made).session == 2


def test_the_overrides_of_a_session_follow_its_contract(tmp_path: Path) -> None:
    made = of_dlnest(tmp_path, "stopped")
    with pytest.raises(Refused, match=r"max_epochs: 5 -> 9"):  # a key of the user, whatever it is called
        begun(made, overrides=["max_epochs=9"])
    started = begun(made, overrides=["max_epochs=9", "roost.max_time=2h", "roost.devices=2"], force=True)
    request = made.sessions()[1].request
    assert request["inexact"] == ["max_epochs: 5 -> 9"] and request.ranks == 2
    changed = ["roost.devices: auto -> 2", "roost.max_time: (not set) -> 2h"]
    assert started.notes[:2] == [f"changed: {one}" for one in changed]
    assert begun(made).session == 3
    assert made.sessions()[2].request.ranks == 2, "as in the session before"
    with pytest.raises(ConfigError, match=r"roost\.max_time"):
        begun(made, overrides=["roost.max_time=soon"])
    with pytest.raises(ConfigError, match="has no copy of this file"):
        begun(made, overrides=["runner_file_path=/etc/hosts"], force=True)


def test_its_code_must_be_in_the_package(tmp_path: Path) -> None:
    made = of_dlnest(tmp_path, "stopped")
    shutil.rmtree(made.path / "Dataset")
    with pytest.raises(ConfigError, match=r"Dataset/Dataset\.py"):
        begun(made, force=True)


def test_a_checkpoint_of_a_program_is_no_place_in_a_training(tmp_path: Path, messages: Messages) -> None:
    """`SavePackage` saves what the program gives it, under the kind of the config."""
    config = dlnest_project(tmp_path / "p")
    made = prepare_training(layers.load(config)).create("one")
    made.new_session({"kind": "python"})
    add_checkpoint(made, 0, {"step": 1, "epoch": 0})
    for id in (None, 0):
        with pytest.raises(Refused, match="SavePackage") as refused:
            begun(made, checkpoint=id)
    messages.check(refused.value)
    assert len(made.sessions()) == 1
