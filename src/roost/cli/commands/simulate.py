"""`roost simulate`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.base.errors import UsageError
from roost.display import table, terminal

if TYPE_CHECKING:
    from roost.operations.simulation.simulate import SimulatedTask, SimulationResult

_MAX_NEVER_STARTED = 10


@click.command("simulate")
@click.argument("history", required=False, type=click.Path(path_type=Path))
@click.option(
    "--cards", default="4x24GB", show_default=True, help="The cards: 4x24GB, or 2x80GB:H100,2x24GB."
)
@click.option("--tasks", type=int, metavar="N", help="How many tasks to generate; default: 500.")
@click.option("--seed", type=int, default=0, metavar="S", help="The seed of the generated tasks.")
@click.option("--most-per-card", type=click.IntRange(1), metavar="N", help="How many tasks may share a card.")
@click.option(
    "--cores", type=click.IntRange(0), default=8, metavar="N", help="How many cores CPU tasks may use."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    history: Path | None,
    cards: str,
    tasks: int | None,
    seed: int,
    most_per_card: int | None,
    cores: int,
    as_json: bool,
) -> int:
    """Simulates the lab on a history of tasks: waiting times, use of the cards, shares of the users.

    The history is a file with one JSON object per line (docs/lab.md), or the output of `roost tasks --all
    --json`; without it tasks are generated. No task is started: time is virtual, and the decisions are made
    by the lab's policy.

    \b
    roost tasks --all --json > mine.json && roost simulate mine.json --cards 6x24GB
    roost simulate history.jsonl --cards 6x24GB      # would two more cards have helped?
    roost simulate --tasks 1000 --seed 1 --most-per-card 1
    """
    if history is not None and tasks is not None:
        fix = "leave out --tasks, or the history"
        raise UsageError(
            "is for generated tasks, and a history is given", setting="--tasks", received=tasks, fix=fix
        )
    from roost.cli.wait_progress import progress_reports
    from roost.operations.simulation.simulate import SimulateRequest, simulate

    request = SimulateRequest(
        history=history,
        cards=cards,
        tasks=500 if tasks is None else tasks,
        seed=seed,
        most_per_card=most_per_card,
        cores=cores,
    )
    with progress_reports() as report:
        shown = simulate(request, report=report)
    if as_json:
        terminal.print_json(shown)
    else:
        for line in _result_lines(shown):
            click.echo(terminal.escape_line(line))
        if shown.left_out:
            terminal.print_status(f"left out: {shown.left_out} tasks that have not ended")
    return 0


def _result_lines(shown: SimulationResult) -> Iterator[str]:
    time = terminal.format_duration
    tasks, cards = ("" if count == 1 else "s" for count in (shown.tasks, shown.cards))
    yield (
        f"{shown.tasks} task{tasks} on {shown.cards} card{cards}: {time(shown.makespan)}, "
        f"the cards {shown.used * 100:.0f}% in use, {shown.decisions} decisions"
    )
    yield ""
    rows = [
        [
            one.user,
            str(one.tasks),
            *(time(wait) for wait in (one.wait_p50, one.wait_p95, one.wait_max)),
            f"{one.gpu_seconds / 3600:.1f}",
            f"{one.share * 100:.1f}%",
        ]
        for one in shown.users
    ]
    header = ["USER", "TASKS", "WAIT P50", "P95", "MAX", "GPU HOURS", "SHARE"]
    yield from table.format_table(header, rows)
    if shown.longest is not None:
        yield ""
        yield f"longest wait: {_describe_task(shown.longest)}"
    if shown.never:
        yield ""
        yield f"never started: {len(shown.never)}"
        yield from (f"  {_describe_task(one)}" for one in shown.never[:_MAX_NEVER_STARTED])


def _describe_task(one: SimulatedTask) -> str:
    waited = "" if one.waited is None else f", {terminal.format_duration(one.waited)}"
    return f"{one.name} of {one.user}{waited}: {one.reason}"
