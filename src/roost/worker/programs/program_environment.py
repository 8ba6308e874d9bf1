"""The environment of a program: its interpreter and packages, and the machine, in ``environment.json``."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.package import sessions
from roost.package.resume import environment

_SECONDS = 30.0
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*")
_FACTS = """
import json, platform, sys
from importlib import metadata
found = {one.metadata["Name"]: one.version for one in metadata.distributions()}
packages = {name: version for name, version in sorted(found.items()) if name}
print(json.dumps({"python": platform.python_version(), "executable": sys.executable, "packages": packages}))
"""


def record(package: Path, command: Sequence[str]) -> None:
    """Writes the environment of a program into its package, once. What cannot be found out is left out.

    Args:
        package: The package.
        command: The command line of the program.
    """
    path = package / environment.NAME
    if path.exists():
        return
    with contextlib.suppress(OSError):  # a full disk
        durable.write(path, sessions.to_json(environment.capture_program(_interpreter_facts(command))))


def _interpreter_facts(command: Sequence[str]) -> dict[str, Any]:
    if not _INTERPRETER.fullmatch(Path(command[0]).name):
        return {}
    try:
        found = subprocess.run(
            [command[0], "-c", _FACTS], capture_output=True, timeout=_SECONDS, check=True
        ).stdout
        return dict(json.loads(found))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError):
        return {}
