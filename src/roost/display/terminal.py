"""Terminal input and output: data goes to stdout, status lines and errors go to stderr.

Text may quote names that another user or a program chose. All functions that print or format make its control
characters visible, its colours too. Only the styles of roost's own words pass, and those of a run's output.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

import click

from roost.base.text import terminal_text
from roost.base.text.durations import format_duration as format_duration
from roost.base.text.timestamps import format_time as format_time

_COLOUR_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")
_MAX_COLOUR_CHARACTERS = 24
_NOTEBOOK_VARIABLE = "JPY_PARENT_PID"
"""Set in the kernels of Jupyter, Colab, Kaggle and VS Code, not in the terminals that they open."""
_OWN_STYLE = re.compile(r"\x1b\[(?:0|1|31|32|33|36)m")
"""What `click.style` writes here: bold, and the colours of states and errors."""
STYLED_CELL = re.compile(rf"(?:{_OWN_STYLE.pattern})+[^\x1b]*\x1b\[0m")
"""Text in styles of roost's own words."""
_STATE_COLOURS = {
    "succeeded": "green",
    "running": "cyan",
    "starting": "cyan",
    "stopped": "yellow",
    "failed": "red",
    "crashed": "red",
    "damaged": "red",
}


def can_draw(stream: IO[str]) -> bool:
    """Whether a stream is a terminal on which lines can be redrawn. A notebook's ``!command`` has a terminal
    that only collects what is written: each redrawn line would stay in the notebook."""
    is_simple = os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return stream.isatty() and not is_simple and _NOTEBOOK_VARIABLE not in os.environ


def allows_colours(stream: IO[str]) -> bool:
    """Whether colours may be written to a stream: it is a terminal, and NO_COLOR is not set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def print_status(text: str) -> None:
    """Prints one status line to stderr, escaped as by `escape_line`. A closed or full stderr is ignored."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(escape_line(text), err=True, color=allows_colours(sys.stderr))


def print_json(value: object) -> None:
    """Prints a value as JSON to stdout."""
    import msgspec

    click.echo(encode_json(msgspec.json.format(msgspec.json.encode(value), indent=2)))


def encode_json(data: bytes) -> str:
    """Returns encoded JSON as text that does nothing to a terminal, with the same values."""
    return terminal_text.escape_json(data.decode())


def shows_text(stream: IO[str]) -> bool:
    """Whether a stream shows text to a person, so that what a run printed is decoded and escaped for it: a
    terminal, or the cell of a notebook, which takes no bytes."""
    return stream.isatty() or not isinstance(stream, io.TextIOWrapper)


def write_bytes(data: bytes, to: IO[str] | None = None) -> None:
    """Writes bytes to a stream (stdout when None), past its buffer: bytes that a closed pipe refused are not
    written again at exit.

    Raises:
        BrokenPipeError: The reader has closed the pipe.
    """
    stream = to or sys.stdout
    if not isinstance(stream, io.TextIOWrapper):
        stream.write(data.decode(errors="replace"))
        return
    view, fd = memoryview(data), stream.fileno()
    while view:
        view = view[os.write(fd, view) :]


def read_key(question: str) -> str:
    """Prints a question and reads one key from the terminal that is stdin, in lower case. Ctrl-C is returned
    as a key; an empty text means that stdin is closed."""
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    keys = termios.tcgetattr(fd)
    keys[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    try:
        termios.tcsetattr(fd, termios.TCSANOW, keys)  # before the question: a key may be pressed at once
        print_status(question)
        return os.read(fd, 1).decode(errors="replace").lower()
    finally:
        termios.tcsetattr(fd, termios.TCSANOW, before)


def print_error(text: str) -> None:
    """Prints one line about an error to stderr, escaped."""
    print_status(f"{click.style('error:', fg='red', bold=True)} {escape_text(text)}")


class RewrittenLine:
    """Shows status lines, each in place of the one before on a terminal; the last one stays. Elsewhere all
    lines are printed."""

    def __init__(self) -> None:
        self._rewrites = can_draw(sys.stderr)
        self._is_open = False

    def show(self, text: str) -> None:
        """Shows a line in place of the one before."""
        if not self._rewrites:
            print_status(text)
            return
        width = shutil.get_terminal_size().columns
        with contextlib.suppress(OSError, ValueError):
            click.echo(f"\r\x1b[K{truncate(escape_line(text), width)}", err=True, nl=False, color=True)
        self._is_open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_open:
            print_status("")


def escape_line(text: str) -> str:
    """Makes all control characters visible but line ends, tabs and the styles of roost's own words, of which
    none stays open."""
    if text.isprintable():
        return text
    parts, styles = _OWN_STYLE.split(text), _OWN_STYLE.findall(text)
    styles += ["\x1b[0m"] if styles and styles[-1] != "\x1b[0m" else []
    found = [
        f"{terminal_text.escape_control(part)}{style}" for part, style in zip(parts, styles, strict=False)
    ]
    return "".join([*found, *map(terminal_text.escape_control, parts[len(styles) :])])


def format_state(name: str, text: str | None = None) -> str:
    """Returns the name of a state, or another text about it, in its colour; `click.echo` removes the colour
    where none is allowed."""
    shown, colour = name if text is None else text, _STATE_COLOURS.get(name)
    return shown if colour is None else click.style(shown, fg=colour)  # never a style without a beginning


def format_position(checkpoint: Mapping[str, Any]) -> str:
    """Returns the step of a checkpoint; without a known step its epoch."""
    step = checkpoint["step"]
    return f"step {step}" if step is not None else f"epoch {checkpoint['epoch']}"


def escape_text(text: str) -> str:
    """Makes all control characters of foreign text visible but line ends and tabs."""
    return terminal_text.escape_control(text)


def escape_name(text: str) -> str:
    """Makes all control characters of foreign text visible, so that it is one line."""
    return escape_text(text.replace("\n", "\\n").replace("\t", "\\t"))


class OutputDecoder:
    """Decodes the output of a run piece by piece to escaped text; a character or colour may be split between
    pieces."""

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._kept = ""

    def __call__(self, piece: bytes, *, final: bool = False) -> str:
        text = self._kept + self._utf8.decode(piece, final)
        # Both halves of a colour that is split between two pieces would be escaped.
        cut = len(text) if final else text.rfind("\x1b", -_MAX_COLOUR_CHARACTERS)
        if cut < 0 or _COLOUR_SEQUENCE.match(text, cut):
            cut = len(text)
        self._kept = text[cut:]
        return terminal_text.escape_control(text[:cut], colours=True)


def symbol(text: str, ascii_text: str) -> str:
    """Returns a text that has characters beyond ASCII, or the other one if stdout cannot show it."""
    stream = sys.stdout if hasattr(sys.stdout, "encoding") else sys.__stdout__  # Textual's stdout has none
    try:
        text.encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ascii_text
    return text


def truncate(line: str, width: int) -> str:
    """Returns the line truncated to a width, with an ellipsis; colours do not count."""
    if len(line) <= width and line.isascii():
        return line
    if cell_width(line) <= width:
        return line
    ellipsis = symbol("…", "...")
    kept, free = "", width - len(ellipsis)
    for index, part in enumerate(_COLOUR_SEQUENCE.split(line)):
        colour = _COLOUR_SEQUENCE.findall(line)[index - 1] if index else ""
        part = crop(part, free)
        kept, free = kept + colour + part, free - cell_width(part)
    return f"{kept}{ellipsis}"


def cell_width(text: str) -> int:
    """Returns the places that a text takes on a terminal: a Chinese character takes two, a colour none."""
    bare = click.unstyle(text) if "\x1b" in text else text
    if bare.isascii():
        return len(bare)
    from rich.cells import cell_len

    return cell_len(bare)


def crop(text: str, width: int) -> str:
    """Returns the beginning of a text that takes at most a width."""
    if text.isascii():
        return text[: max(0, width)]
    while text and cell_width(text) > width:
        text = text[: max(0, min(len(text) - 1, width))]
    return text


def format_path(path: Path) -> str:
    """Returns the path as a user would type it: relative to the current folder if it is inside."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the current folder was removed
        return str(path)
    inside = path.is_relative_to(here) and path != here and here != Path("/")
    return str(path.relative_to(here)) if inside else str(path)


def quote_path(path: Path) -> str:
    """Returns `format_path` for a command line, quoted where a shell needs it."""
    return shlex.quote(format_path(path))


def format_step(step: int | None, total_steps: int | None) -> str:
    """Returns a step, with the number of steps of the run if that is known; empty for None."""
    return "" if step is None else f"{step}/{total_steps}" if total_steps else str(step)


def format_number(value: float | None) -> str:
    """Returns a number with four significant digits; empty for None."""
    return "" if value is None else f"{value:.4g}"
