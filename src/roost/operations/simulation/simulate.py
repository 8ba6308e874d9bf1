"""The operation ``simulate``: how the lab would have scheduled a history of tasks, on these or other
cards."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from roost.base import safe_read
from roost.base.errors import ConfigError, NotFound, UsageError
from roost.devices import simulated_cards
from roost.devices.card import Card
from roost.devices.resource_request import ResourceRequest
from roost.lab.memory.memory_prediction import percentile
from roost.lab.policy.policy_state import Rules
from roost.lab.queue.task import PENDING, Task
from roost.operations.simulation.virtual_lab import Job, VirtualLab

MAX_BYTES = 256 * 2**20
_MAX_SECONDS = 100 * 365 * 86400.0

_Seconds = Annotated[float, Meta(ge=0, le=_MAX_SECONDS)]
_MemoryMb = Annotated[int, Meta(ge=1, le=2**40)]
_Count = Annotated[int, Meta(ge=0, le=simulated_cards.MAX_CARDS)]


class HistoryTask(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task of a history: one line of JSON."""

    submitted: Annotated[float, Meta(ge=0, le=1e12)]
    """Seconds since any origin."""
    seconds: _Seconds
    """How long the task ran."""
    user: str = "unknown"
    name: str = ""
    cards: _Count = 1
    memory_mb: _MemoryMb | None = None
    """Of each card; omitted: whole cards."""
    cores: Annotated[int, Meta(ge=1, le=2**20)] | None = None
    """Omitted: one for a task without cards, else none."""
    host_memory_mb: _MemoryMb | None = None
    """Of the host; omitted: none is kept for it."""
    whole: bool = False
    limit: Annotated[float, Meta(gt=0, le=_MAX_SECONDS)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31)] = 0
    opportunistic: bool = False


class ListedTask(Struct, frozen=True, kw_only=True):
    """The fields of a task in the output of `roost tasks --json` that the simulation uses."""

    name: str
    user: str
    submitted: float
    begin: float | None
    started: float | None
    ended: float | None
    num_cards: int
    memory_mb: int | None
    whole: bool
    time_limit: float | None
    priority: int
    opportunistic: bool
    cores: int | None = None
    """Missing in the lists of older versions."""
    host_memory_mb: int | None = None
    """Likewise."""


class TaskHistory(NamedTuple):
    """The tasks of a history file."""

    entries: list[HistoryTask]
    left_out: int
    """The number of tasks in a list that have not run to an end, so that their run time is unknown."""


class SimulateRequest(Struct, frozen=True, kw_only=True):
    """A request to simulate.

    Args:
        history: A file of `HistoryTask` lines, or the output of `roost tasks --all --json`; None: generated.
        cards: As in ``ROOST_DEVICES``: ``4x24GB``.
        tasks: The number of generated tasks.
        seed: Of the generated tasks.
        most_per_card: How many tasks may share a card; None: as many as fit.
        cores: The CPU cores for all tasks.
    """

    history: Path | None = None
    cards: str = "4x24GB"
    tasks: int = 500
    seed: int = 0
    most_per_card: int | None = None
    cores: int = 8


class SimulatedUser(Struct, frozen=True, kw_only=True):
    """Waiting times and usage of one user."""

    user: str
    tasks: int
    wait_p50: float | None
    """Seconds; None: none of the tasks started."""
    wait_p95: float | None
    wait_max: float | None
    gpu_seconds: float
    share: float
    """The fraction of the usage of all users."""


class SimulatedTask(Struct, frozen=True, kw_only=True):
    """A task and how long it waited."""

    name: str
    user: str
    waited: float | None
    """Seconds; None: the task never started."""
    reason: str


class SimulationResult(Struct, frozen=True, kw_only=True):
    """The result of a simulation. Times are in seconds."""

    cards: int
    tasks: int
    decisions: int
    makespan: float
    """From the first submission to the last end."""
    used: float
    """The used fraction of all cards in that time; a share of the memory counts as a share of a card."""
    users: list[SimulatedUser]
    longest: SimulatedTask | None
    """Who waited longest."""
    never: list[SimulatedTask]
    """Tasks that could not start."""
    left_out: int
    """As in `TaskHistory`."""


def simulate(
    request: SimulateRequest, *, report: Callable[[str], None] = lambda text: None
) -> SimulationResult:
    """Runs a history through the scheduling policy of the lab, in virtual time.

    Args:
        request: What to simulate.
        report: Called with a line of progress after each decision.

    Raises:
        NotFound: There is no such file.
        ConfigError: The file cannot be read, or holds something else.
        UsageError: Cards or numbers are not valid.
    """
    cards = simulated_cards.parse_cards(request.cards, setting="--cards")
    if request.history is not None:
        entries, left_out = read_history(request.history)
    else:
        entries, left_out = generate_history(request.tasks, cards, request.seed), 0
    rules = Rules(most_per_card=request.most_per_card, cores=request.cores)
    lab = VirtualLab([_job(number, entry) for number, entry in enumerate(entries)], cards, rules)
    decisions = 0
    for _ in lab.passes():
        decisions += 1
        report(f"{lab.ended} of {len(entries)} tasks")
    return _summary(lab, decisions, left_out)


def read_history(path: Path) -> TaskHistory:
    """Reads a history; empty lines are skipped.

    Raises:
        NotFound: There is no such file.
        ConfigError: The file cannot be read, or a line is not a task.
    """
    try:
        data = bytes(safe_read.read(path, max_bytes=MAX_BYTES))
    except FileNotFoundError:
        fix = (
            "write one with `roost tasks --all --json`, or leave out the file to simulate a generated history"
        )
        raise NotFound("there is no such file", received=str(path), fix=fix) from None
    except OSError as error:
        raise ConfigError(f"the history cannot be read: {error}", where=path) from None
    if data.lstrip().startswith(b"["):
        return _read_list(data, path)
    decoder, found = msgspec.json.Decoder(HistoryTask), []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                found.append(decoder.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ConfigError(
                    f"the line is not a task: {error}",
                    where=f"{path.name}:{number}",
                    fix='write a JSON object per line, as {"submitted": 0, "seconds": 3600, "cards": 1}; '
                    "docs/lab.md lists the keys",
                ) from None
    return TaskHistory(found, 0)


def _read_list(data: bytes, path: Path) -> TaskHistory:
    try:
        tasks = msgspec.json.decode(data, type=list[ListedTask])
        ran = [(one, one.ended - one.started) for one in tasks if one.started and one.ended]
        found = [
            HistoryTask(
                submitted=max(one.submitted, one.begin or 0.0),
                seconds=max(0.0, seconds),
                user=one.user,
                name=one.name,
                cards=one.num_cards,
                memory_mb=one.memory_mb,
                cores=one.cores,
                host_memory_mb=one.host_memory_mb,
                whole=one.whole,
                limit=one.time_limit,
                priority=one.priority,
                opportunistic=one.opportunistic,
            )
            for one, seconds in ran
        ]
        # msgspec checks the constraints of a struct when it converts one, not when one is constructed.
        return TaskHistory(
            msgspec.convert(msgspec.to_builtins(found), list[HistoryTask]), len(tasks) - len(ran)
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        fix = "write the file again from `roost tasks --all --json`"
        raise ConfigError(f"the file is not a list of tasks: {error}", where=path, fix=fix) from None


def generate_history(count: int, cards: Sequence[Card], seed: int) -> list[HistoryTask]:
    """Generates a history of five users, about nine tenths of what the cards can do; the same for the same
    seed.

    Raises:
        UsageError: The number of tasks is out of range.
    """
    if not 1 <= count <= 1_000_000:
        fix = "give a number from 1 to 1000000"
        raise UsageError("is out of range", setting="--tasks", received=count, fix=fix)
    random_ = random.Random(seed)
    largest_mb = max(card.total_mb for card in cards)
    now, found = 0.0, []
    for number in range(count):
        seconds = round(min(86400.0, random_.lognormvariate(7.5, 1.2)))
        gang = min(len(cards), random_.choices((1, 2, 4), (85, 10, 5))[0])
        share = random_.choices((None, 0.2, 0.4, 0.7), (30, 30, 25, 15))[0] if gang == 1 else None
        entry = HistoryTask(
            submitted=round(now, 1),
            seconds=seconds,
            user=random_.choices(("ann", "bob", "cid", "dora", "eve"), (40, 25, 15, 10, 10))[0],
            name=f"task-{number}",
            cards=gang if random_.random() < 0.95 else 0,
            memory_mb=None if share is None else round(largest_mb * share),
            limit=round(seconds * random_.uniform(1.1, 3)) if random_.random() < 0.6 else None,
            priority=random_.choices((0, 1), (95, 5))[0],
            opportunistic=random_.random() < 0.1,
        )
        found.append(entry)
        now += random_.expovariate(1.0) * seconds * entry.cards * (share or 1.0) / len(cards) / 0.9
    return found


def _job(number: int, entry: HistoryTask) -> Job:
    need = ResourceRequest(
        cards=entry.cards,
        memory_mb=entry.memory_mb,
        cores=entry.cores,
        host_memory_mb=entry.host_memory_mb,
        whole=entry.whole,
        time_limit=entry.limit,
        opportunistic=entry.opportunistic,
    )
    id = f"{number:026d}"
    task = Task(
        id=id,
        name=entry.name or f"task {number + 1}",
        package="",
        user=entry.user,
        state=PENDING,
        need=need,
        priority=entry.priority,
        submitted=entry.submitted,
    )
    return Job(task, entry.seconds)


def _summary(lab: VirtualLab, decisions: int, left_out: int) -> SimulationResult:
    jobs = list(lab.jobs.values())
    first = min((job.task.submitted for job in jobs), default=0.0)
    makespan = max((job.ended for job in jobs if job.ended is not None), default=first) - first
    used = sum(lab.ledger.total.values())
    waited = [(job.waited, job) for job in jobs if job.waited is not None]
    longest = max(waited, key=lambda one: one[0], default=None)
    return SimulationResult(
        cards=len(lab.cards),
        tasks=len(jobs),
        decisions=decisions,
        makespan=makespan,
        used=used / (makespan * len(lab.cards)) if makespan else 0.0,
        users=[
            _user(user, jobs, lab.ledger.total[user], used) for user in sorted({j.task.user for j in jobs})
        ],
        longest=_task(longest[1]) if longest is not None and longest[0] > 0 else None,
        never=[_task(job) for job in jobs if job.started is None],
        left_out=left_out,
    )


def _user(user: str, jobs: Sequence[Job], gpu_seconds: float, used: float) -> SimulatedUser:
    own = [job for job in jobs if job.task.user == user]
    waits = sorted(job.waited for job in own if job.waited is not None)
    return SimulatedUser(
        user=user,
        tasks=len(own),
        wait_p50=percentile(waits, 0.5) if waits else None,
        wait_p95=percentile(waits, 0.95) if waits else None,
        wait_max=waits[-1] if waits else None,
        gpu_seconds=gpu_seconds,
        share=gpu_seconds / used if used else 0.0,
    )


def _task(job: Job) -> SimulatedTask:
    return SimulatedTask(name=job.task.name, user=job.task.user, waited=job.waited, reason=job.reason)
