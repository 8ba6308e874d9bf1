from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roost.train.data.workers import shared_memory as home
from roost.train.data.workers.shared_memory import SharedMemoryFull, Slot
from tests.messages import Messages


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def nameless() -> list[str]:
    """The files of slots that this process has open or mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "roost-batch" in line]


linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def test_it_grows_and_keeps_what_it_holds() -> None:
    slot = Slot()
    slot.memory()[:3] = b"abc"
    view = slot.bytes(3)
    before = slot.num_bytes
    memory = slot.memory(1_000_000)
    assert len(memory) >= 1_000_000 and slot.num_bytes == len(memory) > before
    assert bytes(memory[:3]) == b"abc"
    memory[0] = ord("x")
    assert view.tobytes() == b"xbc", "a view of before sees the same memory"
    assert slot.memory(10) is memory, "and never shrinks"
    slot.close()


def test_another_process_makes_it_grow() -> None:
    slot = Slot()
    child = os.fork()
    if child == 0:
        slot.memory(300_000)[299_999] = 7
        os._exit(0)
    os.waitpid(child, 0)
    assert slot.bytes(300_000)[-1] == 7
    slot.close()


@linux
def test_nothing_is_left_but_what_is_held() -> None:
    gc.collect()  # what other tests have left open
    files, maps = open_files(), len(nameless())
    slot = Slot()
    view = slot.bytes(100_000)[5:10]
    slot.close()
    slot.close()
    assert open_files() <= files + 1, "a mapping has one of its own"
    view[:] = 3
    assert view.tolist() == [3] * 5 and len(nameless()) == maps + 1
    del view
    gc.collect()
    assert len(nameless()) == maps and open_files() == files


def test_each_piece_is_an_object_of_its_own() -> None:
    slot = Slot()
    first, second = slot.bytes(8), slot.bytes(8)
    gone = weakref.ref(first)
    part = first.view(np.int64).reshape(1, 1)
    del first
    assert gone() is not None
    del part
    assert gone() is None and second.size == 8
    slot.close()


SMALL = """
import resource
from roost.train.data.workers.shared_memory import SharedMemoryFull, Slot
slot = Slot()
slot.memory()[:3] = b"abc"
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    slot.memory(1_000_000)
except SharedMemoryFull as error:
    print(error.message)
print(bytes(slot.memory(50_000)[:3]), slot.num_bytes)
"""


@linux
def test_no_room_for_real() -> None:
    done = subprocess.run([sys.executable, "-c", SMALL], capture_output=True, text=True)
    message, held = done.stdout.splitlines()
    assert "1,000,000 bytes" in message and message.endswith(": File too large"), done.stderr
    assert held == "b'abc' 73728"


def test_much_is_asked_for_first(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    """The kernel would grant it, and kill a process when it is written to."""
    slot = Slot()
    monkeypatch.setattr(home, "available_bytes", lambda: 1_000_000)
    slot.memory(2_000_000)  # little
    before = slot.num_bytes
    with pytest.raises(SharedMemoryFull) as refused:
        slot.memory(200_000_000)
    assert all(fact in str(refused.value) for fact in ("200,000,000", "1,000,000", "num_workers: 0"))
    messages.check(refused.value)
    assert slot.num_bytes == before
    monkeypatch.setattr(home, "available_bytes", lambda: None)
    slot.memory(70_000_000)
    slot.close()


@pytest.mark.parametrize("how", ["refused", "unknown"])
@pytest.mark.parametrize("has_room", [True, False])
def test_without_files_of_memory_alone(
    how: str, has_room: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSYS, "no")

    made: list[str] = []
    make = tempfile.mkstemp

    def mkstemp(**options: Any) -> tuple[int, str]:
        fd, name = make(**options)
        made.append(name)
        return fd, name

    if how == "refused":
        monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    else:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    for name in ("tmp", "shm"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(home, "_SHM_FOLDER", tmp_path / "shm")
    monkeypatch.setattr(home, "_MIN_SHM_BYTES", 1 if has_room else 1 << 60)
    slot = Slot()
    slot.memory(100_000)[:1] = b"x"
    assert Path(made[0]).parent == tmp_path / ("shm" if has_room else "tmp") and not Path(made[0]).exists()
    assert slot.bytes(1).tobytes() == b"x"
    slot.close()


def test_without_any_folder_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(home, "_SHM_FOLDER", tmp_path / "none")
    slot = Slot()
    assert slot.num_bytes >= 1 << 16
    slot.close()


@linux
def test_a_slot_that_cannot_be_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    files = open_files()
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SharedMemoryFull, match="No space left on device"):
        Slot()
    assert open_files() == files
