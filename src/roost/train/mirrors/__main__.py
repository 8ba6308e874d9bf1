"""The process of one mirror: ``python -P -m roost.train.mirrors FD``.

A process and not a thread of the training: its libraries take seconds to import and hold the interpreter's
lock, draw from Python's random generator when they wait to try again, and may hang where no thread can be
ended. The file of that descriptor holds a `MirrorTask`; a line on stdin tells how the session ended. If stdin ends
without it, the training was killed: the next session brings the rest.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from roost.train.mirrors.mirror_kinds import KINDS, MIRRORS_FOLDER
from roost.train.mirrors.run_identity import RunIdentity
from roost.train.mirrors.sink import SessionEnd
from roost.train.mirrors.sink_retry import RetryingFeed

_POLL_SECONDS = 0.5
"""Between two looks at the files."""
_NICENESS = 10
"""Added to the niceness: training has the right of way."""


class MirrorTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a mirror's process does."""

    package: str
    kind: str
    settings: dict[str, Any]
    identity: RunIdentity


def main() -> NoReturn:
    """Mirrors until stdin tells the end."""
    # These go to all of a group: the training saves then, and tells us when it has.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with open(int(sys.argv[1]), "rb") as file:
        task = msgspec.json.decode(file.read(), type=MirrorTask)
    package, kind = Path(task.package), KINDS[task.kind]
    settings: Any = msgspec.convert(task.settings, kind.settings)
    retrying = RetryingFeed(
        package,
        task.kind,
        lambda: kind.make_sink(package, settings, task.identity),
        package / MIRRORS_FOLDER / f"{task.kind}.json",
    )
    said = b""
    while not said.endswith(b"\n"):
        retrying.send_new()
        if select.select([0], [], [], _POLL_SECONDS)[0]:
            said += _read_stdin()
    retrying.finish(msgspec.convert(said.decode().strip(), SessionEnd))
    _exit_now()


def _read_stdin() -> bytes:
    """Not by `sys.stdin`: what that has read ahead, `select` does not see."""
    if not (piece := os.read(0, 1 << 16)):
        _exit_now()
    return piece


def _exit_now() -> NoReturn:
    """At once: what the libraries have registered for the exit may wait for a server."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
