"""`DLNest.Analyze.analyze`: DLNest's function for one analysis in this process."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roost.analysis import script
from roost.analysis.notebook_analysis import analyze as analyze_package
from roost.base.errors import UsageError

NEWEST, UNTRAINED = -1, -2
"""Values of ``checkpointID`` that are no checkpoint."""


def analyze(
    recordPath: str,
    checkpointID: int = NEWEST,
    scriptPath: str = "",
    devices: Sequence[int] | None = None,
    expFunc: Callable[[Any], Any] | None = None,
) -> Any:
    """Loads a package, calls a function or the ``experience`` of a script with it, and returns the result,
    which is stored in the package, too.

    Args:
        recordPath: The package.
        checkpointID: The checkpoint; -1: the newest good one; -2: none, the model as it is built.
        scriptPath: A script.
        devices: The number of the GPU; -1: the CPU; None: the first GPU, if there is one.
        expFunc: The function, instead of a script.

    Raises:
        UsageError: There are both or neither of script and function, or several devices.
        Exception: As `roost.analyze` raises.
    """
    if (expFunc is None) == (not scriptPath):
        raise UsageError("give either scriptPath or expFunc", fix="analyze(recordPath, expFunc=function)")
    if devices is not None and len(devices) != 1:
        raise UsageError("an analysis takes one device", setting="devices", received=list(devices))
    device = "auto" if devices is None else "cpu" if devices[0] < 0 else f"cuda:{devices[0]}"
    return analyze_package(
        recordPath,
        expFunc or _function_of(script.find(scriptPath, [])),
        checkpoint=checkpointID if checkpointID >= 0 else None,
        untrained=checkpointID == UNTRAINED,
        device=device,
    )


def _function_of(path: Path) -> Callable[[Any], Any]:
    script.read(path)

    @functools.wraps(analyze_package, assigned=())
    def run(session: Any) -> Any:
        return script.load(path, path, session.package.path)(session)

    return run
