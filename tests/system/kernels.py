"""A real Jupyter kernel, whose cells nbclient runs, in a process of its own: it leaves event loops open.

The process takes the source of a cell in each line, and prints what the kernel sends, then the cell.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Cell = dict[str, Any]
"""A cell as a notebook file has it."""


class Notebook:
    """A notebook in a folder, whose kernel runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.kernel_pid = int(self._read()["kernel_pid"])
        self.size = 0
        """The bytes of the notebook file, as it would be saved after the newest cell."""

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the client has ended: {self._process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def start(self, source: str, *, until: Callable[[str], bool] = lambda text: True) -> None:
        """Begins a cell, and waits for an output that holds what is asked for."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(source) + "\n")
        self._process.stdin.flush()
        self.wait(until)

    def wait(self, until: Callable[[str], bool]) -> None:
        """Waits for an output of the running cell that holds what is asked for."""
        while not until(json.dumps(sent := self._read())):
            assert "cell" not in sent, sent

    def finish(self) -> Cell:
        """Waits for the end of the cell; returns it."""
        while "cell" not in (sent := self._read()):
            pass
        self.size = sent["size"]
        cell: Cell = sent["cell"]
        return cell

    def run(self, source: str) -> Cell:
        """Runs a cell, which must raise no error; returns it."""
        cell = self.fail(source)
        assert not errors(cell), (text(cell), errors(cell))
        return cell

    def fail(self, source: str) -> Cell:
        """Runs a cell that may raise an error; returns it."""
        self.start(source)
        return self.finish()

    def interrupt(self) -> None:
        """Presses the button "interrupt"."""
        os.kill(self.kernel_pid, signal.SIGINT)

    def terminate(self) -> None:
        """Sends SIGTERM to the kernel, and ends the client."""
        os.kill(self.kernel_pid, signal.SIGTERM)
        self._process.kill()

    def kill(self) -> None:
        """Kills the kernel, and the client."""
        os.kill(self.kernel_pid, signal.SIGKILL)
        self._process.kill()


@contextmanager
def notebook(folder: Path) -> Iterator[Notebook]:
    """A notebook in ``folder``; its kernel ends with the block."""
    command = [sys.executable, "-W", "ignore", __file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Notebook(process)
        assert process.stdin is not None
        process.stdin.close()


def text(cell: Cell) -> str:
    """What the streams of a cell have shown."""
    return "".join(one["text"] for one in cell["outputs"] if one["output_type"] == "stream")


def shown(cell: Cell, kind: str) -> list[str]:
    """The outputs of a media type."""
    return [one["data"][kind] for one in cell["outputs"] if kind in one.get("data", {})]


def errors(cell: Cell) -> list[str]:
    """The tracebacks of a cell, as they are shown."""
    return ["\n".join(one["traceback"]) for one in cell["outputs"] if one["output_type"] == "error"]


def main(folder: Path) -> None:
    """Runs cells until stdin ends."""
    import nbformat
    from jupyter_client.manager import KernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    def send(**what: Any) -> None:
        print(json.dumps(what), flush=True)

    class Client(NotebookClient):
        def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
            send(type=msg["msg_type"], content=msg["content"] if msg["msg_type"] != "status" else {})
            return super().process_message(msg, cell, cell_index)

    nb = nbformat.v4.new_notebook()
    manager = KernelManager(transport="ipc", connection_file=str(folder.parent / "kernel.json"))
    client = Client(nb, km=manager, timeout=None, resources={"metadata": {"path": str(folder)}})
    with client.setup_kernel():
        send(kernel_pid=manager.provisioner.pid)
        for line in sys.stdin:
            cell = nbformat.v4.new_code_cell(json.loads(line))
            nb.cells.append(cell)
            with suppress(CellExecutionError):
                client.execute_cell(cell, len(nb.cells) - 1)
            send(cell=cell, size=len(nbformat.writes(nb).encode()))
    manager.shutdown_kernel()  # nbclient leaves the kernel of a given manager running


if __name__ == "__main__":
    main(Path(sys.argv[1]))
