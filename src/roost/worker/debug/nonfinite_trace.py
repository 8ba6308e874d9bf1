"""The search for the line at which a value of a step first is NaN or infinite, forward and backward."""

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
from roost.train.model.nested_tensors import nested_tensors

_MAX_DEPTH = 8
"""Nesting of lists and mappings in which tensors are looked for."""
_WEIGHT_PREFIX = "the weight "
_UNINITIALIZED = ("empty", "new_empty", "empty_like", "empty_strided")


class NotFinite(ArithmeticError):
    """A value of the step is not finite.

    Args:
        text: Description of the value.
        call: Number of the call of torch that made it; None if it is not known.
    """

    def __init__(self, text: str, *, call: int | None = None) -> None:
        super().__init__(text)
        self.call = call


class Origin(NamedTuple):
    """A call of torch that made a non-finite value."""

    call: int
    text: str
    place: str
    """``Model/Runner.py:12``; empty when no line of the project called it."""
    priority: int
    """Lower is more likely the cause. 0: made from finite values, or from a weight; 1: came in from outside;
    2: made by a non-finite number in the code, such as the fill value of a mask."""


class NonFiniteTracer(TorchFunctionMode):
    """Checks the inputs and outputs of every call of torch in a step. Raises `NotFinite` at ``stop_at``; else
    before the backward of a loss that is not finite, or in the backward at a gradient that is not.

    Every check waits for the device: made for one step, not for training.

    Args:
        own: The project's files.
        runner: For the names of its parameters and buffers.
        batches: The window, for the names of its tensors.
        backward: Whether gradients are checked. False in fp16: the gradient scaler makes some non-finite on
            purpose.
        stop_at: The call to raise at, numbered by an earlier pass over the same step.
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
        self._seen_before: dict[int, Tensor] = {}
        """Non-finite tensors that were seen before, by ``id``; kept alive, because an ``id`` is used
        again."""
        self._attributes: list[Tensor] = []
        """Non-finite attributes; kept alive, because their names are found by ``id``."""
        self._nodes: dict[Any, int] = {}
        """Number of the call that made a node of the graph."""
        self._places: dict[int, str] = {}
        """The project's lines of those calls."""
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
            self._record_origin(number, func, given, inputs, outputs, kinds)
        if self._stop_at is not None and number == self._stop_at.call:
            raise NotFinite(self._stop_at.text, call=number)
        if self._backward:
            self._register_hooks(number, _function_name(func), outputs)
        return result

    def _read(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Reads an attribute. A non-finite value in it was there before, and keeps the name of its owner."""
        result = func(*args, **(kwargs or {}))
        owner = next(_tensors(args), None)
        for one in _tensors([result]):
            if owner is not None and _nonfinite_kind(one) and _nonfinite_kind(owner):
                self._attributes.append(one)
                if id(owner) in self._seen_before:
                    self._seen_before[id(one)] = one
                if id(owner) in self._names:
                    self._names.setdefault(id(one), self._names[id(owner)])
        return result

    # ---- forward ----------------------------------------------------------------------------------------

    def _record_origin(
        self,
        number: int,
        func: Callable[..., Any],
        given: Sequence[Any],
        inputs: Sequence[tuple[Tensor, str]],
        outputs: Sequence[Tensor],
        kinds: set[str],
    ) -> None:
        before = {kind for _, kind in inputs if kind}
        new = [one for one, kind in inputs if kind and id(one) not in self._seen_before]
        self._seen_before |= {
            id(one): one for one in (*new, *(one for one in outputs if _nonfinite_kind(one)))
        }
        name = _function_name(func)
        if new and func is not torch.Tensor.backward:
            named = {id(one): self._names.get(id(one), "a tensor") for one in new}
            values = " and ".join(f"{named[id(one)]} ({_count_nonfinite(one)})" for one in new)
            # Missing labels may be nan on purpose, weights never.
            is_weight = any(one.startswith(_WEIGHT_PREFIX) for one in named.values())
            self._add_origin(number, f"{name} takes {values}", 0 if is_weight else 1)
        elif "nan" in kinds - before or (kinds and not before):
            by_number = any(not math.isfinite(one) for one in _numbers(given))
            values = f"{'nan' if 'nan' in kinds else 'inf'} of {'inf' if before else 'finite values'}"
            self._add_origin(number, f"{name} makes {values}", 2 if by_number else 0)

    def _add_origin(self, number: int, text: str, priority: int) -> None:
        self.origins.append(Origin(number, text, self._project_line(), priority))

    def _project_line(self) -> str:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if name := self._own.relative_name(frame.f_code.co_filename):
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _require_finite(self, loss: Tensor) -> None:
        if not (kind := _nonfinite_kind(loss)):
            return
        # Calls that the loss does not depend on (a metric, a mask) come last.
        reached = {self._nodes[node] for node in _graph_nodes(loss) if node in self._nodes}
        self.origins.sort(key=lambda one: (one.call not in reached, one.priority, one.call))
        first = self.origins[0].call if self.origins else None
        value = f"{float(loss.detach()):g}" if loss.numel() == 1 else kind
        raise NotFinite(f"the loss is {value}", call=first)

    # ---- backward ---------------------------------------------------------------------------------------

    def overflow(self) -> NotFinite:
        """Returns the error of a step whose loss and gradients are finite, but whose gradient norm is not.
        The origin is the last line of the project that the largest loss was computed by."""
        largest = max(self._losses, key=lambda loss: abs(float(loss.detach())), default=None)
        reached = _graph_nodes(largest) if largest is not None else []
        calls = [self._nodes[node] for node in reached if self._places.get(self._nodes.get(node, -1))]
        self.origins = []
        if largest is not None and calls:
            text, call = f"a loss of {float(largest.detach()):g}, whose gradients have this norm", max(calls)
            self.origins = [Origin(call, text, self._places[call], 0)]
        return NotFinite("the gradients are finite, their norm overflows", call=max(calls) if calls else None)

    def _register_hooks(self, number: int, name: str, outputs: Sequence[Tensor]) -> None:
        place = self._places[number] = self._project_line() if outputs else ""
        for output in outputs:
            for node in _graph_nodes(output, known=self._nodes):
                self._nodes[node] = number
                if hasattr(node, "variable"):  # accumulates the gradient of a parameter
                    continue
                node.register_hook(functools.partial(self._check_gradients, number, name, place))

    def _check_gradients(
        self, number: int, name: str, place: str, inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        """Node hook of torch: ``inputs`` are the gradients of the node's inputs, ``outputs`` of its
        outputs."""
        kinds = {kind for one in _tensors(inputs) if (kind := _nonfinite_kind(one))}
        if kinds and not any(_nonfinite_kind(one) for one in _tensors(outputs)):
            values = "nan" if "nan" in kinds else "inf"
            text = f"the backward of {name} makes {values} of a finite gradient"
            self.origins = [Origin(number, text, place, 0)]
            raise NotFinite(text, call=number)


def _unwrap_single(batches: Sequence[Any]) -> Any:
    return batches[0] if len(batches) == 1 else list(batches)


def _function_name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", func))


def _nonfinite_kind(tensor: Tensor) -> str:
    """Returns ``nan``, ``inf``, or an empty text if all values are finite or there are none to check."""
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


def _tensors(values: Any) -> Iterator[Tensor]:
    return nested_tensors(values, max_depth=_MAX_DEPTH)


def _numbers(values: Sequence[Any]) -> Iterator[float]:
    for value in values:
        if isinstance(value, float):
            yield value
        elif isinstance(value, list | tuple):
            yield from _numbers(value)


def _named_tensors(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors of a nest, each with its path: ``[0]``, ``['image']``."""
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, list | tuple | Mapping) and depth < _MAX_DEPTH:
        pairs = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in pairs:
            yield from _named_tensors(one, f"{path}[{key!r}]", depth + 1)


def _graph_nodes(tensor: Tensor, *, known: Mapping[Any, int] | None = None) -> list[Any]:
    """Returns the graph nodes a tensor was computed by, except ``known`` ones and the nodes before them."""
    found: dict[Any, None] = {}
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in found or (known and node in known):
            continue
        found[node] = None
        waiting += [before for before, _ in node.next_functions]
    return list(found)
