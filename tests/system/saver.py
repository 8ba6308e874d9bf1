"""A program without torch that saves checkpoints as a run does, to be hit at every system call.

    python tests/system/saver.py base FOLDER             two checkpoints, and litter of a killed save
    python tests/system/saver.py pad CALL N FOLDER...    in FOLDER k, the k-th CALL is its process's N-th
    python tests/system/saver.py hook ACTION FOLDER...   in FOLDER k, the k-th durable operation meets ACTION
    python tests/system/saver.py check FOLDER...         the state of each, as JSON

strace counts the system calls of each process apart (``inject=CALL:when=N``). So one strace reaches every
call of a save: each child first makes harmless calls of the same kind, each one fewer than the one before.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets  # noqa: F401  - as in a run, where torch has imported all three long before a save
import shutil  # noqa: F401
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from roost.base import durable
from roost.base.errors import CheckpointError
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.retention import RetentionPolicy

POLICY = RetentionPolicy(fast=2, held=0)
NOWHERE = Path("/nowhere at all")


def state(id: int) -> dict[str, Any]:
    """Three states; every value in them follows from the id."""
    model = {"weight": np.full((40, 30), id, np.float32), "bias": np.arange(30) + id}
    optimizer = {"state": {0: {"moment": np.full(5000, id / 3)}}, "lr": 1 / (id + 1)}
    return {"model": model, "optimizer": optimizer, "progress": {"step": id, "best": float("inf")}}


def save(folder: Path) -> Path:
    """One save as `roost.train.checkpointing.checkpoints` makes it: committed, and only then goes what no
    track keeps."""
    before = checkpoint.read_manifests(folder)
    parent = before[-1] if before else None
    id = checkpoint.next_id(folder)
    line = checkpoint.lineage_after(parent, id)
    checkpoint.write(folder, state(id), Manifest(id=id, step=id, epoch=0, batch=0, line=line, scheduled=id))
    found = checkpoint.read_manifests(folder)
    kept = retention.retained_ids(found, POLICY)
    for info in found:
        if info.id not in kept:
            durable.remove_folder(checkpoint.checkpoint_folder(folder, info.id))
    return checkpoint.checkpoint_folder(folder, id)


def start(folder: Path) -> None:
    """A session: it sweeps, saves, and after a failed save goes on to the next one."""
    try:
        durable.sweep(folder)
        save(folder)
    except OSError:
        save(folder)


def base(folder: Path) -> None:
    folder.mkdir()
    save(folder)
    save(folder)
    litter = durable.make_staging_folder(checkpoint.checkpoint_folder(folder, 2))
    (litter / "model.json").write_bytes(b"{")


# --- meeting a fault --------------------------------------------------------------------------------------


def harmless(call: str) -> Callable[[], object]:
    """Makes one system call of this name that changes nothing."""
    null = os.open("/dev/null", os.O_RDWR)
    root = os.open("/", os.O_RDONLY)
    return {
        "openat": lambda: os.close(os.open("/dev/null", os.O_RDONLY)),
        "write": lambda: os.write(null, b""),
        "fsync": lambda: os.fsync(null),
        "rename": lambda: NOWHERE.rename(NOWHERE),
        "mkdir": lambda: Path("/").mkdir(),
        "unlinkat": lambda: os.remove("nowhere at all", dir_fd=root),
        "rmdir": lambda: NOWHERE.rmdir(),
    }[call]


def padded(call: str, at: int) -> Callable[[int, Path], None]:
    make = harmless(call)

    def run(number: int, folder: Path) -> None:
        for _ in range(at - number):
            with contextlib.suppress(OSError):
                make()
        start(folder)

    return run


def hooked(action: str) -> Callable[[int, Path], None]:
    def run(number: int, folder: Path) -> None:
        count = 0

        def fault(operation: str, path: str) -> None:
            nonlocal count
            count += 1
            if count == number and action == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            if count == number:
                raise OSError(getattr(errno, action), f"{operation} {path}")

        durable.fault = fault
        start(folder)
        if count < number:
            os._exit(3)  # there are no more operations

    return run


def each(run: Callable[[int, Path], None], folders: list[str]) -> list[int]:
    """Runs it for each folder in a child of its own; their exit codes."""
    codes = []
    for number, folder in enumerate(folders, 1):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(number, Path(folder))
                code = 0
            finally:
                os._exit(code)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes


# --- the state afterwards ---------------------------------------------------------------------------------


def check(folder: Path) -> dict[str, Any]:
    """After a sweep, as the next session makes it: litter, the good ones, their digests, a next save."""
    before = checkpoint.ids(folder)
    durable.sweep(folder)
    litter = [path.name for path in folder.iterdir() if checkpoint._FOLDER.fullmatch(path.name) is None]
    found: dict[str, Any] = {"litter": litter, "ids": before, "good": [], "digests": {}}
    for id in before:
        path = checkpoint.checkpoint_folder(folder, id)
        with contextlib.suppress(CheckpointError):
            _, states = checkpoint.read(path, to="numpy")
            if repr(states) == repr(state(id)) and (states["model"]["weight"] == id).all():
                found["good"].append(id)
        content = b"".join(file.name.encode() + file.read_bytes() for file in sorted(path.iterdir()))
        found["digests"][str(id)] = hashlib.sha256(content).hexdigest()
    found["next"] = checkpoint.verify(save(folder)).id
    return found


def main(command: str, *arguments: str) -> object:
    match command, arguments:
        case "base", (folder,):
            return base(Path(folder))
        case "pad", (call, at, *folders):
            return each(padded(call, int(at)), folders)
        case "hook", (action, *folders):
            return each(hooked(action), folders)
        case "check", folders:
            return [check(Path(folder)) for folder in folders]
    raise SystemExit(__doc__)


if __name__ == "__main__":
    result = main(*sys.argv[1:])
    assert "torch" not in sys.modules
    print(json.dumps(result))
