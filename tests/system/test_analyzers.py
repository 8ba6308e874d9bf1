"""Analyzers in a real lab: scripts one after another in a warm process, whatever dies around them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.analysis import analysis_folder
from roost.analysis.analyzers import analyzer_folder
from roost.base.errors import CheckpointError, ContractError, NotFound, Refused, UsageError
from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import Task
from roost.operations.analyzers import script_call
from roost.operations.analyzers.call_results import ScriptCall
from roost.operations.analyzers.call_stream import follow_call
from roost.operations.analyzers.start_analyzer import AnalyzerRequest, start_analyzer
from roost.operations.queue import task_control
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from tests.cli.programs import ROOST, Terminal, roost
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.project.trained import trained
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper"),
    pytest.mark.timeout(300),
]

STEP = """def experience(self):
    print('at', self.checkpoint.step)
    return {'step': self.checkpoint.step}
"""
FOREVER = "def experience(self):\n    print('begins', flush=True)\n    while True: pass\n"
SLOW_SWITCH = """
def experience(self):
    made = type(self.runner)
    usual = made.build

    def build(runner):
        print("builds", flush=True)
        while True: pass

    made.build = build
    self.unslow = lambda: setattr(made, "build", usual)
"""


class AnalyzerLab(Lab):
    """A lab, and the project and the package of its analyzers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.project = folder / "project"
        self.scripts = self.project / "AnalyzeScripts"
        self.scripts.mkdir(parents=True)
        self.package = trained(self.project)

    def write(self, name: str, source: str) -> None:
        (self.scripts / f"{name}.py").write_text(source)

    def analyzer(self, **request: Any) -> Task:
        request = {"package": self.package.path, "project": self.project, **request}
        with self.here():
            (task,) = start_analyzer(AnalyzerRequest(options=TaskOptions(gpus=0), **request)).tasks
        return task

    def call(self, task: Task, script: str) -> ScriptCall:
        with self.here():
            return script_call.run_script(task.id, script)

    def follow(self, call: ScriptCall) -> tuple[str, Session]:
        """The output of a call until its end, and its end."""
        with self.here():
            *pieces, session = follow_call(call)
        assert isinstance(session, Session)
        return b"".join(piece for piece in pieces if isinstance(piece, bytes)).decode(), session

    def run(self, task: Task, script: str) -> tuple[str, Session, Any]:
        call = self.call(task, script)
        output, session = self.follow(call)
        return output, session, analysis_folder.read_result(Path(call.folder)).get("value")

    def output(self, task: Task) -> str:
        try:
            return (task.folder / "_output.txt").read_text()
        except FileNotFoundError:
            return ""

    def roost(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        with self.here():
            return roost(*arguments, cwd=self.folder)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnalyzerLab]:
    own = AnalyzerLab(tmp_path_factory.mktemp("analyzers"))
    yield own
    own.close()


@pytest.fixture(scope="module")
def task(lab: AnalyzerLab) -> Task:
    return lab.analyzer()


def test_edits_are_seen_at_each_call(lab: AnalyzerLab, task: Task) -> None:
    lab.write("look", STEP)
    first, ended, value = lab.run(task, "look")
    assert first == f"at {value['step']}\n" and ended.state == "succeeded"
    lab.write("look", STEP.replace("'at'", "'edited'"))
    call = lab.call(task, "look.py")
    lab.write("look", "not Python any more (")  # the call has its copy
    output, again = lab.follow(call)
    assert output == f"edited {value['step']}\n"
    assert again.recorded.pid == ended.recorded.pid, "the package is loaded once"
    with lab.here():
        rows = script_call.list_calls(task.label)
        latest = script_call.list_calls(task.label, since=call.analysis)
    assert [row.state for row in rows] == ["succeeded"] * 2 and rows[-1].analysis == call.analysis
    assert latest == rows[-1:]


def test_an_error_and_an_exit_end_the_script_only(lab: AnalyzerLab, task: Task) -> None:
    for source, code, says in (
        ("def experience(self):\n    return 1 / 0\n", 1, "ZeroDivisionError"),
        ("import sys\ndef experience(self): sys.exit(7)\n", 7, "sys.exit(7)"),
    ):
        lab.write("fails", source)
        output, ended, _ = lab.run(task, "fails")
        assert ended.state == "failed" and ended.recorded.exit_code == code
        assert says in output and "AnalyzeScripts/fails.py" in output.replace(
            "fails.py", "AnalyzeScripts/fails.py"
        )
    lab.write("look", STEP)
    assert lab.run(task, "look")[1].state == "succeeded" and lab.one(task.id).state == "running"


def test_a_script_that_never_returns_is_interrupted(lab: AnalyzerLab, task: Task) -> None:
    lab.write("forever", FOREVER)
    call = lab.call(task, "forever")
    wait_for(lambda: "begins" in lab.output(task))
    with lab.here():
        assert script_call.interrupt_script(task.id).analysis == call.analysis
    output, ended = lab.follow(call)
    assert output == "begins\n" and ended.state == "stopped" and ended.recorded.reason == "interrupted"
    assert lab.one(task.id).state == "running"
    with lab.here():
        assert script_call.interrupt_script(task.id).analysis is None, "nothing runs"


def test_an_interrupt_names_its_call(lab: AnalyzerLab, task: Task) -> None:
    lab.write("forever", FOREVER)
    lab.write("look", STEP)
    ended = lab.call(task, "look")
    lab.follow(ended)
    runs, waits = lab.call(task, "forever"), lab.call(task, "look")
    wait_for(lambda: analysis_folder.read(Path(runs.folder)).state == "running")
    with lab.here():
        for other in (ended.analysis, 9999):
            assert script_call.interrupt_script(task.id, other).analysis is None
        listed = script_call.list_calls(task.id, since=waits.analysis)
        assert [row.analysis for row in listed] == [runs.analysis, waits.analysis], "what runs is listed"
        assert script_call.interrupt_script(task.id, waits.analysis).analysis == waits.analysis
        assert analysis_folder.read(Path(runs.folder)).state == "running", "it is another person's"
        assert script_call.interrupt_script(task.id, runs.analysis).analysis == runs.analysis
    for call in (runs, waits):
        assert lab.follow(call)[1].recorded.reason == "interrupted"


def test_a_call_that_was_removed_is_not_waited_for(lab: AnalyzerLab, task: Task) -> None:
    lab.write("forever", FOREVER)
    runs, removed, gone = (lab.call(task, "forever") for _ in range(3))
    wait_for(lambda: analysis_folder.read(Path(runs.folder)).state == "running")
    inbox = analyzer_folder.inbox(task.folder)
    for call in inbox.waiting():
        if call.analysis in (removed.analysis, gone.analysis):
            inbox.withdraw(call)
    shutil.rmtree(gone.folder)
    for call in (removed, gone):
        _, ended = lab.follow(call)
        assert (ended.state, ended.error) == ("crashed", "the call was removed")
    with lab.here():
        waits = lab.call(task, "forever")
        notes = (piece for piece in follow_call(waits) if isinstance(piece, str))
        assert next(notes) == f"waiting for analysis {runs.analysis} in {task.label} to end ..."
        script_call.interrupt_script(task.id, waits.analysis)
        script_call.interrupt_script(task.id, runs.analysis)


def test_scripts_elsewhere_are_refused(
    lab: AnalyzerLab, task: Task, tmp_path: Path, messages: Messages
) -> None:
    (tmp_path / "outside.py").write_text(STEP)
    (lab.project / "beside.py").write_text(STEP)
    (lab.scripts / "link.py").symlink_to(tmp_path / "outside.py")
    names = [
        "../beside",
        "../beside.py",
        "link",
        "link.py",
        str(tmp_path / "outside.py"),
        str(lab.project / "beside.py"),
    ]
    for name in names:
        with pytest.raises(Refused) as refused:
            lab.call(task, name)
    messages.check(refused.value)
    lab.write("inside", STEP)
    assert lab.run(task, str(lab.scripts / "inside.py"))[1].state == "succeeded"
    assert lab.run(task, "../AnalyzeScripts/inside")[1].state == "succeeded"
    (lab.scripts / "link.py").unlink()
    with lab.here():
        listed = [one.name for one in script_call.list_scripts(task.id)]
    assert "inside" in listed and "link" not in listed


def test_scripts_that_cannot_run(lab: AnalyzerLab, task: Task, messages: Messages) -> None:
    lab.write("accuracy", STEP)
    lab.write("nothing", "x = 1\n")
    lab.write("broken", "def experience(self:\n")
    for name, error in (
        ("acuracy", NotFound), ("nothing", ContractError), ("broken", ContractError), ("", NotFound),
        ("x" * 5000, NotFound), ("a\0b", NotFound), ("/etc/passwd", Refused), (".", NotFound),
    ):  # fmt: skip
        with pytest.raises(error) as refused:
            lab.call(task, name)
        if name in ("acuracy", "nothing"):
            messages.check(refused.value)
    for name in ("accuracy", "nothing", "broken"):
        (lab.scripts / f"{name}.py").unlink()


def test_another_checkpoint(lab: AnalyzerLab, task: Task) -> None:
    lab.write("id", "def experience(self): return self.checkpoint and self.checkpoint.id")
    newest = lab.run(task, "id")[2]
    for wanted, found in (("0", 0), (1, 1), (-2, None), ("untrained", None), ("last", newest)):
        with lab.here():
            script_call.switch_checkpoint(task.id, wanted)
        assert lab.run(task, "id")[2] == found
    with lab.here():
        for wrong, error in (("99", NotFound), ("first", UsageError)):
            with pytest.raises(error):
                script_call.switch_checkpoint(task.id, wrong)


def test_the_program(lab: AnalyzerLab, task: Task) -> None:
    lab.write("look", STEP)
    said = lab.roost("analyze", task.label, "-s", "look")
    assert said.returncode == 0, said.stderr
    step = said.stdout.split()[1]
    assert said.stdout.startswith(f"at {step}\nstep  {step}\n") and "succeeded in" in said.stderr
    said = lab.roost("analyze", task.id, "-s", lab.scripts / "look.py", "--json", "-c", "0")
    found = json.loads(said.stdout)
    assert found["result"]["checkpoint"]["id"] == 0 and said.stderr.count("at ") >= 1
    lab.write("fails", "def experience(self): raise SystemExit(9)")
    said = lab.roost("analyze", task.label, "-s", "fails", "-c", "last")
    assert said.returncode == 9 and "sys.exit(9)" in said.stdout and "\x1b" not in said.stdout
    assert lab.roost("analyze", task.label, "-s", "look", "-CPU").returncode == 2
    assert lab.roost("analyze", task.label, "-s", "/etc/hosts").returncode == 5
    assert lab.roost("analyze", task.label, "-s", "loook").returncode == 3


def test_ctrl_c_interrupts_the_script(lab: AnalyzerLab, task: Task) -> None:
    lab.write("forever", FOREVER)
    with lab.here():
        shown = Terminal("analyze", task.label, "-s", "forever", cwd=lab.folder)
    shown.wait_for("begins")
    shown.press_ctrl_c()
    code, seen = shown.end()
    assert code == 130 and "interrupted" in seen and "Traceback" not in seen, seen
    assert lab.one(task.id).state == "running"


def test_ctrl_c_ends_the_switch_that_the_call_waits_for(lab: AnalyzerLab, task: Task) -> None:
    lab.write("look", STEP)
    lab.write("slow", SLOW_SWITCH)
    before = lab.run(task, "look")[2]
    lab.run(task, "slow")
    with lab.here():
        shown = Terminal("analyze", task.label, "-s", "look", "-c", "1", cwd=lab.folder)
    shown.wait_for("waiting for")
    shown.press_ctrl_c()
    code, seen = shown.end()
    assert code == 130 and "Traceback" not in seen, seen
    assert lab.run(task, "look")[2] == before
    assert "not switched: interrupted; still checkpoint" in lab.output(task)
    lab.write("usual", "def experience(self): self.unslow()")
    lab.run(task, "usual")


def test_a_detached_program_changes_nothing(lab: AnalyzerLab, task: Task) -> None:
    waits = "import pathlib, time\ndef experience(self):\n    print('begins')\n    go = pathlib.Path(GO)\n"
    waits += "    while not go.exists(): time.sleep(0.01)\n    print('goes on')\n"
    lab.write("waits", waits.replace("GO", repr(str(lab.folder / "go"))))
    with lab.here():
        command = [*ROOST, "analyze", task.label, "-s", "waits"]
        program = subprocess.Popen(
            command, cwd=lab.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    wait_for(lambda: lab.output(task).endswith("begins\n"))
    program.kill()
    program.wait()
    lab.kill_daemon()  # and nobody starts it again
    with lab.here():
        *_, row = script_call.list_calls(task.id)
    assert row.state == "running"
    (lab.folder / "go").touch()
    wait_for(lambda: analysis_folder.read(Path(row.folder)).state == "succeeded")
    assert (Path(row.folder) / "_output.txt").read_text() == "begins\ngoes on\n"
    lab.write("look", STEP)
    assert lab.run(task, "look")[1].state == "succeeded", "also without a daemon"
    lab.start()
    wait_for(lambda: lab.one(task.id).state == "running")


def test_a_stop_ends_the_analyzer(lab: AnalyzerLab) -> None:
    own = lab.analyzer(untrained=True)
    lab.write("forever", FOREVER)
    runs, waits = lab.call(own, "forever"), lab.call(own, "forever")
    wait_for(lambda: "begins" in lab.output(own))
    with lab.here():
        task_control.request_stop(own.label)
    wait_for(lambda: lab.one(own.id).state == "stopped")
    for call in (runs, waits):
        _, ended = lab.follow(call)
        assert ended.state == "stopped" and ended.recorded.reason == "analyzer"
    for refused in (
        lambda: lab.call(own, "forever"),
        lambda: lab.roost("analyze", own.id, "-s", "forever").check_returncode(),
    ):
        with pytest.raises((Refused, subprocess.CalledProcessError)):
            refused()


def test_a_call_before_the_start_and_a_lost_attempt(lab: AnalyzerLab) -> None:
    lab.write("forever", FOREVER)
    lab.write("look", STEP)
    own = lab.analyzer()
    dies, later = lab.call(own, "forever"), lab.call(own, "look")
    assert analysis_folder.read(Path(later.folder)).state == "starting"
    wait_for(lambda: "begins" in lab.output(own))
    worker = analysis_folder.read(Path(dies.folder)).recorded.pid
    assert worker is not None
    session = own.folder / "sessions" / "1.json"
    supervisor, guard = (json.loads(session.read_text())[name] for name in ("pid", "guard_pid"))
    for pid in (guard, supervisor, worker):  # as if the kernel took all of it
        os.kill(pid, signal.SIGKILL)
    _, ended = lab.follow(later)
    assert ended.state == "succeeded", "another attempt carries it out"
    assert lab.follow(dies)[1].state == "crashed"
    with lab.here():
        task_control.request_stop(own.id)


def test_what_is_no_analyzer(lab: AnalyzerLab) -> None:
    command = lab.submit("sleep 600")
    with lab.here():
        with pytest.raises(UsageError, match="command, not an analyzer"):
            script_call.run_script(command, "look")
        with pytest.raises(NotFound):
            script_call.run_script("A_999", "look")
        task_control.request_stop(command, now=True)


def test_a_package_without_checkpoints(lab: AnalyzerLab, tmp_path: Path, messages: Messages) -> None:
    package = trained(tmp_path, checkpoint={"every": "1000000", "fast": 0})
    for path in package.checkpoints.iterdir():
        path.rename(tmp_path / path.name)
    with pytest.raises((NotFound, CheckpointError)) as refused:
        lab.analyzer(package=package.path, project=tmp_path)
    messages.check(refused.value)
    untrained = lab.analyzer(package=package.path, project=tmp_path, untrained=True, scripts=lab.scripts)
    lab.write("id", "def experience(self): return self.checkpoint and self.checkpoint.id")
    _, ended, value = lab.run(untrained, "id")
    assert ended.state == "succeeded" and value is None
    with lab.here():
        task_control.request_stop(untrained.id)


def test_a_package_that_is_moved(lab: AnalyzerLab) -> None:
    moved, away = lab.project / "runs" / "moved", lab.project / "runs" / "away"
    shutil.copytree(lab.package.path, moved, ignore=shutil.ignore_patterns("analyzers", "analysis"))
    lab.write("look", STEP)
    own = lab.analyzer(package=moved)
    assert lab.run(own, "look")[1].state == "succeeded"
    wait_for(lambda: not analyzer_folder.inbox(own.folder).begun())
    moved.rename(away)
    with pytest.raises(NotFound, match=f"roost stop {own.label}"):
        lab.call(own, "look")
    assert lab.one(own.id).state == "running"
    away.rename(moved)
    assert lab.run(own, "look")[1].state == "succeeded"
    moved.rename(away)
    with lab.here():
        task_control.request_stop(own.label)
    ended = lab.wait_for(own.id)
    assert ended.state == "failed" and "its package was removed" in ended.reason


def test_twenty_at_once(lab: AnalyzerLab) -> None:
    lab.write("who", "import os\ndef experience(self): return os.getpid()")
    tasks = [lab.analyzer() for _ in range(20)]
    calls = [[lab.call(task, "who") for _ in range(3)] for task in tasks]
    for task, own in zip(tasks, calls, strict=True):
        values = set()
        for call in own:
            assert lab.follow(call)[1].state == "succeeded"
            values.add(analysis_folder.read_result(Path(call.folder))["value"])
        assert len(values) == 1 and lab.one(task.id).state == "running"
    with lab.here():
        for task in tasks:
            task_control.request_stop(task.id)
    wait_for(lambda: all(lab.one(task.id).state == "stopped" for task in tasks))
    assert PackageFolder.open(lab.package.path).sessions()[-1].number == 1, (
        "no number of the package is taken"
    )
