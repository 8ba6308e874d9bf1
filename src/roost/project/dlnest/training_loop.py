"""The training loop of DLNest: epochs, steps, validation and saves, by the project's own decisions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError, PeerLost, TrainingError
from roost.package.live_progress import ProgressFile
from roost.package.sessions import INITIALIZED
from roost.project.contract import move_to_device
from roost.project.dlnest import run_state
from roost.project.dlnest.epoch_batches import END
from roost.project.dlnest.interval_alarm import IntervalAlarm
from roost.project.dlnest.project_loading import DlnestProject
from roost.project.dlnest.run_state import LoopPhase, RunState, SavedPart
from roost.train.checkpointing.checkpointer import Checkpointer, StateToSave
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.checkpointing.late_copies import LateCopies
from roost.train.data import loader_parts
from roost.train.data.batch_sizes import count_samples
from roost.train.data.batches import Interrupted
from roost.train.reporting.progress_publisher import ProgressPublisher
from roost.train.step import precision
from roost.train.step.timing import Timing

FINISHED = "finished"
_PUBLISH_SECONDS = 0.01
_FAILED = 2
"""What a rank that could not draw a batch sends to the others; 1 after the last batch, else 0."""


class TrainingLoop:
    """Trains a project of DLNest, and saves and resumes it at any step.

    ```
    BTrain
    do:
        BOneEpoch
        for each batch of the train loader:
            BModelOneStep, runOneStep, AModelOneStep
            BVisualize, visualize, AVisualize                           # if needVisualize
        commandLineOutput
        BValidation, validationInit, validateABatch …, AValidation      # if needValidation
        BSaveModel, a checkpoint, ASaveModel                            # the checkpoint if needSaveModel
        AOneEpoch
    while needContinueTrain
    ATrain
    ```

    A ``B`` method that returns "Skip" leaves out what is between it and its ``A`` method. A session that
    continues calls BTrain, and BOneEpoch if it continues within an epoch: they make the objects that the
    project needs. What they change is then undone: all state is loaded again, the random generators last.

    Args:
        project: The project, loaded.
        checkpoints: Where to save. None: nothing is saved.
        state: The parts of the checkpoint from which the run continues (`run_state.read`); None: it begins.
        was_finished: Whether the run had finished, and is to be trained at least one epoch more.
        initializes: Whether to save the state before the first step, and to end there.
        save_every: Also saves at this interval, or at several, within epochs.
        log_every: The interval of rows; one more is written at the end of each epoch.
        max_seconds: The training time after which the run is finished.
        precision: 32 or "bf16": autocast around ``runOneStep`` and the validation.
        seed: The seed, for ranks whose state no checkpoint has.
        seed_mode: See `Trainer`.
        records: The folder of the rows of all sessions; None: none are written.
        session: The number of the session.
        board: Where to publish the progress.
        hooks: Hooks that need no more of a trainer than this class has: `TimeLimit`, `Mirrors`, `CardLimit`.
    """

    def __init__(
        self,
        project: DlnestProject,
        *,
        checkpoints: Checkpoints | None = None,
        state: Mapping[str, dict[str, Any]] | None = None,
        was_finished: bool = False,
        initializes: bool = False,
        save_every: str | int | Sequence[str | int] = "never",
        log_every: str | int = "10/ep",
        max_seconds: float = math.inf,
        precision: Any = 32,
        seed: int = 0,
        seed_mode: str = "per_rank",
        records: Path | None = None,
        session: int = 0,
        board: ProgressFile | None = None,
        hooks: Sequence[Any] = (),
    ) -> None:
        self.project, self.ranks = project, project.ranks
        self.state = RunState(
            project, saved=state, was_finished=was_finished, seed=seed, has_own_seed=seed_mode == "per_rank"
        )
        self.progress, self._rows = self.state.progress, self.state.rows
        self.has_failed = False
        self._initializes = initializes
        given = [save_every] if isinstance(save_every, str | int) else save_every
        self._save_alarms = [IntervalAlarm(one, setting="roost.checkpoint.every") for one in given]
        self._row_alarm = IntervalAlarm(log_every, setting="roost.log_every")
        self._max_seconds, self._precision = max_seconds, precision
        self._records, self._session, self._hooks = records, session, list(hooks)
        self._stop_reason: str | None = None
        self._save_requested = self._holds = self._has_said_empty = False
        self._is_saved = state is not None
        """Whether a checkpoint leads to exactly this state."""
        self._frozen: dict[str, SavedPart] | None = None
        """The state before the validation that is running."""
        self._device = torch.device(project.device)
        self._num_batches = self.state.batches.length or 0
        self.publisher = ProgressPublisher(board, steps_per_epoch=self._num_batches)
        loader_parts.disable_persistent_workers(project.valid_loader, "the validation loader")
        loader_parts.link_worker_processes(project.valid_loader)  # `validate` may iterate it
        self._checkpointer = Checkpointer(
            checkpoints,
            ranks=self.ranks,
            timing=Timing(),
            late_copies=LateCopies({}, {}),
            prepare=self._prepare_save,
            drop_requests=lambda: None,
            request_save=lambda: None,
            on_save=lambda path: None,
            publish=self.publish,
        )
        self._begun_at = time.monotonic()
        self._wake_batch, self._wake_second = 0, 0.0
        """`_after_step` is called from this batch of the epoch on, or from this time on."""

    # ---- requests -----------------------------------------------------------------------------------------

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Where this loop saves."""
        return self._checkpointer.checkpoints

    @property
    def finished(self) -> bool:
        """Whether the training has reached its end."""
        return self.state.finished

    @property
    def wants_to_stop(self) -> bool:
        """Whether a stop was requested."""
        return self._stop_reason is not None

    def request_stop(self, reason: str) -> None:
        """Saves and ends the session after the current step; called by a signal or another thread."""
        self._stop_reason = self._stop_reason or reason
        self._wake_second = 0.0

    def request_save(self) -> None:
        """Saves after the current step; may be called from any thread."""
        self._save_requested = True
        self._wake_second = 0.0

    def note_inexact(self, reason: str) -> None:
        """See `InexactReasons.note`."""
        self.state.inexact.note(reason)

    def publish(self, phase: str) -> None:
        """Updates the progress record."""
        self.progress.seconds = time.monotonic() - self._begun_at
        self.publisher.publish(self.progress, phase)

    # ---- the loop -----------------------------------------------------------------------------------------

    def run(self) -> str:
        """Trains to the end, or until it is stopped.

        Returns:
            "finished", or the reason given to `request_stop`; the run can then be continued.

        Raises:
            BaseException: An error of the project, after its ``trainAborting`` was called; nothing is saved.
        """
        failure: BaseException | None = None
        try:
            self._begin()
            with suppress(Interrupted):
                self._train()
        except (Exception, SystemExit) as error:
            failure = error
            self._abort(error)
            raise
        finally:
            self._end_session(failure)
        return FINISHED if self.state.finished else str(self._stop_reason)

    def _train(self) -> None:
        calls = self.project.calls
        if self.state.finished:
            return
        if calls.before("BTrain"):
            self.state.restore()
            self._schedule(time.monotonic())
            if self._initializes:
                self._initialize()
            try:
                self._train_epochs()
            except Interrupted:
                if not self.state.finished:
                    raise
        self.state.finished = True
        if not self._is_saved and self.progress.step:
            self._save("final", is_last=True)
        calls.after("ATrain")

    def _initialize(self) -> None:
        self._save("start")
        if not self._is_saved:
            raise TrainingError(
                "step 0 could not be saved; the reason is printed above",
                fix="make space, then start it again",
            )
        self.request_stop(INITIALIZED)

    def _train_epochs(self) -> None:
        project = self.project
        self.state.finished = self._is_time_over()
        while not self.state.finished:
            self._stop_if_requested()
            self._run_epoch()
            goes_on = self.project.calls.decide(
                "needContinueTrain", self.state.epoch, project.log, project.args
            )
            self._rows.collect("train")
            self._rows.write(self.progress)
            self.state.finished = not (goes_on or self.state.must_train)
            self.state.must_train = False

    def _run_epoch(self) -> None:
        """Runs one epoch, or the rest of the epoch from which the session continues."""
        first, calls = self.state.phase, self.project.calls
        if first is LoopPhase.EPOCH:
            self.state.epoch = self.progress.epoch
            self.state.show()
            self.publish("training")
            if not calls.before("BOneEpoch"):
                calls.after("AOneEpoch")
                return
            self._begin_pass()
        validates = first is LoopPhase.VALIDATION
        if first <= LoopPhase.STEP:
            self._train_batches()
            validates = self._end_batches()
        if validates:
            self._validate()
        if first <= LoopPhase.VALIDATION:
            self._save_model()
        self.state.phase = LoopPhase.EPOCH  # from now on; a checkpoint that was saved has the phase SAVED
        calls.after("ASaveModel")
        calls.after("AOneEpoch")

    def _begin_pass(self) -> None:
        self.state.phase, self._rows.results = LoopPhase.STEP, {}
        self.state.batches.begin(epoch=self.state.epoch if self.ranks.are_several else None)
        self._schedule(time.monotonic())

    def _train_batches(self) -> None:
        project, progress, status = self.project, self.progress, self.project.status
        log, args, epoch, calls = project.log, project.args, self.state.epoch, project.calls
        before = calls.before if calls.defines("BModelOneStep") else None
        after = calls.after if calls.defines("AModelOneStep") else None
        alone = not self.ranks.are_several
        draw = self.state.batches.draw if alone else self._draw
        needs_visualization = (
            project.life_cycle.needVisualize if alone else partial(calls.decide, "needVisualize")
        )
        run_one_step, clock = project.runner.runOneStep, time.monotonic
        autocast, on_cpu = self._autocast(), self._device.type == "cpu"
        while (batch := draw()) is not END:
            number = status.iter = progress.batch
            if before is None or before("BModelOneStep"):
                data = batch if on_cpu else move_to_device(batch, self._device)
                with autocast:
                    run_one_step(data, log, number, epoch)
                progress.step += 1
            if after is not None:
                after("AModelOneStep")
            progress.batch = number + 1
            first = batch[0] if type(batch) in (list, tuple) and batch else batch
            is_plain = type(first) is Tensor and first.ndim  # the usual batch; counting others takes 5 µs
            progress.samples += first.shape[0] if is_plain else count_samples(batch)
            self._is_saved = False
            if needs_visualization(epoch, number, log, args):
                self._visualize(number)
            if number >= self._wake_batch or clock() >= self._wake_second:
                self._after_step()
        self.state.batches.close()

    def _draw(self) -> Any:
        """Returns the next batch, or `END`; on all of several ranks."""
        try:
            batch = self.state.batches.draw()
        except Exception:
            with suppress(RuntimeError):  # the other ranks have ended
                self.ranks.control.exchange([_FAILED], self._point)
            raise
        states = [state for [state] in self.ranks.control.exchange([batch is END], self._point).wait()]
        if _FAILED in states:
            raise PeerLost(f"rank {states.index(_FAILED)} has failed to draw a batch")
        if len(set(states)) > 1:
            raise ContractError(
                f"rank {states.index(1)} has no more batches in this epoch, but rank {states.index(0)} has",
                fix="give every rank the same number of batches, such as by Dataset.getSampler()",
            )
        return batch

    def _visualize(self, number: int) -> None:
        project = self.project
        if self.ranks.is_main and project.calls.before("BVisualize", this_rank_only=True):
            project.runner.visualize(epoch=self.state.epoch, iter=number, log=project.log)
        project.calls.after("AVisualize")

    def _end_batches(self) -> bool:
        """Ends the training part of an epoch; returns whether to validate."""
        project, progress = self.project, self.progress
        if self.ranks.are_several:
            self.ranks.control.barrier(self._point)
        if not progress.batch and not self._has_said_empty and self.ranks.is_main:
            self._has_said_empty = True
            print(f"epoch {self.state.epoch} has no batches: the training loader gave none", flush=True)
        progress.epoch, progress.batch = self.state.epoch + 1, 0
        self._is_saved = False  # a save after the last step does not have what follows it
        self._rows.collect("train")
        project.life_cycle.commandLineOutput(self.state.epoch, project.log, project.args)
        self._report()
        for hook in self._hooks:
            hook.on_epoch(self)
        return self.project.calls.decide("needValidation", self.state.epoch, project.log, project.args)

    # ---- after a step -------------------------------------------------------------------------------------

    def _after_step(self) -> None:
        """Does what is not due in every step: publishing, rows, saves, the end."""
        now = time.monotonic()
        self.publish("training")
        is_last = self.progress.batch == self._num_batches  # the row of the epoch follows
        if self._row_alarm.is_due(self.progress, now) and not is_last:
            self._rows.collect("train")
            self._rows.write(self.progress)
            self._report()
        saves = self._save_requested or any(one.is_due(self.progress, now) for one in self._save_alarms)
        over, stops = self._is_time_over(), self.wants_to_stop
        if self.ranks.are_several:
            saves, over, stops = self._agree(saves, over, stops)
        self._schedule(now)
        if over:
            self.state.finished = True
            raise Interrupted
        if stops:
            self._stop()
        if saves:
            self._save("scheduled")

    def _schedule(self, now: float) -> None:
        """Sets when `_after_step` is called next."""
        alarms = [self._row_alarm, *self._save_alarms]
        for alarm in alarms:
            alarm.schedule(self.progress, self._num_batches, now)
        self._wake_second = min(now + _PUBLISH_SECONDS, *(alarm.second for alarm in alarms))
        # A batch may be skipped, but takes no more than one step.
        before = self.progress.step - self.progress.batch
        due = min(min(alarm.batch, alarm.step - before) for alarm in alarms)
        self._wake_batch = 0 if self.ranks.are_several else due - 1

    def _is_time_over(self) -> bool:
        return self.progress.seconds >= self._max_seconds

    def _stop_if_requested(self) -> None:
        """Ends the session here if a stop was requested; outside of a step."""
        [stops] = self._agree(self.wants_to_stop)
        if stops:
            self._stop()

    def _stop(self) -> None:
        """Saves, unless a checkpoint holds this state, and ends the session."""
        self._stop_reason = self._stop_reason or "another rank was requested to stop"
        if not self._is_saved and self.progress.step:
            self._save("signal", is_last=True)
        raise Interrupted

    # ---- ranks --------------------------------------------------------------------------------------------

    @property
    def _point(self) -> str:
        return f"step {self.progress.step}"

    def _agree(self, *flags: bool) -> list[bool]:
        """Returns the flags that are set on any rank."""
        if not self.ranks.are_several:
            return list(flags)
        every = self.ranks.control.exchange([int(one) for one in flags], self._point).wait()
        return [any(own) for own in zip(*every, strict=True)]

    # ---- validation ---------------------------------------------------------------------------------------

    def _validate(self) -> None:
        """Validates. A stop drops the validation and saves the state before it, so the next session begins it
        again. A project's own ``validate`` ends first, and so do several ranks, which need not have the same
        number of batches in it."""
        project, calls = self.project, self.project.calls
        is_one_call = hasattr(project.runner, "validate")
        self.state.phase = LoopPhase.VALIDATION
        self._rows.collect("train")
        if not (is_one_call or self.ranks.are_several or self.checkpoints is None):
            self._frozen = self._copied_parts()
        self.state.show(validating=True)
        self.publish("validating")
        if calls.before("BValidation"):
            with self._autocast():
                if is_one_call:
                    project.runner.validate(project.valid_loader, project.log)
                else:
                    self._validate_batches()
        calls.after("AValidation")
        self._frozen = None
        self._is_saved = False
        self._rows.collect("valid")
        self.state.show()
        for hook in self._hooks:
            hook.on_eval(self, self._rows.results)

    def _copied_parts(self) -> dict[str, SavedPart] | None:
        """Returns a copy of the state; None if an object of the project cannot be copied: then a stop waits
        for the end of the validation."""
        parts = self.state.parts()
        try:
            return {name: SavedPart(run_state.host_copy(one.state)) for name, one in parts.items()}
        except Exception as error:  # noqa: BLE001  - any error of an object of the project
            print(f"a validation is not interrupted, as the state cannot be copied: {error}", flush=True)
            return None

    def _validate_batches(self) -> None:
        project, calls = self.project, self.project.calls
        project.require_loader(project.valid_loader, "validation")
        project.runner.validationInit()
        iterator = iter(project.valid_loader)
        try:
            for number, batch in enumerate(iterator):
                project.status.iter = number
                if calls.before("BValidateABatch", this_rank_only=True):  # they need not have as many
                    project.runner.validateABatch(self._on_device(batch), number)
                calls.after("AValidateABatch")
                self.publish("validating")
                if self._frozen is not None and self.wants_to_stop:
                    self._stop()
        finally:
            loader_parts.shut_down(project.valid_loader, iterator)
        if calls.before("BValidationAnalyze"):
            project.runner.validationAnalyze(project.log)
        calls.after("AValidationAnalyze")

    def _autocast(self) -> AbstractContextManager[object]:
        return precision.autocast_context(self._precision, self._device)

    def _on_device(self, batch: Any) -> Any:
        return batch if self._device.type == "cpu" else move_to_device(batch, self._device)

    def _report(self) -> None:
        for hook in self._hooks:
            hook.on_step(self)

    # ---- saving -------------------------------------------------------------------------------------------

    def _save_model(self) -> None:
        """The project's own save, once an epoch: the only one that counts for the slow track."""
        project, is_main = self.project, self.ranks.is_main
        if self.ranks.are_several:
            self.ranks.control.barrier(self._point)
        goes_on = self._agree(is_main and project.calls.before("BSaveModel", this_rank_only=True))[0]
        arguments = self.state.epoch, project.log, project.args
        if goes_on and self.project.calls.decide("needSaveModel", *arguments):
            held = self.project.calls.decide("holdThisCheckpoint", *arguments)
            self._rows.collect("train")
            self._rows.write(self.progress)
            self.state.phase, number = LoopPhase.SAVED, self.state.num_scheduled
            self.state.num_scheduled += 1  # before the save, because the checkpoint has this count
            self._save("scheduled", held=held, scheduled=number)
            if self._is_saved:
                self._stop_if_requested()
        self.state.phase = LoopPhase.SAVED

    def _save(
        self, reason: str, *, held: bool = False, scheduled: int | None = None, is_last: bool = False
    ) -> None:
        self._save_requested, self._holds = False, held
        self.progress.seconds = time.monotonic() - self._begun_at
        if self._checkpointer.save(reason, scheduled=scheduled, is_last=is_last):
            self._is_saved = True

    def _prepare_save(self) -> StateToSave:
        for hook in self._hooks:
            hook.before_save(self)
        self._rows.sync()
        return StateToSave(
            parts=self._frozen or self.state.parts(),
            progress=self.progress,
            held=self._holds,
            metrics={} if self._frozen else self._rows.results,
            inexact=self.state.inexact.texts,
        )

    # ---- the beginning and the end of a session -----------------------------------------------------------

    def _begin(self) -> None:
        """Loads the position; opens the records; starts the hooks."""
        self._checkpointer.begin()
        self.state.load_position()
        self._begun_at = time.monotonic() - self.progress.seconds
        if self._records is not None:
            self._rows.begin(self._records, self._session, start_step=self.progress.step)
        if self._row_alarm.is_by_clock:
            self.note_inexact("wall clock: rows come at an interval of time")
        for hook in self._hooks:
            hook.on_start(self)

    def _abort(self, error: BaseException) -> None:
        """Lets the project know of the error that ends it; nothing is saved. The default of ``trainAborting``
        prints the traceback, which the worker does."""
        try:
            if self.project.calls.defines("trainAborting"):
                self.project.life_cycle.trainAborting(error)
        except Exception as other:  # noqa: BLE001  - the first error is reported
            error.add_note(f"trainAborting raised {type(other).__name__}: {other}")

    def _end_session(self, failure: BaseException | None) -> None:
        """Ends everything that was begun, even if one end fails; raises the first of their errors."""
        self.has_failed = failure is not None
        reason = (
            (FINISHED if self.state.finished else str(self._stop_reason))
            if failure is None
            else repr(failure)
        )
        ends: list[Callable[[], object]] = [
            self.state.batches.close,
            self._checkpointer.finish if failure is None else self._checkpointer.finish_after_failure,
            partial(self.project.calls.after, "AAll"),
            self._rows.close,
            *(partial(hook.on_stop, self, reason) for hook in self._hooks),
        ]
        errors = []
        for end in ends:
            try:
                end()
            except Exception as error:  # noqa: BLE001  - raised below, after all were called
                errors.append(error)
        self.publish("ended")
        if errors and failure is None:
            raise errors[0]
