"""Counts what reads a value back from the device, which makes the host wait for it."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten


class CountsReads(TorchFunctionMode):
    """Counts what reads a tensor back to the host: called from Python, or below it by torch itself."""

    NAMES = frozenset(
        ["item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__", "__index__", "__array__"]
    )

    class Below(TorchDispatchMode):
        """What torch itself reads, also on its own account: a mask must be counted before it can choose."""

        READS = (
            aten._local_scalar_dense,
            aten.equal,
            aten.is_nonzero,
            aten.nonzero,
            aten.masked_select,
            aten.unique_consecutive,
            aten._unique2,
        )

        def __init__(self) -> None:
            super().__init__()
            self.reads = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            by_mask = func.overloadpacket in (aten.index, aten.index_put_) and any(
                index is not None and index.dtype == torch.bool for index in args[1]
            )
            self.reads += func.overloadpacket in self.READS or by_mask
            return func(*args, **(kwargs or {}))

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = 0, self.Below()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.above += getattr(func, "__name__", "") in self.NAMES
        return func(*args, **(kwargs or {}))

    @property
    def reads(self) -> int:
        return self.above + self.below.reads

    def __enter__(self) -> CountsReads:
        self.below.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.below.__exit__(*error)
