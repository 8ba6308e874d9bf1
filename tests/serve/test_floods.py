"""Much at once: bodies without an end, crowds that want one thing, the slow, and those who come and go.

Small numbers in CI; those of a real flood in the soak.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roost.serve.routes.served_packages import run_id
from tests import processes
from tests.serve.servers import Reply, Server, read
from tests.waiting import wait_for

MEBIBYTE = b"x" * 2**20
MOST_GROWTH_MB = 50
MOST_FOLLOWED_MB = 100
"""150 streams at most, each with an unread piece of 64 KiB, as text and base64, thrice."""


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


@contextlib.contextmanager
def flat(server: Server, most_mb: int = MOST_GROWTH_MB) -> Iterator[None]:
    """Whatever happens inside, the server's memory stays as it is; its peak counts."""
    server.get("")
    pid = server.about.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
    before = memory_mb(pid)
    yield
    assert processes.peak_mb(pid) < before + most_mb
    assert server.get("")["name"] == "roost"


# --- without an end ---------------------------------------------------------------------------------------

POST = "POST /api/v1/commands HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
WITH = POST + "authorization: Bearer {token}\r\n"
CHUNKED = "transfer-encoding: chunked\r\n\r\n"
ENDLESS = {
    "a length": (WITH + "content-length: 2147483648\r\n\r\n", MEBIBYTE, b" 413 "),
    "a length, no token": (POST + "content-length: 2147483648\r\n\r\n", MEBIBYTE, b" 413 "),
    "pieces": (WITH + CHUNKED, b"100000\r\n%s\r\n" % MEBIBYTE, b" 413 "),
    "pieces, no token": (POST + CHUNKED, b"100000\r\n%s\r\n" % MEBIBYTE, b" 401 "),
    "one piece": (WITH + CHUNKED + "7fffffff\r\n", MEBIBYTE, b" 413 "),
    "a piece's size": (WITH + CHUNKED, b"0" * 2**20, b" 400 "),
    "a method": ("", MEBIBYTE, b" 400 "),
    "a path": ("GET /", MEBIBYTE, b" 400 "),
    "a header": ("GET / HTTP/1.1\r\nx: ", MEBIBYTE, b" 400 "),
    "headers": ("GET / HTTP/1.1\r\n", b"x: y\r\n" * 170_000, b" 400 "),
    "empty lines": ("", b"\r\n" * 2**19, b""),
    "requests": ("", b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 30_000, b" 403 "),
}  # fmt: skip


@pytest.mark.parametrize("megabytes", [8, pytest.param(2048, marks=pytest.mark.soak)])
@pytest.mark.parametrize("what", ENDLESS)
def test_what_has_no_end_costs_nothing(server: Server, what: str, megabytes: int) -> None:
    """It is answered as soon as it is known for what it is; what still comes is thrown away, or not read."""
    head, piece, status = ENDLESS[what]
    begun = head.format(host=server.host, token=server.token).encode()
    with flat(server), server.connect() as opened:
        opened.settimeout(0.5)  # if answers are not read, nothing is accepted any more
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            opened.sendall(begun)
            for _ in range(megabytes):
                opened.sendall(piece)
        try:
            said = opened.recv(100)
        except (ConnectionResetError, TimeoutError):  # its answer was thrown away with what still came
            said = status
        assert status in said


# --- all want one thing -----------------------------------------------------------------------------------


def all_at_once(count: int, ask: Callable[[int], Reply]) -> Counter[int]:
    """How often each status was answered."""
    with ThreadPoolExecutor(32) as crowd:
        return Counter(found.status for found in crowd.map(ask, range(count)))


LONG = [pytest.mark.soak, pytest.mark.timeout(900)]


def crowd(most: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("count", [50, pytest.param(most, marks=LONG)])


@crowd(10_000)
def test_one_of_all_makes_the_folder(server: Server, count: int) -> None:
    asked = {"folder": str(server.folder / f"wanted by {count}"), "template": "clean"}
    found = all_at_once(count, lambda _: server.ask("POST", "/projects", asked))
    assert found == {201: 1, 409: count - 1}
    other = {**asked, "folder": str(server.folder / f"beside {count}")}
    made = server.ask("POST", "/projects", other).json["files"]
    for name in made:
        paths = [Path(one["folder"]) / name for one in (asked, other)]
        assert paths[0].read_bytes() == paths[1].read_bytes()


@crowd(10_000)
def test_one_of_all_gets_the_name(server: Server, count: int) -> None:
    asked = {
        "command": ["true"],
        "folder": str(server.folder),
        "gpus": 0,
        "begin": "+9h",
        "name": f"x{count}",
    }
    found = all_at_once(count, lambda _: server.ask("POST", "/commands", asked))
    assert found == {201: 1, 409: count - 1}
    assert [task.name for task in server.lab.tasks()].count(f"x{count}") == 1


@crowd(10_000)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_all_end_ends_once(server: Server, count: int, how: str) -> None:
    task = server.lab.submit("exec sleep 600")
    server.lab.wait_for(task, "running")
    found = all_at_once(count, lambda _: server.ask("POST", f"/tasks/{task}/{how}"))
    assert found[202] and found.keys() <= {202, 409}
    assert server.lab.wait_for(task).state == "stopped"
    with server.lab.store() as store:
        shown = Counter(one.kind for one in store.events(after=0, limit=100_000) if one.task == task)
    assert shown["stopped"] == 1 and max(shown.values()) == 1, shown


@crowd(1000)
def test_of_all_changes_one_is_the_last(server: Server, count: int) -> None:
    """What is there in the end is what one of them asked for."""
    task = server.lab.submit("true", begin=4_000_000_000.0)
    path = f"/tasks/{task}/priority"
    found = all_at_once(count, lambda number: server.ask("POST", path, {"priority": number % 50}))
    assert found == {200: count}
    assert server.lab.one(task).priority in range(50) and server.lab.one(task).state == "pending"


# --- the slow ---------------------------------------------------------------------------------------------

SLOW = {
    "heads": "GET /api/v1 HTTP/1.1\r\nhost: {host}\r\n",
    "bodies": WITH + "content-length: 1000000\r\n\r\n",
    "unread logs": "GET /api/v1/runs/{run}/log/follow HTTP/1.1\r\nhost: {host}\r\n"
    "authorization: Bearer {token}\r\n\r\n",
    "unread rows": "GET /api/v1/runs/{run}/records/follow HTTP/1.1\r\nhost: {host}\r\n"
    "authorization: Bearer {token}\r\n\r\n",
    "unread files": "GET /api/v1/runs/{run}/files/large HTTP/1.1\r\nhost: {host}\r\n"
    "authorization: Bearer {token}\r\n\r\n",
    "streams": "GET /api/v1/events/follow HTTP/1.1\r\nhost: {host}\r\n"
    "authorization: Bearer {token}\r\n\r\n",
}  # fmt: skip


_AT_A_TIME = 50
"""Of them: they are slow, and not many requests."""


class Slow:
    """A crowd of connections that send a byte now and then, or nothing, and read nothing. A closed one is
    opened again.

    Args:
        server: The server.
        count: The number of connections.
        head: The first bytes of each.
        drips: Whether more bytes follow.
    """

    def __init__(self, server: Server, count: int, head: bytes, *, drips: bool) -> None:
        self._server, self._count, self._head, self._drips = server, count, head, drips
        self._over, self.came = threading.Event(), 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Slow:
        self._thread.start()
        wait_for(lambda: self.came >= self._count)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.ExitStack() as held:
            crowd = []
            while len(crowd) < self._count and not self._over.wait(0.05):
                crowd += [held.enter_context(self._one()) for _ in range(_AT_A_TIME)]
            while not self._over.wait(0.2):
                gone = [place for place, one in enumerate(crowd) if not self._still(one)]
                for place in gone[:_AT_A_TIME]:
                    crowd[place].close()
                    crowd[place] = held.enter_context(self._one())

    def _one(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        opened.settimeout(20)
        with contextlib.suppress(OSError):
            opened.connect(("127.0.0.1", self._server.about.port))
            opened.sendall(self._head)
        opened.setblocking(False)
        self.came += 1
        return opened

    def _still(self, one: socket.socket) -> bool:
        """Whether it is open; what has come stays unread."""
        try:
            if self._drips:
                one.sendall(b"x")
            return one.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


@pytest.fixture(scope="module")
def large(server: Server) -> str:
    """A run with an output, records and a file of megabytes."""
    task = server.lab.submit("yes 0123456789abcdef | head -c 10000000; head -c 30000000 /dev/zero >large")
    package = server.lab.wait_for(task).package
    (Path(package) / "records").mkdir(exist_ok=True)
    with (Path(package) / "records" / "1.jsonl").open("w") as file:
        file.write('{"session":1,"start_step":0,"time":1.0}\n')
        file.writelines(
            f'{{"step":{step},"epoch":0,"time":1.0,"train/loss":0.5}}\n' for step in range(200_000)
        )
    return package


@pytest.mark.parametrize(
    ("what", "count"),
    [
        *(pytest.param(what, 1000, marks=pytest.mark.soak) for what in SLOW),
        *((what, 250) for what in ("bodies", "unread files", "streams")),
    ],
)
def test_slow_clients_do_not_lock_out_others(server: Server, large: str, what: str, count: int) -> None:
    """There are more of them than the server keeps; other clients are answered, by both sockets, and mostly
    within a second."""
    given = {"host": server.host, "token": server.token, "run": run_id(large)}
    crowd = Slow(server, count, SLOW[what].format(**given).encode(), drips=what in ("heads", "bodies"))
    good = {"authorization": f"Bearer {server.token}"}
    took = []
    with flat(server, MOST_FOLLOWED_MB), crowd:
        for _ in range(20):
            for local, headers in ((True, {}), (False, good)):
                began = time.monotonic()
                assert server.ask("GET", "", local=local, **headers).status == 200
                took.append(time.monotonic() - began)
    assert count < 1000 or statistics.median(took) < 1


def test_a_request_sent_at_once_is_answered_in_a_crowd(server: Server) -> None:
    """Hundreds come at one moment, before him and after him, and say nothing."""
    asked = f"GET /api/v1 HTTP/1.1\r\nhost: {server.host}\r\nauthorization: Bearer {server.token}\r\n\r\n"
    with contextlib.ExitStack() as held:
        os.kill(server.about.pid, signal.SIGSTOP)
        try:
            for _ in range(300):
                held.enter_context(server.connect())
            one = held.enter_context(server.connect())
            one.sendall(asked.encode())
            for _ in range(300):
                held.enter_context(server.connect())
        finally:
            os.kill(server.about.pid, signal.SIGCONT)
        assert read(one).status == 200


# --- who come and go --------------------------------------------------------------------------------------

WHOLE = "GET /api/v1/runs HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n"
LEFT = {
    "nothing": "",
    "half a head": "GET /api/v1 HT",
    "half a body": WITH + "content-length: 1000\r\n\r\n{{",
    "a request": WHOLE,
    "many requests": WHOLE * 5,
    "a stream": WHOLE.replace("/runs", "/events/follow"),
    "a log": WHOLE.replace("/runs", "/runs/{run}/log/follow"),
    "a file": WHOLE.replace("/runs", "/runs/{run}/files/large"),
}


def held(pid: int) -> int:
    """How many descriptors it has."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.soak)])
def test_clients_that_disconnect_leave_nothing_open(server: Server, large: str, count: int) -> None:
    given = {"host": server.host, "token": server.token, "run": run_id(large)}
    heads = [head.format(**given).encode() for head in LEFT.values()]

    def come(number: int) -> None:
        with server.connect(local=number % 3 == 0) as opened:
            if number % 2:  # it goes without a word
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            head = heads[number // 6 % len(heads)]
            opened.sendall(head.replace(server.host.encode(), b"roost") if number % 3 == 0 else head)

    pid = server.about.pid
    for number in range(100):
        come(number)  # threads, and whatever else is made once, are there then
    wait_for(lambda: held(pid) < 30)
    before = held(pid)
    with flat(server), ThreadPoolExecutor(16) as crowd:
        list(crowd.map(come, range(count)))
        wait_for(lambda: held(pid) <= before)
