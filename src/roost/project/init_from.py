"""``init_from``: loads the initial weights of a run from packages and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import nn

from roost.base.errors import ConfigError, NotFound, RoostError, UsageError
from roost.config.sections.init_from import InitSettings
from roost.config.settings import Settings, Where
from roost.package.results.initial_weights import InitialWeights, entries, expand_path
from roost.train.weights import package_weights, weight_files
from roost.train.weights.weight_files import WeightSource
from roost.train.weights.weight_loader import WeightFit, format_mapping
from roost.train.weights.weight_names import format_names


def load(
    module: nn.Module, settings: Settings, *, package: Path, project: Path, where: Where
) -> list[InitialWeights]:
    """Loads every entry of ``init_from`` into a module, in order: a later entry overwrites an earlier one.

    Every tensor of the module must be in one of the entries, unless an entry has ``strict: false``; and every
    tensor of an entry must fit, unless that entry has ``strict: false``.

    Args:
        module: Receives the weights.
        settings: The settings, with ``init_from``.
        package: The folder in which a relative path is looked up first: the copied files are there.
        project: The folder in which it is looked up next.
        where: Gives the location of a dotted key, for messages.

    Raises:
        NotFound: There is no such file, package, checkpoint or average.
        ConfigError: The weights do not fit; the message lists everything that does not.
        Refused: A file cannot be read without running code in it.
        CheckpointError: A file is truncated or damaged.
        OSError: A file cannot be read.
    """
    asked = list(entries(settings))
    given: set[str] = set()
    began = []
    for key, one in asked:
        try:
            source = _read(_resolve_path(expand_path(one.path, key, where), package, project), one)
        except RoostError as error:
            raise _with_setting(error, key, one, where) from error
        except OSError as error:
            raise NotFound(
                f"cannot be read: {error.strerror or error}", setting=key, received=one.path, where=where(key)
            ) from error
        fit = WeightFit(module, source.weights, one.mapping)
        given.update(fit.report.loaded)
        _require(fit, one, key, where, counts_missing=len(asked) == 1)
        try:
            fit.load()
        except RoostError as error:
            raise _with_setting(error, key, one, where) from error
        began.append(_initial_weights(one, source, fit, _nonfinite_warning(module, fit.report.loaded)))
    if len(asked) > 1 and all(one.strict for _, one in asked):
        _require_all(module, given, where)
    return began


def _resolve_path(given: Path, package: Path, project: Path) -> Path:
    places = [package / given, project / given]
    return next((place for place in places if place.exists()), places[-1])


def _read(path: Path, one: InitSettings) -> WeightSource:
    if path.is_dir():
        if one.entry is not None:
            raise UsageError("`entry` is for files of torch.save", fix="leave it out")
        return package_weights.read(path, checkpoint=one.checkpoint, average=one.average)
    if one.average is not None or one.checkpoint != "last":
        key = "average" if one.average is not None else "checkpoint"
        if path.exists():
            raise UsageError(f"`{key}` is for packages, and this is a file", fix="leave it out")
    return weight_files.read(path, entry=one.entry)


def _with_setting(error: RoostError, key: str, one: InitSettings, where: Where) -> RoostError:
    """Returns the same error with the setting of the entry that caused it."""
    kind = ConfigError if isinstance(error, UsageError) else type(error)
    place = f" ({error.where})" if error.where not in (None, where(key)) else ""
    return kind(f"{error.message}{place}", setting=key, received=one.path, where=where(key), fix=error.fix)


def _require(fit: WeightFit, one: InitSettings, key: str, where: Where, *, counts_missing: bool) -> None:
    report = fit.report
    wrong = report.problems(missing=counts_missing or not report.loaded)
    if report.loaded and not (one.strict and wrong):
        return
    first = (
        f"{'only ' * (len(report.loaded) < report.num_tensors)}{report.summary} fit"
        if report.loaded
        else f"none of its weights fits the Runner's {report.num_tensors}"
    )
    raise ConfigError(
        "; ".join([first, *wrong]), setting=key, received=one.path, where=where(key), fix=_fix(fit)
    )


def _fix(fit: WeightFit) -> str:
    found = []
    if fit.proposals:
        there, here, number = fit.proposals[0]
        also = (
            f" (or {format_mapping(*fit.proposals[1][:2])})"
            if fit.proposals[1:] and fit.proposals[1][2] == number
            else ""
        )
        found.append(f"mapping: {format_mapping(there, here)} would fit {number}{also}")
    report = fit.report
    if report.unexpected and report.loaded and not fit.proposals:
        beginning = report.unexpected[0].partition(" ")[0]
        found.append(f'mapping: {{"{beginning}": null}} leaves a name out')
    if report.mismatched:
        found.append("build the model with the sizes of the file, or leave these out by `mapping`")
    if report.loaded:
        found.append("strict: false takes what fits")
    return "; ".join(found) or "give the weights of this model, or say by `mapping` what the names are here"


def _require_all(module: nn.Module, given: set[str], where: Where) -> None:
    report = WeightFit(
        module, {name: value for name, value in module.state_dict().items() if name in given}
    ).report
    if report.missing:
        raise ConfigError(
            f"{len(report.missing)} of {report.num_tensors} tensors are in none: "
            f"{format_names(report.missing)}",
            setting="init_from",
            where=where("init_from"),
            fix="name one more that has them, or strict: false in one of the entries",
        )


def _nonfinite_warning(module: nn.Module, loaded: Sequence[str]) -> list[str]:
    """Returns a warning about loaded tensors with NaN or infinity: the first step would blame the learning
    rate."""
    state = module.state_dict()
    numbers = [name for name in loaded if state[name].is_floating_point() and state[name].itemsize > 1]
    found = [name for name in numbers if not state[name].isfinite().all()]
    return [f"warning: {len(found)} hold NaN or infinity: {format_names(found)}"] if found else []


def _initial_weights(
    one: InitSettings, source: WeightSource, fit: WeightFit, more: Sequence[str]
) -> InitialWeights:
    report = fit.report
    return InitialWeights(
        path=one.path,
        found=str(source.path),
        about=source.description,
        sha256=source.sha256,
        size=source.size,
        loaded=f"{report.summary} loaded",
        report=[*source.notes, *report.lines(), *more],
    )


def report_lines(began: Sequence[InitialWeights]) -> Iterator[str]:
    """Yields the lines that report the initial weights to the user."""
    for one in began:
        yield f"init_from: {one.path} ({one.about}): {one.loaded}"
        yield from (f"  {line}" for line in one.report)
