"""Causes with files and ports: a relative path that is not in the package, a port in use."""

from __future__ import annotations

import re
from pathlib import Path

from roost.base.exception_record import ExceptionRecord
from roost.worker.causes.cause import Cause, CauseRule, FailureContext

_NOT_FOUND = re.compile(r"\[Errno 2\] No such file or directory: '([^']+)'\Z")
_PORTS = re.compile(r"\('[^']*', (\d+)|\bport:? (\d+)")


def relative_path(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """A relative path that is valid in the project's folder, while the run's working directory is its
    package."""
    match = _NOT_FOUND.match(record.text) if record.is_a("FileNotFoundError") else None
    if match is None or context.package is None:
        return None
    path, here = Path(match[1]), Path.cwd()
    if path.is_absolute() or here.resolve() != context.package.resolve() or path.exists():
        return None
    there = ""
    if context.project is not None and (context.project / path).exists():
        why = context.left_out.get(path.as_posix(), "")
        there = f"; the project has it, and it was not copied{f' ({why})' if why else ''}"
    fix = f"turn the path into a setting, `{path.stem}: ${{project}}/{path}`, and read it from self.args"
    if context.is_dlnest:  # its settings are not interpolated
        fix = "name it in other_file_paths, which is copied; or write its whole path into the config"
    return Cause(f"there is no {path} in the package, which is the working directory of a run{there}", fix)


def port_in_use(record: ExceptionRecord, context: FailureContext) -> Cause | None:
    """A port in use, of a server of the project or of the ranks' rendezvous."""
    is_known = record.is_a("OSError") and re.match(r"\[Errno (?:98|48)\] ", record.text)
    if not is_known and not (record.is_a("DistNetworkError", "RuntimeError") and "EADDRINUSE" in record.text):
        return None
    match = _PORTS.search(record.text)
    port = next(filter(None, match.groups())) if match else None
    shown = f"port {port}" if port else "the port"
    whose = f" (`ss -ltnp 'sport = :{port}'` shows whose)" if port else ""
    return Cause(f"{shown} is in use by another program{whose}", "choose another port; 0 chooses a free one")


CAUSES: tuple[CauseRule, ...] = (relative_path, port_in_use)
