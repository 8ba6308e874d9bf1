"""`roost verify`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.reading.verify import Finding

_COLOURS = {"good": "green", "unsealed": "yellow", "pruned": "yellow"}


@click.command("verify")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON: path, verdict and reason of each file.")
def command(package: Path, as_json: bool) -> int:
    """Checks whether a package is whole, and what it was when it was written: checkpoints, records, sessions,
    settings, code, media, analyses, predictions and black boxes.

    Verdicts: good; damaged (other bytes); missing; changed (edited code); unsealed (nothing to compare with,
    for example while a session runs); pruned (removed on purpose, by roost prune). The exit code is 1 if a
    file is damaged, missing or changed. No file is changed.

    \b
    roost verify runs/NAME
    roost verify runs/NAME --json
    """
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
