"""Checks of runs: on which device they compute, their mirrors, and of one package or config all that would
keep it from running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import RoostError
from roost.base.text.word_list import join_names
from roost.config import layers
from roost.devices import lease_files
from roost.operations import work_progress
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, problem, warning
from roost.operations.listing.known_folders import known_folders
from roost.operations.listing.list_packages import find_packages
from roost.operations.reading import package_schema
from roost.operations.sessions import requirements
from roost.package import live_progress, records, sessions
from roost.package.package import PackageFolder
from roost.package.package_draft import prepare_training
from roost.package.sessions import Session
from roost.supervisor.processes.process_tree import descendants
from roost.train.mirrors.mirror_kinds import KINDS, MIRRORS_FOLDER, enabled_mirrors


@dataclass(frozen=True, kw_only=True)
class RunningRun:
    """A run of this machine that has made a step."""

    package: Path
    device: str
    """The requested device."""
    is_program: bool
    uses_card: bool
    """Whether one of its processes computes on a card, or may do so."""


@dataclass(frozen=True, kw_only=True)
class PlacementFacts:
    """The running runs, and the cards that no process and no lease uses."""

    runs: Sequence[RunningRun] = ()
    free_cards: Sequence[str] = ()
    """Names such as ``GPU 0``."""
    num_cards: int = 0


def read_placement(subject: DoctorSubject) -> PlacementFacts:
    """Compares the processes of the running runs with those on the cards."""
    cards = subject.driver.cards
    if not cards:
        return PlacementFacts()
    users = {user.pid for card in cards for user in card.users}
    # A process of another container has another number here: it may be the run's.
    is_known = all(user.name is not None for card in cards for user in card.users)
    free = [
        f"GPU {card.number}"
        for card in cards
        if not card.trouble and not card.users and not lease_files.live_leases(card.id)
    ]
    runs = [
        RunningRun(
            package=package,
            device=session.request.device,
            is_program=session.request.kind == "command",
            uses_card=not is_known or not users.isdisjoint(_pids(session)),
        )
        for package, session in _running_sessions(subject)
    ]
    return PlacementFacts(runs=runs, free_cards=free, num_cards=len(cards))


def _running_sessions(subject: DoctorSubject) -> Iterator[tuple[Path, Session]]:
    for package in _packages(subject, "state:running"):
        progress = live_progress.read(package / "progress")
        newest = PackageFolder(package).sessions()[-1:]
        if newest and newest[0].is_live and newest[0].is_on_this_machine and progress and progress.step:
            yield package, newest[0]


def _pids(session: Session) -> set[int]:
    supervisor = session.supervisor_pid
    return {supervisor, *descendants(supervisor)} if supervisor is not None else set()


def _packages(subject: DoctorSubject, query: str = "") -> list[Path]:
    if subject.package is not None:
        return [subject.package]
    return [one.folder / one.name for one in find_packages(known_folders(), query).selected]


def judge_placement(facts: PlacementFacts) -> Iterator[Diagnosis]:
    """Whether a run computes on the CPU while a GPU is free."""
    on_cpu = [run for run in facts.runs if not run.uses_card]
    for run in on_cpu if facts.free_cards else ():
        name = f"{run.package.name} computes on the CPU, and {join_names(list(facts.free_cards))} is free"
        if run.device == "cpu":
            yield warning(f"{name}; the CPU was requested", "leave out -CPU, or `device: cpu`")
        elif run.is_program:
            fix = 'its model and batches may never have been moved: model.to("cuda"), batch.to("cuda")'
            yield warning(name, f"{fix}; or CUDA_VISIBLE_DEVICES hides the card")
        else:
            yield warning(name, "stop and continue it: `roost stop`, then `roost continue --device cuda`")
    if not (on_cpu and facts.free_cards):
        running = "1 run" if len(facts.runs) == 1 else f"{len(facts.runs)} runs"
        idle = f"; free: {join_names(list(facts.free_cards))}" if facts.free_cards else ""
        yield ok(
            f"{running} of this machine, none on the CPU while a GPU is free{idle}"
            if facts.num_cards
            else "no GPU"
        )


@dataclass(frozen=True, kw_only=True)
class LateMirror:
    """A mirror that lacks rows of a run that has ended."""

    package: Path
    kind: str
    last_step: int
    """The last step that it has; -1: none."""
    recorded_step: int


def read_mirrors(subject: DoctorSubject) -> list[LateMirror]:
    """Compares the position of each mirror of ended runs with the records."""
    with_mirrors = [one for one in _packages(subject) if (one / MIRRORS_FOLDER).is_dir()]
    return [
        late
        for package in work_progress.track(with_mirrors, "reading mirrors")
        for late in _late_mirrors(package)
    ]


def _late_mirrors(package: Path) -> Iterator[LateMirror]:
    if any(session.is_live for session in PackageFolder(package).sessions()[-1:]):
        return
    try:
        recorded = records.last_step(package / "records")
    except (OSError, ValueError):  # damaged: `verify` shows it
        return
    for kind in KINDS:
        note = package / MIRRORS_FOLDER / f"{kind}.json"
        if not note.exists():
            continue
        step = (sessions.load_json(note) or {}).get("last_step", -1)
        if isinstance(step, int) and step < recorded:
            yield LateMirror(package=package, kind=kind, last_step=step, recorded_step=recorded)


def judge_mirrors(found: Sequence[LateMirror]) -> Iterator[Diagnosis]:
    """Whether mirrors have all rows of the runs that have ended."""
    for one in found:
        has = f"ends at step {one.last_step}" if one.last_step >= 0 else "has no row"
        yield warning(
            f"the mirror {one.kind} of {one.package.name} {has}, its records at step {one.recorded_step}",
            f"`roost mirror --flush {one.package}` sends the rest; `roost logs {one.package}` has the reason",
        )
    if not found:
        yield ok("mirrors of ended runs are complete")


@dataclass(frozen=True, kw_only=True)
class PackageFacts:
    """The newest session of the package that is examined."""

    package: Path
    state: str
    error: str = ""
    damage: str = ""
    inexact: Sequence[str] = ()


def read_package(subject: DoctorSubject) -> PackageFacts | None:
    """Reads the files of the package."""
    if subject.package is None:
        return None
    try:
        package = package_schema.open_checked(subject.package)
    except RoostError as error:
        return PackageFacts(package=subject.package, state="damaged", damage=str(error))
    newest = package.sessions()[-1:]
    return PackageFacts(
        package=subject.package,
        state=newest[0].state_shown if newest else "new",
        error=(newest[0].error or "") if newest else "",
        damage=package_schema.records_damage(PackageFolder(subject.package)) or "",
        inexact=newest[0].request.inexact if newest else (),
    )


def judge_package(facts: PackageFacts | None) -> Iterator[Diagnosis]:
    """Whether the package is whole, and how its newest session ended."""
    if facts is None:
        return
    if facts.damage:
        yield problem(f"the package is damaged: {facts.damage}", f"`roost verify {facts.package}`")
    if facts.state in ("failed", "crashed"):
        yield problem(
            f"its newest session has {facts.state}: {facts.error or 'without an error'}",
            f"`roost why {facts.package}` explains it; `roost continue {facts.package}`",
        )
    elif not facts.damage:
        yield ok(f"its state is {facts.state}")
    for reason in facts.inexact:
        yield warning(f"its newest session is not exact: {reason}", "see docs/guide/resume.md")


@dataclass(frozen=True, kw_only=True)
class ConfigFacts:
    """The config that is examined."""

    config: Path
    save_root: Path | None = None
    error: str = ""
    fix: str = ""
    notes: Sequence[str] = ()


def read_config(subject: DoctorSubject) -> ConfigFacts | None:
    """Reads the config with all that it names, as `run` does, without importing the project."""
    if subject.config is None:
        return None
    try:
        draft = prepare_training(layers.load(subject.config))
        enabled_mirrors(draft.settings.mirrors)
        requirements.require_store_library(draft.settings.remote)
    except (RoostError, OSError) as error:
        fix = error.fix if isinstance(error, RoostError) else None
        text = error.summary if isinstance(error, RoostError) else str(error)
        return ConfigFacts(config=subject.config, error=text, fix=fix or "correct the config")
    return ConfigFacts(config=subject.config, save_root=draft.root, notes=draft.notes())


def judge_config(facts: ConfigFacts | None) -> Iterator[Diagnosis]:
    """Whether `run` would accept the config."""
    if facts is None:
        return
    if facts.error:
        yield problem(f"{facts.config}: {facts.error}", facts.fix)
        return
    for note in facts.notes:
        yield warning(note, "see docs/settings.md")
    yield ok(f"{facts.config} is valid; `roost check {facts.config}` runs it in miniature")
