"""The settings of SpeeChain's experiment configs: each option with its value, or with its default there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.config.other_tools.option_tables.option_table import by_name
from roost.config.other_tools.option_tables.speechain_options import RUNNER_GROUPS
from roost.operations.converting import speechain_data, speechain_values
from roost.operations.converting.config_text import config_text
from roost.operations.converting.conversion import Conversion
from roost.operations.converting.project_files import project_file
from roost.operations.converting.speechain_optimizers import SCHEDULES, add_optimizers
from roost.operations.converting.speechain_values import SpeechainFile

SECTION = "speechain"
_VARIABLES = f"{SECTION}.variables"
_OPTIONS = by_name(RUNNER_GROUPS)
_MAPPINGS = ("data_cfg", "train_cfg", "infer_cfg", "monitor_snapshot_conf")
_COMMAND_LINE = "command line"
_CLASS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_REFERENCE = re.compile(rf"(?<!\$)\$\{{{re.escape(_VARIABLES)}\.([\w-]+)")
"""A reference to a variable in the text of a config."""
_AVERAGE = re.compile(r"(\d+)_(last|\w+)_average")
_FILE = re.compile(r"[^\[\](){}\n]+\.ya?ml")
_ALL_MODULES = ("_all", "all", "*")


class _Source:
    """The experiment config with the files that it names and the words of the command line."""

    def __init__(self, path: Path, words: Sequence[str]) -> None:
        self.path = path
        self.main = speechain_values.read_file(path)
        self.typed = dict(_typed(word) for word in words)
        self.values = {**self.main.values, **self.typed}
        self._parts: dict[str, tuple[Any, Any]] = {}

    def where(self, name: str) -> object:
        """Returns where an option was given."""
        return _COMMAND_LINE if name in self.typed else self.main.file.where((name,))

    def variables(self, own: Any) -> dict[str, Any]:
        """Returns the keys of the file that are no options and to which ``own`` refers, directly or by other
        keys, with references among them."""
        found: dict[str, Any] = {}
        left = [own]
        while left:
            for name in set(_REFERENCE.findall(json.dumps(left.pop()))) - found.keys():
                found[name] = self._rewritten(self.main.written[name])
                left.append(found[name])
        return {name: found[name] for name in self.main.written if name in found}

    def part(self, name: str) -> tuple[Any, Any]:
        """Returns ``data_cfg`` or another part, which may be a file of its own: the values with resolved
        references, and as they are written into the config."""
        if name not in self._parts:
            self._parts[name] = self._read_part(name)
        return self._parts[name]

    def _read_part(self, name: str) -> tuple[Any, Any]:
        given = self.values.get(name)
        if isinstance(given, str) and _FILE.fullmatch(given):
            file = self.file(given, name)
            return file.values, speechain_values.escape(file.values)
        if isinstance(given, str):
            given = speechain_values.parse_value(given, is_mapping=True)
        if name in self.typed or isinstance(self.main.written.get(name), str):
            return given, speechain_values.escape(given)
        return given, self._rewritten(self.main.written.get(name))

    def file(self, given: str, name: str) -> SpeechainFile:
        """Returns a file that an option names."""
        found = speechain_values.find_file(given, self.path.absolute(), name, self.where(name))
        return speechain_values.read_file(found)

    def _rewritten(self, written: Any) -> Any:
        return speechain_values.rewrite(written, self._rename, self.main.values)

    def _rename(self, name: str) -> str | None:
        is_variable = name in self.main.written and name not in _OPTIONS
        return f"{_VARIABLES}.{name}" if is_variable else None


def _typed(word: str) -> tuple[str, Any]:
    name, equals, text = word.removeprefix("--").partition("=")
    if not equals or name not in _OPTIONS:
        raise UsageError(
            "expected an option of SpeeChain's runner with its value" if not equals else "there is no option",
            received=word,
            fix=f"{did_you_mean(name, _OPTIONS)}write for example num_epochs=50",
        )
    return name, speechain_values.parse_value(text, is_mapping=name in _MAPPINGS)


def convert_speechain(path: Path, words: Sequence[str]) -> Conversion:
    """Converts an experiment config (exp_cfg) of SpeeChain.

    Args:
        path: The YAML file.
        words: Options as for its runner, ``name=value``; they win over the file.

    Raises:
        NotFound: The file, or one that it names, does not exist.
        ConfigError: A file or value cannot be read.
        UsageError: A word is no option.
    """
    source = _Source(path, words)
    conversion = Conversion("SpeeChain", path, SECTION)
    given = {name: value for name, value in source.values.items() if name in _OPTIONS}
    conversion.add_options(_OPTIONS, given, source.where)
    if source.values.get("train_cfg") is None or source.values.get("data_cfg") is None:
        missing = "train_cfg" if source.values.get("train_cfg") is None else "data_cfg"
        raise ConfigError(
            f"the config has no {missing}",
            where=path,
            fix=f"name an experiment config (exp_cfg), or add the file: {missing}=FILE.yaml",
        )
    conversion.put("description", f"converted from {path.name}")
    conversion.put("runner", "Runner.py:Runner", "train_cfg")
    conversion.put("dataset", "Dataset.py:Dataset", "data_cfg")
    for add in (_add_backend, _add_devices, _add_training, _add_monitoring, _add_results):
        add(conversion)
    training, written = source.part("train_cfg")
    if not isinstance(training, Mapping):
        raise conversion.error("train_cfg", "expected a section, or a file of one")
    add_optimizers(conversion, training.get("optim_sches"), source.where("train_cfg"))
    for key in conversion.settings["optimizers"]:
        conversion.options["train_cfg"].keys.append(f"optimizers.{key}")
    _add_model(conversion, training, written, source.where("train_cfg"))
    _add_sets(conversion, source)
    _add_evaluation(conversion, source)
    conversion.own["variables"] = source.variables(conversion.own)
    for name in source.main.written:
        if name not in _OPTIONS and not _is_used(name, source.main.written):
            conversion.lose(name, "no option of the runner, and no `!ref` names it: left out")
    conversion.files["packages.py"] = _wrapper(conversion)
    for name in ("Runner.py", "Dataset.py", "samples.py", SCHEDULES):
        conversion.files[name] = project_file("speechain", name)
    _add_remarks(conversion)
    return conversion


def _is_used(name: str, written: Any) -> bool:
    if isinstance(written, Mapping):
        return any(_is_used(name, one) for one in written.values())
    if isinstance(written, list):
        return any(_is_used(name, one) for one in written)
    return isinstance(written, str) and re.search(rf"\$\{{{re.escape(name)}[.}}]", written) is not None


# --- the options of the runner ----------------------------------------------------------------------------


def _add_backend(conversion: Conversion) -> None:
    conversion.put("seed", conversion.whole("seed", least=0), "seed")
    mode = "same" if conversion.flag("same_proc_seed") else "per_rank"
    conversion.put("seed_mode", mode, "same_proc_seed")
    is_seeded = conversion.flag("cudnn_deterministic") and not conversion.flag("cudnn_benchmark")
    conversion.put("determinism", "seeded" if is_seeded else "off", "cudnn_deterministic", "cudnn_benchmark")
    if not conversion.flag("cudnn_enabled"):
        conversion.lose("cudnn_enabled", "set torch.backends.cudnn.enabled in Runner.build")
    uses_amp = conversion.flag("use_amp")
    conversion.put("precision", "fp16" if uses_amp else 32, "use_amp")
    conversion.put("evaluation_precision", 32, "use_amp")  # there validation is in fp32


def _add_devices(conversion: Conversion) -> None:
    count, gpus = conversion.whole("ngpu", least=0), conversion.value("gpus")
    if isinstance(gpus, str):
        gpus = speechain_values.parse_value(f"[{gpus}]")
    ids = [gpus] if isinstance(gpus, int) and not isinstance(gpus, bool) else gpus
    if ids is not None and not (isinstance(ids, list) and all(type(one) is int for one in ids)):
        raise conversion.error("gpus", "expected numbers of GPUs", "write 0,1")
    chosen = None if ids is None else ids[: max(count, 1)]
    conversion.put("devices", max(count, 1) if chosen is None else chosen, "ngpu", "gpus")
    conversion.put("strategy", "ddp" if count > 1 else None, "ngpu")
    conversion.put("sync_batch_norm", conversion.flag("enable_syncbatchnorm"), "enable_syncbatchnorm")
    is_skipped = conversion.flag("ignore_train_exception")
    conversion.put("on_step_error", "skip" if is_skipped else "raise", "ignore_train_exception")
    if conversion.flag("ignore_test_exception"):
        conversion.lose("ignore_test_exception", "an option of the evaluation, not of the training's config")
    if str(conversion.value("dist_url")).startswith("env"):
        conversion.lose("dist_url", "several machines: --num-nodes and --rendezvous of `roost run`")


def _add_training(conversion: Conversion) -> None:
    put, whole = conversion.put, conversion.whole
    put("max_epochs", whole("num_epochs", least=1), "num_epochs")
    put("gradient_accumulation_steps", whole("accum_grad", least=1), "accum_grad")
    put("validate_every", f"{whole('valid_per_epochs', least=1)}ep", "valid_per_epochs")
    reports = whole("report_per_steps")
    put(
        "log_every",
        reports if reports > 0 else f"{-reports or 10}/ep",
        "report_per_steps",
    )
    if conversion.options["report_per_steps"].location not in (None, _COMMAND_LINE):
        conversion.remarks.append(
            "`report_per_steps` was read from the command line alone there, and ignored in a config; here it "
            "is `log_every`"
        )
    mode = "dry" if conversion.flag("dry_run") else "no_optim" if conversion.flag("no_optim") else "eager"
    put("step_mode", mode, "dry_run", "no_optim")
    conversion.put("test_at_end", "none", "test")  # there a test is a job of its own
    for name, default in (("resume", False), ("start_epoch", 1)):
        if conversion.value(name) != default:
            conversion.lose(name, "`roost continue PACKAGE` continues a run")


def _add_monitoring(conversion: Conversion) -> None:
    rules = _rules(conversion)
    conversion.put("checkpoint.fast", conversion.whole("last_model_number", least=1), "last_model_number")
    conversion.put("checkpoint.every", "1ep")
    best = [
        {"monitor": f"{group}/{metric}", "mode": mode, "top_k": number}
        for group, metric, mode, number in rules
    ]
    conversion.put("checkpoint.best", best, "best_model_selection")
    if conversion.value("early_stopping_patience") is not None:
        _add_early_stopping(conversion, best)
    number = conversion.whole("visual_snapshot_number", least=0)
    if number:
        interval = conversion.whole("visual_snapshot_interval", least=1)
        conversion.put("visualize_every", f"{interval}ep", "visual_snapshot_interval")
        conversion.put("visualize_samples", number, "visual_snapshot_number")
        conversion.lose(
            "visual_snapshot_number", "`visualize` of the model is not called: write Runner.visualize"
        )
    if conversion.value("monitor_snapshot_conf"):
        conversion.lose("monitor_snapshot_conf", "`roost plot PACKAGE` draws curves on request")


def _add_early_stopping(conversion: Conversion, best: Sequence[Mapping[str, Any]]) -> None:
    if not best:
        raise conversion.error(
            "early_stopping_patience",
            "needs best_model_selection, whose first metric decides",
            "add for example best_model_selection: [[valid, loss, min, 1]]",
        )
    epochs = conversion.whole("early_stopping_patience", least=0) + 1  # there it stops one epoch later
    every = conversion.whole("valid_per_epochs", least=1)
    threshold = conversion.number("early_stopping_threshold")
    put, names = conversion.put, ("early_stopping_threshold",)
    put("early_stopping.monitor", best[0]["monitor"], "best_model_selection")
    put("early_stopping.mode", best[0]["mode"], "best_model_selection")
    put("early_stopping.patience", max(-(-epochs // every), 1), "early_stopping_patience")
    put("early_stopping.min_delta", abs(threshold), *names)
    put("early_stopping.min_delta_mode", "absolute" if threshold < 0 else "relative", *names)


def _rules(conversion: Conversion) -> list[tuple[str, str, str, int]]:
    """Returns ``best_model_selection`` as (group, metric, mode, number of models)."""
    rows = _rows(conversion, "best_model_selection")
    found = []
    for row in rows:
        is_row = len(row) == 4 and row[0] in ("train", "valid") and row[2] in ("min", "max")
        if not is_row or type(row[3]) is not int or row[3] < 1:
            raise conversion.error(
                "best_model_selection",
                "expected (group, metric, mode, number) entries",
                "write [[valid, accuracy, max, 10]]: the group is train or valid, the mode min or max",
            )
        found.append((row[0], str(row[1]), row[2], row[3]))
    return found


def _rows(conversion: Conversion, name: str) -> list[list[Any]]:
    """Returns an option that is a list of lists; one list alone is its only row."""
    value = conversion.value(name)
    if isinstance(value, str):
        value = speechain_values.parse_value(value)
    rows = [] if value is None else value
    if isinstance(rows, list) and rows and not isinstance(rows[0], list | str):
        raise conversion.error(name, "expected a list of lists")
    if isinstance(rows, list) and rows and isinstance(rows[0], str):
        parsed = [speechain_values.parse_value(one) if isinstance(one, str) else one for one in rows]
        rows = parsed if all(isinstance(one, list) for one in parsed) else [rows]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise conversion.error(name, "expected a list of lists")
    return rows


def _add_results(conversion: Conversion) -> None:
    folder = conversion.value("train_result_path")
    conversion.put("save_root", "exp" if folder is None else str(folder), "train_result_path")
    cases = []
    for row in _rows(conversion, "bad_cases_selection"):
        if len(row) != 3 or row[1] not in ("min", "max") or type(row[2]) is not int:
            raise conversion.error(
                "bad_cases_selection", "expected (metric, mode, number) entries", "write [[wer, max, 50]]"
            )
        cases.append(row)
    conversion.own["worst_cases"] = cases
    if cases:
        conversion.options["bad_cases_selection"].keys.append(f"{SECTION}.worst_cases")


# --- model, sets and evaluation ---------------------------------------------------------------------------


def _add_model(conversion: Conversion, training: Mapping[str, Any], written: Any, where: object) -> None:
    model = training.get("model")
    if not isinstance(model, Mapping) or "model_type" not in model or "module_conf" not in model:
        raise ConfigError(
            "expected `model_type` and `module_conf`",
            setting="train_cfg.model",
            received=model,
            where=where,
        )
    kept, conf = written["model"], model.get("model_conf") or {}
    kept_conf = {
        name: value
        for name, value in (kept.get("model_conf") or {}).items()
        if name not in ("pretrained_model", "frozen_modules")
    }
    conversion.own["model"] = {
        "model_type": model["model_type"],
        "model_conf": kept_conf,
        "module_conf": kept["module_conf"],
        "criterion_conf": kept.get("criterion_conf"),
    }
    frozen = conf.get("frozen_modules")
    if frozen is not None:
        names = [frozen] if isinstance(frozen, str) else list(frozen)
        globs = ["*" if name in _ALL_MODULES else f"model.{name}.*" for name in names]
        conversion.put("freeze", globs)
        conversion.comments["freeze"] = "frozen_modules"
    if (pretrained := conf.get("pretrained_model")) is not None:
        several = pretrained if isinstance(pretrained, list) else [pretrained]
        conversion.put("init_from", [_initial_weights(conversion, one, where) for one in several])
        conversion.comments["init_from"] = "pretrained_model"


def _initial_weights(conversion: Conversion, given: Any, where: object) -> dict[str, Any]:
    spec: Any = {"path": given} if isinstance(given, str) else given
    if not isinstance(spec, Mapping) or not isinstance(spec.get("path"), str):
        raise ConfigError(
            "expected a path, or {path, mapping, strict}",
            setting="train_cfg.model.model_conf.pretrained_model",
            received=given,
            where=where,
        )
    mapping = {str(there): f"model.{here}" for there, here in (spec.get("mapping") or {}).items()}
    path, remark = speechain_values.weights_path(spec["path"], conversion.source.absolute())
    conversion.remarks += [remark] if remark is not None else []
    return {
        "path": path,
        "mapping": {"": "model.", **mapping},
        "strict": bool(spec.get("strict", True)),
    }


def _add_sets(conversion: Conversion, source: _Source) -> None:
    data, written = source.part("data_cfg")
    where = source.where("data_cfg")
    if not isinstance(data, Mapping) or "train" not in data or "valid" not in data:
        raise ConfigError(
            "expected `train` and `valid`",
            setting="data_cfg",
            received=list(data) if isinstance(data, Mapping) else data,
            where=where,
        )
    speechain_data.add_data(conversion, data, where)
    conversion.options["data_cfg"].keys.append("data")
    splits = [split for split in speechain_data.SPLITS if data.get(split) is not None]
    conversion.own["data"] = {split: speechain_data.sets(written[split], split, where) for split in splits}
    several = [name for name in speechain_data.iterators(data["valid"], "valid", where) if name]
    rules = conversion.settings["checkpoint"]["best"]
    if several and any(rule["monitor"].startswith("valid/") for rule in rules):
        for rule in rules:
            rule["monitor"] = rule["monitor"].replace("valid/", f"valid/{several[0]}/", 1)
        if "early_stopping" in conversion.settings:
            conversion.settings["early_stopping"]["monitor"] = rules[0]["monitor"]
        conversion.remarks.append(
            f"there are {len(several)} validation sets, and here each has its own metrics: the best models "
            f"are chosen by those of {several[0]}"
        )


def _add_evaluation(conversion: Conversion, source: _Source) -> None:
    given = source.values.get("infer_cfg")
    command = ["roost evaluate PACKAGE"]
    names = conversion.value("test_model")
    if isinstance(names, str) and names[:1] in ("[", "("):
        names = speechain_values.parse_value(names)
    selectors = [
        _selector(conversion, str(name)) for name in ([names] if isinstance(names, str) else names or [])
    ]
    if found := [one for one in selectors if one is not None]:
        command.append(f"--checkpoints '{','.join(found)}'")
    if given is not None:
        command.append(f"--variants {_add_variants(conversion, source, given)}")
    conversion.evaluation = " ".join(command) if len(command) > 1 else None


def _selector(conversion: Conversion, name: str) -> str | None:
    if (average := _AVERAGE.fullmatch(name)) is not None:
        return f"average({'last' if average[2] == 'last' else 'best'}:{average[1]})"
    if name == "latest":
        return "last"
    if name.endswith("_best"):
        return "best"
    conversion.lose("test_model", f"{name}: choose a checkpoint of `roost show PACKAGE` by its id")
    return None


def _add_variants(conversion: Conversion, source: _Source, given: Any) -> str:
    """Adds the file with the inference configurations; returns its name."""
    if isinstance(given, str) and _FILE.fullmatch(given):
        return _add_variant_file(conversion, source, given)
    if isinstance(given, str):
        given = speechain_values.parse_value(given, is_mapping=True)
    if isinstance(given, list):
        listed = [
            _add_variant_file(conversion, source, one) if isinstance(one, str) else one for one in given
        ]
        given = {"list": listed}
    if not isinstance(given, Mapping):
        raise conversion.error("infer_cfg", "expected a section, a file, or a list of them")
    if not given.keys() & {"list", "shared_args", "exclu_args"}:
        given = {"list": [given]}  # called by its arguments; alone in a file it would be called by the file
    head = f"The inference configurations of {source.path.name}: infer_cfg there."
    conversion.files["variants.yaml"] = config_text(given, {}, head=head)
    return "variants.yaml"


def _add_variant_file(conversion: Conversion, source: _Source, given: str) -> str:
    name = f"variants/{Path(given).stem}.yaml"
    values = source.file(given, "infer_cfg").values
    text = config_text(values, {}, head=f"An inference configuration: {given} there.")
    if conversion.files.setdefault(name, text) != text:
        raise conversion.error(
            "infer_cfg", f"two files are called {Path(given).name}, and a variant is named by its file"
        )
    return name


# --- the code -----------------------------------------------------------------------------------------------


def _wrapper(conversion: Conversion) -> str:
    """Returns the module that imports the classes of SpeeChain: a config may name classes of the project's
    files, and not those of any installed package."""
    model = conversion.own["model"]["model_type"]
    sets = [
        one
        for split in conversion.own["data"].values()
        for one in ([split] if isinstance(split.get("dataset"), str) else split.values())
    ]
    kinds = dict.fromkeys([("model", model), *(("dataset", one["dataset"]) for one in sets)])
    paths = []
    for folder, path in kinds:
        if not isinstance(path, str) or _CLASS.fullmatch(path) is None or not path.isascii():
            raise ConfigError(
                "expected FILE.CLASS", setting=f"{folder}_type", received=path, where=conversion.source
            )
        paths.append((f"{folder}.{path}", f"speechain.{folder}.{path}"))
    modules = sorted({module.rpartition(".")[0] for _, module in paths})
    return "\n".join(
        [
            '"""The classes of SpeeChain that the config names."""',
            "",
            *(f"import {module}" for module in modules),
            "",
            "CLASSES = {",
            *(f'    "{name}": {path},' for name, path in paths),
            "}",
            '"""The classes by their folder and the name that SpeeChain has for them."""',
            "",
        ]
    )


def _add_remarks(conversion: Conversion) -> None:
    conversion.remarks += [
        "SpeeChain must be installed where roost runs: packages.py imports its classes",
        "a SpeeChain model moves its batch to the GPU itself, so it needs one; Runner.py gives it the device",
        "a batch is the batch of all GPUs here as there; roost's order of the samples is another one",
    ]
