"""F7: a lab whose state lies on a disk that becomes full while it works. Started as
``unshare -m python -m tests.system.lab_on_small_disk FOLDER``, with a small disk at FOLDER/state."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from roost.base.errors import RoostError
from roost.lab.queue.task import RUNNING, SUCCEEDED
from tests.lab.labs import Lab, record_of
from tests.processes import is_gone
from tests.waiting import wait_for

MOST_TASKS = 300
"""That fit into what the disk has; each needs some kilobytes."""


def fill(path: Path) -> None:
    """Until not a byte more fits."""
    with contextlib.suppress(OSError), path.open("ab", buffering=0) as file:
        for size in (1 << 16, 1):
            with contextlib.suppress(OSError):
                while file.write(b"x" * size):
                    continue


def main(folder: Path) -> None:
    lab = Lab(folder)
    try:
        about = lab.start()
        running = lab.wait_for(lab.submit("until [ -e go ]; do sleep 0.01; done; exit 6"), RUNNING)
        fill(lab.state.parent / "filler")
        accepted = []
        try:
            for _ in range(MOST_TASKS):
                accepted.append(lab.queue("exit 0").id)
            raise AssertionError("the disk is not full")
        except RoostError as error:
            assert "full" in str(error), error
        (folder / "go").touch()
        wait_for(lambda: record_of(running)["state"] == "failed")
        wait_for(lambda: is_gone(record_of(running)["guard_pid"]))  # which wakes the daemon
        assert about.is_alive, "the daemon goes on"
        (lab.state.parent / "filler").unlink()
        accepted.append(lab.submit("exit 0"))
        assert lab.wait_for(running.id).exit_code == 6
        assert {task.id for task in lab.wait_for_all()} == {running.id, *accepted}
        assert all(lab.one(id).state == SUCCEEDED for id in accepted)
        assert about.is_alive
        with lab.store() as store:
            store.check()
    finally:
        lab.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
