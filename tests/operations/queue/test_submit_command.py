"""Commands that are queued; a real daemon runs them where a test waits for their end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.devices.resource_request import TaskOptions
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.queue.submit import submit_continue
from roost.operations.queue.submit_command import command_plan, submit_command
from roost.package.package import PackageFolder
from tests.lab.labs import Lab
from tests.messages import Messages


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Lab]:
    """A lab of two simulated cards, which ends with the test."""
    here = Lab(tmp_path, "sim:2x24GB")
    with here.here():
        yield here
    here.close()


def later(**given: object) -> TaskOptions:
    """It waits for longer than any test."""
    return TaskOptions(begin=str(time.time() + 3600), **given)  # type: ignore[arg-type]


def test_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("ROOST_DEADLINE", "1795271400")
    made = command_plan(["sh", "-c", "true"], time_limit=5.0, folder=Path.cwd())
    assert (made.argv, made.cwd, made.is_command) == (["sh", "-c", "true"], str(tmp_path), True)
    assert made.env["MINE"] == "1" and "ROOST_DEADLINE" not in made.env and made.own_env == {}
    assert made.limits["wall_seconds"] == 5.0


def test_a_command_runs_where_and_as_it_was_typed(
    here: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("MINE", "yes")
    typed = ["sh", "-c", 'echo "$PWD $MINE $CUDA_VISIBLE_DEVICES"; exit 3']
    (task,) = submit_command(typed, TaskOptions(), name="cmd", description="a try").tasks
    done = here.wait_for(task.id)
    made = PackageFolder.open(tmp_path / "runs" / "cmd")
    assert (done.state, done.exit_code, done.need.cards) == ("failed", 3, 1)
    assert made.output.read_text() == f"{tmp_path} yes SIM-0\n"
    assert made.request["command"] == typed and made.request["description"] == "a try"
    with pytest.raises(Refused) as refused:
        submit_command(typed, TaskOptions(gpus=0), name="cmd")
    assert refused.value.setting == "--name" and "'cmd'" in str(refused.value)
    with pytest.raises(Refused) as refused:
        submit_continue(ContinueRequest(package=made.path), TaskOptions(gpus=0))
    assert refused.value.where == made.path
    messages.check(refused.value)
    with pytest.raises(UsageError) as refused:
        submit_command(typed, TaskOptions(strategy="ddp"))
    messages.check(refused.value)


def test_a_command_that_is_not_there_is_not_queued(here: Lab, tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "plain.py").write_text("")
    errors: tuple[tuple[str, type[RoostError], str], ...] = (
        ("no-such-program", NotFound, ""),
        ("./nothing", NotFound, ""),
        (str(tmp_path), NotFound, ""),
        ("", NotFound, ""),
        ("./plain.py", Refused, "-- python ./plain.py"),
        ("plain.py", Refused, "-- python plain.py"),
    )
    for program, error, fix in errors:
        with pytest.raises(error) as refused:
            submit_command([program, "x"], later(), folder=tmp_path)
        assert refused.value.setting == "--" and repr(program) in str(refused.value)
        assert fix in str(refused.value.fix)
        messages.check(refused.value)
    assert not (tmp_path / "runs").exists() and here.tasks() == []
    (tmp_path / "plain.py").chmod(0o700)
    submit_command(["./plain.py"], later(), folder=tmp_path)


def test_a_command_is_queued_without_what_trainings_need() -> None:
    """Each of these takes longer to load than all the rest of a submit."""
    code = "import sys; import roost.operations.queue.submit_command; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "yaml",
        "roost.config.settings",
        "roost.config.layers",
        "roost.lab.scheduling.scheduler",
        "concurrent.futures",
    }
    assert not heavy & set(found.split())
