"""Removes, restores, deletes, prunes or labels packages, each in a forked child, so that the test cuts the
operation at one system call; see `operation_cuts`."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from roost.base.errors import RoostError
from roost.operations.keeping import prune, trash
from roost.operations.keeping.prune import PruneRequest
from roost.package import labels
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.seals import session_seal
from tests.operations.packages import package
from tests.system.operation_cuts import harmless

PRUNINGS = {
    "prune --keep": PruneRequest(keep=("best", "last")),
    "prune --weights-only": PruneRequest(weights_only=True),
    "prune --records-only": PruneRequest(records_only=True),
}


def removed(root: Path) -> None:
    list(trash.remove([root / "a"]))


def restored(root: Path) -> None:
    list(trash.restore([str(trash.entries([root])[0].path)]))


def deleted(root: Path) -> None:
    errors = [one.error for one in trash.delete([root], trash.entries([root])) if one.error is not None]
    if errors:
        raise OSError(errors[0])


def labelled(root: Path) -> None:
    labels.add_tags(root / "a", ["baseline"])


def pruned(operation: str) -> Callable[[Path], None]:
    request = PRUNINGS[operation]

    def run(root: Path) -> None:
        list(prune.prune(prune.plan([str(root / "a")], request), request))

    return run


OPERATIONS: dict[str, Callable[[Path], None]] = {
    "rm": removed, "restore": restored, "gc": deleted, "tag": labelled,
    **{name: pruned(name) for name in PRUNINGS},
}  # fmt: skip
"""By their name: each is called with a folder that has the package ``a``, or had it."""


def prepare(operation: str, names: Sequence[str]) -> None:
    """Makes the folders, each with its package."""
    for name in names:
        made = package(Path.cwd() / name, "a", checkpoints=False)
        for id, loss in enumerate((1.5, 0.5, 0.75)):
            states = {"model": {"weight": [1.0] * 9}, "trainer": {"step": id}, "rank-0": {"seed": [1] * 9}}
            line = [(0, id)]
            metrics = {"valid/loss": loss}
            info = Manifest(
                id=id, step=10 * id + 10, epoch=id, batch=0, line=line, session=1, metrics=metrics
            )
            checkpoint.write(made.checkpoints, states, info)
        made.write_derived({"fast": [0, 1, 2], "slow": [], "held": [], "best": [1]}, [])
        session_seal.write(session_seal.seal_path(made.path, 1))
        if operation in ("restore", "gc"):
            removed(made.path.parent)


def run_cut(operation: str, name: str, call: str, padding: int, reports: socket.socket) -> None:
    make = harmless(call)
    for _ in range(padding):
        with contextlib.suppress(OSError):
            make()
    try:
        OPERATIONS[operation](Path.cwd() / name)
        found = {"done": True}
    except (RoostError, OSError) as error:
        found = {"error": str(error)}
    reports.send(json.dumps(found).encode())


def main(operation: str, call: str, at: int, names: Sequence[str]) -> None:
    found = []
    for number, name in enumerate(names, 1):
        listens, reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        child = os.fork()
        if child == 0:
            try:
                run_cut(operation, name, call, at - number, reports)
            finally:
                os._exit(0)
        reports.close()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        listens.setblocking(False)
        answer = {}
        with contextlib.suppress(BlockingIOError, ConnectionError):
            answer = json.loads(listens.recv(1 << 16) or b"{}")
        listens.close()
        found.append({"name": name, "pid": child, "status": status, **answer})
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    operation, call, at, *names = sys.argv[1:]
    prepare(operation, ["warm-up", *names])
    OPERATIONS[operation](Path.cwd() / "warm-up")  # its imports are made before a child is forked
    main(operation, call, int(at), names)
