"""The training task: one session of a package, from the session number to the end of the training."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, Protocol

import msgspec
import torch
import torch.distributed as dist

from roost.base import durable
from roost.base.session_end import deadline_files
from roost.base.system import cpu_wait
from roost.base.system.worker_protocol import EARLY_STOP
from roost.config.run_settings import RunSettings
from roost.config.sections.remote import parse_wait
from roost.package import sessions
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.remote.upload_time import UploadTime
from roost.package.results import initial_weights
from roost.package.results.evaluations import evaluation_folder
from roost.package.resume import environment
from roost.package.sessions import Session
from roost.project import native_project, trainer_assembly
from roost.project.device_choice import choose_device
from roost.project.staging.package_archives import NO_ARCHIVES, StagedData
from roost.train.accelerators.registry import accelerator_of
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.hooks import TimeLimit
from roost.train.trainer import Trainer
from roost.worker import card_memory, torch_settings
from roost.worker.card_limit import CardLimit
from roost.worker.initialize_task import Initialize
from roost.worker.ranks import rank_environment, rank_join
from roost.worker.worker_signals import StopRequested, StopSignals


def train(package: PackageFolder, session: Session, stop: StopSignals) -> str:
    """Trains, and returns "finished", "early stop" or the reason of the stop.

    Raises:
        RoostError: The config, the project or a checkpoint is wrong.
        Exception: An error of the project's code.
    """
    request, this_rank = session.request, rank_environment.read_rank_environment()
    device = choose_device(
        str(request.device), local_rank=this_rank.local_rank if this_rank is not None else None
    )
    project = str(request.get("project", ""))
    _, settings = native_project.resolve_settings(package, project)
    try:
        with stop.raised():
            # Before the ranks join: none of them waits for another in a collective operation meanwhile.
            staged = native_project.stage_data(package, project)
    except StopRequested as stopped:
        return str(stopped)
    # Without a checkpoint the run begins here: there is no earlier environment to compare with.
    first = environment.read_environment(package.path) if checkpoint.ids(package.checkpoints) else None
    torch_settings.apply(settings, device=device, first=first)
    card_memory.limit_to_reservation(request.reserved_mb, device, is_rank=this_rank is not None)
    ranks = rank_join.join(this_rank, settings, device)
    with rank_join.diagnosing_lost_ranks(ranks, settings, package.path):
        rank_join.require_same_run(package, ranks)
        trainer = build_trainer(package, session, project, device, ranks, staged=staged)
        if ranks.is_main:
            staged.record(package.path)
            strategy = strategy_of(session, ranks)
            record_stack(package, trainer, device, settings, first, strategy=strategy, id=session.checkpoint)
        for reason in [*inexact_reasons(session), *torch_settings.inexact_reasons(device)]:
            trainer.note_inexact(reason)
        if ranks.is_main and (busy := cpu_wait.format_busy(cpu_wait.read(), threads=torch.get_num_threads())):
            print(busy, flush=True)
        stop.attach(trainer)
        reason = trainer.fit(checkpoint=session.checkpoint)
        end = EARLY_STOP if reason == "finished" and trainer.ended_early else reason
    if reason == "finished" and (followers := evaluation_folder.unfinished_followers(package.path)):
        del trainer  # its memory
        _evaluate(package, followers, device, ranks, stop)
    return end


def _evaluate(
    package: PackageFolder, followers: Sequence[Path], device: str, ranks: Ranks, stop: StopSignals
) -> None:
    """Carries out the evaluations that were requested to follow the training. It has succeeded: an error of
    an evaluation is printed, and `roost evaluate` goes on with it."""
    from roost.worker import failure_report  # most trainings need neither
    from roost.worker.results import evaluate_task

    stop.release()
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()  # the ranks of an evaluation exchange nothing
    for folder in followers:
        try:
            evaluate_task.evaluate_after_training(
                package, folder, device=device, rank=ranks.rank, world_size=ranks.world_size
            )
        except Exception as error:  # noqa: BLE001  - printed; the training is complete
            file = sessions.traceback_file(folder, evaluate_task.SESSION_OF_TRAINING, ranks.rank)
            failure_report.report(error, own=[package.path], package=package.path, file=file)
            print(
                f"the evaluation {folder.name} failed, the training has succeeded; "
                f"`roost evaluate {quote(str(package.path))} --name {folder.name}` with the same "
                "options continues it",
                flush=True,
            )


def build_trainer(
    package: PackageFolder,
    session: Session,
    project: str,
    device: str,
    ranks: Ranks = ALONE,
    *,
    staged: StagedData = NO_ARCHIVES,
) -> Trainer:
    """Builds the trainer of a package on ``device``, with the hooks that the session's request adds."""
    begins = not checkpoint.ids(package.checkpoints)
    if not begins and package.settings.get("init_from") != package.args.get("init_from"):
        print("init_from is not read: the run continues from a checkpoint", flush=True)
    experiment = native_project.load(
        package,
        project=project,
        device=device,
        staged=staged,
        begins=begins,
        ranks=ranks,
        strategy=strategy_of(session, ranks),
    )
    if experiment.began_with and ranks.is_main:
        initial_weights.write(package.path, experiment.began_with)
    if session.request.initialize and begins:
        experiment.hooks.append(Initialize(package))
    if session.request.reserved_mb is not None:
        experiment.hooks.append(CardLimit(session.request.reserved_mb, device, is_rank=ranks.are_several))
    experiment.hooks.extend(time_limits(package, session))
    return trainer_assembly.assemble(experiment, package, session=session.number)


def time_limits(package: PackageFolder, session: Session) -> list[TimeLimit]:
    """Returns the hook that ends the session before its deadline, if there is one, or a file may give one."""
    ends, paths = deadline_files.deadline_at_start(os.environ), deadline_files.paths_of(os.environ)
    if ends is None and not paths:
        return []
    started, remote, upload = float(session.recorded.started or time.time()), session.request.remote, None
    if remote is not None:
        upload = UploadTime(package.path, parse_wait(str(remote["wait"])))
    return [TimeLimit(ends, started, deadline_files.DeadlineFiles(paths), upload=upload)]


def strategy_of(session: Session, ranks: Ranks) -> str:
    """Returns how the ranks share the work. Ranks of a foreign launcher use DDP if the request names none."""
    requested = str(session.request.strategy or "single")
    return "ddp" if requested == "single" and ranks.are_several else requested


def inexact_reasons(session: Session) -> list[str]:
    """Returns why the run is inexact from this session on, as recorded by the operation that requested it."""
    reasons = [str(reason) for reason in session.request.inexact or []]
    if session.request.force and not reasons:
        reasons = [f"session {session.number} was forced to continue with a changed config or code"]
    return reasons


class StackObserver(Protocol):
    """A training that records why it is not exact: a `Trainer` or a `TrainingLoop`."""

    @property
    def ranks(self) -> Ranks: ...

    def note_inexact(self, reason: str) -> None: ...


def record_stack(
    package: PackageFolder,
    trainer: StackObserver,
    device: str,
    settings: RunSettings,
    first: dict[str, Any] | None,
    *,
    strategy: str = "single",
    id: int | None = None,
) -> None:
    """Writes environment.json in the first session. A later session records as inexact what differs from it,
    and from the world size and strategy that saved the checkpoint to resume (``id``, or the newest)."""
    world = trainer.ranks.world_size
    if first is None:
        now = environment.capture(
            device,
            accelerator_of(device),
            seed=settings.seed,
            determinism=settings.determinism,
            ranks=world,
            strategy=strategy,
        )
        body = {**now, "git": package.request.get("git")}
        data = msgspec.json.format(msgspec.json.encode(body), indent=2)
        durable.write(package.path / environment.NAME, data)
    else:
        now = environment.stack(device, accelerator_of(device), ranks=world, strategy=strategy)
        for reason in environment.stack_differences(
            {**first["stack"], **_ranks_of_checkpoint(package, id)}, now
        ):
            trainer.note_inexact(reason)


def _ranks_of_checkpoint(package: PackageFolder, id: int | None) -> dict[str, Any]:
    """Returns world size and strategy of the session that saved checkpoint ``id`` (None: the newest one), as
    far as they are known."""
    info = next((one for one in reversed(package.store().lineage()) if id in (None, one.id)), None)
    request = next((one.request for one in package.sessions() if info and one.number == info.session), None)
    if info is None or request is None:
        return {}
    if info.ranks == 1:
        return {"ranks": 1, "strategy": "single"}
    requested = str(request.strategy or "single")
    return {"ranks": info.ranks, "strategy": "ddp" if requested == "single" else requested}
