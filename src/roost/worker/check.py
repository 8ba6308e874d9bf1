"""A check: the whole way of a run in miniature, from a package to its end."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

from roost.base.errors import NotFound, Refused
from roost.package import progress
from roost.package.package import Package
from roost.worker.miniature.walk import Walk

if TYPE_CHECKING:
    from roost.worker.failure import Failure


def check(package: Package) -> str:
    """Walks through a run of a package that was made for that; gives "finished".

    Raises:
        RoostError: The config or the project is wrong.
        Exception: Whatever the project's code raises.
    """
    found = package.sessions()
    if not found:
        raise NotFound("there is no session", where=package.path)
    request = found[-1].request
    progress.reset(package.progress)
    walk = Walk(package.path)
    copied = request["copied"]
    walk.tell("copy", f"{copied['files']} files", seconds=copied["seconds"])
    walk.begin("imports")
    from roost.worker.analysis import end_with  # torch, a second or two
    from roost.worker.miniature.run import Miniature

    end_with(request)
    try:
        Miniature(package, request, walk).run()
    except BaseException as error:
        walk.fail()
        if _is_full(error, package.path):
            raise Refused(
                f"the disk of {package.path.parent.parent} is full, where the check keeps what it saves",
                fix="make space, or name a folder on another disk: TMPDIR=/path roost check ...",
            ) from error
        raise
    return "finished"


def told(error: BaseException, package: Path) -> Failure:
    """Explains an error as a run does, and tells it. The package will be gone, and its traceback file too."""
    from roost.worker import failure

    return failure.told(error, own=[package], package=package, file=None)


def _is_full(error: BaseException | None, place: Path) -> bool:
    """Whether a disk was full, and it is the one of ``place``."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return str(error.filename or "").startswith(str(place))
        error = error.__cause__ or error.__context__
    return False
