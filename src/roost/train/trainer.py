"""The loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from typing import Any, Literal

from roost.package.live_progress import ProgressFile
from roost.train.agenda import Agenda
from roost.train.checkpointing import rank_state
from roost.train.checkpointing.async_save import CheckpointSaver
from roost.train.checkpointing.checkpoints import Checkpoints, Stateful
from roost.train.checkpointing.rank_state import RankState
from roost.train.data.batches import Batches, Interrupted
from roost.train.distributed import rank_consistency
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.distributed.shared_windows import SharedWindows
from roost.train.end_condition import EndCondition
from roost.train.evaluation import trainer_evaluation
from roost.train.events import Events
from roost.train.failures.recovery import Recovery, Rollback
from roost.train.hook import CallLists, Hook
from roost.train.model.module_state import ModuleState
from roost.train.optim.weight_average import Average
from roost.train.progress import Progress
from roost.train.reporting.progress_publisher import ProgressPublisher
from roost.train.requests import TrainerRequests
from roost.train.step import precision, seeding
from roost.train.step.precision import Precision
from roost.train.step.stepper import Stepper
from roost.train.step.windows import Windows

_MIN_PUBLISH_SECONDS = 0.01
"""Steps shorter than this are not all published: no reader can tell, and a tiny step is 0.1 ms in all."""


class Trainer(TrainerRequests):
    """Trains a runner; everything but the loop is a hook or a part of its own.

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
        checkpoints: Where to save; nothing is saved when None.
        until: The end: ``1000`` steps, ``"10ep"``, ``"90min"`` or an `EndCondition`.
        seed: Of everything drawn during training.
        board: Where to publish the progress; nowhere when None.
        recovery: What a step that fails does; the run ends by it when None.
        evaluation_precision: Numbers of `evaluate`; those of the stepper when None.
        ranks: Who trains together.
        seed_mode: Whether each rank draws its own random numbers in training, or all draw the same.
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
        self.checkpoints, self.seed = checkpoints, seed
        self.recovery = recovery or Recovery()
        self.until = until if isinstance(until, EndCondition) else EndCondition.parse(until)
        self.progress, self.events = Progress(), Events(ranks)
        self.steps_per_epoch = -(-len(loaders["train"]) // stepper.batches_per_step)
        self.total_steps = self.progress.total_steps = self.until.total_steps(self.steps_per_epoch)
        self.progress.total_seconds = self.until.seconds or math.inf
        self.calls = CallLists(hooks)
        self.results: dict[str, float] = {}
        self.inexact: list[str] = []
        self._printed_inexact: set[str] = set()
        self.row: dict[str, float] = {}
        """The newest row of metrics."""
        self.averages: dict[str, Average] = {}
        """Averaged weights by name, evaluated beside the runner's own; their hooks put them here."""
        self.has_own_seed = seed_mode == "per_rank" and not ranks.is_main
        """Whether this rank draws random numbers of its own in training."""
        self.agenda = Agenda(
            self.calls.step, steps_per_epoch=self.steps_per_epoch, total_steps=self.total_steps
        )
        self.publisher = ProgressPublisher(board, steps_per_epoch=self.steps_per_epoch)
        self._clock_zero = self.clock()
        self._windows: Windows | None = None
        self.saves = CheckpointSaver(self)
        runner.attach(self)
        for one in loaders.values():
            # With its first window a rank tells the others; before it must not leave them waiting.
            one.should_stop = lambda: (
                self.wants_to_stop and (self.agreement is None or self._windows is not None)
            )
        self.take_step = stepper.step_function(runner)
        """Takes one step; a window of micro-batches in, what is recorded out."""
        self._evaluation_precision = evaluation_precision or stepper.precision

    # ---- the loop ---------------------------------------------------------------------------------------

    def fit(self, *, checkpoint: int | None = None, resume: bool = True) -> str:
        """Trains to the end, from the newest good checkpoint on.

        Args:
            checkpoint: Go on from this one instead.
            resume: When False, begin at the beginning whatever checkpoints there are.

        Returns:
            "finished", or the reason given to `request_stop`; then the run may be continued.

        Raises:
            TrainingError: The loss or a weight is not finite.
            Exception: Whatever the runner, the data or a hook raises; nothing is saved then.
        """
        made = Windows(self) if self.agreement is None else SharedWindows(self, self.agreement)
        with suppress(Interrupted), self._running(checkpoint, resume), closing(made) as windows:
            self._windows = windows
            while True:
                try:
                    self.agenda.resume(self, self.clock())
                    self._after_hooks(self.clock())
                    with suppress(Interrupted):  # while it waited for data: nothing of the step was done
                        self._train(windows)
                    self.saves.save_at_end()
                    break
                except Rollback as bad:
                    step = bad.step
                windows.close()
                self.saves.finish()
                self.recovery.roll_back(self, step)
        return self._reason()

    def _train(self, windows: Windows) -> None:
        """The loop."""
        agenda, progress, clock = self.agenda, self.progress, self.clock
        while not self.at_end:
            for hook in self.calls.before_step:
                self.saves.copied()
                hook.before_step(self)
            self.results = {}  # each step, because a stop may come at any moment and save at once
            self.stepper.has_moved = False
            values, drawn = self.recovery.attempt(self, windows)
            self.events.put(values, drawn.num_samples, progress.step + 1)
            progress.advance(drawn.num_batches, drawn.all_samples, drawn.last)
            progress.empty_batches += drawn.num_empty
            if progress.step >= agenda.wake_step or agenda.requests or clock() >= agenda.wake_second:
                self._run_due_work()

    def handle_rollback(self) -> None:
        """Tells the clock, and whoever counts, that the state is that of a checkpoint again."""
        self._clock_zero = self.clock() - self.progress.seconds
        self._finished = self.ended_early = False
        for hook in self.calls.rollback:
            hook.on_rollback(self)

    # ---- hooks after a step -----------------------------------------------------------------------------

    def _run_due_work(self) -> None:
        """What need not be done every step: publishing, looking for the end, hooks that are due."""
        now = self.clock()
        self.progress.seconds = now - self._clock_zero
        self._finished = self._finished or self.until.reached(self.progress)
        self.publish("training")
        self.saves.look()
        self.agenda.run(self, now, self.agenda.calls)
        self._after_hooks(now)

    def _after_hooks(self, now: float) -> None:
        self.has_unfinished_step = self.has_unfinished_step or bool(self.agenda.pending)
        self.agenda.set_alarm(
            now, at_latest=_MIN_PUBLISH_SECONDS, end=self._clock_zero + self.progress.total_seconds
        )

    # ---- evaluation -------------------------------------------------------------------------------------

    def autocast(self) -> AbstractContextManager[object]:
        """Entered around each forward pass that is no training; a new one, as one may lie inside another."""
        return precision.autocast_context(self._evaluation_precision, self.runner.device)

    def evaluate(self, split: str = "valid") -> dict[str, float]:
        """Metrics of a split by full name (``valid/loss``), and of its averages (``valid/ema/loss``); leaves
        every random generator and the training mode as they were. See
        `roost.train.evaluation.trainer_evaluation`.

        Raises:
            Interrupted: A stop was requested meanwhile.
            ConfigError: There is no such split.
        """
        return trainer_evaluation.evaluate(self, split)

    def probe(self, split: str) -> set[str] | None:
        """The metrics that `evaluate` will give, from one batch of each set; None when only the whole split
        can tell. Values that become no metric are said.

        Raises:
            ContractError: ``Runner.evaluate`` gives something else than it must.
        """
        return trainer_evaluation.probe_split(self, split)

    def validate(self) -> dict[str, float]:
        """Evaluates "valid" and tells the hooks; the results belong to this step's row and checkpoint."""
        return trainer_evaluation.validate(self)

    # ---- checkpoints ------------------------------------------------------------------------------------

    def parts(self, rank_state: RankState | None = None) -> dict[str, Stateful]:
        """All that a checkpoint holds of this rank, by name.

        Args:
            own: What belongs to this rank alone; for whoever restores it after loading.
        """
        rank_state = rank_state or RankState(self)
        return {
            "model": ModuleState(self.runner),
            "optimizers": self.stepper,
            "trainer": self,
            rank_state.name: rank_state,
        }

    def save(self, reason: str, *, scheduled: int | None = None) -> bool:
        """Saves now; see `roost.train.checkpointing.async_save`."""
        return self.saves.save(reason, scheduled=scheduled)

    def state_dict(self) -> dict[str, Any]:
        """Progress, the open window of events, and every hook by name."""
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
        """Takes over what `state_dict` gave."""
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
        # What was so in earlier sessions need not be so now: that is said in one line, and kept.
        earlier = [reason for reason in state["inexact"] if reason not in self.inexact]
        if earlier and self.ranks.is_main:
            print(f"inexact in earlier sessions: {'; '.join(earlier)}", flush=True)
        self.inexact = list(dict.fromkeys([*state["inexact"], *self.inexact]))

    def note_inexact(self, reason: str) -> None:
        """Says once, and records, why the run cannot be repeated bit for bit."""
        if reason not in self.inexact:
            self.inexact.append(reason)
        if reason not in self._printed_inexact:
            self._printed_inexact.add(reason)
            if self.ranks.is_main:
                print(f"inexact: {reason}", flush=True)

    @contextmanager
    def _running(self, checkpoint: int | None, resume: bool) -> Iterator[None]:
        """Restores or seeds, and tells the hooks of the start and of the end, whatever it is."""
        self.publish("starting")
        own = [self.ranks.rank] if self.has_own_seed else []
        seeding.seed_all(seeding.mix(self.seed, "train", *own))
        self.runner.train()
        rank = RankState(self)
        if self.checkpoints is not None and resume:
            for line in rank_state.load(self, self.checkpoints, rank, id=checkpoint):
                print(line, flush=True)
        self._clock_zero = self.clock() - self.progress.seconds
        self._finished = self.until.reached(self.progress)
        failure: BaseException | None = None
        try:
            if self.ranks.are_several:
                rank_consistency.require_same_training(self)
            for hook in self.calls.start:
                hook.on_start(self)
            for reason in self.loaders["train"].inexact_reasons():
                self.note_inexact(reason)
            self.recovery.prepare(self)
            for why in rank.restore():  # last: whatever was drawn on the way here is undone
                self.note_inexact(why)
            self.recovery.begin(self)
            self.stepper.timing.begin(self.progress.step, self.progress.samples)
            self.saves.begin()
            yield
        except Interrupted:  # a stop, while all this was prepared
            raise
        except BaseException as error:
            failure = error
            raise
        finally:
            self._end_session(failure)

    def _end_session(self, failure: BaseException | None) -> None:
        """Every hook hears of the end, whatever another one does; the first error is the one that counts."""
        self.has_failed = failure is not None
        reason = self._reason() if failure is None else f"{type(failure).__name__}: {failure}"
        errors = []
        ends: list[Callable[[], object]] = [self.saves.finish if failure is None else self.saves.leave]
        ends += [partial(hook.on_stop, self, reason) for hook in self.calls.stop]
        for end in ends:
            try:
                end()
            except Exception as error:  # noqa: BLE001  - raised below, once all were told
                errors.append(error)
        for loader in self.loaders.values():  # not before: a hook may evaluate at the end
            loader.close()
        self.publish("ended")
        if errors and failure is None:
            raise errors[0]

    # ---- telling ----------------------------------------------------------------------------------------

    def report_row(self, row: dict[str, float]) -> None:
        """Takes a row that was cut, for those who report."""
        self.row = row
        self.agenda.request("report")

    def publish(self, phase: str) -> None:
        """Tells the world that the run is in this phase (see `roost.package.live_progress`)."""
        self.publisher.publish(self.progress, phase)

    def plan(self) -> str:
        """Which hook is called when: a table, one line per hook in calling order."""
        return self.calls.table()
