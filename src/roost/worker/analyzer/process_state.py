"""The state of an analyzer's process, which a script may change and which is restored after it."""

from __future__ import annotations

import builtins
import contextlib
import gc
import io
import logging
import os
import resource
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from roost.train.accelerators.registry import accelerator_of

_OWN_DESCRIPTORS = 64
"""A script that has used up all of its descriptors leaves so many to the analyzer."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = (resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
_SYS_VALUES = (
    "argv", "breakpointhook", "displayhook", "dont_write_bytecode", "excepthook", "stdin", "unraisablehook",
)  # fmt: skip
_SYS_LISTS = ("meta_path", "path", "path_hooks")
_OPEN_DESCRIPTORS = Path("/proc/self/fd")


class _Setting(NamedTuple):
    """A setting of the interpreter or of a library."""

    value: Any
    read: Callable[[], Any]
    write: Callable[[Any], object]

    def restore(self) -> None:
        if self.read() != self.value:
            self.write(self.value)


class ProcessState:
    """The state of this process: builtins, imported modules, working folder, umask, environment, signals,
    limits, descriptors, and the settings of Python, torch and NumPy.

    Threads and processes that a script leaves running are not in it, nor is what it changes inside of the
    project's objects or of other modules.

    ::

        state = ProcessState(device)     # when the package is loaded
        state.limit_script()             # before a script
        state.restore()                  # after it

    Args:
        device: The device of the runner: the current one of its type.

    Attributes:
        num_closed: How many descriptors had to be closed so far, because they were running out.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._builtins, self._modules = dict(vars(builtins)), dict(sys.modules)
        self._sys_values = {name: getattr(sys, name) for name in _SYS_VALUES}
        self._sys_lists = {name: list(getattr(sys, name)) for name in _SYS_LISTS}
        self._settings = [_Setting(read(), read, write) for read, write in _settings(device)]
        self._environment = dict(os.environ)
        self._handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        self._limits = {limit: resource.getrlimit(limit)[0] for limit in _LIMITS}
        self._descriptors = _descriptors()
        self.num_closed = 0

    def limit_script(self) -> None:
        """Keeps some descriptors for the analyzer, whatever a script leaves open, until `restore`."""
        allowed = self._limits[resource.RLIMIT_NOFILE]
        if allowed > len(self._descriptors) + 2 * _OWN_DESCRIPTORS:
            _set_limit(resource.RLIMIT_NOFILE, allowed - _OWN_DESCRIPTORS)

    def restore(self) -> None:
        """Restores the state. What cannot be restored stays as it is."""
        vars(builtins).update(self._builtins)  # first: the rest needs them
        for step in (self._restore_interpreter, self._restore_process, self._restore_signals):
            with contextlib.suppress(Exception):
                step()
        for setting in self._settings:
            with contextlib.suppress(Exception):
                setting.restore()
        with contextlib.suppress(Exception):
            accelerator_of(self._device).set_current(self._device)
        with contextlib.suppress(OSError):
            self._close_descriptors()

    def _restore_interpreter(self) -> None:
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
        for name, value in self._sys_values.items():
            setattr(sys, name, value)
        for name, entries in self._sys_lists.items():
            setattr(sys, name, list(entries))

    def _restore_process(self) -> None:
        for limit, allowed in self._limits.items():
            with contextlib.suppress(OSError, ValueError):  # a script may have lowered the hard limit
                _set_limit(limit, allowed)
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)

    def _restore_signals(self) -> None:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in self._handlers.items():
            # A handler in C, as that of faulthandler, is unknown here: it must not be replaced.
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)

    def _close_descriptors(self) -> None:
        """Closes what scripts have left open, once it is half of all that may be open; before that it may
        belong to what they have stored in ``self``."""
        most = self._limits[resource.RLIMIT_NOFILE] // 2
        if len(_descriptors()) < most:
            return
        gc.collect()  # closes the files that no object refers to
        left = {fd for fd in _descriptors() - self._descriptors if _is_plain(fd)}
        if len(left) < most // 2:
            return
        for one in gc.get_objects():
            # A file that is closed behind the back of its object would be closed by it again, under whose
            # number another one may then be open.
            if isinstance(one, io.FileIO | socket.socket) and not _is_closed(one) and one.fileno() in left:
                one.close()
        for fd in left:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.num_closed += len(left)


def _settings(device: torch.device) -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """Returns how each setting is read and written."""
    found: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
        (_umask, os.umask),
        (_working_folder, os.chdir),
        (sys.getrecursionlimit, sys.setrecursionlimit),
        (sys.getswitchinterval, sys.setswitchinterval),
        (sys.gettrace, sys.settrace),
        (sys.getprofile, sys.setprofile),
        (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
        (gc.get_threshold, lambda three: gc.set_threshold(*three)),
        (lambda: list(warnings.filters), _set_warnings),
        (lambda: logging.root.manager.disable, logging.disable),
        (np.geterr, lambda kinds: np.seterr(**kinds)),
        (np.get_printoptions, lambda options: np.set_printoptions(**options)),
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_default_device, _set_default_device),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.is_grad_enabled, torch.set_grad_enabled),
        (
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda both: torch.autograd.set_detect_anomaly(*both),
        ),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    ]
    for name in ("benchmark", "deterministic", "enabled", "allow_tf32"):
        cudnn = torch.backends.cudnn
        found.append((partial(getattr, cudnn, name), partial(setattr, cudnn, name)))
    for kind in {"cpu", device.type}:
        found.append((partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind)))
        found.append((partial(torch.get_autocast_dtype, kind), partial(torch.set_autocast_dtype, kind)))
    if hasattr(os, "sched_getaffinity"):
        found.append((partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0)))
    return found


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109  - as os.chdir takes it
    except FileNotFoundError:  # removed
        return ""


def _umask() -> int:
    found = os.umask(0o022)
    os.umask(found)
    return found


def _set_warnings(filters: list[Any]) -> None:
    warnings.resetwarnings()  # which also forgets what the former filters have decided
    warnings.filters[:] = filters  # type: ignore[index]


def _set_default_device(device: torch.device) -> None:
    # None: torch's own. A mode for it would cost time at every new tensor.
    torch.set_default_device(None if device == torch.device("cpu") else device)


def _set_limit(limit: int, soft: int) -> None:
    resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))


def _descriptors() -> set[int]:
    """Returns the open descriptors; none where there is no /proc."""
    try:
        return {int(name) for name in os.listdir(_OPEN_DESCRIPTORS)}  # noqa: PTH208  - names alone
    except FileNotFoundError:
        return set()


def _is_plain(fd: int) -> bool:
    """Whether a descriptor is a file, folder, pipe or socket. Those of devices and of the kernel's own
    objects belong to libraries, as to CUDA."""
    try:
        target = str((_OPEN_DESCRIPTORS / str(fd)).readlink())
    except OSError:
        return False
    if target.startswith("/dev/"):
        return target in (os.devnull, "/dev/zero") or target.startswith("/dev/shm/")
    return not target.startswith("anon_inode:")


def _is_closed(one: io.FileIO | socket.socket) -> bool:
    return one.closed if isinstance(one, io.FileIO) else one.fileno() < 0
