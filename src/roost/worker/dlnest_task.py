"""The training task of a project in DLNest's contract: one session of its package."""

from __future__ import annotations

import math

import torch
from torch import nn

from roost.base.interval import parse_duration
from roost.base.system import cpu_wait
from roost.config.dlnest.dlnest_settings import DlnestSettings, parse_dlnest_settings
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.checkpoints.retention import policy_from_settings
from roost.package.live_progress import ProgressFile
from roost.package.package import PackageFolder
from roost.package.remote.upload_hold import UploadHold
from roost.package.resume import environment
from roost.package.sessions import Session
from roost.package.setting_locations import setting_locations
from roost.project import builtin_hooks
from roost.project.device_choice import choose_device
from roost.project.dlnest import run_state
from roost.project.dlnest.project_classes import load_classes, stage_data
from roost.project.dlnest.project_loading import load_project
from roost.project.dlnest.training_loop import FINISHED, TrainingLoop
from roost.train.accelerators.registry import accelerator_of
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import Ranks
from roost.train.hook import Hook
from roost.train.step import precision
from roost.worker import card_memory, torch_settings, train_task
from roost.worker.card_limit import CardLimit
from roost.worker.ranks import rank_environment, rank_join
from roost.worker.worker_signals import StopRequested, StopSignals


def train(package: PackageFolder, session: Session, stop: StopSignals) -> str:
    """Trains, and returns "finished" or the reason of the stop.

    Raises:
        RoostError: The config, the project or a checkpoint is wrong.
        Exception: An error of the project's code.
    """
    request, this_rank = session.request, rank_environment.read_rank_environment()
    device = choose_device(
        str(request.device), local_rank=this_rank.local_rank if this_rank is not None else None
    )
    where = setting_locations(package)
    settings = parse_dlnest_settings(package.settings, where=where)
    try:
        with stop.raised():
            staged = stage_data(package, settings)
    except StopRequested as stopped:
        return str(stopped)
    begins = not checkpoint.ids(package.checkpoints)
    first = None if begins else environment.read_environment(package.path)
    torch_settings.apply(settings, device=device, first=first)
    precision.require_supported(
        settings.precision, torch.device(device), setting="roost.precision", where=where("roost.precision")
    )
    card_memory.limit_to_reservation(request.reserved_mb, device, is_rank=this_rank is not None)
    ranks = rank_join.join(this_rank, settings, device)
    with rank_join.diagnosing_lost_ranks(ranks, settings, package.path):
        rank_join.require_same_run(package, ranks)
        loop = build_loop(package, session, settings, device, ranks)
        if loop is None:
            return FINISHED
        if ranks.is_main:
            staged.record(package.path)
            strategy = train_task.strategy_of(session, ranks)
            train_task.record_stack(
                package, loop, device, settings, first, strategy=strategy, id=session.checkpoint
            )
        modules = [one for one in vars(loop.project.runner).values() if isinstance(one, nn.Module)]
        for reason in [
            *train_task.inexact_reasons(session),
            *torch_settings.inexact_reasons(device),
            *accelerator_of(device).inexact_reasons(nn.ModuleList(modules)),
        ]:
            loop.note_inexact(reason)
        if ranks.is_main and (busy := cpu_wait.format_busy(cpu_wait.read(), threads=torch.get_num_threads())):
            print(busy, flush=True)
        stop.attach(loop)
        return loop.run()


def build_loop(
    package: PackageFolder, session: Session, settings: DlnestSettings, device: str, ranks: Ranks
) -> TrainingLoop | None:
    """Loads the project and returns its loop, which continues from a checkpoint if there is one. None if the
    project's BAll returned "Skip": then nothing is done."""
    checkpoints = Checkpoints(
        package,
        # Saves within an epoch do not push the project's own out of the fast track.
        policy_from_settings(settings.checkpoint, only_scheduled=True),
        session=session.number,
        asynchronous=False,
        ranks=ranks,
        pickles=Pickles.of(trust=session.request.trust),
    )
    if settings.remote is not None and settings.remote.hold_checkpoints:
        checkpoints.hold = UploadHold(package.path, settings.remote)
    load_classes(package, settings)  # before the state is read, which may have pickled objects of them
    manifest, states, lines = run_state.read(checkpoints, ranks, id=session.checkpoint)
    for line in lines:
        print(line, flush=True)
    project = load_project(
        package,
        settings,
        device=device,
        ranks=ranks,
        state=run_state.project_state(states, ranks) if manifest is not None else None,
    )
    if not project.build():
        project.calls.after("AAll")
        return None
    project.require_parts()
    limit = settings.max_time
    return TrainingLoop(
        project,
        checkpoints=checkpoints,
        state=states if manifest is not None else None,
        was_finished=manifest is not None and _has_finished(package, manifest),
        initializes=manifest is None and bool(session.request.initialize),
        save_every=settings.checkpoint.every,
        log_every=settings.log_every,
        max_seconds=parse_duration(limit, setting="roost.max_time") if limit else math.inf,
        precision=settings.precision,
        seed=settings.seed,
        seed_mode=settings.seed_mode,
        records=package.path / "records",
        session=session.number,
        board=ProgressFile(package.progress) if ranks.is_main else None,
        hooks=_hooks(package, session, settings, device, ranks),
    )


def _hooks(
    package: PackageFolder, session: Session, settings: DlnestSettings, device: str, ranks: Ranks
) -> list[Hook]:
    """Returns the hooks that do not ask what is trained."""
    found: list[Hook] = list(builtin_hooks.mirror_hooks(settings, package)) if ranks.is_main else []
    if session.request.reserved_mb is not None:
        found.append(CardLimit(session.request.reserved_mb, device, is_rank=ranks.are_several))
    return [*found, *train_task.time_limits(package, session)]


def _has_finished(package: PackageFolder, manifest: Manifest) -> bool:
    """Whether a checkpoint is the last one of a session that trained to the end."""
    last = max(
        one.id for one in checkpoint.read_manifests(package.checkpoints) if one.session == manifest.session
    )
    session = next((one for one in package.sessions() if one.number == manifest.session), None)
    return manifest.id == last and session is not None and session.state == "succeeded"
