"""Replays of a run up to one step: the trainer starts at an earlier state and repeats the steps in between.
The package is only read."""

# Not durable: a temporary folder takes what a replay would write into the package

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from roost.base.errors import CheckpointError, Damaged, NotFound, Refused, UsageError
from roost.config.sections.mirrors import MirrorSettings
from roost.config.settings import Settings
from roost.config.step_modes import STEP_MODES
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.results import black_box, skipped_steps
from roost.package.results.black_box import BlackBox, DebugTarget
from roost.package.sessions import Session
from roost.project import native_project, trainer_assembly
from roost.train.checkpointing.checkpoints import Checkpoints, Stateful, load_parts
from roost.train.hook import Hook
from roost.train.hooks import Validate
from roost.train.trainer import Trainer


class ReplayStart(NamedTuple):
    """The state at which a replay starts. Without ``states``: the initial state of the run."""

    info: Manifest | None
    states: dict[str, Any]
    is_box: bool
    notes: list[str]
    """Lines to print for the user."""

    @property
    def name(self) -> str:
        """Description of the start, for messages."""
        if self.is_box:
            return "the black box"
        return "the seed" if self.info is None else f"checkpoint {self.info.id}"


def find_start(package: PackageFolder, target: DebugTarget, box: BlackBox | None) -> ReplayStart:
    """Reads the state to start with: that of the black box, or the newest intact checkpoint before the step,
    of the lineage that led to the step.

    Raises:
        NotFound: The requested checkpoint does not exist.
        Damaged: The requested checkpoint is damaged.
        UsageError: The requested checkpoint is of the step itself or a later one.
    """
    if target.checkpoint is not None:
        path = package.store().path(target.checkpoint)
        info = checkpoint.read_manifest(path)
        if info.step >= target.step:
            raise UsageError(
                f"checkpoint {info.id} is of step {info.step}, which is not before step {target.step}",
                setting="-c",
                received=info.id,
                fix="name an older one, or none",
            )
        return ReplayStart(*checkpoint.read(path), is_box=False, notes=[])
    notes: list[str] = []
    if box is not None and box.has_state and not target.replay:
        try:
            info, states = checkpoint.read(box.path, only=black_box.STATE)
            return ReplayStart(info, states, is_box=True, notes=[])
        except (CheckpointError, NotFound, OSError) as error:
            notes.append(f"the black box: {error}; the steps before it are replayed instead")
    for info in reversed(_lineage(package, box)):
        if info.step >= target.step:
            continue
        try:
            return ReplayStart(*checkpoint.read(package.store().path(info.id)), is_box=False, notes=notes)
        except (Damaged, NotFound, FileNotFoundError) as error:  # damaged, or removed by a running session
            notes.append(f"{error}; skipped, the one before it is used")
    return ReplayStart(None, {}, is_box=False, notes=notes)


def _lineage(package: PackageFolder, box: BlackBox | None) -> list[Manifest]:
    """Returns the checkpoints that led to the step, oldest first. With a black box: the lineage of its
    session, even if the run has continued from another checkpoint since."""
    if box is None:
        return package.store().lineage()
    tip, infos = box.note.checkpoint, checkpoint.read_manifests(package.checkpoints)
    if tip is None:
        return []
    # The tip itself may be gone; the line of a later checkpoint contains what had led to it.
    line = next((info.line for info in infos if _contains(info.line, tip)), [])
    return [info for info in infos if info.id <= tip and _contains(line, info.id)]


def _contains(line: Sequence[tuple[int, int]], id: int) -> bool:
    return any(first <= id <= last for first, last in line)


class PackageAsOfSession(PackageFolder):
    """A package as of one of its sessions: later sessions and their overrides are hidden.

    Args:
        path: The package.
        session: The session's number.
    """

    def __init__(self, path: Path, session: int) -> None:
        super().__init__(path)
        self._session = session

    def sessions(self) -> list[Session]:
        return [session for session in super().sessions() if session.number <= self._session]


class _ScratchPackage(PackageFolder):
    """Reads like ``package``; a trainer's writes go into ``folder``."""

    def __init__(self, package: PackageFolder, folder: Path) -> None:
        super().__init__(folder)
        self._package = package

    def _load(self, name: str) -> dict[str, Any]:
        return self._package._load(name)

    def sessions(self) -> list[Session]:
        return self._package.sessions()

    def settings_until(self, session: int | None) -> dict[str, Any]:
        return self._package.settings_until(session)


class _ReadOnlyCheckpoints(Checkpoints):
    """Loads given states into a trainer, once, and then removes itself: a replay saves no checkpoints."""

    def __init__(
        self, stage: PackageFolder, trainer: Trainer, info: Manifest, states: Mapping[str, Any]
    ) -> None:
        super().__init__(stage)
        self._trainer, self._info, self._states = trainer, info, states

    def load(self, parts: Mapping[str, Stateful], *, id: int | None = None) -> tuple[Manifest, list[str]]:
        if self.adapt is not None:
            self.adapt(self._info, self._states)
        load_parts(parts, self._info, self._states)
        self._trainer.checkpoints = None
        return self._info, []


@contextmanager
def replay_trainer(
    package: PackageAsOfSession, target: DebugTarget, start: ReplayStart, *, device: str, hook: Hook
) -> Iterator[Trainer]:
    """Builds the trainer of a package from its own code; its ``fit`` repeats the run's steps after ``start``.

    Args:
        package: As of the step's session; the working directory is the package's folder.
        target: The step to go to.
        start: State to start with.
        device: Device to compute on.
        hook: Appended after all other hooks; stops at the step.

    Raises:
        Refused: The run only measured, and trained nothing.
        RoostError: A setting, or the project's code, is wrong.
        Exception: An error of the project's code.
    """
    staged = native_project.stage_data(package, target.project)
    found = native_project.load(
        package, project=target.project, device=device, staged=staged, begins=start.info is None
    )
    if not STEP_MODES[found.settings.step_mode].trains:
        raise Refused(
            f"the run only measured (step_mode {found.settings.step_mode}), no step can be repeated",
            where=package.path,
        )
    experiment = dataclasses.replace(
        found, settings=_without_side_effects(found.settings), hooks=[*found.hooks, hook]
    )
    with tempfile.TemporaryDirectory(prefix="roost-debug-") as folder:
        stage = _ScratchPackage(package, Path(folder))
        stage.checkpoints.mkdir()
        made = trainer_assembly.assemble(experiment, stage, session=target.session)
        # The time limit counts the run's clock, not the replay's.
        made.until = dataclasses.replace(made.until, seconds=None)
        own = made.checkpoints
        made.checkpoints = (
            _ReadOnlyCheckpoints(stage, made, start.info, start.states) if start.info is not None else None
        )
        if own is not None and made.checkpoints is not None and not start.is_box:
            made.checkpoints.adapt = own.adapt
        made.recovery.rolled_back_steps |= _rolled_back_steps(package, target)
        for validation in made.calls.of_kind(Validate):
            validation.probes = False  # the error of the step may also come up in a set's first batch
        yield made


def _without_side_effects(settings: Settings) -> Settings:
    """Returns the settings without loader workers, which pdb cannot enter, without pictures and mirrors."""
    replace, data = msgspec.structs.replace, settings.data
    splits = {name: replace(getattr(data, name), num_workers=0) for name in ("valid", "test")}
    data = replace(data, num_workers=0, **splits)
    return replace(settings, data=data, visualize_every=None, mirrors=MirrorSettings())


def _rolled_back_steps(package: PackageAsOfSession, target: DebugTarget) -> set[int]:
    """Returns the earlier steps whose windows were skipped by a rollback."""
    starts = [one for one in package.records().starts if one[0] <= target.session]
    skipped = skipped_steps.read(package.path / skipped_steps.NAME, starts)
    return {
        one.step
        for one in skipped
        if one.kind == "rollback" and one.session <= target.session and one.step < target.step
    }
