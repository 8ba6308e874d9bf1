"""The parent of a process in the background: it starts it anew whenever somebody kills it.

Nobody else would: the lab's daemon and the server are started by commands that have ended since, and what
waits in the queue would wait until the next command. Started as ``python -I -S keeper.py COMMAND FD`` by
`lab.background`, it ends as its command does. Standard library only, and little of it: it sleeps for weeks.
"""

# Standard library only
# Not durable: opens /dev/null in the place of a line that nobody reads any more

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time

_FORWARDED_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_END_SIGNALS = (*_FORWARDED_SIGNALS, signal.SIGHUP)
"""Who is ended by one of these is to end."""
_FAILED, _MISSING = 1, 127
"""The exit codes of who could not come up, such as on a full disk, and of whose program is gone."""
_QUICK_SECONDS = 1.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 60.0
"""Before what lived no longer than that, or no longer than the pause, is started anew, twice as long each
time: what has ended it may do that again at once."""
_TICK_SECONDS = 0.1


class Watchdog:
    """Keeps one command running.

    Args:
        command: Gets the number of a descriptor as its last argument.
        fd: By which it tells whoever starts it that it is ready (`background.Starter`).
    """

    def __init__(self, command: list[str], fd: int) -> None:
        self._command, self._fd = command, fd
        self._is_told_to_end, self._has_starter = False, True
        self._pid = 0

    def run(self) -> int:
        """Until the command has ended by itself, or because it was told to; gives its exit code, or minus the
        signal that has ended it."""
        for signum in _FORWARDED_SIGNALS:
            signal.signal(signum, self._end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        pause = 0.0
        while True:
            began = time.monotonic()
            code = self._once()
            if self._is_over(code):
                return code
            self._note(code)
            self._leave_starter()
            is_quick = time.monotonic() - began < max(pause, _QUICK_SECONDS)
            pause = min(max(2 * pause, _PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS) if is_quick else 0.0
            self._rest(pause)
            if self._is_told_to_end or os.fstat(1).st_nlink == 0:  # its folder was removed, the log with it
                return 0

    def _once(self) -> int:
        try:
            self._pid = os.posix_spawn(
                self._command[0],
                [*self._command, str(self._fd)],
                os.environ,
                setsigdef=[*_END_SIGNALS, signal.SIGPIPE],  # Python has told us to ignore the last one
            )
        except OSError as error:
            _write(2, f"{error}\n")
            return _FAILED if error.errno in (errno.EAGAIN, errno.ENOMEM) else _MISSING
        if self._is_told_to_end:  # before there was anybody to pass it on to
            os.kill(self._pid, signal.SIGTERM)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _is_over(self, code: int) -> bool:
        """Whether nobody is to be started any more."""
        if self._is_told_to_end or -code in _END_SIGNALS or self._is_awaited():
            return True
        return code >= 0 and (self._has_starter or code != _FAILED)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_told_to_end and time.monotonic() < until:
            time.sleep(_TICK_SECONDS)

    def _end(self, signum: int, frame: object) -> None:
        self._is_told_to_end = True
        try:
            if self._pid:
                os.kill(self._pid, signum)
        except ProcessLookupError:  # its end was heard of just now
            return

    def _is_awaited(self) -> bool:
        """Whether somebody still waits to hear that it is ready: he will know what to do."""
        if not self._has_starter:
            return False
        poller = select.poll()
        poller.register(self._fd, 0)
        return not poller.poll(0)  # which tells when he has closed his end

    def _leave_starter(self) -> None:
        """From the second one on nobody is told that it is ready, and only the log of its errors."""
        self._has_starter = False
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._fd)
        os.close(null)
        os.dup2(1, 2)

    def _note(self, code: int) -> None:
        names = {int(one): one.name for one in signal.Signals}
        how = f"killed by {names.get(-code, f'signal {-code}')}" if code < 0 else "not ready"
        _write(1, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {how}, and started anew\n")


def _write(fd: int, line: str) -> None:
    try:
        os.write(fd, line.encode())
    except OSError:  # the log may be what there is no room for
        return


def main() -> int:
    """``keeper.py COMMAND… FD``."""
    code = Watchdog(sys.argv[1:-1], int(sys.argv[-1])).run()
    if code < 0:  # so that whoever waits sees it
        if -code in _END_SIGNALS:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
