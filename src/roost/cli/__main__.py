"""The program ``roost``. Commands are imported when they are used, so that each costs only what it needs."""

# Not durable: opens /dev/null in the place of a stream that was closed

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from roost import __version__
from roost.base.errors import INTERRUPTED_EXIT_CODE, RoostError
from roost.cli import terminal
from roost.supervisor.notices import run_notice_list

COMMANDS = {
    "new": "Make a project from a template.",
    "check": "Walk through a whole run in seconds.",
    "run": "Train a project in a new package.",
    "submit": "Let the lab run it, in its turn.",
    "continue": "Go on with a package, exactly where it was.",
    "join": "Take part in a run of several machines.",
    "attach": "Show a run that goes on by itself.",
    "fork": "Go on from a checkpoint in a new package.",
    "debug": "Stop in pdb at the step that failed.",
    "analyze": "Run a script on a trained package.",
    "predict": "Let a trained package predict on data.",
    "export": "Write weights or records into a plain file.",
    "tasks": "List what waits, runs, and has ended.",
    "why": "Say why a task waits, or how it ended.",
    "stop": "Ask what runs, or waits, to save and end.",
    "kill": "End tasks at once.",
    "hold": "Hold tasks back.",
    "release": "Let tasks go that were held back.",
    "priority": "Give a task another priority.",
    "ls": "List the packages of a folder.",
    "show": "Show one package, or the data of a project.",
    "logs": "Print what a package, or a task, printed.",
    "plot": "Draw the curves of packages into a picture.",
    "tensorboard": "Show packages in TensorBoard.",
    "devices": "Show the GPUs and who is on them.",
    "drain": "Let no more tasks begin on a GPU.",
    "lease": "Run a command, or a shell, with GPUs.",
    "lab": "See to the lab: its daemon, its queue.",
    "notices": "Show who is told when tasks end.",
    "server": "Serve all this over HTTP.",
    "simulate": "Try the lab's policy on a history of tasks.",
    "verify": "Compare a package with what was written.",
}
_NAMES_ELSEWHERE = {
    **dict.fromkeys(("cancel", "abort", "delete", "scancel", "qdel"), "stop"),
    **dict.fromkeys(("queue", "status", "jobs", "ps", "squeue", "qstat"), "tasks"),
    **dict.fromkeys(("enqueue", "sbatch", "qsub"), "submit"),
    **dict.fromkeys(("resume", "restart"), "continue"),
    **dict.fromkeys(("train", "srun"), "run"),
    **dict.fromkeys(("explain", "reason"), "why"),
    **dict.fromkeys(("gpus", "cards", "sinfo"), "devices"),
    "daemon": "lab",
}
"""What other schedulers and trainers call them."""
_MODULES = {"continue": "continue_"}


class _CommandGroup(click.Group):
    """A group that imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"roost.cli.commands.{_MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from roost.base.text.suggestions import did_you_mean

            meant = (
                f"did you mean {_NAMES_ELSEWHERE[name]!r}? "
                if name in _NAMES_ELSEWHERE
                else did_you_mean(name, COMMANDS)
            )
            ctx.fail(f"there is no command {name!r}; {meant}see roost --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 config, 5 refused, 75 stopped and resumable, "
    "130 ended by a second Ctrl-C.",
)
@click.version_option(__version__, message="roost %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks; works with every command.")
def roost() -> None:
    """Trains PyTorch models, and never loses, mixes up or fails to reproduce a run.

    \b
    roost new digits && cd digits      a project to start from
    roost run config.yaml              trains; its first line names the package
    roost continue runs/NAME           after Ctrl-C, kill -9 or a power cut
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command and exits with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # started with it closed: what is said then goes nowhere
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  - as long as the program
    debug = "--debug" in given
    if debug:
        os.environ["ROOST_DEBUG"] = "1"  # for the worker, which a session started here inherits it from
    try:
        code = _run([argument for argument in given if argument != "--debug"], debug=debug)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`). At once, or the flush at exit would complain about it.
        os._exit(1)
    sys.exit(code)


def _run(arguments: list[str], *, debug: bool) -> int:
    run_notice_list.send_unsent(
        os.environ
    )  # whoever was killed with all who watched over it is told of by who comes next
    try:
        answer = roost.main(arguments, prog_name="roost", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  - the last place where one line can be made of it
        return _report_error(error, debug=debug)
    return answer if isinstance(answer, int) else 0


def _report_error(error: Exception, *, debug: bool) -> int:
    """One line for a person; the traceback too when asked for. Gives the exit code."""
    if debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, RoostError):
        terminal.print_error(str(error))
        return error.exit_code
    if isinstance(error, OSError):
        place = f": {error.filename}" if error.filename is not None else ""
        terminal.print_error(f"{error.strerror or error}{place}")
    else:
        terminal.print_error(f"{type(error).__name__}: {error} (a defect of roost; --debug shows where)")
    return 1


if __name__ == "__main__":
    main()
