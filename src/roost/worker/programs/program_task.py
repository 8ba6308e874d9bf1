"""The session of a program: ``python -P -m roost.worker.programs.program_task PACKAGE SESSION`` starts the
program of a package, passes stop signals on to it, and ends as it ends.

The program comes first: it runs before its observer, and is not disturbed if that fails.
"""

# Standard library only
# Not durable: makes an empty folder, and renames a file of the program

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from roost.base import durable
from roost.base.system import prctl
from roost.base.system.worker_protocol import (
    CALLS_VARIABLE,
    CHECKPOINTS_VARIABLE,
    MISTAKE,
    NOT_STARTED,
    PACKAGE_VARIABLE,
    REPORT_VARIABLE,
    RESUME_VARIABLE,
    STOP_SIGNALS,
)
from roost.package.program_request import ProgramRequest
from roost.worker.programs import own_checkpoint
from roost.worker.programs.own_lines import print_own

_QUIET_SECONDS = 0.5
"""A program that ends before this, and prints no number, is not observed at all."""
_SHORT_OUTPUT = 1 << 16
_OBSERVER_SECONDS = 60.0
"""How long the observer may take to read the rest. On a busy machine its start alone took ten seconds."""
_LEAVING_SECONDS = 0.5
"""How long the processes of a program may take to end after it, before that is worth a line."""
_NOT_FOUND_EXIT_CODE = 127
_OWN_FILES = ("request.json", "manifest.json", "provenance.json", "args.json")
"""Without these the package cannot be read."""
_HOOKS = Path(__file__).parent / "import_hooks"


def main(arguments: list[str]) -> int:
    """Runs the program; returns its exit code, or ends by the signal that has ended it."""
    package, session = Path(arguments[0]), int(arguments[1])
    program = ProgramRequest.read(package)
    is_first = not _has_run(package, session)
    checkpoint = None if is_first else own_checkpoint.newest(package, program, copied=_copied(package))
    command = program.command_line(checkpoint, is_first=is_first)
    environment = variables_of_program(package, session, checkpoint)
    own_files = {name: (package / name).read_bytes() for name in _OWN_FILES if (package / name).exists()}
    output_start = os.fstat(1).st_size
    calls_path(package, session).parent.mkdir(exist_ok=True)
    _say_how_it_begins(program, checkpoint, command, is_first=is_first)
    signals, wakeup = SignalForwarding(), _wake_on_signals()
    prctl.system_call()  # loads it here, and not in the child
    if program.stage:
        staging = _stage(package, signals)
        if isinstance(staging, int):
            return staging
        environment |= staging.variables
    began = time.time()
    try:
        process = subprocess.Popen(
            command,
            cwd=program.folder(package),
            env=environment,
            close_fds=False,
            preexec_fn=_end_with_parent,
        )
    except OSError as error:
        return _report_not_started(command, program.folder(package), error)
    signals.forward_to(process)
    observer, start_at = None, time.monotonic() + _QUIET_SECONDS
    while process.poll() is None:
        seconds = max(0.0, start_at - time.monotonic()) if start_at < math.inf else None
        if select.select([wakeup], [], [], seconds)[0]:
            os.read(wakeup, 4096)
        else:
            observer = _start_observer(package, session, environment, output_start, began)
            start_at = math.inf
    signals.stop()
    _restore(package, own_files)
    if observer is None and _has_something(package, session, output_start):
        observer = _start_observer(package, session, environment, output_start, began)
    if observer is not None:
        _end_observer(observer)
    if process.returncode == 0:
        _say_what_it_leaves(calls_path(package, session))
    return _end_like(process.returncode)


class _Staging(NamedTuple):
    """The process that has staged the archives of a program, and holds them until this one ends."""

    process: subprocess.Popen[bytes]
    variables: dict[str, str]


def _stage(package: Path, signals: SignalForwarding) -> _Staging | int:
    """Stages the archives of a program; returns the exit code of this process if that has failed."""
    argv = [sys.executable, "-P", "-m", "roost.worker.programs.stage_archives", str(package)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, preexec_fn=_end_with_parent)
    signals.forward_to(process)
    assert process.stdout is not None
    line = process.stdout.readline()
    found = json.loads(line) if line else {}
    if "variables" in found:
        return _Staging(process, found["variables"])
    code = process.wait()
    if "error" not in found:
        return _end_like(code)
    _report({"state": "failed", "exit_code": code, "reason": MISTAKE, "error": found["error"]})
    return code


def variables_of_program(package: Path, session: int, checkpoint: Path | None) -> dict[str, str]:
    """Returns the variables of the program: those of this process with what the program can use.

    Args:
        package: The package.
        session: The number of the session.
        checkpoint: The program's checkpoint from which it is to resume, if there is one.
    """
    environment = {name: value for name, value in os.environ.items() if name != REPORT_VARIABLE}
    environment |= {
        "PYTHONUNBUFFERED": environment.get("PYTHONUNBUFFERED", "1"),  # lines that a kill would lose
        "PYTHONHASHSEED": environment.get("PYTHONHASHSEED", "0"),
        PACKAGE_VARIABLE: str(package),
        CHECKPOINTS_VARIABLE: str(own_checkpoint.checkpoint_folder(package)),
        CALLS_VARIABLE: str(calls_path(package, session)),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(_HOOKS), os.environ.get("PYTHONPATH")])),
    }
    environment.pop(RESUME_VARIABLE, None)
    if checkpoint is not None:
        environment[RESUME_VARIABLE] = str(checkpoint)
    if not _has_wandb_account(environment):
        environment["WANDB_MODE"] = "offline"  # else W&B would ask at a terminal that is not there
    return environment


def _has_wandb_account(environment: dict[str, str]) -> bool:
    if any(name in environment for name in ("WANDB_MODE", "WANDB_API_KEY")):
        return True
    try:
        return "wandb" in (Path.home() / ".netrc").read_text()
    except (OSError, ValueError, RuntimeError):
        return False


def calls_path(package: Path, session: int) -> Path:
    """Returns the file to which `import_hooks` reports calls; the observer removes it."""
    return package / "system" / f"{session}.calls.jsonl"


def _end_with_parent() -> None:
    """Runs in the child. If guard and supervisor are killed, this process ends, and the program with it: it
    would write on, while the package counts as crashed."""
    prctl.set_parent_death_signal(signal.SIGKILL)


def _restore(package: Path, files: dict[str, bytes]) -> None:
    """Puts back the files of the package that the program has written over, as it runs in the same folder."""
    for name, content in files.items():
        path, kept = package / name, package / f"program.{name}"
        try:
            if path.is_file() and (path.read_bytes() == content or _are_settings(path)):
                continue
            text = f"has removed {name} of its package, which is put back"
            if os.path.lexists(path):
                path.replace(kept)
                text = f"has written over {name} of its package: its own is now {kept.name}"
            durable.write(path, content)
        except OSError as error:
            text = f"has written over {name} of its package, which cannot be put back: {error}"
        if package.is_dir():
            print_own(f"the program {text}")


def _are_settings(path: Path) -> bool:
    """Whether a program has written its settings where those of a package are: they stay, and are shown."""
    try:
        return path.name == "args.json" and isinstance(json.loads(path.read_bytes()), dict)
    except (ValueError, RecursionError):
        return False


def _copied(package: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((package / "manifest.json").read_bytes())["files"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _has_run(package: Path, session: int) -> bool:
    """Whether an earlier session has begun."""
    return any((package / "sessions" / f"{number}.json").exists() for number in range(1, session))


def _say_how_it_begins(
    program: ProgramRequest, checkpoint: Path | None, command: list[str], *, is_first: bool
) -> None:
    if is_first or not (checkpoint is not None or program.resume_with):
        return
    if checkpoint is not None and command != program.command:
        line = f"resumes from its checkpoint {checkpoint}"
    elif command != program.command:
        line = f"resumes with {' '.join(program.resume_with)}"
    elif program.resume_with:
        line = "has no checkpoint yet: it begins again"
    else:
        line = f"finds its checkpoint in ROOST_RESUME_FROM: {checkpoint}"
    print_own(f"the program {line}")


def _wake_on_signals() -> int:
    """Returns a descriptor that becomes readable at each signal that this process handles."""
    wakeup, write_fd = os.pipe()
    for fd in (wakeup, write_fd):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return wakeup


class SignalForwarding:
    """Passes stop signals on to a process. One that is started later gets those before it, too: the process
    before may have ignored them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._received: list[int] = []
        for number in STOP_SIGNALS:
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        if self._process is not None:
            self._process.send_signal(number)

    def forward_to(self, process: subprocess.Popen[bytes]) -> None:
        """Forwards to this process from now on."""
        self._process = process
        for number in tuple(self._received):
            process.send_signal(number)

    def stop(self) -> None:
        """Ignores stop signals from now on."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def _start_observer(
    package: Path, session: int, environment: dict[str, str], output_start: int, began: float
) -> subprocess.Popen[bytes] | None:
    own = {name: value for name, value in environment.items() if name not in (CALLS_VARIABLE, "PYTHONPATH")}
    if before := os.environ.get("PYTHONPATH"):
        own["PYTHONPATH"] = before
    argv = [sys.executable, "-P", "-m", "roost.worker.programs.observer"]
    argv += [str(package), str(session), str(output_start), str(began)]
    try:
        return subprocess.Popen(argv, env=own, stdin=subprocess.PIPE, start_new_session=True)
    except OSError as error:
        print_own(f"the program is not observed, no metrics are recorded: {error}")
        return None


def _has_something(package: Path, session: int, output_start: int) -> bool:
    """Whether a program that has ended already may have left a metric: a number in its output, or a call."""
    if calls_path(package, session).exists():
        return True
    try:
        with (package / "_output.txt").open("rb") as file:
            file.seek(output_start)
            begin = file.read(_SHORT_OUTPUT)
            return len(begin) == _SHORT_OUTPUT or any(48 <= byte <= 57 for byte in begin)
    except OSError:
        return False


def _end_observer(observer: subprocess.Popen[bytes]) -> None:
    assert observer.stdin is not None
    observer.stdin.close()
    try:
        code = observer.wait(_OBSERVER_SECONDS)
    except subprocess.TimeoutExpired:
        observer.kill()
        observer.wait()
        print_own("the observer did not end in time: the last metrics may be missing")
        return
    if code:
        print_own("the observer was killed: metrics may be missing")


def _say_what_it_leaves(calls: Path) -> None:
    """Says which processes a program has left: they end with the session."""
    if not _running(calls):
        return
    time.sleep(_LEAVING_SECONDS)
    if left := _running(calls):
        print_own(f"the program has left {', '.join(left)}: what it starts ends with it")


def _running(calls: Path) -> list[str]:
    """Returns the processes that have the environment of the program; empty where there is no ``/proc``."""
    mark, found = f"{CALLS_VARIABLE}={calls}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is of another user
            if mark in (place / "environ").read_bytes().split(b"\0"):
                found.append(f"process {place.name}")
    return found


def _report_not_started(command: list[str], folder: Path, error: OSError) -> int:
    """Reports that the program could not be started, as the supervisor does for a worker."""
    what = folder if error.filename == str(folder) else command[0]
    text = f"the command could not be started: {what}: {error.strerror}"
    line = {"state": "failed", "exit_code": _NOT_FOUND_EXIT_CODE, "reason": NOT_STARTED, "error": text}
    _report(line)
    return _NOT_FOUND_EXIT_CODE


def _report(line: dict[str, Any]) -> None:
    """Writes the final report of this session."""
    if (fd := os.environ.get(REPORT_VARIABLE)) is not None and fd.isdecimal():
        os.write(int(fd), json.dumps(line).encode() + b"\n")


def _end_like(code: int) -> int:
    """Returns the exit code of the program; ends by the signal that has ended it."""
    if code < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its core already
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
