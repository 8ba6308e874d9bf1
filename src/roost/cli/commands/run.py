"""`roost run`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roost.base.errors import NotFound, UsageError
from roost.base.text.suggestions import closest_match
from roost.cli.options.config_help import config_options
from roost.cli.options.device_option import device_options
from roost.cli.options.evaluation_options import following_evaluation, take_following_evaluation
from roost.cli.options.follow_options import follow_or_detach, terminal_options
from roost.cli.options.program_options import ProgramCommand, program_options, take_program_options
from roost.cli.options.rank_options import ranks_options, take_time_limit
from roost.cli.options.remote_option import remote_option, remote_override, take_remote
from roost.cli.options.session_options import take_session_options
from roost.cli.options.steal_option import steal_option
from roost.cli.other_tools import batch_script, option_values

if TYPE_CHECKING:
    from roost.operations.programs.program_package import TypedProgram


_NOT_OF_PROGRAMS = {
    "config": "-c", "project": "--project", "tuning": "-f", "step": "--iter", "no_save": "-ns",
    "use_description": "-sd", "initialize": "--initialize", "pdb": "--pdb", "profile": "--profile",
    "explain": "--explain", "print_config": "--print-config", "as_json": "--json",
}  # fmt: skip


@click.command("run", cls=ProgramCommand)
@click.argument("arguments", nargs=-1, metavar="[CONFIG] [a.b=c]... [-- COMMAND...]")
@config_options
@click.option("-d", "--description", help="A short text about the run.")
@click.option("--name", help="The package's name; the same command again continues it.")
@click.option(
    "--iter",
    "step",
    type=int,
    metavar="STEP",
    help="With --name of an existing package: resume from the checkpoint of this step.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Measure some steps, and print what holds the run back: profile.seconds=20.",
)
@click.option("-ns", "no_save", is_flag=True, help="Name the package NOSAVE: a trial that can be deleted.")
@click.option("-sd", "use_description", is_flag=True, help="Name the package by its description.")
@click.option(
    "--initialize",
    is_flag=True,
    help="Only build everything, save step 0 and show the model; roost continue trains it.",
)
@steal_option
@program_options
@following_evaluation
@device_options("auto")
@ranks_options
@remote_option
@terminal_options
@click.option("--explain", metavar="KEY", help="Show where a setting comes from; nothing is run.")
@click.option("--print-config", is_flag=True, help="Print all merged settings; nothing is run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with --explain and --print-config.")
def command(arguments: tuple[str, ...], **options: Any) -> int:
    """Copies the project into a new package and trains it there.

    The code is copied before the run starts, so you can continue editing. a.b=c changes a setting, +a.b=c
    adds one, ~a.b removes one. After -- it is any program: its folder is copied, and it runs in the copy.

    \b
    roost run config.yaml
    roost run config.yaml max_epochs=5 model.dropout=0.5 -d "more dropout"
    roost run config.yaml --name baseline      # the same command again continues the run
    roost run config.yaml --name baseline --iter 1200   # resume from its checkpoint of step 1200
    roost run config.yaml --detach             # in the background; roost attach shows it
    roost run config.yaml --initialize         # only step 0; roost continue trains it
    roost run configs/small.json               # the project is the folder above that holds the code
    roost run /etc/small.json --project ~/detector
    roost run config.yaml -DDP                 # one process per GPU; --devices 2 or 0,2 for some
    roost run config.yaml -CPU --devices 2     # two processes on the CPU
    roost run config.yaml --time-limit 11h30m --restart 3
    roost run config.yaml --remote s3://bucket/runs   # roost pull restores it on another machine
    roost run config.yaml --evaluate --variants variants.yaml   # tests the best weights at the end
    roost run config.yaml --profile            # what holds it back; roost profile shows it again
    roost run config.yaml --explain optimizers.main.lr
    roost run root_config.json epochs=5 roost.precision=bf16    # a project of DLNest
    roost run -- python train.py --epochs 2    # any program, with its code, output and metrics
    roost run --name mnist --resume-with "--resume {checkpoint}" -- python main.py
    roost run --from git+https://github.com/ORG/REPO@v1.0 -- python main.py
    """
    absent = {**_NOT_OF_PROGRAMS, "evaluate": "--evaluate"}
    if options["steal"] and options["name"] is None:
        raise UsageError(
            "--steal takes an existing package over",
            fix="add --name NAME, or use `roost continue PACKAGE --steal`",
        )
    remote = take_remote(options)
    program = take_program_options(options, arguments, command="run", absent=absent, remote=remote)
    if program is not None:
        return _run_program(program, options)
    config, overrides = config_and_overrides(options.pop("config"), arguments)
    overrides += take_time_limit(options) + remote_override(remote)
    if options.pop("profile"):
        overrides += ("roost.profile.seconds=20",)  # so DLNest's contract refuses it
    if options["step"] is not None and options["name"] is None:
        raise UsageError(
            "--iter resumes an existing package", fix="add --name NAME, or use `roost continue PACKAGE`"
        )
    evaluation = take_following_evaluation(options)
    detach, session = take_session_options(options)
    explain, print_config, as_json = (options.pop(name) for name in ("explain", "print_config", "as_json"))
    if explain == "":
        raise UsageError("names no setting", setting="--explain", received="", fix="write --explain seed")
    if explain or print_config:
        from roost.cli.options.config_display import print_settings

        return print_settings(config, options["tuning"], overrides, key=explain, as_json=as_json)
    if as_json:
        raise UsageError(
            "--json is for --explain and --print-config", fix="show a run with `roost show PACKAGE --json`"
        )
    from roost.operations.lifecycle.run import RunRequest, run

    request = RunRequest(config=config, overrides=overrides, evaluate=evaluation, **session, **options)
    return follow_or_detach(run(request), detach=detach)


def _run_program(program: TypedProgram, options: dict[str, Any]) -> int:
    from roost.operations.programs.run_program import RunProgramRequest, run_program

    limit = options.pop("time_limit")
    detach, session = take_session_options(options)
    request = RunProgramRequest(
        program=program,
        device=session["device"],
        ranks=session["ranks"],
        steal=options["steal"],
        time_limit=limit,
    )
    return follow_or_detach(run_program(request), detach=detach)


def config_and_overrides(
    config: Path | None, arguments: tuple[str, ...], *, command: str = "run"
) -> tuple[Path, tuple[str, ...]]:
    """Returns the config and the overrides. The first argument is the config, unless -c gave it.

    Raises:
        UsageError: No config is named.
        NotFound: The config does not exist.
    """
    if config is None:
        if not arguments or "=" in arguments[0] or arguments[0].startswith("~"):
            typed = f"roost {command} {shlex.join(['config.yaml', *arguments])}"
            raise UsageError("no config is named", fix=f"type `{typed}`")
        config, arguments = Path(arguments[0]), arguments[1:]
    if batch_script.is_script(config.name) and not config.is_dir():
        raise batch_script.script_error(str(config), [str(config), *arguments])
    found = _configs(config if config.is_dir() else config.parent)
    if config.is_dir() and not (config / "args.json").is_file():
        fix = (
            f"type `roost {command} {shlex.quote(str(config / found[0]))}`"
            if found
            else "roost new my-project"
        )
        raise UsageError(
            "is a folder, and a run has a config", setting="CONFIG", received=str(config), fix=fix
        )
    if not os.path.lexists(config):
        meant = closest_match(config.name, found) or (found[0] if len(found) == 1 else None)
        fix = (
            f"did you mean {str(config.parent / meant)!r}?"
            if meant is not None
            else "change to the folder of the project, or create one: roost new my-project"
        )
        if str(config).isdecimal():  # -c of Slurm
            fix = f"cores are written --cpus {config}"
        if str(config) == "n" and arguments and (name := option_values.config_file(arguments[0])):  # Hydra
            fix = f"write -c {name}"
        raise NotFound("there is no such config", received=str(config), fix=fix)
    return config, arguments


def _configs(folder: Path) -> list[str]:
    """Returns the names of the files in a folder that may be configs, config.yaml first."""
    try:
        names = [path.name for path in folder.iterdir() if path.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return []
    return sorted(names, key=lambda name: (not name.startswith("config."), name))
