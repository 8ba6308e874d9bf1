"""The all-reduce of gradients, overlapped with the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from roost.base.errors import ContractError

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""The sizes of torch's DistributedDataParallel: the first bucket is small, so that communication starts
early."""


class GradientReducer:
    """Sums the gradients of some parameters over all ranks while the backward pass still runs.

    ```
    reducer.begin()
    loss.backward()      # a bucket is sent once its gradients are complete and all earlier buckets are sent
    reducer.finish()     # sends the rest and waits; each gradient is now the sum
    ```

    The buckets never change and are sent in one order. So each element is summed in the same order in every
    step, also after a restart (torch's DistributedDataParallel reorders its buckets after the first step),
    and a parameter that a step did not use delays no rank. A parameter that no rank used has no gradient, as
    in one process.

    Args:
        parameters: In the same order on all ranks.
        group: A process group used only for this: other collectives may run on the default group during the
            backward pass of a model, and if a rank does not use a parameter, they would meet those of the
            other ranks in another order. The default group when None.
        bucket_bytes: Maximum size of a bucket; a larger parameter has a bucket of its own.
    """

    def __init__(
        self, parameters: Sequence[Tensor], *, group: Any = None, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        # The backward pass computes the last parameters' gradients first.
        trained = [parameter for parameter in reversed(parameters) if parameter.requires_grad]
        self._buckets = [_Bucket(part, group) for part in _assign_buckets(trained, bucket_bytes)]
        self._is_open = False
        self._next = 0
        """Index of the bucket that is sent next."""
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._note(bucket))  # type: ignore[no-untyped-call]

    def _note(self, bucket: _Bucket) -> Any:
        def note(parameter: Tensor) -> None:
            if self._is_open:
                bucket.note(parameter)
                self._send_what_is_complete()

        return note

    def begin(self) -> None:
        """Prepares for the backward pass that completes the gradients; called before it."""
        self._is_open, self._next = True, 0
        for bucket in self._buckets:
            bucket.begin()

    def finish(self) -> None:
        """Sends the remaining buckets, waits, and leaves the sums in the parameters' gradients.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            ContractError: A gradient is sparse.
        """
        self._is_open = False
        for bucket in self._buckets[self._next :]:
            bucket.send()
        for bucket in self._buckets:
            bucket.receive()

    def _send_what_is_complete(self) -> None:
        while self._next < len(self._buckets) and self._buckets[self._next].is_complete:
            self._buckets[self._next].send()
            self._next += 1


class _Bucket:
    """Parameters of one dtype on one device whose gradients are sent together, with one flag each: whether
    this rank has a gradient of it."""

    def __init__(self, parameters: Sequence[Tensor], group: Any) -> None:
        self.parameters, self._group = parameters, group
        self._here: set[int] = set()
        """The ids of the parameters whose gradients are complete."""
        self._flat: Tensor | None = None
        self._work: Any = None
        self._unused: list[int] = []

    def begin(self) -> None:
        """Prepares for a backward pass."""
        self._here.clear()
        self._work = None

    @property
    def is_complete(self) -> bool:
        """Whether every parameter has its gradient."""
        return len(self._here) == len(self.parameters)

    def note(self, parameter: Tensor) -> None:
        """Notes that autograd has accumulated a parameter's gradient.

        Raises:
            ContractError: The gradient changed after it was sent.
        """
        if self._work is not None:
            raise ContractError(
                "a parameter gets its gradient in several parts of one backward pass, which the ranks cannot "
                "sum while it runs",
                fix="use torch.utils.checkpoint with use_reentrant=False, or train in one process",
            )
        self._here.add(id(parameter))

    def send(self) -> None:
        """Starts the all-reduce of the gradients as they are now."""
        if self._flat is None:
            self._make()
        assert self._flat is not None
        own = [parameter.grad for parameter in self.parameters]
        if any(gradient is not None and gradient.is_sparse for gradient in own):
            raise ContractError(
                "a gradient is sparse, and several ranks can sum only dense ones",
                fix="make the embedding with sparse=False, or train in one process",
            )
        self._unused = [place for place, gradient in enumerate(own) if gradient is None]
        if self._unused:
            self._flat.zero_()
        used = [place for place, gradient in enumerate(own) if gradient is not None]
        if used:
            torch._foreach_copy_([self._views[place] for place in used], [g for g in own if g is not None])
        self._flags.fill_(1.0)
        if self._unused:
            self._flags[self._unused] = 0.0
        self._work = dist.all_reduce(self._flat, group=self._group, async_op=True)

    def receive(self) -> None:
        """Waits for the sums and makes them the parameters' gradients."""
        self._work.wait()
        self._work = None
        for parameter, view in zip(self.parameters, self._views, strict=True):
            parameter.grad = view
        if self._unused:  # only then a sync with the device is needed
            for place, flag in zip(self._unused, self._flags[self._unused].tolist(), strict=True):
                if not flag:
                    self.parameters[place].grad = None

    def _make(self) -> None:
        """Allocates the memory for all steps; only in the first step, because a model may be moved before."""
        sizes = [parameter.numel() for parameter in self.parameters]
        like = self.parameters[0]
        self._flat = torch.zeros(sum(sizes) + len(sizes), dtype=like.dtype, device=like.device)
        *parts, self._flags = torch.split(self._flat, [*sizes, len(sizes)])
        self._views = [_view_like(part, one) for part, one in zip(parts, self.parameters, strict=True)]


def _view_like(flat: Tensor, parameter: Tensor) -> Tensor:
    """A view of flat memory in a parameter's shape and layout: an optimizer step over tensors of two layouts
    rounds differently."""
    if parameter.is_contiguous():
        return flat.view(parameter.shape)
    strides = parameter.stride()
    order = sorted(range(parameter.dim()), key=lambda dim: -strides[dim])
    inverse = sorted(range(parameter.dim()), key=lambda dim: order[dim])
    return flat.view([parameter.shape[dim] for dim in order]).permute(inverse)


def _assign_buckets(parameters: Sequence[Tensor], most: int) -> list[list[Tensor]]:
    """Groups parameters into buckets of one dtype and device, in their order."""
    found: list[list[Tensor]] = []
    open_buckets: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], int]] = {}
    for parameter in parameters:
        kind, num_bytes = (parameter.dtype, parameter.device), parameter.numel() * parameter.element_size()
        part, left = open_buckets.get(kind, ([], 0))
        if not part or num_bytes > left:
            part = []
            left = min(most, FIRST_BUCKET_BYTES) if not found else most
            found.append(part)
        part.append(parameter)
        open_buckets[kind] = (part, left - num_bytes)
    return found
