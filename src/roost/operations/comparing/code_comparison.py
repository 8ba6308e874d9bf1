"""The copied files in which runs differ. No link is followed out of a package."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from roost.base import safe_read
from roost.base.errors import NotFound
from roost.base.text.byte_sizes import format_bytes
from roost.base.text.suggestions import did_you_mean
from roost.operations.comparing.compared_run import LINK, RunContent
from roost.operations.comparing.comparison import CodeComparison, CodeVersion, FileChange
from roost.operations.comparing.line_diff import LineDiff, split_lines
from roost.operations.reading.package_schema import printable

MAX_TEXT_BYTES = 4 << 20
"""The lines of a larger file are not compared."""
_DIGEST_CHARACTERS = 12


def compare_code(runs: Sequence[RunContent], *, diff: Sequence[str] | None = None) -> CodeComparison:
    """Compares the copied files of runs by their digests; between two versions also the lines of the files.

    Args:
        runs: The runs.
        diff: The files whose difference is requested, by path or pattern; empty: all; None: none.

    Raises:
        NotFound: No file that differs has one of these names.
    """
    groups: dict[str, list[int]] = {}
    for at, run in enumerate(runs):
        if run.code is not None:
            groups.setdefault(_digest(run.code), []).append(at)
    order = sorted(groups.items(), key=lambda one: (-len(one[1]), one[1][0]))
    codes = [runs[members[0]].code or {} for _, members in order]
    versions = [
        CodeVersion(
            digest=digest,
            runs=members,
            files=len(code),
            changed=[printable(path) for path in _changed_paths(codes[0], code)],
        )
        for (digest, members), code in zip(order, codes, strict=True)
    ]
    files: list[FileChange] = []
    if len(order) == 2:
        first, second = (runs[members[0]] for _, members in order)
        files = _compare_files(first, second, diff)
    if diff:
        _require_names(diff, [one.path for one in files])
    unknown = [at for at, run in enumerate(runs) if run.code is None]
    return CodeComparison(versions=versions, unknown=unknown, files=files)


def _digest(code: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(code.items()):
        digest.update(f"{name}\0{content}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:_DIGEST_CHARACTERS]


def _changed_paths(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def _require_names(names: Sequence[str], paths: Sequence[str]) -> None:
    for name in names:
        if not any(fnmatchcase(path, name) for path in paths):
            fix = did_you_mean(name, paths) + "without --diff all files that differ are listed"
            raise NotFound("no file that differs has this name", received=name, fix=fix)


def _compare_files(first: RunContent, second: RunContent, diff: Sequence[str] | None) -> list[FileChange]:
    def is_shown(path: str) -> bool:
        return diff is not None and (not diff or any(fnmatchcase(printable(path), name) for name in diff))

    a, b = first.code or {}, second.code or {}
    return [_compare_file(path, first, second, shows_diff=is_shown(path)) for path in _changed_paths(a, b)]


def _compare_file(path: str, first: RunContent, second: RunContent, *, shows_diff: bool) -> FileChange:
    contents = [(run.code or {}).get(path) for run in (first, second)]
    kind: Literal["only in first", "only in second", "changed"] = (
        "only in second" if contents[0] is None else "only in first" if contents[1] is None else "changed"
    )
    describe: Callable[..., FileChange] = lambda **fields: FileChange(  # noqa: E731
        path=printable(path), kind=kind, **fields
    )
    if links := [one for one in contents if one is not None and one.startswith(LINK)]:
        return describe(note=f"link {', '.join(map(printable, links))}")
    texts: list[bytes] = []
    notes: dict[str, None] = {}
    for run, expected in zip((first, second), contents, strict=True):
        data, note = (b"", None) if expected is None else _read_file(run, path, expected)
        if data is None:
            return describe(note=note)
        texts.append(data)
        notes |= {note: None} if note else {}
    found = LineDiff(*map(split_lines, texts))
    return describe(
        added=found.added,
        removed=found.removed,
        note="; ".join(notes) or None,
        diff=list(found.unified()) if shows_diff else None,
    )


def _read_file(run: RunContent, path: str, expected: str) -> tuple[bytes | None, str | None]:
    """Returns the content of a copied file, None if its lines cannot be compared; and a note about it."""
    name = run.summary.name
    try:
        with open(safe_read.open_inside(run.package.path, path), "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_TEXT_BYTES:
                return None, f"{format_bytes(size)}: too large to be compared by lines"
            data = file.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        return None, f"cannot be read in {name}: {error.strerror or error}"
    if b"\0" in data:
        return None, f"binary, {format_bytes(size)}"
    is_same = hashlib.sha256(data).hexdigest() == expected
    return data, None if is_same else f"has changed in {name} since it was copied"
