"""The process of one mirror: ``python -P -m roost.train.mirrors FD``.

A mirror is a process and not a thread of the training, because its libraries take seconds to import and hold
the interpreter lock meanwhile, draw from Python's random generator when they wait to retry, and may hang in a
way that ends no thread. The file of the descriptor FD has a `MirrorTask`; a line on stdin gives the end of
the session. If stdin ends without that line, the training was killed, and the next session or `roost mirror
--flush` sends the rest.
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
from roost.train.mirrors.mirror_process import MirrorTask
from roost.train.mirrors.sink import SessionEnd
from roost.train.mirrors.sink_retry import RetryingFeed

_POLL_SECONDS = 0.5
"""Seconds between two reads of the files."""
_NICENESS = 10
"""The increment of the niceness, so that training has priority."""


def main() -> NoReturn:
    """Mirrors the run until stdin gives the end of the session."""
    # These signals go to the whole process group; the training saves then and sends the end afterwards.
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
    if task.is_flush:
        report = retrying.flush(msgspec.convert(sys.stdin.readline().strip(), SessionEnd))
        print(msgspec.json.encode(report).decode(), flush=True)
        _exit_now()
    line = b""
    while not line.endswith(b"\n"):
        retrying.send_new()
        if select.select([0], [], [], _POLL_SECONDS)[0]:
            line += _read_stdin()
    retrying.finish(msgspec.convert(line.decode().strip(), SessionEnd))
    _exit_now()


def _read_stdin() -> bytes:
    """Reads from stdin without `sys.stdin`, because `select` does not see what that has buffered."""
    if not (piece := os.read(0, 1 << 16)):
        _exit_now()
    return piece


def _exit_now() -> NoReturn:
    """Exits without the exit handlers of the libraries, which may wait for a server."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
