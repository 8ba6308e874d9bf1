"""The first process of a session: it forks the supervisor, waits for it, and cleans up if the supervisor is
killed.

Started by `roost.supervisor.guard_start` as ``python -I -S guard.py NAME`` in a process session of its own,
or forked from a template process (`roost.supervisor.forkserver`), with one `SessionSpec` as JSON on stdin. It
holds the lock and the leases too, so that they are free only when no process of the run lives. As a child
subreaper it inherits all processes that the supervisor had adopted. It also starts automatic restarts and
sends the end notice; it does so little that it has no reason to fail. If the guard itself is killed, the
supervisor continues and records it: ending the run would lose more.
"""

# Standard library only

from __future__ import annotations

import contextlib
import os
import sys

if __name__ == "__main__":  # with -I -S neither site-packages nor this folder is on the path
    sys.path.insert(0, __file__.rsplit(os.sep, 3)[0])

import resource
import signal
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from roost.base.system import prctl, process_title
from roost.supervisor import signals
from roost.supervisor.exit_status import SessionOutcome
from roost.supervisor.processes import cgroup, session_processes
from roost.supervisor.processes.upload_process import UploadProcess
from roost.supervisor.session_spec import SessionSpec
from roost.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from roost.supervisor.forkserver.forked_worker import WarmWorker
    from roost.supervisor.session_record import SessionRecordFile

GUARD_COMMAND = (sys.executable, "-I", "-S", os.path.realpath(__file__))
_AWAITED_SIGNALS = (signal.SIGCHLD, *signals.CONTROL_SIGNALS)


def main(warm: WarmWorker | None = None) -> int:
    """Reads the spec, runs the session, and returns its exit code.

    Args:
        warm: The worker that this process can become.
    """
    try:
        if os.getsid(0) != os.getpid():
            os.setsid()
        spec = SessionSpec.from_json(sys.stdin.buffer.read())
        process_title.set_title("guard", spec.package)
        if spec.core_ids:
            with contextlib.suppress(OSError):  # a core is no longer there: the session has all of them
                os.sched_setaffinity(0, spec.core_ids)
        return _run_with_notice(spec, warm) if spec.is_noticed else run_session(spec, warm)
    except (OSError, ValueError, TypeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _run_with_notice(spec: SessionSpec, warm: WarmWorker | None) -> int:
    from roost.supervisor.notices import notice_folders

    entry = None
    if os.access(notice_folders.receivers_file(spec.env), os.F_OK):
        from roost.supervisor.notices import run_notice_list

        entry = run_notice_list.add_entry(spec)
    code = run_session(spec, warm)

    from roost.supervisor.notices import run_notice_process  # here, where it does not delay the start

    run_notice_process.send_end_notice(spec, entry)
    return code


def run_session(spec: SessionSpec, warm: WarmWorker | None = None) -> int:
    """Runs one session under a supervisor, and the sessions that restart it automatically. Returns the exit
    code of the last one, or 1 if its supervisor was killed.

    Args:
        spec: The first session.
        warm: The worker that this process can become.
    """
    signals.ignore_others()
    signals.block(_AWAITED_SIGNALS)
    # Some systems drop a blocked signal whose default action is to do nothing.
    signals.install_handler([signal.SIGCHLD], lambda *_: None)
    for fd in (spec.lock_fd, spec.ready_fd, *spec.lease_fds):
        if fd is not None:
            os.set_inheritable(fd, False)
    prctl.set_child_subreaper(True)
    uploads = UploadProcess(spec)
    code = _run_one_session(spec, warm, uploads)
    if spec.restart:
        from roost.supervisor import session_restart

        while (following := session_restart.planned_session(spec)) is not None:
            _write_seal(spec)
            ended = session_restart.wait_before_restart(following, session_restart.pause_seconds(spec))
            if ended is not None:
                uploads.wait_for_upload()
                uploads.end()
                _release(following)
                return ended
            spec = session_restart.with_remaining_time(following)
            code = _run_one_session(spec, None, uploads)  # warm modules may be outdated by now
    if spec.owner and _is_taken_over(spec):
        uploads.kill()
        return code
    uploads.wait_for_upload()  # before the seal: it prints into the output
    _write_seal(spec)
    uploads.end()
    _release(spec)
    return code


def _is_taken_over(spec: SessionSpec) -> bool:
    """Whether another machine has taken the package over, so that nothing may be written to it any more."""
    from pathlib import Path

    from roost.package.owner import owner_file

    return owner_file.is_owned_by_other(Path(spec.owner), spec.session, spec.token)


def _release(spec: SessionSpec) -> None:
    """Removes the owner file at the end of the last process."""
    if spec.owner:
        from pathlib import Path

        from roost.package.owner import owner_file

        owner_file.release(Path(spec.owner), spec.session, spec.token)


def _run_one_session(spec: SessionSpec, warm: WarmWorker | None, uploads: UploadProcess) -> int:
    """Runs one session, from the start of the supervisor to the end of all processes it has left; returns the
    exit code."""
    began = time.monotonic()
    group = cgroup.create(spec.token) if spec.cgroup else None
    if group is not None and spec.limits.host_memory_mb is not None:
        cgroup.limit_memory(group, spec.limits.host_memory_mb << 20)
    guard_pid, supervisor_pid = os.getpid(), os.fork()
    if supervisor_pid == 0:
        _run_supervisor(Supervisor(spec, group=group, guard_pid=guard_pid, warm=warm))
    if spec.ready_fd is not None:
        os.close(spec.ready_fd)
    uploads.start()
    status = _wait_for(supervisor_pid, uploads)
    if status >= 0:
        return status
    seconds = time.monotonic() - began
    return _end_orphaned_session(spec, group, status, seconds=seconds, spared=uploads.pids)


def _write_seal(spec: SessionSpec) -> None:
    """Seals what the session wrote. Nothing waits for this but the next session of the package; it is written
    after the record of the session's end, which it covers."""
    if not spec.seal:
        return
    from pathlib import Path

    from roost.package.seals import session_seal
    from roost.supervisor.session_record import SessionRecordFile

    try:
        session_seal.write(Path(spec.seal))
    except OSError as error:  # a full disk; without it `roost verify` knows less, and says so
        record = SessionRecordFile.load(spec.session_file)
        if record is not None:
            why = f"no digests of this session could be written for `roost verify`: {error}"
            _report_in_output(spec, record, [why], is_final=False)


def _run_supervisor(supervisor: Supervisor) -> NoReturn:
    """Runs in the forked child. Exceptions of the start go to the reader of stderr; a later one is a defect
    of roost."""
    process_title.set_title("supervisor", supervisor.spec.package)
    try:
        supervisor.start()
    except Exception as error:  # noqa: BLE001  - reported, then the process ends
        why = f"{type(error).__name__}: {error}"
        if supervisor.spec.restarted:
            _record_failed_restart(supervisor.spec, why)
        else:
            print(why, file=sys.stderr, flush=True)
        os._exit(1)
    try:
        os._exit(supervisor.watch())
    except BaseException:  # noqa: BLE001  - reported, then the process ends
        _abort()


def _record_failed_restart(spec: SessionSpec, why: str) -> None:
    """Records and prints why a restarted session could not be started: its stderr has no reader any more."""
    from roost.supervisor.session_record import SessionRecordFile, initial_fields

    fields = initial_fields(spec.session, worker_pid=None, guard_pid=os.getppid(), group=None)
    record = SessionRecordFile(spec.session_file, fields)
    record.note_worker_end(None, seconds=0.0)
    end = SessionOutcome("failed", 1, "start", f"session {spec.session} could not be started: {why}")
    _report_in_output(spec, record, [end.error or "", *record.write_end(end)], is_final=False)


def _abort() -> NoReturn:
    """Ends by SIGABRT, so that the guard sees that the end was not recorded. Imports nothing: there may be no
    descriptor or memory left for that."""
    try:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    finally:
        os.abort()


def _wait_for(supervisor_pid: int, uploads: UploadProcess) -> int:
    """Passes control signals on until the supervisor has ended; returns its exit code, or minus its
    signal."""
    while True:
        signum = signals.wait_for_signal(_AWAITED_SIGNALS)
        if signum != signal.SIGCHLD:
            os.kill(supervisor_pid, signum)
            continue
        pid, status = os.waitpid(supervisor_pid, os.WNOHANG)  # SIGCHLD comes when a child is paused, too
        if pid == supervisor_pid:
            return os.waitstatus_to_exitcode(status)
        uploads.restart_if_killed()


def _end_orphaned_session(
    spec: SessionSpec, group: str | None, status: int, *, seconds: float, spared: Sequence[int]
) -> int:
    """Ends a session whose supervisor was killed, and records that. The record is written as early as
    possible: the cause of that kill may end the guard too."""
    from roost.supervisor import rendezvous, session_restart
    from roost.supervisor.exit_status import killed_supervisor_outcome
    from roost.supervisor.session_record import SessionRecordFile

    survivors = session_processes.kill_all(group, spared=spared)
    session_processes.touch_leases(spec)
    rendezvous.remove_folder(spec.token)
    found = SessionRecordFile.load(spec.session_file)
    if found is None:  # it was killed before it had recorded the session, whose start has failed
        return 1
    if found.fields.state != "running":  # it was killed after it had recorded the end
        return 1 if (code := found.fields.exit_code) is None else int(code)
    end = killed_supervisor_outcome(status)
    found.note_worker_end(None, seconds=seconds)
    found.note_progress()
    restarts = session_restart.plan_restart(spec, found, end, guard_pid=os.getpid(), is_error_printed=True)
    lines = [end.error or "", *found.write_end(end), *([restarts] if restarts is not None else [])]
    if survivors:
        lines.append(f"these processes could not be ended and may still write: {survivors}")
    _report_in_output(spec, found, lines, is_final=not survivors)
    return 1


def _report_in_output(
    spec: SessionSpec, record: SessionRecordFile, lines: list[str], *, is_final: bool
) -> None:
    """Prints lines that the record has already, and shortens the output if no process writes into it any
    more."""
    from roost.supervisor.output.output_cap import shorten_session_output
    from roost.supervisor.output.output_file import open_output, write_line

    try:
        output_fd = open_output(spec.output)
        if is_final and shorten_session_output(spec, record, output_fd):
            record.write_if_possible()
            output_fd = open_output(spec.output)
    except OSError:  # a FIFO in its place, no descriptor left
        return
    for line in lines:
        write_line(output_fd, line)


if __name__ == "__main__":
    exit_code = main()
    sys.stderr.flush()
    os._exit(exit_code)  # finalising the interpreter takes longer than all that it has done
