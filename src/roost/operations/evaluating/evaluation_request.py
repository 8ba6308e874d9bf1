"""A request to evaluate a package: checked as far as is known before the project's code runs, and compared
with what an evaluation of the same name was asked."""

from __future__ import annotations

import json
import string
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple

import msgspec

from roost.analysis import preconditions
from roost.base import durable
from roost.base.errors import ConfigError, Refused, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.typed_path import typed_path
from roost.config import variants
from roost.config.run_settings import RunSettings
from roost.config.settings import Settings
from roost.config.values.overrides import apply_overrides
from roost.config.variants import Variant
from roost.operations.reading import package_schema
from roost.operations.sessions.rank_layout import RankRequest
from roost.package import package_name, project_preflight, session_folder, sessions
from roost.package.checkpoints import selection
from roost.package.checkpoints.weight_selectors import WeightSelector, parse_selectors
from roost.package.kinds import CELL_TEMPLATE, TASK_KINDS, TaskKind
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_folder
from roost.package.session_folder import SessionFolder
from roost.package.setting_locations import setting_locations

OnStepError = Literal["raise", "skip"]
_FIELDS = ("variant", "checkpoint", "dataset")
_ASKED = ("checkpoints", "variants", "datasets", "template", "on_step_error", "overrides")
"""The keys of request.json that make an evaluation another one."""
_MAX_DIFFERENCES = 10


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """A request to evaluate."""

    package: Path
    checkpoints: str | None = None
    """Selectors, separated by commas, see `roost.package.checkpoints.weight_selectors`; None: the best
    checkpoint, or the last where no metric determines it."""
    weights: Path | None = None
    """A file with weights, beside or instead of checkpoints."""
    monitor: str | None = None
    """The metric of ``best``; None: that of the first rule of ``checkpoint.best``."""
    mode: str | None = None
    """``min`` or ``max``; None: as in ``checkpoint.best``, else ``min``."""
    variants: Path | None = None
    """A file of variants, see `roost.config.variants`; None: the default, without arguments."""
    datasets: Sequence[str] | None = None
    """The names of sets; None: all test sets."""
    name: str | None = None
    """The name of the evaluation; None: that of an evaluation of which the same was asked, else the next
    number."""
    template: str = CELL_TEMPLATE
    """The folder of a cell below that of the evaluation."""
    on_step_error: OnStepError = "raise"
    """Whether the samples of a batch that fails are recorded and passed over."""
    overrides: Sequence[str] = ()
    """Settings of the evaluation alone, as ``a.b=c``."""
    device: str = "auto"
    """auto, cpu, cuda, mps or xpu."""
    ranks: RankRequest = field(default_factory=RankRequest)
    """How many processes, on which devices."""
    project: Path | None = None
    """The folder of the project now; None: its recorded folder."""
    command: Sequence[str] = ()


class CheckedRequest(NamedTuple):
    """A request that can be met, as far as is known before the project's code runs."""

    package: PackageFolder
    settings: RunSettings
    """Those of the package, with the overrides."""
    body: dict[str, Any]
    """The content of request.json, without the kind."""
    notes: Sequence[str]


def check_request(request: EvaluateRequest) -> CheckedRequest:
    """Checks a request.

    Raises:
        NotFound: There is no such package, checkpoint, project or file of variants.
        UsageError: A selector, the template or the name is not valid.
        ConfigError: The variants or an override are not valid.
        CheckpointError: There are checkpoints, but roost has written none of them.
        Refused: The package has no Runner, or is of DLNest's contract.
        DamagedPackage: A file of the package is not as roost writes it.
    """
    package = preconditions.open_with_runner(
        request.package, by=lambda path: package_schema.open_checked(path, to_continue=True)
    )
    _require_native(package)
    project = preconditions.project_folder(package, request.project)
    selectors = parse_selectors(
        package, request.checkpoints, weights=request.weights, monitor=request.monitor, mode=request.mode
    )
    notes: list[str] = []
    for one in selectors:
        if one.checkpoints is not None:
            notes += preconditions.check_checkpoints(
                package, one.checkpoints.id, fix="wait for its first one"
            )
            selection.candidates(package, one.checkpoints)
        elif not Path(str(one.file)).is_file():
            raise UsageError("there is no such file", setting="--weights", received=one.file)
    settings = _settings(package, project, request.overrides)
    body = _body(package, project, request, selectors)
    return CheckedRequest(package, settings, body, list(dict.fromkeys(notes)))


def _body(
    package: PackageFolder, project: Path, request: EvaluateRequest, selectors: Sequence[WeightSelector]
) -> dict[str, Any]:
    _check_template(request.template)
    return {
        "package": str(package.path),
        "checkpoints": [msgspec.to_builtins(one) for one in selectors],
        "variants": {one.name: one.arguments for one in read_variants(request.variants)},
        "datasets": None if request.datasets is None else list(request.datasets),
        "template": request.template,
        "on_step_error": request.on_step_error,
        "overrides": list(request.overrides),
        "project": str(project),
        "command": list(request.command),
    }


def _settings(package: PackageFolder, project: Path, overrides: Sequence[str]) -> RunSettings:
    if not overrides:
        return package_schema.checked_settings(package, project)
    values = apply_overrides(package.settings, overrides)
    return project_preflight.check_settings(
        values, project=project, package=str(package.path), where=setting_locations(package)
    )


def read_variants(file: Path | None) -> list[Variant]:
    """Returns the variants of a file; without one the default, which has no arguments.

    Raises:
        NotFound: There is no such file.
        ConfigError: It is no description of variants.
    """
    if file is None:
        return variants.expand_variants(None, Path())
    return variants.read_variants(typed_path(file))


def _check_template(template: str) -> None:
    try:
        fields = [field for field in string.Formatter().parse(template) if field[1] is not None]
        if any(spec or conversion for _, _, spec, conversion in fields):
            raise ValueError("a name in braces has nothing behind it")
        found = [str(name) for _, name, _, _ in fields]
    except ValueError as error:
        raise UsageError(
            str(error), setting="--template", received=template, fix=f"write {CELL_TEMPLATE}"
        ) from None
    for name in found:
        if name not in _FIELDS:
            raise UsageError(
                f"has {{{name}}}, and there are {', '.join(f'{{{one}}}' for one in _FIELDS)}",
                setting="--template",
                received=template,
                fix=f"{did_you_mean(name, _FIELDS)}write {CELL_TEMPLATE}",
            )


# ---- the folder -----------------------------------------------------------------------------------------


def find_folder(checked: CheckedRequest, name: str | None) -> SessionFolder | None:
    """Returns the session folder of an evaluation that was asked the same; None if there is none.

    Args:
        checked: The request.
        name: The name of the evaluation; None: see `EvaluateRequest.name`.

    Raises:
        Refused: The evaluation of this name was asked something else, and has decided its grid.
        UsageError: The name cannot be that of a folder.
    """
    root = checked.package.path / str(TASK_KINDS[TaskKind.EVALUATE].folder)
    if name is not None:
        folder = root / package_name.checked_name(name)
        return _existing(checked, folder) if folder.exists() else None
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        if durable.is_staging(folder.name):
            continue
        body = sessions.load_json(folder / evaluation_folder.REQUEST)
        if body is not None and not _differences(body, checked.body):
            return SessionFolder(folder, checked.package.path)
    return None


def make_folder(checked: CheckedRequest, name: str | None) -> SessionFolder:
    """Makes the session folder of a new evaluation. Raises as `session_folder.create`."""
    body = {**checked.body, "created": round(time.time(), 3)}
    return session_folder.create(checked.package.path, TaskKind.EVALUATE, body, name=name)


def follow_training(package: PackageFolder, request: EvaluateRequest) -> None:
    """Makes the session folder of an evaluation of a package that was just made. Its training evaluates when
    it has finished, with its own ranks.

    Raises:
        UsageError: A selector, the template or the name is not valid.
        ConfigError: The variants are not valid.
        Refused: The package is of DLNest's contract, or the folder cannot be made.
    """

    _require_native(package)
    selectors = parse_selectors(
        package, request.checkpoints, weights=request.weights, monitor=request.monitor, mode=request.mode
    )
    body = {
        **_body(package, package.project, request, selectors),
        evaluation_folder.FOLLOWS_TRAINING: True,
        "created": round(time.time(), 3),
    }
    name = request.name if request.name is None else package_name.checked_name(request.name)
    session_folder.create(package.path, TaskKind.EVALUATE, body, name=name)


def _require_native(package: PackageFolder) -> None:
    preconditions.require_native(
        package,
        cause="a runner of DLNest's contract has no test()",
        fix=f"write a script that evaluates: roost analyze {quote(str(package.path))} -s SCRIPT",
    )


def _existing(checked: CheckedRequest, folder: Path) -> SessionFolder | None:
    body = sessions.load_json(folder / evaluation_folder.REQUEST)
    if body is None:
        raise Refused(
            "is no evaluation",
            setting="--name",
            received=folder.name,
            where=folder,
            fix="give another --name, or remove what is there",
        )
    found = SessionFolder(folder, checked.package.path)
    different = _differences(body, checked.body)
    if different and _has_failed_before_its_grid(found):
        durable.discard(folder)
        return None
    if different:
        shown = different[:_MAX_DIFFERENCES]
        more = [f"… {len(different)} in all"] if len(different) > len(shown) else []
        raise Refused(
            f"the evaluation {folder.name} was asked something else: {'; '.join([*shown, *more])}",
            setting="--name",
            received=folder.name,
            where=folder,
            fix="give another --name, or ask the same to go on",
        )
    return found


def _has_failed_before_its_grid(folder: SessionFolder) -> bool:
    """Whether nothing was decided or computed, as with a set that does not exist: the corrected command may
    have the same name."""
    return not (folder.path / evaluation_folder.CELLS).exists() and folder.state == "failed"


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns how a request differs from that of an evaluation, a line for each difference."""
    found = []
    for key in _ASKED:
        old, new = before.get(key), now[key]
        if key == "checkpoints":
            old, new = [one["name"] for one in old or []], [one["name"] for one in new]
            if old == new and before.get(key) != now[key]:
                old, new = before.get(key), now[key]
        if json.dumps(old) == json.dumps(new):  # NaN, an argument of a variant, does not equal itself
            continue
        if key == "variants" and isinstance(old, dict) and old.keys() == new.keys():
            found += [
                f"the variant {name} {old[name]} → {new[name]}" for name in new if old[name] != new[name]
            ]
        elif old != new:
            found.append(f"{key} {_shown(old)} → {_shown(new)}")
    return found


def _shown(value: object) -> str:
    if value is None:
        return "all test sets"
    if isinstance(value, Mapping):
        return ", ".join(value)
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def require_settings(settings: RunSettings) -> Settings:
    """Returns the settings of a package of the native contract."""
    if not isinstance(settings, Settings):
        raise ConfigError("an evaluation needs a Runner of roost's contract")
    return settings
