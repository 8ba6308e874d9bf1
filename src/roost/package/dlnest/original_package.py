"""Packages that DLNest's own programs wrote: read, and never changed.

A checkpoint there is a file of torch.save, which is a pickle. It is read without running its code: only
tensors, NumPy's values and plain data are built. In the place of any other object is a `NotRead`; ``--trust``
unpickles all.
"""

from __future__ import annotations

import functools
import pickle
import re
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from roost.base.errors import CheckpointError, NotFound
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.dlnest.original_folder import is_original, read_json
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.sessions import Session

_FILE = re.compile(r"(?:state|epoch)_(\d+)\.ckpt")
_TRACKS = ("ckpt_slow", "ckpt_fast", "ckpt_consistent")
_REASON = "dlnest"
_PARTS = {"life_cycle", "dataset", "runner", "model", "log_dict"}


class OriginalPackage(PackageFolder):
    """A package of DLNest's own programs."""

    @classmethod
    def open(cls, path: Path | str) -> OriginalPackage:
        """Opens the package at ``path``.

        Raises:
            NotFound: It is none.
        """
        path = Path(path).expanduser().absolute()
        if not is_original(path):
            raise NotFound("the folder is not a package of DLNest", received=str(path))
        return cls(path)

    @property
    def request(self) -> dict[str, Any]:
        """The kind, and the project's folder: DLNest puts ``Saves`` into it."""
        return {"kind": PackageKind.DLNEST, "project": str(self.path.parent.parent)}

    @property
    def manifest(self) -> dict[str, Any]:
        """No copied files are listed."""
        return {"files": {}, "links": {}, "left_out": []}

    @property
    def provenance(self) -> dict[str, str]:
        """It is not known where a setting was set."""
        return {}

    def sessions(self) -> list[Session]:
        """There are no sessions."""
        return []

    def files(self) -> dict[int, Path]:
        """Returns the checkpoints by their ids, ascending; of 0.2 the id is the epoch."""
        if not self.checkpoints.is_dir():
            return {}
        found = {
            int(match[1]): path
            for path in self.checkpoints.iterdir()
            if (match := _FILE.fullmatch(path.name)) and path.is_file()
        }
        return dict(sorted(found.items()))

    def notes(self) -> list[str]:
        """Returns lines for the user: what its own files say that is not so."""
        derived, files = read_json(self.path / "_package.json") or {}, self.files()
        listed = {one for key in _TRACKS for one in derived.get(key) or [] if isinstance(one, int)}
        found = []
        if missing := sorted(listed - files.keys()):
            found.append(f"_package.json names checkpoints that do not exist: {', '.join(map(str, missing))}")
        root = self.args.get("root_file_path")
        if isinstance(root, str) and Path(root) != self.path and not Path(root).is_dir():
            found.append(
                f"root_file_path {root} does not exist: the package was moved, and is read from here"
            )
        return found

    def describe_content(self) -> str:
        """Returns what the package is, in a line."""
        files, args = self.files(), self.args
        name = args.get("runner_name", args.get("model_name"))
        ids = ", ".join(map(str, files)) or "none"
        return "; ".join([f"a package of DLNest: {name}, checkpoints: {ids}", *self.notes()])

    def file(self, id: int | None) -> tuple[int, Path]:
        """Returns checkpoint ``id``, or the newest one.

        Raises:
            NotFound: There is no such checkpoint, or none at all.
        """
        files = self.files()
        if not files:
            raise NotFound("the package has no checkpoint", where=self.path)
        chosen = max(files) if id is None else id
        if chosen not in files:
            have = ", ".join(map(str, files))
            raise NotFound(f"there is no checkpoint {id}; there are: {have}", where=self.path)
        return chosen, files[chosen]


def open_any(path: Path | str) -> PackageFolder:
    """Opens a package of roost, or of DLNest's own programs.

    Raises:
        NotFound: It is neither.
    """
    found = Path(path).expanduser()
    return OriginalPackage.open(found) if is_original(found) else PackageFolder.open(found)


class NotRead:
    """In the place of an object that only its own code could build."""

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
    """What a checkpoint of DLNest holds."""

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
            found = torch.load(file, map_location=device, weights_only=False, pickle_module=module)
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


def _reader(not_read: dict[str, None]) -> types.SimpleNamespace:
    """Returns a module like `pickle` for torch.load, which builds nothing but tensors and plain data."""

    class Unpickler(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            known = _known(module, name)
            if known is None:
                not_read[f"{module}.{name}"] = None
                return NotRead
            return known

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
    from collections import Counter, OrderedDict, deque

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
