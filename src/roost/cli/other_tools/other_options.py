"""Options of other tools, and what to write here instead: for errors, for batch scripts, and for the tables
of ``docs/coming-from.md``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import click

from roost.cli.other_tools import option_values

_VALUE = "VALUE"


class OtherOption(NamedTuple):
    """An option of another tool."""

    names: tuple[str, ...]
    """As it is typed there."""
    here: str
    """What is written here: options or settings of the same command, a command line of its own (``roost
    …``), or nothing. ``VALUE`` is the value that was typed."""
    note: str = ""
    example: str = ""
    """A value as it is typed there; empty for an option without one."""
    value: Callable[[str], str | None] = option_values.any_text
    """Translates the value; None for one that does not exist here."""
    commands: tuple[str, ...] = ()
    """The commands for which this row is; empty: all."""

    def written(self, value: str | None) -> str:
        """Returns what to write for a value; for an unknown one, what to write for the example."""
        found = None if value is None else self.value(value)
        return self.here.replace(_VALUE, found or self.value(self.example) or _VALUE)


_CONFIG_COMMANDS = ("run", "submit", "check")
_QUEUE = ("submit",)
_RESUMES = ("continue", "fork", "predict", "analyze", "export")
_CHECKPOINT_OPTIONS = (
    "--ckpt_path", "--ckpt-path", "--trainer.ckpt_path", "--resume", "--resume-from", "--resume_from",
    "--resume_from_checkpoint", "--resume-from-checkpoint", "--load", "--load-from", "--load_checkpoint",
    "--checkpoint", "--auto-resume", "--auto_resume", "--start_iter",
)  # fmt: skip
_RANK_COUNTS = (
    "--nproc_per_node", "--nproc-per-node", "--num_processes", "--num-processes", "--num-gpus", "--num_gpus",
    "--ngpu", "--ngpus",
)  # fmt: skip
_CARD_COUNTS = ("--gpus", "--gpus-per-node", "--gpus-per-task", "-G")
_ONE_QUEUE = "leave it out: a lab is one queue on one machine"
_ONE_MACHINE = "leave it out: a task of a lab runs on this machine alone"
_OUTPUT = "the output is in the package"

OTHER_OPTIONS = {
    "lightning": (
        OtherOption(
            _CHECKPOINT_OPTIONS, "", "the newest checkpoint is taken, or `-c 3`", "last", commands=_RESUMES
        ),
        OtherOption(
            ("--config",), "", "leave it out: a package has its settings", "c.yaml", commands=_RESUMES
        ),
        OtherOption(_CHECKPOINT_OPTIONS, "roost continue PACKAGE", "a package is resumed as it is", "last"),
        OtherOption(
            ("--accelerator", "--trainer.accelerator"), "--device VALUE", "", "gpu", option_values.device_type
        ),
        OtherOption(
            ("--accelerator", "--trainer.accelerator"),
            "",
            "a task gets cards if there are any; with `-CPU` it gets none",
            "gpu",
            commands=_QUEUE,
        ),
        OtherOption(("--trainer.devices",), "--devices VALUE", "", "2", option_values.devices),
        OtherOption(("--trainer.devices",), "--gpus VALUE", "", "2", option_values.whole_number),
        OtherOption(("--trainer.strategy",), "--strategy VALUE", "", "ddp", option_values.strategy),
        OtherOption(("--fast_dev_run", "--trainer.fast_dev_run"), "roost check CONFIG"),
        OtherOption(("--dry-run", "--dry_run", "--dryrun", "--test-only"), "roost check CONFIG"),
        OtherOption(("--print_config",), "--print-config"),
        OtherOption(("--print_config",), "roost run CONFIG --print-config"),
    ),
    "hugging-face-trainer": (
        OtherOption(
            (
                "--output_dir",
                "--output-dir",
                "--work-dir",
                "--work_dir",
                "--logdir",
                "--default_root_dir",
                "--trainer.default_root_dir",
            ),
            "save_root=VALUE",
            "a package is made in it",
            "runs",
            commands=_CONFIG_COMMANDS,
        ),
        OtherOption(("--overwrite_output_dir",), "", "leave it out: a package is never overwritten"),
        OtherOption(
            ("--do_train", "--do_eval", "--do_predict"),
            "",
            "leave it out: a run trains, validates by validate_every and tests at its end by test_at_end",
        ),
        OtherOption(("--fp16",), "precision=fp16", commands=_CONFIG_COMMANDS),
        OtherOption(("--bf16",), "precision=bf16", commands=_CONFIG_COMMANDS),
    ),
    "accelerate": (
        OtherOption(
            (*_RANK_COUNTS, *_CARD_COUNTS),
            "-DDP --devices VALUE",
            "the ranks are started for you",
            "2",
            option_values.card_count,
            ("run", "continue"),
        ),
        OtherOption(
            _RANK_COUNTS,
            "-DDP --gpus VALUE",
            "the ranks are started for you",
            "2",
            option_values.whole_number,
            _QUEUE,
        ),
        OtherOption(("--multi_gpu", "--multi-gpu"), "-DDP"),
        OtherOption(
            ("--mixed_precision", "--mixed-precision"),
            "precision=VALUE",
            "",
            "bf16",
            option_values.precision,
            _CONFIG_COMMANDS,
        ),
        OtherOption(("--cpu", "--use_cpu"), "-CPU"),
        OtherOption(
            ("-N", "--nodes", "--nnodes", "--num_nodes", "--num_machines", "--trainer.num_nodes"),
            "--num-nodes VALUE --rendezvous HOST:PORT",
            "and `roost join PACKAGE` on the others",
            "2",
            option_values.whole_number,
        ),
        OtherOption(
            ("--rdzv_endpoint", "--rdzv-endpoint"),
            "--num-nodes 2 --rendezvous VALUE",
            "and `roost join PACKAGE` on the others",
            "node1:29500",
        ),
        OtherOption(
            ("--node_rank", "--node-rank", "--machine_rank"),
            "roost join PACKAGE",
            "ranks are assigned as machines connect",
            "1",
        ),
        OtherOption(
            ("--standalone", "--master_port", "--master-port", "--main_process_port"),
            "",
            "leave it out: on one machine roost finds a free port",
        ),
        OtherOption(
            ("--max_restarts", "--max-restarts"), "--restart VALUE", "", "3", option_values.whole_number
        ),
        OtherOption(
            ("--max_restarts", "--max-restarts"), "--retry VALUE", "", "3", option_values.whole_number
        ),
    ),
    "hydra": (
        OtherOption(
            ("-m", "--multirun", "--sweep"),
            "roost submit CONFIG VALUE",
            "several values are a sweep",
            "seed=0..4",
            option_values.sweep_values,
        ),
        OtherOption(("--cfg", "--config-dump"), "--print-config", "", "job"),
        OtherOption(("--cfg", "--config-dump"), "roost run CONFIG --print-config", "", "job"),
        OtherOption(("--info",), "roost run CONFIG --explain KEY", "which file has set a key", "config"),
        OtherOption(
            ("--config-name", "--config_name", "--config-file", "--config_file", "--cfg-path"),
            "-c VALUE",
            "the path of a file",
            "config",
            option_values.config_file,
            _CONFIG_COMMANDS,
        ),
        OtherOption(
            ("--config-path", "--config_path", "--config-dir", "--config_dir"),
            "-c VALUE/config.yaml",
            "the path of a file",
            "configs",
            commands=_CONFIG_COMMANDS,
        ),
    ),
    "slurm": (
        OtherOption(
            ("-S", "--sort-by", "--order-by"),
            "--sort VALUE",
            "-KEY is descending",
            "valid/loss",
            commands=("ls",),
        ),
        OtherOption(
            ("--where", "--filter", "--query"),
            "VALUE",
            "the query is written without an option",
            "valid/loss<1",
            commands=("ls",),
        ),
        OtherOption(("--me",), "", "leave it out: `--user NAME` is another one", commands=("tasks",)),
        OtherOption(("-t", "--states"), "--state VALUE", "", "running", str.lower, ("tasks",)),
        OtherOption(("-j", "--job", "--jobs"), "roost why VALUE", "", "12", commands=("tasks",)),
        OtherOption(("-o", "-O", "-f", "--format", "--Format"), "--json", "", "%i", commands=("tasks",)),
        OtherOption(("-a",), "--all", commands=("tasks",)),
        OtherOption(
            ("-J", "--job-name", "--run_name", "--run-name", "--exp_name"),
            "--name VALUE",
            "",
            "big",
            option_values.package_name,
        ),
        OtherOption(
            ("-c", "--cpus-per-task", "--cpus-per-gpu"),
            "--cpus VALUE",
            "cores of the whole task",
            "4",
            option_values.whole_number,
        ),
        OtherOption(
            ("--mem", "--memory"),
            "--host-memory VALUE",
            "of the whole task; the memory of a card is -m of `roost submit`",
            "8G",
            option_values.memory,
            ("submit", "run", "continue"),
        ),
        OtherOption(
            ("--mem-per-cpu", "--mem-per-gpu"),
            "--host-memory VALUE",
            "for one core or card; of the whole task here: multiply it by their number",
            "8G",
            option_values.memory,
            ("submit", "run", "continue"),
        ),
        OtherOption(
            ("--mem",),
            "-m VALUE",
            "of each card: nothing else is leased",
            "8G",
            option_values.memory,
            ("lease",),
        ),
        OtherOption(
            ("--gres", *_CARD_COUNTS),
            "--gpus VALUE",
            "",
            "gpu:2",
            option_values.card_count_of_task,
            ("submit",),
        ),
        OtherOption(
            ("--gres", *_CARD_COUNTS),
            "--gpus VALUE",
            "",
            "gpu:2",
            option_values.card_count,
            ("lease",),
        ),
        OtherOption(("--gres",), "--devices VALUE", "", "gpu:2", option_values.card_count),
        OtherOption(
            ("-n", "--ntasks", "--ntasks-per-node"),
            "",
            "leave it out: with -DDP a training has one process for each card",
            "1",
            commands=("submit", "run", "continue", "lease"),
        ),
        OtherOption(
            ("-N", "--nodes", "--nnodes", "--num_nodes", "--num_machines"),
            "",
            _ONE_MACHINE,
            "1",
            commands=("submit", "lease"),
        ),
        OtherOption(
            ("-t", "--time", "--walltime"), "--time-limit VALUE", "", "11:30:00", option_values.duration
        ),
        OtherOption(
            ("--time-min",),
            "",
            "leave it out: --time-limit is the only one",
            "1:00:00",
            commands=("submit", "lease"),
        ),
        OtherOption(("-b",), "--begin VALUE", "", "now+1hour", option_values.begin, _QUEUE),
        OtherOption(
            ("-a", "--array"),
            "roost submit CONFIG VALUE",
            "an array is a sweep of a setting",
            "0-4",
            option_values.values_of_array,
            ("submit", "run"),
        ),
        OtherOption(("-d", "--dependency"), "VALUE", "", "afterok:TASK", option_values.dependency, _QUEUE),
        OtherOption(
            ("--dependency",),
            "roost submit CONFIG VALUE",
            "",
            "afterok:TASK",
            option_values.dependency,
            ("run",),
        ),
        OtherOption(
            ("--hold", "-H"),
            "roost hold TASK",
            "once it is queued; `--begin +2h` delays it from the start",
            commands=_QUEUE,
        ),
        OtherOption(
            ("--requeue",),
            "--retry 3",
            "after a failure; after a crash of the machine a task is queued again without it",
        ),
        OtherOption(("--no-requeue",), "--no-restart"),
        OtherOption(("--nice",), "--priority VALUE", "", "1", option_values.priority),
        OtherOption(("--exclusive",), "--whole"),
        OtherOption(("--comment",), "-d VALUE", "", "baseline"),
        OtherOption(("--parsable",), "--json", commands=_QUEUE),
        OtherOption(
            ("--wait", "-W"), "roost logs TASK -f", "it ends with the exit code of the task", commands=_QUEUE
        ),
        OtherOption(("--wrap",), "roost submit -- sh -c VALUE", "", "python train.py", commands=_QUEUE),
        OtherOption(
            ("-o", "-e", "-i", "--output", "--error", "--open-mode"),
            "roost logs TASK",
            _OUTPUT,
            "out.txt",
            commands=_QUEUE,
        ),
        OtherOption(
            ("-o", "-e", "--output", "--error"), "roost logs PACKAGE", _OUTPUT, "out.txt", commands=("run",)
        ),
        OtherOption(
            ("--mail-type", "--mail-user"),
            "roost notices",
            "notices are set up once",
            "END",
            commands=("submit", "run"),
        ),
        OtherOption(
            (
                "-p",
                "--partition",
                "-A",
                "--account",
                "-q",
                "--qos",
                "-C",
                "--constraint",
                "--reservation",
                "-M",
                "--cluster",
                "--clusters",
            ),
            "",
            _ONE_QUEUE,
            "gpu",
            commands=("submit", "run", "lease", "tasks", "devices"),
        ),
        OtherOption(
            ("-w", "--nodelist", "-x", "--exclude"),
            "",
            f"{_ONE_MACHINE}; `roost devices -d 0,2` chooses its cards",
            "node1",
            commands=("submit", "run", "lease"),
        ),
        OtherOption(
            ("-D", "--chdir"),
            "",
            "leave it out: it starts in the folder where you submit it",
            "DIR",
            commands=_QUEUE,
        ),
        OtherOption(
            ("--export", "--get-user-env"),
            "",
            "leave it out: a task has the environment of this shell",
            "ALL",
            commands=_QUEUE,
        ),
        OtherOption(
            ("--signal",),
            "",
            "leave it out: before its time limit a training saves and stops",
            "USR1@60",
            commands=_QUEUE,
        ),
    ),
    "gflow": (
        OtherOption(("--depends-on", "--depends_on"), "--after VALUE", "", "TASK"),
        OtherOption(
            ("--gpu-memory", "--max-gpu-mem"), "-m VALUE", "of each card", "20G", option_values.memory
        ),
        OtherOption(
            ("--max-concurrent",), "--max-parallel VALUE", "of a sweep", "4", option_values.whole_number
        ),
        OtherOption(
            ("--shared",),
            "-m 8GB",
            "a task that says how much memory it needs shares its card",
            commands=_QUEUE,
        ),
        OtherOption(
            ("--conda-env",),
            "",
            "leave it out: a task has the environment of this shell",
            "base",
            commands=_QUEUE,
        ),
    ),
}
"""The options of other tools by the section of the page that shows them. Of several rows for an option, the
first one that the command can follow counts. An option that is a setting's name need not be listed."""


def option_names(command: click.Command) -> dict[str, bool]:
    """Returns the options of a command; each with whether it takes a value."""
    found: dict[str, bool] = {}
    for one in command.params:
        if isinstance(one, click.Option) and not one.hidden:
            found.update(dict.fromkeys(one.opts, not (one.is_flag or one.count)))
    return found


def load_command(name: str) -> click.Command:
    """Returns `roost submit` or `roost lease`; imported by name, because they import this folder."""
    found: click.Command = importlib.import_module(f"roost.cli.commands.{name}").command
    return found


def find_row(option: str, command: click.Command) -> OtherOption | None:
    """Returns the first row of an option that the command can follow; None if there is none."""
    known = option_names(command)
    for row in _rows_of(option):
        if row.commands and command.name not in row.commands:
            continue
        # The words of a translated value are options that the row's commands have.
        words = [] if row.here.startswith("roost ") else row.here.split()
        if all(word in known for word in words if word.startswith("-") and not word[1:].isdecimal()):
            return row
    return None


def _rows_of(option: str) -> Iterator[OtherOption]:
    return (row for rows in OTHER_OPTIONS.values() for row in rows if option in row.names)
