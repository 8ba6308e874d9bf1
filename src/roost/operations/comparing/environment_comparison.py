"""The software and hardware in which runs began: what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.operations.comparing.comparison import EnvironmentDifference
from roost.operations.reading import package_schema
from roost.package.resume import environment

_PACKAGE = "package "
_FIELDS = {
    "roost": "roost",
    "python": "Python",
    "platform": "platform",
    "host": "host",
    "cpu": "CPU",
    "cpu_count": "CPU cores",
    "driver": "driver",
    "determinism": "determinism",
}


def describe_environment(package: Path, request: Mapping[str, Any]) -> dict[str, str] | None:
    """Returns the environment in which a run began, as texts by name; None before a worker has written it.

    Raises:
        Refused: environment.json is damaged.
    """
    found = environment.read_environment(package)
    if found is None:
        return None
    return {
        package_schema.printable(str(name)): package_schema.printable(text)
        for name, value in _facts(found, request)
        if value is not None and (text := str(value))
    }


def _facts(found: Mapping[str, Any], request: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield from ((label, found.get(key)) for key, label in _FIELDS.items())
    yield "GPUs", _format_gpus(found.get("gpus"))
    stack = found["stack"]
    yield from ((label, stack.get(key)) for key, label in environment.STACK_LABELS.items())
    git = request.get("git")
    if isinstance(git, Mapping):
        yield "git commit", git.get("commit")
        yield "uncommitted changes", {True: "yes", False: "no"}.get(bool(git.get("dirty")))
    for section, prefix in (("variables", "variable "), ("packages", _PACKAGE)):
        values = found.get(section)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            yield f"{prefix}{name}", value


def _format_gpus(found: object) -> str | None:
    """Returns ``2 x NVIDIA A100``; None without GPUs."""
    gpus = found if isinstance(found, list) else []
    names = Counter(str(one.get("name")) if isinstance(one, Mapping) else str(one) for one in gpus)
    return ", ".join(f"{count} x {name}" for name, count in names.items()) or None


def compare_environments(
    environments: Sequence[Mapping[str, str] | None], *, is_all: bool = False
) -> list[EnvironmentDifference]:
    """Returns the facts that differ between the runs whose environment is known, installed packages last.

    Args:
        environments: That of each run; None: it is not known.
        is_all: Whether to return equal facts, too.
    """
    known = [one for one in environments if one is not None]
    # An older roost recorded no packages: then nothing is known about one that is missing.
    listed = [
        at for at, one in enumerate(environments) if one and any(name.startswith(_PACKAGE) for name in one)
    ]
    names = dict.fromkeys(name for one in known for name in one)
    found = [
        EnvironmentDifference(
            name=name,
            values=[None if one is None else one.get(name) for one in environments],
            not_installed=[
                at for at in listed if name.startswith(_PACKAGE) and name not in (environments[at] or {})
            ],
        )
        for name in names
        if is_all or len({one.get(name) for one in known}) > 1
    ]
    return sorted(found, key=lambda one: one.name.startswith(_PACKAGE))
