"""Commands of other tools, and what to type here instead: for errors, and for the tables of
``docs/coming-from.md``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

import click

from roost.cli.other_tools import batch_script, option_hints, option_translation, other_options
from roost.cli.other_tools.option_hints import format_hint
from roost.config.other_tools.known_tools import PAGE


class OtherCommand(NamedTuple):
    """A command of another tool."""

    typed: str
    """As it is typed there; its first word is what `roost` does not know."""
    here: str
    """A command line here; a word in capitals is to be replaced."""
    note: str = ""
    keeps_place: bool = False
    """Whether the word in capitals stays: what is typed there is something else."""


_PLACES = ("PACKAGE", "TASK", "CONFIG", "FOLDER")
_COMMAND = "-- COMMAND"
_TOOLS = ("accelerate", "lightning", "litgpt", "wandb", "hydra", "gflow")
"""Programs of which each command is a second word, as in ``accelerate launch``."""
_MEASURED = (
    "the run itself validates by `validate_every` and tests at its end by `test_at_end`; "
    "`roost show PACKAGE` shows these metrics"
)

OTHER_COMMANDS = {
    "lightning": (
        OtherCommand("fit --config c.yaml", "roost run CONFIG"),
        OtherCommand("train", "roost run CONFIG"),
        *(OtherCommand(word, "roost evaluate PACKAGE", _MEASURED) for word in ("validate", "test", "eval")),
        OtherCommand("resume", "roost continue PACKAGE"),
        OtherCommand("restart", "roost continue PACKAGE"),
        OtherCommand("init", "roost new FOLDER"),
        OtherCommand("create", "roost new FOLDER"),
    ),
    "accelerate": (
        OtherCommand(
            "launch train.py",
            "roost run CONFIG -DDP",
            "a script as it is: `roost submit --gpus 2 -- accelerate launch train.py`",
        ),
        OtherCommand(
            "torchrun train.py",
            "roost run CONFIG -DDP --devices 2",
            "a script as it is: `roost submit --gpus 2 -- torchrun --nproc-per-node 2 train.py`",
        ),
        OtherCommand(
            "config",
            "roost run CONFIG --print-config",
            "nothing is configured once: `devices`, `strategy` and `precision` are settings of each run",
        ),
        OtherCommand("env", "roost show PACKAGE", "each package keeps its environment"),
        OtherCommand("estimate-memory", "roost check CONFIG"),
    ),
    "hydra": (
        OtherCommand("multirun", "roost submit CONFIG seed=0..4"),
        OtherCommand("compose", "roost run CONFIG --print-config"),
    ),
    "weights--biases": (
        OtherCommand(
            "login",
            "roost run CONFIG +mirrors.wandb.project=NAME",
            "after `wandb login`; without this mirror no account is needed",
        ),
        OtherCommand(
            "sweep sweep.yaml",
            "roost submit CONFIG optimizers.main.lr=1e-3,1e-4 seed=0..4",
            "CONFIG is that of one run; a sweep file is no config here",
            keeps_place=True,
        ),
        OtherCommand("agent", "roost tasks", "the lab starts the tasks of a sweep; no agent is needed"),
        OtherCommand(
            "sync",
            "roost logs PACKAGE",
            "a mirror sends during the run, and the next session what is missing; offline data: "
            "`wandb sync PACKAGE/mirrors/wandb/offline-run-*`",
        ),
        OtherCommand("offline", "roost run CONFIG", "a run is always recorded in its package"),
        OtherCommand("board", "roost tensorboard PACKAGE"),
        OtherCommand("dashboard", "roost tensorboard PACKAGE"),
        OtherCommand("ui", "roost tensorboard PACKAGE"),
        OtherCommand("artifact", "roost export PACKAGE --weights net.pt"),
    ),
    "gflow": (
        OtherCommand("gbatch --gpus 1 python train.py", "roost submit -- COMMAND"),
        OtherCommand("gqueue", "roost tasks"),
        OtherCommand("gcancel 12", "roost stop TASK", "it saves first; `roost kill TASK` ends at once"),
        OtherCommand("gjob 12", "roost why TASK", "also: `roost hold`, `release`, `logs`, `attach`"),
        OtherCommand("ginfo", "roost devices"),
        OtherCommand("gctl", "roost lab status"),
        OtherCommand("gflowd", "roost lab start", "the daemon starts automatically with the first task"),
        OtherCommand("daemon", "roost lab start", "the daemon starts automatically with the first task"),
    ),
    "slurm": (
        OtherCommand("sbatch --mem 8G job.sh", "roost submit -- COMMAND"),
        OtherCommand("qsub job.sh", "roost submit -- COMMAND"),
        OtherCommand("enqueue", "roost submit CONFIG"),
        OtherCommand(
            "srun --gres=gpu:2 python train.py",
            "roost lease -- COMMAND",
            "with one GPU unless `--gpus` says more",
        ),
        OtherCommand("salloc", "roost lease --gpus 1"),
        OtherCommand("squeue -u me", "roost tasks"),
        OtherCommand("qstat", "roost tasks"),
        OtherCommand("queue", "roost tasks"),
        OtherCommand("jobs", "roost tasks"),
        OtherCommand("ps", "roost tasks"),
        OtherCommand("status", "roost tasks", "of the runs of a folder: `roost ls`"),
        OtherCommand("sacct", "roost tasks --all"),
        OtherCommand("scancel 12", "roost stop TASK", "it saves first; `roost kill TASK` ends at once"),
        OtherCommand("qdel 12", "roost stop TASK", "it saves first; `roost kill TASK` ends at once"),
        OtherCommand("cancel 12", "roost stop TASK", "it saves first; `roost kill TASK` ends at once"),
        OtherCommand("abort 12", "roost stop TASK", "it saves first; `roost kill TASK` ends at once"),
        OtherCommand(
            "scontrol show job 12", "roost why TASK", "also: `roost hold`, `release`, `priority`, `drain`"
        ),
        OtherCommand("explain", "roost why TASK", "of a setting: `roost run CONFIG --explain KEY`"),
        OtherCommand("sstat 12", "roost show PACKAGE"),
        OtherCommand("sprio", "roost why TASK", "its priority, and how many tasks are ahead of it"),
        OtherCommand("sinfo", "roost devices"),
        OtherCommand("sattach 12", "roost attach TASK"),
    ),
    "dlnest": (
        OtherCommand("showTask", "roost tasks", "`roost simple` takes all of these verbs as they are"),
        OtherCommand("showDevices", "roost devices"),
        OtherCommand("changeDevices -d 0 1", "roost devices --help"),
        OtherCommand("runExp A_1 showModel", "roost analyze TASK -s SCRIPT"),
        OtherCommand("del T_1", "roost stop TASK", "it saves first; roost kill ends at once"),
        OtherCommand("addP", "roost new --help", "plugins are named in the config: plugins: [LogInit]"),
    ),
    "other-tools": (
        OtherCommand("list", "roost ls"),
        OtherCommand("top", "roost devices"),
        OtherCommand("gpus", "roost devices"),
        OtherCommand("cards", "roost devices"),
        OtherCommand("nvidia-smi", "roost devices"),
        OtherCommand("log", "roost logs PACKAGE"),
        OtherCommand("tail", "roost logs PACKAGE -f"),
        OtherCommand("watch", "roost attach PACKAGE"),
        OtherCommand("info", "roost show PACKAGE"),
        OtherCommand("describe", "roost show PACKAGE"),
        OtherCommand("diff", "roost compare PACKAGE PACKAGE", "`--diff` prints the lines of the code"),
        OtherCommand("copy", "roost fork PACKAGE", "it trains from the checkpoint in a new package"),
        OtherCommand("clone", "roost fork PACKAGE", "it trains from the checkpoint in a new package"),
        OtherCommand("start", "roost run CONFIG"),
        OtherCommand("dry-run", "roost check CONFIG"),
        OtherCommand("serve", "roost server --detach"),
        OtherCommand(
            "completion",
            "roost --help",
            "docs/guide/start.md#completion-in-the-shell has the line for your shell",
        ),
        OtherCommand("version", "roost --version"),
        OtherCommand("help", "roost --help"),
        *(
            OtherCommand(word, "roost rm PACKAGE", "into the trash, from which `roost restore` takes it back")
            for word in ("delete", "remove")
        ),
        OtherCommand("undelete", "roost restore NAME"),
    ),
}
"""The commands of other tools by the section of the page that shows them."""


def command_hint(name: str, arguments: Sequence[str]) -> str | None:
    """Returns what to type for a command that roost does not have; None if no tool has it.

    Args:
        name: The unknown command.
        arguments: Those after it: a single one, or the value of ``--config``, takes the place of the word in
            capitals; for a command of a queue, its options are translated.
    """
    if batch_script.is_script(name):
        return batch_script.queueing_advice([name, *arguments])
    if batch_script.is_config(name):
        return f"type `roost run {shlex.join([name, *arguments])}`"
    if name == "python":
        return batch_script.queueing_advice(["--", name, *arguments])
    if name in _TOOLS and arguments:
        return command_hint(arguments[0], arguments[1:])
    for section, rows in OTHER_COMMANDS.items():
        for row in rows:
            if row.typed.split()[0] == name:
                line, note = _filled(row, arguments)
                return f"{format_hint(line, note)}; {PAGE}#{section}"
    return None


def _filled(row: OtherCommand, arguments: Sequence[str]) -> tuple[str, str]:
    """Returns the command line with what was typed, and the note."""
    if row.here.endswith(_COMMAND):
        line, left_out = batch_script.command_line(row.here.split()[1], arguments)
        return line, "; ".join(filter(None, [row.note, left_out]))
    own = [one for one in arguments if one not in ("-c", "--config")]
    words = row.here.split()
    places = [word for word in words if word in _PLACES]
    if (
        row.keeps_place
        or len(own) != 1
        or own[0].startswith("-")
        or batch_script.is_script(own[0])
        or len(places) != 1
    ):
        return row.here, row.note
    if batch_script.is_config(own[0]) and places != ["CONFIG"]:
        return row.here, row.note  # a config is no package
    return " ".join(shlex.quote(own[0]) if word == places[0] else word for word in words), row.note


def option_hint(option: str, arguments: Sequence[str], command: click.Command) -> str | None:
    """Returns what to write for an option that a command does not have, or how to queue the script among its
    arguments; None if nothing is known.

    Args:
        option: The unknown option, with its dashes.
        arguments: All arguments of the command.
        command: The command.
    """
    row = other_options.find_row(option, command)
    value = option_hints.value_after(option, arguments) if row is not None and row.example else None
    scripts = [at for at, one in enumerate(arguments) if batch_script.is_script(one) and one != value]
    if scripts and command.name in ("run", "submit", "check"):
        typed = arguments[scripts[0] :]
        found = option_translation.translate_options(arguments, other_options.load_command("submit"))
        return batch_script.queueing_advice(arguments if found.rest == [*typed] else typed)
    return option_hints.option_hint(option, arguments, command)
