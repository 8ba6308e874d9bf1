"""The trainer: the loop over steps, and the state that its hooks and parts share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from roost.package.checkpoints.checkpoint import Manifest
from roost.package.live_progress import ProgressFile
from roost.train.accelerators.registry import accelerator_of
from roost.train.agenda import Agenda
from roost.train.checkpointing.checkpointer import Checkpointer, StateToSave
from roost.train.checkpointing.checkpoints import Checkpoints, Stateful
from roost.train.checkpointing.late_copies import LateCopies
from roost.train.checkpointing.rank_state import RankState
from roost.train.data.batches import Batches, Interrupted
from roost.train.distributed import rank_consistency
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.distributed.shared_windows import SharedWindows
from roost.train.end_condition import EndCondition
from roost.train.evaluation import monitored_metrics
from roost.train.evaluation.split_evaluation import ProbedMetrics
from roost.train.evaluation.trainer_evaluation import Evaluator
from roost.train.events import Events
from roost.train.failures.recovery import Recovery, Rollback
from roost.train.failures.step_context import StepContext
from roost.train.hook import CallLists, Hook
from roost.train.inexact_reasons import InexactReasons
from roost.train.model.module_state import ModuleState
from roost.train.optim.weight_average import Average
from roost.train.progress import Progress
from roost.train.reporting.progress_publisher import ProgressPublisher
from roost.train.requests import TrainerRequests
from roost.train.step import precision, seeding
from roost.train.step.precision import Precision
from roost.train.step.stepper import Stepper
from roost.train.step.timing import VALIDATE
from roost.train.step.windows import Windows

_MIN_PUBLISH_SECONDS = 0.01
"""At most one publication in this time: no reader sees more, and a tiny step takes only 0.1 ms in all."""


class Trainer(TrainerRequests):
    """Trains a runner. Everything except the loop is a hook or a separate part.

    ```
    restore the newest checkpoint, or seed
    until done:
        window = the next micro-batches                 # Loader, in the order of its plan; or a Stream
        values = runner.update(stepper, window)         # forward, backward, optimizer step; or Recovery
        events.put(values)
        progress.advance(window)
        for hook in MODEL, SCHEDULE, EVAL, DECIDE, RECORD, SAVE, REPORT:
            hook, when due
    save
    ```

    Three ways out when this does not fit: override `Runner.update`, write a `Hook`, or write your own loop
    from the same parts (examples/plain_loop.py).

    Args:
        runner: The model with its loss and metrics; a torch module.
        loaders: "train", and "valid" or several "valid/<name>", and "test" or several "test/<name>".
        stepper: Takes the optimizer steps.
        hooks: Called in the order of their phases; within a phase in this order.
        checkpoints: Where to save. None: nothing is saved.
        until: The end: ``1000`` steps, ``"10ep"``, ``"90min"`` or an `EndCondition`.
        seed: The seed of every random number drawn during training.
        board: Where to publish the progress. None: it is not published.
        recovery: The policy for a failed step. None: a failed step ends the run.
        evaluation_precision: The precision of `evaluate`. None: that of the stepper.
        ranks: The ranks that train together.
        seed_mode: "per_rank": each rank draws its own random numbers in training; "same": all draw the same.
    """

    def __init__(
        self,
        runner: Any,
        loaders: Mapping[str, Batches],
        stepper: Stepper,
        *,
        hooks: Sequence[Hook] = (),
        checkpoints: Checkpoints | None = None,
        until: EndCondition | str | int,
        seed: int = 0,
        board: ProgressFile | None = None,
        recovery: Recovery | None = None,
        evaluation_precision: Precision | None = None,
        ranks: Ranks = ALONE,
        seed_mode: Literal["per_rank", "same"] = "per_rank",
    ) -> None:
        super().__init__(ranks)
        self.runner, self.loaders, self.stepper = runner, loaders, stepper
        self.seed, self.recovery = seed, recovery or Recovery()
        self.until = until if isinstance(until, EndCondition) else EndCondition.parse(until)
        self.progress, self.events = Progress(), Events(ranks)
        self.steps_per_epoch = self._windows_per_epoch()
        self.total_steps = self.progress.total_steps = self.until.total_steps(self.steps_per_epoch)
        self.progress.total_seconds = self.until.seconds or math.inf
        self.calls = CallLists(hooks)
        self.results: dict[str, float] = {}
        self._inexact = InexactReasons(ranks)
        self.row: dict[str, float] = {}
        self._last_finite: tuple[int, float] | None = None
        """The newest row of metrics."""
        self.averages: dict[str, Average] = {}
        """Averaged weights by name, evaluated in addition to the runner's own; their hooks add them here."""
        self.has_own_seed = seed_mode == "per_rank" and not ranks.is_main
        """Whether this rank draws its own random numbers in training."""
        self.agenda = self._new_agenda(self.total_steps)
        self.publisher = ProgressPublisher(board, steps_per_epoch=self.steps_per_epoch)
        self._clock_zero = self.clock()
        self._windows: Windows | None = None
        self.checkpointer = Checkpointer(
            checkpoints,
            ranks=ranks,
            timing=stepper.timing,
            late_copies=LateCopies(stepper.optimizers, self.averages),
            prepare=self._prepare_save,
            # Of the present agenda: `shorten` replaces it.
            drop_requests=lambda: self.agenda.drop_save_requests(),
            request_save=lambda: self.agenda.request("save"),
            on_save=self._call_on_save,
            publish=self.publish,
        )
        runner.attach(self)
        for one in loaders.values():
            # A rank reports a stop with its first window; before that it must not leave the others waiting.
            one.should_stop = lambda: (
                self.wants_to_stop and (self.agreement is None or self._windows is not None)
            )
        self.take_step = stepper.step_function(runner)
        """Takes one step: gets a window of micro-batches, returns the values to record."""
        self._evaluation_precision = evaluation_precision or stepper.precision

    def shorten(self, loaders: Mapping[str, Batches], *, steps: int, hooks: Sequence[Hook]) -> None:
        """Makes `fit`, which is called after this, take only ``steps`` steps, with other loaders and hooks.

        The values that the project reads (`total_steps`, `steps_per_epoch`, `progress.fraction`, schedules)
        remain those of the whole run.

        Args:
            loaders: Excerpts of the loaders; the intervals of hooks count their epochs.
            steps: In the last of them everything that has an interval is due.
            hooks: As for the trainer.
        """
        self.loaders, self.until, self.calls = loaders, EndCondition(steps=steps), CallLists(hooks)
        self.agenda = self._new_agenda(steps)

    def _windows_per_epoch(self) -> int:
        return -(-len(self.loaders["train"]) // self.stepper.batches_per_step)

    def _new_agenda(self, total_steps: int) -> Agenda:
        return Agenda(self.calls.step, steps_per_epoch=self._windows_per_epoch(), total_steps=total_steps)

    # ---- the loop ---------------------------------------------------------------------------------------

    def fit(self, *, checkpoint: int | None = None, resume: bool = True) -> str:
        """Trains to the end, from the newest good checkpoint.

        Args:
            checkpoint: The id of the checkpoint to continue from instead.
            resume: False: start from the beginning, even if there are checkpoints.

        Returns:
            "finished", or the reason given to `request_stop`; the run can then be continued.

        Raises:
            TrainingError: The loss or a weight is not finite.
            Exception: Any error of the runner, the data or a hook; nothing is saved after it.
        """
        with (
            suppress(Interrupted),
            self._running(checkpoint, resume),
            closing(self._make_windows()) as windows,
        ):
            self._windows = windows
            while True:
                try:
                    self.agenda.resume(self, self.clock())
                    self._after_hooks(self.clock())
                    with suppress(Interrupted):  # a stop while waiting for data: nothing of the step was done
                        self._train(windows)
                    self._save_at_end()
                    break
                except Rollback as bad:
                    step = bad.step
                windows.close()
                self.checkpointer.finish()
                self._roll_back(step)
        return self._reason()

    def _make_windows(self) -> Windows:
        parts = self.loaders["train"], self.runner.to_device, self.stepper, self.progress
        if self.agreement is None:
            return Windows(*parts)
        return SharedWindows(
            *parts,
            ranks=self.ranks,
            agreement=self.agreement,
            total_steps=self.total_steps,
            apply_decision=self.apply_verdict,
            note_inexact=self.note_inexact,
        )

    def _train(self, windows: Windows) -> None:
        """The loop over steps."""
        agenda, progress, clock, context = self.agenda, self.progress, self.clock, self.step_context
        while not self.at_end:
            for hook in self.calls.before_step:
                self.checkpointer.wait_until_copied()
                hook.before_step(self)
            self.results = {}  # in each step: a stop may come at any moment and save at once
            self.stepper.has_stepped = False
            self.events.begin_step()
            values, drawn = self.recovery.attempt(context, windows, self.take_step)
            self.events.put(values, drawn.num_samples, progress.step + 1)
            progress.advance(drawn.num_batches, drawn.all_samples, drawn.last)
            progress.empty_batches += drawn.num_empty
            if progress.step >= agenda.wake_step or agenda.requests or clock() >= agenda.wake_second:
                self._run_due_work()

    @property
    def step_context(self) -> StepContext:
        """The parts of this trainer that `recovery` and its reports need."""
        return StepContext(
            runner=self.runner,
            loader=self.loaders["train"],
            stepper=self.stepper,
            progress=self.progress,
            steps_per_epoch=self.steps_per_epoch,
            ranks=self.ranks,
            checkpoints=self.checkpoints,
            inexact=self.inexact,
            note_inexact=self.note_inexact,
            last_finite=self._last_finite,
            parts=self.parts,
        )

    def _roll_back(self, step: int) -> None:
        """Returns to the newest good checkpoint before ``step``, which is not finite, to skip its window."""
        rank = self._rank_state()
        line = self.recovery.roll_back(self.step_context, step, lambda id: self._load(rank, id))
        self.handle_rollback()
        rank.restore()  # last, because the hooks may have drawn random numbers
        self.recovery.begin(self.stepper)
        print(line, flush=True)

    def handle_rollback(self) -> None:
        """Sets the clock back after the state of a checkpoint was restored, and calls `on_rollback`."""
        self._clock_zero = self.clock() - self.progress.seconds
        self._finished = self.ended_early = False
        for hook in self.calls.rollback:
            hook.on_rollback(self)

    # ---- hooks after a step -----------------------------------------------------------------------------

    def _run_due_work(self) -> None:
        """Does the work that is not due in every step: publishing, checking for the end, running hooks."""
        now = self.clock()
        self.progress.seconds = now - self._clock_zero
        self._finished = self._finished or self.until.reached(self.progress)
        self.publish("training")
        self.checkpointer.poll()
        self.agenda.run(self, now, self.agenda.calls)
        self._after_hooks(now)

    def _after_hooks(self, now: float) -> None:
        self.has_unfinished_step = self.has_unfinished_step or bool(self.agenda.pending)
        self.agenda.set_alarm(
            now, at_latest=_MIN_PUBLISH_SECONDS, end=self._clock_zero + self.progress.total_seconds
        )

    # ---- evaluation -------------------------------------------------------------------------------------

    def autocast(self) -> AbstractContextManager[object]:
        """Returns a context for a forward pass that is not training; a new one each time, as they may
        nest."""
        return precision.autocast_context(self._evaluation_precision, self.runner.device)

    def evaluate(self, split: str = "valid") -> dict[str, float]:
        """Returns the metrics of a split by full name (``valid/loss``), averages included
        (``valid/ema/loss``).

        Random generators and the training mode are restored afterwards.

        Raises:
            Interrupted: A stop was requested during the evaluation.
            ConfigError: There is no such split.
        """
        phase = "testing" if split == "test" else "validating"

        def should_stop() -> bool:
            self.publish(phase)  # at each batch, so that the evaluation does not look like a stall
            return self.wants_to_stop

        self.checkpointer.wait_until_copied()  # before an average replaces the weights
        started = perf_counter()
        evaluator = self._evaluator()
        results = evaluator.evaluate(split, step=self.progress.step, should_stop=should_stop)
        if evaluator.skips is not None:  # only now: an evaluation that was interrupted is repeated
            self.recovery.num_skipped = evaluator.skips.num_skipped
        self.stepper.timing.spent[VALIDATE] += perf_counter() - started
        return results

    def probe(self, split: str) -> ProbedMetrics:
        """Returns the names of the metrics that `evaluate` will return, from one batch of each set. Prints a
        line for each value that is no metric.

        Raises:
            ContractError: ``Runner.evaluate`` does not return a mapping of tensors.
        """
        return self._evaluator().probe(split)

    def _evaluator(self) -> Evaluator:
        return Evaluator(
            runner=self.runner,
            loaders=self.loaders,
            averages=self.averages,
            ranks=self.ranks,
            seed=self.seed,
            autocast=self.autocast,
            skips=self.recovery.skipped_batches(self.step_context),
            evaluation_function=lambda name: self.stepper.evaluation_function(
                self.runner, name, self.note_inexact
            ),
        )

    def validate(self) -> dict[str, float]:
        """Evaluates "valid" and calls `on_eval`; the results belong to this step's row and checkpoint."""
        found = self.evaluate("valid")
        self.results = monitored_metrics.with_row_values(
            found,
            self.calls.monitors(self),
            events=self.events,
            stepper=self.stepper,
            progress=self.progress,
        )
        self.agenda.request("record")
        for hook in self.calls.eval:
            hook.on_eval(self, self.results)
        return self.results

    # ---- checkpoints ------------------------------------------------------------------------------------

    def parts(self, rank_state: RankState | None = None) -> dict[str, Stateful]:
        """Returns everything that a checkpoint holds of this rank, by name.

        Args:
            rank_state: The state of this rank alone, for a caller that restores it after loading.
        """
        rank_state = rank_state or self._rank_state()
        return {
            "model": ModuleState(self.runner),
            "optimizers": self.stepper,
            "trainer": self,
            rank_state.name: rank_state,
        }

    def _rank_state(self) -> RankState:
        return RankState(self.ranks, self.events, own_seed=self.seed if self.has_own_seed else None)

    @property
    def checkpoints(self) -> Checkpoints | None:
        """Where this trainer saves and from where it continues; None: nothing is saved."""
        return self.checkpointer.checkpoints

    @checkpoints.setter
    def checkpoints(self, checkpoints: Checkpoints | None) -> None:
        self.checkpointer.checkpoints = checkpoints

    @property
    def newest_checkpoint(self) -> Manifest | None:
        """The checkpoint that was saved or loaded last; None if there is none."""
        return self.checkpoints.newest if self.checkpoints is not None else None

    def save(self, reason: str, *, scheduled: int | None = None) -> bool:
        """Saves now; see `Checkpointer.save`. The first save and the last one of a session are committed when
        this returns; others are written while training continues."""
        return self.checkpointer.save(reason, scheduled=scheduled, is_last=self.at_end)

    def _prepare_save(self) -> StateToSave:
        """Checks that the state may be saved, calls `before_save`, and returns the state."""
        self.recovery.check_before_save(self.step_context, self.events)
        self.stepper.check()
        for hook in self.calls.before_save:
            hook.before_save(self)
        is_unfinished = bool(self.agenda.pending)  # if so, this step's results and held save come later
        return StateToSave(
            parts=self.parts(),
            progress=self.progress,
            held=self.requested("hold") and not is_unfinished,
            metrics={} if is_unfinished else self.results,
            inexact=self.inexact,
        )

    def _call_on_save(self, path: Path) -> None:
        for hook in self.calls.save:
            hook.on_save(self, path)

    def _save_at_end(self) -> None:
        """Saves the final state of the run, unless a checkpoint of exactly that state is committed."""
        self.recovery.check_steps(self.step_context)  # also without hooks that cut rows or save
        self.checkpointer.finish()
        newest = self.newest_checkpoint
        is_saved = newest is not None and newest.step == self.progress.step and not self.agenda.pending
        if self.progress.step and not is_saved:
            self.save("final" if self.finished else "signal")

    def _load(self, rank: RankState, id: int | None) -> list[str]:
        """Loads a checkpoint into all parts, ``rank`` among them; see `RankState.load_checkpoint`."""
        assert self.checkpoints is not None
        return rank.load_checkpoint(self.checkpoints, self.parts(rank), id=id)

    def state_dict(self) -> dict[str, Any]:
        """Returns progress, the open window of events, and the state of every hook by name."""
        return {
            "progress": self.progress.state_dict(),
            "events": self.events.state_dict(),
            "hooks": {hook.name: hook.state_dict() for hook in self.calls.with_state},
            "inexact": self.inexact,
            "agenda": self.agenda.state_dict(),
            "row": self.row,
            "recovery": self.recovery.state_dict(),
            "data": (self._windows.state_of_data if self._windows else self.loaders["train"].state_dict)(),
            "workers": {name: one.num_shards for name, one in self.loaders.items() if one.num_shards},
            # A stop may come between a validation and the row that takes its results.
            "results": self.results if self.agenda.pending else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        self.progress.load_state_dict(state["progress"])
        self.events.load_state_dict(state["events"])
        for hook in self.calls.with_state:
            if hook.name in state["hooks"]:
                hook.load_state_dict(state["hooks"][hook.name])
        self.agenda.load_state_dict(state["agenda"])
        self.row, self.results = state["row"], state["results"]
        if "recovery" in state:
            self.recovery.load_state_dict(state["recovery"])
        for name, num_shards in state.get("workers", {}).items():
            if name in self.loaders:
                self.loaders[name].keep_num_shards(num_shards)
        self.loaders["train"].load_state_dict(state.get("data", {}))
        self._inexact.load(state["inexact"])

    @property
    def inexact(self) -> list[str]:
        """Why the run cannot be repeated bit for bit; the reasons of earlier sessions first."""
        return self._inexact.texts

    def note_inexact(self, reason: str) -> None:
        """Prints once, and records, why the run cannot be repeated bit for bit."""
        self._inexact.note(reason)

    @contextmanager
    def _running(self, checkpoint: int | None, resume: bool) -> Iterator[None]:
        """Restores or seeds the state; calls `on_start`, and `on_stop` however the run ends."""
        device = self.runner.device
        accelerator_of(device).set_current(device)  # its generator is the one that checkpoints hold
        own = [self.ranks.rank] if self.has_own_seed else []
        seeding.seed_all(seeding.mix(self.seed, "train", *own))
        self.runner.train()
        rank = self._rank_state()
        if self.checkpoints is not None and resume:
            for line in self._load(rank, checkpoint):
                print(line, flush=True)
        self.publish("starting")  # after the load: never at step 0 while the run is at a later one
        self._clock_zero = self.clock() - self.progress.seconds
        self._finished = self.until.reached(self.progress)
        failure: BaseException | None = None
        try:
            if self.ranks.are_several:
                rank_consistency.require_same_training(
                    self.runner, self.loaders, self.stepper.optimizers, self.ranks
                )
            for hook in self.calls.start:
                hook.on_start(self)
            of_model = accelerator_of(device).inexact_reasons(self.runner)
            for reason in [*of_model, *self.loaders["train"].inexact_reasons()]:
                self.note_inexact(reason)
            if self.recovery.on_non_finite == "rollback" and self.checkpoints and not self.checkpoints.newest:
                self.save("start")  # otherwise there would be nothing to return to
            for why in rank.restore():  # last: undoes all random draws made up to here
                self.note_inexact(why)
            self.recovery.begin(self.stepper)
            self.stepper.timing.begin(self.progress.step, self.progress.samples)
            self.checkpointer.begin()
            if self.checkpoints is not None:
                self.stepper.before_optimizer_step = self.checkpointer.before_optimizer_step
            yield
        except Interrupted:  # a stop during the preparation
            raise
        except BaseException as error:
            failure = error
            raise
        finally:
            self.stepper.before_optimizer_step = None
            self._end_session(failure)

    def _end_session(self, failure: BaseException | None) -> None:
        """Calls `on_stop` of every hook, even if another one fails; raises the first of their errors."""
        self.has_failed = failure is not None
        reason = self._reason() if failure is None else f"{type(failure).__name__}: {failure}"
        errors = []
        ends: list[Callable[[], object]] = [
            self.checkpointer.finish if failure is None else self.checkpointer.finish_after_failure
        ]
        ends += [partial(hook.on_stop, self, reason) for hook in self.calls.stop]
        for end in ends:
            try:
                end()
            except Exception as error:  # noqa: BLE001  - raised below, after all were called
                errors.append(error)
        for loader in self.loaders.values():  # last: a hook may evaluate at the end
            loader.close()
        self.publish("ended")
        if errors and failure is None:
            raise errors[0]

    # ---- reporting --------------------------------------------------------------------------------------

    def report_row(self, row: dict[str, float]) -> None:
        """Takes a new row of metrics and requests a report."""
        self.row = row
        if math.isfinite(loss := row.get("train/loss", math.nan)):
            self._last_finite = (self.progress.step, loss)
        self.agenda.request("report")

    def publish(self, phase: str) -> None:
        """Updates the progress record with the phase of the run (see `roost.package.live_progress`)."""
        self.publisher.publish(self.progress, phase)

    def plan(self) -> str:
        """Returns a table of the hooks: one line per hook, in calling order."""
        return self.calls.table()
