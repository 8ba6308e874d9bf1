"""The operation ``doctor``: examines the machine, the installation, the lab, and one package or config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from roost.base.errors import NotFound, RoostError
from roost.base.system import state_folder
from roost.config import layers
from roost.operations import resolve, work_progress
from roost.operations.doctor.diagnosis import Diagnosis, DoctorCheck, DoctorSubject, warning
from roost.operations.doctor.doctor_checks import CHECKS
from roost.operations.doctor.driver_facts import ask_driver
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training

_CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
_DEFAULT_ROOT = Path("runs")


class DoctorReport(msgspec.Struct, frozen=True):
    """The lines of all checks, in their order."""

    lines: list[Diagnosis]

    def count(self, level: str) -> int:
        """Returns how many lines have a level."""
        return sum(line.level == level for line in self.lines)


def examine(target: str | None = None, *, checks: Sequence[DoctorCheck] = CHECKS) -> DoctorReport:
    """Runs all checks; a check that fails is a line, too.

    Args:
        target: A package, as `show` takes it, or the file of a config; None: the machine and the lab.
        checks: The checks.

    Raises:
        NotFound: The target is neither.
    """
    subject = replace(_subject(target), driver=ask_driver())
    lines: list[Diagnosis] = []
    for done, check in enumerate(checks):
        work_progress.report("checks", done, len(checks))
        lines += _carry_out(check, subject)
    work_progress.report("checks", len(checks), len(checks))
    return DoctorReport(lines)


def _carry_out(check: DoctorCheck, subject: DoctorSubject) -> Iterator[Diagnosis]:
    try:
        found = list(check.judge(check.read(subject)))
    except (RoostError, OSError) as error:
        found = [warning(f"it could not be examined: {error}", "see the reason")]
    return (msgspec.structs.replace(one, topic=check.topic, check=check.name) for one in found)


def _subject(target: str | None) -> DoctorSubject:
    lab_folder = state_folder.lab_folder()
    if target is None:
        return DoctorSubject(save_root=_DEFAULT_ROOT.absolute(), lab_folder=lab_folder)
    path = Path(target)
    if path.suffix in _CONFIG_SUFFIXES and not path.is_dir():
        if not path.is_file():
            raise NotFound("there is no such config", received=target, fix="name a config or a package")
        return _config_subject(path, lab_folder)
    package = resolve.find_package(target)
    subject = DoctorSubject(save_root=package.parent, lab_folder=lab_folder, package=package)
    try:
        return _with_loader(subject, PackageFolder.open(package).settings)
    except (RoostError, OSError, ValueError):  # shown by the check of the package
        return subject


def _config_subject(path: Path, lab_folder: Path) -> DoctorSubject:
    try:
        config = layers.load(path)
        root = prepare_training(config).root
    except (RoostError, OSError):  # shown by the check of the config
        return DoctorSubject(save_root=_DEFAULT_ROOT.absolute(), lab_folder=lab_folder, config=path)
    return _with_loader(DoctorSubject(save_root=root, lab_folder=lab_folder, config=path), config.values)


def _with_loader(subject: DoctorSubject, settings: Mapping[str, Any]) -> DoctorSubject:
    """Returns the subject with the loader workers that the settings request."""
    section = settings.get("data")
    data = section if isinstance(section, dict) else {}
    workers, prefetch = data.get("num_workers"), data.get("prefetch")
    return replace(
        subject,
        num_workers=workers if isinstance(workers, int) else 0,
        prefetch=prefetch if isinstance(prefetch, int) else subject.prefetch,
    )
