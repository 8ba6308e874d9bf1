"""`roost push`."""

from __future__ import annotations

import click

from roost.display import terminal


@click.command("push")
@click.argument("package")
@click.argument("url", required=False)
@click.option("--steal", is_flag=True, help="Take the copy from another machine that wrote it.")
@click.option("--verify", is_flag=True, help="First read all that is in the copy, and compare its digests.")
def command(package: str, url: str | None, steal: bool, verify: bool) -> int:
    """Uploads a package to its remote copy now: what is new, verified.

    URL is a folder or s3://, gs://, az://, sftp://, hf://; without it, that of the setting remote or of the
    last upload. Credentials come from environment variables and the files of the service. `roost pull`
    restores the package, on any machine. --verify names what the store has lost or damaged, uploads it again
    as far as the package has it, and ends with exit code 1 if there was anything.

    \b
    roost push runs/NAME /content/drive/MyDrive/runs
    roost push runs/NAME s3://bucket/runs
    roost push runs/NAME                       # again: only what is new
    roost push runs/NAME --verify              # reads the whole copy, too
    """
    from roost.base.text.byte_sizes import format_bytes
    from roost.operations.remote_copies.push import push
    from roost.package.remote import remote_status

    done = push(package, url, steal=steal, verify=verify)
    bad = done.check.bad if done.check is not None else {}
    if done.check is not None:
        size, seconds = format_bytes(done.check.num_bytes), terminal.format_duration(done.check.seconds)
        terminal.print_status(
            f"{size} of the copy read in {seconds}: {len(bad) or 'nothing'} lost or damaged"
        )
    for name, what in bad.items():
        is_back = name in done.upload.index.files or name.startswith("index-")
        end = "uploaded again" if is_back else "the package has it no more, so the copy has it no more either"
        terminal.print_status(f"{what}: {terminal.escape_text(name)}; {end}")
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
    return 1 if bad else 0
