"""The data task, started by `roost show --data`: a report on the sets of a project."""

from __future__ import annotations

from roost.base.system.collector_pause import paused_collector
from roost.package.package import PackageFolder
from roost.worker.check.stages import begin_stages


def report_data(package: PackageFolder) -> str:
    """Builds the data in a package made for this report, draws from each set, and returns "finished".

    Raises:
        NotFound: The package has no session.
        RoostError: The config or the project is wrong.
        Exception: An error of the project's code.
    """
    request, reporter = begin_stages(package)
    with paused_collector():
        from roost.worker.data_report.report_builder import (
            DataReportBuilder,
        )  # imports torch, a second or two

    try:
        DataReportBuilder(package, request, reporter).run()
    except BaseException:
        reporter.fail()
        raise
    return "finished"
