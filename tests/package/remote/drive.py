"""A mounted drive: a real file system of a program (FUSE, bindfs) over a folder."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_for


class Drive:
    """A drive that is mounted and unmounted, whose program may be killed, and whose writes may fail."""

    def __init__(self, folder: Path) -> None:
        self.cloud, self.path = folder / "cloud", folder / "drive"
        """Where the files really are; where they are mounted."""
        for path in (self.cloud, self.path):
            path.mkdir(parents=True)
        self._process: subprocess.Popen[bytes] | None = None

    def mount(self) -> None:
        """Mounts the drive. Skips the test where that is not possible."""
        # SIGXFSZ stays ignored, as Python has it: a write that fails is an error, and no end.
        command = ["bindfs", "-f", str(self.cloud), str(self.path)]
        self._process = process = subprocess.Popen(command, stderr=subprocess.PIPE, restore_signals=False)
        wait_for(lambda: self.path.is_mount() or process.poll() is not None)
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.skip(f"no drive can be mounted here: {process.stderr.read().decode().strip()}")

    def unmount(self) -> None:
        """Takes the drive away, although files may be open: its empty folder is left."""
        subprocess.run(["fusermount3", "-u", "-z", self.path], check=True)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the program: the mount stays, and answers with an error."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def set_full(self, is_full: bool) -> None:
        """Makes all writes fail, or no more."""
        assert self._process is not None
        limit = 0 if is_full else resource.RLIM_INFINITY
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@contextlib.contextmanager
def drive(folder: Path) -> Iterator[Drive]:
    """A mounted drive."""
    for program in ("bindfs", "fusermount3"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install bindfs fuse3)")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this machine has no /dev/fuse for this user")
    found = Drive(folder)
    found.mount()
    try:
        yield found
    finally:
        found.kill()
        subprocess.run(["fusermount3", "-u", "-z", found.path], stderr=subprocess.DEVNULL)
