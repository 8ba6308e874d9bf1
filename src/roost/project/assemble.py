"""From an experiment to its Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from roost.base.errors import ContractError
from roost.base.interval import NEVER, parse_duration
from roost.config.settings import Settings, Where
from roost.package import retention
from roost.package.package import Package
from roost.package.progress import Board
from roost.project.contract import Runner
from roost.project.native import Experiment, places
from roost.train import hooks as own
from roost.train.checkpoints import Checkpoints
from roost.train.hook import Hook
from roost.train.loader import Loader
from roost.train.optimizers import Optim, build_optimizers
from roost.train.plan import BatchPlan
from roost.train.stepper import Stepper
from roost.train.trainer import Trainer
from roost.train.until import Until


def assemble(experiment: Experiment, package: Package, *, session: int) -> Trainer:
    """The Trainer of a package, with roost's own hooks as the settings ask, and the project's.

    Raises:
        ConfigError: A setting does not fit the data or the model.
    """
    settings = experiment.settings
    loaders = _loaders(experiment)
    stepper = _stepper(experiment, loaders["train"], places(package))
    return Trainer(
        experiment.runner,
        loaders,
        stepper,
        hooks=[*_hooks(settings, package, stepper, loaders, session), *experiment.hooks],
        checkpoints=Checkpoints(package, policy(settings), session=session),
        until=until(settings),
        seed=settings.seed,
        board=Board(package.progress),
    )


def until(settings: Settings) -> Until:
    """The end that the settings name."""
    seconds = parse_duration(settings.max_time, setting="max_time") if settings.max_time else None
    return Until(settings.max_steps, settings.max_epochs, seconds)


def policy(settings: Settings) -> retention.Policy:
    """What the settings say of keeping checkpoints."""
    given = settings.checkpoint
    best = tuple(retention.Best(monitor=b.monitor, mode=b.mode, top_k=b.top_k) for b in given.best)
    return retention.Policy(
        fast=given.fast, slow=given.slow, slow_every=given.slow_every, held=given.held, best=best
    )


def _has(loaders: Mapping[str, Loader], split: str) -> bool:
    return any(name.partition("/")[0] == split for name in loaders)


def _loaders(experiment: Experiment) -> dict[str, Loader]:
    data, settings = experiment.data, experiment.settings.data
    loaders = {
        "train": _loader(experiment, data.train, settings.batch_size, settings.num_workers, train=True)
    }
    for split, given, own_settings in (
        ("valid", data.valid, settings.valid),
        ("test", data.test, settings.test),
    ):
        named = given if isinstance(given, Mapping) else {"": given}
        for name, dataset in named.items():
            if dataset is not None:
                batch_size = own_settings.batch_size or settings.batch_size
                workers = (
                    settings.num_workers if own_settings.num_workers is None else own_settings.num_workers
                )
                loaders[f"{split}/{name}" if name else split] = _loader(
                    experiment, dataset, batch_size, workers
                )
    return loaders


def _loader(
    experiment: Experiment, dataset: Any, batch_size: int, num_workers: int | str, *, train: bool = False
) -> Loader:
    settings = experiment.settings
    plan = BatchPlan(
        len(dataset),
        batch_size,
        seed=settings.seed,
        shuffle=train and settings.data.shuffle,
        drop_last=train and settings.data.drop_last,
    )
    # "auto" fetches inside the process until it can measure which is faster.
    workers = 0 if num_workers == "auto" else int(num_workers)
    return Loader(
        dataset,
        plan=plan,
        collate=experiment.data.collate,
        num_workers=workers,
        seed=settings.seed,
        pin_memory=experiment.runner.device.type == "cuda",
    )


def _stepper(experiment: Experiment, train: Loader, where: Where) -> Stepper:
    settings, runner = experiment.settings, experiment.runner
    accumulation = settings.gradient_accumulation_steps
    if type(runner).optimizers is not Runner.optimizers:
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
        return Stepper(given, accumulation=accumulation)
    steps_per_epoch = -(-len(train) // accumulation)
    total = until(settings).total_steps(steps_per_epoch)
    totals = {"steps_per_epoch": steps_per_epoch, **({"total_steps": total} if total < NEVER else {})}
    optimizers = build_optimizers(runner, settings.optimizers, totals=totals, where=where)
    return Stepper(optimizers, accumulation=accumulation)


def _hooks(
    settings: Settings, package: Package, stepper: Stepper, loaders: Mapping[str, Loader], session: int
) -> list[Hook]:
    records = own.Records(package.path / "records", settings.log_every, session=session)
    hooks: list[Hook] = [
        records,
        own.Save(settings.checkpoint.every),
        own.Console(),
        own.Unsaved(),
        own.Visualize(package.path / "media", settings.visualize_every),
    ]
    if any(optim.scheduler is not None for optim in stepper.optimizers.values()):
        hooks.append(own.Schedule())
    best = policy(settings).best
    if settings.test_at_end != "none" and _has(loaders, "test"):
        hooks.append(own.Test(records, best[0] if best and settings.test_at_end == "best" else None))
    if not _has(loaders, "valid"):
        _refuse_monitors(settings)
        return hooks
    hooks.append(own.Validate(settings.validate_every))
    if best:
        hooks.append(own.Best(best))
    stopping = settings.early_stopping
    if stopping is not None:
        hooks.append(
            own.EarlyStop(
                stopping.monitor, mode=stopping.mode, patience=stopping.patience, min_delta=stopping.min_delta
            )
        )
    return hooks


def _refuse_monitors(settings: Settings) -> None:
    """What decides by a validation needs one."""
    setting = "early_stopping" if settings.early_stopping is not None else "checkpoint.best"
    if settings.early_stopping is not None or settings.checkpoint.best:
        raise ContractError(
            "decides by a validation, and the Dataset gives no validation set",
            setting=setting,
            fix="return roost.Data(valid=...), or remove the setting",
        )
