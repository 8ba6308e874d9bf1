"""The operation ``convert``: a project from a config of another trainer, with its code and weights."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.base.text.suggestions import did_you_mean
from roost.config import interpolation, settings
from roost.config.layers import Config
from roost.config.other_tools import foreign_keys
from roost.config.run_settings import Contract
from roost.operations.converting.config_text import config_text
from roost.operations.converting.conversion import Conversion
from roost.operations.converting.conversion_report import report
from roost.operations.converting.cornernet_config import convert_cornernet
from roost.operations.converting.speechain_config import convert_speechain
from roost.operations.converting.weights_file import ConvertedWeights, convert_weights
from roost.operations.lifecycle.new_project import write_tree

CONFIG, REPORT, WEIGHTS = "config.yaml", "conversion.md", "weights.safetensors"


class _Trainer(NamedTuple):
    convert: Callable[[Path, Sequence[str]], Conversion]
    strip: str
    """A prefix of the names in its files of weights."""
    prefix: str
    """The prefix of the names in the Runner."""


TRAINERS = {
    "speechain": _Trainer(convert_speechain, "module.", "model."),
    "cornernet": _Trainer(convert_cornernet, "module.", "net."),
}
"""The trainers whose configs are converted."""


@dataclass(frozen=True, kw_only=True)
class ConvertRequest:
    """A request to convert a config."""

    trainer: str
    """One of `TRAINERS`."""
    config: Path
    words: Sequence[str] = ()
    """Options as on the command line of the trainer: ``name=value``."""
    output: Path | None = None
    """The folder of the project; None: one with the config's name, in the working folder."""
    weights: Path | None = None
    """A file of weights with which the project begins."""
    entry: str | None = None
    """The entry of that file that has the weights; None: it is found."""
    trust: bool = False
    """Whether pickled objects in that file are loaded, which may run any code."""


@dataclass(frozen=True, kw_only=True)
class ConvertedProject:
    """A project that was written."""

    path: Path
    files: list[str]
    """Relative to the project."""
    without_counterpart: list[tuple[str, str]]
    """Options and keys that have no counterpart, each with the reason."""
    remarks: list[str]
    """What to check."""
    weights: ConvertedWeights | None
    next_commands: list[str]
    """The next commands to type, in this order."""


def convert(request: ConvertRequest) -> ConvertedProject:
    """Converts a config of another trainer into a project: config, code, report, and weights if asked for.
    Nothing is written if the config cannot be converted.

    Raises:
        NotFound: There is no such trainer, config or file of weights.
        ConfigError: The config cannot be read, or a value is not one that roost accepts.
        UsageError: A word is no option of the trainer.
        Refused: A file would be overwritten; or the weights would run code, and are not trusted.
        CheckpointError: The weights are damaged.
        OSError: The folder cannot be written.
    """
    if request.trainer not in TRAINERS:
        raise NotFound(
            "configs of this trainer are not converted",
            received=request.trainer,
            fix=f"{did_you_mean(request.trainer, TRAINERS)}there are {', '.join(TRAINERS)}",
        )
    trainer = TRAINERS[request.trainer]
    conversion = trainer.convert(request.config, request.words)
    if request.weights is not None:
        conversion.put("init_from", WEIGHTS)
    values = {**conversion.settings, conversion.section: conversion.own}
    _check(values, conversion)
    folder = Path(request.config.stem) if request.output is None else request.output
    commands = _next_commands(request, folder, conversion)
    files = {CONFIG: _config_text(conversion, values), **conversion.files}
    _refuse_other_files(folder, {**files, REPORT: None}, request.weights is not None)
    found = _weights(request, folder, trainer)
    lines = [] if found is None else [_about(found, request)]
    files[REPORT] = report(conversion, commands, lines)
    _write(folder, files)
    return ConvertedProject(
        path=folder.absolute(),
        files=sorted([*files, *([WEIGHTS] if found is not None else [])]),
        without_counterpart=conversion.without_counterpart(),
        remarks=[*conversion.remarks, *lines],
        weights=found,
        next_commands=commands,
    )


def _check(values: Mapping[str, Any], conversion: Conversion) -> None:
    """Checks the values as `roost check` would, so that a mistake is shown with its place in the old
    config."""
    config = Config.of_values(Path(CONFIG).absolute(), dict(values), {}, Contract.NATIVE)
    foreign_keys.refuse(config)
    resolved = interpolation.resolve(values, {})
    settings.parse_settings(resolved, where=lambda key: _origin(conversion, key))


def _origin(conversion: Conversion, key: str) -> str | None:
    """Returns where the option that determines a key was given."""
    found = [
        one for one in conversion.options.values() if any(key.startswith(name) for name in one.keys if name)
    ]
    return next((one.location for one in found if one.location is not None), str(conversion.source))


def _config_text(conversion: Conversion, values: Mapping[str, Any]) -> str:
    head = (
        f"Converted from {conversion.source.name} by `roost convert {conversion.section}`.\n"
        f"{REPORT} lists what has no counterpart. Behind each setting is the option of {conversion.tool};\n"
        f"(default): the config did not give it. The section `{conversion.section}` is for the code alone."
    )
    return config_text(values, conversion.comments, head=head)


def _next_commands(request: ConvertRequest, folder: Path, conversion: Conversion) -> list[str]:
    commands = []
    core = next(
        (one / "core" for one in request.config.absolute().parents if (one / "core" / "models").is_dir()),
        None,
    )
    is_inside = core is not None and core.parent == folder.absolute()
    if request.trainer == "cornernet" and not is_inside:
        source = "CORNERNET/core" if core is None else shlex.quote(str(core))
        commands.append(f"cp -r {source} {shlex.quote(str(folder))}/")
    commands += [f"cd {shlex.quote(str(folder))}"] if str(folder) != "." else []
    commands += [f"roost check {CONFIG}", f"roost run {CONFIG}"]
    return [*commands, *([conversion.evaluation] if conversion.evaluation is not None else [])]


def _refuse_other_files(folder: Path, files: Mapping[str, str | None], has_weights: bool) -> None:
    """Checks that no file would be overwritten, except by the same text."""
    if folder.exists() and not folder.is_dir():
        raise Refused("is a file", setting="-o", received=str(folder), fix="name a folder")
    names = [*files, *([WEIGHTS] if has_weights else [])]
    taken = [
        name for name in names if (folder / name).exists() and not _is_same(folder / name, files.get(name))
    ]
    if taken:
        raise Refused(
            f"the folder has {', '.join(taken)} already",
            where=folder,
            fix="name another folder with -o; nothing is overwritten",
        )


def _is_same(path: Path, text: str | None) -> bool:
    return text is not None and path.is_file() and path.read_bytes() == text.encode()


def _weights(request: ConvertRequest, folder: Path, trainer: _Trainer) -> ConvertedWeights | None:
    if request.weights is None:
        return None
    is_new = not folder.exists()
    durable.make_folders(folder)
    try:
        return convert_weights(
            request.weights,
            folder.absolute() / WEIGHTS,
            strip=trainer.strip,
            prefix=trainer.prefix,
            entry=request.entry,
            trust=request.trust,
        )
    except BaseException:
        with suppress(OSError):
            if is_new:
                durable.remove_empty_folder(folder)
        raise


def _about(found: ConvertedWeights, request: ConvertRequest) -> str:
    left_out = f"; left out, as they are no tensors: {', '.join(found.left_out)}" if found.left_out else ""
    name = request.weights.name if request.weights is not None else ""
    return (
        f"{WEIGHTS} has the {found.tensors} tensors ({found.numbers:,} numbers) of {name}, "
        f"{found.description}{left_out}"
    )


def _write(folder: Path, files: Mapping[str, str]) -> None:
    tree: dict[Path, bytes | None] = {}
    for name, text in sorted(files.items()):
        path = Path(name)
        for parent in list(path.parents)[-2::-1]:
            tree.setdefault(parent, None)
        if not (folder / path).exists():
            tree[path] = text.encode()
    write_tree(folder, tree)
