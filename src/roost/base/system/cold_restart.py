"""The cold restart of a worker that was forked from a template process (standard library only).

Such a worker has more modules imported than a cold start would have. A library has then already read the
environment variables that it reads at its import or first use, and a file of the project with the name of a
loaded module would not be found. When the project depends on either, the worker starts again by exec.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn


class WarmProcess(NamedTuple):
    """What a worker forked from a template process has already read and imported."""

    variables: frozenset[str]
    """Environment variables that were already read."""
    modules: frozenset[str]
    """Imported modules: the first parts of their dotted names."""
    env: Mapping[str, str]
    """The environment when the worker began."""
    start: Callable[[], NoReturn]
    """Starts this worker again in the same process with a new interpreter (exec)."""


_READ_IN_C = (
    "ATEN_", "C10_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH_",
)  # fmt: skip
"""Prefixes of environment variables that native libraries read at their first use."""
_HARMLESS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})
"""Variables that scikit-learn sets at its import. They control whether a second OpenMP library ends the
process, and what it does in a fork; they do not change results."""

_warm_process: WarmProcess | None = None


def enable(process: WarmProcess) -> None:
    """Allows a cold restart; called once, by the code that made this forked process a worker."""
    global _warm_process
    _warm_process = process


def restart_if_needed(root: Path | None) -> None:
    """Restarts the worker if a cold start would have behaved differently; does not return then. To be called
    before and after code of the project is imported. Does nothing in a process that was started by exec.

    Args:
        root: The project's folder; the working folder if None.
    """
    if _warm_process is None:
        return
    cause = _changed_variable(_warm_process) or _shadowed_module(_warm_process, root)
    if cause is not None:
        print(f"restarting the worker: {cause}", flush=True)
        _warm_process.start()


def _changed_variable(process: WarmProcess) -> str | None:
    changed = {name for name in {*os.environ, *process.env} if os.environ.get(name) != process.env.get(name)}
    read = sorted(
        name for name in changed - _HARMLESS if name in process.variables or name.startswith(_READ_IN_C)
    )
    return (
        f"the project, or what it imports, sets {read[0]}, which torch reads at its start" if read else None
    )


def _shadowed_module(process: WarmProcess, root: Path | None) -> str | None:
    found = sorted(
        one.name for one in (root or Path.cwd()).iterdir() if one.name.split(".")[0] in process.modules
    )
    return f"the project has {found[0]}, and a module of that name is already loaded" if found else None
