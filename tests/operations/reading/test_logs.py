"""What a run printed."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.lab.queue import task_file
from roost.lab.queue.task import SUCCEEDED
from roost.operations import lab as operations_lab
from roost.operations.queue import new_tasks
from roost.operations.reading.logs import explain_no_output, logs
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import package, session
from tests.waiting import wait_for


def test_byte_for_byte(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    assert b"".join(logs(made.path)) == b""
    data = b"\xff\x00\x1b[31mred\r\n" * 30_000
    made.output.write_bytes(data)
    assert b"".join(logs(made.path)) == data
    assert b"".join(logs(made.path, follow=True)) == data


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("lines", [0, 1, 2, 7, 20_000, 1_000_000])
def test_the_last_lines(tmp_path: Path, lines: int, end: bytes) -> None:
    made = package(tmp_path / "runs")
    said = [b"line %d" % i for i in range(50_000)]
    made.output.write_bytes(b"\n".join(said) + end)
    expected = b"\n".join(said[-lines:]) + end if lines else b""
    assert b"".join(logs(made.path, lines=lines)) == expected


def test_follows_to_the_last_byte(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running")
    seen: list[bytes] = []
    follower = threading.Thread(target=lambda: seen.extend(logs(made.path, follow=True)))
    follower.start()
    with made.output.open("ab", buffering=0) as output:
        output.write(b"first\n")
        wait_for(lambda: b"first\n" in seen)
        output.write(b"last, and the end at once")
        record = made.path / "sessions" / "1.json"
        body = {**json.loads(record.read_text()), "state": "succeeded"}
        record.with_suffix(".new").write_text(json.dumps(body))
        record.with_suffix(".new").rename(record)
    follower.join(100)
    assert not follower.is_alive() and b"".join(seen) == b"first\nlast, and the end at once"


def test_a_package_that_is_deleted_while_it_is_followed(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs", state="running")
    made.output.write_bytes(b"begun\n")
    pieces = logs(made.path, follow=True)
    assert next(pieces) == b"begun\n"
    shutil.rmtree(made.path)
    with pytest.raises(NotFound) as caught:
        list(pieces)
    messages.check(caught.value)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(logs(tmp_path))


def test_each_rank_has_its_own(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path)
    made.output.with_name("_output_1.txt").write_bytes(b"of rank 1\n")
    assert b"".join(logs(made.path, rank=1)) == b"of rank 1\n"
    assert b"".join(logs(made.path, rank=1, follow=True, lines=0)) == b""
    with pytest.raises(NotFound) as refused:
        list(logs(made.path, rank=2))
    assert all(fact in str(refused.value) for fact in (" 2 ", "--rank 0"))
    assert refused.value.where == made.path
    messages.check(refused.value)


def test_the_ranks_of_another_machine_print_together(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path)
    for node in (2, 1):
        made.output.with_name(f"_output_node_{node}.txt").touch()
    with pytest.raises(NotFound) as caught:
        list(logs(made.path, rank=3))
    fix = str(caught.value.fix)
    assert "--rank 0" in fix and "_output_node_1.txt, _output_node_2.txt" in fix
    messages.check(fix)


def test_a_rank_is_followed_into_the_next_session(tmp_path: Path) -> None:
    """Its output was shortened between the two, as that of rank 0, which has another length."""
    made = package(tmp_path, state="running")
    output = made.output.with_name("_output_1.txt")
    output.write_bytes(b"long" * 100)
    pieces = logs(made.path, follow=True, rank=1)
    assert next(pieces) == b"long" * 100
    output.rename(output.with_suffix(".old"))
    output.write_bytes(b"short\nsecond\n")
    number = session(made, "succeeded")
    asked, ended = (made.path / "sessions" / name for name in (f"{number}.request.json", "1.json"))
    offsets = {"output_offsets": {"_output.txt": 3, "_output_1.txt": 6}}
    asked.write_text(json.dumps(json.loads(asked.read_bytes()) | offsets))
    ended.write_text(json.dumps(json.loads(ended.read_bytes()) | {"state": "failed", "restarted_as": number}))
    assert b"".join(pieces) == b"second\n"


def test_a_task_that_waits_is_followed_from_its_start(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    task = lab.queue("echo begun; sleep 0.1; echo done")
    task_file.write(task, lab.state)
    try:
        with lab.here():
            assert b"".join(logs(task.id)) == b""
            pieces = logs(task.id, follow=True)
            note = next(pieces)
            assert isinstance(note, str) and "roost lab start" in note
            assert next(pieces) == b""  # once is enough
            lab.start()
            assert b"".join(pieces) == b"begun\ndone\n"
            assert b"".join(logs(task.package, lines=1)) == b"done\n"
    finally:
        lab.close()


def test_a_task_is_followed_through_its_attempts(tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path)
    wait = "while [ ! -e {} ]; do sleep 0.02; done"
    first = f"echo once; touch again; {wait.format('heard')}; exit 1"
    task = lab.task(f"[ -e again ] || {{ {first}; }}; {wait.format('go')}; echo twice", retries=1)
    heard: list[bytes | str] = []
    try:
        with lab.here():
            new_tasks.enqueue([task])
            for piece in filter(None, logs(task.id, follow=True)):
                heard.append(piece)
                (tmp_path / ("go" if isinstance(piece, str) else "heard")).touch()
            once, between, last = heard
            assert once == b"once\n" and last.endswith(b"twice\n")
            assert isinstance(between, str) and "session 1" in between and "failed" in between
            messages.check(between)
            whole = b"".join(logs(task.package, follow=True))  # type: ignore[arg-type]
            assert whole == once + last
    finally:
        lab.close()


def test_where_the_daemon_was_stopped_nobody_waits_for_the_task(tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path)
    task = lab.task("echo here; while [ ! -e go ]; do sleep 0.02; done")
    try:
        with lab.here():
            new_tasks.enqueue([task])
            pieces = logs(task.id, follow=True)
            wait_for(lambda: next(pieces) == b"here\n")
            operations_lab.stop()
            (tmp_path / "go").touch()
            (told,) = filter(None, pieces)
            assert isinstance(told, str) and "roost lab start" in told
            messages.check(told)
    finally:
        lab.close()


@pytest.mark.parametrize("begun", [False, True])
def test_a_daemon_killed_with_its_watchdog_is_started_for_the_followed_task(
    tmp_path: Path, messages: Messages, begun: bool
) -> None:
    lab = Lab(tmp_path)
    script = "[ -e went ] && exit; echo here; while [ ! -e go ]; do sleep 0.02; done; touch went; exit 1"
    try:
        with lab.here():
            if begun:
                task = lab.task(script, retries=1)
                new_tasks.enqueue([task])
                pieces = logs(task.id, follow=True)
                wait_for(lambda: next(pieces) == b"here\n")
                lab.kill_daemon()
            else:
                lab.start()
                lab.kill_daemon()
                task = lab.queue(script, retries=1)
                pieces = logs(task.id, follow=True)
            (tmp_path / "go").touch()
            notes = [piece for piece in pieces if isinstance(piece, str)]
            assert "is started again" in notes[0] and "session 1 failed" in notes[1] and len(notes) == 2
            messages.check(notes[0])
            assert lab.one(task.id).state == SUCCEEDED
    finally:
        lab.close()


def test_a_task_that_was_stopped_before_it_began_has_printed_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    task = lab.queue("true")
    task_file.write(task, lab.state)
    with lab.here():
        pieces = logs(task.name, follow=True)
        assert "roost lab start" in str(next(pieces))
        lab.ask(task.id, "stop")
        assert b"".join(pieces) == b""


def test_why_nothing_was_printed(tmp_path: Path, messages: Messages) -> None:
    lab = Lab(tmp_path)
    task = lab.queue("true")
    task_file.write(task, lab.state)
    with lab.here():
        assert f"`roost why {task.id}`" in explain_no_output(task.id)
        messages.check(explain_no_output(task.id).replace(task.id, "<id>"))
        lab.ask(task.id, "stop")
        assert explain_no_output(task.id) == explain_no_output(task.package)
        messages.check(explain_no_output(task.id))
    for state in ("running", "failed"):
        messages.check(explain_no_output(package(tmp_path / "others", state, state=state).path))
