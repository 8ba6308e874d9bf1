"""The parent of a background process, which restarts it whenever it is killed.

No other process would: the lab's daemon and the server are started by commands that have ended since, and
pending tasks would wait until the next command. Started as ``python -I -S watchdog.py COMMAND FD`` by
`background_process`, it ends as its command does. Standard library only, and little of it: it sleeps for
weeks.
"""

# Standard library only
# Not durable: opens /dev/null in place of a pipe without a reader

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import sys
import time

_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_END_SIGNALS = (*_FORWARDED_SIGNALS, signal.SIGHUP)
"""A process that one of these signals has ended is not restarted."""
_FAILED, _MISSING = 1, 127
"""The exit codes of a process that could not start, such as on a full disk, and of one whose program is
missing."""
_QUICK_SECONDS = 1.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 60.0
"""The pause before a process is restarted that ran no longer than `_QUICK_SECONDS` or the last pause; doubled
each time, as the cause of its end may still exist."""
_TICK_SECONDS = 0.1


class Watchdog:
    """Keeps one command running.

    Args:
        command: The command; the number of a descriptor is appended as its last argument.
        fd: The descriptor on which it reports to its starter that it is ready (`background_process.Starter`);
            no pipe: no starter waits.
    """

    def __init__(self, command: list[str], fd: int) -> None:
        self._command, self._fd = command, fd
        self._end_requested, self._has_starter = False, stat.S_ISFIFO(os.fstat(fd).st_mode)
        self._pid = 0

    def run(self) -> int:
        """Runs until the command has ended on its own or by request. Returns its exit code, or minus the
        signal that has ended it."""
        for signum in _FORWARDED_SIGNALS:
            signal.signal(signum, self._end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        pause = 0.0
        while True:
            began = time.monotonic()
            code = self._run_once()
            if self._is_finished(code):
                return code
            self._log_restart(code)
            self._disconnect_starter()
            is_quick = time.monotonic() - began < max(pause, _QUICK_SECONDS)
            pause = min(max(2 * pause, _PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS) if is_quick else 0.0
            self._pause(pause)
            if self._end_requested or os.fstat(1).st_nlink == 0:  # its folder was removed, the log with it
                return 0

    def _run_once(self) -> int:
        try:
            self._pid = os.posix_spawn(
                self._command[0],
                [*self._command, str(self._fd)],
                os.environ,
                setsigdef=[*_END_SIGNALS, signal.SIGPIPE],  # Python has set the last one to be ignored
            )
        except OSError as error:
            _write(2, f"{error}\n")
            return _FAILED if error.errno in (errno.EAGAIN, errno.ENOMEM) else _MISSING
        if self._end_requested:  # requested before there was a process to forward it to
            os.kill(self._pid, signal.SIGTERM)
        ended, status = os.waitpid(-1, 0)
        while ended != self._pid:  # a child from before this process became a watchdog
            ended, status = os.waitpid(-1, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _is_finished(self, code: int) -> bool:
        """Whether the command is not to be restarted."""
        if self._end_requested or -code in _END_SIGNALS or self._starter_waits():
            return True
        return code >= 0 and (self._has_starter or code != _FAILED)

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._end_requested and time.monotonic() < until:
            time.sleep(_TICK_SECONDS)

    def _end(self, signum: int, frame: object) -> None:
        self._end_requested = True
        try:
            if self._pid:
                os.kill(self._pid, signum)
        except ProcessLookupError:  # it has ended just now
            return

    def _starter_waits(self) -> bool:
        """Whether the starter still waits for the command to be ready: it handles a failure itself."""
        if not self._has_starter:
            return False
        poller = select.poll()
        poller.register(self._fd, 0)
        return not poller.poll(0)  # an error event: the starter has closed its end

    def _disconnect_starter(self) -> None:
        """From the second start on, readiness is not reported, and errors go to the log only."""
        self._has_starter = False
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._fd)
        os.close(null)
        os.dup2(1, 2)

    def _log_restart(self, code: int) -> None:
        names = {int(one): one.name for one in signal.Signals}
        how = f"killed by {names.get(-code, f'signal {-code}')}" if code < 0 else "not ready"
        _write(1, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {how}, and restarted\n")


def _write(fd: int, line: str) -> None:
    try:
        os.write(fd, line.encode())
    except OSError:  # the disk of the log may be full
        return


def main() -> int:
    """Runs ``watchdog.py COMMAND… FD``."""
    code = Watchdog(sys.argv[1:-1], int(sys.argv[-1])).run()
    if code < 0:  # so that the parent sees it
        if -code in _END_SIGNALS:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
