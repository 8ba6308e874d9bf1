"""Stages the archives of a program: ``python -P -m roost.worker.programs.stage_archives PACKAGE`` writes the
variables of their folders as a line of JSON to stdout, and uses them until its stdin is closed.

It is a process of its own, because that of the program's session starts with the standard library alone.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from roost.base.errors import RoostError
from roost.base.system.worker_protocol import STOP_SIGNALS
from roost.package.program_request import STAGE_OPTION, ProgramRequest
from roost.project.staging import package_archives


class _Stopped(BaseException):
    """A stop signal has come; the number is its argument."""


def main(package: Path) -> int:
    """Stages the archives and waits; returns the exit code."""
    for number in STOP_SIGNALS:
        signal.signal(number, _raise_stopped)
    program, variables = ProgramRequest.read(package), dict[str, str]()
    try:
        staged = package_archives.stage_data(
            list(program.stage),
            package=package,
            project=program.project,
            where=lambda key: None,
            key=STAGE_OPTION,
        )
        staged.record(package)
        staged.export(variables)
    except (RoostError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        print(json.dumps({"error": str(error)}), flush=True)
        return error.exit_code if isinstance(error, RoostError) else 1
    except _Stopped as stopped:  # what was unpacked is removed
        signal.signal(stopped.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), stopped.args[0])
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the program may take its time to save
    print(json.dumps({"variables": variables}), flush=True)
    sys.stdin.buffer.read()
    return 0


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    raise _Stopped(number)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
