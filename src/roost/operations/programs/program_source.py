"""The code of a program: the folder in which it was typed, an archive, or a commit of a repository; and
whether it is copied.

One rule holds for `run --` and `submit --`: the code is copied if the folder is a git work tree, or small
enough to be copied for each run. In a home folder, in ``/``, and above that size the program is refused;
``--in-place`` runs it where it was typed.

The copy is at the top of the package. If the code has names there that are the package's own, such as a
folder ``media``, it is in a folder of the package.
"""

# Not durable: what is fetched is copied into the package, and removed

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from roost.base.archives import unpacking
from roost.base.archives.safe_folder import UnpackLimits
from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.base.text.typed_path import typed_path
from roost.lab.sessions.session_plan import callers_environment
from roost.package import snapshot
from roost.package.resume import environment
from roost.package.snapshot import Selection

IN_PLACE = "add --in-place: it then runs where it was typed, and the package holds no code"
_FETCHED = "fetch it yourself, without --from, and run the program in its folder with --in-place"
GIT_PREFIX = "git+"
_COMMIT = re.compile(r"(?P<url>(?:[\w+.-]+://[^/]*/)?.+?)(?:@(?P<commit>[\w./-]+))?")
"""The @ of ``ssh://git@host/repo`` and of ``git@host:repo`` begins no commit."""
_SCRIPT = re.compile(r".*\.(py|sh|bash|jl|R)")
_INTERPRETERS = re.compile(r"(python|pypy|bash|sh|julia|Rscript)[\d.]*")
_CLONE_SECONDS = 600
_FOLDER = "code"
"""The folder of the package for code with names that the package reserves."""
_CHECKPOINTS = (".pt", ".pth", ".pth.tar", ".ckpt", ".safetensors")
_OUTPUT_FOLDERS = frozenset([
    "checkpoint", "checkpoints", "ckpt", "ckpts", "lightning_logs", "log", "logs", "mlruns", "out", "output",
    "outputs", "results", "runs", "saved_models", "tensorboard", "wandb",
])  # fmt: skip
"""Ignored folders of these names are not linked: runs that write there would overwrite each other's files."""


@dataclass(frozen=True, kw_only=True)
class ProgramSource:
    """The code of a program."""

    project: Path
    """The folder of the code; where it is fetched, the folder in which the command was typed."""
    selection: Selection | None = None
    """The files to copy; None: none, the program runs in ``project``."""
    cwd: str | None = None
    """The working folder of the program, relative to the package; None as above."""
    copied_into: str = "."
    """The folder of the package with the copy."""
    command: Sequence[str]
    """The command line, with absolute paths in place of those that lead out of the copy."""
    origin: str | None = None
    """The archive or the repository from which the code was fetched, as it was named."""
    git: dict[str, Any] | None = None
    """Commit and changes."""
    notes: Sequence[str] = field(default=())
    """Notes for the user, one line each."""


@contextmanager
def open_source(
    command: Sequence[str], folder: Path, root: Path, *, source: str | None = None, in_place: bool = False
) -> Iterator[ProgramSource]:
    """Finds the code of a program, and checks that its program exists. What is fetched for it is removed with
    the block.

    Args:
        command: The program and its arguments.
        folder: The folder in which it was typed.
        root: The folder of the packages, which is not copied.
        source: A folder, an archive, or ``git+URL@commit``; None: ``folder``.
        in_place: Whether it runs in the folder, with no copy.

    Raises:
        NotFound: The program, its script, or the source does not exist.
        UsageError: ``source`` and ``in_place`` contradict each other.
        Refused: The code is not copied, by the rule; or the source cannot be read.
        OSError: A folder cannot be read or written.
    """
    if in_place:
        if source is not None:
            what = "--in-place runs where it was typed, and --from names other code"
            raise UsageError(what, fix="leave out one")
        require_program(command, folder)
        _require_script(command, folder)
        yield ProgramSource(project=folder, command=command, git=environment.git_state(folder))
    elif source is not None and not (given := folder / typed_path(source, setting="--from")).is_dir():
        with tempfile.TemporaryDirectory(prefix="roost-source-") as made:
            code, git = _fetch(source, folder, Path(made))
            require_program(command, code)
            _require_script(command, code)
            selection = _selected(code, [], everything=True)
            copied_into = _FOLDER if selection.reserved_names() else "."
            yield ProgramSource(
                project=folder,
                selection=_placed(selection, copied_into),
                cwd=copied_into,
                copied_into=copied_into,
                command=command,
                git=git,
                origin=environment.redact(source),
            )
    else:
        typed = folder if source is None else given.resolve()
        require_program(command, typed)
        _require_script(command, typed)
        project = _work_tree(typed) or typed
        _require_copyable(project)
        selection = _selected(project, [root])
        line, notes = _with_absolute_paths(command, typed, selection)
        copied_into = _FOLDER if selection.reserved_names() else "."
        yield ProgramSource(
            project=project,
            selection=_placed(selection, copied_into),
            cwd=str(PurePath(copied_into, os.path.relpath(typed, project))),
            copied_into=copied_into,
            command=line,
            git=environment.git_state(project),
            notes=[*notes, *selection.left_out_notes(), *filter(None, [selection.size_note()])],
        )


def require_program(command: Sequence[str], folder: Path) -> None:
    """Checks that the program of a command exists, as far as the caller can see it.

    Args:
        command: The program and its arguments.
        folder: The working folder of the program.

    Raises:
        NotFound: The program does not exist.
        Refused: The program is a file that cannot be executed.
    """
    program = command[0]
    place = str(folder / program) if "/" in program else program
    if shutil.which(place, path=callers_environment().get("PATH", os.defpath)) is not None:
        return
    if (folder / program).is_file():
        fix = f"name the interpreter: `-- python {program}`; or make the file executable"
        raise Refused("cannot be executed", setting="--", received=program, fix=fix)
    fix = "write the program as a shell would find it, or its whole path"
    raise NotFound("there is no such program", setting="--", received=program, fix=fix)


def _require_script(command: Sequence[str], folder: Path) -> None:
    """Checks that the script of an interpreter exists, where it is the first argument."""
    script = command[1] if len(command) > 1 else ""
    if not (_INTERPRETERS.fullmatch(Path(command[0]).name) and _SCRIPT.fullmatch(script)):
        return
    if not (folder / script).exists():
        fix = "correct its path; it is relative to the folder where the command is typed, or to the source"
        raise NotFound("there is no such script", setting="--", received=script, fix=fix)


def _work_tree(folder: Path) -> Path | None:
    """Returns the git work tree of a folder of which git knows files; None if there is none."""
    found = _git_output(folder, "rev-parse", "--show-toplevel")
    if found and _what_all_is(Path(found)):  # a repository of dotfiles
        return None
    known = found and _git_output(folder, "ls-files", "--cached", "--others", "--exclude-standard", ".")
    return Path(found) if found and known else None


def _git_output(folder: Path, *arguments: str) -> str:
    try:
        found = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except OSError:  # no git
        return ""
    return os.fsdecode(found.stdout).removesuffix("\n") if found.returncode == 0 else ""


def _require_copyable(project: Path) -> None:
    """Refuses folders of which a copy would hold everything that a person has."""
    if what := _what_all_is(project):
        raise Refused(
            f"the folder of a program is copied into its package, and this is {what}",
            where=project,
            fix=f"change to the folder of the program; or {IN_PLACE}",
        )


def _what_all_is(project: Path) -> str:
    """Returns what a folder is in which a person has everything; empty if it is none."""
    try:
        home = Path.home().resolve()
    except RuntimeError:
        home = None
    place = project.resolve()
    return "your home folder" if place == home else "the root folder" if str(place) == place.anchor else ""


def _selected(project: Path, exclude: Sequence[Path], *, everything: bool = False) -> Selection:
    try:
        named = [project] if everything else []
        selection = snapshot.select(project, named=named, exclude=exclude, may_have_reserved_names=True)
    except ConfigError as error:
        fix = _FETCHED if everything else f"{error.fix}; or {IN_PLACE}"
        raise Refused(error.message, where=None if everything else error.where, fix=fix) from None
    for name in list(selection.links):
        path = project / name
        if path.is_dir() and path.name.lower() in _OUTPUT_FOLDERS:
            selection.leave_out(name, "ignored, and by its name the output of runs")
        elif path.name.endswith(_CHECKPOINTS) and path.is_file() and not path.is_symlink():
            selection.copy_instead(name)  # the program may write its own to this place
    return selection


def _placed(selection: Selection, folder: str) -> Selection:
    return selection if folder == "." else selection.moved_into(folder)


def _with_absolute_paths(
    command: Sequence[str], folder: Path, selection: Selection
) -> tuple[list[str], list[str]]:
    """Returns the command line with paths that are right in the copy, and notes about them: absolute ones for
    what exists outside of it and for files that it lacks, such as the interpreter of an environment; relative
    ones for copied files that were named by an absolute path."""
    project, copied = selection.project, {*selection.files}
    known = {project / name for name in [*copied, *selection.links]}
    line, outside, inside = list[str](), list[str](), list[str]()
    for number, word in enumerate(command):
        option, equals, value = word.rpartition("=") if word.startswith("-") else ("", "", word)
        new, typed = value, Path(os.path.abspath(folder / value))  # noqa: PTH100  - an environment is lost by resolve
        is_path = bool(value) and not value.startswith("-") and (number > 0 or "/" in value)
        if is_path and os.path.exists(typed):  # noqa: PTH110  - never raises
            path = typed.resolve()
            is_inside = path.is_relative_to(project)
            if value.startswith("/"):
                if is_inside and path.relative_to(project).as_posix() in copied:
                    new = ("./" if number == 0 else "") + os.path.relpath(path, folder)
                    inside.append(value)
            elif (".." in Path(value).parts and not is_inside) or (
                typed.is_file() and known.isdisjoint([typed, *typed.parents])
            ):
                new = str(typed)
                outside.append(value)
        line.append(f"{option}{equals}{new}")
    notes = [f"outside of the copy, given by the whole path: {', '.join(outside)}"] if outside else []
    return line, [*notes, *([f"in the copy: {', '.join(inside)}"] if inside else [])]


def _fetch(source: str, folder: Path, made: Path) -> tuple[Path, dict[str, Any] | None]:
    """Fetches an archive or a repository into an empty folder; returns the folder of the code, and the git
    state."""
    if source.startswith(GIT_PREFIX):
        code = _clone(source.removeprefix(GIT_PREFIX), folder, made / "code")
        return code, environment.git_state(code)
    path = folder / typed_path(source, setting="--from")
    if not unpacking.is_archive(path):
        fix = f"name a folder, an archive ({', '.join(unpacking.SUFFIXES)}), or git+URL@commit"
        problem = "is no archive by its name" if path.exists() else "there is no such source"
        error: type[RoostError] = Refused if path.exists() else NotFound
        raise error(problem, setting="--from", received=source, fix=fix)
    limits = UnpackLimits(
        max_bytes=int(snapshot.MAX_TOTAL_MB * 2**20),
        max_files=snapshot.MAX_FILES,
        fix="unpack it by hand, and run the program in its folder",
    )
    unpacking.unpack(path, made, limits)
    inside = list(made.iterdir())
    is_folder = len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink()
    return (inside[0] if is_folder else made), None


def _clone(text: str, folder: Path, made: Path) -> Path:
    match = _COMMIT.fullmatch(text)
    url, commit = (match["url"], match["commit"]) if match else (text, None)
    where = f"{GIT_PREFIX}{text}"
    _git(["clone", "--quiet", "--recurse-submodules", "--", url, str(made)], folder, where)
    if commit is not None:
        try:
            _git(["-C", str(made), "checkout", "--quiet", "--detach", commit], folder, where)
        except Refused:
            _fetch_commit(made, commit, folder, where)
        _git(["-C", str(made), "submodule", "--quiet", "update", "--init", "--recursive"], folder, where)
    return made


def _fetch_commit(made: Path, commit: str, folder: Path, where: str) -> None:
    """Fetches a commit that no branch has; some servers give it."""
    try:
        _git(["-C", str(made), "fetch", "--quiet", "origin", commit], folder, where)
        _git(["-C", str(made), "checkout", "--quiet", "--detach", "FETCH_HEAD"], folder, where)
    except Refused as error:
        raise NotFound(
            f"the repository has no commit, branch or tag {commit}", setting="--from", received=where,
            fix="see `git ls-remote URL`, or push the commit first",
        ) from error  # fmt: skip


def _git(arguments: Sequence[str], folder: Path, where: str) -> None:
    """Runs git. Raises Refused with the error that it prints."""
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    fix = "try the same with `git clone`"
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=folder, env=env, capture_output=True, timeout=_CLONE_SECONDS, check=False
        )
    except FileNotFoundError:
        raise Refused("there is no git", setting="--from", received=where, fix="install git") from None
    except subprocess.TimeoutExpired:
        what = f"git has not ended after {_CLONE_SECONDS} s"
        raise Refused(what, setting="--from", received=where, fix=fix) from None
    if found.returncode:
        lines = [line for line in os.fsdecode(found.stderr).splitlines() if line.strip()] or ["no message"]
        error = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        raise Refused(f"git: {environment.redact(error)}", setting="--from", received=where, fix=fix)
