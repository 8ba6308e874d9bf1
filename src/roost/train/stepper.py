"""The seam for everything about a step: precision, accumulation, clipping, several optimizers, the mode."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.train import lean
from roost.train import loss as losses
from roost.train import precision as numbers
from roost.train.compiled import Kernels, keep_outside
from roost.train.events import Value
from roost.train.guard import Guard, move_unless, waits
from roost.train.loss import LossFunction
from roost.train.optim import Optim
from roost.train.precision import Precision
from roost.train.timing import BACKWARD, FORWARD, OPTIMIZER, Timing

Mode = Literal["eager", "compile", "cudagraph", "dry", "no_optim"]
_MODES = ("eager", "compile", "dry", "no_optim")
"""Those that there are: cudagraph has not been run on a GPU yet."""


class _Target(NamedTuple):
    """Optimizers that move on one loss."""

    optims: Mapping[str, Optim]
    """By the prefix of the names under which they record."""
    loss_name: str
    always: bool
    """Whether each of them moves in every step."""


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
        accumulation: Micro-batches per step; only `batches_per_step` uses it, `run` takes what it is given.
        precision: Numbers of forward and backward: 32, "bf16" or "fp16".
        mode: "eager"; "compile": loss functions go through torch.compile; "no_optim": no weight moves; "dry":
            a step only takes its batches.
        compile_dynamic: In mode compile: one kernel for all shapes of batches, instead of one for each.
        guard: Lets no step through whose loss or gradient is not finite; None: every step goes through.
    """

    def __init__(
        self,
        optimizers: torch.optim.Optimizer | Optim | Mapping[str, torch.optim.Optimizer | Optim],
        *,
        accumulation: int = 1,
        precision: Precision = 32,
        mode: Mode = "eager",
        compile_dynamic: bool = False,
        guard: Guard | None = None,
    ) -> None:
        if mode not in _MODES:
            raise ContractError("there is no such mode", received=mode, fix=f"use {', '.join(_MODES)}")
        if accumulation < 1:
            raise ContractError(
                "a step takes one batch at least", received=accumulation, fix="accumulation=1"
            )
        named = optimizers if isinstance(optimizers, Mapping) else {"main": optimizers}
        self.optimizers = {n: o if isinstance(o, Optim) else Optim(o) for n, o in named.items()}
        self.every_optimizer = tuple(self.optimizers)
        self.batches_per_step, self.mode, self.guard = accumulation, mode, guard
        self.precision = precision
        self.has_moved = False
        """Whether an optimizer has begun to move; whoever loops over steps sets it back before each."""
        device = next((p.device for o in self.optimizers.values() for p in o.parameters), torch.device("cpu"))
        self.timing = Timing(device)
        self._autocast = numbers.forward(precision, device) if precision != 32 else None
        self._scales = precision == "fp16"
        for optim in self.optimizers.values():
            optim.scaler = numbers.scaler(precision, device)
            if optim.needs_closure and (self._scales or (guard is not None and guard.looks)):
                raise ContractError(
                    f"{type(optim.optimizer).__name__} evaluates the loss by itself, so nobody can scale it "
                    "or keep its step back",
                    fix="use precision: 32 or bf16 and on_non_finite: stop with it",
                )
        for line in waits(self.optimizers, scales=self._scales, looks=guard is not None and guard.looks):
            if device.type != "cpu":
                print(line, flush=True)
        self._kernels = Kernels(dynamic=compile_dynamic) if mode == "compile" else None
        self._targets: dict[str | tuple[str, ...], _Target] = {}
        self._checked: set[str] = set()
        self._kept_back: list[Tensor] | None = None
        """() for each `run` of a runner's step: whether it was kept back; None where nobody asks."""

    # ---- what a loop calls ------------------------------------------------------------------------------

    def of(self, runner: Any) -> Callable[[Sequence[Any]], Mapping[str, Value]]:
        """The step of a runner: takes a window of micro-batches, gives what is recorded."""
        if self.mode == "dry":
            return _only_take
        if self._kernels is not None:
            keep_outside(runner)
        return functools.partial(self._update, runner)

    def _update(self, runner: Any, batches: Sequence[Any]) -> Mapping[str, Value]:
        """A step of a runner; it is skipped when one of its optimizers is kept back.

        Raises:
            ContractError: `Runner.update` takes no step, or gives nothing that can be recorded.
        """
        kept_back: list[Tensor] = []
        self._kept_back = kept_back
        values: Mapping[str, Value] = runner.update(self, batches)
        if type(values) is not dict or not self._targets:
            losses.check_update(values, has_run=bool(self._targets))
        return {**values, "skipped": torch.stack(kept_back).amax()} if kept_back else values

    def run(
        self, fn: LossFunction, batches: Sequence[Any], *, optimizer: str | tuple[str, ...] = "main"
    ) -> dict[str, Value]:
        """One step of one optimizer, or of several on one loss, over a window of micro-batches.

        The gradient is that of the weighted mean over the whole window, however unequal its micro-batches.

        Args:
            fn: Gives the loss of a batch, or a mapping with "loss" (its mean over the batch), optionally
                "weight" (samples when absent), and whatever else shall be recorded.
            batches: One or more micro-batches.
            optimizer: Which optimizer moves; with several names, those move together.

        Returns:
            Detached tensors: "loss" ("<optimizer>_loss" for one that is not main), the other values, and
            "grad_norm" where it is clipped; "weight" when the loss function gave it, and always for several
            micro-batches; "skipped" (1 or 0) where a guard or a scaler may keep the step back. Nothing is
            read back to the host. Nothing at all is computed, and given, when it is no optimizer's turn.

        Raises:
            ContractError: ``fn`` does not give a loss that can be trained on; there is no such optimizer.
        """
        target = self._targets.get(optimizer) or self._new_target(optimizer)
        moving = target.optims
        if not target.always:
            moving = {prefix: optim for prefix, optim in moving.items() if optim.is_due()}
            if not moving:
                return {}
        if self._kernels is not None:
            fn = self._kernels.of(fn)
        if self.guard is not None:
            self.guard.begin()
        if self._needs_closure(moving):
            return self._run_closure(fn, batches, target)
        values = self._gradients(fn, batches, target)
        begun = perf_counter()
        if self.mode != "no_optim":
            self._move(moving, values, target)
        self._ends(OPTIMIZER, begun)
        return values

    # ---- forward and backward ---------------------------------------------------------------------------

    def _gradients(self, fn: LossFunction, batches: Sequence[Any], target: _Target) -> dict[str, Value]:
        """Leaves in the parameters the gradient of the window's mean."""
        for optim in target.optims.values():
            optim.clear()
        if self._scales:  # what a step that failed halfway has left
            _scaler(target.optims)._per_optimizer_states.clear()
        if len(batches) > 1:
            return self._accumulate(fn, batches, target)
        loss, values = self._forward(fn, batches[0], target)
        self._backward(loss, None, target)
        return values

    def _accumulate(self, fn: LossFunction, batches: Sequence[Any], target: _Target) -> dict[str, Value]:
        """Each micro-batch adds its share of the gradient, and of what is recorded: its samples by those of
        the window. Weights of the loss's own are summed as they come, and divided out after the last forward.
        """
        counts = [losses.num_samples(batches, number) for number in range(len(batches))]
        total: Value = float(sum(counts))
        shares: list[Value] = [count / total for count in counts]
        weighted = False
        sums: dict[str, Value] = {}
        for number, batch in enumerate(batches):
            loss, values = self._forward(fn, batch, target)
            share = shares[number]
            if number == 0 and "weight" in values:
                weighted, total = True, 0.0
            if weighted != ("weight" in values):
                raise ContractError(
                    "loss() gives a weight for some batches only", fix="give it always, or never"
                )
            if weighted:
                share = losses.single(values.pop("weight"))
                total = total + share
            self._backward(loss, share, target)
            for name, value in values.items():
                sums[name] = losses.plus(sums.get(name), value, share)
        if weighted:
            parameters = (p for optim in target.optims.values() for p in optim.parameters)
            if gradients := [p.grad for p in parameters if p.grad is not None]:
                torch._foreach_div_(gradients, total)
            sums = {name: value / total for name, value in sums.items()}
        sums["weight"] = total
        return sums

    def _forward(self, fn: LossFunction, batch: Any, target: _Target) -> tuple[Tensor, dict[str, Value]]:
        begun = perf_counter()
        if self._autocast is None:
            output = fn(batch)
        else:
            with self._autocast:
                output = fn(batch)
        loss, values = losses.split(output, target.loss_name)
        if target.loss_name not in self._checked:
            losses.check(loss)
            losses.check_values(values)
            self._checked.add(target.loss_name)
        self._ends(FORWARD, begun)
        return loss, values

    def _backward(self, loss: Tensor, share: Value | None, target: _Target) -> None:
        begun = perf_counter()
        try:
            if self._scales:
                scaled = _scaler(target.optims).scale(loss if share is None else loss * share)
                scaled.backward()  # type: ignore[no-untyped-call]
            elif isinstance(share, Tensor):
                lean.backward(loss * share)
            else:
                lean.backward(loss, share)
        except RuntimeError:
            losses.check(loss)  # in the first step it could be trained on
            raise
        self._ends(BACKWARD, begun)

    def _ends(self, part: int, begun: float) -> None:
        self.timing.spent[part] += perf_counter() - begun
        if self.timing.device is not None:
            self.timing.device.record(part)

    # ---- moving the weights -----------------------------------------------------------------------------

    def _move(self, moving: Mapping[str, Optim], values: dict[str, Value], target: _Target) -> None:
        """Unscales, clips, and lets the optimizers move, unless the step is bad."""
        scaler = _scaler(target.optims) if self._scales else None
        for prefix, optim in moving.items():
            if scaler is not None:
                scaler.unscale_(optim.optimizer)
            if optim.max_grad_norm is not None:
                values[f"{prefix}grad_norm"] = optim.clip()
        bad, loss = None, values[target.loss_name]
        if self.guard is not None and self.guard.looks:
            # In fp16 a gradient that is not finite is the scaler's business: it tries a smaller scale.
            sizes = [] if scaler else [_size(optim, values, prefix) for prefix, optim in moving.items()]
            bad = self.guard.look(torch.as_tensor(loss), sizes)
            if scaler is not None:
                numbers.keep_back(scaler, moving.values(), bad)
        self.has_moved = True
        for optim in moving.values():
            if optim.has_scaled_rates:
                with optim.scaled_rates():
                    _step(optim, scaler, bad)
            else:
                _step(optim, scaler, bad)
        if scaler is not None and (overflows := numbers.overflows(scaler, moving.values())) is not None:
            scaler.update()
            if bad is None:
                # The gradients of a loss that is not finite are no overflow, and no smaller scale mends them.
                overflows = overflows * torch.as_tensor(loss).isfinite()
            self._note_skipped(values, overflows)
        elif bad is not None:
            self._note_skipped(values, bad.float())

    def _note_skipped(self, values: dict[str, Value], skipped: Tensor) -> None:
        values["skipped"] = skipped
        if self._kept_back is not None:
            self._kept_back.append(skipped)

    def _needs_closure(self, moving: Mapping[str, Optim]) -> bool:
        return any(optim.needs_closure for optim in moving.values()) and self.mode != "no_optim"

    def _run_closure(self, fn: LossFunction, batches: Sequence[Any], target: _Target) -> dict[str, Value]:
        """A step of an optimizer that evaluates the loss by itself; recorded is its first evaluation. It
        reads the loss each time, a synchronisation."""
        if len(target.optims) > 1:
            named = ", ".join(type(optim.optimizer).__name__ for optim in target.optims.values())
            raise ContractError(
                f"of several optimizers on one loss ({named}) one evaluates the loss by itself",
                fix="run them one after the other in Runner.update",
            )
        [(prefix, optim)] = target.optims.items()
        found: dict[str, Value] = {}

        def closure() -> Value:
            if self.timing.device is not None:
                self.timing.device.record(OPTIMIZER)  # what the optimizer computed since the last evaluation
            values = self._gradients(fn, batches, target)
            if optim.max_grad_norm is not None:
                values[f"{prefix}grad_norm"] = optim.clip()
            found.update({name: value for name, value in values.items() if name not in found})
            return values[target.loss_name]

        self.has_moved = True
        begun, evaluated = perf_counter(), sum(self.timing.spent)
        with optim.scaled_rates():
            optim.optimizer.step(closure)  # type: ignore[arg-type]
        self._ends(OPTIMIZER, begun + sum(self.timing.spent) - evaluated)
        return found

    # ---- names ------------------------------------------------------------------------------------------

    def _new_target(self, optimizer: str | tuple[str, ...]) -> _Target:
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
        made = _Target(optims, f"{optimizer}_loss" if is_own else "loss", always)
        return self._targets.setdefault(optimizer, made)

    def unused(self) -> list[str]:
        """Names of the optimizers on whose loss no step was taken so far; none before the first step."""
        used = {id(optim) for target in self._targets.values() for optim in target.optims.values()}
        return [
            name
            for name, optim in self.optimizers.items()
            # One with a state was moved by the project itself.
            if used and id(optim) not in used and not optim.optimizer.state
        ]

    # ---- state ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Makes sure that it still moves the weights; for saves.

        Raises:
            TrainingError: In fp16 no step passes any more.
        """
        for name, optim in self.optimizers.items():
            if optim.scaler is not None:
                numbers.check_scale(optim.scaler, name)

    def state_dict(self) -> dict[str, Any]:
        """Optimizers, schedulers and loss scales by name."""
        return {name: optim.state_dict() for name, optim in self.optimizers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        for name, optim in self.optimizers.items():
            optim.load_state_dict(state[name])


def _only_take(batches: Sequence[Any]) -> Mapping[str, Value]:
    return {}


def _scaler(optims: Mapping[str, Optim]) -> torch.amp.GradScaler:
    """The scaler of a loss: that of the first optimizer that moves on it."""
    scaler = next(iter(optims.values())).scaler
    assert scaler is not None
    return scaler


def _size(optim: Optim, values: Mapping[str, Value], prefix: str) -> Tensor:
    """() a number that is finite exactly when the gradients are; their norm where it is known already."""
    norm = values.get(f"{prefix}grad_norm")
    return norm if isinstance(norm, Tensor) else optim.gradient_norm(float("inf"))


def _step(optim: Optim, scaler: torch.amp.GradScaler | None, bad: Tensor | None) -> None:
    if scaler is not None:
        numbers.move(scaler, optim)
    elif bad is not None:
        move_unless(bad, optim)
    else:
        optim.move()
