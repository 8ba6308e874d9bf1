"""For a worker that was forked from a process which has imported more than it would have by itself: when the
project does what only a cold start would heed, it starts anew (standard library only).

What a library reads when it is imported, or first used, is read already; and a file of the project that has
the name of a module that is loaded already would not be found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn


class WarmProcess(NamedTuple):
    """What this process has ahead of one that begins cold."""

    variables: frozenset[str]
    """That were read."""
    modules: frozenset[str]
    """That were imported: the first part of their names."""
    env: Mapping[str, str]
    """What stood in the environment when the worker began."""
    start: Callable[[], NoReturn]
    """Starts this worker again, in the same process, by an interpreter of its own."""


_READ_IN_C = (
    "ATEN_", "C10_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTORCH_", "TORCH_",
)  # fmt: skip
"""Beginnings of names that native libraries read at their first use."""
_HARMLESS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"})
"""Set by scikit-learn as it is imported. They tell whether a second OpenMP ends the process, and what one
does in a fork; nothing is computed otherwise."""

_warm_process: WarmProcess | None = None


def enable(ahead: WarmProcess) -> None:
    """Told once, by whoever has made this process a worker."""
    global _ahead
    _warm_process = ahead


def restart_if_needed(root: Path | None) -> None:
    """To be called before and after code of the project is imported. Does not return where a cold start would
    have gone otherwise; does nothing in a process that has begun cold.

    Args:
        root: The project's folder.
    """
    if _warm_process is None:
        return
    cause = _changed_variable(_warm_process) or _shadowed_module(_warm_process, root)
    if cause is not None:
        print(f"starting once more, for {cause}", flush=True)
        _warm_process.start()


def _changed_variable(ahead: WarmProcess) -> str | None:
    changed = {name for name in {*os.environ, *ahead.env} if os.environ.get(name) != ahead.env.get(name)}
    read = sorted(
        name for name in changed - _HARMLESS if name in ahead.variables or name.startswith(_READ_IN_C)
    )
    return (
        f"the project, or what it imports, sets {read[0]}, which torch reads at its start" if read else None
    )


def _shadowed_module(ahead: WarmProcess, root: Path | None) -> str | None:
    found = sorted(
        one.name for one in (root or Path.cwd()).iterdir() if one.name.split(".")[0] in ahead.modules
    )
    return f"the project has {found[0]}, and a module of that name is loaded" if found else None
