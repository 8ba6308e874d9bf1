"""The GPUs that a process of this machine may use, and who uses them: NVML tells, torch is not imported."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from roost.base.errors import Refused
from roost.base.size import memory

T = TypeVar("T")

VARIABLE = "CUDA_VISIBLE_DEVICES"
_MB = 2**20
_GB_OF_MB = 1024


@dataclass(frozen=True)
class User:
    """A process that computes on a card."""

    pid: int
    name: str | None
    """Whose it is; None for one of another container, whose pid means nothing here."""
    memory_mb: int | None
    """None where the driver does not tell."""

    def __str__(self) -> str:
        held = f", {memory(self.memory_mb)}" if self.memory_mb is not None else ""
        return f"pid {self.pid}{f' of {self.name}' if self.name else ''}{held}"


@dataclass(frozen=True)
class Card:
    """A GPU that is visible."""

    number: int
    """Among those that are visible, as torch counts: ``cuda:0``."""
    id: str
    """What CUDA_VISIBLE_DEVICES calls it."""
    name: str
    total_mb: int
    free_mb: int
    """0, as the total, where the driver does not tell: the memory is then the machine's own."""
    users: tuple[User, ...] = ()

    def __str__(self) -> str:
        room = f", {memory(self.free_mb)} of {memory(self.total_mb)} free" if self.total_mb else ""
        used = f" (used by {'; '.join(map(str, self.users))})" if self.users else ""
        return f"{self.number}: {self.name}{room}{used}"


def cards(environment: Mapping[str, str] = os.environ) -> list[Card]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; all without it, in the order of nvidia-smi.

    A number there counts as nvidia-smi does. CUDA itself counts so where CUDA_DEVICE_ORDER is PCI_BUS_ID, or
    the cards are alike.

    Raises:
        Refused: There is a driver, but it cannot tell.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return []
    except pynvml.NVMLError as error:
        raise _broken(error) from None
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
        found = _visible(handles, environment.get(VARIABLE), pynvml)
        return [_card(number, id, handle, pynvml) for number, (id, handle) in enumerate(found)]
    except pynvml.NVMLError as error:
        raise _broken(error) from None
    finally:
        pynvml.nvmlShutdown()


def why_none(environment: Mapping[str, str] = os.environ) -> str:
    """Why `cards` are none, or of no use to torch."""
    if not torch_has_cuda():
        return "torch here was built without CUDA"
    if (asked := environment.get(VARIABLE)) is not None:
        return f"{VARIABLE} is {asked!r}"
    return "there is none, or its driver is not loaded (nvidia-smi shows it)"


def torch_has_cuda() -> bool:
    """Whether torch was built for CUDA, read from its files."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    file = Path(found.origin).with_name("version.py")
    return re.search(r"^cuda\b.*= *['\"]", file.read_text(), re.MULTILINE) is not None


def freest(found: Sequence[Card], count: int) -> list[Card]:
    """The cards with the most free memory, in GB, the first ones where it is the same; in their own order."""
    by_memory = sorted(found, key=lambda card: -(card.free_mb // _GB_OF_MB))
    return sorted(by_memory[:count], key=lambda card: card.number)


def _visible(handles: Sequence[Any], asked: str | None, nvml: Any) -> Iterator[tuple[str, Any]]:
    """(what it is called, its handle) of each; as in CUDA, what is no card ends the list."""
    uuids = [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    if asked is None:
        yield from zip(uuids, handles, strict=True)
        return
    for entry in (one.strip() for one in asked.split(",")):
        if entry.isdecimal():
            alike = [int(entry)] if int(entry) < len(handles) else []
        else:
            alike = [at for at, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if len(alike) == 1:
            yield entry, handles[alike[0]]
        elif entry.startswith("MIG-"):
            yield entry, nvml.nvmlDeviceGetHandleByUUID(entry)
        else:
            return


def _card(number: int, id: str, handle: Any, nvml: Any) -> Card:
    def told(ask: Callable[[Any], T]) -> T | None:
        try:
            return ask(handle)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            return None

    room, running = told(nvml.nvmlDeviceGetMemoryInfo), told(nvml.nvmlDeviceGetComputeRunningProcesses)
    return Card(
        number,
        id,
        str(nvml.nvmlDeviceGetName(handle)),
        room.total // _MB if room is not None else 0,
        room.free // _MB if room is not None else 0,
        tuple(_user(one) for one in running or ()),
    )


def _user(process: Any) -> User:
    held = process.usedGpuMemory
    return User(process.pid, _owner(process.pid), held // _MB if held is not None else None)


def _owner(pid: int) -> str | None:
    try:
        return pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name
    except (OSError, KeyError):
        return None


def _broken(error: Exception) -> Refused:
    return Refused(
        f"the NVIDIA driver does not tell what GPUs there are: {error}",
        fix="see what nvidia-smi says, or compute on the CPU: -CPU",
    )
