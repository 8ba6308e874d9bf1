"""The package of a program. This module does not import what trainings need."""

# Not durable: makes an empty folder in a package that is being made

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import msgspec

from roost.base.errors import UsageError
from roost.base.text.typed_path import typed_path
from roost.config.sections.remote import RemoteSettings
from roost.config.values.store_url import parse_url
from roost.operations.programs.program_source import ProgramSource, open_source
from roost.operations.resolve import RUNS_FOLDER
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.program_request import CHECKPOINT_FIELD, STAGE_OPTION, ProgramRequest
from roost.package.records import ROW_FIELDS
from roost.package.remote import remote_copy

if TYPE_CHECKING:
    from roost.operations.lifecycle.continue_ import ContinueRequest


@dataclass(frozen=True, kw_only=True)
class TypedProgram:
    """A program that a user wants to run, as typed."""

    command: Sequence[str]
    """The program and its arguments."""
    folder: Path
    """The folder in which it was typed."""
    source: str | None = None
    """Other code: a folder, an archive, or ``git+URL@commit``."""
    in_place: bool = False
    """Run it in the folder, without a copy."""
    root: Path | None = None
    """The folder of its package; None: ``runs`` in the folder of the code, or where the command was typed."""
    name: str | None = None
    """The name of its package; None: the time."""
    description: str | None = None
    metrics: Sequence[str] = ()
    """Texts NAME=REGEX: metrics in its output."""
    resume_with: str | None = None
    """Arguments that are added from the second session on."""
    checkpoint_pattern: str | None = None
    """A pattern: the names of its checkpoints, or the ends of their paths."""
    remote: str | None = None
    """The URL of the store of its remote copy; None: it has none."""
    stage: Sequence[str] = ()
    """Archives that are unpacked on the machine before it starts: paths, or URLs."""


@dataclass(frozen=True)
class ProgramDraft:
    """A checked program whose package can be created, as long as its source is open."""

    source: ProgramSource
    request: ProgramRequest
    options: TypedProgram
    root: Path

    def create(self) -> PackageFolder:
        """Creates the package.

        Raises:
            Refused: The name is in use.
            OSError: The package cannot be written.
        """
        options, cwd = self.options, self.source.cwd
        return PackageFolder.create(
            self.root,
            name=options.name,
            exactly=options.name is not None,
            values={},
            request={
                "kind": PackageKind.COMMAND,
                **self.request.to_json(),
                "description": options.description or shlex.join(options.command),
                **({"source": self.source.origin} if self.source.origin else {}),
                "git": self.source.git,
                "created": round(time.time(), 3),
            },
            selection=self.source.selection,
            # A folder of which nothing is copied may be the one where it was typed.
            fill=(lambda path: (path / cwd).mkdir(parents=True, exist_ok=True)) if cwd else None,
        )


@contextmanager
def prepare_program(options: TypedProgram) -> Iterator[ProgramDraft]:
    """Checks a program before anything is made.

    Raises:
        UsageError: An expression is wrong, or options contradict each other.
        NotFound: The library for the store of the remote copy is missing.
        NotFound, Refused, OSError: As `roost.operations.programs.program_source.open_source`.
    """
    metrics = _expressions(options.metrics)
    resume_with = _arguments(options.resume_with)
    pattern = _checked_pattern(options.checkpoint_pattern)
    stage = _archives(options.stage, options.folder)
    remote = None if options.remote is None else RemoteSettings(url=options.remote)
    if remote is not None:
        remote_copy.require_library(parse_url(remote.url))
    root = options.root if options.root is not None else options.folder / RUNS_FOLDER
    with open_source(
        options.command, options.folder, root, source=options.source, in_place=options.in_place
    ) as source:
        request = ProgramRequest(
            command=list(source.command),
            project=str(source.project),
            cwd=source.cwd,
            resume_with=resume_with,
            metrics=metrics,
            checkpoint_pattern=pattern,
            copied_into=source.copied_into,
            remote={} if remote is None else msgspec.to_builtins(remote),
            stage=stage,
        )
        yield ProgramDraft(source, request, options, root)


def _expressions(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, pattern = text.partition("=")
        example = "write NAME=REGEX, such as 'loss=Loss: ([0-9.]+)'"
        if not equals or not name or not pattern or name in ROW_FIELDS or name in found:
            what = "is not NAME=REGEX with a name of its own"
            raise UsageError(what, setting="--metric", received=text, fix=example)
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            what = f"is no regular expression: {error}"
            raise UsageError(what, setting="--metric", received=pattern, fix=example) from None
        found[name] = pattern
    return found


def require_archives(program: ProgramRequest, package: Path | None = None) -> None:
    """Checks that the archives of a program are staged here, or can be opened.

    Raises:
        RoostError: As `roost.project.staging.package_archives.require_present`.
    """
    if program.stage:
        from roost.project.staging import package_archives  # and the settings, which most need not

        package_archives.require_present(
            list(program.stage),
            package=package,
            project=Path(program.project),
            where=lambda key: None,
            key=STAGE_OPTION,
        )


def _archives(given: Sequence[str], folder: Path) -> list[str]:
    """Returns the archives with absolute paths, after checking their names and URLs.

    Raises:
        ConfigError: Two have one name, or a URL has a credential.
    """
    if not given:
        return []
    from roost.package.results import staged_archives  # and the settings, which most programs do not need

    found = [one if "://" in one else str(folder / typed_path(one)) for one in given]
    staged_archives.named_archives(list(found), key=STAGE_OPTION)
    staged_archives.refuse_credentials(found, STAGE_OPTION, lambda key: None)
    return found


def _arguments(text: str | None) -> list[str]:
    try:
        found = shlex.split(text or "")
    except ValueError as error:
        fix = f"close the quote, as in '--resume {CHECKPOINT_FIELD}'"
        raise UsageError(f"{error}", setting="--resume-with", received=text, fix=fix) from None
    unknown = [one for word in found for one in re.findall(r"\{\w*\}", word) if one != CHECKPOINT_FIELD]
    if unknown:
        fix = f"the one placeholder is {CHECKPOINT_FIELD}, as in '--resume {CHECKPOINT_FIELD}'"
        what = f"has the unknown placeholder {unknown[0]}"
        raise UsageError(what, setting="--resume-with", received=text, fix=fix)
    return found


def _checked_pattern(text: str | None) -> str | None:
    """Checks a pattern of checkpoints, which is matched with the end of their paths."""
    if text is None:
        return None
    path = PurePath(text)
    if not path.parts or path.is_absolute() or {"..", "**"} & {*path.parts}:
        fix = "write the end of their paths, such as 'last*.pt' or 'out/epoch_*'"
        what = "is no name, and no relative path without .. and **"
        raise UsageError(what, setting="--checkpoint", received=text, fix=fix)
    return str(path)


def require_time_limit_only(request: ContinueRequest) -> str | None:
    """Returns the time limit of a request to continue the package of a program; None without one.

    Raises:
        UsageError: The request has something else that applies to trainings only.
    """
    key = "roost.limits.wall_time="
    others = [one for one in request.overrides if not one.startswith(key)]
    given = {
        f"{' '.join(others)}": others, "-c": request.checkpoint, "--iter": request.step,
        "--initialize": request.initialize, "--pdb": request.terminal,
    }  # fmt: skip
    for name, value in given.items():
        if value not in (None, False, "", []):
            what = f"{name} is for trainings, and this is the package of a program"
            fix = "leave it out; a program finds its newest checkpoint in ROOST_RESUME_FROM"
            raise UsageError(what, fix=fix)
    limits = [one.removeprefix(key) for one in request.overrides if one.startswith(key)]
    return limits[-1] if limits else None
