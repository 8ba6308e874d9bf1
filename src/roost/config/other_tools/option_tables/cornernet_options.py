"""The options of CornerNet-Lite's train.py and their equivalents in roost."""

from __future__ import annotations

from roost.config.other_tools.option_tables.option_table import Group, Option

_COMMAND_LINE = (
    Option(
        "cfg_file",
        "required",
        ["runner"],
        ["roost run -c config.yaml"],
        "a config of any name, in the project or deeper, such as `./configs/NAME.json`: the project is the "
        "nearest folder that holds the files that the config names, or that `--project` or `project:` names",
    ),
    Option(
        "--iter",
        "0",
        commands=["roost continue PACKAGE --iter N"],
        note="continues from the checkpoint of that step; without `--iter` from the newest undamaged "
        "one. Optimizer, "
        "schedule, random numbers and data positions are restored, too. `roost fork PACKAGE --at N` "
        "does the same "
        "in a new package",
    ),
    Option(
        "--workers",
        "4",
        ["data.num_workers", "data.prefetch"],
        note="a `roost.Sampled` keeps the number of workers it began with",
    ),
    Option(
        "--initialize",
        "off",
        commands=["roost run CONFIG --initialize"],
        note="builds everything, saves the checkpoint of step 0, reports parameters and memory, and ends",
    ),
    Option(
        "--distributed",
        "off",
        ["strategy", "devices", "sync_batch_norm"],
        ["roost run CONFIG -DDP", "roost run CONFIG -FSDP"],
    ),
    Option(
        "--world-size",
        "-1",
        ["devices"],
        ["roost run CONFIG --devices 2", "roost run CONFIG --num-nodes 2 --rendezvous HOST:PORT"],
    ),
    Option("--rank", "0", note="not needed: ranks are assigned as machines connect"),
    Option(
        "--dist-url",
        "none",
        commands=["roost run CONFIG --num-nodes 2 --rendezvous HOST:PORT"],
        note="on one machine the ranks connect through a file, so no port is needed",
    ),
    Option("--dist-backend", "nccl", note="follows from the device: NCCL on GPUs, gloo on the CPU"),
)

_SYSTEM = (
    Option(
        "dataset",
        "none",
        ["dataset"],
        note="your class, whose `build` returns the sets",
    ),
    Option(
        "sampling_function",
        "coco_detection",
        note="`roost.Sampled(sample, db)` in `Dataset.build`: `sample(db, index, augment)` returns a whole "
        "batch and the next index. A set with `len()` and `[index]` works too; then roost makes the batches",
    ),
    Option("display", "5", ["log_every"], note="a row is the mean since the row before"),
    Option("snapshot", "400", ["checkpoint.every", "checkpoint.fast", "checkpoint.slow"]),
    Option(
        "stepsize",
        "5000",
        [
            "optimizers.NAME.scheduler.class",
            "optimizers.NAME.scheduler.step_size",
            "optimizers.NAME.scheduler.unit",
        ],
        note="`torch.optim.lr_scheduler.StepLR`",
    ),
    Option("learning_rate", "0.001", ["optimizers.NAME.lr"]),
    Option(
        "decay_rate",
        "10",
        ["optimizers.NAME.scheduler.gamma"],
        note="the factor of the rate, so 0.1 for 10",
    ),
    Option("max_iter", "100000", ["max_steps"]),
    Option(
        "val_iter",
        "20",
        ["validate_every", "data.limit_valid_batches"],
        note="there one batch, another one each time; here all batches, or the first N",
    ),
    Option("batch_size", "1", ["data.batch_size"], note="with `roost.Sampled` the function decides it"),
    Option("prefetch_size", "100", ["data.prefetch"]),
    Option(
        "pretrain",
        "none",
        ["init_from.path", "init_from.mapping", "init_from.strict"],
        note="`init_from: FILE` suffices",
    ),
    Option(
        "opt_algo", "adam", ["optimizers.NAME.class"], note="`torch.optim.Adam`, `torch.optim.SGD`, any other"
    ),
    Option(
        "chunk_sizes",
        "none",
        ["devices", "strategy"],
        note="their number; not yet: unequal shares; where memory is short see `gradient_accumulation_steps`",
    ),
    Option("data_dir", "./data", note="a key of your own, such as `data_folder: ${project}/data`"),
    Option("cache_dir", "./cache", ["save_root"], note="each run is a folder there, with all it needs"),
    Option(
        "config_dir",
        "./config",
        commands=["roost run configs/NAME.json"],
        note="the package has a copy of the config at the same place",
    ),
    Option(
        "result_dir",
        "./results",
        commands=["roost analyze PACKAGE -s SCRIPT"],
        note="results and figures of a script are in `analysis/` of the package",
    ),
    Option("train_split", "training", note="the `train` of `Dataset.build`; a key of your own may name it"),
    Option("val_split", "validation", note="likewise `valid`"),
    Option(
        "test_split", "testdev", ["test_at_end"], note="likewise `test`, which is tested when the run ends"
    ),
    Option("data_rng", "123", ["seed"], note="each sample, or batch of a `Sampled`, is seeded from it"),
    Option("nnet_rng", "317", ["seed"], note="one seed for everything"),
    Option(
        "snapshot_name",
        "cfg_file",
        commands=["roost run CONFIG --name NAME"],
        note="the folder of the run; its time if left out",
    ),
)

GROUPS = (Group("The command line", _COMMAND_LINE), Group("The section `system` of the config", _SYSTEM))
"""The options, as on the page docs/from-cornernet.md."""
