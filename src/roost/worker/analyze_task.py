"""The analysis task: runs the script that the request in an analysis folder names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, script
from roost.analysis.analysis_run import AnalysisRequest, run_analysis
from roost.base.errors import NotFound, Refused
from roost.package.package import PackageFolder
from roost.package.project_preflight import parse_package_settings
from roost.package.resume import environment
from roost.package.setting_locations import setting_locations
from roost.project.device_choice import choose_device
from roost.worker import torch_settings
from roost.worker.caller_watch import end_with_caller


def analyze(package: PackageFolder, folder: Path) -> str:
    """Runs the analysis that the request in ``folder`` describes, and returns "finished".

    Raises:
        RoostError: The package cannot be loaded, or the script has no `experience`.
        BaseException: An error of the project's code or of the script.
    """
    request = analysis_folder.read(folder).request
    if not request:
        raise NotFound("there is no request", where=folder)
    end_with_caller(request)
    analysis = AnalysisRequest(**{name: request[name] for name in AnalysisRequest._fields if name in request})
    settings = parse_package_settings(
        package,
        package.settings,
        project=Path(analysis.project or package.project),
        folder=str(package.path),
        where=setting_locations(package),
    )
    torch_settings.apply(settings, device=choose_device(analysis.device), first=initial_environment(package))
    path = Path(request["script"]["path"])
    run_analysis(
        package,
        folder,
        analysis,
        script=request["script"],
        function=lambda: script.load(folder / analysis_folder.SCRIPT, path, package.path),
    )
    return "finished"


def initial_environment(package: PackageFolder) -> dict[str, Any] | None:
    """Returns environment.json of the run's first session; None if it is missing or cannot be read."""
    try:
        return environment.read_environment(package.path)
    except (OSError, Refused):
        return None
