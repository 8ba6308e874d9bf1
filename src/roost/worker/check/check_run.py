"""The check of a run: every stage of it, with two steps instead of thousands."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any

import msgspec
import torch
from torch.nn.parameter import is_lazy

from roost.base.errors import RoostError
from roost.base.interval import NEVER
from roost.base.system import cpu_wait
from roost.base.text.durations import format_short_duration
from roost.base.text.word_list import join_names
from roost.config.sections.mirrors import MirrorSettings
from roost.config.step_modes import STEP_MODES
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from roost.package.project_preflight import format_classes
from roost.package.results import skipped_steps
from roost.package.setting_locations import setting_locations
from roost.project import data_loaders, native_project, trainer_assembly
from roost.project.contract import Data, Runner
from roost.project.device_choice import choose_device
from roost.project.native_project import Experiment
from roost.train import hooks
from roost.train.accelerators.registry import accelerator_of
from roost.train.data.batches import Batches
from roost.train.data.loader import Loader
from roost.train.hook import Hook
from roost.train.hooks.console import unused_optimizers
from roost.train.mirrors.mirror_kinds import enabled_mirrors
from roost.train.model import peak_gpu_memory
from roost.train.step import timing
from roost.train.trainer import Trainer
from roost.worker import failure_report, torch_settings
from roost.worker.check.resume_comparison import ReloadComparison, fingerprints
from roost.worker.check.short_run import all_optimizers_due, shorten
from roost.worker.check.speed_measurement import (
    evaluation_seconds,
    step_seconds,
    step_seconds_on_one_thread,
)
from roost.worker.check.stage_hooks import StageHooks, describe_value
from roost.worker.check.stages import StageReporter, output_suppressed

_STEPS = 2
_MIN_SPEEDUP = 1.5
"""One thread is proposed if it is so many times faster: the few steps that are measured vary."""
_SCHEDULE_SECONDS = 2.0


class CheckRun:
    """Runs every stage of a run once, and reports each::

        imports, the archives of the data, data, one sample of each set, model
        a trainer: first window of the epoch, row, save; last window, row, validation, best, save, test
        visualize
        some more steps, to measure their speed; the schedules, to their last step
        a new trainer that resumes the checkpoint: the same state, and the same bits after the next step

    Args:
        package: Package made for the check.
        request: Request of its session.
        reporter: Gets each stage; its stage "imports" has begun.
    """

    def __init__(self, package: PackageFolder, request: Mapping[str, Any], reporter: StageReporter) -> None:
        self._package, self._reporter = package, reporter
        self._where = setting_locations(package)
        self._device = choose_device(str(request["device"]))
        self._project = str(request["project"])
        self._stages = bool(request.get("stage"))
        self._values, self._settings = native_project.resolve_settings(package, self._project)
        torch_settings.apply(self._settings, device=self._device, first=None)

    def run(self) -> None:
        """Runs all stages.

        Raises:
            RoostError: The config or the project is wrong.
            Exception: An error of the project's code.
        """
        own = self._imports()
        self._stage()
        data = self._data()
        trainer = self._model(data, own)
        whole = trainer.loaders
        self._samples(whole)
        stage_hooks = self._run_shortened(trainer)
        self._warn_of_skipped()
        self._visualize(trainer)
        self._measure(trainer, whole)
        self._schedules(trainer)
        printed, inexact = set(trainer.inexact), [*trainer.inexact]
        del trainer, whole, own  # a GPU may be too small for two models
        gc.collect()
        accelerator_of(self._device).empty_cache()
        if stage_hooks.saved is not None:
            inexact += self._load(data, stage_hooks)
        for reason in dict.fromkeys(inexact):
            self._reporter.warn(f"inexact: {reason}", is_printed=reason in printed)
        self._reporter.record_measurements(
            peak_host_mb=round(timing.peak_mb(), 1), peak_gpu_mb=self._peak_gpu_mb()
        )

    # ---- building ---------------------------------------------------------------------------------------

    def _imports(self) -> list[Hook]:
        settings = self._settings
        native_project.dataset_class(settings, self._package.path, self._where)
        native_project.runner_class(settings, self._package.path, self._where)
        own = self._own_hooks()
        enabled_mirrors(settings.mirrors, where=self._where)
        self._reporter.done(format_classes(settings.runner, settings.dataset, *settings.hooks))
        return own

    def _stage(self) -> None:
        """Stages the archives of the data, if that takes seconds or is asked for."""
        if self._settings.data.stage is None:
            return
        self._reporter.begin("stage")
        staged = native_project.stage_data(self._package, self._project, only_small=not self._stages)
        found = [f"{one.num_files:,} files in {one.folder}" for one in staged.archives.values()]
        self._reporter.done("; ".join(found))
        self._values, self._settings = native_project.resolve_settings(
            self._package, self._project, staged=staged
        )

    def _own_hooks(self) -> list[Hook]:
        return native_project.project_hooks(self._settings, self._package.path, self._values, self._where)

    def _data(self) -> Data:
        self._reporter.begin("data")
        made = native_project.dataset_class(self._settings, self._package.path, self._where)
        data = native_project.build_data(made(self._values), self._settings)
        sizes = {
            name: data_loaders.format_set_size(one) for name, one in data_loaders.named_sets(data).items()
        }
        self._reporter.done(", ".join(f"{name} {size}" for name, size in sizes.items()))
        return data

    def _model(self, data: Data, own: list[Hook]) -> Trainer:
        self._reporter.begin("model")
        with self._reporter.recording_warnings():
            trainer = self._trainer(data, own, session=1)
        found = list(trainer.runner.parameters())
        sized = [p for p in found if not is_lazy(p)]
        more = f", and {len(found) - len(sized)} tensors sized by the first batch" * (len(sized) < len(found))
        total = sum(p.numel() for p in sized)
        self._reporter.done(f"{total:,} parameters on {trainer.runner.device}{more}")
        for reason in torch_settings.inexact_reasons(self._device):
            trainer.note_inexact(reason)
        return trainer

    def _trainer(self, data: Data, own: list[Hook], *, session: int) -> Trainer:
        """Builds a trainer as a session of a run does; the data are built only once."""
        # A check must not create runs on the servers of mirrors.
        settings = msgspec.structs.replace(self._settings, mirrors=MirrorSettings())
        made = native_project.runner_class(settings, self._package.path, self._where)
        runner = native_project.build_runner(
            made, self._values, settings, info=data.info, device=self._device
        )
        root, where = self._package.path, self._where
        native_project.initialize_weights(runner, settings, root, self._project, where, begins=session == 1)
        experiment = Experiment(runner, data, own, settings, root=root)
        # A black box would be of no use: the package is removed after the check.
        return trainer_assembly.assemble(experiment, self._package, session=session, has_black_box=False)

    def _samples(self, loaders: Mapping[str, Batches]) -> None:
        self._reporter.begin("samples")
        with output_suppressed():  # hides the lines about the number of workers, which is reported below
            found = {name: _describe_first_sample(loader) for name, loader in loaders.items()}
        workers = {name: loader.num_workers for name, loader in loaders.items() if loader.num_workers}
        texts = [f"{name} {sample}" for name, sample in found.items()]
        texts += [f"{name} by {number} worker{'s' * (number != 1)}" for name, number in workers.items()]
        self._reporter.done("; ".join(texts))

    # ---- the run ----------------------------------------------------------------------------------------

    def _run_shortened(self, trainer: Trainer) -> StageHooks:
        own = [hook for hook in trainer.calls.hooks if not type(hook).__module__.startswith("roost.")]
        steps = min(_STEPS, trainer.total_steps)
        stage_hooks = StageHooks(self._reporter, steps=steps, place=self._package.path)
        shorten(trainer, steps=steps, with_hooks=stage_hooks.hooks)
        self._reporter.begin("start")
        try:
            with all_optimizers_due(trainer.stepper, within=steps):
                reason = trainer.fit()
        except Exception as error:
            _note_shortened_summarize(error)
            raise
        self._reporter.drop()
        if own:
            self._reporter.report("hooks", ", ".join(hook.name for hook in own))
        if (step := trainer.progress.step) < steps:
            self._reporter.warn(f"the run ends after step {step}: {reason}")
        for text in unused_optimizers(trainer):
            self._reporter.warn(text)
        if trainer.checkpoints is not None and stage_hooks.saved is None:
            raise RoostError("no checkpoint could be written; the reason is printed above")
        if (newest := trainer.newest_checkpoint) is not None:
            seconds = self._reporter.seconds["save"] / (newest.id + 1)  # ids count saves
            self._reporter.record_measurements(save_seconds=seconds, checkpoint_bytes=newest.size_bytes)
        return stage_hooks

    def _visualize(self, trainer: Trainer) -> None:
        """Calls `Runner.visualize` once. Its failure does not end a run, so the check only warns of it."""
        is_own = type(trainer.runner).visualize is not Runner.visualize
        if not is_own or not STEP_MODES[self._settings.step_mode].trains:
            return
        self._reporter.begin("visualize")
        try:
            files = hooks.Visualize(self._package.path / "media").show(trainer)
        except Exception as error:  # noqa: BLE001  - reported; a run continues after it, too
            self._reporter.fail()
            self._reporter.warn("Runner.visualize() fails; the run continues without its pictures")
            failure_report.report(error, own=[self._package.path], package=self._package.path, file=None)
        else:
            self._reporter.done(", ".join(file.name for file in files) or "nothing")

    def _measure(self, trainer: Trainer, whole: Mapping[str, Batches]) -> None:
        """Measures the time of a step and of an evaluation, after the first steps have warmed up
        everything."""
        self._reporter.begin("speed")
        total = trainer.total_steps if trainer.total_steps < NEVER else None
        kinds = {"valid": hooks.Validate, "test": hooks.Test}
        seconds = {
            split: evaluation_seconds(trainer, whole, split)
            for split, kind in kinds.items()
            # A stopped trainer evaluates nothing more.
            if trainer.finished and trainer.calls.of_kind(kind)
        }
        step = step_seconds(trainer, whole["train"])
        on_one_thread = step_seconds_on_one_thread(trainer, whole["train"])
        self._reporter.done(f"{format_short_duration(step)} a step")
        if on_one_thread is not None and step > _MIN_SPEEDUP * on_one_thread:
            self._reporter.warn(
                f"threads=1 is faster: {format_short_duration(on_one_thread)} a step instead of "
                f"{format_short_duration(step)} ({cpu_wait.format_load()}); set threads: 1"
            )
        self._reporter.record_measurements(
            device=self._device,
            parameters=sum(p.numel() for p in trainer.runner.parameters()),
            steps_per_epoch=trainer.steps_per_epoch,
            total_steps=total,
            step_seconds=step,
            validate_seconds=seconds.get("valid", 0.0),
            test_seconds=seconds.get("test", 0.0),
        )

    def _schedules(self, trainer: Trainer) -> None:
        """Advances the schedules to the end of the run: a schedule may fail in its last step, after hours."""
        schedules, total = trainer.calls.of_kind(hooks.Schedule), trainer.total_steps
        if not schedules or total == NEVER:
            return
        self._reporter.begin("schedule")
        optimizers = {name: o for name, o in trainer.stepper.optimizers.items() if o.scheduler is not None}
        first = {name: optim.lr for name, optim in optimizers.items()}
        number = _advance_schedules(schedules[0], trainer)
        where = "" if number == total else f", up to step {number:,}"
        shown = [f"lr of {name} {first[name]:.3g} to {one.lr:.3g}" for name, one in optimizers.items()]
        self._reporter.done(", ".join(shown) + where)
        for name, optim in optimizers.items():
            if not math.isfinite(optim.lr) or optim.lr < 0:
                self._reporter.warn(f"the learning rate of {name} becomes {optim.lr}")

    # ---- resuming ---------------------------------------------------------------------------------------

    def _load(self, data: Data, stage_hooks: StageHooks) -> list[str]:
        """Builds everything again and resumes the checkpoint of the first step; returns the reasons why a
        continued run would be inexact."""
        assert stage_hooks.saved is not None
        self._reporter.begin("load")
        saved = fingerprints(checkpoint.read(self._package.store().path(stage_hooks.saved.id))[1])
        with output_suppressed():
            trainer = self._trainer(data, self._own_hooks(), session=2)
            after = {} if torch_settings.inexact_reasons(self._device) else stage_hooks.final_state
            comparison = ReloadComparison(saved, after)
            steps = min(_STEPS, trainer.total_steps)
            shorten(trainer, steps=steps, with_hooks=comparison.hooks)
            with all_optimizers_due(trainer.stepper, within=steps):
                trainer.fit(checkpoint=stage_hooks.saved.id)
        same = [
            *([] if comparison.not_restored else ["every bit as saved"]),
            *(["the next step gives the same bits"] if comparison.differing_after_step == [] else []),
        ]
        self._reporter.done(f"built again: {', '.join(same)}" if same else "built again")
        if comparison.not_restored:
            self._reporter.warn(
                f"after loading, these differ from the checkpoint: {join_names(comparison.not_restored)}"
            )
        elif comparison.differing_after_step:
            different = join_names(comparison.differing_after_step)
            self._reporter.warn(
                f"a continued run gives other bits: after one step {different}; "
                "some state that it computes with is in no checkpoint"
            )
        return trainer.inexact

    # ---- reporting --------------------------------------------------------------------------------------

    def _warn_of_skipped(self) -> None:
        skipped = skipped_steps.read(self._package.path / skipped_steps.NAME)
        if number := sum(one.is_step for one in skipped):
            self._reporter.warn(f"steps that were skipped, as the settings request: {number} of {_STEPS}")
        if batches := skipped_steps.format_counts([one for one in skipped if not one.is_step]):
            self._reporter.warn(f"{batches} in an evaluation, as the settings request")

    def _peak_gpu_mb(self) -> float | None:
        if not accelerator_of(self._device).reports_memory:
            return None
        return round(peak_gpu_memory.process_peak(torch.device(self._device)).reserved_mb, 1)


def _describe_first_sample(batches: Batches) -> str:
    """Describes a set's first sample, as a batch of one; for a loader that cannot give single samples, its
    first batch. A loader worker draws it if there are any."""
    has_samples = isinstance(batches, Loader) and not isinstance(batches.dataset, Mapping)
    batch = batches.first_samples(1) if has_samples else batches.first_batch()
    return describe_value(batch.value) if batch is not None else "nothing"


def _advance_schedules(schedule: hooks.Schedule, trainer: Trainer) -> int:
    """Advances the schedules as the remaining steps would; returns the last step for which there was time."""
    started, progress, per_epoch = perf_counter(), trainer.progress, trainer.steps_per_epoch
    for step in range(progress.step + 1, progress.total_steps + 1):
        if step % 1000 == 0 and perf_counter() - started > _SCHEDULE_SECONDS:
            return step
        try:
            schedule.on_step(trainer)
            if step % per_epoch == 0 and step // per_epoch > progress.epoch:
                schedule.on_epoch(trainer)
        except Exception as error:
            error.add_note(f"in step {step} of the run, to which the check moved the schedules")
            raise
    return progress.total_steps


def _note_shortened_summarize(error: BaseException) -> None:
    trace, names = error.__traceback__, []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    if "summarize" in names:
        error.add_note("the check gives summarize() only the first and the last batch of a set")
