"""``plot``: a picture of the curves of one or more packages, drawn once, or again while they grow."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from roost.base import durable, safe_read
from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.base.text.suggestions import closest_match
from roost.operations import work_progress
from roost.operations.curves.history_cache import records_files
from roost.operations.plots.picture_file import AUTHOR, KINDS
from roost.operations.plots.plot_panels import Picture, build_picture, matches_any, with_groups
from roost.operations.plots.plot_view import PlotView
from roost.operations.plots.recorded_run import RecordedRun
from roost.operations.plots.setting_points import SettingPoints
from roost.operations.plots.system_panels import build_system_picture
from roost.operations.reading import package_schema
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.results import exports
from roost.package.session_schema import LIVE_STATES

_MAX_PICTURE_BYTES = 1 << 28
_POLL_SECONDS = 0.2
_MAX_LISTED = 20
"""Names of metrics in an error."""
_UNFINISHED_STATES = ("new", *LIVE_STATES)
_AS_IT_IS = PlotView()
_READING = "reading runs"


@dataclass(frozen=True)
class PlotResult:
    """A picture that was written."""

    path: str
    packages: list[str]
    panels: list[str]
    left_out: list[str]
    """The names of packages that have recorded none of the metrics."""
    step: int
    """The last step in the picture; 0 if it is of settings."""
    damaged: list[str]
    """For each package of whose rows some are evidently missing, which; and the damage of each that is left
    out for it."""
    notes: list[str]
    """What the picture does not show as it was recorded."""


def plot(
    packages: Sequence[Path | str],
    *,
    output: Path | None = None,
    names: Sequence[str] = (),
    view: PlotView = _AS_IT_IS,
    system: bool = False,
    overwrite: bool = False,
) -> PlotResult:
    """Draws all metrics of some packages: train, valid and test of one metric share a panel.

    Args:
        packages: One or several; several share the panels.
        names: Draw only these, which may be times and memory (``perf/…``); see `build_picture`.
        output: The picture; its ending (.png, .svg, .pdf) gives the format. Replaced if it is a picture of
            this function. None: ``exports/curves.png`` in the package, if it is one.
        view: How curves are presented.
        system: Draw system metrics; see `roost.operations.plots.system_panels.build_system_picture`.
        overwrite: Replace any file.

    Raises:
        NotFound: A package does not exist, no package has recorded anything, or a name matches no metric.
        UsageError: The ending is not a known format; or there are several packages and no ``output``.
        Refused: The package's ``exports`` cannot be written, or a newer roost has written the package, or it
            is in the trash; or ``output`` is another file.
        DamagedPackage: A file of the only package is not as roost writes it, or of each of several; of
            several, one that cannot be read is left out.
        RoostError: matplotlib is not installed.
        OSError: The picture cannot be written.
    """
    opened, damaged, output = _open_for_picture(packages, output, overwrite=overwrite)
    picture, damages = _read_picture(opened, names, view, system=system)
    return _draw(opened, output, picture, [*damaged, *damages])


def read_curves(
    packages: Sequence[Path | str],
    *,
    names: Sequence[str] = (),
    view: PlotView = _AS_IT_IS,
    system: bool = False,
) -> tuple[Picture, list[str]]:
    """Returns the content of the picture that `plot` draws, and the damage of the packages. For the arguments
    and errors see there."""
    opened, damaged = _open_packages(packages)
    picture, damages = _read_picture(opened, names, view, system=system)
    return picture, [*damaged, *damages]


def follow(
    packages: Sequence[Path | str],
    *,
    output: Path | None = None,
    names: Sequence[str] = (),
    view: PlotView = _AS_IT_IS,
    every_seconds: float = 5.0,
    overwrite: bool = False,
) -> Iterator[PlotResult | list[str]]:
    """Draws again after each new row while one of the packages runs or has not started, and once at the end.

    Args:
        packages: As in `plot`.
        output: As in `plot`; each picture replaces the previous one atomically.
        names: As in `plot`; a metric that is not recorded yet is no error.
        view: As in `plot`.
        every_seconds: The least time between two pictures; it grows with the time that drawing takes.
        overwrite: As in `plot`.

    Yields:
        Each picture. While nothing is recorded, once the names of the packages.

    Raises:
        RoostError, OSError: As `plot`; that nothing is recorded is an error only when all runs have ended.
    """
    opened, damaged, output = _open_for_picture(packages, output, overwrite=overwrite)
    is_waiting, drawn_state = False, None
    next_time = 0.0
    while True:
        # The states are read before the records, so that the last picture has the last rows.
        is_unfinished = any(package.state in _UNFINISHED_STATES for package in opened)
        now = time.monotonic()
        if not is_unfinished or now >= next_time:
            state = [(_records_sizes(package), _checkpoint_ids(package)) for package in opened]
            if state != drawn_state or not is_unfinished:
                if is_unfinished:
                    found, damages = build_picture(opened, names, view=view), list[str]()
                else:  # what is missing now is an error
                    found, damages = _read_picture(opened, names, view)
                if found.panels:
                    drawn_state = state
                    yield _draw(opened, output, found, [*damaged, *damages])
                elif not is_waiting:
                    is_waiting = True
                    yield [package.path.name for package in opened]
                next_time = time.monotonic() + max(every_seconds, time.monotonic() - now)
        if not is_unfinished:
            return
        time.sleep(_POLL_SECONDS)


def _records_sizes(package: PackageFolder) -> list[int]:
    """Returns the sizes of a package's records files, of which each new row changes one."""
    return [path.stat().st_size for path in records_files(package.path / "records")]


def _checkpoint_ids(package: PackageFolder) -> list[int]:
    """Returns the ids of a package's checkpoints, which the picture marks."""
    return checkpoint.ids(package.checkpoints) if package.checkpoints.is_dir() else []


SETTING_KINDS = ("scatter", "parallel")


def plot_settings(
    packages: Sequence[Path], points: SettingPoints, *, kind: str, output: Path, overwrite: bool = False
) -> PlotResult:
    """Draws settings against metrics, one point or line for each run.

    Args:
        packages: The packages of the points.
        points: From `roost.operations.plots.setting_points.read_points`.
        kind: One of `SETTING_KINDS`.
        output: As in `plot`.
        overwrite: As in `plot`.

    Raises:
        UsageError, NotFound, Refused, RoostError, OSError: As of `plot`, for ``output``.
    """
    check_output(output, overwrite=overwrite)
    from roost.operations.plots import setting_drawing

    draw = setting_drawing.draw_scatter if kind == "scatter" else setting_drawing.draw_parallel
    durable.discard_abandoned(output.absolute())
    durable.write(output, draw(points, output.suffix.removeprefix(".").lower()))
    return PlotResult(
        path=str(output.absolute()),
        packages=[str(path) for path in packages],
        panels=[axis.name for axis in points.metrics],
        left_out=points.left_out,
        step=0,
        damaged=[],
        notes=points.notes,
    )


def _open_packages(packages: Sequence[Path | str]) -> tuple[list[PackageFolder], list[str]]:
    """Opens the packages, and returns them and the damage of those that are left out for it."""
    opened: list[PackageFolder] = []
    damaged: list[str] = []
    for path in packages:
        try:
            opened.append(package_schema.open_checked(path))
        except RoostError as error:
            if len(damaged) + 1 == len(packages) or not Path(path).is_dir():
                raise
            damaged.append(f"{Path(path).name} is left out: {error.message}")
    return opened, damaged


def _open_for_picture(
    packages: Sequence[Path | str], output: Path | None, *, overwrite: bool
) -> tuple[list[PackageFolder], list[str], Path]:
    """Opens the packages for a picture, after a check that it can be written."""
    if output is not None:
        check_output(output, overwrite=overwrite)
    elif len(packages) > 1:
        raise UsageError("a picture of several packages has no place of its own", fix="add -o curves.png")
    opened, damaged = _open_packages(packages)
    if output is None:
        package_schema.require_changeable(opened[0].path)
        output = exports.export_path(opened[0], "curves.png", fix="name the picture: -o curves.png")
    durable.discard_abandoned(output.absolute())
    return opened, damaged, output


def check_output(output: Path, *, overwrite: bool) -> None:
    """Checks that a picture can be written: its format, its folder, matplotlib, and that no other file is
    replaced.

    Raises:
        UsageError: The ending is not a known format.
        NotFound: There is no such folder.
        Refused: The file exists, and `plot` has not written it.
        RoostError: matplotlib is not installed.
    """
    if output.suffix.removeprefix(".").lower() not in KINDS:
        fix = f"end the name in .{', .'.join(KINDS)}"
        raise UsageError(
            "the ending is no known format of a picture", setting="-o", received=str(output), fix=fix
        )
    if not output.absolute().parent.is_dir():
        raise NotFound(
            "there is no such folder", setting="-o", received=str(output.parent), fix="create it first"
        )
    if output.exists() and not overwrite and not _is_own_picture(output):
        raise Refused(
            "exists, and is no picture that `roost plot` has written", setting="-o", received=str(output),
            fix="give another name, or --overwrite",
        )  # fmt: skip
    if find_spec("matplotlib") is None:
        raise RoostError("plot needs matplotlib", fix="pip install 'roost[demo]', or --terminal")


def _is_own_picture(path: Path) -> bool:
    """Whether a file has the mark of `plot` in its metadata, or is empty."""
    try:
        data = safe_read.read(path, max_bytes=_MAX_PICTURE_BYTES)
    except OSError:  # not a file, or larger than any picture
        return False
    return not data or AUTHOR.encode() in data


def _read_picture(
    opened: Sequence[PackageFolder],
    names: Sequence[str],
    view: PlotView,
    *,
    system: bool = False,
) -> tuple[Picture, list[str]]:
    """Returns the picture of some packages, and which rows of theirs are missing."""
    if system:
        picture = build_system_picture(opened, names, view=view)
        if not picture.known:
            raise NotFound("no system metrics were measured", received=picture.left_out)
        _check_names(picture, names, opened)
        return picture, []
    runs: list[RecordedRun] = []

    def read(package: PackageFolder, x: str) -> RecordedRun:
        work_progress.report(_READING, len(runs), len(opened))
        runs.append(RecordedRun(package, x))
        return runs[-1]

    found = build_picture(opened, names, view=view, read=read)
    work_progress.report(_READING, len(opened), len(opened))
    _check_names(found, names, opened)
    damages = [(run.package.path.name, package_schema.records_damage(run.package, run.torn)) for run in runs]
    return found, [f"{name}: {damage}" for name, damage in damages if damage]


def _check_names(found: Picture, names: Sequence[str], opened: Sequence[PackageFolder]) -> None:
    """Raises an error if a name matches no metric, or nothing is recorded."""
    for name in names:
        if found.known and not any(matches_any(one, [name]) for one in found.known):
            is_group = any(one.startswith(f"{name}/") for one in found.known)
            near = f"'{name}/*'" if is_group else closest_match(name, with_groups(found.known))
            fix = f"did you mean {near}?" if near else f"there are: {_listed(found.known)}"
            raise NotFound("no metric of that name is recorded", setting="-m", received=name, fix=fix)
    if not found.panels:
        if found.notes:
            raise NotFound(found.notes[0], setting="--x", fix="leave out --x")
        raise NotFound("nothing is recorded yet", received=[package.path.name for package in opened])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _draw(
    opened: Sequence[PackageFolder], output: Path, found: Picture, damaged: Sequence[str]
) -> PlotResult:
    from roost.operations.plots import plot_drawing  # matplotlib takes half a second

    durable.write(output, plot_drawing.draw(found, output.suffix.removeprefix(".").lower()))
    return PlotResult(
        path=str(output.absolute()),
        packages=[str(package.path) for package in opened],
        panels=[panel.name for panel in found.panels],
        left_out=found.left_out,
        step=found.last_step,
        damaged=list(damaged),
        notes=found.notes,
    )
