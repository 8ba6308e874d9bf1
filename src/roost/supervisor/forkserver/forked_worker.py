"""How a forked child of a process that has imported torch becomes a worker, as if it had been started as one.

It repeats the work of `exec`: signals, descriptors, environment, arguments, and the token that
`processes.abandoned_processes` reads in /proc.
"""

# Standard library only

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from roost.base.system import cold_restart, process_title
from roost.base.system.cold_restart import WarmProcess
from roost.base.system.worker_protocol import REPORT_VARIABLE, STACKS_VARIABLE, TOKEN_VARIABLE
from roost.supervisor.forkserver.environment_key import startup_variables

TOKEN_PLACEHOLDER = "0" * 32
"""Reserves the space for a token in the environment with which a template is started."""
UNUSABLE_EXIT_CODE = 3
"""The exit code of a template from which nothing can be forked."""
_PROGRAM = "roost.worker"
WORKER_ARGUMENTS = ("-P", "-m", _PROGRAM)
"""The arguments of a worker's interpreter before the worker's own."""


class WarmWorker:
    """The worker that this process can become without exec.

    Args:
        started_with: The environment with which this process started. Variables that imports have set since
            then are set in every worker.
        modules: As for `roost.base.system.cold_restart`: modules that were imported ahead.
        prepare: Called before the worker's own code.

    Raises:
        OSError: The token's place in the displayed environment cannot be found.
    """

    def __init__(
        self,
        started_with: Mapping[str, str],
        *,
        modules: Iterable[str] = (),
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self._modules, self._prepare = frozenset(modules), prepare
        self._interpreter, self._env = sys.orig_argv[0], startup_variables(started_with)
        self._set = {name: value for name, value in os.environ.items() if started_with.get(name) != value}
        self._token_at = _displayed_token()

    def can_become(self, command: Sequence[str], env: Mapping[str, str]) -> bool:
        """Whether the worker would be the same as one started by exec."""
        start = [self._interpreter, *WORKER_ARGUMENTS]
        return list(command[: len(start)]) == start and startup_variables(env) == self._env

    def become(self, command: Sequence[str], env: Mapping[str, str]) -> NoReturn:
        """Becomes the worker. To be called in a child whose streams, signals and working directory are those
        of the worker. The interpreter ends here, with its usual finalisation; the caller's stack is never
        unwound."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # as Python sets them
            signal.signal(number, signal.SIG_IGN)
        _close_as_exec_does()
        os.environ.clear()
        os.environ.update({**env, **self._set})
        sys.orig_argv[:] = command
        sys.argv[1:] = command[1 + len(WORKER_ARGUMENTS) :]
        token = env.get(TOKEN_VARIABLE, "").encode()
        if len(token) == len(TOKEN_PLACEHOLDER):
            ctypes.memmove(self._token_at, token, len(token))
        start = functools.partial(_start_cold, list(command), dict(env))
        cold_restart.enable(WarmProcess(self._modules, dict(os.environ), start))
        self._prepare()
        ctypes.pythonapi.Py_Exit(_run())
        raise AssertionError("Py_Exit does not return")


def _start_cold(command: list[str], env: dict[str, str]) -> NoReturn:
    for name in (REPORT_VARIABLE, STACKS_VARIABLE):  # the numbers that the supervisor has set
        if env.get(name, "").isdecimal():
            os.set_inheritable(int(env[name]), True)
    os.execve(command[0], command, env)


def _run() -> int:
    """Runs the worker as ``python -m`` does, gives its exit code. (`runpy` would take the module away again
    before the interpreter ends, with what it has left open.)"""
    try:
        worker = importlib.util.find_spec(f"{_PROGRAM}.__main__")
        assert worker is not None and worker.origin is not None
        own = importlib.util.spec_from_file_location("__main__", worker.origin)
        assert own is not None and own.loader is not None
        module = importlib.util.module_from_spec(own)
        module.__spec__, module.__package__ = worker, worker.parent
        sys.argv[0], sys.modules["__main__"] = worker.origin, module
        own.loader.exec_module(module)
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
            return 1
        return error.code or 0
    except BaseException:  # noqa: BLE001  - printed, as the interpreter does at its end
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _displayed_token() -> int:
    """Returns the address of the token in the environment that /proc shows of this process."""
    memory = process_title.displayed_memory()
    if memory is None:
        raise OSError("this system does not show where the environment of a process is")
    entry = f"{TOKEN_VARIABLE}={TOKEN_PLACEHOLDER}\0".encode()
    at = ctypes.string_at(memory.environment, memory.environment_end - memory.environment).find(entry)
    if at < 0:
        raise OSError(f"this process was started without {TOKEN_VARIABLE}={TOKEN_PLACEHOLDER}")
    return memory.environment + at + len(TOKEN_VARIABLE) + 1


def _close_as_exec_does() -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        fd = int(name)
        try:
            if not os.get_inheritable(fd):
                os.close(fd)
        except OSError:  # the descriptor of the listing itself
            continue
