"""Reads checkpoints that DLNest's own programs wrote.

Each is a file of torch.save, which is a pickle. It is read without running its code: only tensors, NumPy's
values and plain data are built. In the place of any other object is a `NotRead`; ``--trust`` unpickles all.

torch.load reads two more formats: a TorchScript archive, which is a program that it begins to run, and the
tar archive of torch 0.1, of which it extracts links. DLNest writes neither, and both are refused.
"""

from __future__ import annotations

import functools
import pickle
import tarfile
import types
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from roost.base.errors import CheckpointError
from roost.package.checkpoints.checkpoint import Manifest

_REASON = "dlnest"
_ZIP, _TORCHSCRIPT_ENTRY = b"PK\x03\x04", "constants.pkl"
_PARTS = {"life_cycle", "dataset", "runner", "model", "log_dict"}


class NotRead:
    """Replaces an object that only the code of its class could build."""

    def __new__(cls, *arguments: object, **named: object) -> NotRead:
        return object.__new__(cls)

    def __init__(self, *arguments: object, **named: object) -> None:
        """Takes what the pickle gives its object, and drops it."""

    def __call__(self, *arguments: object, **named: object) -> NotRead:
        return NotRead()

    def __setstate__(self, state: object) -> None:
        """Drops the state."""

    def __setitem__(self, key: object, value: object) -> None:
        """Drops an item."""

    def append(self, value: object) -> None:
        """Drops a value."""

    extend = add = update = append


class OriginalState(NamedTuple):
    """The content of a checkpoint."""

    info: Manifest
    state: dict[str, Any]
    not_read: list[str]
    """The classes and functions of the objects that were not built."""


def read(id: int, path: Path, *, device: str = "cpu", trust: bool = False) -> OriginalState:
    """Reads a checkpoint.

    Args:
        id: Its id.
        path: Its file.
        device: The device of its tensors.
        trust: Whether to unpickle everything, which may run any code.

    Raises:
        CheckpointError: It cannot be read.
    """
    import torch

    not_read: dict[str, None] = {}
    module: Any = pickle if trust else _reader(not_read)
    try:
        with path.open("rb") as file:
            _require_state(file, path)
            found = torch.load(file, map_location=device, weights_only=False, pickle_module=module)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(
            f"{path.name} cannot be read: {type(error).__name__}: {error}",
            where=path.parent.parent,
            fix="name another checkpoint: -c ID",
        ) from error
    if not isinstance(found, Mapping):
        raise CheckpointError(f"{path.name} holds no state", received=type(found).__name__)
    state = dict(found)
    epoch = state.pop("finished_epoch", state.pop("epoch", -1))
    if not _PARTS & state.keys():  # of 0.2: the state of the model, and the epoch
        state = {"model": state}
    number = epoch + 1 if isinstance(epoch, int) else 0
    info = Manifest(id=id, step=0, epoch=number, batch=0, reason=_REASON)
    return OriginalState(info, state, list(not_read))


def known_step(info: Manifest) -> int | None:
    """Returns the step of a checkpoint; None if DLNest, which counts none, saved it."""
    return None if info.reason == _REASON else info.step


def _require_state(file: IO[bytes], path: Path) -> None:
    """Checks that torch.load will read a file with `_reader`, and leaves the file at its beginning.

    Raises:
        CheckpointError: It is a TorchScript archive, or a tar archive.
        RuntimeError: It is a damaged archive.
    """
    import torch

    found, is_zip = None, file.read(len(_ZIP)) == _ZIP
    file.seek(0)
    if not is_zip:
        found = "a tar archive" if tarfile.is_tarfile(file) else None
    # torch's own reader and test: another one could see other entries in the same file.
    elif _TORCHSCRIPT_ENTRY in torch._C.PyTorchFileReader(file).get_all_records():
        found = "a TorchScript archive, which is a program"
    file.seek(0)
    if found is not None:
        raise CheckpointError(
            f"{path.name} is {found}: DLNest has not written it",
            where=path.parent.parent,
            fix="name another checkpoint: -c ID",
        )


def _reader(not_read: dict[str, None]) -> types.SimpleNamespace:
    """Returns a module like `pickle` for torch.load, which builds nothing but tensors and plain data."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            known = _known(module, name)
            if known is None:
                not_read[f"{module}.{name}"] = None
                return NotRead
            # A pickle can set attributes of what it names, which the whole process uses; "dump_patches" and
            # "__name__" would make torch.load write a file. A new `partial` takes none.
            is_changeable = isinstance(known, types.FunctionType) or known is Counter
            return functools.partial(known) if is_changeable else known

    def load(file: IO[bytes], **options: Any) -> Any:
        return Unpickler(file, **options).load()

    return types.SimpleNamespace(Unpickler=Unpickler, load=load, __name__="pickle")


def _known(module: str, name: str) -> Callable[..., Any] | None:
    """Returns a class or function that builds plain data; None if this is another."""
    import torch

    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        found: Callable[..., Any] = getattr(torch, name)
        return found
    return _functions().get((module, name))


@functools.cache
def _functions() -> dict[tuple[str, str], Callable[..., Any]]:
    import codecs
    from collections import OrderedDict, defaultdict, deque

    import numpy as np
    import torch
    from torch import _utils

    scalar: Any = np.float32(0).__reduce__()[0]
    array: Any = np.zeros(0).__reduce__()[0]
    plain = (
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        list,
        tuple,
        dict,
        set,
        frozenset,
        slice,
        range,
    )
    found: dict[tuple[str, str], Callable[..., Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("collections", "Counter"): Counter,
        ("collections", "defaultdict"): defaultdict,
        ("collections", "deque"): deque,
        ("torch", "Size"): torch.Size,
        ("torch", "device"): torch.device,
        ("torch._utils", "_rebuild_tensor"): _utils._rebuild_tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _utils._rebuild_tensor_v2,
        ("torch._utils", "_rebuild_parameter"): _utils._rebuild_parameter,
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): codecs.encode,
    }
    for home in ("numpy.core.multiarray", "numpy._core.multiarray"):
        found |= {(home, "scalar"): scalar, (home, "_reconstruct"): array}
    for home in ("builtins", "__builtin__"):
        found |= {(home, one.__name__): one for one in plain}
    return found
