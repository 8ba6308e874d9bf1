"""Losses and evaluations compiled by torch.compile, with separate kernels for each shape of batches."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.train.model.nested_tensors import format_shapes
from roost.train.step.loss import LossFunction

EvaluationFunction = Callable[[Any], Any]
MAX_SHAPES = 8
"""The most shapes of batches that get separate kernels."""
_MAX_COMPILED = 32
"""The most losses whose compiled forms are kept."""
_INITIAL_RECOMPILES, _CALLS_PER_RECOMPILE = 16, 50
"""Compilations that are allowed at first, and the number of calls after which one more is allowed. A value
that changes once an epoch costs a compilation each time; a value that changes in each step soon raises
an error."""


_MIN_REPORTED_SECONDS = 1.0
"""Compilations that take at least so long are printed."""


class CompiledFunction:
    """A compiled function of a batch, a loss or an evaluation; called like the plain one.

    Each shape of batches has its own kernels. By default torch would compile the second shape for all later
    shapes; then the bits of a step would depend on the shapes before it, and a resumed run would differ from
    an uninterrupted one.

    Args:
        fn: Computes a batch. If it is a method of a module, the names of the module do not change.
        dynamic: One kernel for all shapes, from the first on.
    """

    def __init__(self, fn: Callable[[Any], Any], *, dynamic: bool) -> None:
        # Beyond its limit torch would continue uncompiled, without an error.
        config = torch._dynamo.config
        config.fail_on_recompile_limit_hit = True
        config.recompile_limit = max(config.recompile_limit, _INITIAL_RECOMPILES)
        config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 2**20)
        self._fn: Callable[[Any], Any] = torch.compile(fn, dynamic=dynamic)
        self._dynamic = dynamic
        self._shapes: set[Any] = set()
        self._calls = 0

    def __call__(self, batch: Any) -> Any:
        """Returns what the function returns of a batch.

        Raises:
            ContractError: The batch has a ninth shape, or the function reads a number that changes too
                often.
        """
        is_new = not self._calls
        if not self._dynamic:
            shape = _shape_key(batch)
            if is_new := shape not in self._shapes:
                self._add(shape)
        self._calls += 1
        if self._calls % _CALLS_PER_RECOMPILE == 0:
            torch._dynamo.config.recompile_limit += 1
        started = perf_counter()
        try:
            output = self._fn(batch)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            raise ContractError(
                f"the loss function was compiled {torch._dynamo.config.recompile_limit} times in "
                f"{self._calls} calls: it reads a length, number, text or flag that changes, and each "
                "value is part of the kernels",
                setting="step_mode",
                received="compile",
                fix=("" if self._dynamic else "set compile_dynamic: true if it is a length or a size; ")
                + "torch's warning above names it (last reason); keep a number in a tensor, such as a buffer "
                "that Runner.update fills",
            ) from error
        if is_new and (seconds := perf_counter() - started) >= _MIN_REPORTED_SECONDS:
            print(f"compiled in {seconds:.0f} s (for batches of {format_shapes(batch)})", flush=True)
        return output

    def has_kernels_for(self, batch: Any) -> bool:
        """Whether a batch has no more shapes than get kernels."""
        if self._dynamic or len(self._shapes) < MAX_SHAPES:
            return True
        return _shape_key(batch) in self._shapes

    def _add(self, shape: Any) -> None:
        if len(self._shapes) == MAX_SHAPES:
            raise ContractError(
                f"compile has made kernels for {MAX_SHAPES} shapes of batches; this batch has another one",
                setting="step_mode",
                received=shape,
                fix="set compile_dynamic: true, which makes one kernel for all shapes; or pad the batches to "
                "a few lengths in collate",
            )
        self._shapes.add(shape)


class CompiledEvaluation:
    """A compiled `Runner.evaluate` or `predict`; called like the plain one.

    What cannot be compiled is evaluated by the plain function, and that is printed once: a ninth shape of
    batches, or a number that changes too often. The first is decided by the order of the batches alone, which
    a resumed run repeats; the second is not, so it makes the run inexact.

    Args:
        fn: Evaluates a batch.
        name: The name of the evaluation, for messages.
        dynamic: One kernel for all shapes, from the first on.
        note_inexact: Called with the reason why the run is inexact from now on.
    """

    def __init__(
        self, fn: EvaluationFunction, name: str, *, dynamic: bool, note_inexact: Callable[[str], object]
    ) -> None:
        self._plain, self._name, self._note_inexact = fn, name, note_inexact
        self._compiled: CompiledFunction | None = CompiledFunction(fn, dynamic=dynamic)
        self._has_printed = False

    def __call__(self, batch: Any) -> Any:
        """Returns the values of a batch."""
        if self._compiled is None:
            return self._plain(batch)
        if not self._compiled.has_kernels_for(batch):
            if not self._has_printed:
                self._has_printed = True
                print(
                    f"{self._name}: kernels are compiled for {MAX_SHAPES} shapes of batches, others are "
                    "computed uncompiled (compile_dynamic: true makes one kernel for all shapes)",
                    flush=True,
                )
            return self._plain(batch)
        try:
            return self._compiled(batch)
        except ContractError as error:
            if not isinstance(error.__cause__, torch._dynamo.exc.FailOnRecompileLimitHit):
                raise
            self._compiled = None
            self._note_inexact(
                f"{self._name} is no longer compiled: it reads a number, text or flag that changes, and each "
                "value was compiled"
            )
            return self._plain(batch)


class CompiledFunctions:
    """The compiled forms of losses and evaluations, made at their first use.

    Args:
        dynamic: One kernel for all shapes.
    """

    def __init__(self, *, dynamic: bool) -> None:
        self._dynamic = dynamic
        self._made: dict[LossFunction, CompiledFunction] = {}
        self._evaluations: dict[tuple[str, EvaluationFunction], CompiledEvaluation] = {}

    def get(self, fn: LossFunction) -> CompiledFunction:
        """Returns the compiled form of ``fn``, the same one each time. Functions that are created in each
        step are not all kept; torch reuses what it compiled for their code."""
        found = self._made.get(fn)
        if found is None:
            if len(self._made) == _MAX_COMPILED:
                self._made.clear()
            found = self._made[fn] = CompiledFunction(fn, dynamic=self._dynamic)
        return found

    def evaluation(
        self, fn: EvaluationFunction, name: str, note_inexact: Callable[[str], object]
    ) -> CompiledEvaluation:
        """Returns the compiled form of ``fn`` for one split, the same one each time: the shapes of one split
        must not decide which ones of another are compiled, as a resumed run may evaluate only that one."""
        found = self._evaluations.get((name, fn))
        if found is None:
            found = CompiledEvaluation(fn, name, dynamic=self._dynamic, note_inexact=note_inexact)
            self._evaluations[name, fn] = found
        return found


def compiled_evaluation(
    runner: Any, fn: EvaluationFunction, name: str, *, dynamic: bool
) -> EvaluationFunction:
    """Returns the compiled form of a runner's function, for a task that trains nothing: why the task is
    inexact is printed.

    Args:
        runner: The runner.
        fn: Its function of a batch.
        name: The name of the evaluation, for messages.
        dynamic: One kernel for all shapes, from the first on.
    """
    exclude_log(runner)
    return CompiledEvaluation(fn, name, dynamic=dynamic, note_inexact=functools.partial(print, flush=True))


def exclude_log(runner: Any) -> None:
    """Excludes `Runner.log` from compilation: the length of its list would become part of the kernels."""
    log = getattr(runner, "log", None)
    if callable(log) and "log" not in vars(runner):
        vars(runner)["log"] = torch.compiler.disable(log)  # type: ignore[no-untyped-call]


def _shape_key(value: Any) -> Any:
    """Returns the shapes of the tensors in a nest, as a hashable value."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, Mapping):
        return tuple((name, _shape_key(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_shape_key(item) for item in value)
    return type(value).__name__
