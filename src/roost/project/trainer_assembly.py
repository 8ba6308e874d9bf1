"""Assembles the Trainer of an experiment: loaders, stepper, hooks, checkpoints and recovery."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from roost.base.errors import ContractError
from roost.base.interval import NEVER, parse_duration
from roost.base.system.collector_pause import paused_collector
from roost.config.settings import Settings, Where
from roost.config.step_modes import STEP_MODES
from roost.package import lineage
from roost.package.checkpoints.retention import policy_from_settings
from roost.package.live_progress import ProgressFile
from roost.package.package import PackageFolder
from roost.package.remote.upload_hold import UploadHold
from roost.package.results import skipped_steps
from roost.package.setting_locations import setting_locations
from roost.project import builtin_hooks, data_loaders
from roost.project.contract import Runner
from roost.project.native_project import Experiment
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.data.batches import Batches
from roost.train.distributed.fsdp import ShardedRunner, check_optimizers
from roost.train.distributed.ranks import Ranks
from roost.train.end_condition import EndCondition
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.failures.recovery import Recovery
from roost.train.model.parameters import check_owners
from roost.train.optim.optimizer import Optim
from roost.train.optim.optimizer_config import build_optimizers
from roost.train.optim.optimizer_overrides import OptimizerOverrides
from roost.train.optim.schedulers import check_schedules
from roost.train.step import precision
from roost.train.step.nonfinite_check import NonfiniteGuard
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer

"""Step modes that only measure: no weight changes."""


def assemble(
    experiment: Experiment, package: PackageFolder, *, session: int, has_black_box: bool = True
) -> Trainer:
    """Returns the Trainer of a package, with the built-in hooks of the settings and the project's hooks.

    Args:
        experiment: The parts of the project.
        package: The folder that the run writes to.
        session: The number of the session.
        has_black_box: Whether a step that ends the run by an error is saved, for `roost debug`.

    Raises:
        ConfigError: A setting does not fit the data or the model.
    """
    settings, ranks = experiment.settings, experiment.ranks
    where = setting_locations(package)
    loaders = data_loaders.build_loaders(
        experiment.data,
        settings,
        device=experiment.runner.device,
        batches_per_step=settings.gradient_accumulation_steps,
        ranks=ranks,
        where=where,
    )
    stepper = _stepper(experiment, loaders["train"], where)
    if not STEP_MODES[settings.step_mode].trains:
        hooks, checkpoints = builtin_hooks.measurement_hooks(settings, package, session, ranks), None
    else:
        own = builtin_hooks.training_hooks(
            settings, package, experiment.runner, stepper, loaders, session, ranks
        )
        late = [*builtin_hooks.statistics_hooks(settings, package), *builtin_hooks.averaging_hooks(settings)]
        hooks = [*own, *experiment.hooks, *late]
        checkpoints = Checkpoints(
            package,
            policy_from_settings(settings.checkpoint),
            session=session,
            asynchronous=settings.checkpoint.asynchronous,
            ranks=ranks,
        )
        if settings.remote is not None and settings.remote.hold_checkpoints:
            checkpoints.hold = UploadHold(package.path, settings.remote)
        if lineage.optimizers_may_differ(package):
            changed = functools.partial(lineage.settings_changed_since, package)
            checkpoints.adapt = OptimizerOverrides(stepper.optimizers, changed)
    return Trainer(
        experiment.runner,
        loaders,
        stepper,
        hooks=hooks,
        checkpoints=checkpoints,
        until=end_condition(settings),
        seed=settings.seed,
        board=ProgressFile(package.progress) if ranks.is_main else None,
        recovery=_recovery(settings, package, session, ranks, has_black_box and checkpoints is not None),
        evaluation_precision=settings.evaluation_precision,
        ranks=ranks,
        seed_mode=settings.seed_mode,
    )


def _recovery(
    settings: Settings, package: PackageFolder, session: int, ranks: Ranks, has_black_box: bool
) -> Recovery:
    # The part of a step that one of several ranks computes cannot be replayed alone.
    keeps = has_black_box and not ranks.are_several
    return Recovery(
        on_non_finite=settings.on_non_finite,
        on_step_error=settings.on_step_error,
        max_skipped_steps=settings.max_skipped_steps,
        black_box=BlackBoxRecorder(package.blackbox, session) if keeps else None,
        log=package.path / skipped_steps.NAME if ranks.is_main else None,
        session=session,
    )


def end_condition(settings: Settings) -> EndCondition:
    """Returns the end condition of the settings."""
    seconds = parse_duration(settings.max_time, setting="max_time") if settings.max_time else None
    return EndCondition(settings.max_steps, settings.max_epochs, seconds)


def _stepper(experiment: Experiment, train: Batches, where: Where) -> Stepper:
    settings, runner = experiment.settings, experiment.runner
    accumulation = settings.gradient_accumulation_steps
    for key in ("precision", "evaluation_precision"):
        precision.require_supported(
            getattr(settings, key) or 32, runner.device, setting=key, where=where(key)
        )
    if accumulation > len(train):
        said = f"the window of {accumulation} micro-batches is longer than an epoch of {len(train)}"
        print(f"warning: {said}: a step takes the whole epoch", flush=True)
    # Before the optimizers: they move the shards.
    shards = experiment.strategy == "fsdp" and experiment.ranks.are_several
    sharded = ShardedRunner(runner, experiment.ranks) if shards else None
    make = functools.partial(
        Stepper,
        accumulation=accumulation,
        precision=settings.precision,
        mode=settings.step_mode,
        compile_dynamic=settings.compile_dynamic,
        guard=_guard(settings, runner),
        ranks=experiment.ranks,
        reduces_gradients=sharded is None,
        loss_wrapper=sharded.call if sharded is not None else None,
        agrees_on_failures=settings.on_step_error == "skip",
    )
    by_hand = type(runner).optimizers is not Runner.optimizers
    with paused_collector():
        import torch._dynamo  # noqa: F401  - torch's optimizers import it when the first one is made
    runner.totals = _totals(experiment, train)
    stepper = make(_optimizers_of_runner(runner) if by_hand else _optimizers_of_config(experiment, where))
    if sharded is not None:
        check_optimizers(stepper.optimizers)
    if by_hand:
        check_owners(runner, stepper.optimizers)
        check_schedules(stepper.optimizers)
        if settings.optimizers:
            print(
                "warning: the optimizers of the config are not used: Runner.optimizers() makes them",
                flush=True,
            )
    return stepper


def _optimizers_of_config(experiment: Experiment, where: Where) -> Mapping[str, Optim]:
    settings, root = experiment.settings, experiment.root
    totals = experiment.runner.totals
    return build_optimizers(experiment.runner, settings.optimizers, totals=totals, where=where, root=root)


def _totals(experiment: Experiment, train: Batches) -> dict[str, int]:
    settings = experiment.settings
    steps_per_epoch = -(-len(train) // settings.gradient_accumulation_steps)
    total = end_condition(settings).total_steps(steps_per_epoch)
    return {"steps_per_epoch": steps_per_epoch, **({"total_steps": total} if total < NEVER else {})}


def _optimizers_of_runner(runner: Runner) -> Mapping[str, Optim | torch.optim.Optimizer]:
    given: Any = runner.optimizers()
    good = isinstance(given, Mapping) and all(
        isinstance(o, Optim | torch.optim.Optimizer) for o in given.values()
    )
    if not good or not given:
        raise ContractError(
            "Runner.optimizers() must return optimizers by name",
            received=given,
            fix='return {"main": Optim(...)}',
        )
    return dict(given)


def _guard(settings: Settings, runner: Runner) -> NonfiniteGuard | None:
    """Returns the guard of steps that may be skipped: it checks loss and gradients, or only keeps the
    buffers."""
    looks = settings.on_non_finite != "stop"
    return NonfiniteGuard(runner, checks_step=looks) if looks or settings.on_step_error == "skip" else None
