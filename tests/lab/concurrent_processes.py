"""Several processes that call one function at the same time."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path


def together(number: int, what: Callable[[Path, int], None], folder: Path) -> None:
    """Forks processes, lets all of them start at once, and waits for their ends.

    Args:
        number: The number of processes.
        what: The function; it gets the folder and the number of the process.
        folder: The folder.

    Raises:
        AssertionError: A process has failed; its traceback is on stderr.
    """
    gate, opener = os.pipe()
    children = []
    for mine in range(number):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(opener)
                os.read(gate, 1)  # ends when the last writer is gone
                what(folder, mine)
                code = 0
            except BaseException:  # noqa: BLE001 - reported by the exit code
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(pid)
    os.close(gate)
    os.close(opener)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    assert codes == [0] * number
