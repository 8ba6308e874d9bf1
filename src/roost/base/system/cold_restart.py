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

    modules: frozenset[str]
    """Imported modules: the first parts of their dotted names."""
    env: Mapping[str, str]
    """The environment when the worker began."""
    start: Callable[[], NoReturn]
    """Starts this worker again in the same process with a new interpreter (exec)."""


_READ_AHEAD = frozenset({
    "CI", "CXX", "FAKE_ALLOW_META", "LNAME", "LOGNAME", "LOG_AUTOTUNE_RESULTS", "LOG_TLPARSE", "SAGE_ROOT",
    "TEMP", "TMP", "TMPDIR", "UNSAFE_SKIP_FSDP_MODULE_GUARDS", "USER", "USERNAME",
})  # fmt: skip
"""Environment variables that the template process has read, as far as `_READ_AHEAD_PREFIXES` does not contain
them: a test compares the two with what torch and its libraries read."""
_READ_AHEAD_PREFIXES = (
    "AOT", "ATEN_", "C10_", "CUTEDSL_", "CUTLASS_", "DNNL_", "DUMP_AOTI_", "ENABLE_PERSISTENT_TMA_",
    "ENABLE_TEMPLATE_", "ENABLE_TMA_", "GOMP_", "INDUCTOR_", "KMP_", "MKL_", "MPMATH_", "OMP_", "ONEDNN_",
    "OPENBLAS_", "PARTITIONER_", "PT2_", "PYTORCH_", "SYMPY_", "TORCH", "TRITON_",
)  # fmt: skip
"""Variables with these prefixes belong to torch and its libraries: they are read at an import, or by native
code at its first use."""
_HARMLESS = frozenset({"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK", "TORCHINDUCTOR_CACHE_DIR"})
"""Variables that a project's imports set, and that do not change results. scikit-learn sets the first two:
they control whether a second OpenMP library ends the process, and what it does in a fork. torch sets the last
one when it loads its compiler, which reads it at each use."""

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
    cause = _changed_variable(_warm_process.env) or _shadowed_module(_warm_process, root)
    if cause is not None:
        print(f"restarting the worker: {cause}", flush=True)
        _warm_process.start()


def _changed_variable(env: Mapping[str, str]) -> str | None:
    changed = {name for name in {*os.environ, *env} if os.environ.get(name) != env.get(name)}
    read = sorted(filter(is_read_ahead, changed))
    return (
        f"the project, or what it imports, sets {read[0]}, which torch reads at its start" if read else None
    )


def is_read_ahead(name: str) -> bool:
    """Whether a forked worker would not notice a change of this environment variable."""
    return name not in _HARMLESS and (name in _READ_AHEAD or name.startswith(_READ_AHEAD_PREFIXES))


def _shadowed_module(process: WarmProcess, root: Path | None) -> str | None:
    found = sorted(
        one.name for one in (root or Path.cwd()).iterdir() if one.name.split(".")[0] in process.modules
    )
    return f"the project has {found[0]}, and a module of that name is already loaded" if found else None
