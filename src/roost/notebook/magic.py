"""``%load_ext roost``: the magics ``%roost`` and ``%%roost``, which run a command of the command line in the
kernel. IPython calls this module; it imports nothing of it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import shlex
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.base.errors import INTERRUPTED_EXIT_CODE, STOPPED_EXIT_CODE, Refused, RoostError, UsageError
from roost.cli import __main__ as command_line
from roost.cli import surface
from roost.cli.surface import Surface
from roost.display import terminal
from roost.notebook.cell_screen import CellScreen
from roost.notebook.cell_stream import CellStream

_TERMINAL_COMMANDS = frozenset(
    ["client", "top", "simple", "local", "debug", "server", "lease", "tensorboard"]
)
"""Commands that read keys, take the place of this process, or serve until they are interrupted."""
_SOURCE_FILE = "cell.py"
_DIGEST_CHARACTERS = 8
_SOURCE_MARK = b"# the cell of a notebook, run by %%roost\n"
"""In place of the first line of the cell, so that line numbers are those of the cell."""
_IMAGES = {".png": "image/png", ".svg": "image/svg+xml"}
_MAX_IMAGE_BYTES = 2_000_000


def load_ipython_extension(shell: Any) -> None:
    """Registers ``%roost`` and ``%%roost``.

    Args:
        shell: The ``InteractiveShell``.
    """
    shell.register_magic_function(RoostMagic(shell), "line_cell", "roost")


class CommandFailed(Exception):
    """A command in a cell has failed, or its run was stopped: the cells below are not run."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # the command has printed what happened


class RoostMagic:
    """``%roost run config.yaml a.b=c``: runs a command in the kernel, in the current folder. Interrupting the
    cell saves and stops the run, as Ctrl-C does at a terminal; the run does not depend on the kernel.

    ``%%roost [OPTIONS]``: runs the source of the cell as a program in a package of its own. OPTIONS are those
    of ``roost run``.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.__doc__ = type(self).__doc__

    def __call__(self, line: str, cell: str | None = None) -> None:
        """Runs a command.

        Raises:
            CommandFailed: Its exit code is not 0.
        """
        with self._surface():
            try:
                arguments = _split(line)
                code = self._run(arguments) if cell is None else self._run_source(arguments, cell)
            except (RoostError, OSError) as error:
                code = command_line.report_error(error)
            except KeyboardInterrupt:  # before anything runs, or after
                code = INTERRUPTED_EXIT_CODE
        if code:
            typed = f"{'%' if cell is None else '%%'}roost {line}".strip()
            raise CommandFailed(f"{typed}: exit code {code}")

    def _run(self, arguments: list[str]) -> int:
        command = next((one for one in arguments if not one.startswith("-")), "")
        if command in _TERMINAL_COMMANDS:
            fix = "type it in a terminal"
            raise UsageError("does not run in a notebook", setting=command, fix=fix)
        sys.argv = ["roost", *arguments]  # recorded as the command of a session
        code = command_line.run_command(arguments)
        if code == STOPPED_EXIT_CODE and command == "run":
            has_name = any(one.partition("=")[0] == "--name" for one in arguments)
            terminal.print_status(
                "or run this cell again" if has_name else "with --name NAME, running the cell again continues"
            )
        return code

    def _run_source(self, options: list[str], source: str) -> int:
        """Runs the source of a cell as a program, from a file in the current folder that is copied into its
        package. A program that runs in place needs the file later, too: it stays, under a name of its own."""
        runs_in_place = "--in-place" in options
        digest = hashlib.sha256(source.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        path = Path.cwd() / (f"cell_{digest}.py" if runs_in_place else _SOURCE_FILE)
        if path.exists() and not path.read_bytes().startswith(_SOURCE_MARK):
            raise Refused(
                "%%roost writes the cell to a file of this name, which is another one",
                where=path,
                fix="rename the file",
            )
        durable.write(path, _SOURCE_MARK + source.encode())
        try:
            about = shlex.join(["%%roost", *options])  # unless the options have a description
            return self._run(["run", "--description", about, *options, "--", sys.executable, path.name])
        finally:
            if not runs_in_place:
                durable.discard(path)

    @contextlib.contextmanager
    def _surface(self) -> Iterator[None]:
        """Gives a command the output of the cell; in IPython at a terminal it has that terminal."""
        before = sys.argv
        try:
            if not hasattr(self._shell, "kernel"):
                with surface.installed(Surface(program="%roost")):
                    yield
                return
            cell = CellStream(sys.stdout)
            display = _CellDisplay(self._shell.display_pub)
            found = Surface(
                program="%roost",
                interrupt="interrupting the cell",
                closing="the kernel dies (%roost attach shows it)",
                attached="interrupting the cell detaches it",
                # Jupyter ends a busy kernel by an interrupt, then by SIGTERM. That one would be the second
                # signal, which ends a run without saving.
                stop_signals=(signal.SIGINT,),
                new_screen=lambda running: CellScreen(running, display.replace),
                show_picture=display.show_picture,
            )
            streams = contextlib.redirect_stdout(cell), contextlib.redirect_stderr(cell)
            with streams[0], streams[1], surface.installed(found):
                yield
        finally:
            sys.argv = before


class _CellDisplay:
    """The output of a cell that is replaced by each update.

    Args:
        publisher: The ``DisplayPublisher`` of the shell.
    """

    def __init__(self, publisher: Any) -> None:
        self._publisher, self._id, self._is_shown = publisher, uuid.uuid4().hex, False

    def replace(self, data: Mapping[str, str]) -> None:
        """Shows data by media type in place of what was shown before."""
        transient = {"display_id": self._id}
        self._publisher.publish(data=dict(data), transient=transient, update=self._is_shown)
        self._is_shown = True

    def show_picture(self, path: Path) -> None:
        """Shows a picture, if notebooks can and it is of a usual size."""
        kind = _IMAGES.get(path.suffix)
        if kind is not None and path.stat().st_size <= _MAX_IMAGE_BYTES:
            data = path.read_bytes()
            shown = data.decode() if kind == _IMAGES[".svg"] else base64.b64encode(data).decode()
            self._publisher.publish(data={kind: shown, "text/plain": str(path)})


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        fix = "close the quotation marks"
        raise UsageError(str(error), setting="%roost", received=line, fix=fix) from None
