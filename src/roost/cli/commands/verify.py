"""`roost verify`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.reading.verify import Finding
    from roost.operations.reading.verify_packages import VerifiedPackage

_COLOURS = {"good": "green", "unsealed": "yellow", "pruned": "yellow"}


@click.command("verify")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: path, verdict and reason of each file.")
def command(words: tuple[str, ...], as_json: bool) -> int:
    """Checks whether packages are whole, and what they were when they were written: checkpoints, records,
    sessions, settings, code, media, analyses, predictions and black boxes.

    PACKAGE is a path, a name in ./runs, a task, a sweep, a folder of packages, a pattern in quotes, or a
    query as of `roost ls`. Of several packages, each has a line, and one for each file that is bad; --json is
    a list of the packages with their findings.

    Verdicts: good; damaged (other bytes); missing; changed (edited code); unsealed (nothing to compare with,
    for example while a session runs); pruned (removed on purpose, by roost prune). The exit code is 1 if a
    file is damaged, missing or changed. No file is changed.

    \b
    roost verify runs/NAME
    roost verify runs/NAME --json
    roost verify runs
    roost verify SWEEP 'runs/lr-*'
    roost verify 'state:succeeded'
    """
    from roost.operations.reading.verify_packages import single_package

    if (package := single_package(words)) is None:
        return _verify_several(words, as_json=as_json)
    return _verify_one(package, as_json=as_json)


def _verify_one(package: Path, *, as_json: bool) -> int:
    from roost.operations.reading.verify import consequences, verify

    findings: list[Finding] = []

    def noted() -> Iterable[Finding]:
        for finding in verify(package):
            findings.append(finding)
            yield finding

    if as_json:
        terminal.print_json(list(noted()))
    else:
        for _, group in groupby(noted(), key=_line_key):
            for line in _lines(group):
                click.echo(terminal.escape_line(line), color=terminal.allows_colours(sys.stdout))
    bad = len({finding.path for finding in findings if finding.is_bad})
    if bad and not as_json:
        several = (
            f"{bad} files are not as they were written" if bad > 1 else "1 file is not as it was written"
        )
        terminal.print_error("; ".join([several, *consequences(findings)]))
    return 1 if bad else 0


def _verify_several(words: Sequence[str], *, as_json: bool) -> int:
    from roost.operations.reading.verify_packages import verify_packages

    found: list[VerifiedPackage] = []
    for one in verify_packages(words):
        found.append(one)
        if not as_json:
            for line in _package_lines(one):
                click.echo(terminal.escape_line(line), color=terminal.allows_colours(sys.stdout))
    if as_json:
        terminal.print_json(found)
    bad = sum(one.is_bad for one in found)
    if bad and not as_json:
        are = "is not as it was" if bad == 1 else "are not as they were"
        several = f"{bad} of {len(found)} packages {are} written"
        terminal.print_error(f"{several}; `roost verify PACKAGE` says what that means")
    return 1 if bad else 0


def _package_lines(package: VerifiedPackage) -> Iterable[str]:
    """Yields the line of one of several packages, and those of what is bad."""
    counts = Counter(one.verdict for one in package.findings)
    word = "bad" if package.is_bad else "unsealed" if counts["unsealed"] else "good"
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
    shown = click.style(f"{word:8}", fg=_COLOURS.get(word, "red"))
    yield f"{shown}  {package.package}: {package.error or verdicts}"
    bad = [one for one in package.findings if one.is_bad]
    for _, group in groupby(bad, key=_line_key):
        for line in _lines(group):
            yield f"  {line}"


def _line_key(finding: Finding) -> tuple[object, ...]:
    """Files of one kind with one verdict share a line; each damage and each checkpoint has its own."""
    if finding.is_bad or finding.what in ("checkpoint", "black box"):
        return (finding.path, finding.reason)
    return (finding.what, finding.verdict, _shared_reason(finding))


def _shared_reason(finding: Finding) -> str:
    """The reason, where it is not the size of the file: files with different ones share no line."""
    return finding.reason if finding.verdict == "unsealed" or finding.what == "code" else ""


def _lines(group: Iterable[Finding]) -> Iterable[str]:
    first, *others = group
    word = click.style(f"{first.verdict:8}", fg=_COLOURS.get(first.verdict, "red"))
    if not others:
        yield f"{word}  {first.what} {first.path}: {first.reason}"
    else:
        reason = f": {shared}" if (shared := _shared_reason(first)) else ""
        yield f"{word}  {first.what}: {1 + len(others)} files{reason}"
