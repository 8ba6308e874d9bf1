"""A project of DLNest's contract, driven by its own verbs in its own programs, from `new` to `exit`."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import numpy as np
import pytest

from tests.cli.programs import Terminal
from tests.lab.labs import Lab
from tests.serve.servers import Server

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs a child subreaper"),
    pytest.mark.timeout(300),
]

SETTINGS = "dataset_config.mirrors=[] roost.threads=1"
FOREVER = "def experience(self):\n    print('begins', flush=True)\n    while True: pass\n"


def program(name: str) -> list[str]:
    return [sys.executable, "-m", f"roost.compat.dlnest.{name}"]


def write_pictures(folder: Path) -> None:
    """Writes the four files of MNIST with pictures of noise."""
    chance = np.random.default_rng(0)
    folder.mkdir()
    for part, number in (("train", 130), ("t10k", 40)):
        pictures = chance.integers(0, 256, (number, 28, 28), np.uint8).tobytes()
        labels = chance.integers(0, 10, number, np.uint8).tobytes()
        for kind, head, data in (("images-idx3", 16, pictures), ("labels-idx1", 8, labels)):
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(bytes(head) + data))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(tmp_path)
    with found.lab.here():
        found.start()
        yield found
    found.close()


def see(terminal: Terminal, line: str, text: str) -> str:
    """Types a line, waits for something new on the screen, and for the next prompt; gives both."""
    terminal.seen = ""
    terminal.type(line)
    terminal.wait_for(text, 120.0)
    return click.unstyle(terminal.seen)


def test_simple_from_new_to_exit(server: Server) -> None:
    lab = server.lab
    shell = Terminal(
        program=program("Simple"), cwd=lab.folder, PROMPT_TOOLKIT_NO_CPR="1", OMP_NUM_THREADS="1"
    )
    try:
        shell.wait_for("Waiting for command...")
        assert shell.seen.splitlines()[0] == "roost simple"
        shell.wait_for("roost>")
        see(shell, "new -d mnist -MNIST", "next: run -c mnist/root_config.json")
        write_pictures(lab.folder / "mnist" / "MNIST")
        see(shell, f"run -c mnist/root_config.json -CPU {SETTINGS} -d own pictures -sd", "T_1")
        (task,) = lab.tasks()
        ended = lab.wait_for(task.id, timeout_seconds=150)
        assert ended.state == "succeeded", (Path(task.package) / "_output.txt").read_text()
        assert Path(task.package) == lab.folder / "mnist" / "Saves" / "own pictures"
        see(shell, 'analyze -r "mnist/Saves/own pictures" -CPU', "A_2")
        see(shell, "watch A_2", "A_2 is watched")
        said = see(shell, "runExp getAcc", "succeeded in")
        assert re.search(r"all +40 +0\.\d{4}", said), said
        script = lab.folder / "mnist" / "AnalyzeScripts" / "getAcc.py"
        script.write_text("def experience(self):\n    print('edited', self.runner is self.model)\n")
        see(shell, "runExp A_2 getAcc", "edited True")
        (script.parent / "forever.py").write_text(FOREVER)
        see(shell, "runExp forever", "begins")
        shell.press_ctrl_c()
        shell.wait_for("interrupted after")
        see(shell, "runExp nosuch", "no such script")
        see(shell, "runExp /etc/hostname", "error:")
        see(shell, "checkpoint -2", "loads untrained")
        see(shell, "runExp getAcc", "edited True")
        see(shell, "showAN", "interrupted after")
        see(shell, "showTask", "own pictures/analyzers/1")
        see(shell, "withdraw", "no longer watched")
        see(shell, "runExp getAcc", "no analyzer is watched")
        see(shell, "continue -r 'mnist/Saves/own pictures' -CPU", "T_3")
        see(shell, "del T_3", "T_3: asked to save and end")
        see(shell, "del A_2", "A_2: asked to save and end")
        for one in lab.tasks():
            lab.wait_for(one.id)
        see(shell, "showDL", "run_script task=A_2 script=nosuch failed: ")
        see(shell, "clear", "is cleared")
        shell.wait_for("roost>")
        os.write(shell.fd, b"exit\n")
        assert shell.end()[0] == 0
    finally:
        shell.kill()


def test_local_by_a_pipe(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "own", "sim:1x24GB")
    lines = [
        "new -d p",
        "run -c p/root_config.json -CPU -ns",
        "logs T_1 -f",
        "analyze -r p/Saves/NOSAVE -CPU",
        "runExp A_2 test",
        "runExp A_2 nosuch",
        "showAN A_2",
        "del A_2",
        "exit",
    ]
    try:
        with lab.here():
            said = subprocess.run(
                program("Local"), input="\n".join(lines), capture_output=True, text=True, timeout=200
            )
        assert said.returncode == 3, said.stderr  # of the script that does not exist
        assert said.stdout.startswith("Waiting for command...\n")
        assert said.stdout.count("analysis 1: succeeded in") == 2
        assert [line for line in said.stderr.splitlines() if line.startswith("error: ")] == [
            line for line in said.stderr.splitlines() if "no such script" in line
        ]
        assert {one.label: one.state for one in lab.tasks()} == {"T_1": "succeeded", "A_2": "stopped"}
    finally:
        lab.close()
