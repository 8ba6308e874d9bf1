"""`roost analyze`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import UsageError
from roost.cli import terminal
from roost.cli.commands.device import asked_device, device_options

_LONGEST_VALUE = 400

if TYPE_CHECKING:
    from roost.operations.running import Running
    from roost.package.sessions import Session


@click.command("analyze")
@click.argument("package", required=False, type=click.Path(path_type=Path))
@click.option(
    "-r", "--record", type=click.Path(path_type=Path), help="The package, if not given as the argument."
)
@click.option("-s", "--script", required=True, help="A file, or the name of one of the AnalyzeScripts.")
@click.option(
    "-c", "--checkpoint", type=int, metavar="ID", help="Look at this checkpoint, not the newest good one."
)
@click.option("--untrained", is_flag=True, help="Look at the weights as the Runner builds them.")
@device_options("auto")
@click.option("--project", type=click.Path(path_type=Path), help="Where the project is now, for its data.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Store the results below this folder.")
@click.option("--json", "as_json", is_flag=True, help="JSON; what the script prints then goes to stderr.")
def command(package: Path | None, record: Path | None, as_json: bool, **options: Any) -> int:
    """Runs the `experience` of a script on a trained package, whose training may still go on.

    What it prints, gives back and saves is kept in the package, under analysis/. Ctrl-C ends it.

    \b
    roost analyze runs/NAME -s accuracy            # AnalyzeScripts/accuracy.py
    roost analyze -r runs/NAME -s ~/look.py -c 3   # a script from elsewhere, on checkpoint 3
    roost analyze runs/NAME -s accuracy --json | jq .result.value
    """
    if (package is None) == (record is None):
        raise UsageError("name one package", fix="roost analyze runs/NAME -s SCRIPT")
    from roost.operations.analyze import AnalyzeRequest, analyze, outcome

    device = asked_device(options) or "auto"
    started = analyze(
        AnalyzeRequest(package=package or record, device=device, command=sys.argv, **options)  # type: ignore[arg-type]
    )
    for note in started.notes:
        terminal.say(note)
    assert started.running is not None and started.process is not None
    ended = _watch(started.running, _shower(2 if as_json else 1))
    started.process.wait()
    found = outcome(started.running, ended)
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        _tell(found)
    code = found["exit_code"]
    return code if isinstance(code, int) else 1


def _watch(running: Running, show: Callable[[bytes], None]) -> Session:
    """Shows what it prints until it has ended; Ctrl-C ends it, because there is nothing to save."""
    from roost.operations.running import ask, follow
    from roost.package.sessions import Session

    def end(number: int, frame: FrameType | None) -> None:
        session = running.session()
        if session.state == "running":
            ask(session, now=True)

    before = signal.signal(signal.SIGINT, end)
    try:
        for event in follow(running):
            if isinstance(event, Session):
                return event
            show(event)
    finally:
        signal.signal(signal.SIGINT, before)
    raise AssertionError("following ends with a session")


def _shower(fd: int) -> Callable[[bytes], None]:
    """Writes output as it comes: bytes into a pipe, without control sequences onto a terminal."""
    decode = terminal.Decoder() if os.isatty(fd) else None
    gone = False

    def show(piece: bytes) -> None:
        nonlocal gone
        data = decode(piece).encode() if decode else piece
        try:
            while data and not gone:
                data = data[os.write(fd, data) :]
        except OSError:
            gone = True  # `| head` has seen enough, or the disk is full: the result is still wanted

    return show


def _tell(found: dict[str, Any]) -> None:
    result = found["result"] or {}
    for line in _value(result):
        click.echo(line)
    for name in result.get("saved", []):
        click.echo(terminal.short(Path(found["folder"]) / name))
    for note in result.get("notes", []):
        terminal.say(terminal.harmless(note))
    where = terminal.short(Path(found["folder"]))
    if found["state"] == "succeeded":
        at = result.get("checkpoint")
        weights = f"checkpoint {at['id']}, step {at['step']}" if at else "untrained"
        took = terminal.duration(result.get("seconds"))
        terminal.say(f"{terminal.state('succeeded')} in {took}: {weights}, {result.get('device')}; {where}")
    else:
        why = terminal.harmless(found["error"] or found["reason"] or "no reason is known")
        terminal.say(f"{terminal.state(found['state'])}: {why}; {where}")


def _value(result: dict[str, Any]) -> Iterator[str]:
    """What was given back; names in a column of their own."""
    value = result.get("value")
    if isinstance(value, dict) and not {"file", "repr"} & value.keys():
        rows = [[terminal.harmless(name), _shown(one)] for name, one in value.items()]
        yield from terminal.columns(["", ""], rows)[1:] if rows else ()
    elif value is not None:
        yield _shown(value)
    for place, kind in result.get("nonfinite", {}).items():
        yield f"{terminal.harmless(place)} is {kind}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and "file" in value:
        shape = f", {value['dtype']} of shape {tuple(value['shape'])}" if "shape" in value else ""
        text = f"{value['file']}{shape}"
    elif isinstance(value, dict) and "repr" in value:
        text = str(value["repr"])
    text = terminal.harmless(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]} … (result.json has all of it)"
