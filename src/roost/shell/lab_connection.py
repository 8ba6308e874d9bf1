"""`LabConnection`: what a shell or a client needs of a lab, behind a server or on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from roost.operations.analyzers.script_call import ScriptCall, ScriptEntry
    from roost.operations.devices.devices import DeviceList
    from roost.operations.queue.list_tasks import TaskRow
    from roost.operations.queue.why import TaskExplanation
    from roost.operations.responses import (
        AcceptedTasks,
        JournalPage,
        LogPage,
        ProjectResponse,
        SubmitResponse,
    )
    from roost.package.labels import Labels
    from roost.shell.card_request import CardRequest

CheckpointName = int | Literal["last", "best", "untrained"]


class LabConnection(Protocol):
    """The operations behind the verbs. Every method blocks, and raises the errors of its operation as
    `RoostError`. A task is given by its label, its id, the beginning of one, or its name."""

    place: str
    """What the shell is connected to, for people."""
    has_own_files: bool
    """Whether the lab sees the files of this machine, so that paths can be completed and may be relative."""

    def new_project(self, folder: str, *, template: str) -> ProjectResponse:
        """Creates a project."""

    def run_train(
        self,
        config: str,
        *,
        tuning: str | None,
        overrides: Sequence[str],
        description: str | None,
        name: str | None,
        cards: CardRequest,
    ) -> SubmitResponse:
        """Queues a training."""

    def continue_train(
        self,
        package: str,
        *,
        checkpoint: CheckpointName | None,
        overrides: Sequence[str],
        description: str | None,
        cards: CardRequest,
    ) -> SubmitResponse:
        """Queues the next session of a package."""

    def start_analyzer(
        self,
        package: str,
        *,
        checkpoint: CheckpointName | None,
        scripts: str | None,
        cards: CardRequest,
    ) -> SubmitResponse:
        """Queues an analyzer; ``scripts``: a further folder of scripts, or one script."""

    def run_script(self, analyzer: str, script: str) -> ScriptCall:
        """Has an analyzer run a script, and returns at once."""

    def interrupt_script(self, analyzer: str) -> None:
        """Ends the script that an analyzer runs."""

    def switch_checkpoint(self, analyzer: str, checkpoint: CheckpointName | None) -> None:
        """Has an analyzer load another checkpoint; None: the newest."""

    def list_scripts(self, analyzer: str) -> Sequence[ScriptEntry]:
        """Returns the scripts that an analyzer can run."""

    def analyzer_output(self, analyzer: str, offset: int = 0) -> LogPage:
        """Returns the output of an analyzer from an offset in bytes, at most 64 kB."""

    def follow_analyzer_output(self, analyzer: str, offset: int) -> Iterator[str]:
        """Yields the output of an analyzer from an offset in bytes as it is printed, until the task ends."""

    def call_has_ended(self, call: ScriptCall) -> bool:
        """Whether the script of a call has ended."""

    def list_tasks(self, *, all_tasks: bool = False) -> Sequence[TaskRow]:
        """Returns the tasks that wait, run, or ended recently, or all of them."""

    def find_task(self, task: str) -> TaskRow:
        """Returns one task."""

    def stop_task(self, task: str) -> AcceptedTasks:
        """Asks a task to save and end, without waiting for it."""

    def kill_task(self, task: str) -> AcceptedTasks:
        """Ends a task at once."""

    def hold_task(self, task: str) -> AcceptedTasks:
        """Keeps a pending task from starting."""

    def release_task(self, task: str) -> AcceptedTasks:
        """Lets a held task start."""

    def set_priority(self, task: str, priority: int) -> AcceptedTasks:
        """Changes the priority of a task."""

    def why(self, task: str) -> Sequence[TaskExplanation]:
        """Returns why a task waits, or how it ended."""

    def task_log(self, task: str, offset: int) -> LogPage:
        """Returns the output of a task from an offset in bytes; from the end for a negative one."""

    def follow_task_log(self, task: str, offset: int) -> Iterator[str]:
        """Yields the output of a task from an offset in bytes as it is printed, until the task ends."""

    def label_task(
        self,
        task: str,
        *,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
    ) -> Labels:
        """Changes the labels of the package of a task, and returns them."""

    def devices(self) -> DeviceList:
        """Returns the cards and what uses them."""

    def change_devices(self, cards: str) -> DeviceList:
        """Lets tasks use only these cards: ``0,1``, or ``all``."""

    def journal(self, offset: int | None = None) -> JournalPage:
        """Returns what the server was asked for, from the offset of an earlier page on."""

    def clear_journal(self) -> None:
        """Makes the journal begin anew, for everybody."""

    def close(self) -> None:
        """Ends the connection."""
