"""The full-screen client in a real terminal, used as a person would: tmux at three sizes, GNU screen."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tmux_terminal import ROOST, ScreenTerminal, TmuxTerminal

pytestmark = [pytest.mark.needs_program("tmux"), pytest.mark.timeout(600)]
_COLOUR = re.compile(r"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7])(?:;[0-9;]*)?m")


class Served:
    """A lab, and its server."""

    def __init__(self, folder: Path) -> None:
        self.environment = {
            "ROOST_STATE": str(folder / "state"),
            "ROOST_LEASES": str(folder / "leases"),
            "XDG_STATE_HOME": str(folder / "xdg"),
            "OMP_NUM_THREADS": "1",
        }
        self.folder = folder

    def roost(self, *arguments: str) -> str:
        """Runs a command."""
        done = subprocess.run(
            [sys.executable, "-m", "roost", *arguments],
            env={**os.environ, **self.environment}, cwd=self.folder, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def pid(self) -> int:
        """The pid of the server."""
        found = re.search(r"pid (\d+)", self.roost("server", "status"))
        assert found is not None
        return int(found[1])


@contextmanager
def serve(folder: Path) -> Iterator[Served]:
    found = Served(folder)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found.roost("server", "--detach", "--port", str(port))
    try:
        yield found
    finally:
        found.roost("server", "stop")
        found.roost("lab", "stop")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One lab for all tests: a server takes longer than a client."""
    with serve(tmp_path_factory.mktemp("served")) as found:
        found.roost("submit", "--name", "sleeps", "--", "sleep", "600")
        yield found


@pytest.fixture
def served_alone(tmp_path: Path) -> Iterator[Served]:
    """A lab whose tasks and server are those of the test."""
    with serve(tmp_path) as found:
        yield found


Open = Callable[..., TmuxTerminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    """Opens terminals."""
    opened: list[TmuxTerminal] = []

    def open_terminal(
        environment: Mapping[str, str], command: str | None = None, size: tuple[int, int] = (120, 40)
    ) -> TmuxTerminal:
        folder = tmp_path / f"t{len(opened)}"
        folder.mkdir()
        opened.append(TmuxTerminal(folder, size, environment))
        if command is not None:
            opened[-1].type(f"cd {tmp_path}; {command}")
            opened[-1].keys("Enter")
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


def _verb(client: TmuxTerminal, line: str) -> None:
    client.keys("F1")
    client.type(line)
    client.keys("Enter")


def test_a_day_of_work(served_alone: Served, terminal: Open) -> None:
    served = served_alone
    environment = {**served.environment, "EDITOR": "sed -i s/first/second/"}
    client = terminal(environment, f"{ROOST} client")
    served.roost("new", "line", "--template", "clean")
    client.wait_for_text("live")
    for pane in ("F2 Server output", "F3 Analyzer output", "F4 Tasks", "F5 Devices", "Curves"[:4]):
        assert pane in client.screen()

    # run, and an analyzer beside it: both import torch, which takes longest
    _verb(client, "run -c line/config.yaml max_epochs=2 -CPU")
    client.wait_for_text("T_1")
    package = next((served.folder / "line" / "runs").iterdir())
    script = served.folder / "line" / "AnalyzeScripts" / "count.py"
    script.write_text("def experience(self):\n    print('first', 6 * 7)\n")
    _verb(client, f"analyze -r {package} -c -2 -CPU")
    client.wait_for_text("A_2")

    # watch, runExp twice with an edit between
    _verb(client, "watch A_2")
    client.wait_for_text("F3 Analyzer output · A_2")
    _verb(client, "runExp count")
    client.wait_for_text("first 42")
    client.keys("F3", "e")
    client.wait_for_text("runExp A_2 count runs it as it is now")
    _verb(client, "runExp count")
    client.wait_for_text("second 42")

    # withdraw: the analyzer goes on; runExp without one shows its failure in the server's output
    _verb(client, "withdraw")
    client.wait_until_gone("second 42")
    _verb(client, "runExp count")
    client.wait_for_text("no analyzer is watched; fix")
    client.wait_for_text("✓")
    client.wait_for_text("valid/")

    client.keys("F4")
    # the server is killed, and restarted meanwhile
    os.kill(served.pid(), signal.SIGKILL)
    client.wait_for_text("reconnecting")
    client.wait_for_text("● live")
    _verb(client, "watch A_2")
    client.wait_for_text("second 42")

    # del
    assert "■" not in client.screen()
    _verb(client, "del A_2")
    client.wait_for_text("■")
    client.keys("C-q")
    client.require_restored()


def test_resizes(served: Served, terminal: Open) -> None:
    exported = {"COLUMNS": "80", "LINES": "24"}  # by `resize`, or a program with GNU readline
    client = terminal({**served.environment, **exported}, f"{ROOST} client")
    screen = client.wait_for_text("F1 command")
    assert screen.split("\n")[39].startswith(" F1 command"), "painted first for the exported size"
    for columns, rows in ((80, 24), (200, 60), (120, 40)) * 5:
        client.resize(columns, rows)
        client.wait_for(lambda screen, c=columns, r=rows: _fills(screen, c, r), f"{columns}x{rows}")
    client.keys("q")
    client.require_restored()


def test_a_resize_without_its_signal(served: Served, terminal: Open) -> None:
    client = terminal(served.environment, f"env --block-signal=WINCH {ROOST} client")
    client.wait_for_text("live")
    client.resize(80, 24)
    client.wait_for(lambda screen: _fills(screen, 80, 24), "80x24")
    client.keys("q")
    client.require_restored()


def _fills(screen: str, columns: int, rows: int) -> bool:
    """Whether all views are drawn, from the first line to the last, which has the keys, and to both sides."""
    lines = screen.rstrip("\n").split("\n")
    is_wide = any(len(line) == columns and line.endswith("╯") for line in lines)
    return is_wide and len(lines) == rows and "F4 Tasks" in screen and lines[-1].startswith(" F1 command")


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["80x24", "200x60"])
def test_keys_at_other_sizes(served: Served, terminal: Open, size: tuple[int, int]) -> None:
    name = f"counts-{size[0]}"
    count = "for i in $(seq 600); do echo number $i; sleep 0.1; done"
    served.roost("submit", "--name", name, "--", "sh", "-c", count)
    client = terminal(served.environment, f"{ROOST} client", size)
    client.wait_for_text(name)
    client.keys("/")
    client.type(name)
    client.keys("Enter")
    client.wait_until_gone("sleeps")
    client.keys("l")
    client.wait_for_text("number 3")
    client.keys("w")
    client.wait_for_text("$ sh -c")
    client.keys("F4", "/")
    client.type("nothing-like-it")
    client.keys("Enter")
    client.wait_for_text("no task matches")
    client.keys("Escape")
    client.wait_until_gone("no task matches")
    client.keys("?")
    client.wait_for_text("Keys")
    client.keys("Escape")
    client.wait_until_gone("Keys")
    client.keys("/")
    client.type(name)
    client.keys("Enter")
    client.wait_until_gone("sleeps")
    client.keys("x")
    client.wait_for_text(f"{name}? y or n")
    client.keys("y")
    client.wait_for_text("■")
    client.keys("q")
    client.require_restored()


def test_a_table_that_is_wider_than_the_screen(served: Served, terminal: Open) -> None:
    served.roost("submit", "--name", "long-" * 12, "--", "true")
    served.roost("submit", "--name", "halted", "--begin", "+2h", "--", "true")
    served.roost("hold", "halted")
    client = terminal(served.environment, f"{ROOST} client", (80, 24))
    client.wait_for_text("live")
    client.keys("F1")
    client.type("showTasj")
    client.keys("BSpace", "k", "Enter", "F2")  # at once: each key is handled before the next
    screen = client.wait_for(lambda screen: "…" in screen and "succeeded" in screen, "a cut line")
    assert not re.search(r"^│ +\w +│$", screen, re.MULTILINE), "a reason is not one letter wide"
    client.keys("q")
    client.require_restored()


@pytest.mark.needs_program("screen")
def test_in_gnu_screen(served: Served, tmp_path: Path) -> None:
    client = ScreenTerminal(tmp_path, f"{ROOST} client; echo left with $?; sleep 60", served.environment)
    try:
        screen = client.wait_for_text("sleeps")
        assert "F4 Tasks" in screen
        client.type("?")
        client.wait_for_text("Keys")
        client.type("\x1b")
        # A hardcopy may be read while it is written; Esc and q in one read would be Alt-q.
        client.wait_for(lambda screen: "Keys" not in screen and "F1 command" in screen, "no help")
        client.type("q")
        client.wait_for_text("left with 0")
    finally:
        client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_terminal_is_restored_after_a_signal(
    served: Served, terminal: Open, number: signal.Signals
) -> None:
    client = terminal(served.environment, f"{ROOST} client")
    client.wait_for_text("live")
    pid = client.pid_of("roost client")
    if number == signal.SIGKILL:  # of the client itself: its guard is the shell's child
        pid = int(subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()[0])
    os.kill(pid, number)
    client.require_restored()


@pytest.mark.parametrize("wakes", [0, 9])
def test_ctrl_z_and_fg(served: Served, terminal: Open, wakes: int) -> None:
    """The shell and the guard wake the client, in any order, sometimes at once."""
    client = terminal(served.environment, f"{ROOST} client")
    client.wait_for_text("live")
    client.keys("C-z")
    client.require_restored()
    guard = client.pid_of("roost client")
    child = int(subprocess.run(["pgrep", "-P", str(guard)], capture_output=True, text=True).stdout)
    client.type("fg")
    client.keys("Enter")
    client.wait_for(lambda screen: "F4 Tasks" in screen, "the client")
    for _ in range(wakes):
        os.kill(child, signal.SIGCONT)
    client.wait_for_text("F4 Tasks")
    client.keys("q")
    client.require_restored()


def test_an_editor_that_is_missing_gives_the_terminal_back(served: Served, terminal: Open) -> None:
    client = terminal({**served.environment, "EDITOR": "no-such-editor"}, f"{ROOST} client")
    client.wait_for_text("sleeps")
    client.keys("e")
    client.wait_for_text("cannot be started")
    client.keys("?")
    client.wait_for_text("Keys")
    client.keys("q")
    client.wait_until_gone("Keys")
    client.keys("q")
    client.require_restored()


def test_ctrl_z_and_fg_of_a_line_shell(served: Served, terminal: Open) -> None:
    shell = terminal(served.environment, f"{ROOST} simple")
    shell.wait_for_text("roost>")
    shell.keys("C-z")
    shell.wait_for_text("Stopped")
    shell.type("fg")
    shell.keys("Enter")
    shell.type("showTask")
    shell.keys("Enter")
    shell.wait_for_text("sleeps")


def test_without_colours_and_in_ascii(served: Served, terminal: Open) -> None:
    client = terminal({**served.environment, "NO_COLOR": "1"}, f"{ROOST} client")
    client.wait_for_text("sleeps")
    assert not _COLOUR.search(client.screen(with_colours=True))
    for variable in ("LC_ALL", "LANG"):
        plain = terminal({**served.environment, variable: "C"}, f"{ROOST} client --readonly")
        plain.wait_for_text("sleeps")
        assert plain.screen().isascii(), variable
        assert "read only" in plain.screen()


def test_what_the_client_says_before_it_takes_the_screen(tmp_path: Path, terminal: Open) -> None:
    nothing = Served(tmp_path).environment
    shell = terminal(nothing, f"{ROOST} client; echo code $?")
    shell.wait_for_text("no server of yours runs; fix: `roost server --detach` starts one")
    shell.wait_for_text("code 3")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    shell.type(f"clear; {ROOST} client -p {port}; echo code $?")
    shell.keys("Enter")
    shell.wait_for_text("no server answers at this port")
    shell.wait_for_text("code 3")
    shell.type(f"clear; {ROOST} client -u gpu-box; echo code $?")
    shell.keys("Enter")
    shell.wait_for_text("ssh -L 9999:localhost:9999 gpu-box")
    shell.wait_for_text("code 5")
    shell.type(f"clear; {ROOST} client | cat; echo code $?")
    shell.keys("Enter")
    shell.wait_for_text("the client needs a terminal")
    shell.type(f"clear; TERM=dumb {ROOST} client; echo code $?")
    shell.keys("Enter")
    shell.wait_for_text("cannot place the cursor")


def test_a_wrong_token(served: Served, terminal: Open, tmp_path: Path) -> None:
    port = re.search(r"localhost:(\d+)", served.roost("server", "status"))
    assert port is not None
    others = {**Served(tmp_path / "other").environment, "ROOST_SERVER_TOKEN": "wrong"}
    client = terminal(others, f"{ROOST} client -p {port[1]}; echo code $?")
    client.wait_for_text("ROOST_SERVER_TOKEN")
    client.wait_for_text("code 5")
    client.require_restored()
