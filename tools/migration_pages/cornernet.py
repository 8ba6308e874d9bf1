"""The options of CornerNet-Lite's train.py, and what is here in their place."""

from __future__ import annotations

from tools.migration_pages.page import Group, Option, Page

_TEXT = """For those who trained with the `train.py` of CornerNet or CornerNet-Lite: each of its options,
and what it is called in roost. `roost new mine -t iterations` makes a project in that manner, with a
sampling function, step decay and snapshots; its config names the old option beside each setting. Types,
defaults and help on this page are those of roost's settings; *not yet* is said where nothing stands in an
option's place so far. The page is written by `python -m tools.migration_pages cornernet`.

An iteration there is a step here, and whatever counts may count in steps (`500`), epochs (`2ep`) or time
(`10min`).
"""

_RANKS = "not yet: one process on one machine so far"

_COMMAND_LINE = (
    Option(
        "cfg_file",
        "required",
        ["runner"],
        ["roost run -c config.yaml"],
        "a config of any name; it names the model, which is no module of the same name",
    ),
    Option(
        "--iter",
        "0",
        commands=["roost continue PACKAGE --iter N"],
        note="goes on from the checkpoint of that step; without it from the newest good one. Optimizer, "
        "schedule, random "
        "numbers and cursors are restored, too. `roost fork PACKAGE --at N` does it in a package of its own",
    ),
    Option("--workers", "4", ["data.num_workers"], note="a `roost.Sampled` keeps the number it began with"),
    Option(
        "--initialize",
        "off",
        commands=["roost run CONFIG --initialize"],
        note="builds everything, saves the checkpoint of step 0, tells parameters and memory, and ends",
    ),
    Option("--distributed", "off", note=_RANKS),
    Option("--world-size", "-1", note=_RANKS),
    Option("--rank", "0", note=_RANKS),
    Option("--dist-url", "none", note=_RANKS),
    Option("--dist-backend", "nccl", note=_RANKS),
)

_SYSTEM = (
    Option(
        "dataset",
        "none",
        ["dataset"],
        note="your class, whose `build` gives the sets",
    ),
    Option(
        "sampling_function",
        "coco_detection",
        note="`roost.Sampled(sample, db)` in `Dataset.build`: `sample(db, index, augment)` gives a whole "
        "batch and the next "
        "index. A set with `len()` and `[index]` does as well, and then roost makes the batches",
    ),
    Option("display", "5", ["log_every"], note="a row is the mean since the row before"),
    Option("snapshot", "400", ["checkpoint.every", "checkpoint.fast", "checkpoint.slow"]),
    Option(
        "stepsize",
        "5000",
        ["optimizers.NAME.scheduler.class", "optimizers.NAME.scheduler.step_size"],
        note="`torch.optim.lr_scheduler.StepLR`",
    ),
    Option("learning_rate", "0.001", ["optimizers.NAME.lr"]),
    Option(
        "decay_rate",
        "10",
        ["optimizers.NAME.scheduler.gamma"],
        note="what the rate is multiplied by, so 0.1 for 10",
    ),
    Option("max_iter", "100000", ["max_steps"]),
    Option(
        "val_iter",
        "20",
        ["validate_every", "data.limit_valid_batches"],
        note="there one batch, each time another one; here all batches, or the first so many",
    ),
    Option("batch_size", "1", ["data.batch_size"], note="with `roost.Sampled` the function's own business"),
    Option("prefetch_size", "100", ["data.prefetch"]),
    Option(
        "pretrain",
        "none",
        ["init_from.path", "init_from.mapping", "init_from.strict"],
        note="`init_from: FILE` will do",
    ),
    Option(
        "opt_algo", "adam", ["optimizers.NAME.class"], note="`torch.optim.Adam`, `torch.optim.SGD`, any other"
    ),
    Option(
        "chunk_sizes",
        "none",
        note="not yet: one device so far; where memory is short see `gradient_accumulation_steps`",
    ),
    Option("data_dir", "./data", note="a key of your own, such as `data_folder: ${project}/data`"),
    Option("cache_dir", "./cache", ["save_root"], note="each run is a folder there, with all it needs"),
    Option("config_dir", "./config", note="a config lies where you keep it; the package has a copy"),
    Option(
        "result_dir",
        "./results",
        commands=["roost analyze PACKAGE -s SCRIPT"],
        note="what a script returns and draws lies in `analysis/` of the package",
    ),
    Option(
        "train_split", "training", note="what `Dataset.build` gives as `train`; a key of your own may name it"
    ),
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

_DIFFERENCES = (
    "A snapshot held weights alone, so `--iter` began with empty moments of Adam, other random numbers and "
    "another order of the data. "
    "A checkpoint holds all of it, and a run that goes on gives the same bits on the CPU.",
    "Workers seeded NumPy with their process id, so no two runs were alike; and the generator in the "
    "config object was copied into "
    "each of them, so all drew the same colours. Here each sample or batch has a seed of its own.",
    "Every worker walked the whole set in its own order. With an index roost shares the samples out; a "
    "`Sampled` is told by "
    "`torch.utils.data.get_worker_info()` which share is its own, as in the template.",
    "A snapshot was written straight to its final name, the last one only where `max_iter` is a multiple "
    "of `snapshot`, none on "
    "Ctrl-C. Here a checkpoint is a folder that appears whole or not at all, and the end, SIGTERM and "
    "Ctrl-C save.",
    "All snapshots were kept for ever. `checkpoint.fast`, `slow` and `best` say how many are.",
    "A worker that died left the training waiting for ever. Here the run ends with its stack, and "
    "`data.loader_timeout` sees one that hangs.",
    "`val_iter = 0` ended a finished training with an error. A Dataset may have no validation set.",
    "The learning rate after `--iter` was computed anew from constants; one that had been changed was "
    "lost. A schedule's state is saved.",
    "An unknown key was passed over in silence, and no config was kept beside the snapshots. Here a "
    "misspelled setting is an error that "
    "names the right one, and the package keeps the code and every setting.",
    "A CUDA device was needed, and apex. Here a CPU will do, and AMP, clipping and accumulation are "
    "settings.",
)

PAGE = Page(
    "Coming from CornerNet-Lite's train.py",
    _TEXT,
    [Group("The command line", _COMMAND_LINE), Group("The section `system` of the config", _SYSTEM)],
    _DIFFERENCES,
)
"""The page of document 001."""
