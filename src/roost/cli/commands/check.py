"""`roost check`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from roost.base.text.byte_sizes import format_bytes, format_memory
from roost.base.text.durations import format_short_duration
from roost.cli.options.config_help import ConfigCommand, config_options
from roost.cli.options.device_option import device_options, take_device
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.lifecycle.check import CheckOutcome
    from roost.operations.lifecycle.run_estimate import RunEstimate


@click.command("check", cls=ConfigCommand)
@click.argument("arguments", nargs=-1, metavar="[CONFIG] [a.b=c]...")
@config_options
@device_options("auto", verb="check")
@click.option("--stage", is_flag=True, help="Unpack the archives of data.stage, whatever their size.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def command(arguments: tuple[str, ...], config: Path | None, as_json: bool, **options: Any) -> int:
    """Tests all parts of a run in seconds: an error that would come after hours comes now.

    The project is copied as by `roost run`. The check then reads one sample of each set, takes the first and
    the last step of an epoch, writes a row, saves, validates on the first and the last batch, visualizes,
    tests, loads the checkpoint, and repeats the step. No file remains, and save_root is not touched. Exit
    code 0 means ready; otherwise it is the one that the run would have.

    \b
    roost check config.yaml
    roost check configs/small.json --project .
    roost check config.yaml --stage             # with a large archive of data.stage
    roost check config.yaml max_epochs=100 model.dropout=0.5 -CPU
    """
    from roost.cli import live_run
    from roost.cli.commands.run import config_and_overrides
    from roost.cli.plain_output import PlainScreen
    from roost.cli.wait_progress import format_unfinished
    from roost.operations.lifecycle.check import CheckRequest, check

    device = take_device(options) or "auto"
    config, overrides = config_and_overrides(config, arguments, command="check")
    request = CheckRequest(config=config, overrides=overrides, device=device, command=sys.argv, **options)
    with check(request) as started:
        outcome, is_printed = live_run.wait_for_outcome(
            started, PlainScreen(sys.stderr if as_json else sys.stdout)
        )
    if as_json:
        click.echo(json.dumps(_to_json(outcome), indent=2))
    else:
        for line in _lines(outcome):
            click.echo(line)
    if not outcome.is_ready:
        terminal.print_status(format_unfinished(outcome, is_printed=is_printed, what="check"))
    return outcome.exit_code


def _to_json(outcome: CheckOutcome) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(outcome)
    findings = body.pop("findings")
    return {**body, "stages": findings["stages"], "measured": findings["measured"]}


def _lines(outcome: CheckOutcome) -> Iterator[str]:
    for text in outcome.warnings[len(outcome.findings.warnings) :]:  # the worker has printed its own
        yield f"warning: {text}"
    if outcome.estimate is not None:
        yield from _ready_lines(outcome, outcome.estimate)
    elif outcome.is_ready:
        yield "ready: how long it trains is decided by its LifeCycle"


def _ready_lines(outcome: CheckOutcome, estimate: RunEstimate) -> list[str]:
    number = len(outcome.warnings)
    warned = f" (with {_count(number, 'warning')} above)" if number else ""
    total = "" if estimate.total_steps is None else f" of {_count(estimate.total_steps, 'step')}"
    lines = [
        f"ready{warned}: {_count(estimate.steps_per_epoch, 'step')} an epoch, "
        f"about {format_short_duration(estimate.seconds_per_step)} each; an epoch takes about "
        f"{format_short_duration(estimate.seconds_per_epoch)}, the whole run{total} about "
        f"{format_short_duration(estimate.total_seconds)}"
    ]
    if estimate.checkpoints:
        kept = _count(estimate.checkpoints, "checkpoint")
        lines.append(
            f"disk: up to {kept} of {format_bytes(estimate.checkpoint_bytes)}, "
            f"{format_bytes(estimate.disk_bytes)} of the {format_bytes(estimate.free_bytes)} that are free"
        )
    return [*lines, *_memory_lines(outcome.findings.measured)]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _memory_lines(measured: Mapping[str, Any]) -> list[str]:
    host, gpu = measured.get("peak_host_mb"), measured.get("peak_gpu_mb")
    if host is None:
        return []
    more = "" if gpu is None else f", {format_memory(gpu)} on the GPU"
    return [f"memory: at most {format_memory(host)} on the host without loader workers{more}"]
