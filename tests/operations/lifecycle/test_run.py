"""A new package and its first session."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.config import layers
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.rank_layout import RankRequest
from roost.operations.sessions.session_request import StartedSession
from roost.package import snapshot
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from tests.dlnest_project import dlnest_project
from tests.lab.labs import kill_guard
from tests.messages import Messages
from tests.operations.packages import project, session
from tests.waiting import wait_for


def begun(request: RunRequest) -> StartedSession:
    """Starts a run and kills it before it does anything: its package is what counts here."""
    started = run(request)
    assert started.process is not None
    started.process.send_signal(signal.SIGQUIT)
    started.process.wait()
    return started


def existing_package(config: Path, state: str, name: str = "mine") -> PackageFolder:
    """The package that ``run --name`` would have made, with a session that ended so."""
    loaded = layers.load(config)
    chosen = snapshot.select(config.parent, exclude=[config.parent / "runs"])
    made = PackageFolder.create(config.parent / "runs", name=name, values=loaded.values, selection=chosen)
    session(made, state)
    return made


def test_a_whole_run(finished_once: Path) -> None:
    made = PackageFolder.open(finished_once)
    assert made.state == "succeeded"
    assert made.args["max_epochs"] == 2 and made.provenance["max_epochs"].startswith("config.yaml:")
    assert made.request["description"] == "first: walk" and made.request["command"] == ["roost", "run"]
    assert (made.path / "_desc: first: walk").is_file()
    assert {"config.yaml", "Model/Runner.py", "Dataset/Dataset.py"} <= made.manifest["files"].keys()
    (only,) = made.sessions()
    assert only.request["overrides"] == [] and only.request["device"] == "auto"
    assert made.records().last()["valid/loss"] < 100
    assert not list(made.path.rglob("__pycache__"))
    os.close(made.lock())


def test_overrides_and_tuning_are_in_args(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "tune.yaml").write_text("seed: 7\n")
    request = RunRequest(
        config=config, tuning=tmp_path / "tune.yaml", overrides=["max_epochs=4"], device="cpu"
    )
    made = PackageFolder.open(begun(request).package)
    assert made.args["seed"] == 7 and made.args["max_epochs"] == 4
    assert made.settings == made.args
    assert made.sessions()[0].request["device"] == "cpu"


def test_ranks_are_in_the_request(tmp_path: Path) -> None:
    ranks = RankRequest(devices=2, restart=1)
    started = begun(RunRequest(config=project(tmp_path / "p"), device="cpu", ranks=ranks))
    (session,) = PackageFolder.open(started.package).sessions()
    kept = {key: session.request[key] for key in ("device", "devices", "strategy", "ranks", "restart")}
    assert kept == {"device": "cpu", "devices": 2, "strategy": "ddp", "ranks": 2, "restart": 1}
    assert any(note.startswith("ddp: 2 ranks ") for note in started.notes)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"no_save": True, "use_description": True, "description": "x"}, "NOSAVE"),
        ({"use_description": True, "description": "a/b c"}, "a_b c"),
        ({"name": "mine"}, "mine"),
    ],
)
def test_how_it_is_called(tmp_path: Path, asked: dict[str, Any], name: str) -> None:
    config = project(tmp_path / "p")
    started = begun(RunRequest(config=config, **asked))
    assert started.package == tmp_path / "p" / "runs" / name and started.is_new
    if "name" not in asked:
        assert begun(RunRequest(config=config, **asked)).package.name == f"{name}-2"


def test_what_is_linked_is_said(tmp_path: Path, messages: Messages) -> None:
    config = project(tmp_path / "p")
    os.truncate(os.open(tmp_path / "p" / "weights.bin", os.O_CREAT | os.O_RDWR), 11 * 2**20)
    started = begun(RunRequest(config=config))
    (note,) = (note for note in started.notes if "weights.bin" in note)
    messages.check(note)
    assert (started.package / "weights.bin").is_symlink()


@pytest.mark.parametrize(
    ("asked", "error", "setting", "fact"),
    [
        ({"name": "a/b"}, UsageError, "--name", "'a/b'"),
        ({"name": "a", "no_save": True}, UsageError, None, "-ns"),
        ({"use_description": True}, UsageError, None, "-d"),
        ({"description": "..."}, UsageError, None, "'...'"),
        ({"overrides": ["max_epoch=3"]}, ConfigError, None, "'max_epochs'"),
        ({"overrides": ["runner=Model/Runer.py:Runner"]}, ConfigError, "runner", "Model/Runer.py"),
        ({"overrides": ["save_root=."]}, ConfigError, "save_root", "'.'"),
        (
            {"overrides": ["optimizers.main.class=os.system"]},
            ConfigError,
            "optimizers.main.class",
            "'os.system'",
        ),
        ({"overrides": ["mirrors.csv.file=../x.csv"]}, ConfigError, "mirrors.csv.file", "'../x.csv'"),
        (
            {"overrides": ["mirrors.csv.file=Model/Runner.py/x.csv"]},
            ConfigError,
            "mirrors.csv.file",
            "'Model/Runner.py/x.csv'",
        ),
        ({"config": Path("nowhere.yaml")}, NotFound, None, "nowhere.yaml"),
    ],
)
def test_a_mistake_makes_nothing(
    tmp_path: Path,
    asked: dict[str, Any],
    error: type[RoostError],
    setting: str | None,
    fact: str,
    monkeypatch: pytest.MonkeyPatch,
    messages: Messages,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = project(tmp_path / "p")
    with pytest.raises(error) as refused:
        run(replace(RunRequest(config=config), **asked))
    assert refused.value.setting == setting and fact in str(refused.value)
    messages.check(refused.value)
    assert not (tmp_path / "p" / "runs").exists()


def test_a_save_root_that_cannot_be_written(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "p" / "runs").write_text("a file")
    for name in (None, "mine"):
        with pytest.raises(OSError, match="runs"):
            run(RunRequest(config=config, name=name))


class TestAgain:
    """``run --name`` of an existing package."""

    def test_finished(self, tmp_path: Path, messages: Messages) -> None:
        config = project(tmp_path / "p")
        made = existing_package(config, "succeeded")
        started = run(RunRequest(config=config, name="mine"))
        assert started.session is None and started.package == made.path
        assert "max_epochs=" in started.notes[0] and len(made.sessions()) == 1
        messages.check(started.notes[0])

    def test_unfinished_goes_on(self, tmp_path: Path) -> None:
        config = project(tmp_path / "p")
        made = existing_package(config, "stopped")
        (tmp_path / "p" / "notes.md").write_text("what I think of it")
        (tmp_path / "p" / "config.yaml").write_text("# a comment\n" + config.read_text())
        started = begun(RunRequest(config=config, name="mine"))
        assert started.session == 2 and started.package == made.path

    def test_running(self, tmp_path: Path, messages: Messages) -> None:
        config = project(tmp_path / "p")
        made = existing_package(config, "running")
        with pytest.raises(Refused) as refused:
            run(RunRequest(config=config, name="mine"))
        assert "session 1" in str(refused.value)
        assert refused.value.where == made.path
        messages.check(refused.value.fix)

    @pytest.mark.parametrize("state", ["succeeded", "stopped", "running"])
    def test_another_config_or_code(self, tmp_path: Path, state: str, messages: Messages) -> None:
        config = project(tmp_path / "p")
        made = existing_package(config, state)
        (tmp_path / "p" / "Model" / "Runner.py").write_text("class Runner: pass")
        (tmp_path / "p" / "Model" / "more.py").write_text("")
        with pytest.raises(Refused) as refused:
            run(RunRequest(config=config, name="mine", overrides=["max_epochs=11"]))
        for fact in ("max_epochs: 10 -> 11", "Model/Runner.py", "Model/more.py", state):
            assert fact in refused.value.detail
        messages.check(refused.value)
        assert len(made.sessions()) == 1

    def test_something_else_has_the_name(self, tmp_path: Path, messages: Messages) -> None:
        config = project(tmp_path / "p")
        (tmp_path / "p" / "runs" / "mine").mkdir(parents=True)
        with pytest.raises(Refused) as refused:
            run(RunRequest(config=config, name="mine"))
        assert refused.value.where == tmp_path / "p" / "runs" / "mine"
        messages.check(refused.value)

    def test_many_at_once_make_one(self, tmp_path: Path) -> None:
        config = project(tmp_path / "p")
        program = (
            "import pathlib, signal, sys\n"
            "from roost.base.errors import Refused\n"
            "from roost.operations.lifecycle.run import *\n"
            "try: started = run(RunRequest(config=pathlib.Path(sys.argv[1]), name='mine'))\n"
            "except Refused: sys.exit(5)\n"
            "sys.stdin.read(); started.process.send_signal(signal.SIGQUIT)"
        )
        argv = [sys.executable, "-c", program, str(config)]
        children = [subprocess.Popen(argv, stdin=subprocess.PIPE) for _ in range(3)]
        wait_for(lambda: sum(child.poll() == 5 for child in children) == 2)
        for child in children:
            child.communicate()
        assert sorted(child.returncode for child in children) == [0, 5, 5]
        assert [path.name for path in (tmp_path / "p" / "runs").iterdir()] == ["mine"]


def test_a_project_of_dlnest(tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "p")
    request = RunRequest(config=config, overrides=["epochs=9", "roost.devices=2"], name="one", device="cpu")
    started = begun(request)
    made = PackageFolder.open(started.package)
    assert made.path == tmp_path / "p/Saves/one" and made.request["kind"] == "dlnest"
    assert made.args["epochs"] == 9 and made.sessions()[0].request.ranks == 2
    assert made.sessions()[0].request.strategy == "ddp"


def test_the_same_name_continues_only_the_same_project_of_dlnest(tmp_path: Path) -> None:
    """Files from outside of the project are compared with where they came from."""
    tools = tmp_path / "tools.py"
    tools.write_text("x = 1\n")
    config = dlnest_project(tmp_path / "p", other_file_paths=[str(tools)])
    request = RunRequest(config=config, name="one", device="cpu")
    begun(request)
    assert begun(request).session == 2
    tools.write_text("x = 2\n")
    with pytest.raises(Refused, match=r"tools\.py has changed"):
        run(request)
    tools.write_text("x = 1\n")
    session(PackageFolder.open(tmp_path / "p/Saves/one"), "succeeded")
    started = run(request)
    assert started.session is None and "trains at least one more epoch" in started.notes[0]


@pytest.mark.parametrize(
    ("asked", "error", "setting"),
    [
        ({"overrides": ["roost.sead=3"]}, ConfigError, None),
        ({"overrides": ["runner_name=Walker"]}, ConfigError, "runner_name"),
        ({"overrides": ["roost.mirrors.csv.file=../x.csv"]}, ConfigError, "roost.mirrors.csv.file"),
        ({"overrides": ["roost.devices=[0]"], "device": "cpu"}, Refused, "roost.devices"),
        ({"ranks": RankRequest(strategy="fsdp", devices=2), "device": "cpu"}, ConfigError, "--strategy"),
    ],
)
def test_what_is_refused_of_it(
    tmp_path: Path, asked: dict[str, Any], error: type[RoostError], setting: str | None, messages: Messages
) -> None:
    config = dlnest_project(tmp_path / "p")
    with pytest.raises(error) as refused:
        run(RunRequest(config=config, **asked))
    assert refused.value.setting == setting and not (tmp_path / "p/Saves").exists()
    messages.check(refused.value)


def refuse_description(operation: str, path: str) -> None:
    if operation == "write" and "_desc" in path:
        raise OSError(errno.ENOSPC, "No space left on device", path)


def test_a_package_whose_session_does_not_start_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project(tmp_path / "p")
    request = RunRequest(config=config, name="mine", description="first", device="cpu")
    runs = tmp_path / "p" / "runs"
    with monkeypatch.context() as patch:
        patch.setattr(guard_start, "_send_spec", kill_guard)
        with pytest.raises(guard_start.StartInterrupted):
            run(request)
    assert list(runs.iterdir()) == []
    with monkeypatch.context() as patch:
        patch.setattr(durable, "fault", refuse_description)
        with pytest.raises(OSError, match="No space left"):
            run(request)
    assert list(runs.iterdir()) == []
    assert begun(request).is_new
