"""``plot``: the curves of one or more packages as a picture, drawn once or as long as they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, RoostError, UsageError
from roost.base.text.suggestions import closest_match
from roost.operations.curves.plot_panels import Picture, build_picture, matches_any
from roost.operations.reading import package_schema
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.records import Columns
from roost.package.records_follower import HistoryFollower

KINDS = ("png", "svg", "pdf")
_POLL_SECONDS = 0.2
_UNFINISHED_STATES = ("new", "starting", "running")


@dataclass(frozen=True)
class PlotResult:
    """A picture."""

    path: str
    packages: list[str]
    panels: list[str]
    left_out: list[str]
    """Names of those among the packages that have recorded nothing of it."""
    step: int
    """The last one that is drawn."""


def plot(packages: Sequence[Path | str], *, output: Path, names: Sequence[str] = ()) -> PlotResult:
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
    opened = _open_packages(packages, output)
    return _draw(opened, output, _build_picture(opened, names, PackageFolder.records))


def follow(
    packages: Sequence[Path | str], *, output: Path, names: Sequence[str] = (), every_seconds: float = 5.0
) -> Iterator[PlotResult | list[str]]:
    """Draws whenever something new was recorded, as long as one of the packages runs or has not begun yet,
    and once more at the end. Each byte of the records is read once.

    Args:
        packages: As `plot`; so are the following.
        output: Each picture replaces the one before in one step.
        names: A name that is not recorded yet is waited for.
        every_seconds: From one picture to the next at least this; or as long as drawing takes.

    Yields:
        What was drawn; at first, where nothing is recorded yet, the names of those that are waited for.

    Raises:
        RoostError, OSError: As `plot` does; that nothing is recorded only once all have ended.
    """
    opened = _open_packages(packages, output)
    growing = {package.path: HistoryFollower(package.path / "records") for package in opened}

    def read(package: PackageFolder) -> Columns:
        return growing[package.path].columns

    waits, seen = False, None
    next_time = 0.0
    while True:
        goes_on = any(
            package.state() in _UNFINISHED_STATES for package in opened
        )  # before what it recorded last is read
        now = time.monotonic()
        if not goes_on or now >= next_time:
            came = sum(one.update() for one in growing.values()) > 0
            marks = [_checkpoint_ids(package) for package in opened]
            if came or marks != seen or not goes_on:
                found = build_picture(opened, names, read=read)
                if found.panels or not goes_on:
                    seen = marks
                    yield _draw(opened, output, found if goes_on else _build_picture(opened, names, read))
                elif not waits:
                    waits = True
                    yield [package.path.name for package in opened]
                next_time = time.monotonic() + max(every_seconds, time.monotonic() - now)
        if not goes_on:
            return
        time.sleep(_POLL_SECONDS)


def _checkpoint_ids(package: PackageFolder) -> list[int]:
    """What is drawn beside what was recorded: its checkpoints."""
    return checkpoint.ids(package.checkpoints) if package.checkpoints.is_dir() else []


def _open_packages(packages: Sequence[Path | str], output: Path) -> list[PackageFolder]:
    """The packages, once it is sure that a picture of them can be drawn."""
    if output.suffix.removeprefix(".").lower() not in KINDS:
        fix = f"end it in .{', .'.join(KINDS)}"
        raise UsageError("the ending tells no kind of picture", setting="-o", received=str(output), fix=fix)
    if not output.absolute().parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="-o", received=str(output.parent), fix="make it first"
        )
    opened = [package_schema.open_checked(path) for path in packages]
    if find_spec("matplotlib") is None:
        raise RoostError("plot needs matplotlib", fix="pip install 'roost[demo]'")
    return opened


def _build_picture(
    opened: Sequence[PackageFolder], names: Sequence[str], read: Callable[[PackageFolder], Columns]
) -> Picture:
    """What is to be drawn, where each name means something."""
    found = build_picture(opened, names, read=read)
    for name in names:
        if found.known and not any(matches_any(one, [name]) for one in found.known):
            is_group = any(one.startswith(f"{name}/") for one in found.known)
            near = f"'{name}/*'" if is_group else closest_match(name, found.known)
            fix = f"did you mean {near}?" if near else f"there are: {', '.join(found.known)}"
            raise NotFound("nothing of that name is recorded", setting="-m", received=name, fix=fix)
    if not found.panels:
        raise NotFound("nothing is recorded yet", received=[package.path.name for package in opened])
    return found


def _draw(opened: Sequence[PackageFolder], output: Path, found: Picture) -> PlotResult:
    from roost.operations.curves import plot_drawing  # matplotlib takes half a second

    durable.write(output, plot_drawing.draw(found, output.suffix.removeprefix(".").lower()))
    steps = [step for panel in found.panels for curve in panel.curves for step in curve.steps[-1:]]
    return PlotResult(
        path=str(output.absolute()),
        packages=[str(package.path) for package in opened],
        panels=[panel.name for panel in found.panels],
        left_out=found.left_out,
        step=max(steps, default=0),
    )
