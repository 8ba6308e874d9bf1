"""The live state of the lab as a stream: a real server, a daemon and tasks; cursors, slow subscribers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.lab.queue.task import RUNNING
from roost.operations.live_lab.lab_change import LabChange, LabReset, LabSummary
from roost.operations.live_lab.lab_observer import LabObserver
from roost.operations.live_lab.lab_state import LabState
from roost.package.live_progress import ProgressFile
from roost.package.records import RecordsWriter
from roost.serve import app
from roost.serve.http.error_response import HttpError
from roost.serve.routes import lab_stream
from roost.serve.routes.lab_stream import FollowLab, LabFeed, LabStream
from tests.lab.labs import Lab
from tests.serve.servers import Server, Stream
from tests.waiting import wait_for


def decoded(data: Any) -> list[LabChange]:
    return msgspec.convert(data, list[LabChange])


def until(stream: Stream, state: LabState, condition: Callable[[], Any]) -> list[str]:
    """Applies the events of a stream until a condition of the state is true; returns their cursors."""
    cursors = []
    while not condition():
        cursor, kind, data = next(stream)
        assert kind in ("snapshot", "changes")
        state.apply_all(decoded(data))
        cursors.append(cursor)
    return cursors


def state_of(state: LabState, id: str) -> str:
    task = state.task(id)
    return "" if task is None else task.row.state


def is_over(state: LabState, id: str) -> bool:
    return state_of(state, id) == "succeeded"


def essence(state: LabState) -> list[LabChange]:
    """What a state is made of, but for samples, which come each second."""
    kinds = (LabReset, LabSummary)
    rows = [one for one in state.snapshot() if not isinstance(one, kinds)]
    return [one for one in rows if type(one).__name__ not in ("CardSamples", "CardsChange")]


def train(lab: Lab, id: str, *, steps: int, start: int = 0) -> None:
    """Publishes the progress and the metrics of a running task, in its place."""
    task = lab.one(id)
    progress = ProgressFile(Path(task.package) / "progress")
    path = Path(task.package) / "records" / f"{task.session}.jsonl"
    path.parent.mkdir(exist_ok=True)
    writer = RecordsWriter(path, session=task.session or 1, start_step=start)
    for step in range(start + 1, start + steps + 1):
        progress.publish(step, 1, step, 1, 100, 10, step, float(step), 5.0, step / 100)
        writer.row(step, 1, {"train/loss": 1 / step, "valid/accuracy": float("nan")})
    writer.close()


def test_a_task_is_followed_from_its_submission_to_its_end(server: Server) -> None:
    stream, state = server.follow("/lab/follow"), LabState()
    with contextlib.closing(stream):
        cursor, kind, data = next(stream)
        assert (kind, data[0]) == ("snapshot", {"type": "reset"})
        state.apply_all(decoded(data))
        wait = until(stream, state, lambda: len(state.cards()) == 2)
        assert all(one.startswith(cursor.partition("-")[0]) for one in wait)
        id = server.lab.submit("exec sleep 600")
        until(stream, state, lambda: state_of(state, id) == "running")
        task = state.task(id)
        assert task is not None
        train(server.lab, id, steps=40)
        until(stream, state, lambda: task.row.step == 40 and "train/loss" in task.histories)
        assert (task.row.total_steps, task.progress and task.progress.fraction) == (100, 0.4)
        assert task.histories["train/loss"].steps[-1] == 40
        assert task.metric("train/loss") == 1 / 40
        value = task.metric("valid/accuracy")
        assert value is not None and value != value, "NaN stays NaN"
        server.lab.ask(id, "stop")
        until(stream, state, lambda: state_of(state, id) == "stopped")
        assert task.progress is None
        until(stream, state, lambda: state.summary.counts.get("stopped") and state.summary.daemon)


def test_the_journal_is_followed_and_cleared(server: Server) -> None:
    stream, state = server.follow("/lab/follow"), LabState()
    with contextlib.closing(stream):
        until(stream, state, lambda: state.is_known)
        assert server.ask("POST", "/devices", {"most_per_card": 3}).status == 200
        until(stream, state, lambda: any("most_per_card=3" in line for line in state.journal))
        until(stream, state, lambda: state.devices is not None and state.devices.most_per_card == 3)
        assert server.ask("POST", "/clear", prefix="").status == 200
        until(stream, state, lambda: not state.journal)


def test_a_reader_that_comes_back_gets_each_change_once(server: Server) -> None:
    whole, state = server.follow("/lab/follow"), LabState()
    other = LabState()
    with contextlib.closing(whole):
        first = server.follow("/lab/follow")
        cursor, _, data = next(first)
        other.apply_all(decoded(data))
        first.close()
        got: list[str] = []
        ids = [server.lab.submit("true") for _ in range(6)]
        seen: list[str] = []
        for number, id in enumerate(ids):
            seen += until(whole, state, partial(is_over, state, id))
            header = {"last_event_id": cursor} if number % 2 else {}
            stream = server.follow("/lab/follow" if header else f"/lab/follow?cursor={cursor}", **header)
            with contextlib.closing(stream):
                got += until(stream, other, partial(is_over, other, id))
            cursor = got[-1] if got else cursor
        with contextlib.closing(server.follow(f"/lab/follow?cursor={cursor}")) as stream:
            got += until(stream, other, lambda: [*got, cursor][-1] >= seen[-1] or len(got) >= len(seen))
    numbers = [int(one.partition("-")[2]) for one in got]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "no gap, nothing twice"
    assert essence(other)[: len(ids)] == essence(state)[: len(ids)]


@pytest.mark.parametrize("cursor", ["00000000-5", "ffffffff-999999999999999999"])
def test_a_cursor_of_another_server_gets_the_whole_state(server: Server, cursor: str) -> None:
    with contextlib.closing(server.follow(f"/lab/follow?cursor={cursor}")) as stream:
        _, kind, data = next(stream)
        assert (kind, data[0]) == ("snapshot", {"type": "reset"})


def test_what_is_no_cursor_and_no_pattern_is_refused(server: Server) -> None:
    for query in ("cursor=x", "cursor=00000000-", "metrics=", "metrics=" + "x" * 201, "other=1",
                  "&".join(["metrics=a"] * 65)):  # fmt: skip
        found = server.ask("GET", f"/lab/follow?{query}")
        assert found.status in (400, 422), query


def test_only_the_metrics_that_a_pattern_matches_are_sent(server: Server) -> None:
    id = server.lab.submit("exec sleep 600")
    server.lab.wait_for(id, RUNNING)
    state = LabState()
    with contextlib.closing(server.follow("/lab/follow?metrics=valid/*&metrics=test/*")) as stream:
        until(stream, state, lambda: state_of(state, id) == "running")
        train(server.lab, id, steps=3)
        task = state.task(id)
        assert task is not None
        until(stream, state, lambda: "valid/accuracy" in task.histories)
        assert list(task.metrics()) == ["valid/accuracy"]
    server.lab.ask(id, "kill")
    server.lab.wait_for(id)


def test_names_are_data_whatever_is_in_them(server: Server, tmp_path: Path) -> None:
    name = "x\x1b[31m\n\"';<b>\u202e"
    task = server.lab.task("exec sleep 600")
    named = msgspec.structs.replace(task, name=name, user="a\tb")
    with server.lab.here(), server.lab.store() as store:
        store.submit([named])
        store.wake_daemon()
    server.lab.wait_for(task.id, RUNNING)
    (Path(task.package) / "records").mkdir(exist_ok=True)
    session = server.lab.one(task.id).session
    (Path(task.package) / "records" / f"{session}.jsonl").write_bytes(
        b'{"session": 1, "start_step": 0}\n{"step": 1, "m\\u001b": 1.5, "' + b"n" * 300 + b'": 1}\n\xff\xfe\n'
        b'{"step": 2, "nonfinite": 5}\n[]\n{"step": "x"}\n{"step": 3, "m\\u001b": 1e999, "ok": 2'
    )
    state = LabState()
    with contextlib.closing(server.follow("/lab/follow")) as stream:
        until(stream, state, lambda: (one := state.task(task.id)) is not None and one.histories)
        found = state.task(task.id)
        assert found is not None
        assert (found.row.name, found.row.user) == (name, "a\tb")
        assert found.metrics() == {"m\x1b": 1.5}
        assert [one.id for one in state.tasks(filter='"x\x1b[31m"')] == [task.id]
    server.lab.ask(task.id, "kill")
    server.lab.wait_for(task.id)


def test_too_many_streams_are_refused_and_their_places_are_free_again(server: Server) -> None:
    streams = [server.follow("/lab/follow") for _ in range(app._MAX_STREAMS)]
    assert {one.status for one in streams} == {200}
    assert server.ask("GET", "/lab/follow").status == 503
    kinds = {next(one)[1] for one in streams}
    assert kinds == {"snapshot"}
    for one in streams:
        one.close()

    def is_free() -> bool:
        with contextlib.closing(server.follow("/lab/follow")) as stream:
            return stream.status == 200

    assert wait_for(is_free)


def test_the_queue_that_is_created_again_is_followed_from_the_beginning(alone: Server) -> None:
    alone.start()
    id = alone.lab.submit("true")
    alone.lab.wait_for(id)
    stream, state = alone.follow("/lab/follow"), LabState()
    with contextlib.closing(stream):
        until(stream, state, lambda: state_of(state, id) == "succeeded")
        before = len(state.tasks())
        with alone.lab.here():
            from roost.operations import lab as operations

            operations.stop()
            operations.rebuild([Path(alone.lab.one(id).package).parent])
        found: list[Any] = []
        while not any(change["type"] == "reset" for change in found):
            found = next(stream)[2]
            state.apply_all(decoded(found))
        until(stream, state, lambda: state_of(state, id) == "succeeded")
        assert len(state.tasks()) == before


def test_a_client_goes_on_over_the_end_of_the_server(alone: Server) -> None:
    from roost.api import Client

    alone.start()
    first, state = alone.lab.submit("true"), LabState()
    kinds: list[str] = []
    done, seen = threading.Event(), threading.Event()
    last: list[str] = []
    alone.lab.wait_for(first)

    def follow() -> None:
        for event in client.follow_lab():
            kinds.append(event.kind)
            state.apply_all(event.data)
            if state_of(state, first) == "succeeded":
                seen.set()
            if last and state_of(state, last[0]) == "succeeded":
                done.set()
                return

    with alone.lab.here(), Client() as client:
        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        assert seen.wait(100)
        alone.kill()
        last.append(alone.lab.submit("true"))
        alone.lab.wait_for(last[0])
        alone.start()
        assert done.wait(100)
        thread.join(100)
    assert kinds.count("snapshot") == 2
    assert [one.id for one in state.tasks(filter="state:succeeded")] == [first, *last]


# --- the feed


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "cpu")
    with own.here():
        yield own
    own.close()


def events_of(stream: LabStream) -> list[tuple[str, list[LabChange]]]:
    return [(one.kind, msgspec.json.decode(one.data, type=list[LabChange])) for one in stream.read_new()]


def test_a_subscriber_that_is_too_far_behind_gets_the_whole_state(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_stream, "_MAX_BATCHES", 3)
    monkeypatch.setattr(lab_stream, "_LINGER_SECONDS", 0.0)
    feed = LabFeed()
    slow, quick = LabStream(FollowLab(), feed), LabStream(FollowLab(), feed)
    with contextlib.closing(slow), contextlib.closing(quick):
        state, late = LabState(), LabState()
        for kind, changes in (*events_of(slow), *events_of(quick)):
            assert kind == "snapshot"
            state.apply_all(changes)
        for number in range(8):
            id = lab.queue("true").id

            def has_come(id: str = id) -> bool:
                for kind, changes in events_of(quick):
                    assert kind == "changes"
                    state.apply_all(changes)
                return state.task(id) is not None

            wait_for(has_come)
            assert len(feed._batches) <= 3, number
        ((kind, changes),) = events_of(slow)
        assert kind == "snapshot"
        late.apply_all(changes)
        assert [one.id for one in late.tasks()] == [one.id for one in state.tasks()]
        assert len(late.tasks()) == 8


def test_one_observer_serves_all_and_ends_after_the_last(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_stream, "_LINGER_SECONDS", 0.0)
    feed, before = LabFeed(), set(threading.enumerate())
    streams = [LabStream(FollowLab(), feed) for _ in range(5)]
    new = set(threading.enumerate()) - before
    observers = [one for one in new if one.name == "lab observer"]
    assert len(observers) == 1
    first = feed.read_after("")[1][0]
    assert feed.read_after("")[1][0] is first or feed._seq > first.seq, "encoded once"
    for one in streams:
        one.close()
        one.close()
    wait_for(lambda: not observers[0].is_alive())
    with contextlib.closing(LabStream(FollowLab(cursor=feed.cursor(first)), feed)) as stream:
        assert events_of(stream)[0][0] == "snapshot", "of another observer"


def test_a_look_that_fails_is_an_error_of_each_stream_and_the_next_one_observes_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = LabFeed()
    with monkeypatch.context() as patch:
        patch.setattr(LabObserver, "poll", lambda _: 1 / 0)
        stream = LabStream(FollowLab(), feed)
        with contextlib.closing(stream), pytest.raises(HttpError, match="cannot be observed"):
            stream.read_new()
    with contextlib.closing(LabStream(FollowLab(), feed)) as stream:
        assert events_of(stream)[0][0] == "snapshot"
