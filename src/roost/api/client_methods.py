"""The methods of both clients: the operations of the server by their names, each said once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from roost.api.api_call import Call, Following, followed, get, operation, part, post, stream
from roost.operations.curves.curve import Recorded
from roost.operations.devices.devices import DeviceList as Cards
from roost.operations.lab import Status
from roost.operations.notices import Notices
from roost.operations.queue.why import TaskExplanation
from roost.operations.reading.show import CheckpointShown, Shown
from roost.operations.responses import (
    About,
    Drained,
    Entry,
    Event,
    Lease,
    LogPage,
    LogPiece,
    Ordered,
    OrderedRun,
    Project,
    RowPiece,
    RunPage,
    Submitted,
    TaskPage,
)

State = Literal["pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "crashed"]


class Resources(TypedDict, total=False):
    """What a task needs, and when it may begin; what is left out is as `roost submit` has it."""

    gpus: int | None
    cpus: int | None
    """Cores, of a task without cards."""
    memory_mb: int | None
    """Of each card, which it then shares."""
    whole: bool
    strategy: Literal["single", "ddp", "fsdp"] | None
    priority: int
    after: Sequence[str]
    """Tasks that must have succeeded before."""
    after_any: Sequence[str]
    """Tasks that must have ended before, however."""
    begin: str | None
    """Not before: ``22:30``, ``tomorrow 08:00``, ``2026-11-22T08:00`` or ``+2h``."""
    time_limit: float | None
    """Seconds."""
    opportunistic: bool
    retries: int
    max_parallel: int | None


class Operations:
    """All that can be asked. Every method raises what the operation does, as `roost.api.error_mapping`
    tells."""

    def _path(self, given: Path | str) -> str:
        """A path as the server is told it."""
        raise NotImplementedError

    # --- the machine and its lab

    @operation
    def about(self) -> Call[About]:
        """Who answers."""
        return get("", About)

    @operation
    def lab(self) -> Call[Status]:
        """The daemon, and how many tasks are in each state."""
        return get("/lab", Status)

    @operation
    def devices(self) -> Call[Cards]:
        """The cards, and who is on them."""
        return get("/devices", Cards)

    @operation
    def change_devices(
        self,
        *,
        allowed: str | None = None,
        most_per_card: int | Literal["any"] | None = None,
        foreign: Literal["avoid", "fit", "ignore"] | None = None,
        keep_free_mb: int | None = None,
        cores: int | Literal["any"] | None = None,
    ) -> Call[Cards]:
        """Changes how the lab uses them; what is left out stays as it is.

        Args:
            allowed: ``0,2``, or ``all``.
            most_per_card: How many tasks may share a card.
            foreign: What is done with cards on which somebody computes without a lease.
            keep_free_mb: So much of each card is given to no task.
            cores: For tasks of the CPU.
        """
        return post(
            "/devices", Cards, allowed=allowed, most_per_card=most_per_card, foreign=foreign,
            keep_free_mb=keep_free_mb, cores=cores,
        )  # fmt: skip

    @operation
    def drain(
        self, cards: str, *, off: bool = False, begin: str | None = None, until: str | None = None
    ) -> Call[Drained]:
        """Lets nothing more begin on cards, or takes that back.

        Args:
            cards: ``0,2``, or ``all``.
            off: Take it back.
            begin: From then on, with ``until``: ``22:00``, ``2026-11-22T22:00`` or ``+2h``; None: now.
            until: What may not have ended before does not begin; None: until it is taken back.
        """
        return post("/devices/drain", Drained, cards=cards, off=off, begin=begin, until=until)

    @operation
    def leases(self) -> Call[list[Lease]]:
        """Cards that others hold."""
        return get("/leases", list[Lease])

    @operation
    def events(self, *, cursor: str = "0") -> Call[list[Event]]:
        """What happened in the lab after an event, at most a thousand of them."""
        return get("/events", list[Event], cursor=cursor)

    @stream
    def follow_events(self, *, cursor: str = "0") -> Following[Event]:
        """What happens in the lab, as it comes."""
        return followed("/events/follow", Event, cursor=cursor)

    @operation
    def notices(self) -> Call[Notices]:
        """Who is told when tasks end, fail or stall; without what is secret."""
        return get("/notices", Notices)

    @operation
    def try_notices(self) -> Call[Notices]:
        """Sends one to each of them, and tells what came of it."""
        return post("/notices/test", Notices)

    # --- runs

    @operation
    def list_runs(self, query: str = "", *, offset: int = 0, limit: int = 100) -> Call[RunPage]:
        """The runs, the newest first.

        Args:
            query: Which, in which order, as of `roost ls`: ``status:running lr<1e-3 sort:-valid/accuracy``.
            offset: So many are left out.
            limit: At most so many.
        """
        return get("/runs", RunPage, query=query, offset=offset, limit=limit)

    @operation
    def submit(
        self,
        config: Path | str,
        *,
        tuning: Path | str | None = None,
        overrides: Sequence[str] = (),
        description: str | None = None,
        name: str | None = None,
        **resources: Unpack[Resources],
    ) -> Call[Submitted]:
        """Queues a training, or a sweep.

        Args:
            config: Its path, absolute for a client with a URL.
            tuning: The path of a second config, above the first.
            overrides: As typed after ``roost submit CONFIG``.
            description: A few words about it.
            name: The package's.
            **resources: `Resources`.
        """
        return post(
            "/runs", Submitted, config=self._path(config), tuning=tuning and self._path(tuning),
            overrides=overrides, description=description, name=name, **resources,
        )  # fmt: skip

    @operation
    def submit_command(
        self,
        command: Sequence[str],
        *,
        folder: Path | str,
        description: str | None = None,
        name: str | None = None,
        **resources: Unpack[Resources],
    ) -> Call[Submitted]:
        """Queues a command.

        Args:
            command: And its arguments.
            folder: Where it runs: its path, as for `submit`.
            description: A few words about it.
            name: The package's.
            **resources: `Resources`.
        """
        return post(
            "/commands", Submitted, command=command, folder=self._path(folder), description=description,
            name=name, **resources,
        )  # fmt: skip

    @operation
    def show_run(self, run: str) -> Call[Shown]:
        """All that is known of a run."""
        return get(f"/runs/{part(run)}", Shown)

    @operation
    def continue_(
        self,
        run: str,
        *,
        checkpoint: int | None = None,
        overrides: Sequence[str] = (),
        description: str | None = None,
        force: bool = False,
        **resources: Unpack[Resources],
    ) -> Call[Submitted]:
        """Queues the next session of a run.

        Args:
            run: Its id.
            checkpoint: Go on from this one; None: the newest good one.
            overrides: As typed after ``roost continue PACKAGE``.
            description: A few words about it.
            force: Though config or code differ.
            **resources: `Resources`.
        """
        return post(
            f"/runs/{part(run)}/continue", Submitted, checkpoint=checkpoint, overrides=overrides,
            description=description, force=force, **resources,
        )  # fmt: skip

    @operation
    def stop_run(self, run: str, *, now: bool = False) -> Call[OrderedRun]:
        """Asks a run to save and end, or ends it at once."""
        return post(f"/runs/{part(run)}/stop", OrderedRun, now=now)

    @operation
    def checkpoints(self, run: str) -> Call[list[CheckpointShown]]:
        """Its checkpoints."""
        return get(f"/runs/{part(run)}/checkpoints", list[CheckpointShown])

    @operation
    def read_log(self, run: str, *, offset: int = 0, limit: int = 1 << 16, rank: int = 0) -> Call[LogPage]:
        """What a run printed, from an offset on; at most so many bytes."""
        return get(f"/runs/{part(run)}/log", LogPage, offset=offset, limit=limit, rank=rank)

    @stream
    def follow_log(self, run: str, *, cursor: str = "0", rank: int = 0) -> Following[LogPiece]:
        """What a run prints, as it comes; it ends with the run."""
        return followed(f"/runs/{part(run)}/log/follow", LogPiece, cursor=cursor, rank=rank)

    @operation
    def read_records(
        self,
        run: str,
        *,
        name: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        width: int = 1000,
    ) -> Call[Recorded]:
        """A run's curves: in each column of pixels the exact first, least, greatest and last value.

        Args:
            run: Its id.
            name: Of metrics; without one only their names are told.
            from_step: The first one that counts.
            to_step: The last one.
            width: Pixels.
        """
        return get(
            f"/runs/{part(run)}/records", Recorded, name=name, from_step=from_step, to_step=to_step,
            width=width,
        )  # fmt: skip

    @stream
    def follow_records(self, run: str, *, cursor: str = "0:0") -> Following[RowPiece]:
        """What a run records, as it comes; it ends with the run."""
        return followed(f"/runs/{part(run)}/records/follow", RowPiece, cursor=cursor)

    @operation
    def list_files(self, run: str) -> Call[list[Entry]]:
        """Its files."""
        return get(f"/runs/{part(run)}/files", list[Entry])

    @operation
    def read_file(self, run: str, path: str) -> Call[bytes]:
        """One of its files."""
        return get(f"/runs/{part(run)}/files/{'/'.join(map(part, path.split('/')))}", bytes)

    @operation
    def new_project(self, folder: Path | str, *, template: str = "digits") -> Call[Project]:
        """Makes a project from a template, in a folder given by its path, as for `submit`."""
        return post("/projects", Project, folder=self._path(folder), template=template)

    # --- tasks: by an id, the beginning of one, a name; or a sweep

    @operation
    def list_tasks(
        self,
        *,
        all: bool = False,
        state: Sequence[State] = (),
        user: str | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> Call[TaskPage]:
        """What waits, runs, and has ended.

        Args:
            all: Those too that have ended long ago.
            state: Those in one of these.
            user: His.
            offset: So many are left out.
            limit: At most so many.
        """
        return get("/tasks", TaskPage, all=all, state=state, user=user, offset=offset, limit=limit)

    @operation
    def why(self, task: str) -> Call[list[TaskExplanation]]:
        """Why it waits, or how it ended; what happened to it."""
        return get(f"/tasks/{part(task)}/why", list[TaskExplanation])

    @operation
    def stop(self, task: str) -> Call[Ordered]:
        """Asks it to save and end."""
        return post(f"/tasks/{part(task)}/stop", Ordered)

    @operation
    def kill(self, task: str) -> Call[Ordered]:
        """Ends it at once."""
        return post(f"/tasks/{part(task)}/kill", Ordered)

    @operation
    def hold(self, task: str) -> Call[Ordered]:
        """Holds it back."""
        return post(f"/tasks/{part(task)}/hold", Ordered)

    @operation
    def release(self, task: str) -> Call[Ordered]:
        """Lets it go."""
        return post(f"/tasks/{part(task)}/release", Ordered)

    @operation
    def set_priority(self, task: str, priority: int) -> Call[Ordered]:
        """Gives it another priority; higher comes first."""
        return post(f"/tasks/{part(task)}/priority", Ordered, priority=priority)
