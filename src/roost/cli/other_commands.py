"""Commands and options of other tools, and what to type here instead: for errors, and for the tables of
``docs/coming-from.md``."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import RoostError
from roost.config.other_tools.known_tools import PAGE


class OtherCommand(NamedTuple):
    """A command of another tool."""

    typed: str
    """As it is typed there; its first word is what `roost` does not know."""
    here: str
    """A command line here; a word in capitals is to be replaced."""
    note: str = ""


_PLACES = ("PACKAGE", "TASK", "CONFIG", "FOLDER")

OTHER_COMMANDS = {
    "lightning": (
        OtherCommand("fit --config c.yaml", "roost run CONFIG"),
        OtherCommand("train", "roost run CONFIG"),
        OtherCommand("validate", "roost predict PACKAGE --data valid", "a run validates by validate_every"),
        OtherCommand("test", "roost predict PACKAGE --data test", "a run tests at its end: test_at_end"),
        OtherCommand("eval", "roost predict PACKAGE --data test", "a run tests at its end: test_at_end"),
        OtherCommand("evaluate", "roost predict PACKAGE --data test", "a run tests at its end: test_at_end"),
        OtherCommand("tune", "roost submit CONFIG optimizers.main.lr=1e-3,1e-4"),
        OtherCommand("resume", "roost continue PACKAGE"),
        OtherCommand("restart", "roost continue PACKAGE"),
        OtherCommand("init", "roost new FOLDER"),
        OtherCommand("create", "roost new FOLDER"),
    ),
    "accelerate": (
        OtherCommand(
            "launch train.py", "roost run CONFIG -DDP", "a script as it is: roost submit -- python train.py"
        ),
        OtherCommand(
            "torchrun train.py", "roost run CONFIG -DDP --devices 2", "the ranks are started for you"
        ),
        OtherCommand(
            "config", "roost devices", "there is nothing to configure: devices and strategy are settings"
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
            "login", "roost run CONFIG +mirrors.wandb.project=NAME", "no account is needed without it"
        ),
        OtherCommand("sweep sweep.yaml", "roost submit CONFIG optimizers.main.lr=1e-3,1e-4 seed=0..4"),
        OtherCommand("agent", "roost lab start", "the daemon starts automatically with the first task"),
        OtherCommand("sync", "roost continue PACKAGE", "a mirror sends while the run lasts"),
        OtherCommand("offline", "roost run CONFIG", "a run is always recorded in its package"),
        OtherCommand("board", "roost tensorboard PACKAGE"),
        OtherCommand("dashboard", "roost tensorboard PACKAGE"),
        OtherCommand("ui", "roost tensorboard PACKAGE"),
        OtherCommand("artifact", "roost export PACKAGE --weights net.pt"),
    ),
    "gflow": (
        OtherCommand("gbatch python train.py", "roost submit -- python train.py"),
        OtherCommand("gqueue", "roost tasks"),
        OtherCommand("gcancel 12", "roost stop TASK", "it saves first; roost kill ends at once"),
        OtherCommand("gjob 12", "roost why TASK"),
        OtherCommand("ginfo", "roost devices"),
        OtherCommand("gctl", "roost lab status"),
        OtherCommand("gflowd", "roost lab start", "the daemon starts automatically with the first task"),
        OtherCommand("daemon", "roost lab start", "the daemon starts automatically with the first task"),
    ),
    "slurm": (
        OtherCommand("sbatch job.sh", "roost submit -- sh job.sh"),
        OtherCommand("qsub job.sh", "roost submit -- sh job.sh"),
        OtherCommand("enqueue", "roost submit CONFIG"),
        OtherCommand("srun python train.py", "roost lease --gpus 1 -- python train.py"),
        OtherCommand("salloc", "roost lease --gpus 1"),
        OtherCommand("squeue -u me", "roost tasks"),
        OtherCommand("qstat", "roost tasks"),
        OtherCommand("queue", "roost tasks"),
        OtherCommand("jobs", "roost tasks"),
        OtherCommand("ps", "roost tasks"),
        OtherCommand("status", "roost tasks", "of the runs of a folder: roost ls"),
        OtherCommand("sacct", "roost tasks --all"),
        OtherCommand("scancel 12", "roost stop TASK", "it saves first; roost kill ends at once"),
        OtherCommand("qdel 12", "roost stop TASK", "it saves first; roost kill ends at once"),
        OtherCommand("cancel 12", "roost stop TASK", "it saves first; roost kill ends at once"),
        OtherCommand("abort 12", "roost stop TASK", "it saves first; roost kill ends at once"),
        OtherCommand("scontrol show job 12", "roost why TASK", "also: roost hold, release, priority, drain"),
        OtherCommand("explain", "roost why TASK", "of a setting: roost run CONFIG --explain KEY"),
        OtherCommand("sstat 12", "roost show PACKAGE"),
        OtherCommand("sprio", "roost why TASK"),
        OtherCommand("sinfo", "roost devices"),
        OtherCommand("sattach 12", "roost attach TASK"),
    ),
    "dlnest": (
        OtherCommand("showTask", "roost tasks"),
        OtherCommand("showDevices", "roost devices"),
        OtherCommand("changeDevices -d 0 1", "roost devices --help"),
        OtherCommand("runExp A_1 showModel", "roost analyze PACKAGE -s SCRIPT"),
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
        OtherCommand("compare", "roost plot PACKAGE PACKAGE -o both.png"),
        OtherCommand("diff", "roost plot PACKAGE PACKAGE -o both.png"),
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
            OtherCommand(
                word, "roost show PACKAGE", "no command deletes: a package is a folder that you may remove"
            )
            for word in ("delete", "rm", "remove", "prune")
        ),
    ),
}
"""The commands of other tools by the section of the page that shows them."""

_RESUME = "a run is resumed by `roost continue PACKAGE`"
_SWEEP = "several values make a sweep: `roost submit CONFIG seed=0..4`"
_DEVICES = "write `-DDP --devices 2`"
OTHER_OPTIONS = {
    **dict.fromkeys(
        ("--ckpt_path", "--ckpt-path", "--resume", "--load", "--checkpoint", "--auto-resume"), _RESUME
    ),
    **dict.fromkeys(("--resume_from_checkpoint", "--resume-from-checkpoint", "--start_iter"), _RESUME),
    **dict.fromkeys(("-m", "--multirun", "--sweep"), _SWEEP),
    "--array": "an array is a sweep: `roost submit CONFIG seed=0..4`",
    **dict.fromkeys(("--cfg", "--config-dump"), "write `--print-config`"),
    **dict.fromkeys(
        ("--config-name", "--config-path", "--config-dir", "--config-file", "--cfg-path"), "write `-c CONFIG`"
    ),
    **dict.fromkeys(("--fast_dev_run", "--dry-run", "--dry_run", "--dryrun"), "use `roost check CONFIG`"),
    **dict.fromkeys(("--nproc_per_node", "--nproc-per-node", "--num_processes", "--num-processes"), _DEVICES),
    **dict.fromkeys(
        ("--num-gpus", "--num_gpus", "--ngpu", "--ngpus", "--multi_gpu", "--multi-gpu"), _DEVICES
    ),
    **dict.fromkeys(
        ("--nnodes", "--num_nodes", "--num_machines", "--nodes"),
        "write `--num-nodes 2 --rendezvous HOST:PORT`",
    ),
    **dict.fromkeys(("--cpu", "--use_cpu"), "write `-CPU`"),
    **dict.fromkeys(("--dependency", "--depends-on", "--depends_on"), "write `--after TASK`"),
    **dict.fromkeys(("--time", "--time-min", "--walltime"), "write `--time-limit 11h30m`"),
    **dict.fromkeys(("--gres", "--gpus-per-node", "--gpus-per-task"), "write `--gpus 2`"),
    **dict.fromkeys(("--mem", "--mem-per-gpu", "--gpu-memory"), "memory of a card: `-m 20GB`"),
    "--cpus-per-task": "write `--cpus 4`",
    **dict.fromkeys(("--job-name", "--run_name", "--run-name", "--exp_name"), "write `--name NAME`"),
    **dict.fromkeys(
        ("--output", "--error", "--open-mode"), "the output is in the package: `roost logs PACKAGE`"
    ),
    "--nice": "write `--priority -1`",
    "--hold": "use `roost hold TASK`",
    "--requeue": "write `--retry 3`",
    **dict.fromkeys(("--mail-type", "--mail-user"), "notices are set up once: `roost notices`"),
    **dict.fromkeys(
        ("--partition", "--account", "--qos", "--constraint"), "a lab has one queue: leave it out"
    ),
    "--exclusive": "write `--whole`",
    **dict.fromkeys(
        ("--output_dir", "--output-dir", "--work-dir", "--work_dir", "--logdir"), "write save_root=FOLDER"
    ),
}
"""Options of other tools, and what to write here; an option that is a setting's name need not be listed."""


def command_hint(name: str, arguments: Sequence[str]) -> str | None:
    """Returns what to type for a command that roost does not have; None if no tool has it.

    Args:
        name: The unknown command.
        arguments: Those after it: a single one, or the value of ``--config``, takes the place of the word in
            capitals.
    """
    if name.endswith(".py"):
        return f"type `roost submit -- {shlex.join(['python', name, *arguments])}`"
    if name.endswith((".yaml", ".yml", ".json")):
        return f"type `roost run {shlex.join([name, *arguments])}`"
    for section, rows in OTHER_COMMANDS.items():
        for row in rows:
            if row.typed.split()[0] == name:
                note = f" ({row.note})" if row.note else ""
                return f"type `{_filled(row.here, arguments)}`{note}; {PAGE}#{section}"
    return None


def _filled(line: str, arguments: Sequence[str]) -> str:
    own = [one for one in arguments if one not in ("-c", "--config")]
    words = line.split()
    places = [word for word in words if word in _PLACES]
    if len(own) != 1 or own[0].startswith("-") or own[0].endswith(".py") or len(places) != 1:
        return line
    return " ".join(shlex.quote(own[0]) if word == places[0] else word for word in words)


def option_hint(option: str, arguments: Sequence[str], known: Collection[str]) -> str | None:
    """Returns what to write for an option that a command does not have; None if nothing is known.

    Args:
        option: The unknown option, with its dashes.
        arguments: All arguments of the command.
        known: The command's options.
    """
    script = next((at for at, one in enumerate(arguments) if one.endswith((".py", ".sh"))), None)
    if script is not None:
        program = "python" if arguments[script].endswith(".py") else "sh"
        return f"a program is queued as it is: `roost submit -- {shlex.join([program, *arguments[script:]])}`"
    if option in OTHER_OPTIONS:
        return OTHER_OPTIONS[option]
    name = option.lstrip("-").replace("-", "_")
    if not option.startswith("--") or f"--{name.replace('_', '-')}" in known:
        return None
    meant = _settings_named(name, arguments)
    value = _value_after(option, arguments)
    if meant:
        return "a setting is written without dashes: " + " or ".join(f"{key}={value}" for key in meant)
    return None


def _value_after(option: str, arguments: Sequence[str]) -> str:
    for at, one in enumerate(arguments):
        if one.startswith(f"{option}="):
            return shlex.quote(one.partition("=")[2])
        if one == option and at + 1 < len(arguments) and not arguments[at + 1].startswith("--"):
            return shlex.quote(arguments[at + 1])
    return "VALUE"


def _settings_named(name: str, arguments: Sequence[str]) -> list[str]:
    """Returns the settings of that name, or which another tool calls so, in the config or package among the
    arguments; else in a config with one optimizer ``main``."""
    from roost.config import layers, settings
    from roost.config.other_tools import synonyms

    known = list(settings.known_keys({"optimizers": {"main": {}}}))
    known.append("optimizers.main.lr")
    for one in arguments:
        path = Path(one) / "args.json" if Path(one).is_dir() else Path(one)
        if path.suffix in (".yaml", ".yml", ".json") and path.is_file():
            try:
                config = layers.load(path)
            except (RoostError, OSError):
                break
            known = config.known_keys()
            break
    if name in known:
        return [name]
    meant = synonyms.find_setting(name, known)
    found = [meant] if meant is not None else synonyms.nested_keys(name, known)
    return found if len(found) <= 3 else []
