"""``verify``: whether a package is whole, and what it was when it was written.

What every file is compared with:

- checkpoints, black boxes: the digests of their manifests, which have digests of their own
- the project's code, args.json: the digests in manifest.json
- all else that sessions, analyses, predictions and evaluations wrote: their seals (`roost.package.seals`)
- records without a seal, of a session that runs or was killed: the rows alone, which have an order

Where there is nothing to compare with, the verdict is "unsealed", with the reason: never "good".
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from roost.analysis import analysis_folder
from roost.base import safe_read
from roost.base.errors import CheckpointError, NotFound
from roost.base.text.typed_path import typed_path
from roost.operations import resolve
from roost.operations.reading import package_schema
from roost.operations.reading.package_schema import DamagedPackage
from roost.package import lineage, package_name, records, session_folder, snapshot
from roost.package.checkpoints import checkpoint, pruning
from roost.package.checkpoints.pruning import Pruning
from roost.package.kinds import TASK_KINDS, TaskKind
from roost.package.package import PackageFolder
from roost.package.results import predictions
from roost.package.results.evaluations.evaluation_folder import EvaluationFolder
from roost.package.seals import seal, session_seal
from roost.package.seals.seal import BrokenSeal, Seal, SealedFile
from roost.package.session_folder import SessionFolder
from roost.package.session_schema import LIVE_STATES
from roost.package.sessions import Session, used_numbers

Verdict = Literal["good", "damaged", "missing", "changed", "unsealed", "pruned"]
"""good: as it was written; damaged: other bytes; missing: it should exist; changed: code that was edited;
unsealed: nothing to compare it with, so nothing is known; pruned: removed on purpose."""

_SEAL_SECONDS = 20.0
"""How long the guard of a session that has just ended may take to write its seal."""
_TICK_SECONDS = 0.02


@dataclass(frozen=True)
class Finding:
    """The verdict about one file, or one folder that has a manifest of its own."""

    what: str
    """settings, code, session, records, system, output, media, analysis, analyzer, prediction, evaluation,
    checkpoint, black box."""
    path: str
    """Relative to the package; a checkpoint's is its folder."""
    verdict: Verdict
    reason: str
    """A description of the file, of its damage, or of the reason why nothing is known about it."""

    @property
    def is_bad(self) -> bool:
        """Whether the file is not what was written."""
        return self.verdict in ("damaged", "missing", "changed")


def verify(package: Path | str) -> Iterator[Finding]:
    """Compares every file of a package with what was written. Changes nothing, and executes nothing.

    Yields:
        A `Finding` for each file; each checkpoint, black box and damage comes as soon as it is known.

    Raises:
        NotFound: There is no such package.
    """
    path = resolve.find_package(package)
    if not resolve.is_package(path):
        PackageFolder.open(path)  # raises; a package that lacks only its settings is verified
    opened = PackageFolder(typed_path(path).absolute())
    _await_seal(opened)
    damages = {
        damage.name: damage
        for damage in (
            *package_schema.missing_folders(opened),
            *package_schema.find_damage(opened),
            *package_schema.unreadable_records(opened),
        )
    }
    if not damages:
        try:
            package_schema.settings(opened)
        except DamagedPackage as damage:
            damages[damage.name] = damage
    for one in damages.values():
        is_missing = one.name.endswith("/") and not (opened.path / one.name).exists()
        yield Finding(_kind(one.name), one.name, "missing" if is_missing else "damaged", one.cause)
    ids = _checkpoint_ids(opened.checkpoints)
    found = [*_compare_with_seals(opened, damages.keys())]
    yield from sorted(found, key=lambda one: (one.what, one.verdict))
    if "manifest.json" not in damages:
        yield from _compare_code(opened, damages.keys())
    yield from _verify_folders(opened, analysis_folder.NAME, "analysis")
    yield from _verify_folders(opened, predictions.NAME, "prediction")
    for kind, folder in session_folder.find_all(opened.path):
        yield from _verify_session_folder(folder, TASK_KINDS[kind].noun)
        if kind is TaskKind.EVALUATE:
            yield from _verify_evaluation(folder, TASK_KINDS[kind].noun)
    for id in ids:
        yield _verify_checkpoint(checkpoint.checkpoint_folder(opened.checkpoints, id), "checkpoint")
    yield from _pruned(opened)
    if "_package.json" not in damages:
        yield from _missing_checkpoints(opened, ids)
    for id in _checkpoint_ids(opened.blackbox):
        yield _verify_checkpoint(checkpoint.checkpoint_folder(opened.blackbox, id), "black box")


def _checkpoint_ids(folder: Path) -> list[int]:
    return checkpoint.ids(folder) if folder.is_dir() else []


def _await_seal(package: PackageFolder) -> None:
    """Waits for the seal of a session that has just ended. Its guard writes it after the record, so that no
    end of a run waits for it."""
    deadline = time.monotonic() + _SEAL_SECONDS
    while time.monotonic() < deadline:
        found = package.sessions()
        if not found or found[-1].is_live or not found[-1].guard_is_alive:
            return
        if session_seal.seal_path(package.path, found[-1].number).exists():
            return
        time.sleep(_TICK_SECONDS)


def _kind(name: str) -> str:
    folder = name.partition("/")[0]
    kinds = {
        "sessions": "session",
        "records": "records",
        "system": "system",
        "media": "media",
        "profile": "media",
        "Checkpoints": "checkpoint",
    }
    return kinds.get(folder, "output" if name.startswith("_output") else "settings")


# --- seals ------------------------------------------------------------------------------------------------


def _compare_with_seals(package: PackageFolder, damaged: Iterable[str]) -> Iterator[Finding]:
    """Compares all files that seals cover, and says of the others why they have none."""
    seals, found, known = session_seal.read_all(package.path), package.sessions(), set(damaged)
    newest: dict[str, tuple[int, SealedFile]] = {}
    for number, one in seals.items():
        if isinstance(one, BrokenSeal):
            name = f"sessions/{number}.seal.json"
            known.add(name)
            yield Finding("session", name, "damaged", one.message)
        else:
            newest.update({name: (number, sealed) for name, sealed in one.files.items()})
    last_sealed = max((number for number, one in seals.items() if isinstance(one, Seal)), default=0)
    unsealed = _unsealed_reason(found, seals, last_sealed)
    broken = [number for number, one in seals.items() if isinstance(one, BrokenSeal)]
    lacking = f"the seal of session {last_sealed} lacks it"
    if broken:
        lacking = f"{_broken_reason(broken[-1])}, and no other seal has it"
    numbers = {one.number for one in found} | used_numbers(package.path / "records")  # sessions/ may be gone
    present = set(session_seal.coverable_names(package.path, max(numbers | seals.keys(), default=0)))
    pruned = [  # all of a session: one that was killed may not have written the file again
        (name, by.session, SealedFile(one.bytes, one.sha256))
        for by in _prunings(package)
        for name, one in by.rewritten.items()
    ]
    for name in sorted(present | newest.keys(), key=_reading_order):
        if name in known or not session_seal.is_inside(name):
            continue
        since = newest[name][0] if name in newest else 0
        later = [one for of, session, one in pruned if of == name and session >= since]
        if any(seal.damage(package.path / name, one) is None for one in later):
            yield Finding(_kind(name), name, "good", "as `roost prune` wrote it")
        elif name in newest:
            number, sealed = newest[name]
            is_open = session_seal.is_rewritten(name) and unsealed is not None
            yield _compare(package.path, name, name, sealed, _kind(name), unsealed if is_open else None)
        elif name.endswith(".seal.json"):
            yield Finding("session", name, "good", "its own digest")
        else:
            yield _judge_unsealed(package.path, name, unsealed or lacking)
    yield from _missing_records(package, found, newest.keys())
    yield from _missing_requests(package, found, newest.keys())


def _reading_order(name: str) -> tuple[str, int, str]:
    number = name.rpartition("/")[2].partition(".")[0]
    return _kind(name), int(number) if number.isdecimal() and len(number) < 10 else 0, name


def _compare(
    root: Path, name: str, shown: str, sealed: SealedFile, what: str, rewritten: str | None = None
) -> Finding:
    """Compares one file with its seal.

    Args:
        rewritten: Why a session after the seal may have rewritten the file; None: none has.
    """
    shown = package_schema.printable(shown)
    difference = seal.damage(root / name, sealed)
    if difference is not None and rewritten is not None:
        return Finding(what, shown, "unsealed", rewritten)
    if difference is not None:
        return Finding(what, shown, "missing" if difference == "is missing" else "damaged", difference)
    if sealed.sha256 is None:
        return Finding(what, shown, "unsealed", "too large to be hashed at the end: only its size is known")
    return Finding(what, shown, "good", f"{sealed.bytes:,} bytes")


def _broken_reason(number: int) -> str:
    return f"the seal of session {number} is damaged"


def _unsealed_reason(
    found: list[Session], seals: Mapping[int, Seal | BrokenSeal], last_sealed: int
) -> str | None:
    """Returns why there is no good seal of the newest session; None if there is one."""
    if not found:
        return "no session has ended yet"
    newest = found[-1]
    if newest.is_live:
        return f"session {newest.number} is running"
    if newest.number <= last_sealed:
        return None
    if newest.number in seals:
        return _broken_reason(newest.number)
    return (
        f"session {newest.number} has no seal: an older roost wrote it, its guard was killed, the seal was "
        "removed, or it could not be written (then the end of its output says so)"
    )


def _judge_unsealed(package: Path, name: str, reason: str) -> Finding:
    """Judges a file without a seal by its content alone, as far as that has an order."""
    what, shown = _kind(name), package_schema.printable(name)
    if what == "records":
        difference = _rows_damage(package / name)
        if difference is not None:
            return Finding(what, shown, "damaged", difference)
    elif name.endswith(".json") and not _is_json(package / name):
        return Finding(what, shown, "damaged", "is not JSON")
    return Finding(what, shown, "unsealed", reason)


def _is_json(path: Path) -> bool:
    try:
        json.loads(safe_read.read(path))
    except (OSError, ValueError, RecursionError):
        return False
    return True


def _rows_damage(path: Path) -> str | None:
    """Returns what cannot be of a records file without a seal. Its last line may be torn: its session may
    have been killed while it wrote."""
    try:
        lines = bytes(safe_read.read(path, max_bytes=records.MAX_BYTES)).split(b"\n")
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    rows = [(number, records.decode_row(line)) for number, line in enumerate(lines, 1) if line]
    torn = [number for number, row in rows if not row]
    if not any(lines):
        return "is empty"
    if "start_step" not in rows[0][1]:
        return "line 1 is not the beginning of a session"
    if torn and (len(torn) > 1 or torn[0] != len(lines)):
        return f"line {torn[0]} is not a row"
    step = 0
    for number, row in rows:
        if "start_step" in row:
            step = row["start_step"]
        elif row and row["step"] < step:
            return f"line {number} is of step {row['step']}, after one of step {step}"
        elif row:
            step = row["step"]
    return None


def _missing_records(
    package: PackageFolder, found: list[Session], sealed: Container[str]
) -> Iterator[Finding]:
    """Yields the records that no seal covers and that must have existed: a training that has saved a
    checkpoint has begun its records before."""
    manifests = checkpoint.read_manifests(package.checkpoints) if package.checkpoints.is_dir() else []
    saved = {one.session for one in manifests if one.step > 0}
    for session in found:
        name = f"records/{session.number}.jsonl"
        is_training = session.request.kind == TaskKind.TRAIN and not session.request.initialize
        must_exist = session.number in saved and is_training and name not in sealed
        if must_exist and not (package.path / name).exists():
            yield Finding("records", name, "missing", "is missing; its session has saved a checkpoint")


def _missing_requests(
    package: PackageFolder, found: list[Session], sealed: Container[str]
) -> Iterator[Finding]:
    """Yields the requests that no seal covers and that must have existed: those of sessions with records."""
    known = {lineage.INHERITED_SESSION, *(one.number for one in found)}
    stems = (path.stem for path in (package.path / "records").glob("*.jsonl"))
    for number in sorted({int(stem) for stem in stems if stem.isascii() and stem.isdecimal()} - known):
        name = f"sessions/{number}.request.json"
        if name not in sealed:
            yield Finding("session", name, "missing", "is missing; its session has records")


# --- code -------------------------------------------------------------------------------------------------


def _compare_code(package: PackageFolder, damaged: Container[str]) -> Iterator[Finding]:
    manifest = package.manifest
    files: dict[str, Any] = {**manifest["files"], **manifest.get("own", {})}
    forced = package.forced_changes()
    for name in sorted(package.changed_files()):
        del files[name]
        shown, exists = package_schema.printable(name), (package.path / name).is_file()
        if name in damaged:
            continue
        if name in forced and forced[name] == snapshot.file_digest(package.path / name):
            detail = (
                "has changed since it was copied, and a session was forced to continue with it; recorded as"
            )
            yield Finding(
                "code", shown, "good", f"{detail} inexact" if exists else f"is gone; {detail} inexact"
            )
        else:
            entry = manifest["files"].get(name) or manifest["own"][name]
            way = _way_back(package, name, entry)
            what = "settings" if name in session_seal.LASTING else "code"
            if exists:
                yield Finding(what, shown, "changed", f"has changed since it was copied; {way}")
            else:
                yield Finding(what, shown, "missing", f"is gone; {way}")
    for name in sorted(files.keys() - session_seal.LASTING):
        yield Finding("code", package_schema.printable(name), "good", "as it was copied")


def _way_back(package: PackageFolder, name: str, entry: dict[str, Any]) -> str:
    """Returns how to put a copied file back as it was."""
    original, copied = package.project / name, package.path / name
    is_code = name not in session_seal.LASTING
    if is_code and "link" not in entry and original != copied and snapshot.is_unchanged(original, entry):
        return f"to put it back: cp {_shell_word(original)} {_shell_word(copied)}"
    git = package.request.get("git")
    commit = git.get("commit") if isinstance(git, dict) and not git.get("dirty") else None
    where = f", or from commit {commit} of the project" if commit and is_code else ""
    return f"to put it back: take it from a copy of the package{where}"


def _shell_word(path: Path) -> str:
    return quote(str(package_schema.printable(str(path))))


def consequences(findings: Iterable[Finding]) -> list[str]:
    """Returns what the bad findings mean for the next session and for readers, a sentence for each kind."""
    found = [one for one in findings if one.is_bad]
    checkpoints = [one for one in findings if one.what == "checkpoint"]
    kinds = {one.what for one in found}
    said = []
    if "code" in kinds:
        said.append(
            "the code has changed: `roost continue` refuses without --force, which records it as inexact"
        )
    if "checkpoint" in kinds:
        is_left = any(not one.is_bad for one in checkpoints)
        said.append(
            "`roost continue` takes the newest good checkpoint"
            if is_left
            else "no checkpoint is good: none to continue"
        )
    if kinds & {"records", "system", "media", "output", "analysis", "prediction", "evaluation", "black box"}:
        said.append("what is read from these files may be wrong; training does not read them")
    if kinds & {"settings", "session"}:
        said.append("what the package says about itself may be wrong: take these files from a copy of it")
    return said


# --- folders with a manifest or seal of their own -----------------------------------------------------------


def _verify_folders(package: PackageFolder, name: str, what: str) -> Iterator[Finding]:
    root = package.path / name
    try:
        damages = list(package_schema.analysis_damage(package.path)) if what == "analysis" else []
    except OSError as error:
        yield Finding(what, name, "damaged", f"cannot be read: {error}")
        return
    for damage in damages:
        yield Finding(what, damage.name, "damaged", damage.cause)
    for number in package_name.numbers(root):
        yield from _verify_folder(root / str(number), f"{name}/{number}", what)


def _verify_folder(folder: Path, name: str, what: str) -> Iterator[Finding]:
    path = folder / session_seal.FOLDER_SEAL
    try:
        found = seal.read(path)
    except BrokenSeal as error:
        yield Finding(what, f"{name}/{path.name}", "damaged", error.message)
        return
    except FileNotFoundError:
        reason = (
            "it has no seal: it is running, has failed or was killed, an older roost wrote it, or the seal "
            "was removed"
        )
        yield Finding(what, name, "unsealed", reason)
        return
    for file, sealed in found.files.items():
        if session_seal.is_inside(file):
            yield _compare(folder, file, f"{name}/{file}", sealed, what)


def _verify_session_folder(folder: SessionFolder, what: str) -> Iterator[Finding]:
    """Yields what differs from the seals of the sessions of a task that only reads the package."""
    name = folder.path.relative_to(folder.package_path).as_posix()
    newest = max((session.number for session in folder.sessions()), default=0)
    sealed: dict[str, SealedFile] = {}
    seals = session_seal.read_all(folder.path)
    for number, found in seals.items():
        if isinstance(found, BrokenSeal):
            yield Finding(what, f"{name}/sessions/{number}.seal.json", "damaged", found.message)
        else:
            sealed |= found.files
    for file, one in sealed.items():
        is_written_since = newest not in seals and session_seal.is_rewritten(file)
        if session_seal.is_inside(file) and not is_written_since:
            yield _compare(folder.path, file, f"{name}/{file}", one, what)


def _verify_evaluation(folder: SessionFolder, what: str) -> Iterator[Finding]:
    """Yields the verdicts about the grid, the reports and the cells of an evaluation."""
    name = folder.path.relative_to(folder.package_path).as_posix()
    yield from _verify_folder(folder.path, name, what)
    for cell in EvaluationFolder(folder.path).cells():
        if cell.path.is_dir():
            yield from _verify_folder(cell.path, f"{name}/{cell.folder}", what)
        elif cell.state == "finished":
            yield Finding(what, f"{name}/{cell.folder}", "missing", "is missing; its evaluation finished it")


def _prunings(package: PackageFolder) -> list[Pruning]:
    """Returns the prunings of a package; none if their file is damaged, which `_pruned` reports."""
    try:
        return pruning.read_all(package.path)
    except BrokenSeal:
        return []


def _pruned(package: PackageFolder) -> Iterator[Finding]:
    """Yields what was removed from the package on purpose."""
    try:
        for line in pruning.descriptions(package):
            yield Finding("checkpoint", pruning.NAME, "pruned", line)
    except BrokenSeal as error:
        yield Finding("checkpoint", pruning.NAME, "damaged", error.message)


def _missing_checkpoints(package: PackageFolder, ids: list[int]) -> Iterator[Finding]:
    """Yields checkpoints that the worker kept and that are missing, unless a running worker may remove
    them."""
    if package.state not in LIVE_STATES:
        # A session that has saved since has written which checkpoints there are.
        found = checkpoint.read_manifests(package.checkpoints) if package.checkpoints.is_dir() else []
        saved = max((one.session for one in found), default=0)
        pruned = {name for by in _prunings(package) if by.session >= saved for name in by.removed}
        for id in sorted(package.kept_ids() - set(ids)):
            name = f"Checkpoints/{checkpoint.PREFIX}{id}.ckpt"
            if name not in pruned:
                reason = "is gone; `roost prune` removes checkpoints on purpose, and records it"
                yield Finding("checkpoint", name, "missing", reason)


def _verify_checkpoint(path: Path, what: str) -> Finding:
    name = f"{path.parent.name}/{path.name}"
    try:
        info = checkpoint.verify(path)
    except (CheckpointError, NotFound, OSError) as error:
        if not path.exists():
            return Finding(what, name, "good", "its run removed it just now")
        cause = f"cannot be read: {error}" if isinstance(error, OSError) else error.message
        return Finding(what, name, "damaged", cause.removeprefix(f"{path.name}: "))
    if checkpoint.checkpoint_folder(path.parent, info.id) != path:
        return Finding(what, name, "damaged", f"is a copy of checkpoint {info.id}")
    return Finding(
        what, name, "good", f"step {info.step}, {len(info.files)} files, {info.size_bytes:,} bytes"
    )
