"""Going back to a step of a run, by taking the steps before it once more. The package is only read."""

# Not durable: a folder for a while, for what a replay would write into the package

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
    """Where a replay begins. Without ``states``: at the run's own beginning."""

    info: Manifest | None
    states: dict[str, Any]
    is_box: bool
    notes: list[str]
    """What a person should hear, a line each."""

    @property
    def name(self) -> str:
        """In words."""
        if self.is_box:
            return "the black box"
        return "the seed" if self.info is None else f"checkpoint {self.info.id}"


def find_start(package: PackageFolder, visit: DebugTarget, box: BlackBox | None) -> ReplayStart:
    """Reads the state to begin with: that of the box; or the newest good checkpoint before the step, of the
    line that led to it.

    Raises:
        NotFound: There is no checkpoint of the number that was asked for.
        Damaged: It is damaged.
        UsageError: It is of a later step.
    """
    if visit.checkpoint is not None:
        path = package.store().path(visit.checkpoint)
        info = checkpoint.read_manifest(path)
        if info.step >= visit.step:
            raise UsageError(
                f"checkpoint {info.id} is of step {info.step}, which is not before step {visit.step}",
                setting="-c",
                received=info.id,
                fix="name an older one, or none",
            )
        return ReplayStart(*checkpoint.read(path), is_box=False, notes=[])
    said: list[str] = []
    if box is not None and box.has_state and not visit.replay:
        try:
            info, states = checkpoint.read(box.path, only=black_box.STATE)
            return ReplayStart(info, states, is_box=True, notes=[])
        except (CheckpointError, NotFound, OSError) as error:
            said.append(f"the black box: {error}; the steps before it are taken once more")
    for info in reversed(_lineage(package, box)):
        if info.step >= visit.step:
            continue
        try:
            return ReplayStart(*checkpoint.read(package.store().path(info.id)), is_box=False, notes=said)
        except (Damaged, NotFound, FileNotFoundError) as error:  # damaged, or removed by a run that goes on
            said.append(f"{error}; passed over, the one before it is taken")
    return ReplayStart(None, {}, is_box=False, notes=said)


def _lineage(package: PackageFolder, box: BlackBox | None) -> list[Manifest]:
    """The checkpoints that led to the step, oldest first; those of a box, wherever the run is now."""
    if box is None:
        return package.store().line()
    tip, infos = box.note.checkpoint, checkpoint.read_manifests(package.checkpoints)
    if tip is None:
        return []
    # The tip itself may be gone; whatever came of it tells what had led to it.
    line = next((info.line for info in infos if _contains(info.line, tip)), [])
    return [info for info in infos if info.id <= tip and _contains(line, info.id)]


def _contains(line: Sequence[tuple[int, int]], id: int) -> bool:
    return any(first <= id <= last for first, last in line)


class PackageAsOfSession(PackageFolder):
    """A package as it was in one of its sessions: what later ones changed is not seen.

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
    """Reads as ``package``; what a trainer writes goes into ``folder``."""

    def __init__(self, package: PackageFolder, folder: Path) -> None:
        super().__init__(folder)
        self._package = package

    def _load(self, name: str) -> dict[str, Any]:
        return self._package._load(name)

    def sessions(self) -> list[Session]:
        return self._package.sessions()

    def settings(self, *, until: int | None = None) -> dict[str, Any]:
        return self._package.settings(until=until)


class _ReadOnlyCheckpoints(Checkpoints):
    """Gives a trainer the states to begin with, and takes none: it has no checkpoints from then on."""

    def __init__(self, stage: PackageFolder, trainer: Trainer, info: Manifest, states: Mapping[str, Any]) -> None:
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
    package: PackageAsOfSession, visit: DebugTarget, start: ReplayStart, *, device: str, hook: Hook
) -> Iterator[Trainer]:
    """The trainer of a package, built by its own code; ``fit`` goes from ``start`` on as the run did.

    Args:
        package: As of the step's session; the working folder is its own.
        visit: Which step.
        start: Where to begin.
        device: Where to compute.
        hook: Comes after all others; to stop at the step.

    Raises:
        Refused: The run trained nothing.
        RoostError: A setting, or the project's code, is wrong.
        Exception: Whatever the project's code raises.
    """
    found = native_project.load(package, project=visit.project, device=device, begins=start.info is None)
    if found.settings.step_mode in trainer_assembly.MEASURING:
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
        made = trainer_assembly.assemble(experiment, stage, session=visit.session)
        made.until = dataclasses.replace(made.until, seconds=None)  # its clock is not that of the run
        own = made.checkpoints
        made.checkpoints = (
            _ReadOnlyCheckpoints(stage, made, start.info, start.states) if start.info is not None else None
        )
        if own is not None and made.checkpoints is not None and not start.is_box:
            made.checkpoints.adapt = own.adapt
        made.recovery.passed_over |= _rolled_back_steps(package, visit)
        for one in made.calls.hooks:
            if isinstance(one, Validate):
                one.probes = False  # what fails in the step may fail in a validation set's first batch, too
        yield made


def _without_side_effects(settings: Settings) -> Settings:
    """Without loader processes, which nobody could look into, without pictures, and told to nobody."""
    replace, data = msgspec.structs.replace, settings.data
    splits = {name: replace(getattr(data, name), num_workers=0) for name in ("valid", "test")}
    data = replace(data, num_workers=0, **splits)
    return replace(settings, data=data, visualize_every=None, mirrors=MirrorSettings())


def _rolled_back_steps(package: PackageAsOfSession, visit: DebugTarget) -> set[int]:
    """The steps before, whose windows a rollback has passed over."""
    starts = [one for one in package.records().starts if one[0] <= visit.session]
    told = skipped_steps.read(package.path / skipped_steps.NAME, starts)
    return {
        one.step
        for one in told
        if one.kind == "rollback" and one.session <= visit.session and one.step < visit.step
    }
