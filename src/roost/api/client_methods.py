"""The methods of both clients, one for each operation of the server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from roost.api.api_call import (
    ApiRequest,
    StreamRequest,
    get,
    operation,
    path_segment,
    post,
    stream,
    stream_request,
)
from roost.base.strategy import StrategyName
from roost.operations.analyzers.call_results import (
    CallRow,
    CheckpointSwitch,
    ScriptCall,
    ScriptEntry,
    ScriptInterrupt,
)
from roost.operations.curves.curve import RecordedCurves
from roost.operations.devices.device_list import DEFAULT_SINCE
from roost.operations.devices.device_list import DeviceList as Cards
from roost.operations.live_lab.lab_change import LabChange
from roost.operations.responses import (
    AcceptedRun,
    AcceptedTasks,
    DrainedCards,
    Event,
    FileEntry,
    JournalPage,
    LeaseEntry,
    ListedRun,
    LogPage,
    LogPiece,
    ProjectResponse,
    RowPiece,
    RunPage,
    ServerInfo,
    SubmitResponse,
    TaskPage,
)
from roost.operations.task_results import TaskExplanation

if TYPE_CHECKING:  # imported by the methods: they take as long as all else here, and most programs need none
    from roost.operations.comparing.comparison import PackageComparison
    from roost.operations.devices.device_history import MachineHistory
    from roost.operations.lab import LabStatus
    from roost.operations.notices import Notices
    from roost.operations.reading.show import CheckpointDetails, PackageDetails
    from roost.package.labels import Labels

State = Literal["pending", "starting", "running", "stopping", "succeeded", "failed", "stopped", "crashed"]


class ResourceArguments(TypedDict, total=False):
    """The names and types of the fields of `roost.devices.resource_request.TaskOptions`, which describes them
    and has their defaults, in the form in which a type checker knows them as keywords."""

    gpus: int | None
    cpus: int | None
    host_memory_mb: int | None
    memory_mb: int | None
    whole: bool
    strategy: StrategyName | None
    priority: int
    after: Sequence[str]
    after_any: Sequence[str]
    begin: str | None
    time_limit: float | None
    opportunistic: bool
    no_restart: bool
    retries: int
    max_parallel: int | None


class ClientMethods:
    """The operations of the server. Every method raises the errors of its operation, mapped by
    `roost.api.error_mapping`."""

    def _path(self, given: Path | str) -> str:
        """Returns a path in the form in which it is sent to the server."""
        raise NotImplementedError

    # --- the machine and its lab

    @operation
    def about(self) -> ApiRequest[ServerInfo]:
        """Returns the version and the process of the server."""
        return get("", ServerInfo)

    @operation
    def lab(self) -> ApiRequest[LabStatus]:
        """Returns the daemon and the number of tasks in each state."""
        from roost.operations.lab import LabStatus

        return get("/lab", LabStatus)

    @operation
    def devices(self) -> ApiRequest[Cards]:
        """Returns the cards and the processes on them."""
        return get("/devices", Cards)

    @operation
    def device_history(self, *, since: str = DEFAULT_SINCE) -> ApiRequest[MachineHistory]:
        """Returns what the cards and the host did, and who held the cards.

        Args:
            since: How far back: ``30min``, ``12h``; about a day is stored.
        """
        from roost.operations.devices.device_history import MachineHistory

        return get("/devices/history", MachineHistory, since=since)

    @operation
    def change_devices(
        self,
        *,
        allowed: str | None = None,
        most_per_card: int | Literal["any"] | None = None,
        foreign: Literal["avoid", "fit", "ignore"] | None = None,
        keep_free_mb: int | None = None,
        cores: int | Literal["any"] | None = None,
        host_memory_mb: int | Literal["any"] | None = None,
    ) -> ApiRequest[Cards]:
        """Changes how the lab uses the cards; arguments that are left out change nothing.

        Args:
            allowed: ``0,2``, or ``all``.
            most_per_card: The maximum number of tasks on a card.
            foreign: How cards with foreign processes, which have no lease, are used.
            keep_free_mb: Memory of each card that no task gets, in MB.
            cores: The number of cores for all tasks.
            host_memory_mb: Memory of the machine that tasks may request together, in MB.
        """
        return post(
            "/devices", Cards, allowed=allowed, most_per_card=most_per_card, foreign=foreign,
            keep_free_mb=keep_free_mb, cores=cores, host_memory_mb=host_memory_mb,
        )  # fmt: skip

    @operation
    def drain(
        self, cards: str, *, off: bool = False, begin: str | None = None, until: str | None = None
    ) -> ApiRequest[DrainedCards]:
        """Drains cards, so that no more tasks start on them, or ends that.

        Args:
            cards: ``0,2``, or ``all``.
            off: Ends the drain.
            begin: Its start, with ``until``: ``22:00``, ``2026-11-22T22:00`` or ``+2h``; None: now.
            until: Its end; a task that may still run when the drain begins does not start. None: no end.
        """
        return post("/devices/drain", DrainedCards, cards=cards, off=off, begin=begin, until=until)

    @operation
    def leases(self) -> ApiRequest[list[LeaseEntry]]:
        """Returns the leases of cards."""
        return get("/leases", list[LeaseEntry])

    @operation
    def events(self, *, cursor: str = "0") -> ApiRequest[list[Event]]:
        """Returns the lab's events after a cursor, at most a thousand."""
        return get("/events", list[Event], cursor=cursor)

    @stream
    def follow_lab(self, *, cursor: str = "", metrics: Sequence[str] = ()) -> StreamRequest[list[LabChange]]:
        """Yields the live state of the lab, and its changes as they happen:
        `roost.operations.live_lab.lab_state.LabState` applies them. Each piece whose kind is ``snapshot``
        begins anew.

        Args:
            cursor: Of the last piece received; empty: the whole state comes first.
            metrics: Patterns of the metrics to follow, as ``valid/*``; none: all.
        """
        return stream_request("/lab/follow", list[LabChange], cursor=cursor, metrics=metrics)

    @stream
    def follow_events(self, *, cursor: str = "0") -> StreamRequest[Event]:
        """Yields the lab's events as they happen."""
        return stream_request("/events/follow", Event, cursor=cursor)

    @operation
    def journal(self, *, offset: int | None = None) -> ApiRequest[JournalPage]:
        """Returns what the server was asked for, a line for each operation.

        Args:
            offset: The offset of an earlier answer: only the lines after it; None: the newest lines.
        """
        return get("/journal", JournalPage, offset=offset)

    @operation
    def clear_journal(self) -> ApiRequest[JournalPage]:
        """Lets the journal begin anew, for everybody."""
        return post("/journal/clear", JournalPage)

    @operation
    def notices(self) -> ApiRequest[Notices]:
        """Returns the receivers of notices about tasks that end, fail or stall, without secrets."""
        from roost.operations.notices import Notices

        return get("/notices", Notices)

    @operation
    def try_notices(self) -> ApiRequest[Notices]:
        """Sends a test notice to each receiver and returns the results."""
        from roost.operations.notices import Notices

        return post("/notices/test", Notices)

    # --- runs

    @operation
    def list_runs(self, query: str = "", *, offset: int = 0, limit: int = 100) -> ApiRequest[RunPage]:
        """Returns runs, newest first.

        Args:
            query: Filter and order, as of `roost ls`: ``status:running lr<1e-3 sort:-valid/accuracy``.
            offset: The number of runs to skip.
            limit: The maximum number of runs.
        """
        return get("/runs", RunPage, query=query, offset=offset, limit=limit)

    @operation
    def submit(
        self,
        config: Path | str,
        *,
        project: Path | str | None = None,
        tuning: Path | str | None = None,
        overrides: Sequence[str] = (),
        description: str | None = None,
        name: str | None = None,
        no_save: bool = False,
        use_description: bool = False,
        **resources: Unpack[ResourceArguments],
    ) -> ApiRequest[SubmitResponse]:
        """Queues a training or a sweep.

        Args:
            config: The path of the config, absolute for a client with a URL.
            project: The path of the project's folder; None: the nearest one, from the config's folder
                upwards, that holds the files that the config names.
            tuning: The path of a second config that overrides the first.
            overrides: Settings as typed after ``roost submit CONFIG``.
            description: A few words about the run.
            name: The name of the package.
            no_save: Names the package NOSAVE, with a suffix if there is one; wins over ``use_description``.
            use_description: Names the package by the description, with a suffix if there is one.
            **resources: `ResourceArguments`.
        """
        return post(
            "/runs", SubmitResponse, config=self._path(config), project=project and self._path(project),
            tuning=tuning and self._path(tuning), overrides=overrides, description=description, name=name,
            no_save=no_save, use_description=use_description, **resources,
        )  # fmt: skip

    @operation
    def submit_command(
        self,
        command: Sequence[str],
        *,
        folder: Path | str,
        in_place: bool = False,
        source: str | None = None,
        metrics: Sequence[str] = (),
        resume_with: str | None = None,
        checkpoint_pattern: str | None = None,
        stage: Sequence[str] = (),
        description: str | None = None,
        name: str | None = None,
        **resources: Unpack[ResourceArguments],
    ) -> ApiRequest[SubmitResponse]:
        """Queues a command.

        Args:
            command: The command and its arguments.
            folder: The path of the folder of its code, which is copied; as for `submit`.
            in_place: Run it in the folder, without a copy.
            source: Other code: a folder, an archive, or ``git+URL@commit``.
            metrics: Texts NAME=REGEX, for metrics in its output.
            resume_with: Arguments that are added from the second session on, such as
                ``--resume {checkpoint}``.
            checkpoint_pattern: The names of its checkpoints, or the ends of their paths.
            stage: Archives that are unpacked to a local disk before it starts: absolute paths, or URLs.
            description: A few words about the run.
            name: The name of the package.
            **resources: `ResourceArguments`.
        """
        return post(
            "/commands", SubmitResponse, command=command, folder=self._path(folder), in_place=in_place,
            source=source, metrics=metrics, resume_with=resume_with,
            checkpoint_pattern=checkpoint_pattern, stage=stage, description=description, name=name,
            **resources,
        )  # fmt: skip

    @operation
    def open_run(self, package: Path | str) -> ApiRequest[ListedRun]:
        """Returns the run of a package, whose folder the server shows from now on.

        Args:
            package: The path of the package, absolute for a client with a URL; or a task.
        """
        return post("/runs/open", ListedRun, package=str(package))

    @operation
    def show_run(self, run: str) -> ApiRequest[PackageDetails]:
        """Returns everything known about a run."""
        from roost.operations.reading.show import PackageDetails

        return get(f"/runs/{path_segment(run)}", PackageDetails)

    @operation
    def continue_(
        self,
        run: str,
        *,
        checkpoint: int | Literal["last", "best"] | None = None,
        overrides: Sequence[str] = (),
        description: str | None = None,
        force: bool = False,
        trust: bool = False,
        **resources: Unpack[ResourceArguments],
    ) -> ApiRequest[SubmitResponse]:
        """Queues the next session of a run.

        Args:
            run: The id of the run.
            checkpoint: The checkpoint to continue from: an id, ``best`` or ``last``; None: ``last``,
                the newest undamaged one.
            overrides: Settings as typed after ``roost continue PACKAGE``.
            description: A few words about the session.
            force: Continues even if config or code differ.
            trust: Reads pickles of its checkpoint that are not signed with your key.
            **resources: `ResourceArguments`.
        """
        return post(
            f"/runs/{path_segment(run)}/continue", SubmitResponse, checkpoint=checkpoint, overrides=overrides,
            description=description, force=force, trust=trust, **resources,
        )  # fmt: skip

    @operation
    def predict(
        self,
        run: str,
        source: str,
        *,
        checkpoint: int | Literal["last", "best"] | None = None,
        averaged: str | None = None,
        batch_size: int | None = None,
        num_workers: int | None = None,
        limit: int | None = None,
        **resources: Unpack[ResourceArguments],
    ) -> ApiRequest[SubmitResponse]:
        """Queues a prediction of a run.

        Args:
            run: The id of the run.
            source: The name of a set, or the absolute path of data for the project's Dataset.
            checkpoint: An id, ``best`` or ``last``; None: ``last``.
            averaged: The name of an average whose weights are used.
            batch_size: Samples per batch; None: as in the settings.
            num_workers: Loader workers; None: as in the settings.
            limit: Only so many samples; None: all.
            **resources: `ResourceArguments`.
        """
        return post(
            f"/runs/{path_segment(run)}/predict", SubmitResponse, source=source, checkpoint=checkpoint,
            averaged=averaged, batch_size=batch_size, num_workers=num_workers, limit=limit, **resources,
        )  # fmt: skip

    @operation
    def evaluate(
        self,
        run: str,
        *,
        checkpoints: str | None = None,
        weights: Path | str | None = None,
        variants: Path | str | None = None,
        datasets: Sequence[str] = (),
        name: str | None = None,
        template: str = "{variant}/{checkpoint}/{dataset}",
        on_step_error: Literal["raise", "skip"] = "raise",
        overrides: Sequence[str] = (),
        project: Path | str | None = None,
        **resources: Unpack[ResourceArguments],
    ) -> ApiRequest[SubmitResponse]:
        """Queues an evaluation of a run: each selected checkpoint with each variant on each set.

        Args:
            run: The id of the run.
            checkpoints: Selectors, separated by commas, such as ``average(best:10),last``; None: the best
                checkpoint, or the last where no metric determines it.
            weights: The path of a file with weights.
            variants: The path of a file of variants; None: the default.
            datasets: The names of sets; empty: all test sets.
            name: The name of the evaluation; one that was asked the same goes on.
            template: The folder of each cell below that of the evaluation.
            on_step_error: Whether the samples of a batch that fails are recorded and passed over.
            overrides: Settings of the evaluation alone, as ``a.b=c``.
            project: The path of the project's folder now, if it was moved.
            **resources: `ResourceArguments`.
        """
        return post(
            f"/runs/{path_segment(run)}/evaluate", SubmitResponse, checkpoints=checkpoints, weights=weights,
            variants=variants, datasets=datasets, name=name, template=template, on_step_error=on_step_error,
            overrides=overrides, project=project, **resources,
        )  # fmt: skip

    @operation
    def analyze(
        self,
        run: str,
        *,
        checkpoint: int | Literal["last", "best"] | None = None,
        untrained: bool = False,
        trust: bool = False,
        scripts: Path | str | None = None,
        project: Path | str | None = None,
        **resources: Unpack[ResourceArguments],
    ) -> ApiRequest[SubmitResponse]:
        """Queues an analyzer, a task that loads a run once and then runs scripts on it.

        Args:
            run: The id of the run.
            checkpoint: An id, ``best`` or ``last``; None: ``last``.
            untrained: Uses the weights as the Runner builds them.
            trust: Reads pickles of its checkpoint that are not signed with your key.
            scripts: The path of a further script, or folder of scripts, that it may run, as for `submit`.
            project: The path of the project's folder now, if it was moved.
            **resources: `ResourceArguments`.
        """
        return post(
            f"/runs/{path_segment(run)}/analyze", SubmitResponse, checkpoint=checkpoint, untrained=untrained,
            trust=trust, scripts=scripts and self._path(scripts), project=project and self._path(project),
            **resources,
        )  # fmt: skip

    @operation
    def stop_run(self, run: str, *, now: bool = False) -> ApiRequest[AcceptedRun]:
        """Requests a run to save and stop, or kills it."""
        return post(f"/runs/{path_segment(run)}/stop", AcceptedRun, now=now)

    @operation
    def label_run(
        self,
        run: str,
        *,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
        starred: bool | None = None,
    ) -> ApiRequest[Labels]:
        """Changes the labels of a run, and returns them; arguments that are left out change nothing.

        Args:
            run: The id of the run.
            add_tags: The tags to add.
            remove_tags: The tags to remove.
            note: The new note; an empty one removes it.
            starred: Whether it is starred.
        """
        from roost.package.labels import Labels

        return post(
            f"/runs/{path_segment(run)}/labels", Labels, add_tags=add_tags, remove_tags=remove_tags,
            note=note, starred=starred,
        )  # fmt: skip

    @operation
    def checkpoints(self, run: str) -> ApiRequest[list[CheckpointDetails]]:
        """Returns the checkpoints of a run."""
        from roost.operations.reading.show import CheckpointDetails

        return get(f"/runs/{path_segment(run)}/checkpoints", list[CheckpointDetails])

    @operation
    def read_log(
        self, run: str, *, offset: int = 0, limit: int = 1 << 16, rank: int = 0
    ) -> ApiRequest[LogPage]:
        """Returns the output of a run from an offset, at most ``limit`` bytes."""
        return get(f"/runs/{path_segment(run)}/log", LogPage, offset=offset, limit=limit, rank=rank)

    @stream
    def follow_log(self, run: str, *, cursor: str = "0", rank: int = 0) -> StreamRequest[LogPiece]:
        """Yields the output of a run as it is printed, until the run ends."""
        return stream_request(f"/runs/{path_segment(run)}/log/follow", LogPiece, cursor=cursor, rank=rank)

    @operation
    def compare(
        self,
        run: Sequence[str],
        *,
        metric: Sequence[str] = (),
        step: int | None = None,
        diff: bool = False,
        file: Sequence[str] = (),
    ) -> ApiRequest[PackageComparison]:
        """Returns what differs between runs in settings, metrics, code and environment.

        Args:
            run: The ids of two or more runs.
            metric: Names or patterns of metrics; without any, all metrics are compared.
            step: Compare the metrics at this step, too; None: at the last one that all runs have reached.
            diff: Also return the lines in which the code of two runs differs.
            file: The lines of these files only, by path or pattern.
        """
        from roost.operations.comparing.comparison import PackageComparison

        return get("/comparison", PackageComparison, run=run, metric=metric, step=step, diff=diff, file=file)

    @operation
    def read_records(
        self,
        run: str,
        *,
        name: Sequence[str] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        width: int = 1000,
    ) -> ApiRequest[RecordedCurves]:
        """Returns a run's curves: for each column of pixels the exact first, least, greatest and last value.

        Args:
            run: The id of the run.
            name: The names of metrics; without them only the available names are returned.
            from_step: The first step.
            to_step: The last step.
            width: The number of columns of pixels.
        """
        return get(
            f"/runs/{path_segment(run)}/records", RecordedCurves, name=name, from_step=from_step,
            to_step=to_step, width=width,
        )  # fmt: skip

    @stream
    def follow_records(self, run: str, *, cursor: str = "0:0") -> StreamRequest[RowPiece]:
        """Yields the rows of a run as they are recorded, until the run ends."""
        return stream_request(f"/runs/{path_segment(run)}/records/follow", RowPiece, cursor=cursor)

    @operation
    def list_files(self, run: str) -> ApiRequest[list[FileEntry]]:
        """Returns the files of a run."""
        return get(f"/runs/{path_segment(run)}/files", list[FileEntry])

    @operation
    def read_file(self, run: str, path: str) -> ApiRequest[bytes]:
        """Returns the content of a file of a run."""
        return get(f"/runs/{path_segment(run)}/files/{'/'.join(map(path_segment, path.split('/')))}", bytes)

    @operation
    def new_project(self, folder: Path | str, *, template: str = "digits") -> ApiRequest[ProjectResponse]:
        """Creates a project from a template in a folder, whose path is as for `submit`."""
        return post("/projects", ProjectResponse, folder=self._path(folder), template=template)

    # --- tasks, given by an id, a prefix of one, a name, or a sweep

    @operation
    def list_tasks(
        self,
        *,
        all: bool = False,
        state: Sequence[State] = (),
        user: str | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> ApiRequest[TaskPage]:
        """Returns tasks that wait, run, or ended recently.

        Args:
            all: Includes tasks that ended long ago.
            state: Only tasks in one of these states.
            user: Only tasks of this user.
            offset: The number of tasks to skip.
            limit: The maximum number of tasks.
        """
        return get("/tasks", TaskPage, all=all, state=state, user=user, offset=offset, limit=limit)

    @operation
    def why(self, task: str) -> ApiRequest[list[TaskExplanation]]:
        """Returns why a task waits or how it ended, with its history."""
        return get(f"/tasks/{path_segment(task)}/why", list[TaskExplanation])

    @operation
    def stop(self, task: str) -> ApiRequest[AcceptedTasks]:
        """Requests a task to save and stop."""
        return post(f"/tasks/{path_segment(task)}/stop", AcceptedTasks)

    @operation
    def kill(self, task: str) -> ApiRequest[AcceptedTasks]:
        """Kills a task."""
        return post(f"/tasks/{path_segment(task)}/kill", AcceptedTasks)

    @operation
    def hold(self, task: str) -> ApiRequest[AcceptedTasks]:
        """Holds a pending task, so that it does not start."""
        return post(f"/tasks/{path_segment(task)}/hold", AcceptedTasks)

    @operation
    def release(self, task: str) -> ApiRequest[AcceptedTasks]:
        """Releases a held task."""
        return post(f"/tasks/{path_segment(task)}/release", AcceptedTasks)

    @operation
    def set_priority(self, task: str, priority: int) -> ApiRequest[AcceptedTasks]:
        """Changes the priority of a task; higher starts first."""
        return post(f"/tasks/{path_segment(task)}/priority", AcceptedTasks, priority=priority)

    # --- analyzers, given by the id of the task, a prefix of one, its label or its name

    @operation
    def run_script(self, task: str, script: str) -> ApiRequest[ScriptCall]:
        """Requests an analyzer to run a script after those that were requested before.

        Args:
            task: The analyzer.
            script: The name of a script, or its absolute path, in one of the folders of the analyzer.
        """
        return post(f"/analyzers/{path_segment(task)}/run", ScriptCall, script=script)

    @operation
    def interrupt_script(self, task: str, analysis: int | None = None) -> ApiRequest[ScriptInterrupt]:
        """Interrupts a script of an analyzer, or a switch of its checkpoint. It lives on.

        Args:
            task: The analyzer.
            analysis: The number of the analysis; nothing is interrupted if it has ended. None: the script or
                switch that runs, or else the first that waits, also of another person.
        """
        return post(f"/analyzers/{path_segment(task)}/interrupt", ScriptInterrupt, analysis=analysis)

    @operation
    def switch_checkpoint(
        self, task: str, checkpoint: int | Literal["last", "best", "untrained"]
    ) -> ApiRequest[CheckpointSwitch]:
        """Loads another checkpoint into an analyzer, after the scripts that were requested before."""
        return post(f"/analyzers/{path_segment(task)}/checkpoint", CheckpointSwitch, checkpoint=checkpoint)

    @operation
    def list_scripts(self, task: str) -> ApiRequest[list[ScriptEntry]]:
        """Returns the scripts that an analyzer may run."""
        return get(f"/analyzers/{path_segment(task)}/scripts", list[ScriptEntry])

    @operation
    def list_calls(self, task: str, *, since: int | None = None) -> ApiRequest[list[CallRow]]:
        """Returns the scripts that an analyzer has run, runs, or will run, oldest first.

        Args:
            task: The analyzer.
            since: The number of an analysis: calls before it are left out, unless they wait or run.
        """
        return get(f"/analyzers/{path_segment(task)}/calls", list[CallRow], since=since)

    @operation
    def read_output(self, task: str, *, offset: int = 0, limit: int = 1 << 16) -> ApiRequest[LogPage]:
        """Returns the output of an analyzer, or of another task that reads a package, from an offset, at most
        ``limit`` bytes."""
        return get(f"/analyzers/{path_segment(task)}/output", LogPage, offset=offset, limit=limit)

    @stream
    def follow_output(self, task: str, *, cursor: str = "0") -> StreamRequest[LogPiece]:
        """Yields the output of an analyzer as it is printed, until its task ends."""
        return stream_request(f"/analyzers/{path_segment(task)}/output/follow", LogPiece, cursor=cursor)
