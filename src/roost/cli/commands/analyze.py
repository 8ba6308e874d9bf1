"""`roost analyze`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from roost.base.errors import NotFound, UsageError
from roost.base.text.typed_path import typed_path
from roost.cli.options.checkpoint_option import checkpoint_option
from roost.cli.options.device_option import device_options, take_device
from roost.cli.options.rank_options import CARD_MEMORY, take_card_memory
from roost.cli.options.trust_option import trust_option
from roost.display import terminal

_MAX_NONFINITE = 10
_LOADING_OPTIONS = {
    "trust": "--trust", "project": "--project", "out": "--out", "device": "--device", "cpu": "-CPU",
    "memory": "-m",
}  # fmt: skip


@click.command("analyze")
@click.argument("package", required=False, metavar="[PACKAGE|TASK]", type=click.Path(path_type=Path))
@click.option(
    "-r", "--record", type=click.Path(path_type=Path), help="The package, if not given as the argument."
)
@click.option("-s", "--script", required=True, help="A file, or the name of a script in AnalyzeScripts.")
@checkpoint_option("The checkpoint to load")
@click.option("--untrained", is_flag=True, help="Use the weights as the Runner builds them, before training.")
@device_options("auto", verb="run the script")
@CARD_MEMORY
@trust_option
@click.option(
    "--project", type=click.Path(path_type=Path), help="The current path of the project, to find its data."
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path), help="Store the results in a new folder below this one."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; the script's output goes to stderr.")
def command(package: Path | None, record: Path | None, as_json: bool, **options: Any) -> int:
    """Runs the function `experience` of a script on a trained package. The training may still be running.

    The script's output, return value and saved files are stored in the package, under analysis/. Ctrl-C ends
    it. With the task of an analyzer (`roost submit analyze`) the script runs there: the package is loaded
    already, and the script must be in one of the folders of that analyzer.

    \b
    roost analyze runs/NAME -s accuracy            # runs AnalyzeScripts/accuracy.py
    roost analyze -r runs/NAME -s ~/look.py -c 3   # another script, on checkpoint 3
    roost analyze runs/NAME -s accuracy --json | jq .result.value
    roost analyze A_13 -s accuracy                 # in the analyzer A_13
    """
    if (package is None) == (record is None):
        raise UsageError("name one package", fix="type `roost analyze runs/NAME -s SCRIPT`")
    from roost.cli import live_run
    from roost.cli.plain_output import PlainScreen
    from roost.operations.models.analyze import AnalyzeRequest, analyze, outcome

    if package is not None and (task := _analyzer_task(package)) is not None:
        return _run_in_analyzer(task, as_json, **options)
    device = take_device(options) or "auto"
    options["memory_mb"] = take_card_memory(options, device=device)
    started = analyze(
        AnalyzeRequest(package=package or record, device=device, command=sys.argv, **options)  # type: ignore[arg-type]
    )
    for note in started.notes:
        terminal.print_status(note)
    assert started.running is not None and started.process is not None
    ended = live_run.watch_to_end(
        started.running, PlainScreen(sys.stderr if as_json else sys.stdout), live_run.end_at_once
    )
    started.process.wait()
    found = outcome(started.running, ended)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print_result(found)
    code = found["exit_code"]
    return code if isinstance(code, int) else 1


def _analyzer_task(named: Path) -> str | None:
    """Returns the id of the task that the text names, if it is an analyzer."""
    from roost.operations import resolve
    from roost.package.kinds import TaskKind

    if named.exists() or not resolve.has_queue():
        return None
    try:
        task, *others = resolve.find_tasks(str(named))
    except NotFound:
        return None  # the error about a package says more
    return task.id if not others and task.kind == TaskKind.ANALYZE else None


def _run_in_analyzer(task: str, as_json: bool, **options: Any) -> int:
    """Runs a script in an analyzer, shows its output and its result, and returns its exit code."""
    from roost.analysis.analyzers import call_inbox
    from roost.cli import live_call
    from roost.operations.analyzers import script_call

    _refuse_loading_options(options)
    script = typed_path(options["script"])
    name = str(script.absolute()) if script.is_file() else options["script"]
    switch = None
    if options["untrained"] or options["checkpoint"] is not None:
        wanted = call_inbox.UNTRAINED if options["untrained"] else options["checkpoint"]
        switch = script_call.switch_checkpoint(task, wanted)
    try:
        call = script_call.run_script(task, name)
    except BaseException:  # a script that is not there, Ctrl-C: the command leaves nothing behind
        if switch is not None:
            script_call.interrupt_switch(switch)
        raise
    found = live_call.show_call(call, sys.stderr if as_json else sys.stdout, switch)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _print_result(found)
    code = found["exit_code"]
    return code if isinstance(code, int) else 1


def _refuse_loading_options(options: Mapping[str, Any]) -> None:
    """Refuses the options that say how a package is loaded: the analyzer has loaded its own."""
    given = [option for name, option in _LOADING_OPTIONS.items() if options.get(name)]
    if given:
        raise UsageError(
            "a script in an analyzer does not take this option",
            setting=given[0],
            fix="leave it out, or start another analyzer with `roost submit analyze`",
        )


def _print_result(found: dict[str, Any]) -> None:
    from roost.analysis import analysis_folder, result_text

    result = found["result"] or {}
    place = Path(found["folder"])
    for line in (
        [*result_text.format_value(result["value"]), *_nonfinite_lines(result)]
        if result.get("value") is not None  # most scripts only print
        else []
    ):
        click.echo(line)
    for name in [analysis_folder.RESULT, *result.get("saved", [])] if result else []:
        click.echo(terminal.format_path(place / name))
    for note in result.get("notes", []):
        terminal.print_status(terminal.escape_text(note))
    terminal.print_status(f"{_end_line(found, result)}; {terminal.format_path(place)}")


def _nonfinite_lines(result: dict[str, Any]) -> list[str]:
    found = [f"{terminal.escape_text(place)} is {kind}" for place, kind in result["nonfinite"].items()]
    if len(found) > _MAX_NONFINITE:
        found[_MAX_NONFINITE:] = [f"… {len(found) - _MAX_NONFINITE} more are not finite"]
    return found


def _end_line(found: dict[str, Any], result: dict[str, Any]) -> str:
    from roost.cli import live_run

    state, took = terminal.format_state(found["state"]), terminal.format_duration(found["seconds"])
    if found["state"] == "succeeded":
        at = result.get("checkpoint")
        weights = f"checkpoint {at['id']}, {terminal.format_position(at)}" if at else "untrained"
        return f"{state} in {took}: {weights}, {result.get('device')}"
    if live_run.output_shows_error(Path(found["folder"]) / "_output.txt", found["error"]):
        return f"{state} after {took}"
    return f"{state}: {terminal.escape_text(found['error'] or found['reason'] or 'no reason is known')}"
