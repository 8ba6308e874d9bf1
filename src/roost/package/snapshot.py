"""The copy of the project that a run imports from: what goes in, the copying, and what changed since."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError, NotFound

MAX_FILE_MB = 10.0
"""A larger file is data, not code: it is linked, not copied, unless the config names it."""

MAX_FILES = 20_000

_JUNK = frozenset(
    [".git", ".hg", ".svn", ".venv", "venv", "env", "node_modules", "__pycache__", ".ipynb_checkpoints"]
    + [".mypy_cache", ".ruff_cache", ".pytest_cache", ".idea", ".vscode", ".DS_Store", ".tox", ".cache"]
)
_CHUNK = 1 << 20


@dataclass
class Selection:
    """What of a project is copied, linked and left out; paths are relative to the project."""

    project: Path
    files: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)


def select(project: Path, *, named: Iterable[Path] = (), exclude: Iterable[Path] = ()) -> Selection:
    """Chooses what to copy: what the config names, united with what git knows (tracked, and untracked but
    not ignored), or without git the tree minus the usual junk.

    Large files and folders that git ignores (data, usually) are linked, so that the run finds them.

    Args:
        project: The project's folder.
        named: Files and folders that must be in, for example the runner's; absolute paths.
        exclude: Folders that must stay out, for example the save root; absolute paths.

    Raises:
        NotFound: A named file does not exist.
        ConfigError: A named file lies outside the project, or there are too many files.
    """
    project = project.resolve()
    excluded = {path.resolve() for path in exclude}
    must = {_inside(project, path) for path in named}
    selection = Selection(project)
    for name in sorted({*_known(project), *must}):
        path = project / name
        if _skipped(name, project, excluded) and name not in must:
            continue
        if path.is_symlink() and not path.resolve().is_relative_to(project):
            selection.links[name] = str(path.resolve())
        elif path.is_symlink() or path.is_file():
            _add(selection, name, keep=name in must)
    if len(selection.files) > MAX_FILES:
        raise ConfigError(
            f"the project has {len(selection.files)} files, more than {MAX_FILES}",
            where=project,
            fix="put data into a folder that .gitignore names; it is then linked, not copied",
        )
    _link_the_rest(selection, excluded)
    return selection


def _inside(project: Path, path: Path) -> str:
    if not path.exists():
        raise NotFound("the file does not exist", received=str(path), fix="correct the path in the config")
    resolved = path.resolve()
    if not resolved.is_relative_to(project):
        raise ConfigError(
            "lies outside the project, so the package would not hold it",
            received=str(path),
            where=project,
            fix="move it into the project's folder",
        )
    return resolved.relative_to(project).as_posix()


def _known(project: Path) -> list[str]:
    listing = ["git", "-C", str(project), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(listing, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return list(_walk(project))
    if result.returncode != 0:
        return list(_walk(project))
    return [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]


def _walk(project: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(project):
        folders[:] = sorted(name for name in folders if name not in _JUNK)
        relative = Path(folder).relative_to(project)
        # A link to a folder is listed among the folders and not entered: it is an entry of its own.
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from ((relative / name).as_posix() for name in [*files, *links])


def _skipped(name: str, project: Path, excluded: set[Path]) -> bool:
    parts = Path(name).parts
    if any(part in _JUNK or part.endswith(".egg-info") for part in parts) or name.endswith((".pyc", ".pyo")):
        return True
    path = project / name
    return any(folder in excluded for folder in [path, *path.parents])


def _add(selection: Selection, name: str, *, keep: bool) -> None:
    path = selection.project / name
    size = path.lstat().st_size
    if size > MAX_FILE_MB * 2**20 and not keep:
        selection.links[name] = str(path)
        selection.left_out.append({"path": name, "bytes": size, "reason": f"larger than {MAX_FILE_MB:g} MB"})
    else:
        selection.files.append(name)


def _link_the_rest(selection: Selection, excluded: set[Path]) -> None:
    """Top-level entries of which nothing was chosen (ignored data folders) are linked."""
    present = {Path(name).parts[0] for name in [*selection.files, *selection.links]}
    for path in sorted(selection.project.iterdir()):
        name = path.name
        if name in present or _skipped(name, selection.project, excluded) or name.startswith("."):
            continue
        if path.is_dir() and not any(path.iterdir()):
            continue
        selection.links[name] = str(path.resolve())
        selection.left_out.append({"path": name, "reason": "ignored by git, or no plain file"})


def copy(selection: Selection, target: Path) -> dict[str, Any]:
    """Copies the selection into ``target`` and gives the manifest: every file with size and sha256,
    what was left out and why, and the links. Never hard-links: a later edit would reach the package.

    Raises:
        OSError: A file cannot be read or written.
    """
    made = {target}
    files: dict[str, Any] = {}
    for name in selection.files:
        destination = target / name
        if destination.parent not in made:
            destination.parent.mkdir(parents=True, exist_ok=True)
            made.add(destination.parent)
        files[name] = _copy_file(selection.project / name, destination)
    for name, to in selection.links.items():
        link = target / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(to)
    return {"format": 1, "files": files, "links": selection.links, "left_out": selection.left_out}


def _copy_file(source: Path, destination: Path) -> dict[str, Any]:
    if source.is_symlink():
        to = os.readlink(source)
        destination.symlink_to(to)
        return {"link": to}
    digest, size = hashlib.sha256(), 0
    source_fd = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        mode = 0o755 if os.fstat(source_fd).st_mode & 0o100 else 0o644
        destination_fd = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            while chunk := os.read(source_fd, _CHUNK):
                digest.update(chunk)
                size += len(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[os.write(destination_fd, view) :]
        finally:
            os.close(destination_fd)
    finally:
        os.close(source_fd)
    return {"size": size, "sha256": digest.hexdigest()}


def changed(package: Path, manifest: dict[str, Any]) -> list[str]:
    """The copied files that are gone or hold something else than when they were copied."""
    return [name for name, entry in manifest["files"].items() if not _same(package / name, entry)]


def _same(path: Path, entry: dict[str, Any]) -> bool:
    if "link" in entry:
        return path.is_symlink() and os.readlink(path) == entry["link"]
    if not path.is_file() or path.stat().st_size != entry["size"]:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry["sha256"]


def renew_links(package: Path, manifest: dict[str, Any], project: Path) -> list[str]:
    """Points the links at ``project`` where they lead nowhere; gives those that still lead nowhere.

    For a package or a project that was moved.
    """
    broken = []
    for name in manifest["links"]:
        link = package / name
        if not link.exists() and (project / name).exists():
            link.unlink(missing_ok=True)
            link.symlink_to(project / name)
        if not link.exists():
            broken.append(name)
    return broken
