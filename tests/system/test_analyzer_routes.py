"""Analyzers over HTTP: the Python client, sync and async, while the server and the daemon are killed."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.api.client import AsyncClient, Client
from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.operations.analyzers.call_results import ScriptCall
from roost.package.package import PackageFolder
from roost.serve.routes.served_packages import run_id
from tests.project.trained import trained
from tests.serve.servers import Server
from tests.waiting import wait_for

pytestmark = pytest.mark.timeout(300)

LOOK = "def experience(self):\n    print('at', self.checkpoint.step)\n    return self.checkpoint.id\n"
FOREVER = "def experience(self):\n    print('begins', flush=True)\n    while True: pass\n"
COUNTS = """import time
def experience(self):
    for number in range(400):
        print("line", number, flush=True)
        time.sleep(0.01)
"""


class AnalyzerServer(Server):
    """A server, a trained run that it shows, and the folder of its scripts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.run: PackageFolder = trained(self.root)
        self.scripts = self.root / "AnalyzeScripts"
        self.scripts.mkdir()
        for name, source in (("look", LOOK), ("forever", FOREVER), ("counts", COUNTS)):
            (self.scripts / f"{name}.py").write_text(source)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnalyzerServer]:
    own = AnalyzerServer(tmp_path_factory.mktemp("server"))
    own.start()
    yield own
    own.close()


@pytest.fixture
def client(server: AnalyzerServer) -> Iterator[Client]:
    with server.lab.here(), Client() as one:
        yield one


@pytest.fixture(scope="module")
def task(server: AnalyzerServer) -> str:
    with server.lab.here(), Client() as one:
        found = one.analyze(run_id(server.run.path), project=server.root, gpus=0).queued[0]
    assert found.label.startswith("A_")
    return found.label


def ended(client: Client, task: str, analysis: int) -> Any:
    """Waits for the end of a call; its row."""

    def row() -> Any:
        (found,) = (one for one in client.list_calls(task, since=analysis) if one.analysis == analysis)
        return None if found.state in ("pending", "running") else found

    return wait_for(row)


def test_a_script_and_its_output(client: Client, task: str, server: AnalyzerServer) -> None:
    assert {one.name for one in client.list_scripts(task)} == {"look", "forever", "counts"}
    call = client.run_script(task, "look")
    assert ended(client, task, call.analysis).state == "succeeded"
    # The end is recorded before it is printed.
    wait_for(lambda: "succeeded" in client.read_output(task, offset=call.output_offset).text)
    page = client.read_output(task, offset=call.output_offset)
    assert "analysis 1: look" in page.text and page.next == page.size
    pieces = []
    for event in client.follow_output(task, cursor=str(call.output_offset)):
        pieces.append(event.data.text)
        if "succeeded" in "".join(pieces):
            break
    assert "".join(pieces) == page.text
    row = next(one for one in client.list_tasks().tasks if one.label == task)
    assert (row.kind, row.state) == ("analyze", "running")


def test_what_is_refused(client: Client, task: str, server: AnalyzerServer, tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(LOOK)
    (server.scripts / "link.py").symlink_to(tmp_path / "outside.py")
    for script in ("/etc/passwd", str(tmp_path / "outside.py"), "link", "../runs/run/Runner.py"):
        with pytest.raises((Refused, NotFound)):
            client.run_script(task, script)
    (server.scripts / "link.py").unlink()
    for name, code in (("../../outside", 404), (str(tmp_path / "outside.py"), 409), ("", 422), ("x\0", 400)):
        reply = server.ask("POST", f"/analyzers/{task}/run", {"script": name})
        assert reply.status == code, (name, reply.body)
    with pytest.raises(NotFound, match="look"):
        client.run_script(task, "lok")
    with pytest.raises(NotFound):
        client.run_script("A_999", "look")
    with pytest.raises(NotFound):
        client.switch_checkpoint(task, 99)
    with server.lab.here():
        command = client.submit_command(["sleep", "600"], folder=server.folder, gpus=0).queued[0]
    with pytest.raises(UsageError):
        client.run_script(command.task, "look")
    client.kill(command.task)


def test_interrupt_and_another_checkpoint(client: Client, task: str) -> None:
    call = client.run_script(task, "forever")
    wait_for(lambda: "begins" in client.read_output(task, offset=call.output_offset).text)
    assert client.interrupt_script(task).analysis == call.analysis
    assert ended(client, task, call.analysis).state == "stopped"
    for wanted in (0, "untrained", "last"):
        assert client.switch_checkpoint(task, wanted).checkpoint == wanted  # type: ignore[arg-type]
    call = client.run_script(task, "look")
    assert ended(client, task, call.analysis).state == "succeeded"


def test_the_output_goes_on_while_server_and_daemon_are_killed(
    client: Client, task: str, server: AnalyzerServer
) -> None:
    call = client.run_script(task, "counts")
    seen: list[str] = []

    def follow() -> None:
        for event in client.follow_output(task, cursor=str(call.output_offset)):
            seen.append(event.data.text)
            if "succeeded" in event.data.text:
                return

    reader = threading.Thread(target=follow)
    reader.start()
    wait_for(lambda: "line 20\n" in "".join(seen))
    with server.lab.here():
        server.lab.kill_daemon()
    for _ in range(3):
        server.kill()
        server.start()
    server.lab.start()
    reader.join(100)
    lines = [line for line in "".join(seen).splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(400)], "each line once"
    assert ended(client, task, call.analysis).state == "succeeded"


def test_the_async_client(server: AnalyzerServer, task: str) -> None:
    async def use() -> list[str]:
        async with AsyncClient() as client:
            call = await client.run_script(task, "look")
            pieces = []
            async for event in client.follow_output(task, cursor=str(call.output_offset)):
                pieces.append(event.data.text)
                if "succeeded" in event.data.text:
                    break
            rows = await client.list_calls(task)
            assert rows[-1].analysis == call.analysis
            return pieces

    with server.lab.here():
        assert "look" in "".join(asyncio.run(use()))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_call_is_lost_while_server_and_daemon_are_killed_50_times(
    client: Client, server: AnalyzerServer
) -> None:
    source = "import time\ndef experience(self):\n    for line in range(50):\n        print('line', line)\n"
    (server.scripts / "short.py").write_text(
        source + "        time.sleep(0.002)\n    return self.package.path.name\n"
    )
    tasks = [client.analyze(run_id(server.run.path), gpus=0).queued[0].label for _ in range(20)]
    draw, calls = random.Random(0), list[tuple[str, ScriptCall]]()
    begun, longest = time.monotonic(), 0.0
    for _ in range(50):
        for task in tasks:
            at = time.monotonic()
            calls.append((task, client.run_script(task, "short")))
            longest = max(longest, time.monotonic() - at)
        if draw.random() < 0.5:
            server.kill()
            server.start()
        else:
            with server.lab.here():
                server.lab.kill_daemon()
                server.lab.start()
    for task, call in calls:
        assert ended(client, task, call.analysis).state == "succeeded"
        output = (Path(call.folder) / "_output.txt").read_text()
        assert output == "".join(f"line {line}\n" for line in range(50))
    for task in tasks:
        assert len([row for row in client.list_calls(task) if row.state == "succeeded"]) == 50
        client.stop(task)
    seconds = time.monotonic() - begun
    print(f"\n{len(tasks)} analyzers, 50 kills, {len(calls)} calls in {seconds:.0f} s, none lost; ", end="")
    print(f"the longest request took {longest:.2f} s")


def test_a_stop_ends_the_stream(client: Client, task: str) -> None:
    client.stop(task)
    text = "".join(event.data.text for event in client.follow_output(task))
    assert "analysis 1: look" in text
    with pytest.raises(RoostError):
        client.run_script(task, "look")
