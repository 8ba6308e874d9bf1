"""A look at the data of a project: what `roost show --data` starts."""

from __future__ import annotations

from roost.package.package import PackageFolder
from roost.worker.check.stages import begin_stages


def report_data(package: PackageFolder) -> str:
    """Builds the data in a package that was made for that, and draws from each set; gives "finished".

    Raises:
        NotFound: The package has no session.
        RoostError: The config or the project is wrong.
        Exception: Whatever the project's code raises.
    """
    request, reporter = begin_stages(package)
    from roost.worker.data_report.report_builder import DataReportBuilder  # imports torch, a second or two

    try:
        DataReportBuilder(package, request, reporter).run()
    except BaseException:
        reporter.fail()
        raise
    return "finished"
