"""`roost up`."""

from __future__ import annotations

from pathlib import Path

import click

from roost.base.errors import UsageError
from roost.display import table, terminal


@click.command("up")
@click.argument("words", nargs=-1, metavar="[PACKAGE]...")
@click.option("--dry-run", is_flag=True, help="Only list the runs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--at-boot/--not-at-boot",
    default=None,
    help="Have this done each time the machine starts, by systemd or crontab; or no longer.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the runs; asks and queues nothing.")
def command(words: tuple[str, ...], dry_run: bool, yes: bool, at_boot: bool | None, as_json: bool) -> int:
    """Queues all runs that were interrupted, to continue where they were.

    A run was interrupted if it was killed, if the machine went down, or if it ended at its time limit. What
    failed, and what you have stopped since the machine started, is left as it is. Without a PACKAGE the runs
    of all known folders are looked at; several are named as for roost plot. The lab runs them as its devices
    become free, and continues its own tasks without this command.

    \b
    roost up --dry-run
    roost up
    roost up runs --yes
    roost up --at-boot
    """
    if at_boot is not None:
        return _set_boot_start(words, at_boot=at_boot)
    from roost.cli.confirmation import confirm
    from roost.operations.queue.continue_interrupted import continue_all, find_interrupted

    found = find_interrupted(words)
    if as_json:
        terminal.print_json(found)
        return 0
    if not found:
        terminal.print_status("no run was interrupted")
        return 0
    rows = [
        (
            terminal.format_path(Path(one.package)),
            terminal.format_step(one.step, one.total_steps),
            terminal.format_time(one.ended),
            one.reason if one.stuck is None else f"{one.reason}; is not continued: {one.stuck}",
        )
        for one in found
    ]
    for line in table.format_table(("PACKAGE", "STEP", "ENDED", "WHY"), rows):
        click.echo(line)
    number = sum(one.stuck is None for one in found)
    count = "this run" if number == len(found) == 1 else f"{number} of these {len(found)} runs"
    if number == len(found) > 1:
        count = f"these {number} runs"
    if dry_run:
        return 0
    if number and not confirm(f"continue {count}?", yes=yes, refused="nothing was queued"):
        return 1
    failed = 0
    for one in continue_all(found):
        name = terminal.format_path(Path(one.run.package))
        if one.error is not None:
            failed += 1
            terminal.print_error(f"{name}: {one.error}")
            continue
        for note in one.notes:
            terminal.print_status(terminal.escape_text(note))
        if one.task is not None:
            terminal.print_status(terminal.escape_text(f"{name}: queued as {one.task.id}"))
    return 1 if failed else 0


def _set_boot_start(words: tuple[str, ...], *, at_boot: bool) -> int:
    from roost.operations import boot_start

    if words:
        fix = "leave them out: at boot all known folders are looked at"
        raise UsageError("packages cannot be named", setting="--at-boot", received=" ".join(words), fix=fix)
    if not at_boot:
        removed = boot_start.disable()
        terminal.print_status("\n".join(f"removed from {one}" for one in removed) or "nothing was enabled")
        return 0
    found = boot_start.enable()
    for note in found.notes:
        terminal.print_status(note)
    terminal.print_status(f"written to {found.where}: {found.text}")
    terminal.print_status("`roost up --not-at-boot` removes it")
    return 0
