"""A key for all that a process inherits from the one that starts it. Programs with equal keys start
identically."""

# Standard library only

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from roost.supervisor import signals

_RUN_VARIABLES = (
    "ROOST_", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
)  # fmt: skip
_TERMINAL_VARIABLES = (
    "_", "PWD", "OLDPWD", "SHLVL", "TERM", "TERM_", "COLUMNS", "LINES", "WINDOWID", "DISPLAY", "SSH_", "TMUX",
    "TMUX_", "STY", "WINDOW", "VSCODE_", "KONSOLE_", "KITTY_", "WEZTERM_", "ZELLIJ_", "GNOME_TERMINAL_",
    "VTE_VERSION", "WT_SESSION", "LC_TERMINAL", "LC_TERMINAL_", "COLORTERM", "GPG_TTY", "INVOCATION_ID",
    "JOURNAL_STREAM", "JPY_PARENT_PID", "XDG_SESSION_", "DBUS_SESSION_BUS_ADDRESS", "PYTEST_CURRENT_TEST",
)  # fmt: skip
_IGNORED_VARIABLES = frozenset((*_RUN_VARIABLES, *_TERMINAL_VARIABLES))
"""Variables, and prefixes of variables (with an underscore at the end), that neither Python nor torch reads
at its start. The worker still gets its own values of them."""
_IGNORED_PREFIXES = tuple(name for name in _IGNORED_VARIABLES if name.endswith("_") and name != "_")

_STATUS_FIELDS = (
    "Umask", "Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
    "Seccomp", "Seccomp_filters", "Cpus_allowed", "Mems_allowed",
)  # fmt: skip
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_LIBC_SIGNALS = (32, 33)
"""Signals internal to libc: a process started by ``posix_spawn`` has them ignored, others do not."""
_DIGITS = 20


def startup_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that can change a process before its own code runs."""
    return {name: value for name, value in env.items() if not _is_ignored(name)}


def environment_key(command: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Returns a key for a program as this process would start it: its arguments and variables, and this
    process's limits, rights, cores, groups and namespaces. None if these cannot be read, or if the program
    depends on the working directory.

    Args:
        command: The program.
        env: Its environment.
    """
    if not all(map(os.path.isabs, env.get("PYTHONPATH", "/").split(os.pathsep))):
        return None  # relative to the worker's working directory
    own = Path("/proc/self")
    try:
        status = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines())
        parts = [
            list(command),
            sorted(startup_variables(env).items()),
            [status.get(name) for name in _STATUS_FIELDS],
            [(own / name).read_text() for name in ("limits", "cgroup", "oom_score_adj", "personality")],
            [str((own / "ns" / name).readlink()) for name in _NAMESPACES if (own / "ns" / name).is_symlink()],
            [os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)],
            _ignored_signals(status),
        ]
    except (OSError, ValueError, KeyError):
        return None
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def _ignored_signals(status: Mapping[str, str]) -> int:
    """Returns the mask of signals that a worker would ignore, too: it starts with the default action of all
    others."""
    own = (
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGCHLD,
        *signals.IGNORED_SIGNALS,
        *signals.CONTROL_SIGNALS,
        *_LIBC_SIGNALS,
    )
    return int(status["SigIgn"], 16) & ~sum(1 << (one - 1) for one in set(own))


def _is_ignored(name: str) -> bool:
    return name in _IGNORED_VARIABLES or name.startswith(_IGNORED_PREFIXES)
