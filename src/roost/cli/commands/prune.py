"""`roost prune`."""

from __future__ import annotations

import click

from roost.display import table, terminal


@click.command("prune")
@click.argument("words", nargs=-1, required=True, metavar="PACKAGE...")
@click.option("--keep", metavar="best,last", help="The checkpoints to keep: best, last, held, ids.")
@click.option("--weights-only", is_flag=True, help="Keep only the weights of checkpoints: none can continue.")
@click.option("--records-only", is_flag=True, help="Keep no checkpoint and no black box.")
@click.option("--dry-run", is_flag=True, help="Only list what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    words: tuple[str, ...],
    keep: str | None,
    weights_only: bool,
    records_only: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Removes checkpoints of packages for ever, or all but their weights.

    A word is a path, a name, a task, a sweep, a pattern or a folder, or they are a query as for roost ls. The
    newest checkpoint is always kept, unless --records-only is given. What was removed is recorded in the
    package, so that `roost verify` knows it. Nothing is pruned if one of them runs, waits in the queue, is
    analyzed or starred.

    \b
    roost prune runs --keep best,last --dry-run
    roost prune 'state:succeeded' --keep best,last
    roost prune runs/NAME --weights-only       # for predict, export, analyze, init_from
    roost prune 'state:failed' --records-only --yes
    """
    from roost.base.text.byte_sizes import format_bytes
    from roost.cli.confirmation import confirm
    from roost.operations.keeping import prune

    request = prune.checked_request(keep, weights_only=weights_only, records_only=records_only)
    planned = prune.plan(words, request)
    rows = [
        (
            one.path.name,
            _numbers(one.pruning.removed),
            _numbers(one.pruning.reduced),
            format_bytes(one.num_bytes),
        )
        for one in planned
    ]
    header = ("NAME", "REMOVED", "WEIGHTS ONLY", "SIZE")
    for line in table.fit_table(header, rows, left_out=["WEIGHTS ONLY", "REMOVED"]):
        click.echo(line)
    total = format_bytes(sum(one.num_bytes for one in planned))
    if dry_run:
        terminal.print_status(f"would free {total}; nothing was removed")
        return 0
    if not confirm(f"remove {total} for ever?", yes=yes):
        return 1
    freed = sum(one.num_bytes for one in prune.prune(planned, request))
    terminal.print_status(f"freed {format_bytes(freed)}")
    return 0


def _numbers(checkpoints: dict[str, str]) -> str:
    """Returns the checkpoints as in ``state_0, state_3``."""
    return ", ".join(name.rpartition("/")[2].removesuffix(".ckpt") for name in checkpoints)
