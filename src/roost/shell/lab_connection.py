"""`LabConnection`: what a shell or a client needs of a lab, behind a server or on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal

from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.base.text.typed_path import typed_path
from roost.operations.queue import card_request
from roost.operations.queue.card_request import CardRequest

if TYPE_CHECKING:
    from roost.api.client import Client
    from roost.operations.analyzers.call_results import (
        CallRow,
        CheckpointSwitch,
        ScriptCall,
        ScriptEntry,
        ScriptInterrupt,
    )
    from roost.operations.devices.device_list import DeviceList
    from roost.operations.responses import (
        AcceptedTasks,
        JournalPage,
        ListedRun,
        LogPage,
        ProjectResponse,
        SubmitResponse,
        TaskPage,
    )
    from roost.operations.task_results import TaskExplanation, TaskRow
    from roost.package.labels import Labels
    from roost.shell.local_connection import LocalClient

CheckpointName = int | Literal["last", "best", "untrained"]

_USUAL_CARDS = CardRequest()
_PATIENCE_SECONDS, _PAUSE_SECONDS = 30.0, 0.1
_MAX_ROWS = 1000
"""The longest page of a list."""
_UNKNOWN_MB = 1 << 40
"""The assumed memory of a card whose driver does not report it."""


class LabConnection:
    """The operations behind the verbs. Every method blocks, and raises the errors of its operation as
    `RoostError`. A task is given by its label, its id, the beginning of one, or its name.

    Args:
        client: Carries the operations out.
        place: What the shell is connected to, for people.
        has_own_files: Whether the lab sees the files of this machine, so that paths may be relative and can
            be completed.

    Attributes:
        started: The ids of the tasks that were queued over this connection.
    """

    def __init__(self, client: Client | LocalClient, *, place: str, has_own_files: bool) -> None:
        self.client, self.place, self.has_own_files = client, place, has_own_files
        self.started: list[str] = []

    def set_typed_words(self, words: Sequence[str]) -> None:
        """Names the words of the line that is carried out next; without a server a new package has them."""

    def wait_until_answered(self) -> bool:
        """Waits for a server that may have been lost, as it is restarted; returns whether it answers."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                self.client.about()
            except (Refused, UsageError):
                return False
            except RoostError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(_PAUSE_SECONDS)
            else:
                return True

    def new_project(self, folder: str, *, template: str) -> ProjectResponse:
        """Creates a project."""
        return self.client.new_project(self._path(folder), template=template)

    def run_train(
        self,
        config: str,
        *,
        tuning: str | None = None,
        overrides: Sequence[str] = (),
        description: str | None = None,
        no_save: bool = False,
        use_description: bool = False,
        cards: CardRequest = _USUAL_CARDS,
    ) -> SubmitResponse:
        """Queues a training."""
        return self._keep(
            self.client.submit(
                self._path(config),
                tuning=None if tuning is None else self._path(tuning),
                overrides=overrides,
                description=description,
                no_save=no_save,
                use_description=use_description,
                **self._resources(cards),
            )
        )

    def continue_train(
        self,
        package: str,
        *,
        checkpoint: int | Literal["last", "best"] | None = None,
        overrides: Sequence[str] = (),
        description: str | None = None,
        cards: CardRequest = _USUAL_CARDS,
    ) -> SubmitResponse:
        """Queues the next session of a package."""
        return self._keep(
            self.client.continue_(
                self.open_run(package).id,
                checkpoint=checkpoint,
                overrides=overrides,
                description=description,
                **self._resources(cards),
            )
        )

    def start_analyzer(
        self,
        package: str,
        *,
        checkpoint: CheckpointName | None = None,
        scripts: str | None = None,
        cards: CardRequest = _USUAL_CARDS,
    ) -> SubmitResponse:
        """Queues an analyzer.

        Args:
            package: The path of the package, or a task.
            checkpoint: None: the newest.
            scripts: A further folder of scripts, or one script.
            cards: The card, or the CPU.
        """
        return self._keep(
            self.client.analyze(
                self.open_run(package).id,
                checkpoint=None if checkpoint == "untrained" else checkpoint,
                untrained=checkpoint == "untrained",
                scripts=None if scripts is None else self._path(scripts),
                **self._resources(cards),
            )
        )

    def run_script(self, analyzer: str, script: str) -> ScriptCall:
        """Has an analyzer run a script, and returns at once."""
        return self.client.run_script(analyzer, self._script(script))

    def interrupt_script(self, analyzer: str, analysis: int | None = None) -> ScriptInterrupt:
        """Ends the script of an analysis, or whichever the analyzer runs."""
        return self.client.interrupt_script(analyzer, analysis)

    def switch_checkpoint(self, analyzer: str, checkpoint: CheckpointName | None) -> CheckpointSwitch:
        """Has an analyzer load another checkpoint; None: the newest."""
        return self.client.switch_checkpoint(analyzer, "last" if checkpoint is None else checkpoint)

    def list_scripts(self, analyzer: str) -> Sequence[ScriptEntry]:
        """Returns the scripts that an analyzer can run."""
        return self.client.list_scripts(analyzer)

    def list_calls(self, analyzer: str, *, since: int | None = None) -> Sequence[CallRow]:
        """Returns the calls of an analyzer, oldest first, from an analysis on and those that have not
        ended."""
        return self.client.list_calls(analyzer, since=since)

    def analyzer_output(self, analyzer: str, offset: int = 0) -> LogPage:
        """Returns a page of the output of an analyzer from an offset in bytes on."""
        return self.client.read_output(analyzer, offset=offset)

    def follow_output(self, analyzer: str, offset: int) -> Iterator[str]:
        """Yields the output of an analyzer from an offset in bytes on as it is printed, until its task
        ends."""
        with closing(self.client.follow_output(analyzer, cursor=str(offset))) as events:
            for event in events:
                yield event.data.text

    def list_tasks(self, *, all_tasks: bool = False) -> Sequence[TaskRow]:
        """Returns the tasks that wait, run, or ended recently, or all of them."""
        found: list[TaskRow] = []
        while True:
            page: TaskPage = self.client.list_tasks(all=all_tasks, offset=len(found), limit=_MAX_ROWS)
            found += page.tasks
            if not page.tasks or len(found) >= page.total:
                return found

    def find_task(self, task: str) -> TaskRow:
        """Returns one task.

        Raises:
            NotFound: There is none.
        """
        explained, *others = self.client.why(task)
        if not others:
            for all_tasks in (False, True):
                for row in self.list_tasks(all_tasks=all_tasks):
                    if row.id == explained.id:
                        return row
        raise NotFound("this is no single task", received=task, fix="name one of `showTask`")

    def stop_task(self, task: str) -> AcceptedTasks:
        """Asks a task to save and end, without waiting for it."""
        return self.client.stop(task)

    def kill_task(self, task: str) -> AcceptedTasks:
        """Ends a task at once."""
        return self.client.kill(task)

    def hold_task(self, task: str) -> AcceptedTasks:
        """Keeps a pending task from starting."""
        return self.client.hold(task)

    def release_task(self, task: str) -> AcceptedTasks:
        """Lets a held task start."""
        return self.client.release(task)

    def set_priority(self, task: str, priority: int) -> AcceptedTasks:
        """Changes the priority of a task."""
        return self.client.set_priority(task, priority)

    def why(self, task: str) -> Sequence[TaskExplanation]:
        """Returns why a task waits, or how it ended."""
        return self.client.why(task)

    def open_run(self, package: str) -> ListedRun:
        """Returns the run of a package or a task."""
        path = typed_path(package)
        is_path = self.has_own_files and ("/" in package or path.is_dir())
        return self.client.open_run(str(path.absolute()) if is_path else package)

    def read_log(self, run: str, offset: int = 0) -> LogPage:
        """Returns a page of the output of a run from an offset in bytes on."""
        return self.client.read_log(run, offset=offset)

    def follow_log(self, run: str, offset: int) -> Iterator[str]:
        """Yields the output of a run from an offset in bytes on as it is printed, until the run ends."""
        with closing(self.client.follow_log(run, cursor=str(offset))) as events:
            for event in events:
                yield event.data.text

    def label_task(
        self,
        task: str,
        *,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
    ) -> Labels:
        """Changes the labels of the package of a task, and returns them."""
        run = self.open_run(task).id
        return self.client.label_run(run, add_tags=add_tags, remove_tags=remove_tags, note=note)

    def devices(self) -> DeviceList:
        """Returns the cards and what uses them."""
        return self.client.devices()

    def change_devices(self, cards: str) -> DeviceList:
        """Lets tasks use only these cards: ``0,1``, or ``all``."""
        return self.client.change_devices(allowed=cards)

    def journal(self, offset: int | None = None) -> JournalPage:
        """Returns what the server was asked for, from the offset of an earlier page on."""
        return self.client.journal(offset=offset)

    def clear_journal(self) -> None:
        """Makes the journal begin anew, for everybody."""
        self.client.clear_journal()

    def close(self) -> None:
        """Ends the connection."""
        self.client.close()

    def _path(self, text: str) -> str:
        """Returns a path as the lab understands it; no shell has replaced its ``~``."""
        return str(typed_path(text)) if self.has_own_files else text

    def _script(self, text: str) -> str:
        """Returns the name of a script, or its path as the lab understands it."""
        return str(typed_path(text).absolute()) if self.has_own_files and "/" in text else text

    def _resources(self, cards: CardRequest) -> dict[str, Any]:
        """Returns the cards as arguments of the client."""
        options = card_request.task_options(cards, self._capacities_mb)
        named = {"gpus": options.gpus, "memory_mb": options.memory_mb, "strategy": options.strategy}
        return {name: value for name, value in named.items() if value is not None}

    def _capacities_mb(self) -> list[int]:
        """Returns the memory that tasks may reserve on each card that they may use."""
        listed = self.devices()
        return [
            card.total_mb - max(listed.keep_free_mb, card.total_mb // 50) if card.total_mb else _UNKNOWN_MB
            for card in listed.cards
            if card.allowed
        ]

    def _keep(self, found: SubmitResponse) -> SubmitResponse:
        self.started += [one.task for one in found.queued]
        return found
