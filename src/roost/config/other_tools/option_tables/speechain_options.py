"""The options of SpeeChain's runner and its configs, and their equivalents in roost."""

from __future__ import annotations

from roost.config.other_tools.option_tables.option_table import Group, Option

_VARIANTS = "the same in a file of variants, which `roost convert` writes"
_EVALUATE = "roost evaluate PACKAGE --checkpoints 'average(best:10),last' --variants variants.yaml"

_BACKEND = (
    Option(
        "config",
        "a recipe",
        commands=["roost run CONFIG"],
        note="`include: [base.yaml]` merges it over another config",
    ),
    Option("seed", "0", ["seed"], note="and of each sample: seed, epoch and index"),
    Option("cudnn_enabled", "true", note="always on; `torch.backends.cudnn` is yours to set in `build`"),
    Option("cudnn_benchmark", "false", ["determinism"], note="`off` lets cuDNN choose by measuring"),
    Option("cudnn_deterministic", "true", ["determinism"], note="`strict` for all of CUDA, not cuDNN alone"),
    Option("train_num_workers", "1", ["data.num_workers"]),
    Option("valid_num_workers", "1", ["data.valid.num_workers"]),
    Option("test_num_workers", "1", ["data.test.num_workers"]),
    Option("pin_memory", "false", note="automatic: on where batches are copied to a GPU"),
    Option("non_blocking", "false", note="automatic, as `pin_memory`"),
)

_GRADIENTS = (
    Option("use_amp", "true", ["precision", "evaluation_precision"], note="there fp16 in training alone"),
    Option(
        "grad_clip", "5.0", ["optimizers.NAME.max_grad_norm"], note="of that optimizer's parameters alone"
    ),
    Option("grad_norm_type", "2.0", ["optimizers.NAME.grad_norm_type"]),
    Option("accum_grad", "1", ["gradient_accumulation_steps"], note="a step is an optimizer step"),
    Option("ft_factor", "1.0", ["optimizers.NAME.lr_scale", "optimizers.NAME.groups.N.lr_scale"]),
)

_DISTRIBUTION = (
    Option("dist_backend", "nccl", note="follows from the device: NCCL on GPUs, gloo on the CPU"),
    Option(
        "dist_url",
        "tcp://127.0.0.1",
        commands=["roost run CONFIG --num-nodes 2 --rendezvous HOST:PORT"],
        note="on one machine the ranks connect through a file, so no port is needed",
    ),
    Option("world_size", "1", commands=["roost run CONFIG --num-nodes 2 --rendezvous HOST:PORT"]),
    Option("rank", "0", note="not needed: ranks are assigned as machines connect"),
    Option("ngpu", "1", ["devices", "strategy"], commands=["roost run CONFIG -DDP --devices 2"]),
    Option(
        "gpus",
        "none",
        ["devices"],
        commands=["roost run CONFIG --devices 0,2"],
        note="`CUDA_VISIBLE_DEVICES` is respected; a number takes the cards with the most free memory; "
        "each run leases its "
        "cards, so that a lab queue does not use them",
    ),
    Option("same_proc_seed", "false", ["seed_mode"], note="`same` is its `true`"),
    Option("ignore_train_exception", "false", ["on_step_error", "max_skipped_steps"]),
    Option("ignore_test_exception", "false", commands=["roost evaluate PACKAGE --on-step-error skip"]),
    Option("enable_syncbatchnorm", "true", ["sync_batch_norm"]),
)

_TRAINING = (
    Option("train_result_path", "exp/ next to it", ["save_root"], value=None),
    Option(
        "attach_config_folder_to_path",
        "true",
        commands=["roost run CONFIG --name NAME", "roost run CONFIG -d WORDS -sd"],
        note="the folder of a run: its time, a name, or its description; a name is never used twice",
    ),
    Option("train", "false", commands=["roost run CONFIG"]),
    Option("dry_run", "false", ["step_mode"], ["roost show --data CONFIG"], "`dry`"),
    Option("no_optim", "false", ["step_mode"], ["roost check CONFIG"], "`no_optim`"),
    Option(
        "resume",
        "false",
        commands=["roost continue PACKAGE", "roost run CONFIG --name NAME"],
        note="from the newest undamaged checkpoint; the second continues the run of that name if it exists",
    ),
    Option(
        "start_epoch",
        "1",
        commands=["roost continue PACKAGE -c ID"],
        note="there without effect; a checkpoint knows its epoch",
    ),
    Option("num_epochs", "1000", ["max_epochs", "max_steps", "max_time"]),
    Option("valid_per_epochs", "1", ["validate_every"], note="`5ep`; the run also validates at its end"),
    Option("report_per_steps", "0: ten an epoch", ["log_every"], note="`100`, `10/ep`", value=0),
    Option(
        "best_model_selection",
        "none",
        [
            "checkpoint.best.N.monitor",
            "checkpoint.best.N.mode",
            "checkpoint.best.N.top_k",
            "early_stopping.monitor",
            "early_stopping.mode",
            "averages.NAME.method",
        ],
        ["roost export PACKAGE --weights FILE --average best:N"],
        "`[group, metric, mode, number]` is `{monitor: group/metric, mode: mode, top_k: number}`",
    ),
    Option(
        "early_stopping_patience",
        "none",
        ["early_stopping.patience"],
        note="counts validations; there epochs, and one more",
    ),
    Option(
        "early_stopping_threshold",
        "0.001",
        ["early_stopping.min_delta", "early_stopping.min_delta_mode"],
        note="there positive for relative, negative for absolute",
    ),
    Option("last_model_number", "1", ["checkpoint.fast"]),
)

_SNAPSHOTS = (
    Option(
        "monitor_snapshot_conf",
        "{}",
        commands=["roost plot PACKAGE -o FILE", "roost plot PACKAGE -o FILE --follow"],
        note="curves are drawn from the records on request; `roost tensorboard` shows them, too",
    ),
    Option(
        "visual_snapshot_number",
        "0",
        ["visualize_samples", "runner.visualize"],
        note="pictures, histograms, matrices, audio and texts, below `media/`",
    ),
    Option("visual_snapshot_interval", "5", ["visualize_every"], note="`5ep`"),
)

_TESTING = (
    Option(
        "test_result_path",
        "that of training",
        note="a test is part of the run's records: `test/NAME`",
        value=None,
    ),
    Option("test", "false", ["test_at_end"], ["roost predict PACKAGE --data test"]),
    Option(
        "test_model",
        "none",
        ["test_at_end"],
        ["roost evaluate PACKAGE --checkpoints 'average(best:10),last'"],
        "several at once are selectors with commas",
    ),
    Option(
        "attach_model_folder_when_test",
        "true",
        commands=["roost evaluate PACKAGE --template '{variant}/{checkpoint}/{dataset}'"],
    ),
    Option(
        "bad_cases_selection",
        "none",
        ["runner.worst_cases"],
        ["roost evaluate PACKAGE"],
        note="or `worst_cases` of your Runner; in summary and report",
    ),
    Option(
        "saving_proc_num",
        "1",
        note="not needed: files of samples are written by threads beside the evaluation",
    ),
)

_CONFIGS = (
    Option(
        "data_cfg",
        "none",
        ["dataset.train", "dataset.valid", "dataset.test", "data.batch_size"],
        note="sets by class path with their arguments; batching is set in `data`",
    ),
    Option("train_cfg", "none", ["runner", "optimizers"], note="in one config, or in an included file"),
    Option("infer_cfg", "none", commands=[_EVALUATE], note=_VARIANTS),
)

_MODEL = (
    Option(
        "model_type",
        "required",
        ["runner.model.class"],
        note="or a Runner class of your own: `runner: FILE:CLASS`",
    ),
    Option("model_conf", "{}", ["runner.losses.NAME.weight", "runner.metrics", "options"]),
    Option("module_conf", "required", ["runner.model"], note="`class` and its arguments"),
    Option("criterion_conf", "none", ["runner.losses", "runner.metrics.NAME.class"]),
    Option(
        "pretrained_model",
        "none",
        ["init_from.path", "init_from.mapping", "init_from.strict"],
        note="or a list of them; missing, unexpected and mismatched tensors are reported",
    ),
    Option("frozen_modules", "none", ["freeze"], note="`encoder.*`; freezing all parameters is an error"),
)

_OPTIM_SCHES = (
    Option("type", "required", ["optimizers.NAME.scheduler.class", "optimizers.NAME.scheduler.unit"]),
    Option("conf", "required", ["optimizers.NAME.scheduler"], note="`class` and its arguments"),
    Option("optim_type", "Adam", ["optimizers.NAME.class"]),
    Option("optim_conf", "{}", ["optimizers.NAME"], note="`class` and its arguments"),
    Option("optim_loss", "loss", ["runner.updates"], note="`{critic: [critic_loss], generator: [loss]}`"),
    Option("updated_modules", "all", ["optimizers.NAME.params"]),
    Option("step_per_update", "1", ["optimizers.NAME.every_n_steps"]),
    Option(
        "warmup_steps",
        "4000",
        ["optimizers.NAME.scheduler.warmup_steps"],
        note="`Noamlr`: `LambdaLR` with `schedules.py:Noam`, which `roost convert` writes",
    ),
    Option("decay_factor", "0.999", ["optimizers.NAME.scheduler.gamma"], note="of torch's `ExponentialLR`"),
)

_ITERATORS = (
    Option(
        "type",
        "required",
        ["data.max_tokens"],
        note="`block.BlockIterator` is `max_tokens`; `abs.Iterator` needs no setting",
    ),
    Option("conf", "required", ["data"]),
    Option(
        "dataset_type", "required", ["dataset.train"], note="`class`; `roost.Arrays` for tables and arrays"
    ),
    Option("dataset_conf", "{}", ["dataset.train"], note="`class` and its arguments"),
    Option("batch_size", "none", ["data.batch_size", "data.valid.batch_size", "data.mix.batch_sizes"]),
    Option("batch_len", "none", ["data.max_tokens", "data.count_padding"]),
    Option("batches_per_epoch", "the data", ["data.steps_per_epoch", "data.limit_valid_batches"]),
    Option("is_descending", "true", ["data.sort_by_length"]),
    Option("shuffle", "true", ["data.shuffle"]),
    Option("data_len", "none", note="an attribute `lengths` of the set: a number for each sample"),
    Option(
        "data_selection",
        "none",
        ["data.limit_train_batches"],
        note="or `torch.utils.data.Subset` by class path",
    ),
    Option(
        "group_info",
        "none",
        ["dataset.test"],
        note="`groups` of a set: `{speaker: FILE}`; tables by group are in summary and report",
    ),
    Option(
        "several iterators",
        "one",
        ["data.mix.mode", "dataset.train"],
        note="sets by name; `min_size` as there",
    ),
)

_INFERENCE = (
    Option("shared_args", "{}", note=_VARIANTS),
    Option("exclu_args", "[]", note=_VARIANTS),
)

RUNNER_GROUPS = (
    Group("Experiment and backend", _BACKEND),
    Group("Gradients", _GRADIENTS),
    Group("Several GPUs", _DISTRIBUTION),
    Group("Training", _TRAINING),
    Group("Snapshots", _SNAPSHOTS),
    Group("Testing", _TESTING),
    Group("The three configs", _CONFIGS),
)
"""The options of the runner: of its command line, and of an experiment config."""
OPTIMIZERS = Group("`optim_sches` in train_cfg", _OPTIM_SCHES)
ITERATORS = Group("Iterators in data_cfg", _ITERATORS)
GROUPS = (
    *RUNNER_GROUPS,
    Group("`model` in train_cfg", _MODEL),
    OPTIMIZERS,
    ITERATORS,
    Group("infer_cfg", _INFERENCE),
)
"""The options, as on the page docs/from-speechain.md: those of the runner, then the keys of its configs."""
