"""A real Jupyter kernel, with the cells of a notebook run in it as nbclient does."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


class Notebook:
    """A notebook in a folder, whose kernel runs.

    Attributes:
        nb: The notebook as nbclient writes it.
        client: The client.
    """

    def __init__(self, client: NotebookClient) -> None:
        self.client, self.nb = client, client.nb

    def run(self, source: str) -> Any:
        """Adds a cell, runs it, and returns it.

        Raises:
            CellExecutionError: The cell has raised an error.
        """
        self.nb.cells.append(nbformat.v4.new_code_cell(source))
        at = len(self.nb.cells) - 1
        return self.client.execute_cell(self.nb.cells[at], at)

    def fail(self, source: str) -> Any:
        """Runs a cell that raises an error; returns the cell."""
        try:
            self.run(source)
        except CellExecutionError:
            return self.nb.cells[-1]
        raise AssertionError(f"no error: {text(self.nb.cells[-1])}")

    def start(self, source: str) -> Thread:
        """Begins a cell, which fails or is interrupted, in a thread."""
        thread = Thread(target=self.fail, args=(source,))
        thread.start()
        return thread

    @property
    def kernel_pid(self) -> int:
        """The process of the kernel."""
        assert self.client.km is not None
        return int(self.client.km.provisioner.pid)

    def interrupt(self) -> None:
        """Presses the button "interrupt"."""
        os.kill(self.kernel_pid, signal.SIGINT)

    def size(self) -> int:
        """The bytes of the notebook when it is saved."""
        return len(nbformat.writes(self.nb).encode())


@contextmanager
def notebook(folder: Path) -> Iterator[Notebook]:
    """A notebook in ``folder``; its kernel ends with the block."""
    manager = KernelManager(transport="ipc", connection_file=str(folder.parent / "kernel.json"))
    client = NotebookClient(
        nbformat.v4.new_notebook(), km=manager, timeout=90, resources={"metadata": {"path": str(folder)}}
    )
    with client.setup_kernel():
        yield Notebook(client)


def text(cell: Any) -> str:
    """What the streams of a cell have shown."""
    return "".join(one.text for one in cell.outputs if one.output_type == "stream")


def shown(cell: Any, kind: str) -> list[str]:
    """The outputs of a media type."""
    return [one.data[kind] for one in cell.outputs if kind in one.get("data", {})]


def errors(cell: Any) -> list[str]:
    """The tracebacks of a cell, as they are shown."""
    return ["\n".join(one.traceback) for one in cell.outputs if one.output_type == "error"]
