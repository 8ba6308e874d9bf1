"""The tuning task, started by `roost tune`: measured sweeps of settings."""

from __future__ import annotations

from roost.base.system.collector_pause import paused_collector
from roost.package import live_progress
from roost.package.package import PackageFolder
from roost.worker.check.stages import begin_stages


def tune(package: PackageFolder) -> str:
    """Measures the requested sweeps in a package made for them, and returns "finished".

    Raises:
        NotFound: The package has no session.
        RoostError: The config or the project is wrong, or the time did not suffice for one measurement.
        Exception: An error of the project's code with the settings of the config.
    """
    live_progress.reset(package.progress)
    request, reporter = begin_stages(package)
    with paused_collector():
        from roost.worker.tuning.tuning_run import TuningRun  # imports torch, a second or two

    try:
        TuningRun(package, request, reporter).run()
    except BaseException:
        reporter.fail()
        raise
    return "finished"
