"""The resource request: what a task asks of the machine, from the command line to the policy.

::

    TaskOptions       as the caller gives them: options of `roost submit`, parameters of HTTP routes, keywords
                      of the Python client; their limits, defaults and descriptions are declared here
    ResourceRequest   the part about the machine, complete: stored with the task, read by the policy
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from roost.base.strategy import StrategyName
from roost.base.text.byte_sizes import format_memory
from roost.base.text.counts import format_cores
from roost.devices.card import Card

HIGHEST_PRIORITY = 1_000_000
MAX_CARDS = 4096
MIN_CARD_MEMORY_MB = 64
"""Smallest memory request for a card. A process on a card needs several times as much before its first
tensor."""
MIN_HOST_MEMORY_MB = 64
"""Smallest memory request for the host, for the same reason."""
OPTIONS_OF_OTHER_NAMES = {"memory_mb": "-m", "host_memory_mb": "--host-memory", "retries": "--retry"}
"""The command-line options of the fields of `TaskOptions`, where they are not the field's name."""

TaskName = Annotated[str, Meta(min_length=1, max_length=255)]
_TaskNames = Annotated[tuple[TaskName, ...], Meta(max_length=1000)]

# Limits, units and descriptions; a description is also the help of the command-line option and of the HTTP
# parameter.
CardCount = Annotated[int, Meta(ge=0, le=MAX_CARDS, description="How many cards; default: as in the config.")]
CoreCount = Annotated[
    int,
    Meta(ge=1, le=4096, description="CPU cores for the task alone; without cards the default is 1."),
]
MemoryMb = Annotated[
    int,
    Meta(
        ge=MIN_CARD_MEMORY_MB,
        le=2**40,
        description="Memory of each card in MB; the card can be shared.",
    ),
]
HostMemoryMb = Annotated[
    int,
    Meta(
        ge=MIN_HOST_MEMORY_MB,
        le=2**40,
        description="Memory of the machine in MB, for all processes of the task; with more it ends.",
    ),
]
Whole = Annotated[bool, Meta(description="Do not share the cards.")]
Strategy = Annotated[StrategyName, Meta(description="How the processes share the work.")]
Priority = Annotated[
    int,
    Meta(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, description="Higher starts first; default: 0."),
]
After = Annotated[
    _TaskNames, Meta(description="Start after this task or sweep has succeeded; can be repeated.")
]
AfterAny = Annotated[_TaskNames, Meta(description="Start after this task has ended, in any state.")]
Begin = Annotated[
    str,
    Meta(max_length=64, description='Do not start before 22:30, "tomorrow 08:00", 2026-11-22T08:00, +2h.'),
]
TimeLimit = Annotated[float, Meta(gt=0, le=1e9, description="Seconds after which it must have ended.")]
Opportunistic = Annotated[
    bool, Meta(description="Give way to other tasks: save, stop, and wait to continue.")
]
NoRestart = Annotated[
    bool, Meta(description="Never begin again: not after a crash of the machine or of its supervisor either.")
]
RetryCount = Annotated[int, Meta(ge=0, le=1000, description="Restart up to N times after a failure.")]
ParallelCount = Annotated[
    int, Meta(ge=1, le=100_000, description="How many tasks of a sweep may run at once.")
]


def format_card_share(memory_mb: int | None) -> str:
    """Returns the part that a task has of its cards: ``8.0 GB of each card``; None: ``whole cards``."""
    return "whole cards" if memory_mb is None else f"{format_memory(memory_mb)} of each card"


def format_card_memory(mb: int) -> str:
    """Returns the memory of a whole card as ``16 GB``, in powers of 1000, as its maker names it."""
    return f"{mb * 2**20 / 1e9:.3g} GB"


class CardRequirement(Struct, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """The cards on which a task can run, whatever is running on them now."""

    models: tuple[str, ...] = ()
    """Parts of the model's name, or patterns with ``*``; one suffices. Empty: any model."""
    least_mb: int = 0
    """The least memory of the whole card."""

    def fits(self, card: Card) -> bool:
        """Whether a card is such a card."""
        name, models = card.name.lower(), [one.lower() for one in self.models]
        is_model = any(fnmatchcase(name, one) if "*" in one else one in name for one in models)
        return (is_model or not models) and card.total_mb >= self.least_mb

    def __str__(self) -> str:
        models = " or ".join(self.models)
        memory = f"with {format_card_memory(self.least_mb)}" if self.least_mb else ""
        return " ".join(filter(None, ["a GPU", models, memory]))


class ResourceRequest(Struct, frozen=True, kw_only=True, gc=False, cache_hash=True):
    """The resources that a task needs to run."""

    cards: int = 0
    """The number of cards; 0 for a task on the CPU."""
    cores: int | None = None
    """CPU cores that the task has alone; None: it shares the cores that no task has alone, and counts as one
    core if it has no cards; 0: it shares them and counts as none."""
    host_memory_mb: int | None = None
    """Memory of the machine that its processes may use together; None: no limit, and none is kept for it."""
    memory_mb: int | None = None
    """Memory on each card. None: whole cards, until the need is known from earlier runs."""
    whole: bool = False
    """Whether the task has its cards alone, however little memory it needs."""
    time_limit: float | None = None
    """Seconds; None: no limit."""
    opportunistic: bool = False
    """Whether the task may be preempted, with a checkpoint, for tasks that are not opportunistic."""
    no_restart: bool = False
    """Whether the task must not run twice: it is not started again after a lost attempt."""
    least_mb: int | None = None
    """The least memory on each card, whatever earlier runs used: with less the task ran out of memory."""
    card: CardRequirement | None = None
    """What each card must be; None: any."""
    ran_out: int = 0
    """How often the task ran out of memory by its own fault."""

    @property
    def cores_text(self) -> str:
        """The cores as ``2 cores``; empty if none are requested."""
        return format_cores(self.cores) if self.cores else ""

    @property
    def host_texts(self) -> list[str]:
        """The requested part of the host: ``2 cores`` and ``4.0 GB of host memory``, as far as requested."""
        memory = "" if self.host_memory_mb is None else f"{format_memory(self.host_memory_mb)} of host memory"
        return [text for text in (self.cores_text, memory) if text]


class TaskOptions(Struct, frozen=True, kw_only=True):
    """The resources that a caller requests for a task, and the conditions of its start."""

    gpus: CardCount | None = None
    """None: as in its settings; one, if the machine has any, where these name no number."""
    cpus: CoreCount | None = None
    host_memory_mb: HostMemoryMb | None = None
    memory_mb: MemoryMb | None = None
    """None: the memory known from earlier runs, or whole cards."""
    whole: Whole = False
    strategy: Strategy | None = None
    """None: as in its settings."""
    priority: Priority = 0
    after: After = ()
    """Each the id of a task, the beginning of one, a name, or a sweep; likewise in the next field."""
    after_any: AfterAny = ()
    begin: Begin | None = None
    time_limit: TimeLimit | None = None
    """For a training, a copy of ``limits.wall_time`` of its settings, which its supervisor enforces."""
    opportunistic: Opportunistic = False
    no_restart: NoRestart = False
    retries: RetryCount = 0
    max_parallel: ParallelCount | None = None

    @property
    def need(self) -> ResourceRequest:
        """The resource request; without a number of cards, that of a task on the CPU."""
        return ResourceRequest(
            cards=self.gpus or 0,
            cores=self.cpus,
            host_memory_mb=self.host_memory_mb,
            memory_mb=self.memory_mb,
            whole=self.whole,
            time_limit=self.time_limit,
            opportunistic=self.opportunistic,
            no_restart=self.no_restart,
        )


class TrainingTaskOptions(TaskOptions, frozen=True, kw_only=True):
    """The options of a training, with what its settings add to its resource request."""

    card: CardRequirement | None = None
    """What ``require`` of its settings says of each card."""

    @classmethod
    def of(cls, options: TaskOptions, card: CardRequirement | None) -> TrainingTaskOptions:
        """Returns the options with a requirement."""
        return cls(**{name: getattr(options, name) for name in TaskOptions.__struct_fields__}, card=card)

    @property
    def need(self) -> ResourceRequest:
        """The resource request; a task on the CPU has no requirement of a card."""
        return replace(super().need, card=self.card if self.gpus else None)
