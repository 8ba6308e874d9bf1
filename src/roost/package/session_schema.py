"""The fields of a session's two files: the request ``sessions/<n>.request.json`` and the record
``sessions/<n>.json``.

Each file is a mapping, as in JSON, whose declared fields are attributes, too::

    request = SessionRequest(kind="train", overrides=["lr=0.1"])
    request.overrides                # ["lr=0.1"]
    request.strategy                 # "single", the default of a field that is not set
    "strategy" in request            # False: a field that is not set is not in the file
    request.token = "ab12"           # sets a field; the file has the order in which fields were set

Fields that are not declared here, such as those of a newer version, are kept. A value that is read may be of
any type, because another program may have written the file: `roost.operations.reading.package_schema` checks
the fields that are `Checked`, and readers of the others accept only what is valid.

The classes are no dataclasses because a supervisor imports them at its start, and the import of `dataclasses`
alone takes 7 ms.
"""

# Standard library only
# ruff: noqa: RUF012  - a default is copied when it is read

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    dataclass_transform,
)

from roost.base.system import process_identity

LIVE_STATES = ("starting", "running")
ENDED_STATES = ("succeeded", "failed", "stopped", "crashed")
SESSION_FORMAT = 1

_T = TypeVar("_T")
CHECKED = "checked"
Checked = Annotated[_T, CHECKED]
"""A field that makes a package damaged if it has another type, or a number outside of its range."""


class Range:
    """The smallest and the largest valid number."""

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most


MAX_COUNT = 2**53
"""Up to it every integer is exact in JSON, whose numbers many programs read as float64."""
Count = Annotated[int, Range(0, MAX_COUNT)]
Pid = Annotated[int, Range(1, 2**31 - 1)]
Seconds = Annotated[float, Range(0, 1e11)]
"""A duration, or Unix seconds; larger numbers cannot be printed as a date."""

REQUIRED: Any = ...
"""In place of a default: every file has the field. In a damaged file without it, it reads as None."""


@dataclass_transform(kw_only_default=True)
class JsonFields(dict[str, Any]):
    """A mapping of JSON with declared fields. A subclass declares them like a dataclass."""

    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """The default of each declared field, or `REQUIRED`."""

    def __init_subclass__(cls) -> None:
        cls.DEFAULTS = {name: vars(cls).get(name) for name in cls.__annotations__}
        for name in cls.DEFAULTS.keys() & vars(cls).keys():
            delattr(cls, name)  # an attribute of the class would hide the value in the mapping

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the fields of a file."""
        found = cls()
        found.update(fields)
        return found

    @classmethod
    def load(cls, path: str) -> Self | None:
        """Reads a file that roost has written; None if it is missing or unreadable."""
        try:
            with open(path, "rb") as file:
                return cls.from_json(dict(json.load(file)))
        except (OSError, ValueError, TypeError):
            return None

    if not TYPE_CHECKING:  # a type checker must see the declared fields only

        def __getattr__(self, name: str) -> Any:
            if name not in self.DEFAULTS:
                raise AttributeError(f"{type(self).__name__} has no field {name}")
            if name in self:
                return self[name]
            default = self.DEFAULTS[name]
            if isinstance(default, list | dict):
                return default.copy()
            return None if default is REQUIRED else default

        def __setattr__(self, name: str, value: Any) -> None:
            if name not in self.DEFAULTS:
                raise AttributeError(f"{type(self).__name__} has no field {name}")
            self[name] = value


class SessionRequest(JsonFields):
    """The request file of a session: what was requested, written before its supervisor starts.

    The requests of tasks that read a package have other fields: for an analysis see
    `roost.analysis.analysis_folder.AnalysisSessionRequest`.
    """

    # --- by `sessions.write_request`, or by the guard for an automatic restart
    session: int = REQUIRED
    host: Checked[str] = REQUIRED
    """The name of the machine on which the session was requested."""
    boot_id: Checked[str] = REQUIRED
    """The boot of that machine; empty where the kernel has none."""
    pid: Checked[Pid] = REQUIRED
    """The process that wrote the request: as long as it exists, the session is starting."""
    start_ticks: Checked[int | None] = None
    """When that process started, in clock ticks since boot."""
    state: Checked[str] = "starting"
    """Never set: without a record a session is starting."""

    # --- by the operation
    kind: str = "train"
    """train, command, or python: a Python program opened the package."""
    command: list[str] = []
    """The command line as typed."""
    overrides: Checked[list[str]] = []
    """Settings such as ``lr=0.1``, in addition to those of earlier sessions."""
    checkpoint: Checked[Count | None] = None
    """The id of the checkpoint to continue from; None: the newest good one."""
    project: Checked[str | None] = None
    """The folder of the project's code."""
    description: Checked[str | None] = None
    """A few words of the user."""
    force: bool = False
    """Whether the user accepted that the run may not be exact."""
    trust: bool = False
    """Whether the user trusts pickles in the checkpoint that are not signed with the user's key."""
    inexact: Checked[list[str]] = []
    """The reasons why the run may not be exact, found by the resume gate or a fork."""
    taken_over: Checked[str | None] = None
    """From which session of another machine the package was taken over; None: from none."""
    changed: Checked[dict[str, str]] = {}
    """The SHA-256 of each changed file of the snapshot that was accepted, by path."""
    initialize: bool = False
    """Whether the session ends at step 0."""
    terminal: str = ""
    """The path of the terminal that the session has for itself; empty: none."""

    # --- by the layout of ranks (`roost.operations.sessions.rank_layout`)
    device: Checked[str] = "auto"
    """The requested device: auto, a type of device, or one card, as in cuda:1."""
    devices: Checked[int | str | list[int] | None] = None
    """The requested devices: a number of them, their indices, or auto."""
    cards: list[str] | None = None
    """The ids of the cards in CUDA_VISIBLE_DEVICES; None: all that are visible."""
    strategy: Checked[str] = "single"
    """single, ddp or fsdp."""
    ranks: Checked[Count] = 1
    """The number of ranks on each machine."""
    num_nodes: Checked[Count] = 1
    """The number of machines."""
    rendezvous: str | None = None
    """HOST:PORT of the first machine, of a session on several machines."""
    restart: int = 0
    """How many times the guard may restart the run automatically."""

    # --- about the host, by the operation or by the lab
    cores: int | None = None
    """The number of CPU cores that were requested; None: all that the session may use."""
    host_memory_mb: int | None = None
    """The memory of the machine that its processes may use together, in MB; None: no limit."""

    # --- about the remote copy, by the operation
    remote: dict[str, Any] | None = None
    """The settings of the remote copy (`roost.config.sections.remote`); None: the package has none."""

    # --- at the start
    core_ids: list[int] = []
    """The CPU cores to which its processes are bound; empty: all."""
    token: str | None = None
    """As in `SessionSpec`: marks the processes of the session."""

    # --- by the lab, at the start of a task
    task: str | None = None
    """The id of the task."""
    attempt: int = 0
    """The number of its attempt, from 1."""
    reserved_mb: int | None = None
    """The memory of each card that the session may take, in MB; None: all."""
    card_model: str | None = None
    """The model of the cards; of several models that of the smallest card."""
    card_mb: int | None = None
    """The memory of the smallest card, in MB."""

    # --- by the guard, for an automatic restart
    restart_of: int | None = None
    """The number of the session that is restarted."""
    output_offsets: dict[str, int] = {}
    """Where in the output of each rank the session begins, in bytes, by the name of the file."""


class RankEnd(JsonFields):
    """An entry of `SessionRecord.ranks`."""

    rank: int = REQUIRED
    pid: int = REQUIRED
    status: int | str | None = None
    """Its exit code, or the name of the signal that ended it."""
    state: str | None = None
    """As in its final report, if it wrote one."""
    reason: str | None = None


class CardMemory(JsonFields):
    """The card memory of one rank, in MB, as it reported."""

    peak_mb: float | None = None
    """The peak of torch's allocator."""
    allocated_mb: float | None = None
    """The part of it that tensors had."""
    driver_mb: float | None = None
    """What the driver took in addition."""
    others_mb: float | None = None
    """What other processes took on the same card."""
    asked_mb: float | None = None
    """The allocation that failed, of a rank that ran out of memory."""
    ooms: float | None = None
    """How many allocations failed and were tried again."""


class CardUse(JsonFields):
    """An entry of `SystemUse.cards`: what a card did while the session had it."""

    id: str = REQUIRED
    """The UUID."""
    name: str = ""
    """The model."""
    total_mb: int | None = None
    utilization: float | None = None
    """The mean, in per cent of the time."""
    peak_memory_mb: float | None = None
    """The most that all processes together had on the card."""
    power: float | None = None
    """The mean, in W."""
    temperature: float | None = None
    """The highest, in degrees Celsius."""
    throttled: float | None = None
    """Per cent of the time in which its clock was lowered by power, heat or another cause."""
    energy_kwh: float | None = None


class SystemUse(JsonFields):
    """What the session's cards, its processes and the host did, in numbers; second by second they are in
    ``system/<n>.jsonl``. None: not measured."""

    seconds: float = 0.0
    """The time that was measured."""
    cards: list[CardUse] = []
    """The cards of the session (read from a file: plain mappings)."""
    energy_kwh: float | None = None
    """Of all cards together."""
    price_per_kwh: float | None = None
    """As ROOST_PRICE_PER_KWH said."""
    currency: str = ""
    cost: float | None = None
    cpu_seconds: float | None = None
    """The processor time of all processes of the session."""
    read_mb: float | None = None
    """What its processes have read from disks, in MB."""
    written_mb: float | None = None
    host: dict[str, Any] = {}
    """name, cores and memory_mb of the machine; cpu: the mean of all cores in per cent; peak_memory_mb."""
    trouble: str | None = None
    """What was not measured, or could not be written, and why."""


class SessionRecord(JsonFields):
    """The session record: how a session, or an analysis, started and ended. Its supervisor writes it; if the
    supervisor was killed its guard does, and a program without a supervisor writes it itself."""

    # --- at the start
    format: int = SESSION_FORMAT
    session: int | None = None
    """The number of the session; not set in the record of a further machine, ``<n>.node-<k>.json``."""
    state: Checked[str] = REQUIRED
    """starting, running, succeeded, failed, stopped or crashed. A running session may have been killed: see
    `Session.state`."""
    host: Checked[str | None] = None
    """The name of the machine."""
    boot_id: Checked[str | None] = None
    """The boot of that machine; empty where the kernel has none."""
    pid: Checked[Pid | None] = None
    """The supervisor, or the program that writes without one."""
    start_ticks: Checked[int | None] = None
    """When that process started, in clock ticks since boot."""
    guard_pid: int | None = None
    """The guard; None: there is none."""
    guard_start_ticks: int | None = None
    worker_pid: int | None = None
    """The worker of rank 0; None: it has not started."""
    cgroup: str | None = None
    """The folder of the session's cgroup; None: there is none."""
    started: Checked[Seconds | None] = None
    """When the session started, Unix seconds."""
    warm: bool = False
    """Whether the worker was forked from a template process."""
    deadline: Checked[Seconds | None] = None
    """By when the session must have ended, Unix seconds; changed while it runs if a deadline file changes.
    None: there is no limit."""
    ranks: list[RankEnd] = []
    """The ranks of this machine (read from a file: plain mappings); empty: a single worker."""

    # --- of a call in an analyzer: where it is in the output of that analyzer, in bytes
    output_begin: int | None = None
    output_end: int | None = None

    # --- while it runs
    stop_asked: bool = False
    """Whether the session was asked to stop."""
    guard_lost: Checked[Seconds | None] = None
    """When the guard was killed, after which the session continued without one; Unix seconds."""
    stalls: list[dict[str, Any]] = []
    """The stalls: the fields of `roost.supervisor.monitoring.stall_watch.Stall`."""
    output_not_cut: str | None = None
    """Why the output could not be limited while the session ran."""

    # --- at the end of the worker
    ended: Seconds | None = None
    """When the worker ended, Unix seconds."""
    seconds: Checked[Seconds | None] = None
    """From the start of the session to the end of the worker."""
    worker_status: int | str | None = None
    """The worker's exit code, or the name of the signal that ended it."""

    step: Count | None = None
    """The step that was reached; None: no step of this session is known."""
    saved_step: Count | None = None
    """The step of the newest checkpoint; None: there was none."""

    # --- at the end of the session
    output_left_out_bytes: int | None = None
    """How many bytes of output were left out, of all ranks together."""
    peak_tree_memory_mb: float | None = None
    """The peak of the memory of all processes of the session together, in MB."""
    system: Mapping[str, Any] | None = None
    """`SystemUse`; None for a session that ended at once."""
    memory: Mapping[str, Any] | None = None
    """`CardMemory`: the card memory of the rank that used most; None: no rank has reported it."""
    scope: str | None = None
    """How the processes of the session were found: cgroup, or walk (by parent)."""
    restarted_as: int | None = None
    """The number of the session that restarts this one automatically."""
    exit_code: Checked[int | None] = None
    reason: Checked[str | None] = None
    """A word for the cause of the end, such as signal or exception."""
    error: Checked[str | None] = None
    """The last line of the error, of a session that failed or crashed."""
    peak_memory_mb: Checked[float | None] = None
    """The peak of the memory of the largest single process, in MB."""


def process_fields(pid: int) -> dict[str, Any]:
    """Returns the fields by which a reader finds out whether a process of this machine still exists."""
    return {
        "host": os.uname().nodename,
        "boot_id": process_identity.boot_id(),
        "pid": pid,
        "start_ticks": process_identity.start_ticks(pid),
    }
