"""The check task: a shortened run that goes through every stage of a run once."""

from __future__ import annotations

import errno
from pathlib import Path

from roost.base.errors import Refused
from roost.base.system.collector_pause import paused_collector
from roost.package import live_progress
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.worker.check.stages import begin_stages


def check(package: PackageFolder) -> str:
    """Runs all stages of a run once, in a package made for the check, and returns "finished".

    Raises:
        NotFound: The package has no session.
        Refused: The disk of the check's package is full.
        RoostError: The config or the project is wrong.
        Exception: An error of the project's code.
    """
    live_progress.reset(package.progress)
    request, reporter = begin_stages(package)
    # Both import torch, a second or two.
    try:
        if PackageKind.of(package.request) is PackageKind.DLNEST:
            with paused_collector():
                from roost.worker.check.dlnest_check import check_dlnest

            check_dlnest(package, request, reporter)
        else:
            with paused_collector():
                from roost.worker.check.check_run import CheckRun

            CheckRun(package, request, reporter).run()
    except BaseException as error:
        reporter.fail()
        if _is_full(error, package.path):
            raise Refused(
                f"the disk of {package.path.parent.parent} is full, where the check saves its files",
                fix="make space, or name a folder on another disk: TMPDIR=/path roost check ...",
            ) from error
        raise
    return "finished"


def _is_full(error: BaseException | None, place: Path) -> bool:
    """Whether an error came from a full disk while writing below ``place``."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return str(error.filename or "").startswith(str(place))
        error = error.__cause__ or error.__context__
    return False
