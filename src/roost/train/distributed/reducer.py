"""Adding up the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from roost.base.errors import ContractError

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""As torch's DistributedDataParallel has them: the first is small, so that sending begins early."""


class GradientReducer:
    """Sums the gradients of some parameters over the default group's ranks, while backward goes on.

    ```
    reducer.begin()
    loss.backward()      # a bucket is sent as soon as its gradients stand, and those before it are sent
    reducer.finish()     # sends the rest and waits; each gradient is now the sum
    ```

    The buckets never change, and are sent in one order. So the sum of each element is made in the same order
    each time, also after a restart (torch's DistributedDataParallel puts its buckets into another order after
    the first step), and a parameter that a step did not use holds nobody up. A parameter that no rank used
    has no gradient, as in one process.

    Args:
        parameters: In the same order on all ranks.
        group: Of its own: in the backward of a model other collectives may run on the default one, and where
            a rank did not use a parameter they would meet those of other ranks in another order. The default
            one when None.
        bucket_bytes: Most bytes of a bucket; a larger parameter has one of its own.
    """

    def __init__(
        self, parameters: Sequence[Tensor], *, group: Any = None, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        # Backward comes to the last ones first.
        trained = [parameter for parameter in reversed(parameters) if parameter.requires_grad]
        self._buckets = [_Bucket(part, group) for part in _assign_buckets(trained, bucket_bytes)]
        self._is_open = False
        self._next = 0
        """The bucket that is sent next."""
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(self._note(bucket))  # type: ignore[no-untyped-call]

    def _note(self, bucket: _Bucket) -> Any:
        def note(parameter: Tensor) -> None:
            if self._is_open:
                bucket.note(parameter)
                self._send_what_is_whole()

        return note

    def begin(self) -> None:
        """Before the backward that completes the gradients."""
        self._is_open, self._next = True, 0
        for bucket in self._buckets:
            bucket.begin()

    def finish(self) -> None:
        """Sends what is left, waits, and leaves the sums in the parameters.

        Raises:
            RuntimeError: Another rank is gone, or did not come in time.
            ContractError: A gradient is sparse.
        """
        self._is_open = False
        for bucket in self._buckets[self._next :]:
            bucket.send()
        for bucket in self._buckets:
            bucket.receive()

    def _send_what_is_whole(self) -> None:
        while self._next < len(self._buckets) and self._buckets[self._next].is_whole:
            self._buckets[self._next].send()
            self._next += 1


class _Bucket:
    """Parameters of one type on one device whose gradients travel together, and whether each has one."""

    def __init__(self, parameters: Sequence[Tensor], group: Any) -> None:
        self.parameters, self._group = parameters, group
        self._here: set[int] = set()
        """By `id`, those whose gradients stand."""
        self._flat: Tensor | None = None
        self._work: Any = None
        self._unused: list[int] = []

    def begin(self) -> None:
        """Before a backward."""
        self._here.clear()
        self._work = None

    @property
    def is_whole(self) -> bool:
        """Whether each of them has its gradient."""
        return len(self._here) == len(self.parameters)

    def note(self, parameter: Tensor) -> None:
        """A gradient stands, as far as autograd has come.

        Raises:
            ContractError: It has changed after it was sent.
        """
        if self._work is not None:
            raise ContractError(
                "a parameter gets its gradient in several parts of one backward, which ranks cannot add up "
                "while it goes on",
                fix="torch.utils.checkpoint: use_reentrant=False; or train in one process",
            )
        self._here.add(id(parameter))

    def send(self) -> None:
        """Begins to add up what stands in the parameters' gradients."""
        if self._flat is None:
            self._make()
        assert self._flat is not None
        own = [parameter.grad for parameter in self.parameters]
        if any(gradient is not None and gradient.is_sparse for gradient in own):
            raise ContractError(
                "a gradient is sparse, and several ranks add up dense ones only",
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
        """Waits for the sums, and puts them into the parameters."""
        self._work.wait()
        self._work = None
        for parameter, view in zip(self.parameters, self._views, strict=True):
            parameter.grad = view
        if self._unused:  # only then the device must be waited for
            for place, flag in zip(self._unused, self._flags[self._unused].tolist(), strict=True):
                if not flag:
                    self.parameters[place].grad = None

    def _make(self) -> None:
        """Kept for all steps; as late as at the first, because a model may still be moved before."""
        sizes = [parameter.numel() for parameter in self.parameters]
        like = self.parameters[0]
        self._flat = torch.zeros(sum(sizes) + len(sizes), dtype=like.dtype, device=like.device)
        *parts, self._flags = torch.split(self._flat, [*sizes, len(sizes)])
        self._views = [_view_like(part, one) for part, one in zip(parts, self.parameters, strict=True)]


def _view_like(flat: Tensor, parameter: Tensor) -> Tensor:
    """The memory in a parameter's shape and layout: a step over two layouts rounds differently."""
    if parameter.is_contiguous():
        return flat.view(parameter.shape)
    strides = parameter.stride()
    order = sorted(range(parameter.dim()), key=lambda dim: -strides[dim])
    inverse = sorted(range(parameter.dim()), key=lambda dim: order[dim])
    return flat.view([parameter.shape[dim] for dim in order]).permute(inverse)


def _assign_buckets(parameters: Sequence[Tensor], most: int) -> list[list[Tensor]]:
    """Parameters in their order, as many together as go into a bucket."""
    found: list[list[Tensor]] = []
    room: dict[tuple[torch.dtype, torch.device], tuple[list[Tensor], int]] = {}
    for parameter in parameters:
        kind, num_bytes = (parameter.dtype, parameter.device), parameter.numel() * parameter.element_size()
        part, left = room.get(kind, ([], 0))
        if not part or num_bytes > left:
            part = []
            left = min(most, FIRST_BUCKET_BYTES) if not found else most
            found.append(part)
        part.append(parameter)
        room[kind] = (part, left - num_bytes)
    return found
