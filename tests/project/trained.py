"""A package that was trained in this very process, in a second."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from roost.package.package import PackageFolder
from roost.project import native_project, trainer_assembly
from roost.project.package_context import package_code
from tests.project.projects import project


def trained(folder: Path, **options: Any) -> PackageFolder:
    """A package below ``folder``, trained to its end with a checkpoint every 2 steps, all of them kept."""
    made = project(folder, **{"checkpoint": {"every": "2", "fast": 9}, "test_at_end": "none", **options})
    number = made.new_session({"project": str(folder)})
    with package_code(made), contextlib.redirect_stdout(io.StringIO()):
        experiment = native_project.load(made, project=str(folder), device="cpu")
        assert trainer_assembly.assemble(experiment, made, session=number).fit() == "finished"
    return made
