"""The operation ``new``: a project from a template."""

# Not durable: removes a project that could not be completed

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.base.text.suggestions import did_you_mean

TEMPLATES = {
    "clean": "the smallest project that trains",
    "digits": "a CNN on the small digits of scikit-learn, without a download; learns in seconds",
    "dlnest": "the smallest project of DLNest's kind, without data",
    "dlnest-mnist": "a CNN on MNIST in DLNest's kind; without a network on the digits of scikit-learn",
    "experiment": "the digits as YAML alone, a base and variations, in the manner of SpeeChain's runner",
    "iterations": "the digits by steps and a sampling function, in the manner of CornerNet-Lite's train.py",
    "mnist": "a CNN on MNIST, which is downloaded once (11 MB); learns in a minute",
}
"""The templates, with a short description of each."""

_DISTRIBUTIONS = {b"sklearn": "scikit-learn"}
"""Packages that some templates import and roost does not install, with their names for pip."""

_PROJECT = b"${project}"
"""In a template's JSON files: the absolute path of the new project, as DLNest's README writes it."""

_TEMPLATES_FOLDER = Path(__file__).parents[2] / "templates"


@dataclass(frozen=True)
class CreatedProject:
    """A new project."""

    path: Path
    template: str
    files: list[str]
    """Relative to the project."""
    missing: list[str]
    """Packages that it imports and that are not installed, by their names for pip."""
    next_commands: list[str]
    """The next commands to type, in this order."""


def new_project(directory: Path, *, template: str = "digits") -> CreatedProject:
    """Copies a template into a folder, which must not exist or be empty.

    Raises:
        NotFound: There is no such template.
        Refused: The folder is not empty.
        OSError: The folder cannot be written; what was made is removed.
    """
    if template not in TEMPLATES:
        raise NotFound(
            "there is no such template",
            setting="--template",
            received=template,
            fix=f"{did_you_mean(template, TEMPLATES)}there are {', '.join(TEMPLATES)}",
        )
    if directory.is_dir() and any(directory.iterdir()):
        raise _not_empty(directory)
    source = _TEMPLATES_FOLDER / template
    # All that may fail and is not the new folder comes first: an error means that there is no project.
    tree = {
        path.relative_to(source): None if path.is_dir() else _fill_in(path, directory)
        for path in _tree(source)
    }
    files = [relative.as_posix() for relative, data in tree.items() if data is not None]
    missing = _missing_distributions(
        [data for relative, data in tree.items() if relative.suffix == ".py" and data]
    )
    write_tree(directory, tree)
    commands = list(_next_commands(directory, files, missing))
    return CreatedProject(directory.absolute(), template, files, missing, commands)


def write_tree(directory: Path, tree: Mapping[Path, bytes | None]) -> None:
    """Writes files (bytes) and folders (None), each folder before its contents; on failure removes what it
    made, as the next try would be refused for a folder that is not empty.

    Raises:
        Refused: One of the files exists.
        OSError: The folder cannot be written.
    """
    made = [one for one in (directory, *directory.parents) if not one.exists()][::-1]
    try:
        durable.make_folders(directory)
        for relative, data in tree.items():
            if data is None:
                made.append(directory / relative)
                durable.make_folder(directory / relative, exist_ok=True)
            else:
                _write(directory, relative, data)
                made.append(directory / relative)
    except (OSError, KeyboardInterrupt):
        _remove(made)
        raise


def _remove(made: Sequence[Path]) -> None:
    """Removes files and folders of a project that is not complete, each folder after its contents."""
    for path in reversed(made):
        with suppress(OSError):  # not made yet; or a folder that has other files by now
            path.rmdir() if path.is_dir() else path.unlink()


def no_plugins(setting: str, plugins: str) -> Refused:
    """Returns the error for a request to add plugins to a project: DLNest's programs have it, its README
    has not, and a config names its plugins."""
    return Refused(
        "plugins are not added to a project",
        setting=setting,
        received=plugins,
        fix='name them in root_config.json: "plugins": ["LogInit"], and their settings in "plugins_config"',
    )


def _fill_in(file: Path, directory: Path) -> bytes:
    """Returns a file of a template, with the path of the new project in a JSON file."""
    data = file.read_bytes()
    if file.suffix != ".json":
        return data
    return data.replace(_PROJECT, json.dumps(str(directory.absolute()))[1:-1].encode())


def _write(directory: Path, relative: Path, data: bytes) -> None:
    try:
        durable.write_new(directory / relative, [data])
    except (
        FileExistsError
    ):  # of several calls at the same time, only the one that wrote the first file continues
        raise _not_empty(directory) from None


def _not_empty(directory: Path) -> Refused:
    fix = "choose a new folder; nothing is overwritten"
    return Refused("the folder is not empty", where=directory, fix=fix)


def _missing_distributions(modules: Sequence[bytes]) -> list[str]:
    code = b"".join(modules)
    imported = (
        name for name in _DISTRIBUTIONS if re.search(rb"^ *(from|import) %b\b" % name, code, re.MULTILINE)
    )
    return [_DISTRIBUTIONS[name] for name in imported if importlib.util.find_spec(name.decode()) is None]


def _next_commands(directory: Path, files: list[str], missing: Sequence[str]) -> Iterator[str]:
    yield f"cd {shlex.quote(str(directory))}"
    if missing:
        yield f"pip install {' '.join(missing)}"
    config, packages = (
        ("root_config.json", "Saves") if "root_config.json" in files else ("config.yaml", "runs")
    )
    yield f"roost check {config}"
    yield f"roost run -c {config}"
    scripts = [Path(name).stem for name in files if name.startswith("AnalyzeScripts/")]
    if scripts:
        yield f"roost analyze {packages}/NAME -s {scripts[0]}"


def _tree(folder: Path) -> Iterator[Path]:
    """Yields the paths below a folder; each folder before its contents."""
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__":
            continue
        yield path
        if path.is_dir():
            yield from _tree(path)
