"""DLNest's keys, methods, verbs and routes, and what they are in roost."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from roost.config.dlnest import child_files, dlnest_settings
from roost.config.dlnest.bundled_plugins import BUNDLED_PLUGINS
from roost.config.other_tools.option_tables.option_table import Group, Option
from roost.project.dlnest.classes.dataset_base import DatasetBase
from roost.project.dlnest.classes.life_cycle import LifeCycleBase
from roost.project.dlnest.classes.project_object import ProjectObject
from roost.project.dlnest.classes.torch_runner import RunnerBaseTorch
from roost.serve.routes.dlnest_routes import ROUTES
from tools.migration_pages.page import Page

_TEXT = """For users of DLNest 0.3: a project of its contract trains here as it is, with `root_config.json`,
Runner, Dataset, LifeCycle, plugins and analysis scripts. This page has its keys, methods, verbs and routes,
and what differs. Values, defaults and what a method does are those of roost's own code; the page is generated
by `python -m tools.migration_pages dlnest`. The settings of roost are in the section `roost` of a config:
[settings](settings.md#in-a-config-of-dlnests-contract).

```bash
roost check root_config.json                     # an epoch of two steps, with a validation and a save
roost run -c root_config.json                    # the package is in save_root, as before
roost run -c root_config.json -f freq_config.json epochs=10 roost.seed=1     # any key, for one run
roost continue Saves/NAME                        # also within an epoch, with the same bits
roost analyze Saves/NAME -s showModel            # AnalyzeScripts/showModel.py
```

The verbs are typed as before in `roost simple` (for a server), `roost local` (without one) and
`roost client` (full screen): see [shells](guide/shells.md). Each program of DLNest has its like:
`python -m roost.compat.dlnest.Run -c root_config.json`.

`roost new mine -t dlnest-mnist` makes a project of this contract, `roost new mine -t dlnest` one without
data. The imports (`from DLNest.Common.RunnerBaseTorch import RunnerBaseTorch`) are found in a run and in an
analysis without DLNest; a script of your own has them by `python -m roost.compat.dlnest script.py`.

A config is any file with these keys; every other key is yours, whatever it is called:

```json
{
    "save_root": "./Saves",
    "root_file_path": ".",
    "runner_file_path": "./Model/Runner.py", "runner_name": "Runner",
    "dataset_file_path": "./Dataset/Dataset.py", "dataset_name": "Dataset",
    "life_cycle_file_path": "./LifeCycle.py", "life_cycle_name": "LifeCycle",
    "other_file_paths": ["./Model/Net.py"],
    "checkpoint_args": {"max_ckpt_in_fast_track": 2},
    "child_jsons": [],
    "seed": "a key of yours",
    "roost": {"seed": 3}
}
```
"""

_KEY_NOTES = {
    "save_root": "relative to the project's folder",
    "root_file_path": "one that does not exist is the config's folder, which is said; so is another folder "
    "than the config's: a copied project still names the first one, whose code then runs; a package is moved "
    "freely",
    "other_file_paths": "the code in the project's folder is copied without being named; what is named is "
    "always copied, folders too; an absolute path keeps its name and is read in the package",
    "checkpoint_args.dilation_in_slow_track": "0 is refused",
    "checkpoint_args.max_ckpt_in_fast_track": "the checkpoint before the newest is kept as well",
    "plugins": f"bundled: {', '.join(BUNDLED_PLUGINS)}; another by its path. Two of one name are refused",
    "plugins_config": "the password of MailsNote is in no config",
}
_CHILDREN = Option(
    child_files.CHILDREN,
    "",
    note="JSON or YAML files merged over the file that names them, depth first, a later one over an "
    "earlier one, dictionaries key by key; the tuning file of `-f` last. A relative path starts at "
    "`root_file_path`, else at the file that names it. In a native config `include` names files *below* "
    "the including one",
)


def _keys() -> Iterator[Option]:
    for key in dlnest_settings.contract_keys():
        yield Option(key, "", [key], note=_KEY_NOTES.get(key, ""))
    yield _CHILDREN


_METHOD_NOTES = {
    "needContinueTrain": "False ends the run as succeeded; when it is continued, one more epoch is "
    "trained in any case",
    "needValidation": "rank 0 answers for all, as in all decisions",
    "holdThisCheckpoint": "asked only if needSaveModel said so",
    "validateABatch": "DLNest's README calls it validateAEpoch in one place, its example and code do not",
    "register": "not needed: an attribute suffices, in lists and dicts too",
}
_STATE = ("getSaveDict", "loadSaveDict")
_LIFE_CYCLE_NOTES = {
    "getSaveDict": "what torch.save takes; objects other than plain values and tensors are pickled",
    "loadSaveDict": "called before BAll and after it, so BAll may reset a best metric",
}


def _methods(
    kind: type, *, inherited: Sequence[str] = (), notes: Mapping[str, str] = _METHOD_NOTES
) -> Iterator[Option]:
    """Yields the public methods of one of the base classes with what its docstring says first."""
    bases = [base for base in reversed(kind.__mro__) if issubclass(base, ProjectObject)]
    names = dict.fromkeys(
        name
        for base in bases
        if base is not ProjectObject
        for name, value in vars(base).items()
        if inspect.isfunction(value) and _is_public(name)
    )
    for name in [*names, *inherited]:
        method = getattr(kind, name)
        said = inspect.getdoc(method) or ""
        first = re.sub(r"\s+", " ", said.partition("\n\n")[0]).rstrip(".")
        shown = ", ".join(list(inspect.signature(method).parameters)[1:])
        yield Option(f"{name}({shown})", "", note="; ".join(filter(None, (first, notes.get(name)))))


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name.startswith("_reduce")


_VALIDATE = Option(
    "validate(loader, log)",
    "",
    note="Validates as a whole, in place of the three methods, if the class defines it",
)

_VERBS = (
    Option("new -d DIR", "", commands=["roost new DIR -t dlnest"]),
    Option(
        "new -d DIR -MNIST",
        "",
        commands=["roost new DIR -t dlnest-mnist"],
        note="`-p` and `addP` are refused: a config names its plugins",
    ),
    Option(
        "run -c CFG [-f FILE] [-d WORDS]",
        "",
        commands=["roost run -c CONFIG -f FILE -d WORDS", "roost submit -c CONFIG -f FILE -d WORDS"],
        note="`run` begins at once and shows the output; `submit` queues it, with the same options",
    ),
    Option("run … -m MB", "", commands=["roost submit -c CONFIG -m 8000MB"], note="a unit may be named"),
    Option(
        "run … -ns, -sd",
        "",
        commands=["roost run -c CONFIG -ns", "roost run -c CONFIG -d WORDS -sd"],
        note="an existing package is never removed for its name: the second is NOSAVE-2",
    ),
    Option("run … -DDP, -mc", "", commands=["roost run -c CONFIG -DDP --devices 2"]),
    Option(
        "run … -CPU", "", commands=["roost run -c CONFIG -CPU"], note="with `-DDP --devices 2` two processes"
    ),
    Option(
        "continue -r PKG [-c ID]",
        "",
        commands=["roost continue PACKAGE -c ID"],
        note="without `-c` from the newest that is not damaged, of the branch that was continued last",
    ),
    Option(
        "analyze -r PKG [-c ID] [-s DIR]",
        "",
        commands=["roost submit analyze PACKAGE", "roost analyze PACKAGE -s SCRIPT"],
        note="the first queues an analyzer; the second runs one script and ends; `-c -2` is `--untrained`",
    ),
    Option(
        "runExp TASK SCRIPT",
        "",
        commands=["roost analyze TASK -s SCRIPT"],
        note="TASK is an analyzer, such as `A_3`; in a shell without TASK the one that is watched",
    ),
    Option("showTask", "", commands=["roost tasks"], note="also those that have ended: `roost tasks --all`"),
    Option("showDevices", "", commands=["roost devices"]),
    Option("showAN TASK, watch TASK", "", commands=["roost logs TASK", "roost attach TASK"]),
    Option("withdraw", "", note="not needed: Ctrl-C ends `roost attach`, not the task"),
    Option(
        "del TASK", "", commands=["roost stop TASK"], note="saves first; `roost kill TASK` ends it at once"
    ),
    Option("changeDevices -d ID…", "", commands=["roost devices --help"], note="by its options"),
    Option("showDL, clear", "", commands=["roost simple"], note="the server's journal, also `GET /journal`"),
    Option("exit", "", note="`roost local` ends its tasks after asking; nothing else ends with a terminal"),
    Option(
        "python -m DLNest.Server",
        "",
        commands=["roost server --port 9999 --detach"],
        note="asks each request for a token, or comes over the user's own socket",
    ),
    Option("python -m DLNest.Client, DLNest.Simple", "", commands=["roost client", "roost simple"]),
    Option("python -m DLNest.Local", "", commands=["roost local"]),
    Option(
        "python -m DLNest.Run -c CFG",
        "",
        commands=["roost run -c CONFIG"],
        note="`-devices 0 1 -DDP` is `--devices 0,1 -DDP`, and `-devices -1` is `-CPU`",
    ),
    Option(
        "python -m DLNest.Analyze -r PKG -s FILE",
        "",
        commands=["roost analyze PACKAGE -s SCRIPT"],
        note="in Python: `from DLNest.Analyze import analyze`",
    ),
)

_ROUTE_COMMANDS: Mapping[str, Sequence[str]] = {
    "/run_train": ["roost submit -c CONFIG"],
    "/continue_train": ["roost submit continue PACKAGE"],
    "/analyze": ["roost submit analyze PACKAGE"],
    "/run_exp": ["roost analyze TASK -s SCRIPT"],
    "/del_task": ["roost stop TASK"],
    "/new_proj": ["roost new DIR -t dlnest"],
    "/change_devices": ["roost devices --help"],
    "/change_max_task_per_device": ["roost devices --help"],
    "/change_delay": ["roost lab --help"],
    "/get_task_info": ["roost tasks"],
    "/get_devices_info": ["roost devices"],
    "/get_analyze_output": ["roost logs TASK"],
}


def _routes() -> Iterator[Option]:
    for route in ROUTES:
        names = [
            one.name if one.required else f"[{one.name}]" for one in msgspec.structs.fields(route.parameters)
        ]
        yield Option(
            f"{route.method} {route.path}",
            "",
            commands=_ROUTE_COMMANDS.get(route.path, ()),
            note=f"{route.summary.rstrip('.')}{': ' if names else ''}{', '.join(names)}",
        )


_DIFFERENCES = (
    "A checkpoint is a folder, `Checkpoints/state_N.ckpt/`, that appears complete or not at all, with "
    "checksums; `torch.load` does not read it. `roost export PACKAGE --weights FILE` writes the weights "
    "as one file.",
    "With `max_ckpt_in_fast_track: 1` two are on the disk: the checkpoint before the newest stays, for "
    "the case that the newest is damaged. A resume then begins from the one before.",
    "An archive of `roost.data.stage` is unpacked before the project is imported; its folder is in "
    "`ROOST_STAGED`.",
    "Saves between those of the project (`roost.checkpoint.every`, a stop) are in no track and count for "
    "none.",
    "A run that is killed is resumed within the epoch, not at its beginning, and with the same bits: the "
    "generators, the place in the loader and the attributes that training has changed are part of a "
    "checkpoint.",
    "After the project's save a resume goes on with ASaveModel, AOneEpoch and needContinueTrain. DLNest "
    "begins with the next epoch, so a scheduler that steps in AOneEpoch misses a step.",
    "Python, NumPy and torch are seeded by `roost.seed`, 0 if nothing is set; DLNest seeds nothing.",
    "A module remains the project's own, with several ranks too; there is no wrapper. Buffers and "
    "gradients are those of all ranks after each step, and `_reduceMean` gives every rank the value.",
    "A decision is rank 0's for all ranks, so early stopping by a metric ends all of them.",
    "Rows of the log: values appended to the lists of `initLog` are the metrics of `roost ls`, `roost "
    "plot` and `roost tensorboard`; see [monitoring](guide/monitoring.md#rows-of-a-project-of-dlnest).",
    "`_output.txt` has standard output and standard error of rank 0, other ranks `_output_N.txt`, as "
    "before; of very much output the beginning and the end are kept.",
    "Task ids are texts such as `01m7ybz8bp`, of which the beginning suffices; short names such as `T_1` and "
    "`A_2` count the tasks of the queue, whatever their kind. A task that has ended stays in the list of "
    "`roost tasks --all`, and a failed one has failed.",
    "A package of the same name is never removed: a second `NOSAVE`, and a second `roost run -sd` of that "
    "description, get a suffix; a task whose name is taken (`use_description` of `/run_train`) is refused.",
    "A package may be moved, copied and continued elsewhere. Absolute paths of code are read in the "
    "package, not where they were.",
    "Tasks outlive the server, the daemon and the terminal, and are found again.",
    "A path or plugin that does not exist, a class that its file does not have, a key of `roost` that is "
    "unknown: an error at once, with the line of the config. Nothing of it is queued. A key of yours that is "
    "nearly one of the contract, such as `plugin`, is said.",
    "To train longer: `roost fork Saves/NAME epochs=20`, in a package of its own; `roost continue` accepts a "
    "change of your keys with `--force` only, since only your code knows what they change. A run that had "
    "ended trains at least one epoch more when it is continued.",
    "A checkpoint with objects of your classes has a signature by a key in your config folder. One from "
    "elsewhere, and a package of DLNest's own, needs `--trust`: reading a pickle runs its code.",
    "A project of 0.2 is analysed, not trained.",
    "What a program saves through SavePackage is read by `getStateDict()` and analysed; `roost continue` and "
    "`roost fork` refuse it, as it does not say where a training would go on.",
    "`load_model` calls BAll to AModelInit, and never AAll: the model is used after it returns.",
    "`register(module, syncBN=True)` with ranks on CPUs is reported and ignored: torch shares batch "
    "statistics on accelerators only.",
    "The loop does not time the parts of a step: rows have no `perf/` columns, and `roost check` measures no "
    "speed.",
    "The server answers no request without the token; an error of a route has status 200, as before.",
)

PAGE = Page(
    "Coming from DLNest",
    _TEXT,
    [
        Group("Keys of a config", tuple(_keys()), nothing_here="the same"),
        Group(
            "LifeCycle",
            tuple(_methods(LifeCycleBase, inherited=_STATE, notes=_METHOD_NOTES | _LIFE_CYCLE_NOTES)),
            "",
        ),
        Group("Dataset", tuple(_methods(DatasetBase, inherited=_STATE)), ""),
        Group("Runner", (*_methods(RunnerBaseTorch), _VALIDATE), ""),
        Group("Verbs", _VERBS),
        Group("Routes", tuple(_routes())),
    ],
    _DIFFERENCES,
    schema=dlnest_settings,
    differences_heading="What differs",
)
"""The page of DLNest."""
