"""The parents of a forked package, which continues from a checkpoint of another one. Only reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from roost.base.errors import ConfigError
from roost.config.values import nested_values
from roost.config.values.nested_values import ABSENT, ConfigDifference
from roost.package import records
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.results import skipped_steps
from roost.package.results.skipped_steps import SkippedStep
from roost.package.resume import resume_gate

INHERITED_SESSION = 0
"""The session number of everything that a fork inherited."""


_EPOCH_LENGTH_KEYS = ("data.", "gradient_accumulation_steps", "dataset")
"""Prefixes of the settings that may change the number of steps of an epoch."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that differs between a fork and its parent; a side without the setting is left out."""

    key: str
    old: Any = UNSET
    new: Any = UNSET

    def __str__(self) -> str:
        old, new = (ABSENT if value is UNSET else value for value in (self.old, self.new))
        return resume_gate.format_difference(ConfigDifference(self.key, old, new))


class ForkParent(msgspec.Struct, frozen=True, kw_only=True):
    """A package, and its checkpoint, from which a fork continues."""

    package: str
    """The name of the parent."""
    path: str
    """The path of the parent when it was forked."""
    checkpoint: int
    step: int
    sha256: str
    """The digest of the checkpoint's manifest, which contains the digests of its files."""
    changed: list[SettingChange] = []
    """The settings that the fork was requested to change."""


def parent_of(package: PackageFolder) -> ForkParent | None:
    """Returns the parent of a package; None if it is not a fork."""
    return next(iter(ancestry(package)), None)


def ancestry(package: PackageFolder) -> list[ForkParent]:
    """Returns the parent of a package, the parent's parent, and so on, the nearest first.

    A package stores the names of all of them, so they need not exist any more. Empty if the package is not a
    fork, or its request cannot be read.
    """
    return ancestry_of_request(package.request)


def ancestry_of_request(request: Mapping[str, Any]) -> list[ForkParent]:
    """Returns the same as `ancestry`, from a package's request."""
    found = [request.get("parent"), *(request.get("ancestors") or [])]
    try:
        return msgspec.convert([one for one in found if one is not None], list[ForkParent])
    except msgspec.ValidationError:
        return []


def changed_settings(package: PackageFolder) -> list[str]:
    """Returns the dotted settings that differ between a fork and its parent, and the schedules that depend on
    the changed end of the run."""
    parent = parent_of(package)
    keys = [one.key for one in parent.changed] if parent is not None else []
    changes_end = any(
        key in resume_gate.LENGTH_SETTINGS or key.startswith(_EPOCH_LENGTH_KEYS) for key in keys
    )
    return [*keys, *(resume_gate.settings_using_total_steps(package.settings) if changes_end else [])]


def optimizers_may_differ(package: PackageFolder) -> bool:
    """Whether a checkpoint may have been saved with other optimizers than the present ones. If not, the state
    of a project's own schedulers need not be copied."""
    overrides = [text for one in package.sessions() for text in one.request.overrides]
    return bool(changed_settings(package)) or any("optimizers" in text for text in overrides)


def settings_changed_since(package: PackageFolder, manifest: Manifest) -> list[str]:
    """Returns the dotted settings of optimizers that have changed since a checkpoint was saved, by a fork or
    by ``continue --force``; for an inherited checkpoint also the other settings that the fork changed.

    A session that only changes the run's end leaves the schedules as they were created, and reports that (see
    `roost.package.resume.resume_gate`).
    """
    then, now = package.settings_until(manifest.session), package.settings
    found = [one.key for one in nested_values.differences(then, now) if one.key.startswith("optimizers.")]
    return [*(changed_settings(package) if manifest.session == INHERITED_SESSION else []), *found]


def setting_changes(differences: Iterable[ConfigDifference]) -> list[SettingChange]:
    """Returns differences of settings in the form that a package stores."""

    def kept(value: Any) -> Any:
        return UNSET if value is ABSENT else value

    return [SettingChange(key=one.key, old=kept(one.old), new=kept(one.new)) for one in differences]


def history_before(package: PackageFolder, manifest: Manifest) -> tuple[list[records.Row], list[SkippedStep]]:
    """Returns the rows and the skipped steps of a run at the time when it saved a checkpoint, also if the run
    has continued from an earlier step since. The steps are those of session `INHERITED_SESSION`."""
    columns = records.fold(package.path / "records", until=manifest.session)
    skipped = skipped_steps.read(package.path / skipped_steps.NAME, columns.starts)
    steps = [one for one in skipped if one.step <= manifest.step and one.session <= manifest.session]
    rows = [row for row in columns.rows if row["step"] <= manifest.step]
    return rows, [msgspec.structs.replace(one, session=INHERITED_SESSION) for one in steps]


def require_loadable(differences: Iterable[ConfigDifference]) -> None:
    """Checks that the optimizers keep their class and parameters: the state in a checkpoint fits no others.

    Raises:
        ConfigError: A setting changes one of these.
    """
    for one in differences:
        section, _, rest = one.key.partition(".")
        name, _, key = rest.partition(".")
        if section != "optimizers" or not _is_fixed(key, one):
            continue
        if one.old is ABSENT or one.new is ABSENT:
            article = "no" if one.old is ABSENT else "an"
            message = f"the checkpoint has the state of {article} optimizer {name!r}"
        else:
            message = f"the checkpoint has the state of {one.old}, which does not fit another optimizer"
        fix = "leave it as it is, or start a new run with `roost run`"
        raise ConfigError(
            message, setting=one.key, received=_received(one.new), where="command line", fix=fix
        )


def _is_fixed(key: str, one: ConfigDifference) -> bool:
    if key == "groups":
        return _patterns(one.old) != _patterns(one.new)
    return key in ("", "class", "params")


def _patterns(groups: object) -> list[object]:
    found = groups if isinstance(groups, list) else []
    return [group.get("params") if isinstance(group, Mapping) else group for group in found]


def _received(value: object) -> object:
    return None if value is ABSENT else value
