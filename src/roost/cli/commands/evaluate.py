"""`roost evaluate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import UsageError
from roost.cli.options.device_option import device_options, take_device
from roost.cli.options.evaluation_options import evaluation_options, take_evaluation
from roost.cli.options.rank_options import take_ranks
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.evaluating.evaluate import StartedEvaluation

_PATH = click.Path(path_type=Path)


def package_and_overrides(
    arguments: tuple[str, ...], record: Path | None, *, example: str
) -> tuple[Path, tuple[str, ...]]:
    """Returns the package, the first argument unless -r gave it, and the overrides.

    Raises:
        UsageError: No package is named, or two.
    """
    if record is None:
        if not arguments or "=" in arguments[0]:
            raise UsageError("no package is named", fix=f"type `{example}`")
        record, arguments = Path(arguments[0]), arguments[1:]
    for one in arguments:
        if "=" not in one and not one.startswith("~"):
            raise UsageError("is no override", received=one, fix=f"write a.b=c, or type `{example}`")
    return record, arguments


@click.command("evaluate")
@click.argument("arguments", nargs=-1, metavar="PACKAGE [a.b=c]...")
@click.option("-r", "--record", type=_PATH, help="The package, if not given as the argument.")
@evaluation_options
@device_options("auto", verb="evaluate")
@click.option(
    "--devices",
    metavar="2|0,2|auto",
    help="How many GPUs, or which ones; one process per GPU. With -CPU: how many processes.",
)
@click.option("-DDP", "ddp", is_flag=True, help="One process per GPU.")
@click.option(
    "-m",
    "memory",
    metavar="MB",
    help="Memory that it takes of each card: 8000, or 8GB; others can share the card.",
)
@click.option("--cpus", type=click.IntRange(1), metavar="N", help="CPU cores; default: all.")
@click.option("--detach", is_flag=True, help="Start it in the background; watch it with roost attach.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def command(arguments: tuple[str, ...], record: Path | None, **options: Any) -> int:
    """Evaluates a package: each selected checkpoint with each variant on each test set, sample by sample.

    The results are in evaluations/NAME of the package: rows of all samples, files, summaries and a report. A
    killed evaluation goes on when the same command is typed again, also with another number of processes;
    finished cells are found again. a.b=c changes a setting for the evaluation alone. The training may still
    be running.

    \b
    roost evaluate runs/NAME
    roost evaluate runs/NAME --checkpoints 'average(best:10),last' --variants variants.yaml
    roost evaluate runs/NAME --datasets clean,noisy --name noise -CPU --devices 2
    roost evaluate runs/NAME --weights other.safetensors data.test.batch_size=64
    """
    from roost.operations.evaluating.evaluate import evaluate
    from roost.operations.evaluating.evaluation_request import EvaluateRequest

    package, overrides = package_and_overrides(arguments, record, example="roost evaluate runs/NAME")
    device = take_device(options) or "auto"
    detach, as_json = options.pop("detach"), options.pop("as_json")
    ranks = take_ranks(
        {
            **{name: options.pop(name) for name in ("devices", "ddp", "memory", "cpus")},
            "strategy": None,
            "fsdp": False,
            "several_cards": False,
            "num_nodes": 1,
            "host_memory": None,
            "rendezvous": None,
            "restart": 0,
        },
        device=device,
    )
    request = EvaluateRequest(
        package=package,
        overrides=overrides,
        device=device,
        ranks=ranks,
        command=sys.argv,
        **take_evaluation(options),
    )
    return _follow(evaluate(request), detach=detach, as_json=as_json)


def _follow(started: StartedEvaluation, *, detach: bool, as_json: bool) -> int:
    from roost.cli import live_run
    from roost.cli.evaluations.evaluation_view import print_evaluation

    if started.running is None:
        for note in started.notes:
            terminal.print_status(terminal.escape_text(note))
        print_evaluation(started.folder, as_json=as_json)
        return 0
    if detach:
        for note in started.notes:
            terminal.print_status(terminal.escape_text(note))
        click.echo(terminal.format_path(started.folder))
        again = terminal.quote_path(started.folder)
        terminal.print_status(f"it runs in the background; to watch it: roost attach {again}")
        return 0
    code = live_run.watch(
        started.running,
        live_run.stop_evaluation,
        "session {}: {interrupt} stops it, and the same command goes on; it runs on if {closing}",
        started.notes,
        to_stderr=as_json,
    )
    if started.discard_refused():
        terminal.print_status(f"nothing was evaluated, and {terminal.format_path(started.folder)} is removed")
    if code == 0:
        print_evaluation(started.folder, as_json=as_json)
    return code
