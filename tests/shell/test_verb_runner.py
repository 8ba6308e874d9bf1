"""Verbs on a real lab, over its server and without one."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.lab.queue import package_roots
from roost.lab.queue.task import Task
from roost.operations import lab
from roost.package import labels
from roost.package.package import PackageFolder
from roost.shell import local_connection
from roost.shell.lab_connection import LabConnection
from roost.shell.verb_runner import _VERBS, VerbRunner
from roost.shell.verbs import VERBS, parse
from tests.serve.servers import Server

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def runner(connection: LabConnection) -> VerbRunner:
    return VerbRunner(connection)


def shown(runner: VerbRunner, line: str) -> str:
    return "".join(runner.run(line))


def label_of(server: Server, id: str) -> str:
    return server.lab.one(id).label


def test_every_verb_is_carried_out() -> None:
    assert list(_VERBS) == [verb.name for verb in VERBS if verb.name in _VERBS]
    assert set(_VERBS) == {verb.name for verb in VERBS}


def test_a_project_is_made_trained_shown_and_continued(
    runner: VerbRunner, server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "my project"
    made = shown(runner, f"new -d {shlex.quote(str(folder))}")
    assert f"next: run -c '{folder}/root_config.json'" in made
    with pytest.raises(Refused):
        shown(runner, f"new -d '{folder}'")
    config = f"'{folder}/root_config.json'"
    queued = shown(runner, f"run -c {config} -CPU roost.threads=1 -d the first try -sd")
    label, path = queued.split(None, 1)
    assert label.startswith("T_") and Path(path.strip()) == folder / "Saves" / "the first try"
    (id,) = runner.connection.started
    assert label_of(server, id) == label
    task = server.lab.wait_for(id)
    assert task.state == "succeeded", (Path(task.package) / "_output.txt").read_text()
    rows = shown(runner, "showTask")
    (row,) = [line for line in rows.splitlines() if label in line.split()]
    assert "the first try" in row
    assert "succeeded" in row
    assert row.split().count(label) == 1  # in its own column, which a narrow terminal has, too
    narrow = VerbRunner(runner.connection)
    narrow.width = 40
    assert label in shown(narrow, "showTask")
    output = shown(runner, f"logs {label}")
    assert output and output.splitlines()[-2:] == shown(runner, f"logs {label} -n 2").splitlines()
    assert shown(runner, f"logs {id} -f") == output
    assert shown(runner, f"logs {label} -n 0") == ""
    assert shown(runner, f"why {label}").startswith(f"{label} the first try: ")
    assert shown(runner, f"tag {label} best,paper old") == f"{label}: best, paper, old\n"
    assert shown(runner, f"tag {label} -r old") == f"{label}: best, paper\n"
    assert shown(runner, f"note {label} a note  with blanks") == f"{label}: a note with blanks\n"
    kept = labels.read(Path(task.package))
    assert (kept.tags, kept.note) == (["best", "paper"], "a note with blanks")
    assert shown(runner, f"note {label} ''") == f"{label}: no note\n"
    continued = shown(runner, f"continue -r '{task.package}' -d more -CPU")
    again = runner.connection.started[-1]
    assert continued.startswith(label_of(server, again)) and again != id
    assert server.lab.wait_for(again).state == "succeeded"
    assert len(PackageFolder.open(Path(task.package)).sessions()) == 2


def test_names_nosave_win_over_the_description(runner: VerbRunner, server: Server, tmp_path: Path) -> None:
    shown(runner, f"new -d {tmp_path}/p")
    line = f"run -c {tmp_path}/p/root_config.json -CPU -d words -sd -ns"
    names = []
    for _ in range(2):
        shown(runner, line)
        id = runner.connection.started[-1]
        names.append(server.lab.one(id).name)
        shown(runner, f"del {label_of(server, id)}")
    assert names == ["NOSAVE", "NOSAVE-2"]


def test_a_task_is_held_released_ranked_and_ended(runner: VerbRunner, server: Server) -> None:
    id = server.lab.submit("sleep 600", priority=0)
    label = label_of(server, id)
    server.lab.wait_for(id, "running")
    later = label_of(server, server.lab.submit("true", begin=time.time() + 7200.0))
    assert next(runner.run(f"logs {later} -f")).startswith(f"{later} has not started yet: ")
    shown(runner, f"kill {later}")
    for line in (f"hold {label}", f"release {id}", f"priority {label} 7"):
        assert shown(runner, line).startswith(f"{label}: ")
    assert server.lab.one(id).priority == 7
    assert shown(runner, f"kill {label}") == f"{label}: ended at once\n"
    assert server.lab.wait_for(id).state == "stopped"
    with pytest.raises(RoostError):
        shown(runner, f"del {label}")


def test_del_takes_a_task_from_the_queue(runner: VerbRunner, server: Server) -> None:
    id = server.lab.submit("true", begin=4e9)
    label = label_of(server, id)
    assert f"{label} " in shown(runner, "showTask") or server.lab.one(id).name in shown(runner, "showTask")
    assert shown(runner, f"del {label}") == f"{label}: asked to save and end\n"
    assert server.lab.wait_for(id).state == "stopped"


def test_logs_are_followed_until_the_task_ends(runner: VerbRunner, server: Server) -> None:
    id = server.lab.submit("echo begun; while [ ! -e go ]; do sleep 0.01; done; echo ended")
    task = server.lab.wait_for(id, "running")
    pieces = runner.run(f"logs {id} -f")
    seen = ""
    while "begun\n" not in seen:
        seen += next(pieces)
    (Path(task.package).parent.parent / "go").touch()
    seen += "".join(pieces)
    assert seen.endswith("begun\nended\n")
    (Path(task.package).parent.parent / "go").unlink()


def test_ctrl_c_ends_the_following_and_not_the_task(runner: VerbRunner, server: Server) -> None:
    id = server.lab.submit("while :; do echo tick; sleep 0.1; done")
    server.lab.wait_for(id, "running")
    pieces = runner.run(f"logs {id} -n 0 -f")
    assert "tick" in next(pieces)
    assert "the task continues" in pieces.throw(KeyboardInterrupt())
    assert list(pieces) == [] and server.lab.one(id).state == "running"
    shown(runner, f"kill {id}")
    server.lab.wait_for(id)


def test_cards_are_chosen_by_numbers_with_blanks(runner: VerbRunner) -> None:
    table = shown(runner, "changeDevices -d 1 -1")
    assert "-1 is the CPU, which tasks may always use" in table
    first, second = table.splitlines()[1:3]
    assert "not used by the lab" in first and "not used by the lab" not in second
    assert "not used by the lab" not in shown(runner, "changeDevices -d 0 1 -1")
    assert shown(runner, "showDevice").splitlines()[0] == shown(runner, "showDevices").splitlines()[0]
    for line in ("changeDevices -d 7", "changeDevices -d -1"):
        with pytest.raises(UsageError):
            shown(runner, line)


def test_without_cards_the_cpu_alone_may_be_chosen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "cpu")
    said = shown(VerbRunner(local_connection.connect()), "changeDevices -d -1")
    assert said.splitlines()[-2:] == ["no GPUs", "-1 is the CPU, which tasks may always use"]


def test_memory_is_divided_among_cards(runner: VerbRunner, server: Server, tmp_path: Path) -> None:
    shown(runner, f"new -d {tmp_path}/p")
    run = f"run -c {tmp_path}/p/root_config.json"
    for options, cards, memory_mb in (
        ("-m 9000", 1, 9000),
        ("-DDP", 2, None),
        ("-mc -m 40GB", 2, 20480),
        ("-mc -m 9000", 1, 9000),
        ("-DDP -m 9000", 1, 9000),
    ):
        shown(runner, f"{run} {options}")
        id = runner.connection.started[-1]
        need = server.lab.one(id).need
        shown(runner, f"kill {id}")
        assert (need.cards, need.memory_mb) == (cards, memory_mb), options
    with pytest.raises(Refused):
        shown(runner, f"{run} -DDP -m 900GB")


def test_the_journal_is_shown_and_cleared(runner: VerbRunner, connection: LabConnection) -> None:
    shown(runner, "changeDevices -d all")
    with pytest.raises(UsageError):
        shown(runner, "changeDevices -d 99")
    lines = shown(runner, "showDL").splitlines()
    assert "change_devices allowed=all" in lines[-2] and " failed: " in lines[-1]
    assert "\x1b[31mfailed: " in shown(runner, "showDL -s")
    shown(runner, "clear")
    assert shown(runner, "showDL") == ""


@pytest.mark.parametrize(
    "line",
    [
        "del T_99999",
        "why nothing-of-that-name",
        "logs T_99999",
        "watch T_99999",
        "run -c /nowhere/root_config.json",
        "continue -r /nowhere/package",
        "continue -r T_99999",
        "runExp T_99999 getAcc",
    ],
)
def test_what_does_not_exist_is_one_clear_line(runner: VerbRunner, line: str) -> None:
    with pytest.raises(RoostError) as error:
        shown(runner, line)
    assert "\n" not in str(error.value)


def test_only_an_analyzer_is_watched(runner: VerbRunner, server: Server) -> None:
    id = server.lab.submit("true")
    with pytest.raises(UsageError, match="is no analyzer"):
        shown(runner, f"watch {id}")
    for line in ("runExp getAcc", "showAN", "interrupt", "checkpoint best", "withdraw"):
        with pytest.raises(UsageError, match="no analyzer is watched"):
            shown(runner, line)
    server.lab.wait_for(id)


def test_a_client_that_only_reads_changes_nothing(connection: LabConnection) -> None:
    reader = VerbRunner(connection, is_read_only=True)
    for verb in VERBS:
        if verb.changes:
            with pytest.raises(Refused, match="only reads"):
                shown(reader, verb.examples[0])
    assert shown(reader, "showDevices") and shown(reader, "help")


def test_hostile_names_and_outputs_do_nothing_to_a_terminal(
    runner: VerbRunner, server: Server, tmp_path: Path
) -> None:
    task = server.lab.task("printf '\\033]0;title\\007\\033[2J\\r\\033[31mred\\033[0m\\n'")
    renamed: Task = msgspec.structs.replace(task, name="\x1b[2Ja\nb\x9b1m\u202e")
    with lab.open_queue() as store:
        package_roots.add(server.lab.state, [Path(task.package)])
        store.submit([renamed])
    lab.notify_daemon("queued")
    server.lab.wait_for(task.id)
    output = shown(runner, f"logs {task.id}")
    assert "\x1b[31mred\x1b[0m" in output and "\\x1b]0;title\\x07\\x1b[2J" in output
    for line in ("showTask", f"why {task.id}", f"tag {task.id} a"):
        text = _COLOUR.sub("", shown(runner, line))
        assert "\\x1b[2J" in text or "tag" in line
        assert all(one.isprintable() for one in text.splitlines())


def test_help_explains_all_verbs(runner: VerbRunner) -> None:
    listed = shown(runner, "help")
    for verb in VERBS:
        assert f"\n{verb.name} " in f"\n{listed}"
        about = shown(runner, f"help {verb.name}")
        assert about.startswith(f"{verb.usage}\n") and all(example in about for example in verb.examples)
        for option in verb.options:
            assert option in about
    with pytest.raises(NotFound):
        shown(runner, "help runExpp")


def test_exit_is_wanted(runner: VerbRunner) -> None:
    assert shown(runner, "exit") == "" and runner.wants_exit
    assert parse("quit") is not None
