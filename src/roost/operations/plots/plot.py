"""``plot``: a picture of the curves of one or more packages, drawn once, or again while they grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from roost.base import durable
from roost.base.errors import NotFound, RoostError, UsageError
from roost.base.text.suggestions import closest_match
from roost.operations.plots.plot_panels import Picture, build_picture, matches_any
from roost.operations.reading import package_schema
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.records import Columns
from roost.package.records_follower import HistoryFollower
from roost.package.results import exports
from roost.package.session_schema import LIVE_STATES

KINDS = ("png", "svg", "pdf")
_NONE: Mapping[Path, int] = MappingProxyType({})
_POLL_SECONDS = 0.2
MAX_PANELS = 400
"""Drawing takes about 0.1 s for each panel."""
_UNFINISHED_STATES = ("new", *LIVE_STATES)


@dataclass(frozen=True)
class PlotResult:
    """A picture that was written."""

    path: str
    packages: list[str]
    panels: list[str]
    left_out: list[str]
    """The names of packages that have recorded none of the metrics."""
    step: int
    """The last step in the picture."""
    damaged: list[str]
    """For each package of whose rows some are evidently missing, which; and the damage of each that is left
    out for it."""


def plot(
    packages: Sequence[Path | str], *, output: Path | None = None, names: Sequence[str] = ()
) -> PlotResult:
    """Draws all metrics of some packages: train, valid and test of one metric share a panel.

    Args:
        packages: One or several; several share the panels.
        names: Draw only these, which may be times and memory (``perf/…``); see `build_picture`.
        output: The picture; its ending (.png, .svg, .pdf) gives the format. Replaced if it exists. None:
            ``exports/curves.png`` in the package, if it is one.

    Raises:
        NotFound: A package does not exist, no package has recorded anything, or a name matches no metric.
        UsageError: The ending is not a known format; or there are several packages and no ``output``.
        Refused: The package's ``exports`` cannot be written.
        DamagedPackage: A file of the only package is not as roost writes it, or of each of several; of
            several, one that cannot be read is left out.
        RoostError: matplotlib is not installed.
        OSError: The picture cannot be written.
    """
    opened, damaged, output = _open_packages(packages, output)
    torn: dict[Path, int] = {}

    def read(package: PackageFolder) -> Columns:
        columns = package.records()
        torn[package.path] = columns.torn
        return columns

    return _draw(opened, output, _build_picture(opened, names, read), torn, damaged=damaged)


def follow(
    packages: Sequence[Path | str],
    *,
    output: Path | None = None,
    names: Sequence[str] = (),
    every_seconds: float = 5.0,
) -> Iterator[PlotResult | list[str]]:
    """Draws again after each new row while one of the packages runs or has not started, and once at the end.
    Each byte of the records is read once.

    Args:
        packages: As in `plot`.
        output: As in `plot`; each picture replaces the previous one atomically.
        names: As in `plot`; a metric that is not recorded yet is no error.
        every_seconds: The least time between two pictures; it grows with the time that drawing takes.

    Yields:
        Each picture. While nothing is recorded, once the names of the packages.

    Raises:
        RoostError, OSError: As `plot`; that nothing is recorded is an error only when all runs have ended.
    """
    opened, damaged, output = _open_packages(packages, output)
    followers = {package.path: HistoryFollower(package.path / "records") for package in opened}

    def read(package: PackageFolder) -> Columns:
        return followers[package.path].columns

    is_waiting, drawn_checkpoints = False, None
    next_time = 0.0
    while True:
        # The states are read before the records, so that the last picture has the last rows.
        is_unfinished = any(package.state() in _UNFINISHED_STATES for package in opened)
        now = time.monotonic()
        if not is_unfinished or now >= next_time:
            has_new_rows = sum(one.update() for one in followers.values()) > 0
            checkpoints = [_checkpoint_ids(package) for package in opened]
            if has_new_rows or checkpoints != drawn_checkpoints or not is_unfinished:
                found = build_picture(opened, names, read=read)
                if found.panels or not is_unfinished:
                    drawn_checkpoints = checkpoints
                    picture = found if is_unfinished else _build_picture(opened, names, read)
                    yield _draw(opened, output, picture, damaged=damaged)
                elif not is_waiting:
                    is_waiting = True
                    yield [package.path.name for package in opened]
                next_time = time.monotonic() + max(every_seconds, time.monotonic() - now)
        if not is_unfinished:
            return
        time.sleep(_POLL_SECONDS)


def _checkpoint_ids(package: PackageFolder) -> list[int]:
    """Returns the ids of a package's checkpoints, which the picture marks."""
    return checkpoint.ids(package.checkpoints) if package.checkpoints.is_dir() else []


def _open_packages(
    packages: Sequence[Path | str], output: Path | None
) -> tuple[list[PackageFolder], list[str], Path]:
    """Opens the packages, and returns them, the damage of those that are left out for it, and the path of the
    picture, after a check that it can be written."""
    if output is not None:
        _check_output(output)
    elif len(packages) > 1:
        raise UsageError("a picture of several packages has no place of its own", fix="add -o curves.png")
    opened: list[PackageFolder] = []
    damaged: list[str] = []
    for path in packages:
        try:
            opened.append(package_schema.open_checked(path))
        except RoostError as error:
            if len(damaged) + 1 == len(packages) or not Path(path).is_dir():
                raise
            damaged.append(f"{Path(path).name} is left out: {error.message}")
    if find_spec("matplotlib") is None:
        raise RoostError("plot needs matplotlib", fix="pip install 'roost[demo]'")
    if output is None:
        output = exports.export_path(opened[0], "curves.png", fix="name the picture: -o curves.png")
    durable.discard_abandoned(output.absolute())
    return opened, damaged, output


def _check_output(output: Path) -> None:
    if output.suffix.removeprefix(".").lower() not in KINDS:
        fix = f"end the name in .{', .'.join(KINDS)}"
        raise UsageError(
            "the ending is no known format of a picture", setting="-o", received=str(output), fix=fix
        )
    if not output.absolute().parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="-o", received=str(output.parent), fix="create it first"
        )


def _build_picture(
    opened: Sequence[PackageFolder], names: Sequence[str], read: Callable[[PackageFolder], Columns]
) -> Picture:
    """Builds the picture, and raises an error if a name matches no metric or there are no rows."""
    found = build_picture(opened, names, read=read)
    for name in names:
        if found.known and not any(matches_any(one, [name]) for one in found.known):
            is_group = any(one.startswith(f"{name}/") for one in found.known)
            near = f"'{name}/*'" if is_group else closest_match(name, found.known)
            fix = f"did you mean {near}?" if near else f"there are: {', '.join(found.known)}"
            raise NotFound("no metric of that name is recorded", setting="-m", received=name, fix=fix)
    if not found.panels:
        raise NotFound("nothing is recorded yet", received=[package.path.name for package in opened])
    return found


def _draw(
    opened: Sequence[PackageFolder],
    output: Path,
    found: Picture,
    torn: Mapping[Path, int] = _NONE,
    *,
    damaged: Sequence[str],
) -> PlotResult:
    if len(found.panels) > MAX_PANELS:
        raise UsageError(
            f"{len(found.panels):,} panels are too many for one picture, which has at most {MAX_PANELS}",
            setting="-m",
            fix=f"name some: -m {found.panels[0].name!r}",
        )
    from roost.operations.curves import plot_drawing  # matplotlib takes half a second

    durable.write(output, plot_drawing.draw(found, output.suffix.removeprefix(".").lower()))
    steps = [step for panel in found.panels for curve in panel.curves for step in curve.steps[-1:]]
    damages = {one.path.name: package_schema.records_damage(one, torn.get(one.path, 0)) for one in opened}
    return PlotResult(
        path=str(output.absolute()),
        packages=[str(package.path) for package in opened],
        panels=[panel.name for panel in found.panels],
        left_out=found.left_out,
        step=max(steps, default=0),
        damaged=[*damaged, *(f"{name}: {damage}" for name, damage in damages.items() if damage)],
    )
