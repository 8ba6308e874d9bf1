"""A GPU and its state as the driver, or a simulation, reports them."""

from __future__ import annotations

from dataclasses import dataclass

from roost.base.text.byte_sizes import format_memory

TYPICAL_CONTEXT_MB = 600.0
"""Card memory in MB that the driver needs for a process (CUDA context, libraries) in addition to its tensors.
Used where it was not measured."""


@dataclass(frozen=True, slots=True)
class CardProcess:
    """A process that computes on a card."""

    pid: int
    name: str | None
    """The user who owns it; None for a process of another container, whose pid means nothing here."""
    memory_mb: int | None
    """None if the driver does not report it."""

    def __str__(self) -> str:
        used = f", {format_memory(self.memory_mb)}" if self.memory_mb is not None else ""
        return f"pid {self.pid}{f' of {self.name}' if self.name else ''}{used}"


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU, or a MIG instance, which is used like a GPU."""

    number: int
    """Index among the visible cards, as in torch: ``cuda:0``."""
    id: str
    """The UUID, a valid entry of CUDA_VISIBLE_DEVICES. For a card that has failed and never answered:
    nvidia-smi's number."""
    name: str
    """The model."""
    total_mb: int
    free_mb: int
    """0, like the total, if the driver does not report it: the card then shares the machine's memory."""
    users: tuple[CardProcess, ...] = ()
    """The processes that compute on it."""
    utilization: int | None = None
    """Per cent of the time in which the card computed; None, here and below, if the driver does not report
    it."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    trouble: str = ""
    """Why no task may start on it: it does not answer, or has failed. Empty: it works."""
    part_of: str = ""
    """The UUID of the card of which this is a MIG instance; empty for a whole card."""
    exclusive: bool = False
    """Whether the driver allows one process at a time (EXCLUSIVE_PROCESS), so that the card cannot be
    shared."""

    def __str__(self) -> str:
        free = (
            f", {format_memory(self.free_mb)} of {format_memory(self.total_mb)} free" if self.total_mb else ""
        )
        used = f" (used by {'; '.join(map(str, self.users))})" if self.users else ""
        return f"{self.number}: {self.name}{free}{used}"
