from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from roost.base.errors import ConfigError, NotFound, Refused
from roost.config import objects
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.resume import environment
from roost.train.accelerators.registry import accelerator_of
from roost.worker import train_task
from tests.messages import Messages
from tests.project.projects import RUNNER, project
from tests.train.parts import bits, rows_of


class Quiet:
    """Stop signals of a test that sends none."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason

    @contextmanager
    def raised(self) -> Iterator[None]:
        yield

    def attach(self, target: Any) -> None:
        if self.reason is not None:
            target.request_stop(self.reason)


STOPS = (
    RUNNER
    + """
    def update(self, stepper, batches):
        if self.progress.step + 1 == self.args["stop_at"]:
            self._trainer.request_stop("enough")
        return super().update(stepper, batches)
"""
)


def session(package: PackageFolder, **request: Any) -> Any:
    package.new_session({"overrides": [], "device": "cpu", "project": "/nowhere", **request})
    return package.sessions()[-1]


def train(package: PackageFolder, stop: Any = None, **request: Any) -> str:
    try:
        return train_task.train(package, session(package, **request), stop or Quiet())
    finally:
        objects.unload_project(package.path)


def model(package: PackageFolder) -> Any:
    newest = checkpoint.read_manifests(package.checkpoints)[-1]
    _, states = checkpoint.read(checkpoint.checkpoint_folder(package.checkpoints, newest.id))
    return newest.step, bits({name: states[name] for name in ("model", "optimizers", "rank-0")})


def test_stops_and_goes_on_exactly(tmp_path: Path) -> None:
    whole = project(tmp_path / "whole", runner=STOPS, stop_at=-1)
    assert train(whole) == "finished"
    package = project(tmp_path / "cut", runner=STOPS, stop_at=3)
    assert train(package) == "enough"
    assert model(package)[0] == 3
    assert train(package, overrides=["stop_at=5"]) == "enough"
    assert train(package, overrides=["stop_at=-1"]) == "finished"
    assert model(package) == model(whole)
    assert rows_of(package.path) == rows_of(whole.path)
    assert [info.session for info in checkpoint.read_manifests(package.checkpoints)][-1] == 3
    assert package.derived["inexact"] == []


def test_a_chosen_checkpoint(tmp_path: Path, messages: Messages) -> None:
    package = project(tmp_path, checkpoint={"every": "1", "fast": 9})
    train(package)
    first = checkpoint.read_manifests(package.checkpoints)[0]
    train(package, checkpoint=first.id)
    assert [info.step for info in package.store().lineage()] == [1, 2, 3, 4, 5, 6]
    assert checkpoint.read_manifests(package.checkpoints)[-1].line[0] == (0, first.id)
    with pytest.raises(NotFound, match="checkpoint 99") as refused:
        train(package, checkpoint=99)
    messages.check(refused.value)


def test_a_stop_that_came_before_the_first_step(tmp_path: Path) -> None:
    package = project(tmp_path)
    assert train(package, Quiet("early")) == "early"
    assert checkpoint.ids(package.checkpoints) == []
    assert train(package) == "finished"


def test_the_environment_is_written_once(tmp_path: Path) -> None:
    package = project(tmp_path, seed=5)
    train(package)
    file = package.path / "environment.json"
    found = json.loads(file.read_bytes())
    assert found["seed"] == 5
    assert found["stack"] == environment.stack("cpu", accelerator_of("cpu"))
    data = file.read_bytes()
    train(package)
    assert file.read_bytes() == data


def test_what_differs_from_the_first_session_is_said_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], messages: Messages
) -> None:
    package = project(tmp_path, runner=STOPS, stop_at=3)
    train(package)
    file = package.path / "environment.json"
    body = json.loads(file.read_bytes())
    body["stack"]["torch"] = "1.0"
    file.write_text(json.dumps(body))
    capsys.readouterr()
    train(package, overrides=["stop_at=-1"], force=True)
    reasons = sorted(package.derived["inexact"], key=lambda reason: torch.__version__ in reason)
    of_session, of_torch = reasons
    assert "session 2 " in of_session, "when the request says no more"
    messages.check(of_session)
    assert of_torch.startswith("torch ") and "1.0" in of_torch and torch.__version__ in of_torch
    said = capsys.readouterr().out
    assert all(f"inexact: {reason}" in said for reason in reasons)
    # It stays inexact, whatever comes later.
    body["stack"]["torch"] = torch.__version__
    file.write_text(json.dumps(body))
    train(package, overrides=["max_steps=8"])
    assert set(checkpoint.read_manifests(package.checkpoints)[-1].inexact) == set(reasons)
    assert "inexact: " not in capsys.readouterr().out


def test_ranks_are_compared_with_those_of_the_checkpoint_it_goes_on_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = project(tmp_path, runner=STOPS, stop_at=2)
    train(package)
    file = package.path / "environment.json"
    body = json.loads(file.read_bytes())
    body["stack"].update(ranks=2, strategy="ddp")  # there was a session before
    file.write_text(json.dumps(body))
    train(package, strategy="fsdp", overrides=["stop_at=-1"])
    assert "ranks" not in capsys.readouterr().out and package.derived["inexact"] == []
    *_, old, new = checkpoint.read_manifests(package.checkpoints)
    infos = [
        msgspec.structs.replace(old, ranks=3, session=1),
        msgspec.structs.replace(new, ranks=3),
    ]
    monkeypatch.setattr(checkpoint, "read_manifests", lambda folder: infos)
    assert train_task._ranks_of_checkpoint(package, None) == {"ranks": 3, "strategy": "fsdp"}
    assert train_task._ranks_of_checkpoint(package, old.id) == {"ranks": 3, "strategy": "ddp"}, (
        "by another launcher"
    )
    assert train_task._ranks_of_checkpoint(package, 99) == {}


@pytest.mark.parametrize("force", [True, False])
def test_the_reasons_of_the_request_are_recorded(
    force: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = project(tmp_path)
    reasons = ["width: 3 -> 4", "Dataset.py has changed since it was copied"]
    train(package, force=force, inexact=reasons)
    assert package.derived["inexact"] == reasons
    assert checkpoint.read_manifests(package.checkpoints)[-1].inexact == reasons
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if "inexact" in line] == [f"inexact: {one}" for one in reasons]


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path, messages: Messages) -> None:
    package = project(tmp_path)
    assert train(package, Quiet("early")) == "early"
    file = package.path / "environment.json"
    assert json.loads(file.read_bytes())["determinism"] == "seeded"
    for damaged in (None, b"torn"):
        if damaged is not None:
            file.write_bytes(damaged)
        train(package, Quiet("early"), overrides=["+determinism=off"])
        assert json.loads(file.read_bytes())["determinism"] == "off"
        assert package.derived == {}, "nothing went before that the rest could not fit"
    train(package)
    assert package.derived["inexact"] == []
    file.write_bytes(b"torn")
    with pytest.raises(Refused, match=r"environment\.json") as refused:
        train(package)
    messages.check(refused.value.fix)


def test_a_change_that_was_forced_is_inexact(tmp_path: Path, messages: Messages) -> None:
    package = project(tmp_path, runner=STOPS, stop_at=3, threads=2)
    train(package)
    assert package.derived["inexact"] == [], "deterministic algorithms are in force with two threads"
    train(package, overrides=["+determinism=off", "stop_at=-1"], inexact=["determinism: (not set) -> off"])
    precision, change, threads = package.derived["inexact"]
    assert "none" in precision and "tf32" in precision and "threads" in threads
    assert change == "determinism: (not set) -> off" and "determinism: seeded" in threads
    messages.check(f"{precision}\n{threads}")


def test_a_value_of_a_command_line_is_blamed_on_it(tmp_path: Path) -> None:
    package = project(tmp_path, provenance={"optimizers.main.lr": "config.yaml:9", "width": "default"})
    train(package, overrides=["max_steps=2"])
    with pytest.raises(ConfigError, match=r"'lrr'.*\(at command line of session 2\).*'lr'") as refused:
        train(package, overrides=["+optimizers.main.lrr=3"])
    assert refused.value.setting == "optimizers.main.lrr"


def test_a_setting_that_is_wrong(tmp_path: Path) -> None:
    package = project(tmp_path, max_steps=0)
    with pytest.raises(ConfigError, match="0") as refused:
        train(package)
    assert refused.value.setting == "max_steps"
    assert not (package.path / "environment.json").exists()
