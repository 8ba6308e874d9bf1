"""The relations between runs: forks, sweeps, and runs that differ only in their seed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import NotFound, UsageError
from roost.base.text.typed_path import typed_path
from roost.operations import resolve
from roost.operations.comparing.compared_run import RunContent
from roost.operations.comparing.comparison import CommonParent, ForkRelation, RunRelation, SettingDifference
from roost.operations.comparing.setting_comparison import differs_in_effect, is_seed
from roost.operations.reading import package_schema
from roost.package import lineage
from roost.package.kinds import PackageKind
from roost.package.lineage import ForkParent

_MAX_PAIRS = 64
"""Among more runs, forks are not looked for."""


def relate(
    runs: Sequence[RunContent], differences: Sequence[SettingDifference], same_code: bool | None
) -> RunRelation:
    """Returns the relations between runs.

    Args:
        runs: The runs.
        differences: The settings that differ.
        same_code: Whether all have the same code; None: it is not known.
    """
    sweeps = {one.summary.sweep for one in runs}
    (sweep,) = sweeps if len(sweeps) == 1 else (None,)
    is_known = all(one.settings is not None and one.kind is not PackageKind.IMPORT for one in runs)
    changes = [one for one in differences if differs_in_effect(one)]
    return RunRelation(
        sweep=sweep,
        sweep_name=runs[0].summary.sweep_name if sweep is not None else None,
        forks=_forks(runs) if len(runs) <= _MAX_PAIRS else [],
        common_parent=_common_parent(runs),
        same_settings=not changes if is_known else None,
        only_seed=is_known and bool(changes) and all(map(is_seed, changes)) and bool(same_code),
    )


def _forks(runs: Sequence[RunContent]) -> list[ForkRelation]:
    found = []
    for at, run in enumerate(runs):
        for above, parent in enumerate(run.ancestry):
            position = next((n for n, one in enumerate(runs) if n != at and _is_parent(one, parent)), None)
            if position is not None:
                step = min(one.step for one in run.ancestry[: above + 1])
                changed = parent.changed if above == 0 else []
                found.append(ForkRelation(fork=at, parent=position, step=step, changed=changed))
                break
    return found


def _is_parent(run: RunContent, parent: ForkParent) -> bool:
    """Whether a run is this parent of a fork, at its former path or moved."""
    path = run.package.path
    if package_schema.printable(path.name) != parent.package:
        return False
    there = Path(parent.path)
    try:
        return there.samefile(path)
    except (OSError, ValueError):  # the parent was moved
        return True


def _common_parent(runs: Sequence[RunContent]) -> CommonParent | None:
    """Returns the nearest package from which all runs were forked; None if there is none."""
    steps: list[dict[tuple[str, str], int]] = []
    for run in runs:
        mine: dict[tuple[str, str], int] = {}
        for at, one in enumerate(run.ancestry):
            mine.setdefault((one.package, one.path), min(above.step for above in run.ancestry[: at + 1]))
        steps.append(mine)
    for parent in steps[0]:
        if all(parent in mine for mine in steps):
            return CommonParent(package=parent[0], step=min(mine[parent] for mine in steps))
    return None


def find_parent(package: Path) -> Path:
    """Returns the package from which a fork was made, at its former path or next to the fork.

    Raises:
        UsageError: The package is not a fork.
        NotFound: Its parent was moved or removed.
    """
    request = package_schema.load(package, "request.json") if resolve.is_package(package) else {}
    parent = next(iter(lineage.ancestry_of_request(request)), None)
    fix = "name a second package: roost compare A B"
    if parent is None:
        raise UsageError("one package was named, and it is not a fork", received=str(package), fix=fix)
    beside = typed_path(package).absolute().parent / parent.package
    for path in (Path(parent.path), beside):
        if resolve.is_package(path):
            return path
    raise NotFound(
        "the package from which it was forked is neither there nor next to it", received=parent.path, fix=fix
    )
