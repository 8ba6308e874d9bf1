"""The stepper: precision, accumulation, clipping, several optimizers and compilation of a step."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.config.step_modes import STEP_MODES, StepMode
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.distributed.replicas import BufferSync
from roost.train.evaluation.test_function import own_test
from roost.train.events import Value
from roost.train.optim.optimizer import Optim
from roost.train.step import loss as losses
from roost.train.step import precision as numbers
from roost.train.step.compilation import CompiledFunctions, EvaluationFunction, exclude_log
from roost.train.step.gradients import Gradients, LossTarget
from roost.train.step.loss import LossFunction
from roost.train.step.nonfinite_check import NonfiniteGuard, host_waits, step_unless
from roost.train.step.precision import Precision
from roost.train.step.timing import OPTIMIZER, Timing


class Stepper:
    """Takes optimizer steps; the same in a Trainer and in a hand-written loop.

    ```
    for batch in batches:
        optimizer.zero_grad()
        with autocast:
            loss = fn(batch)
        scaler.scale(loss).backward()
        clip_grad_norm_(parameters, max_grad_norm)
        optimizer.step()
    ```

    Args:
        optimizers: One optimizer, or several by name; a torch optimizer or an `Optim`.
        accumulation: Micro-batches per step. It only sets `batches_per_step`; `run` uses all batches it gets.
        precision: Precision of forward and backward: 32, "bf16" or "fp16".
        mode: "eager"; "compile": loss functions and `Runner.evaluate` are compiled by torch.compile;
            "no_optim": no optimizer takes a step; "dry": a step only takes its batches.
        compile_dynamic: In mode compile: one kernel for all shapes of batches, instead of one for each.
        guard: Skips steps whose loss or gradient is not finite. None: no step is skipped.
        ranks: The ranks that take each step together; the gradient is that of all their batches.
        reduces_gradients: Whether their gradients are summed here; a sharded model does that itself.
        agrees_on_failures: Whether the ranks exchange failures before they sum the gradients.
        loss_wrapper: Called with each loss function and its arguments; a sharded model gathers its weights
            around the call.
    """

    before_optimizer_step: Callable[[], None] | None = None
    """Called before an optimizer changes weights: a save that is copying the state waits here. Set by
    `Trainer.fit`."""

    def __init__(
        self,
        optimizers: torch.optim.Optimizer | Optim | Mapping[str, torch.optim.Optimizer | Optim],
        *,
        accumulation: int = 1,
        precision: Precision = 32,
        mode: StepMode = "eager",
        compile_dynamic: bool = False,
        guard: NonfiniteGuard | None = None,
        ranks: Ranks = ALONE,
        reduces_gradients: bool = True,
        agrees_on_failures: bool = False,
        loss_wrapper: Callable[..., Any] | None = None,
    ) -> None:
        if mode not in STEP_MODES:
            raise ContractError("the mode is unknown", received=mode, fix=f"use {', '.join(STEP_MODES)}")
        if accumulation < 1:
            raise ContractError(
                "a step takes at least one batch", received=accumulation, fix="accumulation=1"
            )
        named = optimizers if isinstance(optimizers, Mapping) else {"main": optimizers}
        self.optimizers = {n: o if isinstance(o, Optim) else Optim(o) for n, o in named.items()}
        self.every_optimizer = tuple(self.optimizers)
        self.batches_per_step, self.mode, self.guard = accumulation, mode, guard
        self.precision = precision
        self.has_stepped = False
        """Whether an optimizer has begun to change weights; the loop resets it before each step."""
        device = next((p.device for o in self.optimizers.values() for p in o.parameters), torch.device("cpu"))
        self.timing = Timing(device)
        self._scales = precision == "fp16"
        self.gradients = Gradients(
            self.timing,
            device=device,
            autocast=numbers.autocast_context(precision, device) if precision != 32 else None,
            scales=self._scales,
            ranks=ranks,
            reduces_gradients=reduces_gradients,
            agrees_on_failures=agrees_on_failures,
            before_waiting=self._before_optimizer_step,
        )
        self._ranks, self._loss_wrapper = ranks, loss_wrapper
        self._buffers: BufferSync | None = None
        """The buffers of the runner, to be synchronised between ranks."""
        for optim in self.optimizers.values():
            optim.scaler = numbers.make_scaler(precision, device)
            if optim.needs_closure:
                checks_step = guard is not None and guard.checks_step
                _check_closure(optim, keeps_back=self._scales or checks_step, ranks=ranks)
        for line in host_waits(
            self.optimizers, scales=self._scales, checks_step=guard is not None and guard.checks_step
        ):
            if device.type != "cpu":
                print(line, flush=True)
        self._compile_dynamic = compile_dynamic
        self._compiled = self._compiled_functions(mode)
        self._targets: dict[str | tuple[str, ...], LossTarget] = {}
        self._kept_back: list[Tensor] | None = None
        """() for each `run` of a runner's step: whether it was skipped; None outside `step_function`."""

    def variant(self, *, mode: StepMode | None = None, accumulation: int | None = None) -> Stepper:
        """Returns a stepper with the same optimizers that takes its steps in another mode, or over windows of
        another length. What is None remains."""
        other = copy.copy(self)
        other.mode = mode or self.mode
        other.batches_per_step = accumulation or self.batches_per_step
        other._compiled, other._targets = other._compiled_functions(other.mode), {}
        return other

    def _compiled_functions(self, mode: StepMode) -> CompiledFunctions | None:
        return CompiledFunctions(dynamic=self._compile_dynamic) if STEP_MODES[mode].compiles else None

    # ---- called by a loop -------------------------------------------------------------------------------

    def step_function(self, runner: Any) -> Callable[[Sequence[Any]], Mapping[str, Value]]:
        """Returns the step function of a runner: gets a window of micro-batches, returns values to record."""
        if not STEP_MODES[self.mode].computes:
            return _take_no_step
        if self._compiled is not None:
            exclude_log(runner)
        if self._ranks.are_several:
            self._buffers = BufferSync(runner, self._ranks)
        return functools.partial(self._update, runner)

    def _update(self, runner: Any, batches: Sequence[Any]) -> Mapping[str, Value]:
        """Takes a step of a runner; it counts as skipped if one of its optimizers was skipped.

        Raises:
            ContractError: `Runner.update` takes no step, or returns nothing that can be recorded.
        """
        kept_back: list[Tensor] = []
        self._kept_back = kept_back
        values: Mapping[str, Value] = runner.update(self, batches)
        if type(values) is not dict or not self._targets:
            losses.check_update(values, has_run=bool(self._targets))
        if self._buffers is not None:
            self._buffers.synchronize()
        return {**values, "skipped": torch.stack(kept_back).amax()} if kept_back else values

    def evaluation_function(
        self, runner: Any, name: str, note_inexact: Callable[[str], object]
    ) -> EvaluationFunction:
        """Returns ``Runner.evaluate`` in this mode; of a test set the runner's own `test`, if it has one,
        which is not compiled: a search loops as long as its data demands.

        Args:
            runner: The runner.
            name: The name of the evaluated set; each has separate limits.
            note_inexact: Called with a reason why the run is inexact from now on.
        """
        if name.partition("/")[0] == "test" and (own := own_test(runner)) is not None:
            return own
        evaluate: EvaluationFunction = runner.evaluate
        return evaluate if self._compiled is None else self._compiled.evaluation(evaluate, name, note_inexact)

    def run(
        self, fn: LossFunction, batches: Sequence[Any], *, optimizer: str | tuple[str, ...] = "main"
    ) -> dict[str, Value]:
        """Takes one step of one optimizer, or of several on one loss, over a window of micro-batches.

        The gradient is that of the weighted mean over the whole window, even if micro-batches differ in size.

        Args:
            fn: Returns the loss of a batch, or a mapping with "loss" (the mean over the batch), optionally
                "weight" (default: the number of samples), and other values to record.
            batches: One or more micro-batches.
            optimizer: The optimizer that takes the step; several names: they take it together.

        Returns:
            Detached tensors: "loss" ("<optimizer>_loss" for an optimizer other than main), the other values,
            and "grad_norm" if gradients are clipped; "weight" if the loss function returned it, and always
            for several micro-batches; "skipped" (1 or 0) if a guard or a scaler can skip the step. No value
            is read back to the host. Empty, without any computation, if no optimizer is due
            (``every_n_steps``).

        Raises:
            ContractError: ``fn`` does not return a trainable loss, or there is no such optimizer.
        """
        target = self._targets.get(optimizer) or self._new_target(optimizer)
        due = target.optims
        if not target.steps_every_time:
            due = {prefix: optim for prefix, optim in due.items() if optim.is_due()}
            if not due:
                return {}
        if self._compiled is not None:
            fn = self._compiled.get(fn)
        if self._loss_wrapper is not None:
            fn = functools.partial(self._loss_wrapper, fn)
        if self.guard is not None:
            self.guard.begin()
        if self._needs_closure(due):
            return self._run_closure(fn, batches, target)
        values = self.gradients.compute(fn, batches, target)
        self._before_optimizer_step()
        started = perf_counter()
        if STEP_MODES[self.mode].trains:
            self._step_optimizers(due, values, target)
        self.timing.end_part(OPTIMIZER, started)
        return values

    # ---- optimizer steps --------------------------------------------------------------------------------

    def _before_optimizer_step(self) -> None:
        # With several ranks, called before they wait for each other: a rank that fails meanwhile waits for
        # the checkpoint of all ranks, and so for the copy that runs concurrently with this rank's step.
        if self.before_optimizer_step is not None:
            self.before_optimizer_step()

    def _step_optimizers(
        self, due: Mapping[str, Optim], values: dict[str, Value], target: LossTarget
    ) -> None:
        """Unscales and clips the gradients, and takes the optimizers' steps, unless the step is bad."""
        scaler = target.scaler if self._scales else None
        for prefix, optim in due.items():
            if scaler is not None:
                scaler.unscale_(optim.optimizer)
            if optim.max_grad_norm is not None:
                values[f"{prefix}grad_norm"] = optim.clip()
        bad, loss = None, values[target.loss_name]
        if self.guard is not None and self.guard.checks_step:
            # In fp16 the scaler handles non-finite gradients: it tries a smaller scale.
            sizes = [] if scaler else [_gradient_size(optim, values, prefix) for prefix, optim in due.items()]
            bad = self.guard.check(self.gradients.loss_of_all(loss), sizes)
            if scaler is not None:
                numbers.skip_where(scaler, due.values(), bad)
        self.has_stepped = True
        for optim in due.values():
            if optim.has_scaled_rates:
                with optim.scaled_rates():
                    _step_optimizer(optim, scaler, bad)
            else:
                _step_optimizer(optim, scaler, bad)
        if scaler is not None and (overflows := numbers.overflows(scaler, due.values())) is not None:
            scaler.update()
            if bad is None:
                # The gradients of a non-finite loss are not an overflow; a smaller scale does not help.
                overflows = overflows * torch.as_tensor(loss).isfinite()
            self._note_skipped(values, overflows)
        elif bad is not None:
            self._note_skipped(values, bad.float())

    def _note_skipped(self, values: dict[str, Value], skipped: Tensor) -> None:
        values["skipped"] = skipped
        if self._kept_back is not None:
            self._kept_back.append(skipped)

    def _needs_closure(self, due: Mapping[str, Optim]) -> bool:
        return any(optim.needs_closure for optim in due.values()) and STEP_MODES[self.mode].trains

    def _run_closure(self, fn: LossFunction, batches: Sequence[Any], target: LossTarget) -> dict[str, Value]:
        """Takes a step of an optimizer that evaluates the loss itself; the first evaluation is recorded. Each
        evaluation reads the loss, a synchronisation."""
        if len(target.optims) > 1:
            named = ", ".join(type(optim.optimizer).__name__ for optim in target.optims.values())
            raise ContractError(
                f"of several optimizers on one loss ({named}) one evaluates the loss itself",
                fix="run them one after the other in Runner.update",
            )
        [(prefix, optim)] = target.optims.items()
        found: dict[str, Value] = {}

        def closure() -> Value:
            if self.timing.device is not None:
                self.timing.device.record(OPTIMIZER)  # the work of the optimizer since the last evaluation
            values = self.gradients.compute(fn, batches, target)
            if optim.max_grad_norm is not None:
                values[f"{prefix}grad_norm"] = optim.clip()
            found.update({name: value for name, value in values.items() if name not in found})
            return values[target.loss_name]

        self._before_optimizer_step()
        self.has_stepped = True
        started, evaluated = perf_counter(), sum(self.timing.spent)
        with optim.scaled_rates():
            optim.optimizer.step(closure)  # type: ignore[arg-type]
        self.timing.end_part(OPTIMIZER, started + sum(self.timing.spent) - evaluated)
        return found

    # ---- names ------------------------------------------------------------------------------------------

    def _new_target(self, optimizer: str | tuple[str, ...]) -> LossTarget:
        names = (optimizer,) if isinstance(optimizer, str) else optimizer
        missing = [name for name in names if name not in self.optimizers]
        if missing or not names:
            have = ", ".join(self.optimizers)
            raise ContractError(
                f"there is no optimizer {missing[0] if missing else ''!r}; there are: {have}",
                fix='name one of them, as in stepper.run(self.loss, batches, optimizer="...")',
            )
        is_own = isinstance(optimizer, str) and optimizer != "main"
        prefixes = [f"{name}_" if is_own or len(names) > 1 else "" for name in names]
        optims = {p: self.optimizers[name] for p, name in zip(prefixes, names, strict=True)}
        always = all(optim.every_n_steps == 1 for optim in optims.values())
        made = LossTarget(optims, f"{optimizer}_loss" if is_own else "loss", always)
        return self._targets.setdefault(optimizer, made)

    def unused(self) -> list[str]:
        """Returns the names of optimizers without a step so far; empty before the first step."""
        used = {id(optim) for target in self._targets.values() for optim in target.optims.values()}
        return [
            name
            for name, optim in self.optimizers.items()
            # With a state, the project itself has called its step.
            if used and id(optim) not in used and not optim.optimizer.state
        ]

    # ---- state ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Checks that steps are not all skipped; for saves.

        Raises:
            TrainingError: In fp16 all further steps will be skipped.
        """
        for name, optim in self.optimizers.items():
            if optim.scaler is not None:
                numbers.check_scale(optim.scaler, name)

    def state_dict(self) -> dict[str, Any]:
        """Returns the states of optimizers, schedulers and loss scalers, by name."""
        return {name: optim.state_dict() for name, optim in self.optimizers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`."""
        for name, optim in self.optimizers.items():
            optim.load_state_dict(state[name])


def _check_closure(optim: Optim, *, keeps_back: bool, ranks: Ranks) -> None:
    """Refuses several ranks and skipped steps for an optimizer that evaluates the loss itself."""
    kind = type(optim.optimizer).__name__
    if keeps_back:
        raise ContractError(
            f"{kind} evaluates the loss itself, so roost can neither scale the loss nor skip the step",
            fix="use precision: 32 or bf16, and on_non_finite: stop",
        )
    if ranks.are_several:
        raise ContractError(
            f"{kind} evaluates the loss itself, and other ranks would not know how often",
            fix="train in one process, or take another optimizer",
        )


def _take_no_step(batches: Sequence[Any]) -> Mapping[str, Value]:
    return {}


def _gradient_size(optim: Optim, values: Mapping[str, Value], prefix: str) -> Tensor:
    """Returns () a number that is finite if and only if the gradients are; their norm if already known."""
    norm = values.get(f"{prefix}grad_norm")
    return norm if isinstance(norm, Tensor) else optim.gradient_norm(float("inf"))


def _step_optimizer(optim: Optim, scaler: torch.amp.GradScaler | None, bad: Tensor | None) -> None:
    if scaler is not None:
        numbers.scaled_step(scaler, optim)
    elif bad is not None:
        step_unless(bad, optim)
    else:
        optim.take_step()
