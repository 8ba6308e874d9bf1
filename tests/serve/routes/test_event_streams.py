from __future__ import annotations

import base64
import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.operations import lab as operations
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter
from roost.serve.routes import event_streams, stream_end
from roost.serve.routes.event_streams import FollowLog, ReadLog, follow_log
from roost.serve.routes.served_packages import run_id
from roost.serve.routes.stream_end import is_run_over
from tests.lab import queued
from tests.lab.labs import Lab
from tests.serve.servers import RUN, Server
from tests.waiting import wait_for

LINES = 'i=0; while [ $i -lt {0} ]; do echo "line $i"; i=$((i+1)); done'


@pytest.fixture(scope="module")
def printed(server: Server) -> PackageFolder:
    """A run that has ended, with some output."""
    task = server.lab.wait_for(server.lab.submit(LINES.format(3000) + r"; printf '\377\303'"))
    return PackageFolder.open(Path(task.package))


def test_the_log_is_read_in_pages_without_a_gap(server: Server, printed: PackageFolder) -> None:
    truth, at, text = printed.output.read_bytes(), 0, ""
    while at < len(truth):
        page = server.get(f"/runs/{run_id(printed.path)}/log?offset={at}&limit=7000")
        assert page["offset"] == at < page["next"] and page["size"] == len(truth)
        at, text = page["next"], text + page["text"]
    assert text == truth.decode("utf-8", "replace") and text.endswith("\ufffd\ufffd")


TEXT = "aé€\U0001f600" * 40_000
"""Characters of one to four bytes, more of them than fit into a piece."""


def cut(tmp_path: Path, text: bytes) -> PackageFolder:
    """A run without an end, and its output so far."""
    path = queued.package(tmp_path / "cut")
    (path / "_output.txt").write_bytes(text)
    return PackageFolder.open(path)


@pytest.mark.parametrize("limit", [4, 5, 7, 1001, 65536])
def test_no_page_ends_within_a_character(tmp_path: Path, limit: int) -> None:
    text = TEXT[: 50 * limit]
    package, at, found = cut(tmp_path, text.encode() + b"\xe2\x82"), 0, ""
    while (page := event_streams.read_log(package, ReadLog(run=RUN, offset=at, limit=limit))).text:
        assert (page.offset, page.size) == (at, len(text.encode()) + 2)
        at, found = page.next, found + page.text
    assert found == text and at == page.size - 2, "the rest of the last one may come"
    (package.path / "sessions" / "1.request.json").write_text("{}")
    last = event_streams.read_log(package, ReadLog(run=RUN, offset=at, limit=limit))
    assert (last.text, last.next) == ("\ufffd", last.size), "or not: then it is passed over"
    short = event_streams.read_log(package, ReadLog(run=RUN, offset=at - 8, limit=65536))
    assert short.text[-1] == "\ufffd" and short.next == short.size


def test_a_page_passes_over_a_hole_and_half_of_a_character_before_it(tmp_path: Path) -> None:
    package = cut(tmp_path, b"")
    with package.output.open("wb") as file:
        file.write(b"x" * 65535 + b"\xe2")
        file.seek(1 << 20)
        file.write(b"end")
    at, texts = 0, []
    while (page := event_streams.read_log(package, ReadLog(run=RUN, offset=at, limit=65534))).text:
        at = page.next
        texts.append(page.text)
    assert texts[:2] == ["x" * 65534, "x"] and texts[2] == "\ufffd"
    assert texts[3].startswith("\nroost: 983,040 bytes") and texts[4:] == ["end"] and at == page.size


def test_no_piece_ends_within_a_character(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_end, "_QUIET_SECONDS", 0.05)
    monkeypatch.setattr(event_streams, "_MAX_PIECES", 16)
    package = cut(tmp_path, b"")
    with (
        contextlib.closing(follow_log(package.path, FollowLog(run=RUN))) as output,
        package.output.open("ab") as file,
    ):
        got: list[Any] = []
        for piece in (TEXT.encode()[:-1], b"", TEXT.encode()[-1:], b"\xff", b"\xf0\x9f", b""):
            file.write(piece)
            file.flush()
            for one in (new := output.read_new()):
                assert "\ufffd" not in one.data.text.rstrip("\ufffd")
                assert int(one.cursor) == sum(len(each.data.raw) for each in got) + len(one.data.raw)
                got.append(one)
            assert bool(new) == bool(piece) or piece == b"\xf0\x9f"
        assert "".join(one.data.text for one in got) == TEXT + "\ufffd"
        assert not output.has_ended
        (package.path / "sessions" / "1.request.json").write_text("{}")
        (last,) = wait_for(output.read_new)
        assert (last.data.text, last.data.raw) == ("\ufffd", b"\xf0\x9f") and not output.read_new()
        assert wait_for(lambda: output.has_ended)
    resumed = follow_log(package.path, FollowLog(run=RUN, cursor=got[-1].cursor))
    with contextlib.closing(resumed):
        assert not resumed.read_new() and wait_for(resumed.read_new)[0].data.raw == b"\xf0\x9f"


def test_a_log_that_was_shortened_at_the_end_of_a_session_is_followed_on(tmp_path: Path) -> None:
    package = cut(tmp_path, b"long" * 1000 + b"\xe2")
    (package.path / "sessions" / "1.request.json").write_text("{}")
    with contextlib.closing(follow_log(package.path, FollowLog(run=RUN))) as output:
        assert output.read_new()[0].data.raw == b"long" * 1000
        durable.write(package.output, b"short")
        assert output.read_new()[0].data.raw == b"\xe2" and not output.read_new()
        with package.output.open("ab") as file:
            file.write(b"next")
        assert [(one.cursor, one.data.text) for one in output.read_new()] == [("9", "next")]


@pytest.mark.parametrize("offset", [10**6, 2**62])
def test_beyond_the_end_there_is_nothing(server: Server, printed: PackageFolder, offset: int) -> None:
    size = printed.output.stat().st_size
    found = server.get(f"/runs/{run_id(printed.path)}/log?offset={offset}&limit=1048576")
    assert found == {"offset": size, "next": size, "size": size, "text": ""}


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "9" * 20, "9" * 19, ""])
def test_invalid_cursors_are_refused(server: Server, printed: PackageFolder, cursor: str) -> None:
    for path in (
        f"/runs/{run_id(printed.path)}/log/follow?cursor={cursor}",
        f"/events/follow?cursor={cursor}",
    ):
        found = server.ask("GET", path) if len(cursor) != 19 or "runs" in path else None
        assert found is None or (found.status, found.json["error"]["field"]) == (422, "cursor")


def test_unknown_runs_and_ranks_are_not_found(server: Server, printed: PackageFolder) -> None:
    for path in (f"/runs/{RUN}/log", f"/runs/{RUN}/log/follow", f"/runs/{run_id(printed.path)}/log?rank=3"):
        assert server.ask("GET", path).code == "not_found"


def test_a_log_that_is_a_fifo_or_gone(server: Server) -> None:
    task = server.lab.wait_for(server.lab.submit("echo x"))
    path, id = PackageFolder.open(Path(task.package)).output, run_id(task.package)
    path.unlink()
    assert server.get(f"/runs/{id}/log")["text"] == ""
    os.mkfifo(path)
    for way in ("log", "log/follow"):
        assert server.ask("GET", f"/runs/{id}/{way}").code == "no_rights", "and no hang"


def test_a_log_that_is_a_link_is_not_read(server: Server, tmp_path: Path) -> None:
    task = server.lab.wait_for(server.lab.submit("echo x"))
    path, id = PackageFolder.open(Path(task.package)).output, run_id(task.package)
    (tmp_path / "key").write_text("PRIVATE KEY")
    path.unlink()
    path.symlink_to(tmp_path / "key")
    for way in ("log", "log/follow"):
        found = server.ask("GET", f"/runs/{id}/{way}")
        assert b"PRIVATE" not in found.body, way
    assert server.ask("GET", f"/runs/{id}/log").code == "no_rights"


def test_events_are_followed_from_any_thread(server: Server, printed: PackageFolder) -> None:
    with server.lab.here():
        stream = event_streams.LabEventStream(event_streams.ReadEvents())
    with contextlib.closing(stream), ThreadPoolExecutor() as other:
        assert other.submit(stream.read_new).result() and not stream.read_new()


def test_events_are_followed_into_a_queue_that_is_created_again(tmp_path: Path) -> None:
    with contextlib.closing(Lab(tmp_path)) as lab, lab.here():
        task = lab.queue("true", begin=time.time() + 3600)
        with contextlib.closing(event_streams.LabEventStream(event_streams.ReadEvents())) as stream:
            first = stream.read_new()
            assert [one.data.kind for one in first] == ["pending"] and not stream.read_new()
            operations.rebuild()
            assert not stream.read_new()
            (piece,) = stream.read_new()
            assert (piece.data.kind, piece.data.task, piece.data.cursor) == ("anew", None, piece.cursor)
            anew = stream.read_new()
            assert [(one.data.task, one.data.kind) for one in anew][:1] == [(task.id, "rebuilt")]
        for old in ("1000", first[-1].cursor, "00000000-0"):
            with contextlib.closing(
                event_streams.LabEventStream(event_streams.ReadEvents(cursor=old))
            ) as late:
                assert [one.data.kind for one in late.read_new()] == ["anew"] and late.read_new() == anew, old
            (said, *found) = event_streams.read_events(event_streams.ReadEvents(cursor=old))
            assert said.kind == "anew" and found == [one.data for one in anew]
        for own in (piece.cursor, "0"):
            with contextlib.closing(
                event_streams.LabEventStream(event_streams.ReadEvents(cursor=own))
            ) as stream:
                assert stream.read_new() == anew, "the event `anew` is sent once"
        with contextlib.closing(event_streams.LabEventStream(event_streams.ReadEvents())) as stream:
            assert stream.read_new() == anew
            path = lab.state / "lab.db"
            path.rename(path.with_name("moved"))
            shutil.copy(path.with_name("moved"), path)
            assert not stream.read_new() and not stream.read_new(), "another file, but the same queue"
        there = event_streams.LabEventStream(event_streams.ReadEvents(cursor=anew[-1].cursor))
        with contextlib.closing(there):
            assert not there.read_new()


def test_a_stream_begins_at_its_cursor_and_ends_with_the_run(server: Server, printed: PackageFolder) -> None:
    truth, path = printed.output.read_bytes(), f"/runs/{run_id(printed.path)}/log/follow"
    for stream in (server.follow(f"{path}?cursor=100"), server.follow(path, last_event_id="100")):
        *pieces, end = list(stream)
        assert b"".join(base64.b64decode(data["bytes"]) for _, _, data in pieces) == truth[100:]
        assert pieces[-1][0] == str(len(truth)) and end[1] == "end"


@pytest.mark.parametrize("what", ["log", "records"])
def test_following_one_that_is_stopped_before_it_starts_ends(server: Server, what: str) -> None:
    task = server.lab.one(server.lab.submit("exit 0", begin=time.time() + 3600))
    package = PackageFolder.open(Path(task.package))
    assert not is_run_over(package), "it may begin"
    stream = server.follow(f"/runs/{run_id(task.package)}/{what}/follow")
    server.lab.ask(task.id, "stop")
    assert is_run_over(package), "it can begin no more"
    assert [kind for _, kind, _ in stream] == ["end"]


def test_following_continues_between_two_attempts(server: Server, tmp_path: Path) -> None:
    """And finds the run though it was submitted by way of a link."""
    (tmp_path / "link").symlink_to(tmp_path)
    again = tmp_path / "again"
    script = f"[ -e {again} ] && exec echo second; echo first; touch {again}; exit 1"
    asked = {"command": ["sh", "-c", script], "folder": str(tmp_path / "link"), "gpus": 0, "retries": 1}
    (queued,) = server.ask("POST", "/commands", asked).json["queued"]
    pieces = list(server.follow(f"/runs/{queued['run']}/log/follow"))
    assert "".join(data["text"] for _, kind, data in pieces if kind == "output") == "first\nsecond\n"


def test_events_are_read_in_pages_too(server: Server, printed: PackageFolder) -> None:
    found = server.get("/events")
    numbers = [int(one["cursor"].rpartition("-")[2]) for one in found]
    assert numbers == sorted(numbers)
    assert {"pending", "running", "succeeded"} <= {one["kind"] for one in found}
    assert server.get(f"/events?cursor={found[1]['cursor']}") == found[2:]
    assert server.get(f"/events?cursor={numbers[1]}") == found[2:]
    assert server.get("/events?cursor=999999999999999999")[1:] == found


class Client(threading.Thread):
    """Follows, and continues from its cursor whenever the server is gone.

    Args:
        is_last: Whether nothing more is wanted after this one.
        by_header: Whether it gives the cursor as a browser does.
    """

    def __init__(
        self, server: Server, path: str, is_last: Callable[[str, Any], bool], *, by_header: bool
    ) -> None:
        super().__init__(daemon=True)
        self.got: list[tuple[str, Any]] = []
        self.times, self._quiet = 0, threading.Event()
        self._server, self._path, self._is_last, self._by_header = server, path, is_last, by_header

    def run(self) -> None:
        while not self._followed():
            self._quiet.wait(0.05)

    def _followed(self) -> bool:
        beginning = "0:0" if "records" in self._path else "0"
        cursor = self.got[-1][0] if self.got else beginning
        try:
            if self._by_header:
                stream = self._server.follow(self._path, last_event_id=cursor)
            else:
                stream = self._server.follow(f"{self._path}?cursor={cursor}")
        except OSError:  # it is gone, or dies as we ask
            return False
        self.times += 1
        for id, kind, data in stream:
            if kind != "end":
                self.got.append((id, data))
            if kind == "end" or self._is_last(kind, data):
                stream.close()
                return True
        return False


def record(writer: RecordsWriter, part: int) -> None:
    for step in range(500 * part, 500 * (part + 1)):
        writer.row(step, 0, {"loss": 1.0})


def test_fifty_clients_continue_without_a_gap_or_a_duplicate(alone: Server, tmp_path: Path) -> None:
    """The server is killed and started again, twice, while they follow what a run prints and records, and
    what happens."""
    alone.start()
    go_on = tmp_path / "go_on"
    script = LINES.format(3000) + f"; while [ ! -e {go_on} ]; do sleep 0.05; done; " + LINES.format(2000)
    first = alone.lab.wait_for(alone.lab.submit(script), "running")
    run, last = f"/runs/{run_id(first.package)}", alone.lab.submit("exec sleep 600")
    writer = RecordsWriter(Path(first.package) / "records" / "1.jsonl", session=1, start_step=0)
    record(writer, 0)
    clients = [
        Client(alone, f"{run}/{what}/follow", lambda *_: False, by_header=number % 2 == 0)
        for what in ("log", "records")
        for number in range(15)
    ]
    clients += [
        Client(alone, "/events/follow", lambda _, data: data["task"] == last and data["kind"] == "stopped",
               by_header=number % 2 == 0) for number in range(20)
    ]  # fmt: skip
    for client in clients:
        client.start()
    for times in (1, 2):
        wait_for(lambda: all(client.got and client.times >= times for client in clients))  # noqa: B023
        alone.kill()
        record(writer, times)
        alone.start()
    record(writer, 3)
    writer.close()
    go_on.touch()
    alone.lab.wait_for(first.id)
    alone.lab.ask(last, "stop")
    for client in clients:
        client.join(100)
        assert not client.is_alive()
    output = PackageFolder.open(Path(first.package)).output.read_bytes()
    for client in clients[15:30]:
        rows = [row["step"] for _, data in client.got for row in data["rows"] if "step" in row]
        assert rows == list(range(2000))
    for client in clients[:15]:
        assert b"".join(base64.b64decode(data["bytes"]) for _, data in client.got) == output
    truth = [one["cursor"] for one in alone.get("/events")]
    for client in clients[30:]:
        cursors = [cursor for cursor, _ in client.got]
        assert cursors == truth[: len(cursors)] and len(cursors) > 6
    assert all(client.times >= 3 for client in clients)
