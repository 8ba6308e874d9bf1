"""Restores the terminal after the full-screen client, however it ends.

The client runs in a child process. Its parent imports nothing more, waits, and restores the terminal if the
child could not: after ``kill -9``, a crash of the interpreter, or a signal that the child did not handle.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import termios
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from roost.base.errors import RoostError

_RESET = (
    "\x1b[<u"  # the keyboard protocol of kitty
    "\x1b[?2026l\x1b[?2048l\x1b[?2004l\x1b[?1004l"  # synchronized output, reports of size, paste and focus
    "\x1b[?1016l\x1b[?1006l\x1b[?1015l\x1b[?1003l\x1b[?1000l"  # the mouse
    "\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"  # line wrap, colours, the first screen, the cursor
)
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_KILL_SECONDS = 3
"""A child that was asked to end is killed after so long."""
_PR_SET_PDEATHSIG = 1
_MAX_MESSAGE_BYTES = 32 * 1024
_FAILED = 70
"""The exit code of a child that ended by an exception, whose traceback it has passed on."""


def run_guarded(body: Callable[[], int]) -> int:
    """Runs the client in a child process and returns its exit code; of a child that died of a signal, 128 and
    the signal, as shells do.

    Args:
        body: The client. What it raises is printed once the terminal is restored.

    Raises:
        RoostError: As ``body``.
    """
    fd = sys.stdin.fileno()
    attributes = termios.tcgetattr(fd)
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    parent = os.getpid()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)  # until they are handled
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        os._exit(_run_child(body, writing, parent))
    os.close(writing)
    status, message = None, b""
    try:
        status = _wait(child, blocked)
        with os.fdopen(reading, "rb") as pipe:
            message = pipe.read()
    finally:
        is_orderly = status is not None and os.WIFEXITED(status) and not message
        _restore(fd, attributes, resets=not is_orderly)
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    code = os.waitstatus_to_exitcode(status)
    text = message.decode(errors="replace")
    if code == _FAILED and text:
        sys.stderr.write(text)
        return 1
    if text:
        _raise(text, code)
    return code


def _run_child(body: Callable[[], int], writing: int, parent: int) -> int:
    """Runs the client in the child. An error is sent to the parent, which prints it below the restored
    screen."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 128 + signal.SIGTERM
    try:
        code = body()
    except RoostError as error:
        _send(writing, str(error))
        code = error.exit_code
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  - the last place where it can be passed on
        _send(writing, traceback.format_exc())
        code = _FAILED
    return code


def _send(writing: int, text: str) -> None:
    """Sends the end of a text: the parent reads only after the end of the child, and a pipe holds 64 KB."""
    os.write(writing, text.encode(errors="backslashreplace")[-_MAX_MESSAGE_BYTES:])


def _raise(message: str, code: int) -> None:
    error = RoostError(message)
    error.exit_code = code
    raise error


def _wait(child: int, blocked: set[signal.Signals] | set[int]) -> int:
    """Waits for the child, passes signals on, and stops with it.

    Args:
        child: Its pid.
        blocked: The signals that are blocked as soon as the others are handled.

    Returns:
        Its status.
    """
    is_asked = False

    def forward(number: int, _: FrameType | None) -> None:
        nonlocal is_asked
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)
        if number in (signal.SIGTERM, signal.SIGHUP) and not is_asked:
            is_asked = True
            signal.alarm(_KILL_SECONDS)

    def kill(_: int, __: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    before |= {signal.SIGALRM: signal.signal(signal.SIGALRM, kill)}
    before |= {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    try:
        while True:
            _, status = os.waitpid(child, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                return status
            # The shell waits for this process: it stops with its child, and wakes it again.
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(child, signal.SIGCONT)
    finally:
        signal.alarm(0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _restore(fd: int, attributes: Any, *, resets: bool) -> None:
    """Restores the terminal.

    Args:
        fd: The terminal.
        attributes: Those from before.
        resets: Whether to leave the screen of the client, too. After an orderly end the child has done so,
            and what was typed since then must not be lost.
    """
    ignored = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the group may be in the background
    try:
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(fd, termios.TCSADRAIN, attributes)
        if resets:
            with contextlib.suppress(OSError):
                os.write(sys.stdout.fileno(), _RESET.encode())
            with contextlib.suppress(termios.error, OSError):
                termios.tcflush(fd, termios.TCIFLUSH)  # reports of the mouse that were on their way
    finally:
        signal.signal(signal.SIGTTOU, ignored)
