"""``run_script`` and the other requests to an analyzer: interrupt, another checkpoint, lists of scripts and
calls."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from roost.analysis import analysis_folder, preconditions, script
from roost.analysis.analyzers import analyzer_folder, call_record
from roost.analysis.analyzers.analyzer_folder import AnalyzerSessionRequest
from roost.analysis.analyzers.call_inbox import LAST, UNTRAINED, CallInbox
from roost.analysis.analyzers.call_record import CallEnd
from roost.analysis.analyzers.script_folders import ScriptFolders
from roost.base import durable
from roost.base.errors import INTERRUPTED_EXIT_CODE, NotFound, UsageError
from roost.lab.queue import task_lookup
from roost.lab.queue.task import ENDED, Task
from roost.operations import resolve
from roost.operations.analyzers.call_results import (
    CallRow,
    CheckpointSwitch,
    ScriptCall,
    ScriptEntry,
    ScriptInterrupt,
)
from roost.operations.sessions.session_request import output_size
from roost.package import sessions
from roost.package.checkpoints import selection
from roost.package.dlnest import original_package
from roost.package.kinds import TaskKind
from roost.package.sessions import Session

UNTRAINED_ID = -2
"""The id that DLNest has for a model as it was built."""


def run_script(analyzer: str, name: str) -> ScriptCall:
    """Requests an analyzer to run a script after those that were requested before, and returns at once. The
    source is copied now; later edits do not change this call.

    Args:
        analyzer: The task: its id, the beginning of one, its label or its name.
        name: The name of a script, or the path of one, in a folder that the analyzer may run from: the
            project's AnalyzeScripts, the package's, and what the analyzer was started with.

    Raises:
        NotFound: There is no such task or script.
        UsageError: The text is ambiguous, or names no analyzer.
        Refused: The analyzer has ended, or the script is in none of these folders.
        ContractError: The script is not valid Python, or has no callable `experience`.
    """
    found = _find_running(analyzer)
    path = found.scripts.find(name)
    checked = script.read(path)
    root = Path(found.task.package) / analysis_folder.NAME
    place = analysis_folder.create(root)
    try:
        _write_call(found, place, path, checked.source)
    except BaseException:  # such as a full disk
        durable.discard(place)
        raise
    offset = output_size(found.task.folder / analyzer_folder.OUTPUT)
    found.inbox.add_analysis(int(place.name))
    return ScriptCall(
        found.task.id, found.task.package, int(place.name), str(place), str(path), output_offset=offset
    )


def _write_call(found: FoundAnalyzer, place: Path, path: Path, source: bytes) -> None:
    """Writes the copy of the script and the request; not durably before the call has ended, as in a power cut
    the analyzer ends, too."""
    request = found.request
    durable.write_unsynced(place / analysis_folder.SCRIPT, source)
    body = {
        "kind": TaskKind.ANALYZE,
        **sessions.own_identity(),
        "package": found.task.package,
        "script": {"path": str(path), "sha256": hashlib.sha256(source).hexdigest()},
        "analyzer": int(found.task.folder.name),
        "task": found.task.id,
        "trust": request.trust,
        "device": request.device,
        "project": request.project,
        "created": round(time.time(), 3),
    }
    durable.write_unsynced(place / analysis_folder.REQUEST, sessions.to_json(body))


def interrupt_script(analyzer: str, analysis: int | None = None) -> ScriptInterrupt:
    """Requests an analyzer to interrupt a script, or a switch to another checkpoint: the former one stays
    loaded. What waits never starts. The analyzer lives on.

    Args:
        analyzer: As for `run_script`.
        analysis: The number of the analysis; nothing is interrupted if it has ended. None: the script or the
            switch that runs, or else the first that waits, also of another person.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
        Refused: The analyzer has ended.
    """
    found = _find_running(analyzer)
    root = Path(found.task.package) / analysis_folder.NAME
    for call in (*found.inbox.begun(), *found.inbox.waiting()):
        if call.analysis is None:
            if analysis is None and call.switch is not None:
                _interrupt(found.inbox, call.switch)
                return ScriptInterrupt(found.task.id, None, call.checkpoint)
        # The record of a call ends a moment before the call leaves the inbox.
        elif analysis in (None, call.analysis) and analysis_folder.read(root / str(call.analysis)).is_live:
            _interrupt_analysis(found.inbox, root / str(call.analysis))
            return ScriptInterrupt(found.task.id, call.analysis)
    return ScriptInterrupt(found.task.id, None)


def interrupt_call(call: ScriptCall) -> None:
    """Requests the analyzer of a call to interrupt it, or to leave it out if it waits."""
    request = analysis_folder.AnalysisSessionRequest.from_json(
        analysis_folder.read(Path(call.folder)).request
    )
    folder = Path(call.package) / analyzer_folder.NAME / str(request.analyzer)
    _interrupt_analysis(analyzer_folder.inbox(folder), Path(call.folder))


def interrupt_switch(switch: CheckpointSwitch) -> None:
    """Requests an analyzer to interrupt a switch, or to leave it out if it waits; nothing if it has ended."""
    inbox = _find(switch.task).inbox
    if any(one.switch == switch.number for one in (*inbox.begun(), *inbox.waiting())):
        _interrupt(inbox, switch.number)


def _interrupt_analysis(inbox: CallInbox, place: Path) -> None:
    if _interrupt(inbox, int(place.name)):
        end = CallEnd("stopped", INTERRUPTED_EXIT_CODE, call_record.INTERRUPTED)
        call_record.record_unrun(place, end)


def _interrupt(inbox: CallInbox, number: int) -> bool:
    """Interrupts a call; one that waits is taken out of the inbox at once, whatever runs before it.

    Returns:
        Whether it has waited.
    """
    waiting = next((call for call in inbox.waiting() if call.number == number), None)
    if waiting is not None and inbox.withdraw(waiting):
        return True
    inbox.request_interrupt(number)
    return False


def switch_checkpoint(analyzer: str, checkpoint: str | int) -> CheckpointSwitch:
    """Requests an analyzer to load another checkpoint, after the scripts that were requested before.

    Args:
        analyzer: As for `run_script`.
        checkpoint: An id, ``last``, ``best``, or ``untrained`` (also -2): the weights as the Runner builds
            them.

    Raises:
        NotFound: There is no such task or checkpoint.
        CheckpointError: roost has not written the checkpoint.
        UsageError: The text is ambiguous, or names no analyzer; or it is no checkpoint.
        Refused: The analyzer has ended.
    """
    found = _find_running(analyzer)
    wanted: int | str = UNTRAINED
    if str(checkpoint) not in (UNTRAINED, str(UNTRAINED_ID)):
        package = original_package.open_any(found.task.package)
        id = selection.checkpoint_id(package, checkpoint)
        preconditions.check_checkpoints(package, id, fix=f"give {UNTRAINED}")
        wanted = LAST if id is None else id
    return CheckpointSwitch(found.task.id, wanted, found.inbox.add_switch(wanted))


def list_scripts(analyzer: str) -> list[ScriptEntry]:
    """Returns the scripts that an analyzer may run, by name. Of several with one name it is the first found.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
    """
    return [ScriptEntry(one.name, str(one.path)) for one in _find(analyzer).scripts.scripts()]


def list_calls(analyzer: str, *, since: int | None = None) -> list[CallRow]:
    """Returns the calls of an analyzer, oldest first.

    Args:
        analyzer: As for `run_script`.
        since: The number of an analysis: calls before it are left out, unless they wait or run. A package may
            have thousands of analyses.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
    """
    found = _find(analyzer)
    unended = {call.analysis for call in (*found.inbox.begun(), *found.inbox.waiting())}

    def is_listed(number: int) -> bool:
        return since is None or number >= since or number in unended

    return [_call_row(found.task, place, one) for place, one in _calls(found.task, is_listed)]


def _calls(task: Task, is_listed: Callable[[int], bool]) -> Iterator[tuple[Path, Session]]:
    root, number = Path(task.package) / analysis_folder.NAME, int(task.folder.name)
    for one in analysis_folder.read_all(root, is_listed):
        if one.request.get("analyzer") == number:
            yield root / str(one.number), one


def _call_row(task: Task, place: Path, session: Session) -> CallRow:
    record = session.recorded
    state = "pending" if session.state == "starting" else session.state
    error = session.error
    if state == "pending" and task.state in ENDED:
        state, error = "crashed", "its analyzer ended before the script began"
    request = analysis_folder.AnalysisSessionRequest.from_json(session.request)
    return CallRow(
        analysis=session.number,
        script=str((request.script or {}).get("path", "")),
        state=state,
        started=record.started,
        seconds=record.seconds,
        error=error,
        folder=str(place),
    )


class FoundAnalyzer(NamedTuple):
    """An analyzer that a user has named."""

    task: Task
    request: AnalyzerSessionRequest
    inbox: CallInbox
    scripts: ScriptFolders


def find_analyzer(text: str) -> Task:
    """Returns the task of an analyzer.

    Raises:
        NotFound: There is no such task.
        UsageError: The text is ambiguous, or names no analyzer.
    """
    task, *others = resolve.find_tasks(text)
    if others or task.kind != TaskKind.ANALYZE:
        what = "this is a sweep" if others else f"this task is a {task.traits.noun}"
        raise UsageError(
            f"{what}, not an analyzer",
            received=text,
            fix="`roost submit analyze PACKAGE` starts one; `roost tasks` lists them, as A_…",
        )
    return task


def _find(text: str) -> FoundAnalyzer:
    task = find_analyzer(text)
    request = analyzer_folder.read_request(task.folder)
    if request is None:
        what = "the folder of this analyzer was moved or removed"
        fix = f"move its package back, or end it: `roost stop {task.label}`"
        raise NotFound(what, received=text, where=task.folder, fix=fix)
    package = Path(task.package)
    project = Path(request.project) if request.project else original_package.open_any(package).project
    scripts = ScriptFolders(package, project, Path(request.scripts) if request.scripts else None)
    return FoundAnalyzer(task, request, analyzer_folder.inbox(task.folder), scripts)


def _find_running(text: str) -> FoundAnalyzer:
    found = _find(text)
    task_lookup.require_unended(found.task, text)
    return found
