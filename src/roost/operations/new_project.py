"""``new``: a project from a template."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.base.suggest import proposal

_TEMPLATES = Path(__file__).parent.parent / "templates"


@dataclass(frozen=True)
class Created:
    """A new project."""

    path: Path
    template: str
    files: list[str]
    """Relative to the project."""
    next_command: str


def templates() -> list[str]:
    """The names of all templates."""
    return sorted(path.name for path in _TEMPLATES.iterdir() if (path / "config.yaml").is_file())


def new_project(directory: Path, *, template: str = "digits") -> Created:
    """Copies a template into a folder, which must not exist or be empty.

    Raises:
        NotFound: There is no such template.
        Refused: The folder holds something.
        OSError: It cannot be written.
    """
    if template not in templates():
        raise NotFound(
            "there is no such template",
            setting="--template",
            received=template,
            fix=f"{proposal(template, templates())}there are {', '.join(templates())}",
        )
    if directory.is_dir() and any(directory.iterdir()):
        raise Refused(
            "the folder is not empty", where=directory, fix="choose a new one; nothing is overwritten"
        )
    source = _TEMPLATES / template
    _make_folders(directory)
    files = []
    for path in _tree(source):
        relative = path.relative_to(source)
        if path.is_dir():
            durable.make_folder(directory / relative, exist_ok=True)
        else:
            durable.write_new(directory / relative, [path.read_bytes()])
            files.append(relative.as_posix())
    return Created(
        directory.absolute(), template, files, f"cd {shlex.quote(str(directory))} && roost run -c config.yaml"
    )


def _make_folders(directory: Path) -> None:
    for folder in reversed([directory, *directory.absolute().parents]):
        if not folder.is_dir():
            durable.make_folder(folder, exist_ok=True)


def _tree(folder: Path) -> Iterator[Path]:
    """Folders before what is in them."""
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__":
            continue
        yield path
        if path.is_dir():
            yield from _tree(path)
