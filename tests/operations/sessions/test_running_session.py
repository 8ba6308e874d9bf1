"""Following what runs by its files alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.lab.sessions.session_control import request_stop
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.sessions.running_session import RunningSession, follow, newest_session
from roost.operations.sessions.session_request import StartedSession
from roost.package.sessions import Session
from tests.messages import Messages
from tests.operations.packages import package, project
from tests.supervisor.real_sessions import Session as SmallSession
from tests.waiting import wait_for


def followed(started: StartedSession) -> tuple[RunningSession, bytes, Session]:
    """All that it prints until it ends; it is asked to stop once it says the word ``epoch``, if endless."""
    assert started.running is not None and started.process is not None
    place, shown = started.running, b""
    for event in follow(place):
        if isinstance(event, Session):
            started.process.wait(100)
            return place, shown, event
        shown += event
        if b"epoch" in event and place.session().request["description"] == "endless":
            request_stop(place.session())
    raise AssertionError


@pytest.mark.soak
def test_follows_to_the_end_and_from_an_offset(tmp_path: Path) -> None:
    place, first, ended = followed(run(RunRequest(config=project(tmp_path / "p", max_epochs="2"))))
    assert ended.state == "succeeded"
    assert first == place.output.read_bytes() and b"epoch 2/2" in first
    again = continue_(ContinueRequest(package=place.package, overrides=["max_epochs=3"]))
    place, second, ended = followed(again)
    assert (place.number, ended.state) == (2, "succeeded")
    assert second and first + second == place.output.read_bytes()


def test_a_stop_request_and_the_end(tmp_path: Path) -> None:
    config = project(tmp_path / "p", max_epochs="1000000", validate_every="1000")
    _, _, ended = followed(run(RunRequest(config=config, description="endless")))
    assert ended.state == "stopped" and ended.record is not None
    assert ended.record["exit_code"] == 75


def test_one_that_dies_without_a_word_reads_as_crashed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", pid=os.getpid(), start_ticks=1)
    found = newest_session(made)
    assert found is not None and found.state == "crashed"
    place = RunningSession(
        made.path,
        1,
        request=made.path / "sessions" / "1.request.json",
        record=made.path / "sessions" / "1.json",
        output=made.output,
    )
    *_, ended = follow(place)
    assert isinstance(ended, Session) and ended.state == "crashed"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SmallSession]:
    made = SmallSession(tmp_path)
    (made.folder / "sessions" / "1.request.json").write_text("{}")
    yield made
    if made.child is not None and made.child.poll() is None:
        made.child.kill()  # where the test failed it may be paused
    made.close()


def without_supervisor(session: SmallSession, *, restart: int) -> tuple[bytes, list[int], Session]:
    """What is seen of a session whose supervisor is killed: the output, who follows, and the end. The second
    one succeeds."""
    code = "if sys.argv[1] == '2': print('again', flush=True); end('succeeded', 0); sys.exit(0)\n"
    spec = session.spec(f"{code}here('ready'); forever()")
    guard = session.start_spec(spec._replace(argv=[*spec.argv, "1"], restart=restart))
    session.wait_until("ready")
    guard.send_signal(signal.SIGSTOP)
    os.kill(session.supervisor_pid, signal.SIGKILL)
    wait_for(lambda: (stat := process_identity.read_stat(session.supervisor_pid)) is None or stat.ended)
    folder, seen = session.folder, b""
    numbers: list[int] = []
    request = folder / "sessions" / "1.request.json"
    events = follow(RunningSession(folder, 1, request=request, record=session.file, output=session.output))
    assert [next(events) for _ in range(3)] == [b""] * 3, "the guard has not completed the record yet"
    guard.send_signal(signal.SIGCONT)
    for event in events:
        if isinstance(event, Session):
            return seen, numbers, event
        if isinstance(event, RunningSession):
            numbers.append(event.number)
        else:
            seen += event
    raise AssertionError


def test_a_killed_supervisor_is_no_end_where_the_guard_begins_the_next_session(session: SmallSession) -> None:
    seen, numbers, ended = without_supervisor(session, restart=1)
    assert (numbers, ended.number, ended.state) == ([2], 2, "succeeded")
    assert b"session 2 " in seen and b"again" in seen


def test_the_guard_reports_the_end_of_a_killed_supervisor(session: SmallSession, messages: Messages) -> None:
    seen, numbers, ended = without_supervisor(session, restart=0)
    assert (numbers, ended.number, ended.state) == ([], 1, "crashed")
    assert ended.error is not None and "SIGKILL" in ended.error
    messages.check(ended.error)
    assert ended.error.encode() in seen


def test_another_machine_is_not_asked(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", host="elsewhere", boot_id="its own")
    lock_fd = made.lock()
    with pytest.raises(Refused, match="elsewhere"):
        request_stop(made.sessions()[-1])
    os.close(lock_fd)
