"""Programs that are queued; a real daemon runs them where a test waits for their end."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.devices.resource_request import TaskOptions
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.programs.program_package import TypedProgram
from roost.operations.programs.submit_program import submit_program
from roost.operations.queue.submit import submit_continue
from roost.package.package import PackageFolder
from tests.lab.labs import Lab, two_card_lab
from tests.messages import Messages


@pytest.fixture(autouse=True)
def here(tmp_path: Path) -> Iterator[Lab]:
    with two_card_lab(tmp_path) as here:
        yield here


def later(**given: object) -> TaskOptions:
    """It waits for longer than any test."""
    return TaskOptions(begin=str(time.time() + 3600), **given)  # type: ignore[arg-type]


def program(*command: str, **given: Any) -> TypedProgram:
    """A program of the current folder."""
    return TypedProgram(command=command, folder=Path.cwd(), **given)


def test_a_program_runs_in_a_copy_of_its_folder(here: Lab, tmp_path: Path, messages: Messages) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "word.txt").write_text("copied")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINE", "yes")
        patch.setenv("ROOST_DEADLINE", "1795271400")
        patch.chdir(folder)
        typed = ("sh", "-c", 'echo "$(cat word.txt) $MINE $CUDA_VISIBLE_DEVICES $ROOST_DEADLINE"; exit 3')
        (task,) = submit_program(program(*typed, name="cmd", description="a try"), TaskOptions()).tasks
        (folder / "word.txt").write_text("edited")
        done = here.wait_for(task.id)
        made = PackageFolder.open(folder / "runs" / "cmd")
        assert (done.state, done.exit_code, done.need.cards) == ("failed", 3, 1)
        assert made.output.read_text() == "copied yes SIM-0 \n"
        assert made.request["command"] == list(typed) and made.request["description"] == "a try"
        assert made.manifest["files"].keys() == {"word.txt"}
        with pytest.raises(Refused) as refused:
            submit_program(program(*typed, name="cmd"), TaskOptions(gpus=0))
        assert refused.value.setting == "--name" and "'cmd'" in str(refused.value)
        with pytest.raises(UsageError) as wrong:
            submit_program(program(*typed), TaskOptions(strategy="ddp"))
        messages.check(wrong.value)


def test_a_program_in_place_runs_where_it_was_typed(here: Lab, tmp_path: Path) -> None:
    (task,) = submit_program(program("sh", "-c", "pwd", in_place=True), TaskOptions(gpus=0)).tasks
    assert here.wait_for(task.id).state == "succeeded"
    made = PackageFolder.open(Path(task.package))
    assert made.output.read_text() == f"{tmp_path}\n" and made.manifest["files"] == {}


def test_a_program_is_continued_by_the_queue_from_its_own_checkpoint(
    here: Lab, tmp_path: Path, messages: Messages
) -> None:
    script = 'echo "$ROOST_RESUME_FROM $@"; echo half > "$ROOST_CHECKPOINT_DIR/a.pt"; [ $# -gt 0 ] || exit 4'
    asked = program("sh", "-c", script, "x", in_place=True, name="goes", resume_with="--from {checkpoint}")
    (first,) = submit_program(asked, TaskOptions(gpus=0)).tasks
    assert here.wait_for(first.id).exit_code == 4
    package = tmp_path / "runs" / "goes"
    (second,) = submit_continue(ContinueRequest(package=package), TaskOptions(gpus=0)).tasks
    assert here.wait_for(second.id).state == "succeeded"
    kept = package / "Checkpoints" / "a.pt"
    assert f"{kept} --from {kept}" in (package / "_output.txt").read_text().splitlines()
    with pytest.raises(UsageError) as refused:
        submit_continue(ContinueRequest(package=package, checkpoint=3), TaskOptions(gpus=0))
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
    for name, error, fix in errors:
        with pytest.raises(error) as refused:
            submit_program(TypedProgram(command=[name, "x"], folder=tmp_path), later())
        assert refused.value.setting == "--" and repr(name) in str(refused.value)
        assert fix in str(refused.value.fix)
        messages.check(refused.value)
    assert not (tmp_path / "runs").exists() and here.tasks() == []
    (tmp_path / "plain.py").chmod(0o700)
    submit_program(TypedProgram(command=["./plain.py"], folder=tmp_path, in_place=True), later())


def test_a_program_whose_archive_is_not_there_is_not_queued(here: Lab, tmp_path: Path) -> None:
    asked = program("true", stage=("no.tar",), in_place=True)
    with pytest.raises(NotFound, match=r"no\.tar") as refused:
        submit_program(asked, later(gpus=0))
    assert refused.value.setting == "--stage" and here.tasks() == []
    (before,) = submit_program(program("true", in_place=True), later(gpus=0)).tasks
    assert submit_program(asked, later(gpus=0, after=(before.id,))).tasks


def test_a_command_is_queued_without_what_trainings_need() -> None:
    """Each of these takes longer to load than all the rest of a submit."""
    code = "import sys; import roost.operations.programs.submit_program; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {
        "yaml",
        "roost.config.settings",
        "roost.config.layers",
        "roost.lab.scheduling.scheduler",
        "concurrent.futures",
    }
    assert not heavy & set(found.split())
