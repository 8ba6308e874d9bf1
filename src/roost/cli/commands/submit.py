"""`roost submit`."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import Refused, UsageError
from roost.cli import queued_readers
from roost.cli.commands.continue_ import package_and_overrides
from roost.cli.options.config_help import config_options, typed_arguments
from roost.cli.options.evaluation_options import following_evaluation, take_following_evaluation
from roost.cli.options.program_options import (
    ProgramCommand,
    program_options,
    take_program_options,
    typed_program,
)
from roost.cli.options.remote_option import remote_option, remote_override, take_remote
from roost.cli.options.resource_options import take_task_options, task_options
from roost.cli.options.trust_option import trust_option
from roost.cli.other_tools import batch_script
from roost.devices.resource_request import TaskOptions
from roost.display import terminal

if TYPE_CHECKING:
    from roost.operations.queue.new_tasks import NewTasks
    from roost.operations.queue.submit import SubmitRequest

_MAX_SHOWN = 5
_CONFIRM_ABOVE = 1000
"""A larger sweep must be confirmed: `seed=0..4000` may be a typing error for 0..4."""

_FORM_OPTIONS = {
    "config": "-c", "project": "--project", "tuning": "-f", "name": "--name", "check": "--check",
    "force": "--force", "trust": "--trust", "no_save": "-ns", "use_description": "-sd",
}  # fmt: skip
"""The options that not all of the three forms (new run, continue, command) have."""


class _SubmitCommand(ProgramCommand):
    """The forms of `roost.cli.queued_readers` are commands with options of their own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        form = queued_readers.FORMS.get(args[0]) if args else None
        if form is None:
            return super().make_context(info_name, args, parent, **extra)
        return form.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = args[: args.index("--")] if "--" in args else list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from roost.cli.other_tools import other_commands

            found = other_commands.option_hint(error.option_name, typed, self)
            if found is not None:
                raise click.UsageError(f"No such option {error.option_name!r}; {found}", ctx) from None
            hint = "A command is written after --: roost submit -- python train.py --epochs 3"
            raise click.UsageError(f"{error.format_message()} {hint}", ctx) from None


@click.command("submit", cls=_SubmitCommand)
@click.argument(
    "arguments",
    nargs=-1,
    metavar="[CONFIG|continue PACKAGE|analyze|predict|evaluate] [a.b=c]... [-- COMMAND...]",
)
@config_options
@click.option("-d", "--description", help="A short text about the task.")
@click.option("--name", help="The package's name; of a sweep, its name and the prefix of its packages.")
@click.option("-ns", "no_save", is_flag=True, help="Name the package NOSAVE: a trial that can be deleted.")
@click.option("-sd", "use_description", is_flag=True, help="Name the package by its description.")
@program_options
@following_evaluation
@remote_option
@task_options
@click.option("--check", is_flag=True, help="Run roost check first; of a sweep, for all values except seeds.")
@click.option("--force", is_flag=True, help="With continue: even if config or code differ.")
@trust_option
@click.option("--yes", is_flag=True, help=f"Do not ask before a sweep of more than {_CONFIRM_ABOVE:,} tasks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; everything else goes to stderr.")
def command(arguments: tuple[str, ...], as_json: bool, **options: Any) -> int:
    """Queues a training, a sweep, an analyzer, a prediction, an evaluation, or any command on this machine.

    The package exists when this command returns, so you can continue editing. `roost tasks` shows the queue.

    \b
    roost submit config.yaml max_epochs=5
    roost submit config.yaml optimizers.main.lr=1e-3,1e-4 seed=0..4 --max-parallel 4   # a sweep of ten
    roost submit config.yaml --gpus 2 -DDP --time-limit 11h30m
    roost submit config.yaml -m 20GB --begin 22:00 --priority 1 --check
    roost submit continue runs/NAME max_epochs=20 --after 06f3 --begin "tomorrow 08:00"
    roost submit --gpus 1 --retry 2 -- python train.py --epochs 3   # any program, in a copy of its code
    roost submit --retry 5 --resume-with "--resume {checkpoint}" -- python train.py
    roost submit analyze runs/NAME            # a loaded model, for one script after another
    roost submit predict runs/NAME test       # these have options of their own: --help after the word
    roost submit evaluate runs/NAME --checkpoints best,last
    """
    found = _submit(arguments, options)
    if isinstance(found, int):
        return found
    from roost.operations.queue.resources import begin_notes

    for note in (*found.notes, *begin_notes(found.tasks[0].begin)):
        terminal.print_status(note)
    if as_json:
        keys = ("id", "label", "name", "package", "sweep", "begin")
        terminal.print_json([{key: getattr(task, key) for key in keys} for task in found.tasks])
    else:
        for line in _task_lines(found):
            click.echo(terminal.escape_line(line))
    return 0


def _submit(arguments: tuple[str, ...], options: dict[str, Any]) -> NewTasks | int:
    """Queues the tasks; returns them, or the exit code of a check that failed."""
    _require_quoted_begin(options["begin"], arguments)
    _require_no_dependency(options["description"])
    requested, overrides = take_task_options(options)
    evaluation = take_following_evaluation(options)
    if evaluation is not None and (typed_program() is not None or arguments[:1] == ("continue",)):
        what = "--evaluate follows a new training"
        raise UsageError(what, fix="leave it out; `roost submit evaluate PACKAGE` queues an evaluation")
    absent = {name: spelling for name, spelling in _FORM_OPTIONS.items() if name != "name"}
    remote = take_remote(options)
    program = take_program_options(options, arguments, command="submit", absent=absent, remote=remote)
    if program is not None:
        from roost.operations.programs.submit_program import submit_program

        return submit_program(program, requested)
    overrides += remote_override(remote)
    if arguments[:1] == ("continue",):
        return _submit_continue((*arguments[1:], *overrides), options, requested)
    if arguments[:1] == ("fork",) and not Path("fork").exists():
        typed_fork = shlex.join(["roost", *arguments])
        fix = f"type `{typed_fork}`; its later sessions are queued by `roost submit continue`"
        raise UsageError("a fork starts at once and is not queued", fix=fix)
    _require_absent(options, ["force", "trust"], "a new run")
    from roost.cli.commands.run import config_and_overrides
    from roost.operations.queue.submit import SubmitRequest, submit
    from roost.package import package_name

    if given := options["config"] or next(iter(arguments), None):
        _require_no_command(Path(given), arguments)
    config, own = config_and_overrides(options["config"], arguments, command="submit")
    request = SubmitRequest(
        config=config,
        project=options["project"],
        tuning=options["tuning"],
        overrides=(*own, *overrides),
        description=options["description"],
        name=package_name.requested_name(
            options["name"],
            options["description"],
            no_save=options["no_save"],
            use_description=options["use_description"],
        ),
        with_suffix=options["no_save"] or options["use_description"],
        evaluate=evaluation,
        options=requested,
        command=sys.argv,
    )
    if not options["yes"] and not _confirm_large_sweep(request):
        return 1
    if options["check"] and (code := _run_checks(request)):
        return code
    from roost.cli.wait_progress import progress_reports

    with progress_reports() as report:
        return submit(request, report=report)


def _confirm_large_sweep(request: SubmitRequest) -> bool:
    """Asks the user to confirm a large sweep; returns whether to queue it.

    Raises:
        Refused: The sweep is large, and this is no terminal to ask on.
    """
    from roost.operations.queue import sweep

    number = len(sweep.expand(request.overrides))
    if number <= _CONFIRM_ABOVE:
        return True
    what = f"this is a sweep of {number:,} tasks, each with a package of its own"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Refused(what, fix="add --yes, or name fewer values")
    if click.confirm(f"{what}. Queue them?", err=True):
        return True
    terminal.print_status("no task was queued")
    return False


def _require_quoted_begin(begin: str | None, arguments: Sequence[str]) -> None:
    """Refuses a day and a time without quotes: the second word would be taken as a config or an override."""
    clock = next((one for one in arguments if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", one)), None)
    if begin is not None and ":" not in begin and clock is not None:
        what = "a day and a time are written in quotes, as one word"
        raise UsageError(what, setting="--begin", received=begin, fix=f'write --begin "{begin} {clock}"')


def _require_no_command(config: Path, arguments: Sequence[str]) -> None:
    """Refuses a command that is typed without ``--``: 'no such config' would be misleading."""
    typed = typed_arguments()
    own = typed[: typed.index(arguments[0])] if arguments and arguments[0] in typed else []
    if batch_script.is_script(config.name) and not config.is_dir():
        raise batch_script.script_error(str(config), arguments or [str(config)], own=own)
    if not config.exists() and shutil.which(config):
        what = "is a program and no config; a command is written after --"
        line, _ = batch_script.command_line("submit", ["--", *arguments], own=own)
        fix = f"type `{line}`"
        raise UsageError(what, setting="CONFIG", received=str(config), fix=fix)


def _require_no_dependency(description: str | None) -> None:
    """Refuses a dependency of Slurm after ``-d``, which would be a text without any effect."""
    from roost.cli.other_tools.other_options import find_row

    if description is None or not re.match(r"(after\w*|singleton)(:|$)", description):
        return
    row = find_row("--dependency", command)
    what = "is a text about the task here, and no dependency"
    advice = "--after TASK" if row is None else row.written(description)
    raise UsageError(what, setting="-d", received=description, fix=f"write `{advice}`")


def _submit_continue(arguments: tuple[str, ...], options: dict[str, Any], requested: TaskOptions) -> NewTasks:
    of_new_runs = ["config", "tuning", "name", "no_save", "use_description", "check"]
    _require_absent(options, of_new_runs, "continue")
    package, overrides = package_and_overrides(arguments, example="roost submit continue runs/NAME")
    from roost.operations.lifecycle.continue_ import ContinueRequest
    from roost.operations.queue.submit import submit_continue

    request = ContinueRequest(
        package=package,
        overrides=overrides,
        description=options["description"],
        force=options["force"],
        trust=options["trust"],
        project=options["project"],
        command=sys.argv,
    )
    return submit_continue(request, requested)


def _require_absent(options: dict[str, Any], names: Sequence[str], form: str) -> None:
    given = [_FORM_OPTIONS[name] for name in names if options[name]]
    if given:
        raise UsageError(f"{' and '.join(given)} is not for {form}", fix="leave it out")


def _run_checks(request: SubmitRequest) -> int:
    """Runs the checks of `--check`; returns 0 if all of them are ready, otherwise an exit code."""
    from roost.cli import live_run
    from roost.cli.plain_output import PlainScreen
    from roost.cli.wait_progress import format_unfinished
    from roost.operations.lifecycle.check import check
    from roost.operations.queue.submit import check_requests

    requests = check_requests(request)
    for number, one in enumerate(requests, 1):
        if len(requests) > 1:
            terminal.print_status(f"check {number} of {len(requests)}: {' '.join(one.overrides)}")
        with check(one) as started:
            outcome, is_printed = live_run.wait_for_outcome(started, PlainScreen(sys.stderr))
        if not outcome.is_ready:
            terminal.print_status(format_unfinished(outcome, is_printed=is_printed, what="check"))
            return outcome.exit_code or 1
    return 0


def _task_lines(found: NewTasks) -> list[str]:
    """Returns a line for each task; of a long sweep only for the first ones."""
    tasks = found.tasks
    more = len(tasks) - _MAX_SHOWN
    shown = tasks[:_MAX_SHOWN] if more > 1 else tasks
    lines = [f"{task.id}  {terminal.format_path(Path(task.package))}" for task in shown]
    if tasks[0].sweep is not None:
        name = f"{tasks[0].sweep_name}, " if tasks[0].sweep_name is not None else ""
        lines.insert(0, f"{tasks[0].sweep}  {name}a sweep of {len(tasks)} tasks")
    return [*lines, *([f"and {more} more: roost tasks"] if more > 1 else [])]
