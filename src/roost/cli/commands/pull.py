"""`roost pull`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from roost.display import table, terminal


@click.command("pull")
@click.argument("url")
@click.option(
    "--into", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, metavar="FOLDER",
    help="The folder in which the package is restored, under its name.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the copies, or the restored package.")
def command(url: str, into: Path, as_json: bool) -> int:
    """Restores a package from its remote copy, bit for bit; of a folder of copies, lists them.

    Every byte is verified, and nothing is overwritten. A cut restore continues when the command is typed
    again. After it, `roost continue` resumes the run.

    \b
    roost pull s3://bucket/runs                # which copies are there
    roost pull s3://bucket/runs/NAME
    roost pull /content/drive/MyDrive/runs/NAME --into /content/runs
    """
    from roost.base.text.byte_sizes import format_bytes
    from roost.base.text.durations import format_age
    from roost.operations.remote_copies.pull import pull

    found = pull(url, into)
    if found.restored is None:
        rows = [
            (
                one.name,
                "" if one.copied is None or one.copied.step is None else str(one.copied.step),
                "" if one.copied is None else format_age(max(0.0, time.time() - one.copied.taken)),
                "" if one.copied is None else format_bytes(one.copied.num_bytes),
                one.error or (one.copied.owner.host if one.copied is not None else ""),
            )
            for one in found.copies
        ]
        if as_json:
            terminal.print_json([_fields(one.name, one.url, one.copied, one.error) for one in found.copies])
            return 0
        for line in table.fit_table(("NAME", "STEP", "COPIED", "SIZE", "HOST"), rows, left_out=["HOST"]):
            click.echo(line)
        return 0
    for note in found.notes:
        terminal.print_status(f"warning: {terminal.escape_text(note)}")
    restored = found.restored
    if as_json:
        fields = _fields(restored.path.name, url, restored.index, None)
        terminal.print_json({**fields, "path": str(restored.path), "was_there": restored.was_there})
        return 0
    what = "are there already, with the same bytes" if restored.was_there else "restored and verified"
    step = f", up to step {restored.index.step}" if restored.index.step is not None else ""
    terminal.print_status(
        f"{len(restored.index.files)} files ({format_bytes(restored.index.num_bytes)}) {what}{step}"
    )
    click.echo(terminal.format_path(restored.path))
    terminal.print_status(f"to continue: roost continue {terminal.quote_path(restored.path)}")
    return 0


def _fields(name: str, url: str, index: object, error: str | None) -> dict[str, object]:
    from roost.package.remote.copy_index import CopyIndex

    if not isinstance(index, CopyIndex):
        return {"name": name, "url": url, "error": error}
    return {
        "name": name,
        "url": url,
        "run": index.run,
        "kind": index.kind,
        "step": index.step,
        "taken": index.taken,
        "ended": index.ended,
        "host": index.owner.host,
        "bytes": index.num_bytes,
        "files": len(index.files),
    }
