"""`roost push`."""

from __future__ import annotations

import click

from roost.display import terminal


@click.command("push")
@click.argument("package")
@click.argument("url", required=False)
@click.option("--steal", is_flag=True, help="Take the copy from another machine that wrote it.")
def command(package: str, url: str | None, steal: bool) -> int:
    """Uploads a package to its remote copy now: what is new, verified.

    URL is a folder or s3://, gs://, az://, sftp://, hf://; without it, that of the setting remote or of the
    last upload. Credentials come from environment variables and the files of the service. `roost pull`
    restores the package, on any machine.

    \b
    roost push runs/NAME /content/drive/MyDrive/runs
    roost push runs/NAME s3://bucket/runs
    roost push runs/NAME                       # again: only what is new
    """
    from roost.base.text.byte_sizes import format_bytes
    from roost.operations.remote_copies.push import push
    from roost.package.remote import remote_status

    done = push(package, url, steal=steal)
    if done.upload.left_out:
        shown = ", ".join(done.upload.left_out[:3])
        terminal.print_status(
            f"left as before, because it is being written or cannot be read: {terminal.escape_text(shown)}"
            + (f" and {len(done.upload.left_out) - 3} more" if len(done.upload.left_out) > 3 else "")
        )
    terminal.print_status(
        f"{format_bytes(done.upload.put_bytes)} uploaded in {terminal.format_duration(done.upload.seconds)}; "
        f"{len(done.upload.index.files)} files; {remote_status.describe(done.status)}"
    )
    click.echo(terminal.escape_line(done.url))
    return 0
