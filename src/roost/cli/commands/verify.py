"""`roost verify`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from roost.cli import terminal


@click.command("verify")
@click.argument("package", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(package: Path, as_json: bool) -> int:
    """Reads all checkpoints and code of a package, and compares them with the recorded digests.

    The exit code is 1 if a file is damaged. No file is changed.

    \b
    roost verify runs/NAME
    """
    from roost.operations.reading.verify import verify

    findings = []
    for finding in verify(package):
        findings.append(finding)
        if not as_json:
            word = click.style("good", fg="green") if finding.good else click.style("BAD ", fg="red")
            what = f"{finding.what} {finding.name}".rstrip()
            click.echo(f"{word}  {what}: {finding.detail}", color=terminal.allows_colours(sys.stdout))
    bad = sum(not finding.good for finding in findings)
    if as_json:
        terminal.print_json(findings)
    elif bad:
        terminal.print_error(f"{bad} damaged; `roost continue` takes the newest good checkpoint")
    return 1 if bad else 0
