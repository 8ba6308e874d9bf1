"""The copy of the project from which a run imports: selects the files, copies them, finds later changes."""

# Not durable: copies thousands of files in bulk; a digest detects what a power cut tears

# For thousands of files, creating Path objects would cost as much as copying the files.
# ruff: noqa: PTH103, PTH110, PTH112, PTH113, PTH114, PTH115, PTH118, PTH120, PTH208, PTH211

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from roost.base import durable
from roost.base.errors import ConfigError, NotFound
from roost.base.text.byte_sizes import format_bytes
from roost.base.text.word_list import join_names
from roost.package import sessions

MAX_FILE_MB = 10.0
"""A larger file is data, not code: it is linked, not copied, unless the config names it."""

_LARGE_FILE_MB, _LARGE_COPY_MB = 1.0, 10.0
"""A copy with a file of this size, or of this size in all, is reported: each run repeats it."""

MAX_TOTAL_MB = 1000.0
MAX_FILES = 20_000
"""A project with more than this is refused: every run would copy its data."""

_JUNK = {
    ".git", ".hg", ".svn", ".idea", ".vscode", ".DS_Store", ".cache", ".tox", "node_modules", "__pycache__",
    ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache", ".pytest_cache",
}  # fmt: skip
_PACKAGE_NAMES = {
    "args.json", "request.json", "provenance.json", "manifest.json", "environment.json", "_package.json",
    "_output.txt", sessions.LOCK_NAME, "progress", "sessions", "records", "media", "Checkpoints", "blackbox",
    "skipped.jsonl", "init_from.json", "staged.json", "_model.txt", "_labels.json", "_pruned.json",
}  # fmt: skip
"""Names of the package's own files at its top level, next to the project's files."""
RESERVED_NAMES = frozenset(
    _PACKAGE_NAMES | {"analysis", "analyzers", "exports", "predictions", "profile", "mirrors"}
)
"""`_PACKAGE_NAMES`, and folders that may be added later. A project may have these folders too: the numbered
folders of analyses do not collide with a project's code in ``analysis/``, nor do those of analyzers,
predictions, profiles and mirrors; an export that would replace a copied file is refused."""
_NEVER_LINKED = RESERVED_NAMES | {"tensorboard"}
"""Names that must not be links, through which the run would write into the project. ``tensorboard`` there
probably has event files of other runs."""
_CHUNK = 1 << 20
_MAX_LARGE_SHOWN = 3
_ENDING = re.compile(r"\*(\.\w+)+")
_MAX_SYNCED_FILES = 200
"""Up to this number, files are synced one by one: 0.2 ms each on an idle disk, 3 ms on a busy one. Of a
larger project, only the files that the config names are synced; the kernel writes the rest within half a
minute, and a digest detects what a power cut tears before that."""


@dataclass
class Selection:
    """The files of a project to copy, to link and to leave out; paths are relative to the project."""

    project: Path
    files: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    """The copied files that the config names."""
    links: dict[str, str] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0
    """Bytes of the files to copy."""
    large: dict[str, int] = field(default_factory=dict)
    """Bytes of the files to copy that are worth a note."""
    outside: dict[str, str] = field(default_factory=dict)
    """The sources of copied files that the project does not have at their place, by their place."""

    def left_out_notes(self) -> list[str]:
        """Returns a line about what is linked, and one about what is left out, with the reasons."""
        linked, absent = list[str](), list[str]()
        for one in self.left_out:
            (linked if one["path"] in self.links else absent).append(f"{one['path']} ({one['reason']})")
        return [
            f"{what}: {join_names(sorted(names), _MAX_LARGE_SHOWN)}"
            for what, names in (("linked, not copied", linked), ("left out", absent))
            if names
        ]

    def leave_out(self, name: str, reason: str) -> None:
        """Leaves out what would be linked."""
        del self.links[name]
        self._forget(name)
        self.left_out.append({"path": name, "reason": reason})

    def copy_instead(self, name: str) -> None:
        """Copies a file that would be linked, if the copy does not become too large; else it stays a link."""
        size = Path(self.links[name]).stat().st_size
        if self.size + size > MAX_TOTAL_MB * 2**20:
            return
        del self.links[name]
        self._forget(name)
        _add_file(self, name, size)
        self.files.sort()

    def _forget(self, name: str) -> None:
        self.left_out = [one for one in self.left_out if one["path"] != name]

    def source(self, name: str) -> Path:
        """Returns the file of which a copied file is a copy."""
        return Path(self.outside.get(name, self.project / name))

    def reserved_names(self) -> set[str]:
        """Returns the names at the top that the package reserves."""
        return _PACKAGE_NAMES & {name.partition("/")[0] for name in [*self.files, *self.links]}

    def moved_into(self, folder: str) -> Selection:
        """Returns the same selection for a copy in a folder of the package, where no name is reserved."""

        def moved(name: str) -> str:
            return f"{folder}/{name}"

        return Selection(
            self.project,
            files=[moved(name) for name in self.files],
            named=[moved(name) for name in self.named],
            links={moved(name): to for name, to in self.links.items()},
            left_out=[{**one, "path": moved(one["path"])} for one in self.left_out],
            size=self.size,
            large={moved(name): size for name, size in self.large.items()},
            outside={moved(name): str(self.source(name)) for name in self.files},
        )

    def size_note(self) -> str | None:
        """Returns a line about the size of the copy, if it is large or has a large file."""
        if not self.large and self.size < _LARGE_COPY_MB * 2**20:
            return None
        largest = sorted(self.large.items(), key=lambda one: -one[1])[:_MAX_LARGE_SHOWN]
        shown = ", ".join(f"{name} {format_bytes(size)}" for name, size in largest)
        more = " …" if len(self.large) > len(largest) else ""
        which = f", of which {shown}{more}" if shown else f" in {len(self.files):,} files"
        return f"each run copies {format_bytes(self.size)}{which}; what .gitignore names is linked instead"


def select(
    project: Path,
    *,
    named: Iterable[Path] = (),
    exclude: Iterable[Path] = (),
    outside: Mapping[str, Path] = MappingProxyType({}),
    only_named_must_fit: bool = False,
    may_have_reserved_names: bool = False,
) -> Selection:
    """Selects the files to copy: those that the config names, and those that git knows (tracked, and
    untracked but not ignored). Without git: all files, except caches and other junk, and what .gitignore
    contains without wildcards or as an ending (``*.pt``).

    Large files and ignored files (usually data) are linked, so that the run finds them. Submodules and nested
    repositories are part of the project; Python environments and other packages are not.

    Args:
        project: The project's folder.
        named: Files and folders that must be copied, for example the runner's; absolute paths.
        exclude: Folders that must be left out, for example the save root; absolute paths.
        outside: Files and folders that must be copied, although the project does not have them: by their
            places in the package.
        only_named_must_fit: Whether all other files are optional: what cannot be copied is linked or left
            out, and does not make the selection fail.
        may_have_reserved_names: Whether names that the package reserves are accepted, because the caller
            copies into a folder of the package (`Selection.moved_into`).

    Raises:
        NotFound: A named file does not exist.
        ConfigError: A named file is outside the project, there is too much to copy, or a file has a name
            that the package reserves; or the project is the root folder.
        OSError: A folder cannot be read.
    """
    project = project.resolve()
    root = str(project)
    if root == project.anchor:
        raise ConfigError(
            "the root folder cannot be a project",
            where=project,
            fix="put the project into a folder of its own",
        )
    exclusions = _Exclusions(root, {str(path.resolve()) for path in exclude}, tolerates=only_named_must_fit)
    must = {name for path in named for name in _inside(project, path, exclusions)}
    selection = Selection(project)
    for place, path in outside.items():
        _add_outside(selection, place, path, exclusions)
    for name in must:
        _add(selection, name, exclusions, keep=True)
    must.update(selection.outside)
    for name in _project_files(root, exclusions):
        # A link that the config names is copied as what it leads to.
        if name not in must and name not in outside and not exclusions.file(f"{root}/{name}"):
            _add(selection, name, exclusions)
    selection.files = sorted({*selection.files})  # a named file of a submodule came twice
    selection.named = sorted(must.intersection(selection.files))
    if only_named_must_fit:
        _leave_out_excess(selection)
    if (taken := selection.reserved_names()) and not may_have_reserved_names:
        raise ConfigError(
            f"the project contains {', '.join(sorted(taken))}, a name that the package reserves",
            where=project,
            fix="rename it, or add it to .gitignore",
        )
    selection.left_out += [{"path": name, "reason": "cannot be read"} for name in exclusions.unreadable]
    selection.links |= {name: f"{root}/{name}" for name in exclusions.unreadable}
    _link_other_files(selection, exclusions)
    if not only_named_must_fit:
        _require_copyable_size(selection)
    return selection


def _leave_out_excess(selection: Selection) -> None:
    """Links, in place of copying, what is too much: the folders without a named file that have the largest
    share, until the rest may be copied. Leaves out what has a name that the package reserves."""
    tops = {name.partition("/")[0] for name in [*selection.files, *selection.links]}
    if _excess(selection) is None and not tops & _PACKAGE_NAMES:
        return
    named = {*selection.named}
    folders = {above.as_posix() for name in named for above in PurePath(name).parents}
    groups: dict[str, _Group] = {}
    for name in [*selection.files, *selection.links]:
        if name not in named:
            size = 0 if name in selection.links else os.lstat(f"{selection.project}/{name}").st_size
            groups.setdefault(_highest_folder(name, folders), _Group()).add(name, size)
    for name in [one for one in groups if one.partition("/")[0] in _PACKAGE_NAMES]:
        groups.pop(name).remove(selection)  # `_link_other_files` names it
    largest = sorted(groups, key=lambda one: groups[one].share())
    while largest and (excess := _excess(selection)) is not None:
        name = largest.pop()
        groups[name].remove(selection)
        selection.links[name] = f"{selection.project}/{name}"
        selection.left_out.append({"path": name, "reason": f"the project has {excess}"})


@dataclass
class _Group:
    """Files and links of a project that are left out together."""

    names: set[str] = field(default_factory=set)
    size: int = 0

    def add(self, name: str, size: int) -> None:
        self.names.add(name)
        self.size += size

    def share(self) -> float:
        """Returns the share of what may be copied."""
        return max(len(self.names) / MAX_FILES, self.size / (MAX_TOTAL_MB * 2**20))

    def remove(self, selection: Selection) -> None:
        selection.size -= self.size
        selection.files = sorted({*selection.files} - self.names)
        selection.links = {name: to for name, to in selection.links.items() if name not in self.names}
        selection.left_out = [one for one in selection.left_out if one["path"] not in self.names]
        selection.large = {name: size for name, size in selection.large.items() if name not in self.names}


def _highest_folder(name: str, folders: set[str]) -> str:
    """Returns the highest folder above a file that is none of ``folders``; the file itself if there is
    none."""
    parts = name.split("/")
    found = ("/".join(parts[:end]) for end in range(1, len(parts)))
    return next((one for one in found if one not in folders), name)


def _excess(selection: Selection) -> str | None:
    """Returns what of a selection is too much to copy; None if nothing is."""
    count, size_mb = len(selection.files) + len(selection.links), selection.size / 2**20
    if size_mb > MAX_TOTAL_MB:
        return f"{size_mb:.0f} MB in files to copy, more than {MAX_TOTAL_MB:g}"
    return f"{count} files, more than {MAX_FILES}" if count > MAX_FILES else None


def _require_copyable_size(selection: Selection) -> None:
    if (too_much := _excess(selection)) is not None:
        raise ConfigError(
            f"the project has {too_much}",
            where=selection.project,
            fix="put data into a separate folder and add that to .gitignore; it is then linked, not copied",
        )


class _Exclusions:
    """Decides which files and folders never go into a package, by absolute path. Results for folders are
    cached."""

    def __init__(self, root: str, excluded: set[str], *, tolerates: bool = False) -> None:
        self.root, self.excluded, self._tolerates = root, excluded, tolerates
        self._folders = {root: False}
        self.unreadable: list[str] = []
        """What cannot be read, relative to the project, if that is tolerated."""

    def on_error(self, error: OSError) -> None:
        """Raises the error of a folder, or notes the folder."""
        if not self._tolerates:
            raise error
        self.unreadable.append(os.path.relpath(error.filename, self.root))

    def is_readable(self, path: str) -> bool:
        """Whether a file can be read; if not, and if that is not tolerated, copying it will fail."""
        if not self._tolerates or os.access(path, os.R_OK):
            return True
        self.unreadable.append(os.path.relpath(path, self.root))
        return False

    def folder(self, path: str) -> bool:
        known = self._folders.get(path)
        if known is None:
            parent, _, name = path.rpartition("/")
            known = (
                self.folder(parent) or name in _JUNK or name.endswith(".egg-info") or path in self.excluded
            )
            known = known or os.path.exists(f"{path}/pyvenv.cfg") or _is_package(path)
            self._folders[path] = known
        return known

    def file(self, path: str) -> bool:
        parent, _, name = path.rpartition("/")
        return self.folder(parent) or name in _JUNK or name.endswith((".pyc", ".pyo"))


def _is_package(path: str) -> bool:
    return os.path.exists(f"{path}/request.json") and os.path.exists(f"{path}/args.json")


def _inside(project: Path, path: Path, exclusions: _Exclusions) -> list[str]:
    if not path.exists():
        raise NotFound("the file does not exist", received=str(path), fix="correct the path in the config")
    resolved = path.resolve()
    if not resolved.is_relative_to(project):
        raise ConfigError(
            "the file is outside the project, so the package would not contain it",
            received=str(path),
            where=project,
            fix="move it into the project's folder",
        )
    name = resolved.relative_to(project).as_posix()
    if not resolved.is_dir():
        return [name]
    prefix = "" if name == "." else f"{name}/"
    below = _Exclusions(str(resolved), exclusions.excluded)  # it is copied whatever its own name is
    return [f"{prefix}{inner}" for inner in _walk(str(resolved), below)]


def _project_files(root: str, exclusions: _Exclusions) -> Iterable[str]:
    """Names of all files of a project; a nested repository may appear as its folder only."""
    if listed := _git_names(root):
        return (name.rstrip("/") for name in listed if name != "./")  # "./": a submodule that was not fetched
    # No repository here, or one further up that ignores the whole project.
    return _walk(root, exclusions, _Ignored.read(root))


class _Ignored(NamedTuple):
    """The lines of the topmost .gitignore that are understood without git. Git alone interprets all of them;
    a folder of data, or a kind of files, is rarely given in another way."""

    names: frozenset[str] = frozenset()
    """``data`` for a name anywhere, ``/deep/data`` for one path."""
    endings: tuple[str, ...] = ()
    """``.pt`` for ``*.pt``."""

    @classmethod
    def read(cls, root: str) -> Self:
        try:
            lines = Path(root, ".gitignore").read_text(errors="replace").splitlines()
        except OSError:
            return cls()
        plain = {line.strip().rstrip("/") for line in lines if not set("*?[\\!#") & set(line)} - {""}
        names = frozenset(f"/{name.lstrip('/')}" if "/" in name else name for name in plain)
        if any(line.startswith("!") for line in lines):  # an exception, which might be of an ending
            return cls(names)
        return cls(names, tuple(line.strip()[1:] for line in lines if _ENDING.fullmatch(line.strip())))

    def matches(self, folder: str, name: str) -> bool:
        return name in self.names or f"/{folder}{name}" in self.names or name.endswith(self.endings)


def _git_names(folder: str) -> list[str]:
    listing = ["git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        result = subprocess.run(listing, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    names = result.stdout.split(b"\0") if result.returncode == 0 else []
    return [os.fsdecode(name) for name in names if name]


def _walk(root: str, exclusions: _Exclusions, ignored: _Ignored = _Ignored()) -> Iterator[str]:  # noqa: B008  - immutable
    for folder, folders, files in os.walk(root, onerror=exclusions.on_error):
        prefix = f"{folder}/"[len(root) + 1 :]
        for names in (folders, files) if any(ignored) else ():
            names[:] = [name for name in names if not ignored.matches(prefix, name)]
        # os.walk lists a link to a folder among the folders and does not enter it: it is yielded as an entry.
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]
        folders[:] = sorted(
            name for name in folders if name not in links and not exclusions.folder(f"{folder}/{name}")
        )
        yield from (prefix + name for name in [*files, *links])


def _add(selection: Selection, name: str, exclusions: _Exclusions, *, keep: bool = False) -> None:
    path = f"{exclusions.root}/{name}"
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return  # tracked, and deleted since
    if stat.S_ISLNK(status.st_mode):
        target = os.path.realpath(path)
        if target == exclusions.root or target.startswith(f"{exclusions.root}/"):
            selection.files.append(name)
        elif target not in exclusions.excluded:
            selection.links[name] = target
    elif stat.S_ISREG(status.st_mode):  # no pipes, sockets and devices: reading one may block
        if status.st_size > MAX_FILE_MB * 2**20 and not keep:
            reason = f"larger than {MAX_FILE_MB:g} MB"
            selection.links[name] = path
            selection.left_out.append({"path": name, "bytes": status.st_size, "reason": reason})
        elif keep or exclusions.is_readable(path):
            _add_file(selection, name, status.st_size)
    elif stat.S_ISDIR(status.st_mode) and not exclusions.folder(path):  # a submodule, or a nested repository
        for below in _project_files(path, exclusions):
            if not exclusions.file(f"{path}/{below}"):
                _add(selection, f"{name}/{below}", exclusions)


def _add_file(selection: Selection, name: str, size: int) -> None:
    selection.files.append(name)
    selection.size += size
    if size >= _LARGE_FILE_MB * 2**20:
        selection.large[name] = size


def _add_outside(selection: Selection, place: str, path: Path, exclusions: _Exclusions) -> None:
    """Adds a file, or the files of a folder, that the project does not have at their place."""
    root = str(path)
    inner = _walk(root, _Exclusions(root, exclusions.excluded)) if path.is_dir() else [""]
    for name in inner:
        source = os.path.realpath(f"{root}/{name}" if name else root)
        if os.path.isfile(source):
            target = f"{place}/{name}" if name else place
            selection.outside[target] = source
            _add_file(selection, target, Path(source).stat().st_size)


def _link_other_files(selection: Selection, exclusions: _Exclusions) -> None:
    """Links the other entries of the folders with selected files or links: what git ignores, usually data."""
    known, folders = {*selection.files, *selection.links}, {""}
    for name in [*selection.files, *selection.links]:
        while (name := name.rpartition("/")[0]) not in folders:
            folders.add(name)
    for folder in sorted(one for one in folders if os.path.isdir(f"{exclusions.root}/{one}")):
        prefix = f"{folder}/" if folder else ""
        for name in sorted(f"{prefix}{below}" for below in os.listdir(f"{exclusions.root}/{folder}")):
            if name not in known and name not in folders and _is_data(name, exclusions):
                reason = "the package has its own" if name in _NEVER_LINKED else "ignored (.gitignore)"
                selection.left_out.append({"path": name, "reason": reason})
                if name not in _NEVER_LINKED:
                    selection.links[name] = os.path.realpath(f"{exclusions.root}/{name}")


def _is_data(name: str, exclusions: _Exclusions) -> bool:
    """Whether a path may be data: not hidden (secrets often are), not junk, and a file or a non-empty
    folder."""
    path = f"{exclusions.root}/{name}"
    if name.startswith(".") or "/." in name or os.path.realpath(path) in exclusions.excluded:
        return False
    if not os.path.isdir(path):
        return os.path.isfile(path) and not exclusions.file(path)
    return not exclusions.folder(path) and any(below not in _JUNK for below in os.listdir(path))


def copy(selection: Selection, target: Path) -> dict[str, Any]:
    """Copies the selection into ``target`` and returns the manifest: every file with size and SHA-256, the
    links, and what was left out with the reason. Files are never hard-linked: a later edit would change the
    package.

    The files of a small project, and those that the config names, are durable when this returns.

    Raises:
        OSError: A file cannot be read or written.
    """
    from concurrent.futures import ThreadPoolExecutor  # 6 ms, which commands that only read packages save

    source, into = str(selection.project), str(target)
    named, removed = {*selection.named}, list[dict[str, Any]]()
    for folder in sorted({name.rpartition("/")[0] for name in selection.files}):
        os.makedirs(f"{into}/{folder}", exist_ok=True)

    def copied(names: list[str]) -> dict[str, Any]:
        found = {}
        for name in names:
            path = selection.outside.get(name, f"{source}/{name}")
            try:
                found[name] = _copy_file(path, f"{into}/{name}", source)
            except FileNotFoundError:
                if name in named or os.path.lexists(path):
                    raise
                removed.append({"path": name, "reason": "removed while it was copied"})
        return found

    half = len(selection.files) // 2
    with ThreadPoolExecutor(1) as pool:  # two threads: one reads and hashes while the disk creates a file
        second = pool.submit(copied, selection.files[half:])
        files = copied(selection.files[:half]) | second.result()
    for name, to in selection.links.items():
        link = target / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(to)
    _sync_files(target, [*files] if len(files) <= _MAX_SYNCED_FILES else selection.named[:_MAX_SYNCED_FILES])
    left_out = [*selection.left_out, *removed]
    return {"format": 1, "files": files, "links": selection.links, "left_out": left_out}


def _sync_files(target: Path, names: list[str]) -> None:
    """Makes these files and their folders durable. Called after all are written: the disk's journal then
    commits many of them at once."""
    for name in names:
        if not os.path.islink(f"{target}/{name}"):
            fd = os.open(f"{target}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                durable.sync(fd)
            finally:
                os.close(fd)
    for folder in sorted({above for name in names for above in Path(name).parents}):
        durable.fsync_folder(target / folder)


def _copy_file(path: str, to: str, project: str) -> dict[str, Any]:
    try:
        source_fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno != errno.ELOOP:  # O_NOFOLLOW, on a link
            raise
        text = _link_text(project, os.path.relpath(path, project))
        os.symlink(text, to)
        return {"link": text}
    digest, size = hashlib.sha256(), 0
    try:
        status = os.fstat(source_fd)
        mode = 0o755 if status.st_mode & 0o100 else 0o644
        amount = min(status.st_size + 1, _CHUNK)  # os.read allocates the whole requested size
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        destination_fd = os.open(to, flags, mode)
        try:
            while chunk := os.read(source_fd, amount):
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


def _link_text(source: str, name: str) -> str:
    """The target of a copied link: the same path inside the package, even if the project's link is absolute
    or leaves the project on the way."""
    text = os.readlink(f"{source}/{name}")
    folder = os.path.dirname(name)
    if not text.startswith("/") and not os.path.normpath(os.path.join(folder, text)).startswith(".."):
        return text
    return os.path.relpath(os.path.realpath(f"{source}/{name}"), f"{source}/{folder}".rstrip("/"))


def changed_files(package: Path, manifest: dict[str, Any]) -> list[str]:
    """Returns the copied files that are missing or have other content than when they were copied."""
    return [name for name, entry in manifest["files"].items() if not is_unchanged(package / name, entry)]


def is_unchanged(path: Path, entry: Mapping[str, Any]) -> bool:
    """Whether a file or link is the one with this entry of the manifest."""
    if "link" in entry:
        return path.is_symlink() and os.readlink(path) == entry["link"]
    if not path.is_file() or path.stat().st_size != entry["size"]:
        return False
    return bool(file_digest(path) == entry["sha256"])


def file_digest(file: Path) -> str:
    """Returns the SHA-256 of a file; empty if it does not exist."""
    if not file.is_file():
        return ""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def renew_links(
    package: Path, manifest: dict[str, Any], project: Path, *, copied_into: str = "."
) -> list[str]:
    """Points broken links at ``project``; returns those that are still broken.

    For a package or a project that was moved.

    Args:
        package: The package.
        manifest: Its manifest.
        project: The folder that was copied.
        copied_into: The folder of the package with the copy.
    """
    broken = []
    for name in manifest["links"]:
        link, target = package / name, project / os.path.relpath(name, copied_into)
        if not link.exists() and target.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(target)
        if not link.exists():
            broken.append(name)
    return broken
