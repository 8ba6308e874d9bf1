"""Follows a script in an analyzer from a terminal. The script does not depend on it."""

from __future__ import annotations

import codecs
import signal
from types import FrameType
from typing import IO, Any

from roost.base.text.terminal_styles import StyleParser
from roost.cli.plain_output import PlainScreen
from roost.display import terminal
from roost.operations.analyzers import script_call
from roost.operations.analyzers.call_results import CheckpointSwitch, ScriptCall
from roost.operations.analyzers.call_stream import follow_call
from roost.operations.models import analyze
from roost.package.sessions import Session


def show_call(call: ScriptCall, to: IO[str], switch: CheckpointSwitch | None = None) -> dict[str, Any]:
    """Shows the output of a call until it ends; returns its result. Ctrl-C interrupts the script; a second
    one leaves it to its analyzer.

    Args:
        call: The call.
        to: The stream of its output.
        switch: The switch of the checkpoint that was requested for it; Ctrl-C interrupts that, too.

    Raises:
        KeyboardInterrupt: After the second Ctrl-C.
    """
    terminal.print_status(f"script: {call.script}")
    screen, strip = PlainScreen(to), None if terminal.allows_colours(to) else _Stripper()

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        terminal.print_status("interrupting the script; Ctrl-C again leaves it to the analyzer")
        script_call.interrupt_call(call)
        if switch is not None:
            script_call.interrupt_switch(switch)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        for event in follow_call(call):
            if isinstance(event, Session):
                return analyze.outcome_of(call.package, event, call.folder)
            if isinstance(event, str):
                terminal.print_status(terminal.escape_text(event))
            elif event:
                screen.write(strip(event) if strip is not None else event)
    finally:
        signal.signal(signal.SIGINT, before)
    raise AssertionError("following ends with a session")


class _Stripper:
    """Takes the styles of an analyzer out of its output, for a stream that shows none."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="surrogateescape")
        self._parser = StyleParser()

    def __call__(self, piece: bytes) -> bytes:
        found = self._parser.feed(self._decode.decode(piece))
        return "".join(text for _, text in found).encode("utf-8", "surrogateescape")
