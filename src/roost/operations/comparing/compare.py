"""``compare``: what differs between runs in settings, metrics, code and environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import NotFound, UsageError
from roost.operations import work_progress
from roost.operations.comparing import compared_run
from roost.operations.comparing.code_comparison import compare_code
from roost.operations.comparing.comparison import PackageComparison
from roost.operations.comparing.curve_comparison import compare_curves
from roost.operations.comparing.environment_comparison import compare_environments
from roost.operations.comparing.metric_comparison import MetricTable
from roost.operations.comparing.run_relation import find_parent, relate
from roost.operations.comparing.setting_comparison import compare_settings, num_equal


def compare(
    packages: Sequence[Path | str],
    *,
    metrics: Sequence[str] = (),
    step: int | None = None,
    diff: Sequence[str] | None = None,
    is_all: bool = False,
) -> PackageComparison:
    """Compares packages. A single fork is compared with its parent.

    Only files of the packages are read, and no code of them is executed. What cannot be read of a damaged
    package is named (`ComparedRun.unreadable`), and the rest is compared.

    Args:
        packages: Their paths.
        metrics: Compare only these, by name or pattern as `roost.operations.plots.plot.plot` takes them;
            empty: all but times (``perf/…``) and statistics (``stats/…``).
        step: The step of the common values; None: the last one that all runs with records have reached.
        diff: The files whose lines are compared, by path or pattern; empty: all that differ; None: none.
        is_all: Whether to return equal settings and equal facts of the environment, too.

    Raises:
        UsageError: There is one package only, and it is not a fork.
        NotFound: No package can be read; or a metric or file does not exist.
    """
    paths = _distinct([Path(one) for one in packages])
    contents = [compared_run.read_run(path) for path in work_progress.track(paths, "reading packages")]
    compared_run.require_readable(contents)
    table = MetricTable(contents, step=step, names=metrics)
    for position, run in enumerate(work_progress.track(contents, "reading records")):
        table.add(position, run)
    table.require_names()
    settings, code = compare_settings(contents), compare_code(contents, diff=diff)
    return PackageComparison(
        runs=[run.describe() for run in contents],
        relation=relate(contents, settings, code.is_same),
        settings=compare_settings(contents, is_all=True) if is_all else settings,
        num_equal_settings=num_equal(contents, {one.name for one in settings}),
        step=table.step,
        metrics=table.comparisons(),
        num_metrics_left_out=table.num_left_out,
        curves=compare_curves(contents[0], contents[1]) if len(contents) == 2 else None,
        code=code,
        environment=compare_environments([run.environment for run in contents], is_all=is_all),
    )


def _distinct(packages: Sequence[Path]) -> list[Path]:
    """Returns each package once, and to a single one its parent, before it.

    Raises:
        UsageError: A single package is no fork, or was named several times.
        NotFound: Its parent does not exist any more, or there is no package.
    """
    by_place: dict[str, Path] = {}
    for path in packages:
        by_place.setdefault(os.path.realpath(path), path)
    found = list(by_place.values())
    if not found:
        raise NotFound("there is no package to compare")
    if len(found) == 1 < len(packages):
        raise UsageError(
            "the same package was named several times", received=str(found[0]), fix="name another one"
        )
    return [find_parent(found[0]), *found] if len(found) == 1 else found
