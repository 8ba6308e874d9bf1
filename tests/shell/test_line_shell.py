"""The line shells as a person meets them: on a terminal, and lines from a pipe."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.lab.queue.task import ENDED
from tests.cli.programs import ROOST, Terminal
from tests.lab.labs import Lab
from tests.serve.servers import Server
from tests.waiting import wait_for

WITHOUT_TOOLKIT = [
    sys.executable,
    "-c",
    "import sys; sys.modules['prompt_toolkit'] = None; from roost.cli.__main__ import main; main()",
]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Lab]:
    """A lab without a server, in whose folder the test runs."""
    found = Lab(tmp_path / "own", "sim:2x24GB")
    with found.here():
        yield found
    found.close()


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """The terminals of a test; none is left."""
    found: list[Terminal] = []
    yield found
    for one in found:
        one.kill()


def open_shell(terminals: list[Terminal], name: str, **more: Any) -> Terminal:
    """A shell on a terminal that does not tell where its cursor is."""
    terminals.append(Terminal(name, PROMPT_TOOLKIT_NO_CPR="1", **more))
    return terminals[-1]


def bare(text: str) -> str:
    """What a terminal was sent, without control sequences."""
    return re.sub(r"\x1b(\[[0-9;?]*[a-zA-Z]|[=>78])|\r", "", text)


def piped(lines: str, *arguments: str, program: list[str] = ROOST) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program, *arguments], input=lines, capture_output=True, text=True, timeout=90)


def see(terminal: Terminal, line: str, text: str) -> None:
    """Types a line, and waits for something new on the screen."""
    terminal.seen = ""
    terminal.type(line)
    terminal.wait_for(text)


def test_a_shell_on_a_terminal(server: Server, terminals: list[Terminal]) -> None:
    shell = open_shell(terminals, "simple", cwd=server.folder)
    shell.wait_for("roost>")
    assert bare(shell.seen).startswith("Waiting for command...\n")
    see(shell, "showDevices", "simulated")
    see(shell, "showTsk", "did you mean 'showTask'?")
    see(shell, "run -c 'a", "is not closed")
    see(shell, "", "roost>")
    shell.press_ctrl_c_until("exit or Ctrl-D leaves the shell")
    see(shell, "", "roost>")
    os.write(shell.fd, b"showDev\t")
    shell.wait_for("ices")
    see(shell, "", "simulated")
    shell.seen = ""
    os.write(shell.fd, b"\x1b[A")  # up
    shell.wait_for("showDevices")
    shell.seen = ""
    os.write(shell.fd, b"\x03")
    shell.wait_for("exit or Ctrl-D leaves the shell")
    shell.wait_for("roost>")
    see(shell, "help runExp", "  runExp getAcc\r\n")
    see(shell, "", "roost>")
    os.write(shell.fd, b"\x04")
    assert shell.end()[0] == 0
    history = server.lab.state.parent / "shell_history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert history.read_text().splitlines() == [
        "showDevices",
        "showTsk",
        "run -c 'a",
        "showDevices",
        "help runExp",
    ]


def test_several_candidates_are_a_menu(server: Server, terminals: list[Terminal]) -> None:
    shell = open_shell(terminals, "simple")
    shell.wait_for("roost>")
    os.write(shell.fd, b"with\t")
    shell.wait_for("draw")
    os.write(shell.fd, b"\x15showD\t")  # Ctrl-U
    shell.wait_for("showDL")
    assert "Print what the server was asked for." in shell.seen
    os.write(shell.fd, b"\x03\x04")
    assert shell.end()[0] == 0


def test_colours_unless_they_are_refused(server: Server, terminals: list[Terminal]) -> None:
    for refusal, has_colours in (("", True), ("1", False)):
        shell = open_shell(terminals, "simple", NO_COLOR=refusal)
        shell.wait_for("roost>")
        see(shell, "del T_999", "there is no such task")
        assert ("\x1b[31m" in shell.seen) == has_colours
        see(shell, "exit", "exit")
        assert shell.end()[0] == 0


def test_a_server_that_is_gone_is_named_and_the_shell_lives(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    server = Server(tmp_path)
    try:
        with server.lab.here():
            server.start()
            shell = open_shell(terminals, "simple")
            shell.wait_for("roost>")
            server.stop()
            see(shell, "showTask", "`roost server --detach` starts one")
            server.start()
            see(shell, "showTask", "no tasks")
            see(shell, "exit", "exit")
            assert shell.end()[0] == 0
    finally:
        server.close()


def test_without_a_server_there_is_no_shell(own: Lab) -> None:
    said = piped("showTask\n", "simple")
    assert (said.returncode, said.stdout) == (3, "")
    assert "`roost server --detach` starts one" in said.stderr and said.stderr.count("\n") == 1


def test_lines_from_a_pipe(server: Server) -> None:
    said = piped("help clear\n\nnothing\nshowTask -x\nhelp clear\n", "simple")
    assert said.returncode == 3  # of the first error
    assert said.stdout.startswith("Waiting for command...\nclear\n") and said.stdout.count("\nclear\n") == 2
    assert [line.partition(";")[0] for line in said.stderr.splitlines()] == [
        "error: there is no verb 'nothing'",
        "error: showTask has no option '-x'",
    ]
    said = piped("nothing a\u2028exit\x85exit\x0cexit\nnothing b\n", "simple")
    assert said.stderr.count("there is no verb 'nothing'") == 2  # only a newline ends a verb
    said = piped("exit\nnothing\n", "simple", program=WITHOUT_TOOLKIT)
    assert (said.returncode, said.stdout, said.stderr) == (0, "Waiting for command...\n", "")
    port = str(server.about.port)
    assert piped("showDevices\n", "simple", "-p", port).returncode == 0
    assert piped("", "simple", "-p", port, "-u", f"http://localhost:{port}").returncode == 2


@pytest.mark.parametrize(
    ("program", "term", "said"),
    [(WITHOUT_TOOLKIT, "xterm-256color", "pip install 'roost[shell]'"), (ROOST, "dumb", "local>")],
)
def test_a_simple_terminal_suffices(
    program: list[str], term: str, said: str, own: Lab, terminals: list[Terminal]
) -> None:
    shell = open_shell(terminals, "local", program=program, TERM=term)
    shell.wait_for(said)
    shell.wait_for("local>")
    see(shell, "showTask", "no tasks")
    see(shell, "nothing", "there is no verb")
    shell.press_ctrl_c_until_end()
    code, seen = shell.end()
    assert code == 0 and "Traceback" not in seen


def test_leaving_a_local_shell_asks_and_ends_its_tasks(own: Lab, terminals: list[Terminal]) -> None:
    other = own.submit("sleep 600")
    shell = open_shell(terminals, "local")
    shell.wait_for("local>")
    see(shell, "new -d p", "next: run")
    see(shell, "run -c p/root_config.json -CPU epochs=100000", "T_")
    task = wait_for(lambda: next((one for one in own.tasks() if one.id != other), None))
    own.wait_for(task.id, "running")
    shell.press_ctrl_c_until(f"save and end {task.label}? [y/N]")
    see(shell, "n", "local>")
    assert own.one(task.id).state == "running"
    see(shell, "exit", f"save and end {task.label}? [y/N]")
    see(shell, "", "local>")
    os.write(shell.fd, b"\x04")
    shell.wait_for(f"save and end {task.label}? [y/N]")
    see(shell, "y", f"{task.label}: asked to save and end")
    assert shell.end()[0] == 0
    assert own.one(task.id).state in ENDED and own.one(other).state == "running"


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_leaves_the_terminal_as_it_was(
    number: signal.Signals, own: Lab, terminals: list[Terminal]
) -> None:
    shell = open_shell(terminals, "local")
    before = termios.tcgetattr(shell.fd)
    shell.wait_for("local>")
    wait_for(lambda: not termios.tcgetattr(shell.fd)[3] & termios.ECHO)
    shell.process.send_signal(number)
    assert shell.process.wait(100) == -number
    assert termios.tcgetattr(shell.fd) == before


def test_ctrl_z_and_a_closed_terminal_leave_no_process(
    own: Lab, tmp_path: Path, terminals: list[Terminal]
) -> None:
    terminals.append(Terminal(program=["bash", "--norc", "-i"], PROMPT_TOOLKIT_NO_CPR="1"))
    bash, program = terminals[-1], tmp_path / "pid"
    bash.type(f"sh -c 'echo $$ > {program}; exec \"$@\"' sh {shlex.join(ROOST)} local")
    bash.wait_for("local>")
    os.write(bash.fd, b"\x1a")
    bash.wait_for("Stopped")
    bash.hang_up()
    wait_for(lambda: not Path("/proc", program.read_text().strip()).exists())


def test_tasks_of_piped_lines_end_with_them(own: Lab) -> None:
    said = piped("new -d p\nrun -c p/root_config.json -CPU\n", "local")
    assert said.returncode == 0, said.stderr
    (task,) = own.tasks()
    command = json.loads((Path(task.package) / "request.json").read_text())["command"]
    assert command == ["run", "-c", "p/root_config.json", "-CPU"], "the line, and no request to a server"
    assert task.state in ENDED and f"{task.label}: asked to save and end" in said.stderr
    waited = piped("run -c p/root_config.json -CPU\nlogs T_2 -f\n", "local")
    assert waited.returncode == 0 and own.tasks()[-1].state == "succeeded", waited.stderr


def test_a_closed_stdin_is_the_end_of_the_lines(own: Lab) -> None:
    said = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *ROOST, "local"], capture_output=True, text=True, timeout=90
    )
    assert (said.returncode, said.stdout, said.stderr) == (0, "Waiting for command...\n", "")
