"""A GPU as the machine tells of it, real or simulated."""

from __future__ import annotations

from dataclasses import dataclass

from roost.base.text.byte_sizes import format_memory

TYPICAL_CONTEXT_MB = 600.0
"""What the driver takes of a card for a process beside its tensors, where nobody can tell."""


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process that computes on a card."""

    pid: int
    name: str | None
    """Whose it is; None for one of another container, whose pid means nothing here."""
    memory_mb: int | None
    """None where the driver does not tell."""

    def __str__(self) -> str:
        held = f", {format_memory(self.memory_mb)}" if self.memory_mb is not None else ""
        return f"pid {self.pid}{f' of {self.name}' if self.name else ''}{held}"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, or a part of one (MIG) that is used as one."""

    number: int
    """Among those that are visible, as torch counts: ``cuda:0``."""
    id: str
    """Its UUID, which CUDA_VISIBLE_DEVICES takes; nvidia-smi's number of a card that has failed and was never
    seen well."""
    name: str
    """Its model."""
    total_mb: int
    free_mb: int
    """0, as the total, where the driver does not tell: the memory is then the machine's own."""
    users: tuple[CardProcess, ...] = ()
    utilization: int | None = None
    """Per cent of the time in which something was computed; None where the driver does not tell, as below."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    trouble: str = ""
    """Why nothing may begin on it: it does not answer, or has failed. Empty: it is well."""
    part_of: str = ""
    """The UUID of the card whose MIG instance it is; empty: it is a whole one."""
    exclusive: bool = False
    """Whether the driver lets one process at a time compute on it (EXCLUSIVE_PROCESS): nobody shares it."""

    def __str__(self) -> str:
        room = f", {format_memory(self.free_mb)} of {format_memory(self.total_mb)} free" if self.total_mb else ""
        used = f" (used by {'; '.join(map(str, self.users))})" if self.users else ""
        return f"{self.number}: {self.name}{room}{used}"
