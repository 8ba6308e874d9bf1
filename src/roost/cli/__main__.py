"""The program ``roost``. A command's module is imported when the command is used, so that each command pays
only for its own imports."""

# Not durable: opens /dev/null in place of a closed standard stream

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from roost import __version__
from roost.base.errors import INTERRUPTED_EXIT_CODE, RoostError, with_fix
from roost.cli.count_line import CountLine
from roost.display import terminal
from roost.operations import work_progress
from roost.supervisor.notices import run_notice_list

COMMAND_GROUPS = {
    "Start a project": {
        "new": "Create a project from a template.",
        "convert": "Convert a config of SpeeChain or CornerNet.",
        "check": "Test all parts of a run in seconds.",
        "tune": "Measure faster settings of a run.",
    },
    "Train": {
        "run": "Train a project in a new package.",
        "attach": "Show a running session in this terminal.",
        "stop": "Save and stop runs or tasks.",
        "kill": "End runs or tasks at once, without saving.",
        "continue": "Resume a package where it stopped.",
        "fork": "Resume from a checkpoint in a new package.",
        "rerun": "Begin a run again in a new package.",
        "up": "Continue all runs that were interrupted.",
        "join": "Add this machine to a multi-node run.",
        "debug": "Open pdb at the step that failed.",
    },
    "Look at runs": {
        "ls": "List the packages of a folder.",
        "show": "Show one package, or the data of a project.",
        "logs": "Print the output of a package or task.",
        "profile": "Show what holds a run back.",
        "compare": "Show what differs between packages.",
        "plot": "Draw the metrics of packages into a picture.",
        "tensorboard": "Show packages in TensorBoard.",
        "mirror": "Send what TensorBoard, W&B or MLflow lack.",
        "verify": "Check the files of a package for damage.",
    },
    "Keep and throw away": {
        "tag": "Add tags to packages, or list them.",
        "note": "Show or replace the note of a package.",
        "star": "Star packages: these are not removed.",
        "unstar": "Remove the stars of packages.",
        "du": "Show what packages take on the disk.",
        "rm": "Move packages into the trash.",
        "restore": "Take packages back from the trash.",
        "gc": "Delete what is in the trash.",
        "prune": "Remove checkpoints that are not needed.",
        "push": "Upload a package to its remote copy.",
        "pull": "Restore a package from its remote copy.",
    },
    "Use a trained model": {
        "analyze": "Run a script on a trained package.",
        "predict": "Run a trained model on data.",
        "evaluate": "Test checkpoints, sample by sample.",
        "export": "Write weights or records to a plain file.",
        "import": "Make packages of other systems' runs.",
    },
    "Queue on a lab": {
        "submit": "Queue a training, a sweep or a command.",
        "tasks": "List the tasks of the queue.",
        "why": "Show why a task waits, or how it ended.",
        "priority": "Change the priority of tasks.",
        "hold": "Keep tasks from starting.",
        "release": "Let held tasks start.",
        "notices": "Show who is notified when tasks end.",
        "lab": "Control the lab: its daemon and its queue.",
        "simulate": "Simulate the lab on a history of tasks.",
    },
    "Cards": {
        "devices": "List the GPUs and what uses them.",
        "lease": "Run a command or a shell with leased GPUs.",
        "drain": "Keep new tasks off a GPU.",
        "doctor": "Find what is wrong here, and how to fix it.",
    },
    "Server and shells": {
        "server": "Serve all of this over HTTP.",
        "client": "Show the lab on the whole terminal.",
        "simple": "Type DLNest's commands for a server.",
        "local": "Type DLNest's commands without a server.",
    },
}
"""The commands by what a person wants to do, each with its line in ``roost --help``."""
COMMANDS = {name: text for group in COMMAND_GROUPS.values() for name, text in group.items()}
_MODULES = {"continue": "continue_", "import": "import_"}
_ALIASES = {"top": "client"}
"""Further names of commands, which `roost --help` does not list."""


class _CommandGroup(click.Group):
    """A group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"roost.cli.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in (*COMMANDS, *_ALIASES):
            from roost.base.text.suggestions import did_you_mean
            from roost.cli.other_tools import other_commands

            hint = other_commands.command_hint(name, args[1:])
            ctx.fail(
                f"there is no command {name!r}; {did_you_mean(name, COMMANDS)}see roost --help"
                if hint is None
                else f"there is no command {name!r}; {hint}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))  # one column for all groups
        for title, group in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in group.items()])


@click.group(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 config, 5 refused, 75 stopped and resumable, "
    "130 ended by a second Ctrl-C. Every command has its own --help.",
)
@click.version_option(__version__, message="roost %(version)s")
@click.option(
    "--debug", is_flag=True, expose_value=False, help="Show the traceback of an error; for every command."
)
def roost() -> None:
    """Trains PyTorch models. A run is never lost, never mixed up with another one, and can be reproduced.

    \b
    roost new digits && cd digits      create an example project
    roost run config.yaml              train it; the first line names the package
    roost continue runs/NAME           resume after Ctrl-C, kill -9 or a power cut
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        # Most objects of a command stay to its end: the collector would visit them again and again, and twice
        # at the exit, in a tenth of the time of `roost ls`.
        gc.set_threshold(50_000)
        atexit.register(gc.freeze)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the stream was closed at the start: its output is discarded
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  - open as long as the program runs
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what its encoding lacks becomes an escape
    if "--debug" in given:
        os.environ["ROOST_DEBUG"] = "1"  # inherited by the workers of a session that is started here
    try:
        code = run_command(given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed the pipe (`| head`). Exit at once: the flush at exit would fail
        # again.
        os._exit(1)
    sys.exit(code)


def run_command(given: Sequence[str]) -> int:
    """Runs one command; returns its exit code."""
    debug = "--debug" in given
    arguments = [argument for argument in given if argument != "--debug"]
    # A run that was killed together with its guard could not send its notice: the next command sends it.
    run_notice_list.send_unsent(os.environ)
    line = CountLine()
    try:
        with work_progress.shown_by(line):
            answer = roost.main(arguments, prog_name="roost", standalone_mode=False)
    except click.NoSuchOption as error:
        _unknown_option(error, arguments).show()
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  - the last place where an error can become one line
        line.remove()
        return report_error(error, debug=debug)
    return answer if isinstance(answer, int) else 0


def _unknown_option(error: click.NoSuchOption, arguments: list[str]) -> click.UsageError:
    """Returns an error that says what to write here for an option of another tool, or a setting."""
    if error.ctx is None:
        return error
    from roost.cli.other_tools import other_commands

    typed = arguments[1 : arguments.index("--")] if "--" in arguments else arguments[1:]
    hint = other_commands.option_hint(error.option_name, typed, error.ctx.command)
    if hint is None:
        return error
    return click.UsageError(f"No such option {error.option_name!r}; {hint}", error.ctx)


def report_error(error: Exception, *, debug: bool = False) -> int:
    """Prints one line about an error, with ``--debug`` the traceback too; returns the exit code."""
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, RoostError):
        terminal.print_error(str(error))
        return error.exit_code
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_folder_gone():
        terminal.print_error(with_fix("the current folder was removed", "change to a folder that exists: cd"))
        return 1
    if isinstance(error, OSError):
        path = f": {error.filename}" if error.filename is not None else ""
        fix = None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fix = "free space on that disk, or name another folder (of a run: save_root)"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            fix = "work on a copy, or as a user who has the rights"
        terminal.print_error(with_fix(f"{error.strerror or error}{path}", fix))
    else:
        terminal.print_error(f"{type(error).__name__}: {error} (a bug in roost; --debug shows where)")
    return 1


def _is_folder_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


if __name__ == "__main__":
    main()
