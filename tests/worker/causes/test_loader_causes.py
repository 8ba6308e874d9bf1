from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from roost.base.exception_record import ExceptionRecord, record_exception
from tests.worker.causes.scenes import in_a_worker, known, unknown


def inner(found: ExceptionRecord) -> ExceptionRecord:
    """torch says first that a worker has ended, and raises that from the error that says why."""
    assert (
        "exited unexpectedly" in found.text
        and found.cause is not None
        and unknown(record_exception(RuntimeError(found.text)))
    )
    return found.cause


linux = pytest.mark.skipif(sys.platform != "linux", reason="the names of signals")


@linux
def test_a_worker_that_is_killed() -> None:
    cause = known(inner(in_a_worker(lambda: os.kill(os.getpid(), signal.SIGKILL))))
    assert "killed" in cause.description and "dmesg" in cause.fix


@linux
def test_a_worker_with_a_bus_error() -> None:
    cause = known(inner(in_a_worker(lambda: os.kill(os.getpid(), signal.SIGBUS))))
    assert "/dev/shm" in cause.description and "--shm-size" in cause.fix


@linux
def test_a_worker_that_crashes() -> None:
    cause = known(inner(in_a_worker(lambda: os.kill(os.getpid(), signal.SIGSEGV))))
    assert cause.description.endswith(": Segmentation fault")


def test_a_worker_that_ends_itself() -> None:
    cause = known(inner(in_a_worker(lambda: os._exit(3))))
    assert re.search(r"code 3\b", cause.description)


SMALL = """
import sys, torch
from tests.worker.causes.scenes import in_a_worker, known
sys.stdout.write(known(in_a_worker(lambda: torch.zeros(2**21))).description)
"""


def _may_mount() -> bool:
    unshare = shutil.which("unshare")
    if unshare is None or sys.platform != "linux":
        return False
    asked = [unshare, "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm"]
    return subprocess.run(asked, capture_output=True).returncode == 0


@pytest.mark.skipif(not _may_mount(), reason="may not mount a small /dev/shm here")
def test_shared_memory_that_is_too_small_for_real() -> None:
    script = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, sys.executable, SMALL],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert re.search(r"\(/dev/shm .* 1\.00 MiB", done.stdout), done.stderr


@pytest.mark.parametrize("did", ["write to", "resize"])
def test_shared_memory_that_is_too_small(did: str) -> None:
    text = f"unable to {did} file </torch_8289_606636967_0>: No space left on device (28)"
    cause = known(RuntimeError(text))
    assert (
        "shared memory" in cause.description and "/dev/shm" in cause.description and "--shm-size" in cause.fix
    )


@pytest.fixture
def few_files() -> Iterator[int]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 256
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_too_many_files_for_real(few_files: int) -> None:
    held = []

    def opens() -> None:
        while True:
            held.append(open(os.devnull))  # noqa: SIM115  - they are to stay open

    with pytest.raises(OSError, match="Too many open files") as found:
        opens()
    for file in held:
        file.close()
    cause = known(found.value)
    assert f" {few_files} (ulimit -n)" in cause.description and "`ulimit -n " in cause.fix


@pytest.mark.parametrize(
    "text",
    [
        "Too many open files. Communication with the workers is no longer possible. Please increase the "
        "limit",
        "received 0 items of ancdata",
    ],
)
def test_too_many_files_of_a_loader(text: str) -> None:
    assert "(ulimit -n)" in known(RuntimeError(text)).description


def test_too_many_maps() -> None:
    text = "unable to mmap 29764 bytes from file </torch_10182_3020184674_63991>: Cannot allocate memory (12)"
    assert "vm.max_map_count" in known(RuntimeError(text)).description


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "/data/x"),
        RuntimeError("unable to write to file </torch_1_2>: File too large (27)"),
        RuntimeError("DataLoader worker (pid 3) is killed by signal: Terminated. "),
        RuntimeError("DataLoader timed out after 60 seconds"),
        ValueError("[Errno 24] Too many open files"),
    ],
)
def test_what_only_sounds_like_it(error: Exception) -> None:
    assert unknown(error)
