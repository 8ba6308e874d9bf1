"""`roost check`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from roost.base.duration import duration
from roost.base.size import size
from roost.cli import terminal
from roost.cli.commands.device import asked_device, device_options

if TYPE_CHECKING:
    from roost.operations.check import Outcome


@click.command("check")
@click.argument("arguments", nargs=-1, metavar="[CONFIG] [a.b=c]...")
@click.option(
    "-c", "--config", "config", type=click.Path(path_type=Path), help="The config, if not given first."
)
@click.option("-f", "--tuning", type=click.Path(path_type=Path), help="A second config, above the first.")
@device_options("auto", verb="do it")
@click.option("--json", "as_json", is_flag=True, help="JSON; everything else then goes to stderr.")
def command(arguments: tuple[str, ...], config: Path | None, as_json: bool, **options: Any) -> int:
    """Walks through a whole run in seconds: what would fail hours later fails now.

    The project is copied as `roost run` does it. Then: one sample of each set, the first step of an epoch and
    its last, row, save, validation on the first and last batch, visualize, test, load, the same step again.
    Nothing of it stays, nothing is written into save_root. Exits with 0 when ready, else as the run would.

    \b
    roost check config.yaml
    roost check config.yaml max_epochs=100 model.dropout=0.5 -CPU
    """
    from roost.cli import live
    from roost.cli.commands.run import config_and_overrides
    from roost.cli.plain import Plain
    from roost.operations.check import CheckRequest, check, outcome

    device = asked_device(options) or "auto"
    config, overrides = config_and_overrides(config, arguments, command="check")
    request = CheckRequest(config=config, overrides=overrides, device=device, command=sys.argv, **options)
    with check(request) as started:
        for note in started.notes:
            terminal.say(note)
        screen = Plain(sys.stderr if as_json else sys.stdout)
        ended = live.watch_to_end(started.running, screen, live.end_at_once)
        started.process.wait()
        found = outcome(started, ended)
        was_told = live.was_told(started.running.output, found.error)
    if as_json:
        click.echo(json.dumps(_plain(found), indent=2))
    elif found.estimate is not None:
        for line in _ready(found):
            click.echo(line)
    if not found.is_ready:
        terminal.say(_not_ready(found, was_told=was_told))
    return found.exit_code


def _plain(found: Outcome) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(found)
    things = body.pop("found")
    return {**body, "things": things["things"], "measured": things["measured"]}


def _ready(found: Outcome) -> list[str]:
    estimate = found.estimate
    assert estimate is not None
    number = len(found.warnings)
    warned = f" (with {number} warning{'s' if number > 1 else ''} above)" if number else ""
    total = "" if estimate.total_steps is None else f" of {estimate.total_steps:,} steps"
    lines = [
        f"ready{warned}: {estimate.steps_per_epoch:,} steps an epoch, "
        f"about {_short(estimate.seconds_per_step)} each; an epoch takes about "
        f"{_short(estimate.seconds_per_epoch)}, the whole run{total} about {_short(estimate.total_seconds)}"
    ]
    if estimate.checkpoints:
        lines.append(
            f"disk: up to {estimate.checkpoints:,} checkpoints of {size(estimate.checkpoint_bytes)}, "
            f"{size(estimate.disk_bytes)} of the {size(estimate.free_bytes)} that are free"
        )
    lines += _memory(found.found.measured)
    # What the worker said stands above already.
    return [*(f"warning: {text}" for text in found.warnings[len(found.found.warnings) :]), *lines]


def _memory(measured: Mapping[str, Any]) -> list[str]:
    host, gpu = measured.get("peak_host_mb"), measured.get("peak_gpu_mb")
    if host is None:
        return []
    more = "" if gpu is None else f", {size(gpu * 2**20)} on the GPU"
    return [f"memory: at most {size(host * 2**20)} on the host, its loader workers apart{more}"]


def _short(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else duration(seconds)


def _not_ready(found: Outcome, *, was_told: bool) -> str:
    state, at = terminal.state(found.state), f" at {found.failed}" if found.failed else ""
    if found.state == "stopped":
        return f"{state}{at}: nothing of the check is left"
    why = "" if was_told else f": {terminal.harmless(found.error or found.reason or 'no reason is known')}"
    return f"{state}{at}{why}"
