"""Where a package comes from that goes on from a checkpoint of another one: reading only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.layers import ConfigDifference
from roost.package import records, resume_gate
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.results import skipped_steps
from roost.package.results.skipped_steps import SkippedStep

INHERITED_SESSION = 0
"""The session that what was before the fork counts as."""


_EPOCH_LENGTH_KEYS = ("data.", "gradient_accumulation_steps", "dataset")
"""What may give an epoch another number of steps."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that a fork has otherwise than its parent; a side without it is left out."""

    key: str
    old: Any = UNSET
    new: Any = UNSET

    def __str__(self) -> str:
        old, new = (layers.ABSENT if value is UNSET else value for value in (self.old, self.new))
        return resume_gate.format_difference(ConfigDifference(self.key, old, new))


class ForkParent(msgspec.Struct, frozen=True, kw_only=True):
    """One package that another goes on from."""

    package: str
    """Its name."""
    path: str
    """Where it was."""
    checkpoint: int
    step: int
    sha256: str
    """Of the checkpoint's manifest, which holds the digests of its files."""
    changed: list[SettingChange] = []
    """What the fork asked to have otherwise."""


def parent_of(package: PackageFolder) -> ForkParent | None:
    """What a package goes on from; None where it began by itself."""
    return next(iter(ancestry(package)), None)


def ancestry(package: PackageFolder) -> list[ForkParent]:
    """What a package goes on from, and what that went on from, the nearest first.

    A package keeps the names of all of them, so they may be gone. Empty where it began by itself, or where
    its request cannot be read.
    """
    return ancestry_of_request(package.request)


def ancestry_of_request(request: Mapping[str, Any]) -> list[ForkParent]:
    """As `ancestry`, of the package's request."""
    found = [request.get("parent"), *(request.get("ancestors") or [])]
    try:
        return msgspec.convert([one for one in found if one is not None], list[ForkParent])
    except msgspec.ValidationError:
        return []


def changed_settings(package: PackageFolder) -> list[str]:
    """The dotted settings that a fork has otherwise than its parent, and the schedules that follow from them:
    those that were laid out for another end."""
    parent = parent_of(package)
    keys = [one.key for one in parent.changed] if parent is not None else []
    moves = any(key in resume_gate.LENGTH_SETTINGS or key.startswith(_EPOCH_LENGTH_KEYS) for key in keys)
    return [*keys, *(resume_gate.settings_using_total_steps(package.settings()) if moves else [])]


def optimizers_may_differ(package: PackageFolder) -> bool:
    """Whether any checkpoint may have been saved with other optimizers than those of now: so that what a
    project's own schedulers are made of is not copied for nothing."""
    overrides = [text for one in package.sessions() for text in one.request.get("overrides", [])]
    return bool(changed_settings(package)) or any("optimizers" in text for text in overrides)


def settings_changed_since(package: PackageFolder, info: Manifest) -> list[str]:
    """The dotted settings of optimizers that are others now than when a checkpoint was saved, by a fork or by
    `continue --force`; and what else a fork has otherwise.

    A session that only moves the run's end leaves its schedules as they were laid out, and says so (see
    `roost.package.resume_gate`).
    """
    then, now = package.settings(until=info.session), package.settings()
    found = [one.key for one in layers.differences(then, now) if one.key.startswith("optimizers.")]
    return [*(changed_settings(package) if info.session == INHERITED_SESSION else []), *found]


def setting_changes(differences: Iterable[ConfigDifference]) -> list[SettingChange]:
    """Differences of settings, as a package keeps them."""

    def kept(value: Any) -> Any:
        return UNSET if value is layers.ABSENT else value

    return [SettingChange(key=one.key, old=kept(one.old), new=kept(one.new)) for one in differences]


def history_before(package: PackageFolder, info: Manifest) -> tuple[list[records.Row], list[SkippedStep]]:
    """What a run had recorded, and which steps it had passed over, when it saved a checkpoint: also where it
    has gone another way since. The steps are as of session `INHERITED_SESSION`."""
    columns = records.fold(package.path / "records", until=info.session)
    told = skipped_steps.read(package.path / skipped_steps.NAME, columns.starts)
    steps = [one for one in told if one.step <= info.step and one.session <= info.session]
    rows = [row for row in columns.rows if row["step"] <= info.step]
    return rows, [msgspec.structs.replace(one, session=INHERITED_SESSION) for one in steps]


def require_loadable(differences: Iterable[ConfigDifference]) -> None:
    """What a checkpoint holds of an optimizer fits one of the same class and parameters only.

    Raises:
        ConfigError: A setting says otherwise.
    """
    for one in differences:
        section, _, rest = one.key.partition(".")
        name, _, key = rest.partition(".")
        if section != "optimizers" or not _is_fixed(key, one):
            continue
        if one.old is layers.ABSENT or one.new is layers.ABSENT:
            said = f"the checkpoint holds the state of {'no' if one.old is layers.ABSENT else 'an'} optimizer"
            said += f" {name!r}"
        else:
            said = f"the checkpoint holds the state of {one.old}, which does not fit another one"
        fix = "leave it as it is, or begin anew with `roost run`"
        raise ConfigError(said, setting=one.key, received=_received(one.new), where="command line", fix=fix)


def _is_fixed(key: str, one: ConfigDifference) -> bool:
    if key == "groups":
        return _patterns(one.old) != _patterns(one.new)
    return key in ("", "class", "params")


def _patterns(groups: object) -> list[object]:
    found = groups if isinstance(groups, list) else []
    return [group.get("params") if isinstance(group, Mapping) else group for group in found]


def _received(value: object) -> object:
    return None if value is layers.ABSENT else value
