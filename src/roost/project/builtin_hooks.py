"""The built-in hooks of a run, one function for each section of the settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roost.base.errors import ContractError
from roost.config.run_settings import RunSettings
from roost.config.settings import Settings
from roost.package.checkpoints.retention import policy_from_settings
from roost.package.package import PackageFolder
from roost.package.setting_locations import setting_locations
from roost.project.contract import Runner
from roost.train import hooks as own
from roost.train.data.batches import Batches
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.hook import Hook
from roost.train.mirrors.mirror_kinds import enabled_mirrors
from roost.train.mirrors.sink import RunIdentity
from roost.train.step.stepper import Stepper


def measurement_hooks(
    settings: Settings, package: PackageFolder, session: int, ranks: Ranks = ALONE
) -> list[Hook]:
    """Returns the hooks of a measurement (``step_mode: dry`` or ``no_optim``): nothing is validated or
    saved."""
    records = own.Records(package.path / "records", settings.log_every, session=session)
    if not ranks.is_main:
        return [records]
    said = "only the times are measured, nothing is validated or saved"
    print(f"step_mode {settings.step_mode}: {said}", flush=True)
    if settings.statistics is not None:
        print(f"statistics are not recorded: with step_mode {settings.step_mode} no weight moves", flush=True)
    return [records, own.Console(), *_profile(settings, package, session)]


def training_hooks(
    settings: Settings,
    package: PackageFolder,
    runner: Runner,
    stepper: Stepper,
    loaders: Mapping[str, Batches],
    session: int,
    ranks: Ranks = ALONE,
) -> list[Hook]:
    """Returns the hooks of a training; within a phase they are called in this order. Hooks without state that
    only print or mirror run on rank 0 alone.

    Raises:
        ContractError: A setting needs a validation set, and there is none.
    """
    records = own.Records(package.path / "records", settings.log_every, session=session)
    if ranks.is_main:
        _warn_unseen_pictures(settings, runner)
    return [
        records,
        own.Save(settings.checkpoint.every),
        *([own.Console(), own.Unsaved()] if ranks.is_main else []),
        own.Visualize(
            package.path / "media",
            None if settings.visualize_every == "never" else settings.visualize_every,
            samples=settings.visualize_samples,
        ),
        *(_profile(settings, package, session) if ranks.is_main else []),
        *_schedule(stepper),
        *_test(settings, loaders, records),
        *_validation(settings, stepper, loaders),
        *(mirror_hooks(settings, package) if ranks.is_main else []),
    ]


def _warn_unseen_pictures(settings: Settings, runner: Runner) -> None:
    """Warns when ``visualize_every`` is set without a `visualize`, or the other way round."""
    every, samples = settings.visualize_every, settings.visualize_samples
    if every is not None and type(runner).visualize is Runner.visualize:
        print(f"visualize_every is {every}, and the Runner has no visualize(): nothing is shown", flush=True)
    elif every is None and (samples is not None or getattr(settings.runner, "visualize", None) is not None):
        print("visualize_every is not set: visualize() is called where a hook asks for it alone", flush=True)


def averaging_hooks(settings: Settings) -> Iterator[Hook]:
    """Yields the hooks of averaged weights. They run after the project's hooks, which may change the weights
    in the same phase."""
    for name, one in settings.averages.items():
        yield own.Averaging(
            name,
            method=one.method,
            decay=one.decay,
            every=one.every,
            start=one.start,
            validate=one.validate,
        )


def statistics_hooks(settings: Settings, package: PackageFolder) -> Iterator[Hook]:
    """Yields the hook that records norms of gradients and weights; it runs after the project's hooks, like
    the averages."""
    asked = settings.statistics
    if asked is not None:
        yield own.Statistics(
            asked.every,
            asked.params,
            gradients=asked.gradients,
            weights=asked.weights,
            updates=asked.updates,
            histograms=package.path / "media" if asked.histograms else None,
            where=setting_locations(package),
        )


def _profile(settings: Settings, package: PackageFolder, session: int) -> Iterator[Hook]:
    asked = settings.profile
    if asked is not None:
        folder = package.path / "profile" / str(session)
        trace = own.Profile(
            folder,
            start_step=asked.start_step,
            steps=asked.steps,
            memory=asked.memory,
            stacks=asked.stacks,
        )
        yield trace
        yield own.SpeedProfile(folder, trace, seconds=asked.seconds, project=package.path, session=session)


def mirror_hooks(settings: RunSettings, package: PackageFolder) -> Iterator[Hook]:
    """Yields the hook of the mirrors, if any is on."""
    asked = enabled_mirrors(settings.mirrors, where=setting_locations(package))
    if asked:
        # Unresolved settings: values from environment variables must not leave this machine.
        identity = RunIdentity(
            name=package.path.name, project=package.project.name, settings=package.settings
        )
        yield own.Mirrors(package.path, asked, identity)


def _schedule(stepper: Stepper) -> Iterator[Hook]:
    if any(optim.scheduler is not None for optim in stepper.optimizers.values()):
        yield own.Schedule()


def _test(settings: Settings, loaders: Mapping[str, Batches], records: own.Records) -> Iterator[Hook]:
    best = policy_from_settings(settings.checkpoint).best
    if settings.test_at_end != "none" and _has(loaders, "test"):
        yield own.Test(records, best[0] if best and settings.test_at_end == "best" else None)


def _validation(settings: Settings, stepper: Stepper, loaders: Mapping[str, Batches]) -> Iterator[Hook]:
    """Yields the validation and the hooks that use its metrics."""
    if not _has(loaders, "valid"):
        _refuse_monitors(settings, stepper)
        return
    if settings.validate_every == "never":
        return
    yield own.Validate(settings.validate_every)
    if best := policy_from_settings(settings.checkpoint).best:
        yield own.Best(best)
    stopping = settings.early_stopping
    if stopping is not None:
        yield own.EarlyStop(
            stopping.monitor,
            mode=stopping.mode,
            patience=stopping.patience,
            min_delta=stopping.min_delta,
            min_delta_mode=stopping.min_delta_mode,
        )


def _has(loaders: Mapping[str, Batches], split: str) -> bool:
    return any(name.partition("/")[0] == split for name in loaders)


def _refuse_monitors(settings: Settings, stepper: Stepper) -> None:
    """Raises a ContractError if a setting needs a validation set."""
    deciding = [
        *(["early_stopping"] if settings.early_stopping is not None else []),
        *(["checkpoint.best"] if settings.checkpoint.best else []),
        *(
            f"optimizers.{name}.scheduler"
            for name, optim in stepper.optimizers.items()
            if optim.scheduler is not None and optim.unit == "validation"
        ),
    ]
    if deciding:
        raise ContractError(
            "needs a validation set, and the Dataset gives none",
            setting=deciding[0],
            fix="return roost.Data(valid=...), or remove the setting",
        )
