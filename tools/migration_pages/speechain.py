"""The options of SpeeChain's runner and of its configs, and what is here in their place."""

from __future__ import annotations

from tools.migration_pages.page import Group, Option, Page

_TEXT = """For those who ran experiments with SpeeChain's runner: each of its options, and what it is called
in roost. `roost new mine -t experiment` makes a project in that manner: an experiment is one YAML file,
variations include it, and next to no Python is written. Types, defaults and help on this page are those of
roost's settings; *not yet* is said where nothing stands in an option's place so far. The page is written
by `python -m tools.migration_pages speechain`.

There an option is given as `--name value`; here as `name=value` behind the config, or in the config itself.
`${key}` stands for another key's value (there `!ref <key>`); numbers, lists and texts are those of YAML 1.2.
"""

_GRID = "not yet: evaluation over a grid of checkpoints, settings and sets"

_BACKEND = (
    Option(
        "config",
        "a recipe",
        commands=["roost run CONFIG"],
        note="`include: [base.yaml]` lays one over another",
    ),
    Option("seed", "0", ["seed"], note="and of each sample: seed, epoch and index"),
    Option("cudnn_enabled", "true", note="always on; `torch.backends.cudnn` is yours to set in `build`"),
    Option("cudnn_benchmark", "false", ["determinism"], note="`off` lets cuDNN choose by trying"),
    Option("cudnn_deterministic", "true", ["determinism"], note="`strict` for all of CUDA, not cuDNN alone"),
    Option("train_num_workers", "1", ["data.num_workers"]),
    Option("valid_num_workers", "1", ["data.valid.num_workers"]),
    Option("test_num_workers", "1", ["data.test.num_workers"]),
    Option("pin_memory", "false", note="follows by itself: on where batches go to a GPU"),
    Option("non_blocking", "false", note="follows by itself, as `pin_memory`"),
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
        note="on one machine the ranks meet by a file, so no port can be taken",
    ),
    Option("world_size", "1", commands=["roost run CONFIG --num-nodes 2 --rendezvous HOST:PORT"]),
    Option("rank", "0", note="nobody sets it: the machines find their places as they come"),
    Option("ngpu", "1", ["devices", "strategy"], commands=["roost run CONFIG -DDP --devices 2"]),
    Option(
        "gpus",
        "none",
        ["devices"],
        commands=["roost run CONFIG --devices 0,2"],
        note="`CUDA_VISIBLE_DEVICES` counts; of a number the freest cards; leased by a queue: not yet",
    ),
    Option("same_proc_seed", "false", ["seed_mode"], note="`same` is its `true`"),
    Option("ignore_train_exception", "false", ["on_step_error", "max_skipped_steps"]),
    Option("ignore_test_exception", "false", note="not yet: an error in an evaluation ends the run"),
    Option("enable_syncbatchnorm", "true", ["sync_batch_norm"]),
)

_TRAINING = (
    Option("train_result_path", "exp/ beside", ["save_root"]),
    Option(
        "attach_config_folder_to_path",
        "true",
        commands=["roost run CONFIG --name NAME", "roost run CONFIG -d WORDS -sd"],
        note="the folder of a run: its time, a name, or its description; none is ever used twice",
    ),
    Option("train", "false", commands=["roost run CONFIG"]),
    Option("dry_run", "false", ["step_mode"], ["roost show --data CONFIG"], "`dry`"),
    Option("no_optim", "false", ["step_mode"], ["roost check CONFIG"], "`no_optim`"),
    Option(
        "resume",
        "false",
        commands=["roost continue PACKAGE", "roost run CONFIG --name NAME"],
        note="from the newest good checkpoint; the second goes on with the run of that name if there is one",
    ),
    Option(
        "start_epoch",
        "1",
        commands=["roost continue PACKAGE -c ID"],
        note="there without effect; a checkpoint knows where it was",
    ),
    Option("num_epochs", "1000", ["max_epochs", "max_steps", "max_time"]),
    Option("valid_per_epochs", "1", ["validate_every"], note="`5ep`; the end of a run is validated, too"),
    Option("report_per_steps", "0: ten an epoch", ["log_every"], note="`100`, `10/ep`"),
    Option(
        "best_model_selection",
        "none",
        [
            "checkpoint.best.N.monitor",
            "checkpoint.best.N.mode",
            "checkpoint.best.N.top_k",
            "averages.NAME.method",
        ],
        ["roost export PACKAGE --weights FILE --average best:N"],
        "`[group, metric, mode, number]` is `{monitor: group/metric, mode: mode, top_k: number}`",
    ),
    Option(
        "early_stopping_patience",
        "none",
        ["early_stopping.patience", "early_stopping.monitor", "early_stopping.mode"],
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
        note="curves are drawn from the records when they are wanted; `roost tensorboard` shows them, too",
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
    Option("test_result_path", "that of training", note="a test is part of the run's records: `test/NAME`"),
    Option("test", "false", ["test_at_end"], ["roost predict PACKAGE --data test"]),
    Option(
        "test_model",
        "none",
        ["test_at_end"],
        ["roost analyze PACKAGE -c ID"],
        "several at once: not yet",
    ),
    Option(
        "attach_model_folder_when_test", "true", note="each analysis has a folder of its own in the package"
    ),
    Option(
        "bad_cases_selection",
        "none",
        commands=["roost analyze PACKAGE -s worst"],
        note="a script of the templates `digits` and `mnist`; tables of the worst cases: not yet",
    ),
    Option("saving_proc_num", "1", note="not needed: what is predicted is written as it comes"),
)

_CONFIGS = (
    Option(
        "data_cfg",
        "none",
        ["dataset.train", "dataset.valid", "dataset.test", "data.batch_size"],
        note="sets by class path with their arguments; what becomes of them stands in `data`",
    ),
    Option("train_cfg", "none", ["runner", "optimizers"], note="in one config, or in an included file"),
    Option("infer_cfg", "none", ["runner.predicts"], note=_GRID),
)

_MODEL = (
    Option(
        "model_type",
        "required",
        ["runner.model.class"],
        note="or a Runner class of your own: `runner: FILE:CLASS`",
    ),
    Option("model_conf", "{}", ["runner.losses.NAME.weight", "runner.metrics", "options"]),
    Option("module_conf", "required", ["runner.model"], note="beside `class`: its arguments"),
    Option("criterion_conf", "none", ["runner.losses", "runner.metrics.NAME.class"]),
    Option(
        "pretrained_model",
        "none",
        ["init_from.path", "init_from.mapping", "init_from.strict"],
        note="or a list of them; what is missing, unexpected or of another shape is told",
    ),
    Option("frozen_modules", "none", ["freeze"], note="`encoder.*`; to freeze all is an error"),
)

_OPTIM_SCHES = (
    Option("type", "required", ["optimizers.NAME.scheduler.class", "optimizers.NAME.scheduler.unit"]),
    Option("conf", "required", ["optimizers.NAME.scheduler"], note="arguments stand beside `class`"),
    Option("optim_type", "Adam", ["optimizers.NAME.class"]),
    Option("optim_conf", "{}", ["optimizers.NAME"], note="arguments stand beside `class`"),
    Option("optim_loss", "loss", ["runner.updates"], note="`{critic: [critic_loss], generator: [loss]}`"),
    Option("updated_modules", "all", ["optimizers.NAME.params"]),
    Option("step_per_update", "1", ["optimizers.NAME.every_n_steps"]),
    Option(
        "warmup_steps",
        "4000",
        ["optimizers.NAME.scheduler.warmup_steps"],
        note="`Noamlr`: `LambdaLR` with a function of yours, as in the guide",
    ),
    Option("decay_factor", "0.999", ["optimizers.NAME.scheduler.gamma"], note="of torch's `ExponentialLR`"),
)

_ITERATORS = (
    Option(
        "type",
        "required",
        ["data.max_tokens"],
        note="`block.BlockIterator` is `max_tokens`; `abs.Iterator` needs nothing",
    ),
    Option("conf", "required", ["data"]),
    Option(
        "dataset_type", "required", ["dataset.train"], note="`class`; `roost.Arrays` for tables and arrays"
    ),
    Option("dataset_conf", "{}", ["dataset.train"], note="arguments stand beside `class`"),
    Option("batch_size", "none", ["data.batch_size", "data.valid.batch_size", "data.mix.batch_sizes"]),
    Option("batch_len", "none", ["data.max_tokens", "data.count_padding"]),
    Option("batches_per_epoch", "the data", ["data.steps_per_epoch", "data.limit_valid_batches"]),
    Option("is_descending", "true", ["data.sort_by_length"]),
    Option("shuffle", "true", ["data.shuffle"]),
    Option("data_len", "none", note="an attribute `lengths` of the set"),
    Option(
        "data_selection",
        "none",
        ["data.limit_train_batches"],
        note="or `torch.utils.data.Subset` by class path",
    ),
    Option("group_info", "none", note="not yet: tables by group"),
    Option(
        "several iterators",
        "one",
        ["data.mix.mode", "dataset.train"],
        note="sets by name; `min_size` as there",
    ),
)

_INFERENCE = (
    Option("shared_args", "{}", note=_GRID),
    Option("exclu_args", "[]", note=_GRID),
)

_DIFFERENCES = (
    "A run that goes on is the run that was not cut: order of the data, random numbers, scaler, patience "
    "and best list are in the checkpoint, "
    "also in the middle of an epoch. There a resumed epoch had another order, and the batches of an epoch "
    "began anew.",
    "A checkpoint is a folder that appears whole or not at all. There one file was written in place, and "
    "was the only copy.",
    "`best_model_selection` had to be given. Here best checkpoints and early stopping are optional, and "
    "apart from each other.",
    "A metric that is always negative never counted as better in mode `max`, and a relative threshold "
    "moved the bar the wrong way. Here the "
    "first value is the first best, and a relative `min_delta` is a share of the size of the best value.",
    "Early stopping counted epochs that had no validation, and a stopped run trained one more epoch when "
    "resumed. Here validations count, and "
    "a run that was stopped stays finished.",
    "With several optimizers the check of their parameters failed, all of them clipped all parameters, and "
    "a shared loss was divided twice. "
    "Here each has its own parameters, norm and losses.",
    "`frozen_modules` took its last entry alone. Here every glob counts, and one that matches nothing is "
    "an error.",
    "Parameter groups were all given one learning rate. Here `lr_scale` and the group's own arguments hold.",
    "An epoch of fewer than ten batches ended with a division by zero. Here an interval may be longer than "
    "an epoch.",
    "A validation's mean was the mean of its batches' means. Here every sample counts the same.",
    "`ignore_train_exception` saw the forward pass alone. Here a whole step is kept back, and the samples "
    "are noted in `skipped.jsonl`.",
    "`--name=value` was not seen as given, so the config won in silence; `-1` and `1e-3` inside of lists "
    "stayed texts. Here both read the same.",
    "A test overwrote the config of the training. A package's settings never change; each session and "
    "analysis adds its own.",
    "Links with absolute paths named the best models, so a result could not be moved. A package can be.",
    "A CPU was refused. Here it trains like a GPU.",
)

PAGE = Page(
    "Coming from SpeeChain's runner",
    _TEXT,
    [
        Group("Experiment and backend", _BACKEND),
        Group("Gradients", _GRADIENTS),
        Group("Several GPUs", _DISTRIBUTION),
        Group("Training", _TRAINING),
        Group("Snapshots", _SNAPSHOTS),
        Group("Testing", _TESTING),
        Group("The three configs", _CONFIGS),
        Group("`model` in train_cfg", _MODEL),
        Group("`optim_sches` in train_cfg", _OPTIM_SCHES),
        Group("Iterators in data_cfg", _ITERATORS),
        Group("infer_cfg", _INFERENCE),
    ],
    _DIFFERENCES,
)
"""The page of document 003."""
