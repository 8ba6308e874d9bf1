"""Other training tools: how to recognise a config of theirs, and what their keys are called here.

The tables of ``docs/coming-from.md`` are made from the same rows (``tools/coming_from_page.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

PAGE = "docs/coming-from.md"
"""The page about other tools, with a section for most of them."""


class Tool(NamedTuple):
    """A tool that reads configs."""

    name: str
    page: str
    """The page, or its section, that compares the tool with roost."""
    signatures: tuple[tuple[str, ...], ...]
    """A config that has every key of one of them is a config of this tool."""
    keys: Mapping[str, str]
    """The tool's dotted keys, each with what it is here: the first word in backticks is a setting, or a
    command. ``*.`` at the beginning of a key means any section."""
    converter: str | None = None
    """The name of the tool for ``roost convert``."""

    def find_keys(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Returns the keys of the tool to which a config gives a value and that have another name here, each
        with what it is; of a section only its keys, if the tool has some of them."""
        names = set(_dotted_keys(values, with_null=False))
        found = {
            key.removeprefix("*."): here
            for key, here in self.keys.items()
            if key in names and here != f"`{key}`"
        }
        return {
            key: here for key, here in found.items() if not any(one.startswith(f"{key}.") for one in found)
        }


_NODES = "`roost run CONFIG --num-nodes 2 --rendezvous HOST:PORT`"
_SWEEP = "`roost submit CONFIG optimizers.main.lr=1e-3,1e-4`"
_NOT_NEEDED = "not needed"

TOOLS = (
    Tool(
        "Lightning's CLI",
        f"{PAGE}#lightning",
        (
            ("seed_everything",),
            ("trainer.max_epochs",),
            ("trainer.max_steps",),
            ("trainer.accelerator",),
            ("trainer.devices",),
            ("fit.trainer",),
            ("model.class_path",),
            ("data.class_path",),
        ),
        {
            "seed_everything": "`seed`",
            "model.class_path": "`runner`: FILE.py:CLASS",
            "data.class_path": "`dataset`: FILE.py:CLASS",
            "*.init_args": "a section of your own, which your class reads as `self.args`",
            "optimizer.class_path": "`optimizers.NAME.class`",
            "lr_scheduler.class_path": "`optimizers.NAME.scheduler.class`",
            "ckpt_path": "`roost continue PACKAGE`",
            "trainer.max_epochs": "`max_epochs`",
            "trainer.max_steps": "`max_steps`",
            "trainer.max_time": "`max_time`",
            "trainer.precision": "`precision`",
            "trainer.devices": "`devices`",
            "trainer.strategy": "`strategy`",
            "trainer.accelerator": "`roost run CONFIG -CPU`; without it the best device",
            "trainer.num_nodes": _NODES,
            "trainer.accumulate_grad_batches": "`gradient_accumulation_steps`",
            "trainer.gradient_clip_val": "`optimizers.NAME.max_grad_norm`",
            "trainer.val_check_interval": "`validate_every`",
            "trainer.check_val_every_n_epoch": "`validate_every`: 2ep",
            "trainer.log_every_n_steps": "`log_every`",
            "trainer.limit_train_batches": "`data.limit_train_batches`",
            "trainer.limit_val_batches": "`data.limit_valid_batches`",
            "trainer.limit_test_batches": "`data.limit_test_batches`",
            "trainer.fast_dev_run": "`roost check CONFIG`",
            "trainer.deterministic": "`determinism`",
            "trainer.sync_batchnorm": "`sync_batch_norm`",
            "trainer.callbacks": "`hooks`; stopping early, averages and checkpoints are sections",
            "trainer.enable_checkpointing": "`checkpoint`",
            "trainer.logger": "`mirrors`",
            "trainer.profiler": "`profile`",
            "trainer.default_root_dir": "`save_root`",
        },
    ),
    Tool(
        "accelerate",
        f"{PAGE}#accelerate",
        (("compute_environment",), ("distributed_type",), ("mixed_precision", "num_processes")),
        {
            "num_processes": "`devices`",
            "gpu_ids": "`devices`: [0, 2]",
            "distributed_type": "`strategy`",
            "mixed_precision": "`precision`",
            "gradient_accumulation_steps": "`gradient_accumulation_steps`",
            "fsdp_config": "`strategy`: fsdp",
            "dynamo_config": "`step_mode`: compile",
            "use_cpu": "`roost run CONFIG -CPU`",
            "num_machines": _NODES,
            "main_process_ip": _NODES,
            "main_process_port": _NODES,
            "machine_rank": f"{_NOT_NEEDED}: ranks are assigned as machines connect",
            "compute_environment": _NOT_NEEDED,
        },
    ),
    Tool(
        "DeepSpeed",
        f"{PAGE}#accelerate",
        (("zero_optimization",), ("train_micro_batch_size_per_gpu",)),
        {
            "train_batch_size": "`data.batch_size`, of all devices together",
            "train_micro_batch_size_per_gpu": "`data.batch_size`, of all devices and micro-batches together",
            "gradient_accumulation_steps": "`gradient_accumulation_steps`",
            "gradient_clipping": "`optimizers.NAME.max_grad_norm`",
            "zero_optimization": "`strategy`: fsdp",
            "fp16.enabled": "`precision`: fp16",
            "bf16.enabled": "`precision`: bf16",
            "optimizer.type": "`optimizers.NAME.class`",
            "scheduler.type": "`optimizers.NAME.scheduler.class`",
            "steps_per_print": "`log_every`",
        },
    ),
    Tool(
        "Hugging Face's Trainer",
        f"{PAGE}#hugging-face-trainer",
        (
            ("per_device_train_batch_size",),
            ("num_train_epochs",),
            ("model_name_or_path", "output_dir"),
            ("output_dir", "learning_rate"),
        ),
        {
            "model_name_or_path": "`init_from`, or your Runner loads it in `build`",
            "output_dir": "`save_root`",
            "overwrite_output_dir": f"{_NOT_NEEDED}: a package is never overwritten",
            "num_train_epochs": "`max_epochs`",
            "max_steps": "`max_steps`",
            "per_device_train_batch_size": "`data.batch_size`, of all devices together",
            "per_device_eval_batch_size": "`data.valid.batch_size`",
            "gradient_accumulation_steps": "`gradient_accumulation_steps`",
            "learning_rate": "`optimizers.NAME.lr`",
            "weight_decay": "`optimizers.NAME.weight_decay`",
            "max_grad_norm": "`optimizers.NAME.max_grad_norm`",
            "optim": "`optimizers.NAME.class`",
            "lr_scheduler_type": "`optimizers.NAME.scheduler.class`",
            "warmup_steps": "`optimizers.NAME.scheduler.warmup_steps`",
            "warmup_ratio": "`optimizers.NAME.scheduler.warmup_steps`",
            "fp16": "`precision`: fp16",
            "bf16": "`precision`: bf16",
            "torch_compile": "`step_mode`: compile",
            "fsdp": "`strategy`: fsdp",
            "logging_steps": "`log_every`",
            "eval_strategy": "`validate_every`: 1ep",
            "evaluation_strategy": "`validate_every`: 1ep",
            "eval_steps": "`validate_every`",
            "save_strategy": "`checkpoint.every`: 1ep",
            "save_steps": "`checkpoint.every`",
            "save_total_limit": "`checkpoint.fast`",
            "load_best_model_at_end": "`test_at_end`: best",
            "metric_for_best_model": "`checkpoint.best`: [{monitor: valid/loss, mode: min}]",
            "dataloader_num_workers": "`data.num_workers`",
            "dataloader_drop_last": "`data.drop_last`",
            "group_by_length": "`data.sort_by_length`",
            "report_to": "`mirrors`",
            "run_name": "`roost run CONFIG --name NAME`",
            "resume_from_checkpoint": "`roost continue PACKAGE`",
        },
    ),
    Tool(
        "DLNest",
        f"{PAGE}#dlnest",
        (),  # its configs are run as they are; these keys are refused in a native config
        {
            "runner_file_path": "`runner`: FILE.py:CLASS",
            "runner_name": "`runner`: FILE.py:CLASS",
            "model_file_path": "`runner`: FILE.py:CLASS",
            "model_name": "`runner`: FILE.py:CLASS",
            "dataset_file_path": "`dataset`: FILE.py:CLASS",
            "dataset_name": "`dataset`: FILE.py:CLASS",
            "life_cycle_file_path": "`hooks`: [FILE.py:CLASS]",
            "life_cycle_name": "`hooks`: [FILE.py:CLASS]",
            "plugins": "`hooks`",
            "child_jsons": "`include`: below this file, which wins",
            "root_file_path": f"{_NOT_NEEDED}: the project is the nearest folder with the code",
            "other_file_paths": f"{_NOT_NEEDED}: the project's code is copied",
            "save_root": "`save_root`",
            "checkpoint_args.max_ckpt_in_fast_track": "`checkpoint.fast`",
            "checkpoint_args.max_ckpt_in_slow_track": "`checkpoint.slow`",
            "checkpoint_args.dilation_in_slow_track": "`checkpoint.slow_every`",
            "checkpoint_args.max_ckpt_in_consistent_track": "`checkpoint.held`",
            "checkpoint_args": "`checkpoint`",
        },
    ),
    Tool(
        "SpeeChain",
        "docs/from-speechain.md",
        (
            ("train_result_path",),
            ("best_model_selection",),
            ("data_cfg",),
            ("train_cfg", "infer_cfg"),
            ("optim_sches",),
            ("model.model_type",),
            ("train.type", "train.conf"),
        ),
        {
            "data_cfg": "`dataset`, in the same config or an included one",
            "train_cfg": "`runner` and `optimizers`, in the same config or an included one",
            "train_result_path": "`save_root`",
            "num_epochs": "`max_epochs`",
            "accum_grad": "`gradient_accumulation_steps`",
            "use_amp": "`precision`: fp16",
            "grad_clip": "`optimizers.NAME.max_grad_norm`",
            "ft_factor": "`optimizers.NAME.lr_scale`",
            "ngpu": "`devices`",
            "gpus": "`devices`: [0, 2]",
            "same_proc_seed": "`seed_mode`: same",
            "train_num_workers": "`data.num_workers`",
            "valid_num_workers": "`data.valid.num_workers`",
            "test_num_workers": "`data.test.num_workers`",
            "valid_per_epochs": "`validate_every`: 1ep",
            "report_per_steps": "`log_every`",
            "best_model_selection": "`checkpoint.best`: [{monitor: valid/loss, mode: min, top_k: 1}]",
            "early_stopping_patience": "`early_stopping.patience`",
            "early_stopping_threshold": "`early_stopping.min_delta`",
            "last_model_number": "`checkpoint.fast`",
            "visual_snapshot_interval": "`visualize_every`",
            "ignore_train_exception": "`on_step_error`: skip",
            "enable_syncbatchnorm": "`sync_batch_norm`",
            "dist_backend": f"{_NOT_NEEDED}: NCCL on GPUs, gloo on the CPU",
            "dist_url": _NODES,
            "model.model_type": "`runner`",
            "model.module_conf": "`runner.model`",
            "model.criterion_conf": "`runner.losses`",
            "optim_sches": "`optimizers`",
            "train.type": "`data`",
        },
        converter="speechain",
    ),
    Tool(
        "CornerNet",
        "docs/from-cornernet.md",
        (("system", "db"), ("system.max_iter",), ("system.sampling_function",)),
        {
            "system.max_iter": "`max_steps`",
            "system.batch_size": "`data.batch_size`",
            "system.learning_rate": "`optimizers.NAME.lr`",
            "system.opt_algo": "`optimizers.NAME.class`",
            "system.stepsize": "`optimizers.NAME.scheduler.step_size` of StepLR",
            "system.decay_rate": "`optimizers.NAME.scheduler.gamma` of StepLR",
            "system.display": "`log_every`",
            "system.snapshot": "`checkpoint.every`",
            "system.val_iter": "`validate_every`",
            "system.prefetch_size": "`data.prefetch`",
            "system.pretrain": "`init_from`",
            "system.sampling_function": "`roost.Sampled`",
            "system.cache_dir": "`save_root`",
            "system.data_rng": "`seed`",
            "system.nnet_rng": "`seed`",
        },
        converter="cornernet",
    ),
    Tool(
        "detectron2",
        f"{PAGE}#detectron2",
        (("MODEL",), ("SOLVER",), ("DATASETS",), ("_BASE_",)),
        {
            "_BASE_": "`include`",
            "MODEL.META_ARCHITECTURE": "`runner`",
            "MODEL.WEIGHTS": "`init_from`",
            "DATASETS.TRAIN": "`dataset`: the train of `Dataset.build`",
            "DATASETS.TEST": "`dataset`: the valid or test of `Dataset.build`",
            "DATALOADER.NUM_WORKERS": "`data.num_workers`",
            "SOLVER.IMS_PER_BATCH": "`data.batch_size`",
            "SOLVER.MAX_ITER": "`max_steps`",
            "SOLVER.BASE_LR": "`optimizers.NAME.lr`",
            "SOLVER.MOMENTUM": "`optimizers.NAME.momentum`",
            "SOLVER.WEIGHT_DECAY": "`optimizers.NAME.weight_decay`",
            "SOLVER.WEIGHT_DECAY_NORM": "`optimizers.NAME.groups`",
            "SOLVER.STEPS": "`optimizers.NAME.scheduler.milestones` of MultiStepLR",
            "SOLVER.GAMMA": "`optimizers.NAME.scheduler.gamma`",
            "SOLVER.WARMUP_ITERS": "`optimizers.NAME.scheduler.warmup_steps`",
            "SOLVER.CLIP_GRADIENTS.CLIP_VALUE": "`optimizers.NAME.max_grad_norm`",
            "SOLVER.AMP.ENABLED": "`precision`: fp16",
            "SOLVER.CHECKPOINT_PERIOD": "`checkpoint.every`",
            "TEST.EVAL_PERIOD": "`validate_every`",
            "VIS_PERIOD": "`visualize_every`",
            "OUTPUT_DIR": "`save_root`",
            "SEED": "`seed`",
            "CUDNN_BENCHMARK": "`determinism`: off",
        },
    ),
    Tool(
        "LiBai",
        f"{PAGE}#libai",
        (("train.train_iter",), ("train.train_micro_batch_size",), ("train.num_accumulation_steps",)),
        {
            "train.train_iter": "`max_steps`",
            "train.train_epoch": "`max_epochs`",
            "train.train_micro_batch_size": "`data.batch_size`, of all devices and micro-batches together",
            "train.global_batch_size": "`data.batch_size`",
            "train.num_accumulation_steps": "`gradient_accumulation_steps`",
            "train.warmup_ratio": "`optimizers.NAME.scheduler.warmup_steps`",
            "train.amp.enabled": "`precision`: fp16",
            "train.checkpointer.period": "`checkpoint.every`",
            "train.checkpointer.max_to_keep": "`checkpoint.fast`",
            "train.evaluation.eval_period": "`validate_every`",
            "train.log_period": "`log_every`",
            "train.load_weight": "`init_from`",
            "train.resume": "`roost continue PACKAGE`",
            "train.output_dir": "`save_root`",
            "train.dist.data_parallel_size": "`devices`",
            "graph.enabled": "`step_mode`: compile",
        },
    ),
    Tool(
        "torchtune",
        f"{PAGE}#other-tools",
        (("*._component_",),),
        {
            "*._component_": "`class`: in `optimizers`, or in a `runner` described in YAML",
            "epochs": "`max_epochs`",
            "batch_size": "`data.batch_size`, of all devices and micro-batches together",
            "gradient_accumulation_steps": "`gradient_accumulation_steps`",
            "max_steps_per_epoch": "`data.steps_per_epoch`",
            "dtype": "`precision`",
            "compile": "`step_mode`: compile",
            "output_dir": "`save_root`",
            "resume_from_checkpoint": "`roost continue PACKAGE`",
            "metric_logger": "`mirrors`",
        },
    ),
    Tool(
        "MMEngine",
        f"{PAGE}#other-tools",
        (("_base_",), ("optim_wrapper",), ("train_dataloader", "model")),
        {
            "_base_": "`include`",
            "train_cfg.max_epochs": "`max_epochs`",
            "train_cfg.max_iters": "`max_steps`",
            "train_cfg.val_interval": "`validate_every`",
            "train_dataloader.batch_size": "`data.batch_size`, of all devices together",
            "train_dataloader.num_workers": "`data.num_workers`",
            "optim_wrapper.optimizer": "`optimizers.NAME`",
            "optim_wrapper.clip_grad": "`optimizers.NAME.max_grad_norm`",
            "param_scheduler": "`optimizers.NAME.scheduler`",
            "default_hooks": "`checkpoint`, `log_every` and `visualize_every`",
            "custom_hooks": "`hooks`",
            "load_from": "`init_from`",
            "resume": "`roost continue PACKAGE`",
            "work_dir": "`save_root`",
        },
    ),
    Tool(
        "Weights & Biases sweeps",
        f"{PAGE}#weights--biases",
        (("program", "parameters"), ("method", "parameters"), ("metric", "parameters")),
        {
            "method": "`roost submit CONFIG optimizers.main.lr=1e-3,1e-4 seed=0..4`: every combination",
            "parameters": _SWEEP,
            "program": "`roost submit CONFIG`, or `roost submit -- python train.py` for one run",
            "metric": "`roost ls sort:valid/loss`",
            "early_terminate": "`early_stopping`",
            "run_cap": f"{_NOT_NEEDED}: a sweep has a run for each combination of the listed values",
        },
    ),
    Tool(
        "Hydra",
        f"{PAGE}#hydra",
        (("hydra",), ("defaults",), ("*._target_",)),
        {
            "defaults": "`include`: below this file, which wins",
            "*._target_": "`class`: in `optimizers`, or in a `runner` described in YAML",
            "*._partial_": "a function in the project's folder, FILE.py:FUNCTION",
            "experiment": "`roost run CONFIG -f experiment/NAME.yaml`: a file above the config",
            "hydra.run.dir": "`save_root`",
            "hydra.sweep.dir": "`save_root`",
            "hydra.job.name": "`roost run CONFIG --name NAME`",
            "hydra.launcher": "`roost submit`: a queue on this machine",
            "hydra.sweeper": _SWEEP,
            "hydra.sweeper.params": _SWEEP,
            "hydra": "not read: folder, name and queue of a run are options of the commands run and submit",
        },
    ),
)
"""The tools; the first whose signature a config has is the one that is named."""

COMMON_NAMES = {
    "optimizers.NAME.lr": ("learning_rate", "base_lr", "init_lr"),
    "optimizers.NAME.weight_decay": ("wd", "l2"),
    "optimizers.NAME.max_grad_norm": (
        *("clip", "grad_clip", "clip_grad", "clip_grad_norm", "gradient_clip_val", "max_norm"),
    ),
    "precision": ("amp", "use_amp", "fp16", "bf16", "mixed_precision"),
    "gradient_accumulation_steps": (
        *("accumulate_grad_batches", "accum_grad", "grad_accum", "grad_accum_steps", "accumulation_steps"),
    ),
    "max_epochs": ("epochs", "num_epochs", "n_epochs", "num_train_epochs"),
    "max_steps": ("steps", "num_steps", "n_steps", "max_iters", "num_iterations"),
    "data.batch_size": ("per_device_train_batch_size", "train_batch_size", "samples_per_gpu"),
    "data.num_workers": ("workers", "n_workers", "dataloader_num_workers", "workers_per_gpu"),
    "data.prefetch": ("prefetch_factor", "dataloader_prefetch_factor"),
    "data.loader_timeout": ("timeout",),
    "data.weighted": ("sampler", "weighted_sampler"),
    "data.sort_by_length": ("group_by_length",),
    "data.max_tokens": ("batch_sampler", "max_tokens_per_batch"),
    "data.steps_per_epoch": ("batches_per_epoch",),
    "data.limit_valid_batches": ("limit_val_batches",),
    "data.mix": ("combine", "combined_loader"),
    "validate_every": ("val_check_interval",),
    "log_every": ("log_every_n_steps",),
    "sync_batch_norm": ("sync_batchnorm",),
    "mirrors": ("logger", "loggers"),
    "mirrors.wandb.project": ("wandb", "wandb.project", "wandb_project", "logger.wandb.project"),
    "mirrors.wandb.entity": ("wandb.entity", "wandb_entity", "logger.wandb.entity"),
    "mirrors.wandb.name": ("wandb.name", "wandb_name", "logger.wandb.name"),
    "mirrors.wandb.group": ("wandb.group", "wandb_group", "logger.wandb.group"),
    "mirrors.wandb.tags": ("wandb.tags", "logger.wandb.tags"),
    "mirrors.wandb.mode": ("wandb.mode", "wandb_mode"),
    "early_stopping": ("early_stop",),
    "early_stopping.patience": ("early_stopping_patience",),
    "devices": ("num_gpus", "n_gpus", "n_gpu", "ngpus"),
}
"""Names that scripts have for settings; `TOOLS` has those of one tool."""

MISPLACED_NAMES = {
    **{key: f"optimizers.NAME.{key}" for key in ("lr", "weight_decay", "max_grad_norm")},
    **{
        key: f"data.{key}"
        for key in (
            *("batch_size", "num_workers", "drop_last", "sort_by_length", "steps_per_epoch"),
            *("limit_train_batches", "limit_valid_batches", "limit_test_batches", "loader_timeout"),
        )
    },
}
"""Settings of sections that at the top of a config are probably meant as these."""
AMBIGUOUS_NAMES = frozenset(
    [
        *("steps", "num_steps", "n_steps", "workers", "clip", "max_norm", "wd", "l2", "timeout", "sampler"),
        *("combine", "combined_loader", "weighted_sampler", "max_tokens_per_batch", "amp", "num_processes"),
        *("compile", "dtype", "optim", "plugins", "load_from", "model_name", "dataset_name", "runner_name"),
        *("model_name_or_path", "output_dir", "work_dir", "warmup_steps", "warmup_ratio", "param_scheduler"),
        *("OUTPUT_DIR", "SEED", "gpus", "data_cfg", "train_cfg", "optimizer", "model", "train", "data"),
        *("scheduler", "lr_scheduler", "graph", "system", "custom_hooks", "resume"),
        *("method", "parameters", "program", "metric"),
    ]
)
"""Keys of other tools that, at the top of a config, may as well be the user's own keys and sections."""


def find_tool(values: Mapping[str, Any]) -> Tool | None:
    """Returns the tool that a config looks like; None if there is none."""
    names = set(_dotted_keys(values))
    for tool in TOOLS:
        if any(names.issuperset(signature) for signature in tool.signatures):
            return tool
    return None


def counterparts() -> dict[str, str]:
    """Returns what each dotted key of all tools and scripts is here, as a text like those of `Tool.keys`,
    without keys that have the same name here."""
    found = {
        key: text
        for tool in reversed(TOOLS)
        for key, text in tool.keys.items()
        if not key.startswith("*.") and setting_of(text) != key
    }
    common = {name: f"`{here}`" for here, names in COMMON_NAMES.items() for name in names}
    return {**common, **found, **{key: f"`{here}`" for key, here in MISPLACED_NAMES.items()}}


def setting_of(here: str) -> str | None:
    """Returns the setting in a text of `Tool.keys`; None if the text has a command or words."""
    match = re.match(r"`([\w.]+)`", here)
    return match[1] if match and not match[1].startswith(("roost", "class")) else None


def value_of(here: str) -> str | None:
    """Returns the value that a text of `Tool.keys` gives for its setting; None if the text has no value."""
    match = re.fullmatch(r"`[\w.]+`: (\w+|\[.*\])", here)
    return match[1] if match else None


def settings_by_key() -> dict[str, str]:
    """Returns the setting of each dotted key of all tools, without keys that have the same name here."""
    found = {name: here for here, names in COMMON_NAMES.items() for name in names}
    for tool in TOOLS:
        for key, text in tool.keys.items():
            here = setting_of(text)
            if here is not None and here != key and not key.startswith("*."):
                found.setdefault(key, here)
    return found


def _dotted_keys(values: object, outer: str = "", *, with_null: bool = True) -> Iterator[str]:
    """Yields the dotted key of every section and value, also of those in lists, and ``*.NAME`` for each."""
    if isinstance(values, list):
        for item in values:
            yield from _dotted_keys(item, outer, with_null=with_null)
    if isinstance(values, Mapping):
        for name, inner in values.items():
            if inner is not None or with_null:
                yield from (f"{outer}{name}", f"*.{name}")
            yield from _dotted_keys(inner, f"{outer}{name}.", with_null=with_null)
