"""Checks before an analysis: the package has a Runner and a checkpoint of roost.

Files of other programs at these places are described in the error, and never opened beyond their first bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from roost.base import safe_read
from roost.base.errors import CheckpointError, NotFound, Refused, UsageError
from roost.base.text.typed_path import typed_path
from roost.package.checkpoints import checkpoint, pruning
from roost.package.dlnest import original_folder
from roost.package.dlnest.original_package import OriginalPackage
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.project_preflight import require_runner

_UNTRAINED = "use --untrained (in Python: untrained=True) for the weights as the Runner builds them"
_FIX = "train with roost, or read the file with the program that wrote it"


def describe_file(path: Path) -> str:
    """Describes the kind of a file by its first bytes."""
    try:
        fd = safe_read.open_fd(path)
        with open(fd, "rb") as file:
            head = file.read(1024)
    except OSError:
        return "not a plain file"
    if head.startswith(b"PK\x03\x04"):
        # torch.save writes an archive whose first member is the pickle data.pkl.
        return "a pickle that torch.save wrote" if b"data.pkl" in head else "an archive"
    if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        return "a pickle"
    return "a file"


def open_with_runner(
    path: Path | str, *, by: Callable[[Path], PackageFolder] = PackageFolder.open
) -> PackageFolder:
    """Opens the package at ``path`` with ``by``.

    Raises:
        NotFound: There is no package, or an incomplete one.
        Refused: ``path`` is a file, or a package without a Runner.
    """
    path = typed_path(path)
    if path.is_file():
        raise Refused(
            f"is {describe_file(path)}, not a package; roost does not unpickle, which would run the code "
            "in the file",
            setting="PACKAGE",
            received=str(path),
            fix="name the folder that `roost run` printed",
        )
    if original_folder.is_original(path):
        return OriginalPackage.open(path)
    is_partial = (path / "args.json").exists() or (path / "Checkpoints").is_dir()
    if is_partial and not (path / "request.json").exists():
        raise _partial_package_error(path)
    package = by(path)
    require_runner(package)
    return package


def require_native(package: PackageFolder, *, cause: str, fix: str) -> None:
    """Checks that a package is not of DLNest's contract.

    Args:
        package: The package.
        cause: Why it cannot be of it.
        fix: What to do instead.

    Raises:
        Refused: It is of it.
    """
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        raise Refused(cause, where=package.path, fix=fix)


def _partial_package_error(path: Path) -> NotFound:
    """Returns the error for a folder that has some files of a package and no request.json. Only a creation
    that was interrupted is proven to hold nothing of value, and no message says to remove anything else."""
    if (path / "manifest.json").is_file() and not any(
        entry for name in ("Checkpoints", "sessions", "records") for entry in (path / name).glob("*")
    ):
        return NotFound(
            "the package has no request.json, which is written last: its creation was interrupted before "
            "anything ran",
            where=path,
            fix="run again, which makes another package",
        )
    return NotFound(
        "the folder has no request.json, without which it is no package of roost",
        where=path,
        fix="take request.json from a copy of the package; leave the folder as it is",
    )


def project_folder(package: PackageFolder, given: Path | str | None) -> Path:
    """Returns the project's folder: ``given``, or the folder from which the package was made.

    Raises:
        NotFound: ``given`` does not exist.
    """
    if given is None:
        return package.project
    folder = typed_path(given)
    if not folder.is_dir():
        raise NotFound("there is no such folder", setting="--project", received=str(given))
    return folder.resolve()


def check_checkpoints(
    package: PackageFolder, id: int | None, *, untrained: bool = False, fix: str = _UNTRAINED
) -> list[str]:
    """Checks that a package has the requested checkpoint, or any; returns a line for each foreign file.

    Args:
        package: The package.
        id: The requested checkpoint; None: the newest good one.
        untrained: Whether no checkpoint is requested.
        fix: The fix to name if there is no checkpoint.

    Raises:
        UsageError: Both ``id`` and ``untrained`` are given.
        NotFound: There is no such checkpoint.
        CheckpointError: No checkpoint was written by roost.
        Refused: A pruning has removed all checkpoints.
    """
    if untrained:
        if id is not None:
            raise UsageError("untrained takes no checkpoint", received=id, fix="leave out one of the two")
        return []
    if isinstance(package, OriginalPackage):
        package.file(id)
        return package.notes()
    has_folder = package.checkpoints.is_dir()
    files = checkpoint.files(package.checkpoints) if has_folder else {}
    foreign = {
        one: f"{path.name} is {describe_file(path)}, which roost does not unpickle"
        for one, path in sorted(files.items())
    }
    own = [one for one in checkpoint.ids(package.checkpoints) if one not in foreign] if has_folder else []
    if id in foreign or (foreign and not own):
        descriptions = [foreign[id]] if id in foreign else list(foreign.values())
        more = f"; or another checkpoint: {', '.join(map(str, own))}" if own else ""
        raise CheckpointError("; ".join(descriptions), where=package.path, fix=_FIX + more)
    if not own:
        _no_checkpoint_error(package, fix)
    if id is not None and id not in own:
        available = ", ".join(map(str, own))
        raise NotFound(f"there is no checkpoint {id}; there are: {available}", where=package.path)
    return list(foreign.values()) if id is None else []


def _no_checkpoint_error(package: PackageFolder, fix: str) -> None:
    damaged = checkpoint.set_aside_names(package.checkpoints) if package.checkpoints.is_dir() else []
    if not damaged:
        pruning.require_training_state(package, None)  # raises if they were removed
    why = f"all were damaged ({', '.join(damaged)})" if damaged else "it has saved nothing yet"
    if not package.checkpoints.is_dir():
        why, fix = "its folder Checkpoints is missing", f"take it from a copy of the package, or {fix}"
    raise NotFound(f"the package has no checkpoint: {why}", where=package.path, fix=fix)
