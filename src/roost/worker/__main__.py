"""The process that does one task: ``python -P -m roost.worker PACKAGE SESSION``, started by a supervisor."""

from __future__ import annotations

import sys
import traceback

from roost.base.errors import STOPPED_EXIT_CODE, NotFound, RoostError
from roost.worker import output
from roost.worker.report import Report
from roost.worker.stop import StopSignals

_MAX_ERROR = 4000
"""Characters of an error that are reported; what a person's code puts into one may be of any size."""


def main(arguments: list[str]) -> int:
    """Runs the session and reports its end; gives the exit code."""
    output.protect()
    report = Report()
    stop = StopSignals()  # before the long imports: a stop that comes during them is not lost
    try:
        reason = _run(arguments, stop)
    except RoostError as error:
        text = _noted(error)
        print(f"error: {text}", file=sys.stderr, flush=True)
        return report.final("failed", exit_code=error.exit_code, reason="error", error=text)
    except Exception as error:  # noqa: BLE001  - the project's own error: told in full, then reported
        traceback.print_exc()
        sys.stderr.flush()
        text = _noted(error)
        return report.final(
            "failed", exit_code=1, reason="exception", error=f"{type(error).__name__}: {text}"
        )
    if reason == "finished":
        return report.final("succeeded", exit_code=0, reason=reason)
    return report.final("stopped", exit_code=STOPPED_EXIT_CODE, reason=reason)


def _noted(error: Exception) -> str:
    text = "; ".join([str(error), *getattr(error, "__notes__", [])])
    return text if len(text) <= _MAX_ERROR else text[:_MAX_ERROR] + " …"


def _run(arguments: list[str], stop: StopSignals) -> str:
    from roost.package import progress
    from roost.package.package import Package

    path, number = arguments
    package = Package.open(path)
    progress.reset(package.progress)
    from roost.worker.training import train  # imports torch, a second or two

    found = [session for session in package.sessions() if session.number == int(number)]
    if not found:
        raise NotFound(f"there is no session {number}", where=package.path)
    return train(package, found[0], stop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
