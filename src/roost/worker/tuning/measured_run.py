"""A run that is built to be measured: the rate of its steps with other settings."""

from __future__ import annotations

import dataclasses
import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from time import perf_counter
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from roost.base.exception_record import record_exception
from roost.config.sections.mirrors import MirrorSettings
from roost.config.settings import Settings
from roost.package.package import PackageFolder
from roost.package.setting_locations import setting_locations
from roost.project import data_loaders, native_project, trainer_assembly
from roost.project.contract import Data, Runner
from roost.project.native_project import Experiment
from roost.train.accelerators.registry import accelerator_of
from roost.train.data.batches import Batches
from roost.train.data.loader import Loader
from roost.train.data.workers.batch_codec import EncodedBatch
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.events import Value
from roost.train.step import seeding, timing
from roost.train.step.stepper import Stepper
from roost.train.step.windows import DrawnWindow, Windows
from roost.train.trainer import Trainer
from roost.worker.causes import memory_causes
from roost.worker.causes.cause import FailureContext
from roost.worker.check.stages import output_suppressed
from roost.worker.tuning.candidate_rounds import CandidateFailed, MeasuredBlock

_MIN_STEPS = 2
"""The fewest steps of a measurement; as many come before it, for what a first step does once."""
OUT_OF_MEMORY = "out of memory"


class MeasuredRun:
    """Builds a run as a session does, without checkpoints, rows and hooks, and measures its steps.

    All measurements train the same weights, from batch to batch of the set: a set that is read from a disk is
    not read from the memory of the system again and again. `restore` returns to the initial weights.

    Args:
        package: Package made for the measurements.
        settings: Its settings.
        values: The same as plain values.
        project: The project's folder.
        device: Where to train.
    """

    def __init__(
        self,
        package: PackageFolder,
        settings: Settings,
        values: Mapping[str, Any],
        *,
        project: str,
        device: str,
    ) -> None:
        self._package, self._values, self._device = package, values, device
        self._where = setting_locations(package)
        # Runs on the servers of mirrors are made for runs that remain.
        self.settings = msgspec.structs.replace(settings, mirrors=MirrorSettings())
        began = perf_counter()
        data = self._build_data()
        self.data = _training_part(data)
        self.build_seconds = perf_counter() - began
        """The time in which the sets were built."""
        made = native_project.runner_class(self.settings, package.path, self._where)
        self.runner = native_project.build_runner(
            made, values, self.settings, info=self.data.info, device=device
        )
        native_project.initialize_weights(
            self.runner, self.settings, package.path, project, self._where, begins=True
        )
        experiment = Experiment(self.runner, data, [], self.settings, root=package.path)
        self.trainer: Trainer = trainer_assembly.assemble(experiment, package, session=1, has_black_box=False)
        accelerator_of(self.runner.device).set_current(self.runner.device)
        seeding.seed_all(seeding.mix(settings.seed, "train"))
        self._recorded: Mapping[str, Value] = {}
        """The values of the newest step."""
        self._has_read_here = False
        """Whether the set was read in this process, so that it may have opened files, which loader workers
        would share."""
        self.accumulation = settings.gradient_accumulation_steps
        self.stepper = self.trainer.stepper
        """Takes the steps of all measurements, unless another one is given."""
        self.step_seconds = 0.0
        """The time of a step with its data, by the settings of the config."""
        self._used: dict[str, Any] = {}
        """Settings of ``data`` in place of those of the config."""
        self._initial: dict[str, Any] | None = None
        self._initial_rates = self._rates()

    def _build_data(self) -> Data:
        made = native_project.dataset_class(self.settings, self._package.path, self._where)
        with output_suppressed():
            return native_project.build_data(made(self._values), self.settings)

    # ---- state ------------------------------------------------------------------------------------------

    @property
    def has_lazy_weights(self) -> bool:
        """Whether the first batch decides on the sizes of some weights."""
        return any(is_lazy(parameter) for parameter in self.runner.parameters())

    @property
    def has_configured_optimizers(self) -> bool:
        """Whether the section ``optimizers`` makes the optimizers, not the project."""
        return type(self.runner).optimizers is Runner.optimizers and bool(self.settings.optimizers)

    @property
    def has_initial(self) -> bool:
        """Whether `keep_initial` was called."""
        return self._initial is not None

    def keep_initial(self) -> None:
        """Copies the weights to the host, for `restore`."""
        self._initial = {
            name: value.detach().to("cpu", copy=True) if isinstance(value, Tensor) else value
            for name, value in self.runner.state_dict().items()
        }

    def restore(self) -> None:
        """Returns to the weights of `keep_initial`, to optimizers without a state, and to the first batch."""
        assert self._initial is not None, "keep_initial was called"
        self.runner.load_state_dict(self._initial)
        for optim, rates in zip(self.trainer.stepper.optimizers.values(), self._initial_rates, strict=True):
            optim.optimizer.state.clear()
            for group, rate in zip(optim.optimizer.param_groups, rates, strict=True):
                group["lr"] = rate
        self._rewind()
        seeding.seed_all(seeding.mix(self.settings.seed, "train"))

    def _rates(self) -> list[list[Any]]:
        optimizers = self.trainer.stepper.optimizers.values()
        return [[group.get("lr") for group in optim.optimizer.param_groups] for optim in optimizers]

    def _rewind(self) -> None:
        progress = self.trainer.progress
        progress.step = progress.epoch = progress.batch = 0

    # ---- what is measured -------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Takes the first steps with the settings of the config, and measures `step_seconds`; ``auto``
        becomes a number of loader workers.

        Raises:
            Exception: Any error of the project.
        """
        loader = self.loader()
        self._used["num_workers"] = loader.num_workers or 0
        with self._windows(loader, None) as take:
            take()
            self._synchronize()
            began = perf_counter()
            take()
            take()
            self._synchronize()
            self.step_seconds = (perf_counter() - began) / 2

    def use(self, changes: Mapping[str, Any]) -> None:
        """Makes settings of ``data``, the accumulation or the step mode those of all later measurements.

        Args:
            changes: By dotted key.
        """
        for key, value in changes.items():
            section, _, name = key.rpartition(".")
            if section == "data":
                self._used[name] = value
            elif key == "gradient_accumulation_steps":
                self.accumulation = value
                self.stepper = self.stepper.variant(accumulation=value)
            elif key == "step_mode":
                self.stepper = self.stepper.variant(mode=value)

    def loader(self, *, accumulation: int | None = None, **data: Any) -> Batches:
        """Returns the loader of the training set with other settings of the section ``data``."""
        settings = msgspec.structs.replace(
            self.settings,
            data=msgspec.structs.replace(self.settings.data, **{**self._used, **data}),
            gradient_accumulation_steps=accumulation or self.accumulation,
        )
        train = self._build_loader(settings)
        if train.num_workers and self._has_read_here:
            self._has_read_here = False
            self.data = _training_part(self._build_data())
            train = self._build_loader(settings)
        self._has_read_here = self._has_read_here or not (train.num_workers or self.is_in_memory)
        return train

    def _build_loader(self, settings: Settings) -> Batches:
        with output_suppressed():
            train = data_loaders.build_loaders(
                self.data,
                settings,
                device=self.runner.device,
                batches_per_step=settings.gradient_accumulation_steps,
                where=self._where,
            )["train"]
            if isinstance(train, Loader):
                train.resolve_num_workers()
        return train

    @property
    def is_in_memory(self) -> bool:
        """Whether reading the set opens no file."""
        train = self.trainer.loaders["train"]
        return isinstance(train, Loader) and train.fetch.is_in_memory

    @functools.cached_property
    def batch_bytes(self) -> int:
        """The bytes of the first batch between two processes; 0 if it cannot be sent."""
        with closing(self.loader()) as loader:
            batch = loader.first_batch()
        try:
            return EncodedBatch(batch.value).end if batch is not None else 0
        except Exception:  # noqa: BLE001  - a batch of a loader of the user may hold anything
            return 0

    def block(self, loader: Batches, seconds: float, stepper: Stepper | None = None) -> MeasuredBlock:
        """Measures the rate of steps for about so many seconds, with their data.

        Loader workers answer in turn, so their batches come in bursts: a measurement begins after the first
        burst, and ends with one.

        Args:
            loader: From `loader`; its workers are started here and ended.
            seconds: Shorter than one burst: that one is measured.
            stepper: A variant of the trainer's; None: that itself.

        Raises:
            CandidateFailed: The memory does not suffice, or a loader worker died.
            Exception: Any other error of the project.
        """
        workers = max(1, loader.num_workers or 0)
        with self._failures(), self._windows(loader, stepper) as take:
            batches = steps = 0
            self._reset_peak()
            while steps < _MIN_STEPS or batches <= workers:
                batches += take().num_batches
                steps += 1
            self._synchronize()
            began = perf_counter()
            batches = steps = samples = 0
            while True:
                drawn = take()
                batches, steps, samples = batches + drawn.num_batches, steps + 1, samples + drawn.num_samples
                is_burst = batches % workers == 0 or drawn.num_batches > 1
                if steps >= _MIN_STEPS and is_burst and perf_counter() - began >= seconds:
                    break
            self._synchronize()
            return MeasuredBlock(samples / (perf_counter() - began), self._peak_mb())

    def ramp(
        self, loader: Batches, rates: Sequence[float], is_over: Callable[[Sequence[float]], bool]
    ) -> list[float]:
        """Takes a step with each learning rate of the first parameter group, the other groups in proportion;
        returns the losses. Each is read, a sync point.

        Args:
            loader: From `loader`.
            rates: Ascending.
            is_over: Whether the losses so far are enough.

        Raises:
            CandidateFailed: A step records no loss, the memory does not suffice, or a loader worker died.
        """
        (optim,) = self.trainer.stepper.optimizers.values()
        groups = optim.optimizer.param_groups
        shares = [float(group["lr"]) / float(groups[0]["lr"] or 1.0) for group in groups]
        losses: list[float] = []
        with self._failures(), self._windows(loader, None) as take:
            for rate in rates:
                for group, share in zip(groups, shares, strict=True):
                    _set_rate(group, rate * share)
                take()
                if "loss" not in self._recorded:
                    raise CandidateFailed("a step of Runner.update records no value named loss")
                losses.append(float(self._recorded["loss"]))
                if is_over(losses):
                    break
        return losses

    @contextmanager
    def _windows(self, loader: Batches, stepper: Stepper | None) -> Iterator[Callable[[], DrawnWindow]]:
        """Yields a function that takes one step as `Trainer.fit` does."""
        trainer, used = self.trainer, stepper or self.stepper
        progress, take_step = trainer.progress, used.step_function(self.runner)
        # Only a Loader begins anywhere at no cost; the position of another batch size may be none of this.
        if not isinstance(loader, Loader):
            self._rewind()
        elif progress.batch >= len(loader):
            progress.epoch, progress.batch = progress.epoch + 1, 0
        self.runner.train()
        with closing(loader), closing(Windows(loader, self.runner.to_device, used, progress)) as windows:

            def take() -> DrawnWindow:
                used.has_stepped = False
                trainer.events.begin_step()
                drawn = windows.draw()
                self._recorded = take_step(drawn.window) if drawn.window else {}
                progress.advance(drawn.num_batches, drawn.all_samples, drawn.last)
                return drawn

            with output_suppressed():
                yield take

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turns a lack of memory and the death of a loader worker into `CandidateFailed`."""
        reason = None
        try:
            yield
        except WorkerDied as error:
            reason = error.message
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            reason = OUT_OF_MEMORY
        if reason is None:
            return
        # Outside of the handler: the traceback would keep the tensors of the failed step.
        for optim in self.trainer.stepper.optimizers.values():
            optim.clear()
        gc.collect()
        accelerator_of(self.runner.device).empty_cache()
        raise CandidateFailed(reason)

    # ---- the device -------------------------------------------------------------------------------------

    def _synchronize(self) -> None:
        if self.runner.device.type != "cpu":
            accelerator_of(self.runner.device).synchronize()

    def _reset_peak(self) -> None:
        accelerator = accelerator_of(self.runner.device)
        if accelerator.reports_memory:
            accelerator.empty_cache()
            accelerator.reset_peaks(accelerator.current_index())

    def _peak_mb(self) -> float:
        accelerator = accelerator_of(self.runner.device)
        if accelerator.reports_memory:
            return accelerator.peak_reserved_bytes(accelerator.current_index()) / 2**20
        return timing.peak_mb()


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation on the device or on the host failed."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    record = record_exception(error)
    return any(rule(record, FailureContext()) is not None for rule in memory_causes.CAUSES)


def _training_part(data: Data) -> Data:
    """The data without the sets that no measurement reads. The trainer has them: settings such as
    ``early_stopping`` need a validation set."""
    return dataclasses.replace(data, valid=None, test=None)
