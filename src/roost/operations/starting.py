"""The last steps of everything that starts a session: its request, its environment, its supervisor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.lab import start
from roost.lab.supervisor import Spec
from roost.package import names
from roost.package.package import Package


@dataclass
class Started:
    """A session that runs by itself from now on, or none because there was nothing to do."""

    package: Path
    session: int | None = None
    """The session's number; None when the run had ended before."""
    pid: int | None = None
    """The supervisor's."""
    process: subprocess.Popen[bytes] | None = None
    """The supervisor, for whoever waits for it."""
    output_offset: int = 0
    """Where in the output this session begins, in bytes."""
    is_new: bool = False
    """Whether the package was made by this call."""
    notes: list[str] = field(default_factory=list)
    """What a person should hear about it, one line each."""


def begin(package: Package, lock_fd: int, request: Mapping[str, Any], *, seed: int) -> Started:
    """Adds a session to a package and starts it.

    Args:
        package: The package.
        lock_fd: Holds the package's lock. The supervisor gets a copy; the caller then closes its own, which
            would keep the package locked after the run.
        request: What is asked of this session.
        seed: The seed in effect; fixes the order of sets and of text hashes too.

    Raises:
        OSError: The request cannot be written.
        RoostError: The supervisor did not start.
    """
    number = package.new_session(request)
    offset = package.output.stat().st_size if package.output.exists() else 0
    spec = Spec(
        argv=[sys.executable, "-P", "-m", "roost.worker", str(package.path), str(number)],
        cwd=str(package.path),
        env=environment(seed=seed, cpu=request.get("device") == "cpu"),
        package=str(package.path),
        session=number,
        output=str(package.output),
        session_file=str(package.path / "sessions" / f"{number}.json"),
    )
    process = start.start(spec, lock_fd=lock_fd)
    return Started(package.path, number, process.pid, process, offset)


def environment(*, seed: int, cpu: bool) -> dict[str, str]:
    """The worker's environment: the caller's, with what makes the run repeatable.

    No bytecode is written, so none lands in the package. PYTHONPYCACHEPREFIX would send it elsewhere, but
    would have torch compiled anew too: 1.3 s more, and at every start where bytecode is switched off.
    """
    return {
        **os.environ,
        "PYTHONHASHSEED": str(seed % 2**32),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **({"CUDA_VISIBLE_DEVICES": ""} if cpu else {}),
    }


def write_description(package: Package, description: str | None) -> None:
    """The marker file of document 000: an empty-handed look at the folder tells what the run is about.

    Raises:
        OSError: It cannot be written.
        UsageError: The description makes no file name.
    """
    if description:
        name = f"_desc: {names.folder_name(description)}"
        durable.write(package.path / name, description.encode() + b"\n")
