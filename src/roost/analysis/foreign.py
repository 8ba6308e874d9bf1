"""Files that another program wrote where roost expects its own: named as what they are, and never opened."""

from __future__ import annotations

from pathlib import Path

from roost.base import regular
from roost.base.errors import CheckpointError, NotFound, Refused
from roost.package import checkpoint
from roost.package.package import Package

_FIX = "train with roost, or read the file with the program that wrote it"


def kind(path: Path) -> str:
    """What a file is, by its first bytes."""
    try:
        fd = regular.open_fd(path)
        with open(fd, "rb") as file:
            head = file.read(1024)
    except OSError:
        return "no plain file"
    if head.startswith(b"PK\x03\x04"):
        # torch.save writes an archive whose first member is its pickle; other archives have other names.
        return "a pickle that torch.save wrote" if b"data.pkl" in head else "an archive"
    if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
        return "a pickle"
    return "a file"


def refuse_file(path: Path) -> None:
    """For a package that is no folder.

    Raises:
        Refused: It is a file.
    """
    if path.is_file():
        raise Refused(
            f"is {kind(path)}, no package; roost does not unpickle, which would run whatever code it holds",
            setting="PACKAGE",
            received=str(path),
            fix="name the folder that `roost run` printed",
        )


def check_checkpoints(package: Package, id: int | None) -> list[str]:
    """Whether a package has the checkpoint that is asked for, or any; gives a line for each that is foreign.

    Args:
        package: The package.
        id: The checkpoint; None: the newest good one.

    Raises:
        NotFound: There is none.
        CheckpointError: None was written by roost.
    """
    found = checkpoint.ids(package.checkpoints) if package.checkpoints.is_dir() else []
    paths = {one: checkpoint.folder_of(package.checkpoints, one) for one in found}
    foreign = {
        one: f"{path.name} is {kind(path)}, which roost does not unpickle"
        for one, path in paths.items()
        if path.is_file()
    }
    own = [one for one in found if one not in foreign]
    if id in foreign or (foreign and not own):
        said = [foreign[id]] if id in foreign else list(foreign.values())
        more = f"; or another checkpoint: {', '.join(map(str, own))}" if own else ""
        raise CheckpointError("; ".join(said), where=package.path, fix=_FIX + more)
    if not found:
        _refuse_none(package)
    if id is not None and id not in own:
        have = ", ".join(map(str, own))
        raise NotFound(f"there is no checkpoint {id}; there are: {have}", where=package.path)
    return list(foreign.values()) if id is None else []


def _refuse_none(package: Package) -> None:
    aside = checkpoint.set_asides(package.checkpoints) if package.checkpoints.is_dir() else []
    why = f"all were damaged ({', '.join(aside)})" if aside else "it has saved nothing yet"
    raise NotFound(
        f"the package has no checkpoint: {why}",
        where=package.path,
        fix="--untrained (in Python: untrained=True) takes the weights as the Runner builds them",
    )
