"""One analysis, from its folder to its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roost.analysis import analysis_folder, script
from roost.analysis.analysis_run import Asked, perform
from roost.base.errors import NotFound, Refused
from roost.package import environment
from roost.package.package import Package
from roost.project import native_project
from roost.project.device_choice import choose_device
from roost.worker import torch_settings
from roost.worker.caller_watch import end_with_caller


def analyze(package: Package, place: Path) -> str:
    """Does what the request in ``place`` asks; gives "finished".

    Raises:
        RoostError: The package cannot be loaded, or the script has no `experience`.
        BaseException: Whatever the project's code or the script raises.
    """
    request = analysis_folder.read(place).request
    if not request:
        raise NotFound("there is no request", where=place)
    end_with_caller(request)
    asked = Asked(**{name: request[name] for name in Asked._fields})
    _, settings = native_project.resolved(package, str(asked.project))
    torch_settings.apply(settings, device=choose_device(asked.device), first=initial_environment(package))
    path = Path(request["script"]["path"])
    perform(
        package,
        place,
        asked,
        script=request["script"],
        function=lambda: script.load(place / analysis_folder.SCRIPT, path, package.path),
    )
    return "finished"


def initial_environment(package: Package) -> dict[str, Any] | None:
    """What the run began on (`roost.package.environment.began_on`); None where nobody can tell."""
    try:
        return environment.began_on(package.path)
    except (OSError, Refused):
        return None
