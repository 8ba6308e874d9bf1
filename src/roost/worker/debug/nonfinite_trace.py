"""Finding the line at which a value of a step first is not finite, forward and backward."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from roost.base.traceback_frames import ProjectFiles

_MAX_DEPTH = 8
"""Of nested lists and mappings that hold arguments of a function."""
_WEIGHT_PREFIX = "the weight "
_UNINITIALIZED = ("empty", "new_empty", "empty_like", "empty_strided")


class NotFinite(ArithmeticError):
    """A value of the step is not finite.

    Args:
        text: Which.
        call: Number of the call of torch that made it; None when nobody knows.
    """

    def __init__(self, text: str, *, call: int | None = None) -> None:
        super().__init__(text)
        self.call = call


class Origin(NamedTuple):
    """A call of torch that gave what is not finite."""

    call: int
    text: str
    place: str
    """``Model/Runner.py:12``; empty when no own line was on the way to it."""
    rank: int
    """0: out of finite values, or of a weight; 1: it was given it from outside; 2: by a number that itself is
    not finite, such as that of a mask."""


class NonFiniteTracer(TorchFunctionMode):
    """Looks at every call of torch in a step. Raises `NotFinite` at ``stop_at``; else before the backward of
    a loss, or in it, when that is not finite.

    Each look waits for the device: for one step, not for training.

    Args:
        own: Which files are the person's.
        runner: Names its parameters.
        batches: Names what comes from them.
        backward: Whether gradients are looked at; in fp16 the scaler does, and some are not finite by design.
        stop_at: The call to raise at, by the number that an earlier pass of the same step gave.
    """

    def __init__(
        self,
        own: ProjectFiles,
        runner: nn.Module,
        batches: Sequence[Any],
        *,
        backward: bool = True,
        stop_at: Origin | None = None,
    ) -> None:
        super().__init__()
        self._own, self._backward, self._stop_at = own, backward, stop_at
        self.origins: list[Origin] = []
        self._calls = 0
        self._known: dict[int, Tensor] = {}
        """What is not finite and was seen before, by identity; kept alive, or another may get its place."""
        self._read_ones: list[Tensor] = []
        """Attributes that are not finite; kept alive, as their names go by identity."""
        self._nodes: dict[Any, int] = {}
        """Which call made a node of the graph."""
        self._places: dict[int, str] = {}
        """The own lines of those calls."""
        self._losses: list[Tensor] = []
        self._names = {
            id(parameter): f"{_WEIGHT_PREFIX}{name}" for name, parameter in runner.named_parameters()
        }
        self._names |= {id(buffer): f"the buffer {name}" for name, buffer in runner.named_buffers()}
        self._names |= {
            id(tensor): f"batch{path}" for path, tensor in _named_tensors(_unwrap_single(batches))
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        given = [*args, *(kwargs or {}).values()]
        if func is torch.Tensor.backward:
            self._losses.append(args[0])
            self._require_finite(args[0])
        if _function_name(func) == "__get__":  # an attribute, such as .grad, is no computation
            return self._read(func, args, kwargs)
        inputs = [(one, _nonfinite_kind(one)) for one in _tensors(given)]
        result = func(*args, **(kwargs or {}))
        number = self._calls
        self._calls += 1
        outputs = [one for one in _tensors([result]) if _function_name(func) not in _UNINITIALIZED]
        kinds = {kind for one in outputs if (kind := _nonfinite_kind(one))}
        if kinds or any(kind for _, kind in inputs):
            self._note(number, func, given, inputs, outputs, kinds)
        if self._stop_at is not None and number == self._stop_at.call:
            raise NotFinite(self._stop_at.text, call=number)
        if self._backward:
            self._listen(number, _function_name(func), outputs)
        return result

    def _read(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """An attribute; what was not finite before is none of its doing, and keeps its name."""
        result = func(*args, **(kwargs or {}))
        owner = next(_tensors(args), None)
        for one in _tensors([result]):
            if owner is not None and _nonfinite_kind(one) and _nonfinite_kind(owner):
                self._read_ones.append(one)
                if id(owner) in self._known:
                    self._known[id(one)] = one
                if id(owner) in self._names:
                    self._names.setdefault(id(one), self._names[id(owner)])
        return result

    # ---- forward ----------------------------------------------------------------------------------------

    def _note(
        self,
        number: int,
        func: Callable[..., Any],
        given: Sequence[Any],
        inputs: Sequence[tuple[Tensor, str]],
        outputs: Sequence[Tensor],
        kinds: set[str],
    ) -> None:
        before = {kind for _, kind in inputs if kind}
        new = [one for one, kind in inputs if kind and id(one) not in self._known]
        self._known |= {id(one): one for one in (*new, *(one for one in outputs if _nonfinite_kind(one)))}
        name = _function_name(func)
        if new and func is not torch.Tensor.backward:
            named = {id(one): self._names.get(id(one), "a tensor") for one in new}
            said = " and ".join(f"{named[id(one)]} ({_count_nonfinite(one)})" for one in new)
            # Labels that are missing may be nan on purpose, weights never.
            is_weight = any(one.startswith(_WEIGHT_PREFIX) for one in named.values())
            self._add(number, f"{name} takes {said}", 0 if is_weight else 1)
        elif "nan" in kinds - before or (kinds and not before):
            by_number = any(not math.isfinite(one) for one in _numbers(given))
            said = f"{'nan' if 'nan' in kinds else 'inf'} of {'inf' if before else 'finite values'}"
            self._add(number, f"{name} makes {said}", 2 if by_number else 0)

    def _add(self, number: int, text: str, rank: int) -> None:
        self.origins.append(Origin(number, text, self._place(), rank))

    def _place(self) -> str:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if name := self._own.name(frame.f_code.co_filename):
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _require_finite(self, loss: Tensor) -> None:
        if not (kind := _nonfinite_kind(loss)):
            return
        # What the loss was not computed from (a metric, a mask) says nothing about it.
        reached = {self._nodes[node] for node in _graph_nodes(loss) if node in self._nodes}
        self.origins.sort(key=lambda one: (one.call not in reached, one.rank, one.call))
        first = self.origins[0].call if self.origins else None
        value = f"{float(loss.detach()):g}" if loss.numel() == 1 else kind
        raise NotFinite(f"the loss is {value}", call=first)

    # ---- backward ---------------------------------------------------------------------------------------

    def overflow(self) -> NotFinite:
        """The error of a step whose loss and gradients are finite, but not their norm. Its origin is the last
        own line on the way to the loss, of several losses to the largest."""
        largest = max(self._losses, key=lambda loss: abs(float(loss.detach())), default=None)
        reached = _graph_nodes(largest) if largest is not None else []
        calls = [self._nodes[node] for node in reached if self._places.get(self._nodes.get(node, -1))]
        self.origins = []
        if largest is not None and calls:
            text, call = f"a loss of {float(largest.detach()):g}, whose gradients have this norm", max(calls)
            self.origins = [Origin(call, text, self._places[call], 0)]
        return NotFinite("the gradients are finite, their norm overflows", call=max(calls) if calls else None)

    def _listen(self, number: int, name: str, outputs: Sequence[Tensor]) -> None:
        place = self._places[number] = self._place() if outputs else ""
        for output in outputs:
            for node in _graph_nodes(output, known=self._nodes):
                self._nodes[node] = number
                if hasattr(node, "variable"):  # where a parameter takes its gradient
                    continue
                node.register_hook(functools.partial(self._look_back, number, name, place))

    def _look_back(
        self, number: int, name: str, place: str, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Called by torch with the gradients of what a node was given, then of what it gave."""
        kinds = {kind for one in _tensors(inputs) if (kind := _nonfinite_kind(one))}
        if kinds and not any(_nonfinite_kind(one) for one in _tensors(outputs)):
            said = "nan" if "nan" in kinds else "inf"
            text = f"the backward of {name} makes {said} of a finite gradient"
            self.origins = [Origin(number, text, place, 0)]
            raise NotFinite(text, call=number)


def _unwrap_single(batches: Sequence[Any]) -> Any:
    return batches[0] if len(batches) == 1 else list(batches)


def _function_name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", func))


def _nonfinite_kind(tensor: Tensor) -> str:
    """nan, inf, or empty for one whose values are all finite, or that has none to look at."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout != torch.strided:
        return ""
    if tensor.device.type == "meta" or not tensor.numel():
        return ""
    with torch.no_grad():
        if bool(tensor.isfinite().all()):
            return ""
        return "nan" if bool(tensor.isnan().any()) else "inf"


def _count_nonfinite(tensor: Tensor) -> str:
    with torch.no_grad():
        bad = int((~tensor.isfinite()).sum())
    return f"{bad} of {tensor.numel()} values not finite"


def _tensors(values: Any, depth: int = 0) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple | Mapping) and depth < _MAX_DEPTH:
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value, depth + 1)


def _numbers(values: Sequence[Any]) -> Iterator[float]:
    for value in values:
        if isinstance(value, float):
            yield value
        elif isinstance(value, list | tuple):
            yield from _numbers(value)


def _named_tensors(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a nest, each with how to get at it: ``[0]``, ``['image']``."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, list | tuple | Mapping) and depth < _MAX_DEPTH:
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in pairs:
            yield from _named_tensors(one, f"{path}[{key!r}]", depth + 1)


def _graph_nodes(tensor: Tensor, *, known: Mapping[Any, int] | None = None) -> list[Any]:
    """The nodes that a tensor was computed by, without those that are ``known`` and what lies behind them."""
    found: dict[Any, None] = {}
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in found or (known and node in known):
            continue
        found[node] = None
        waiting += [before for before, _ in node.next_functions]
    return list(found)
