"""``plot``: the curves of one or more packages as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, RoostError, UsageError
from roost.base.suggest import nearest
from roost.operations import intact
from roost.operations.curves import is_named, picture

KINDS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Plotted:
    """A picture."""

    path: str
    packages: list[str]
    panels: list[str]
    left_out: list[str]
    """Names of those among the packages that have recorded nothing of it."""


def plot(packages: Sequence[Path | str], *, output: Path, names: Sequence[str] = ()) -> Plotted:
    """Draws every metric of some packages: train, valid and test of one name in one panel.

    Args:
        packages: One, or several to lay over each other.
        names: Draws these only, times and memory (``perf/…``) among them; see `curves.picture`.
        output: The picture; its ending (.png, .svg, .pdf) tells the kind. Replaced if it exists.

    Raises:
        NotFound: One is no package, or none has recorded anything; or a name means nothing that is recorded.
        UsageError: The ending tells no kind.
        DamagedPackage: A file of one is not as roost writes it.
        RoostError: matplotlib is not installed.
        OSError: The picture cannot be written.
    """
    kind = output.suffix.removeprefix(".").lower()
    if kind not in KINDS:
        fix = f"end it in .{', .'.join(KINDS)}"
        raise UsageError("the ending tells no kind of picture", setting="-o", received=str(output), fix=fix)
    if not output.absolute().parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="-o", received=str(output.parent), fix="make it first"
        )
    opened = [intact.opened(path) for path in packages]
    if find_spec("matplotlib") is None:
        raise RoostError("plot needs matplotlib", fix="pip install 'roost[demo]'")
    found = picture(opened, names)
    for name in names:
        if found.known and not any(is_named(one, [name]) for one in found.known):
            is_group = any(one.startswith(f"{name}/") for one in found.known)
            near = f"'{name}/*'" if is_group else nearest(name, found.known)
            fix = f"did you mean {near}?" if near else f"there are: {', '.join(found.known)}"
            raise NotFound("nothing of that name is recorded", setting="-m", received=name, fix=fix)
    if not found.panels:
        raise NotFound("nothing is recorded yet", received=[package.path.name for package in opened])
    from roost.operations import drawing  # matplotlib takes half a second

    durable.write(output, drawing.draw(found, kind))
    paths = [str(package.path) for package in opened]
    return Plotted(str(output.absolute()), paths, [panel.name for panel in found.panels], found.left_out)
