"""Both clients against a real server, and against what is none."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from roost import __version__
from roost.api import AsyncClient, Client
from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.lab.queue.task import ENDED
from roost.operations.live_lab.lab_change import LabChange
from roost.operations.live_lab.lab_state import LabState
from roost.operations.responses import StreamEvent
from tests.messages import Messages
from tests.operations.packages import project
from tests.serve.servers import Server
from tests.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "server.md"


@contextmanager
def stub(*answers: bytes) -> Iterator[str]:
    """The URL of something that gives each connection the next of these answers; none to an empty one."""
    asked: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        kept = []
        for answer in answers:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            asked.append(connection.recv(1 << 16))
            connection.sendall(answer)
            kept.append(connection)
            if answer:
                connection.close()
        done.wait(100)
        for connection in kept:
            connection.close()

    done = threading.Event()
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        done.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


def reply(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"content-length: {len(body)}", *lines, "", ""])
    return head.encode() + body


def test_importing_roost_imports_no_client() -> None:
    code = "import sys, roost, roost.cli.__main__; assert not {'httpx', 'roost.api'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_importing_the_client_and_the_view_model_imports_no_operation() -> None:
    """A full-screen client shows its first data only then: the queue, the scheduler and the readers of
    packages take longer than all that it needs."""
    code = (
        "import sys, roost.api.client, roost.operations.live_lab.lab_state as _, roost.tui.connection\n"
        "print(*sorted(name for name in sys.modules if name.startswith('roost.')), 'sqlite3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *modules, has_database = done.stdout.split()
    slow = (
        "roost.lab.scheduling", "roost.lab.executors", "roost.supervisor.processes", "roost.package.package",
        "roost.config", "roost.operations.reading.", "roost.devices.inventory",
    )  # fmt: skip
    assert [name for name in modules if name.startswith(slow)] == []
    assert has_database == "False"


def test_the_socket_of_this_user_or_a_url_and_its_token(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = "http://127.0.0.1:9"  # whoever minds it does not arrive
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, trap)
    url = f"http://localhost:{server.about.port}"
    for client in (Client(), Client(url), Client(url, token=server.token)):
        with client:
            assert client.about().version == __version__
            assert server.token not in repr(client)
    with Client(url, token="x" * 40) as client, pytest.raises(Refused, match="token"):
        client.about()


def test_what_is_read_is_typed(server: Server) -> None:
    with Client() as client:
        assert [card.number for card in client.devices().cards] == [0, 1]
        assert client.change_devices(most_per_card=3).most_per_card == 3
        assert client.drain("0").cards == [client.devices().cards[0].id]
        assert client.drain("0", off=True) and client.leases() == []
        assert client.lab().folder == str(server.lab.state)
        assert client.list_runs().runs == [] and client.list_tasks(state=["failed"], all=True).total == 0


def test_a_task_from_its_beginning_to_its_files(server: Server, tmp_path: Path) -> None:
    with Client() as client:
        found = client.submit_command(
            ["sh", "-c", "echo one; echo two"], folder=tmp_path, gpus=0, name="said"
        )
        (queued,) = found.queued
        assert Path(queued.path) == tmp_path / "runs" / "said"
        pieces = list(client.follow_log(queued.run))
        assert b"".join(piece.data.raw for piece in pieces) == b"one\ntwo\n"
        assert pieces[-1].cursor == "8"
        assert client.read_log(queued.run, offset=4).text == "two\n"
        (task,) = wait_for(lambda: [one for one in client.list_tasks(all=True).tasks if one.state in ENDED])
        assert (task.id, task.state) == (queued.task, "succeeded")
        (why,) = client.why(queued.task)
        assert why.state == "succeeded" and why.events[0].kind == "pending"
        shown = client.show_run(queued.run)
        assert shown.path == queued.path and shown.sessions[0].state == "succeeded"
        assert client.checkpoints(queued.run) == []
        paths = {one.path: one.kind for one in client.list_files(queued.run)}
        assert paths["request.json"] == "file"
        assert client.read_file(queued.run, "request.json").startswith(b"{")
        assert [one.id for one in client.list_runs().runs] == [queued.run]
        kinds = [one.kind for one in client.events() if one.task == queued.task]
        assert kinds[0] == "pending" and "succeeded" in kinds
        last = client.events()[-1]
        assert client.events(cursor=last.cursor) == []


def test_orders_and_errors_are_those_of_the_operations(server: Server, tmp_path: Path) -> None:
    with Client() as client:
        made = client.new_project(tmp_path / "new", template="clean")
        assert Path(made.path) == tmp_path / "new" and "config.yaml" in made.files
        with pytest.raises(Refused, match=str(tmp_path / "new")):
            client.new_project(tmp_path / "new")
        with pytest.raises(NotFound, match=r"'clear'.*clean"):
            client.new_project(tmp_path / "other", template="clear")
        config = project(tmp_path / "p", max_epochs="1")
        with pytest.raises(ConfigError, match="max_epoch"):
            client.submit(config, overrides=["max_epoch=3"])
        with pytest.raises(UsageError, match="gpus"):
            client.submit(config, gpus=-1)
        (queued,) = client.submit(config, overrides=["max_epochs=2"], begin="+2h", priority=2).queued
        assert client.hold(queued.task).tasks == client.release(queued.task).tasks == [queued.task]
        assert client.set_priority(queued.task, 7).tasks == [queued.task]
        (task,) = [one for one in client.list_tasks().tasks if one.id == queued.task]
        assert (task.priority, task.held) == (7, False)
        assert client.stop(queued.task).tasks == [queued.task]
        with pytest.raises(Refused):
            client.kill(queued.task)
        with pytest.raises(Refused):
            client.stop_run(queued.run)
        (again,) = client.continue_(queued.run, begin="+2h").queued
        assert again.run == queued.run and client.kill(again.task).tasks == [again.task]
        with pytest.raises(NotFound):
            client.show_run("00000000-0000000000000000")


def test_paths_are_relative_to_the_program_where_the_server_sees_the_same_files(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    project(tmp_path / "p", max_epochs="1")
    (tmp_path / "p" / "more.yaml").write_text("max_epochs: 2")
    monkeypatch.chdir(tmp_path / "p")
    with Client() as client:
        (first,) = client.submit("config.yaml", tuning="more.yaml", begin="+2h").queued
        (second,) = client.submit_command(["true"], folder=".", begin="+2h", gpus=0).queued
        assert {Path(one.path).parent for one in (first, second)} == {tmp_path / "p" / "runs"}
        assert client.new_project("new", template="clean").path == str(tmp_path / "p" / "new")
        for one in (first, second):
            client.kill(one.task)
    url = f"http://localhost:{server.about.port}"
    with Client(url, token=server.token) as elsewhere, pytest.raises(UsageError) as refused:
        elsewhere.submit("config.yaml")
    assert refused.value.setting == "config"
    messages.check(refused.value)


def test_the_same_awaited(server: Server, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncClient() as client:
            found = await client.submit_command(["echo", "hello"], folder=tmp_path, gpus=0)
            (queued,) = found.queued
            about, *pieces = await asyncio.gather(
                client.about(), log(client, queued.run), log(client, queued.run)
            )
            assert about.name == "roost" and pieces == [b"hello\n", b"hello\n"]
            with pytest.raises(NotFound):
                await client.why("nothing")
            with pytest.raises(NotFound):
                await log(client, "00000000-0000000000000000")

    async def log(client: AsyncClient, run: str) -> bytes:
        return b"".join([one.data.raw async for one in client.follow_log(run)])

    asyncio.run(main())


def test_streams_go_on_while_the_server_is_killed_and_started_again(server: Server, tmp_path: Path) -> None:
    script = "for i in $(seq 50); do echo line $i; sleep 0.02; done"
    with Client() as client, closing(client.follow_events()) as events:
        (queued,) = client.submit_command(["sh", "-c", script], folder=tmp_path, gpus=0).queued
        assert next(events).kind == "event"
        got, was_killed = b"", False
        for piece in client.follow_log(queued.run):
            got += piece.data.raw
            if not was_killed:
                was_killed = True
                server.kill()
                server.start()
        assert got.decode().splitlines() == [f"line {i}" for i in range(1, 51)]
        seen = []
        for one in events:
            seen.append(one.data)
            if one.data.task == queued.task and one.data.kind == "succeeded":
                break
        numbers = [int(one.cursor.rpartition("-")[2]) for one in seen]
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize("text", re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
def test_the_examples_of_the_page_run(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "train.py").write_text("print('trained')")
    own = {
        "/home/ada/digits": str(tmp_path),
        '"python"': repr(sys.executable),
        "9999": str(server.about.port),
    }
    for there, here in own.items():
        text = text.replace(there, here)
    exec(compile(text, "server.md", "exec"), {})  # noqa: S102  - our own page: that its blocks run is the test
    said = capsys.readouterr().out
    if "follow_lab" in text:
        assert said.endswith(" []\n"), "no task holds a card"
        return
    assert ("trained\nsucceeded ['" in said) if "follow_log" in text else said.startswith("2 ['")


def test_both_clients_follow_the_live_state(server: Server) -> None:
    def has_ended(state: LabState, event: StreamEvent[list[LabChange]]) -> bool:
        state.apply_all(event.data)
        return any(one.row.state in ENDED for one in state.all_tasks() if one.row.name == "alive")

    async def follow() -> list[str]:
        state, kinds = LabState(), []
        async with AsyncClient() as client:
            async for event in client.follow_lab(metrics=["valid/*"]):
                kinds.append(event.kind)
                if has_ended(state, event):
                    return kinds
        return kinds

    with Client() as client:
        state, kinds = LabState(), []
        client.submit_command(["true"], folder=server.folder, gpus=0, name="alive")
        with closing(client.follow_lab()) as events:
            for event in events:
                kinds.append(event.kind)
                if has_ended(state, event):
                    break
    assert kinds[0] == "snapshot" and set(kinds[1:]) <= {"changes"}
    assert asyncio.run(follow())[0] == "snapshot"


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    with Client() as client:
        for ask in (client.about, lambda: list(client.follow_events())):
            with pytest.raises(NotFound, match="roost server --detach"):
                ask()

    async def main() -> None:
        async with AsyncClient("http://127.0.0.1:9", token="t") as client:
            await client.about()

    with pytest.raises(NotFound, match="roost server --detach"):
        asyncio.run(main())


def test_a_client_that_is_closed_says_so(server: Server, messages: Messages) -> None:
    with Client() as client:
        client.new_project(server.folder / "closed", template="clean")
        client.submit_command(["true"], folder=server.folder, gpus=0)
        events = client.follow_events()
        next(events)
    for ask in (client.about, lambda: list(client.follow_events()), lambda: list(events)):
        with pytest.raises(UsageError, match="client") as refused:
            ask()
        messages.check(refused.value)

    async def main() -> None:
        awaited = AsyncClient()
        await awaited.aclose()
        for ask in (awaited.about, awaited.follow_events().__anext__):
            with pytest.raises(UsageError, match="client") as refused:
                await ask()
            messages.check(refused.value)

    asyncio.run(main())


def test_what_cannot_be_sent_is_said_before_it_is(server: Server, messages: Messages) -> None:
    with Client() as client:
        for ask, kind, text in (
            (lambda: client.show_run("\ud800"), UsageError, r"\\ud800"),
            (lambda: client.list_runs("\ud800"), UsageError, r"\\ud800"),
            (lambda: client.submit_command(["\ud800"], folder="/"), UsageError, "NUL"),
            (lambda: client.why("x" * 100_000), UsageError, "URL too long"),
            (
                lambda: client.submit_command(["true"], folder="/", time_limit=float("nan")),
                UsageError,
                "Out of range float",
            ),
            (lambda: client.read_file("00000000-0000000000000000", "../log"), NotFound, "00000000-0"),
        ):
            with pytest.raises(kind, match=text) as refused:
                ask()
            messages.check(refused.value)
    with Client("https://xn--", token="t") as client, pytest.raises(UsageError) as refused:
        client.about()
    messages.check(refused.value)


def test_what_is_no_server_of_ours_is_told_in_words(messages: Messages) -> None:
    moved = reply(b"", "location: http://127.0.0.1:9/", status="302 Found")
    large, wrong = reply(b"x" * 2000), reply(b'{"name": 3}')
    cases = [
        (moved, "302"), (large, "1000 bytes"), (wrong, r"\$\.name"), (b"", "0.2 s"),
        (b"nonsense\r\n\r\n", "nonsense"),
    ]  # fmt: skip
    for answer, text in cases:
        with (
            stub(answer) as url,
            Client(url, token="t", timeout_seconds=0.2, most_bytes=1000) as client,
            pytest.raises(RoostError, match=text) as refused,
        ):
            client.about()
        messages.check(str(refused.value).replace(url, "<url>"))
    with (
        stub(b"") as url,
        Client(url, token="t", timeout_seconds=0.2) as client,
        pytest.raises(RoostError, match=r"0\.2 s") as refused,
    ):
        client.stop("x")
    messages.check(refused.value)
