"""`VerbRunner`: carries out what a person types, and returns what there is to show."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roost.base.errors import Refused, RoostError, UsageError
from roost.base.text.byte_sizes import format_bytes
from roost.display import terminal
from roost.lab.queue.task import ENDED, KILL, PENDING, STARTING, STOP
from roost.operations.queue.card_request import CardRequest
from roost.shell import verb_help
from roost.shell.command_words import quote_word, split_line
from roost.shell.lab_connection import LabConnection
from roost.shell.shell_words import in_shell_words, translate_error
from roost.shell.verbs import ParsedVerb, find_verb, parse

if TYPE_CHECKING:
    from roost.operations.analyzers.call_results import CallRow, ScriptCall
    from roost.operations.devices.device_list import DeviceList
    from roost.operations.responses import AcceptedTasks, LogPage, SubmitResponse
    from roost.operations.task_results import Sweep, TaskRow

_MAX_SHOWN_TASKS = 20
"""Tasks of a sweep that are named after its submission."""
_DEFAULT_LINES = 100
_TAIL_BYTES = 1 << 18
"""The last part of an output that is shown."""
_MIN_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.01, 0.25
_PAUSE_FACTOR = 1.3
"""The pauses between two looks at a quiet output grow by it."""
_SWEEP_CHARACTERS = 10
"""Of the id of a sweep in a table."""
_ENDED_CALLS = ("succeeded", "failed", "stopped", "crashed")
_END_WORDS = (*_ENDED_CALLS, "interrupted")
"""After the number of the analysis, in the line that an analyzer prints at the end of a call."""
_LAST_LINE_SECONDS, _NOTE_SECONDS = 1.0, 0.5
_TAIL_CHARACTERS = 4096


class VerbRunner:
    """Carries out verbs on a lab.

    Args:
        connection: The lab.
        watched: The analyzer that ``watch`` has chosen, by its label or id.
        follows: Whether ``runExp`` shows the output of the script until it ends; without it the output is
            shown elsewhere, or by ``showAN``.
        is_read_only: Whether verbs that change something are refused.
        width: The characters of a line, for tables; None: as many as needed.

    Attributes:
        watched: The watched analyzer; None: none is.
        wants_exit: Whether ``exit`` was typed.
    """

    def __init__(
        self,
        connection: LabConnection,
        watched: str | None = None,
        *,
        follows: bool = True,
        is_read_only: bool = False,
        width: int | None = None,
    ) -> None:
        self.connection, self.watched = connection, watched
        self.follows, self.is_read_only, self.width = follows, is_read_only, width
        self.wants_exit = False

    def run(self, line: str) -> Generator[str, None, None]:
        """Carries out a line, and yields what to show: pieces of text, with line ends, that may be written to
        a terminal as they are. Their only control sequences are colours.

        A ``KeyboardInterrupt`` during the iteration, or thrown into it, interrupts the script that a
        ``runExp`` follows, or ends the following of a log.

        Raises:
            RoostError: The line is wrong, or its operation failed; nothing else changes.
        """
        found = parse(line)
        if found is not None:
            self.connection.set_typed_words([word.text for word in split_line(line).words])
            yield from self.run_parsed(found)

    def run_parsed(self, found: ParsedVerb) -> Generator[str, None, None]:
        """Carries out a parsed line, as `run` does."""
        if found.verb.changes and self.is_read_only:
            raise Refused(f"{found.verb.name} would change the lab, and this client only reads")
        try:
            yield from _VERBS[found.verb.name](self, found)
        except RoostError as error:
            options = {one.key: one.written for one in found.verb.parameters if one.is_option}
            translate_error(error, options)
            raise

    # --- projects and tasks

    def _new(self, found: ParsedVerb) -> Iterator[str]:
        template = found["template"] or ("dlnest-mnist" if found["mnist"] else "dlnest")
        made = self.connection.new_project(found["folder"], template=template)
        yield from _lines([f"{made.path}: {len(made.files)} files"])
        config = next((one for one in ("root_config.json", "config.yaml") if one in made.files), None)
        if config is not None:
            yield from _lines([f"next: run -c {terminal.quote_path(Path(made.path) / config)}"])

    def _run(self, found: ParsedVerb) -> Iterator[str]:
        yield from self._show_queued(
            self.connection.run_train(
                found["config"],
                tuning=found["tuning"],
                overrides=found["overrides"],
                description=found["description"],
                no_save=found["no_save"],
                use_description=found["use_description"],
                cards=_cards(found),
            )
        )

    def _continue(self, found: ParsedVerb) -> Iterator[str]:
        yield from self._show_queued(
            self.connection.continue_train(
                found["package"],
                checkpoint=found["checkpoint"],
                overrides=found["overrides"],
                description=found["description"],
                cards=_cards(found),
            )
        )

    def _analyze(self, found: ParsedVerb) -> Iterator[str]:
        cards = CardRequest(memory_mb=found["memory_mb"], cpu=found["cpu"])
        queued = self.connection.start_analyzer(
            found["package"], checkpoint=found["checkpoint"], scripts=found["scripts"], cards=cards
        )
        yield from self._show_queued(queued)

    def _show_queued(self, found: SubmitResponse) -> Iterator[str]:
        labels = self._labels([one.task for one in found.queued])
        shown = found.queued[:_MAX_SHOWN_TASKS]
        lines = [f"{labels[one.task]}  {_short_path(self.connection, one.path)}" for one in shown]
        if found.sweep is not None:
            lines.insert(0, f"a sweep of {len(found.queued)} tasks")
        if len(found.queued) > len(shown):
            lines.append(f"and {len(found.queued) - len(shown)} more: showTask")
        yield from _lines([*map(in_shell_words, found.notes), *lines])

    def _stop(self, found: ParsedVerb) -> Iterator[str]:
        accepted = self.connection.stop_task(found["task"])
        yield from self._show_accepted(accepted, "asked to save and end")
        self._forget_watched(accepted)

    def _kill(self, found: ParsedVerb) -> Iterator[str]:
        accepted = self.connection.kill_task(found["task"])
        yield from self._show_accepted(accepted, "ended at once")
        self._forget_watched(accepted)

    def _forget_watched(self, accepted: AcceptedTasks) -> None:
        """Ends the watch of an analyzer that ends."""
        ending = self._labels(accepted.tasks)
        if self.watched is not None and self.watched in (*ending, *ending.values()):
            self.watched = None

    def _hold(self, found: ParsedVerb) -> Iterator[str]:
        yield from self._show_accepted(self.connection.hold_task(found["task"]), "held")

    def _release(self, found: ParsedVerb) -> Iterator[str]:
        yield from self._show_accepted(self.connection.release_task(found["task"]), "released")

    def _priority(self, found: ParsedVerb) -> Iterator[str]:
        accepted = self.connection.set_priority(found["task"], found["priority"])
        yield from self._show_accepted(accepted, f"priority {found['priority']}")

    def _show_accepted(self, accepted: AcceptedTasks, what: str) -> Iterator[str]:
        labels = self._labels(accepted.tasks)
        notes = map(in_shell_words, accepted.notes)
        yield from _lines([*(f"{labels[id]}: {what}" for id in accepted.tasks), *notes])

    def _why(self, found: ParsedVerb) -> Iterator[str]:
        from roost.display.task_explanation import format_explanation

        for one in self.connection.why(found["task"]):
            for line in format_explanation(one):
                is_command = line.startswith("  command ")  # as it was typed
                yield f"{line if is_command else in_shell_words(line)}\n"

    def _tag(self, found: ParsedVerb) -> Iterator[str]:
        tags = [tag for word in found["tags"] for tag in word.split(",") if tag]
        add, remove = ([], tags) if found["remove"] else (tags, [])
        labels = self.connection.label_task(found["task"], add_tags=add, remove_tags=remove)
        yield from _lines([f"{found['task']}: {', '.join(labels.tags) or 'no tags'}"])

    def _note(self, found: ParsedVerb) -> Iterator[str]:
        labels = self.connection.label_task(found["task"], note=found["text"])
        yield from _lines([f"{found['task']}: {labels.note or 'no note'}"])

    # --- what there is

    def _show_tasks(self, found: ParsedVerb) -> Iterator[str]:
        from roost.display.task_table import format_tasks

        rows = self.connection.list_tasks(all_tasks=found["all_tasks"])
        if not rows:
            yield "no tasks\n"
            return
        held = {card for row in rows for card in row.cards}
        cards = self.connection.devices().cards if held else []
        numbers = {card.id: card.number for card in cards}
        table = format_tasks(_group_sweeps(rows), time.time(), numbers, self.width)
        yield from _lines(map(in_shell_words, table))

    def _show_devices(self, found: ParsedVerb) -> Iterator[str]:
        yield from self._device_table(self.connection.devices())

    def _device_table(self, devices: DeviceList) -> Iterator[str]:
        from roost.display.device_table import format_devices

        yield from _lines(format_devices(devices, self.width))
        if not devices.cards:
            yield "no GPUs\n"

    def _change_devices(self, found: ParsedVerb) -> Iterator[str]:
        from roost.operations.devices.devices import without_cpu

        cards = without_cpu(
            found["cards"], setting="-d", count_cards=lambda: len(self.connection.devices().cards)
        )
        yield from self._device_table(self.connection.change_devices(cards))
        if cards != found["cards"]:
            yield "-1 is the CPU, which tasks may always use\n"

    def _show_journal(self, found: ParsedVerb) -> Iterator[str]:
        lines = self.connection.journal().lines
        yield from _lines(_style_journal(one) if found["styled"] else one for one in lines)

    def _clear(self, found: ParsedVerb) -> Iterator[str]:
        self.connection.clear_journal()
        yield "the output of the server is cleared\n"

    def _logs(self, found: ParsedVerb) -> Iterator[str]:
        row = self.connection.find_task(found["task"])
        num_lines = _DEFAULT_LINES if found["lines"] is None else found["lines"]
        if num_lines < 0:
            raise UsageError("is below 0", setting="-n", received=num_lines, fix="give a number of lines")
        if row.session_folder:  # of a task that reads a package
            read: Callable[[int], LogPage] = functools.partial(self.connection.analyzer_output, row.id)
            follow: Callable[[int], Iterator[str]] = functools.partial(self.connection.follow_output, row.id)
        else:
            run = self.connection.open_run(row.id).id
            read = functools.partial(self.connection.read_log, run)
            follow = functools.partial(self.connection.follow_log, run)
        offset = yield from _tail(read, num_lines)
        if found["follow"]:
            if row.state == PENDING:
                reason = in_shell_words(row.reason) or "it waits"
                yield from _lines([f"{row.label} has not started yet: {reason}"])
            elif row.state == STARTING and not offset:
                yield from _lines([f"waiting for {row.label} to start ..."])
            yield from _until_interrupted(follow(offset))

    # --- analyzers

    def _watch(self, found: ParsedVerb) -> Iterator[str]:
        row = self.connection.find_task(found["task"])
        if row.kind != _ANALYZE:
            what = f"{row.label} is no analyzer"
            raise UsageError(what, received=found["task"], fix="`analyze -r PKG` starts one")
        if row.state in ENDED or row.stop_asked in (STOP, KILL):
            how = f"has {row.state}" if row.state in ENDED else "is ending"
            what = f"{row.label} {how}, and runs no more scripts"
            raise Refused(what, fix=f"`analyze -r {quote_word(row.package)}` starts another one")
        self.watched = row.label
        yield from _lines([f"{row.label} is watched: `runExp SCRIPT` runs a script in it"])

    def _withdraw(self, found: ParsedVerb) -> Iterator[str]:
        if self.watched is None:
            raise UsageError("no analyzer is watched", fix="`watch TASK` chooses one")
        watched, self.watched = self.watched, None
        try:
            what = (
                ", and had ended" if self.connection.find_task(watched).state in ENDED else ", and continues"
            )
        except (RoostError, OSError):  # withdraw needs no server
            what = ""
        yield from _lines([f"{watched} is no longer watched{what}"])

    def _run_script(self, found: ParsedVerb) -> Iterator[str]:
        analyzer = self._analyzer(found, "SCRIPT")
        try:
            call = self.connection.run_script(analyzer, found["script"])
        except Refused:
            if analyzer == self.watched and self.connection.find_task(analyzer).state in ENDED:
                self.watched = None  # another person has ended it
            raise
        if self.follows:
            yield from self._follow_call(call)
        else:
            label = self._labels([call.task])[call.task]
            yield from _lines([f"{label}: analysis {call.analysis} runs {Path(call.script).stem}"])

    def _show_output(self, found: ParsedVerb) -> Iterator[str]:
        analyzer = self._analyzer(found)
        for piece in _tail(functools.partial(self.connection.analyzer_output, analyzer)):
            yield piece if found["styled"] else click.unstyle(piece)

    def _interrupt(self, found: ParsedVerb) -> Iterator[str]:
        done = self.connection.interrupt_script(self._analyzer(found))
        what = "no script runs"
        if done.analysis is not None:
            what = f"analysis {done.analysis} is interrupted"
        elif done.checkpoint is not None:
            what = f"checkpoint {done.checkpoint} is not loaded; the former one stays"
        yield from _lines([what])

    def _checkpoint(self, found: ParsedVerb) -> Iterator[str]:
        done = self.connection.switch_checkpoint(self._analyzer(found, "ID"), found["checkpoint"])
        label = self._labels([done.task])[done.task]
        yield from _lines([f"{label} loads {done.checkpoint}"])

    def _analyzer(self, found: ParsedVerb, more: str = "") -> str:
        """Returns the analyzer that is named, or the one that is watched.

        Raises:
            UsageError: Neither is.
        """
        named: str | None = found["task"] or self.watched
        if named is None:
            written = " ".join(filter(None, [found.verb.name, "TASK", more]))
            raise UsageError("no analyzer is watched", fix=f"write `{written}`, or `watch TASK` before")
        return named

    def _follow_call(self, call: ScriptCall) -> Iterator[str]:
        """Yields the output of a call until its script has ended. The first interrupt ends the script, a
        second one the following."""
        pieces = _FollowedCall(self.connection, call)
        is_interrupted = has_failed = False
        while not pieces.has_ended:
            try:
                yield from pieces.read()
                has_failed = False
            except RoostError:
                if has_failed or not self.connection.wait_until_answered():
                    raise
                has_failed = True  # the server was away, or the error comes again
            except KeyboardInterrupt:
                if is_interrupted:
                    yield "\nthe analyzer continues; showAN prints its output\n"
                    return
                is_interrupted = True
                self.connection.interrupt_script(call.task, call.analysis)

    # --- the shell

    def _help(self, found: ParsedVerb) -> Iterator[str]:
        lines = verb_help.explain_verb(find_verb(found["verb"])) if found["verb"] else verb_help.list_verbs()
        yield from (f"{line}\n" for line in lines)

    def _exit(self, found: ParsedVerb) -> Iterator[str]:
        self.wants_exit = True
        yield from ()

    def _labels(self, ids: Sequence[str]) -> dict[str, str]:
        """Returns the labels of tasks by their ids."""
        found = {row.id: row.label for row in self.connection.list_tasks()}
        return {id: found.get(id, id) for id in ids}


class _FollowedCall:
    """The output of a call in an analyzer, read again and again until its script has ended.

    Args:
        connection: The lab.
        call: The call.

    Attributes:
        has_ended: Whether the script has ended, and all of its output was read.
    """

    def __init__(self, connection: LabConnection, call: ScriptCall) -> None:
        self._connection, self._call = connection, call
        self._offset, self._decode = call.output_offset, terminal.OutputDecoder()
        self._begin_line = re.compile(rf"^(?:\x1b\[[0-9;]*m)*analysis {call.analysis}: ", re.MULTILINE)
        """As the analyzer prints it before the script; what is before it belongs to other calls."""
        self._has_begun = False
        self._tail = ""
        """The last lines, in which the line that the analyzer prints at the end of the call is looked for."""
        self._end_line = re.compile(
            rf"^analysis {call.analysis}: (?:{'|'.join(_END_WORDS)})\b.*\n", re.MULTILINE
        )
        self._pause, self._next_look = _MIN_PAUSE_SECONDS, time.monotonic() + _NOTE_SECONDS
        self._note = ""
        self.has_ended = False

    def read(self) -> Iterator[str]:
        """Yields the output since the last call, and notes about an analyzer that waits; waits a little if
        there is none."""
        rows = self._connection.list_calls(self._call.task, since=self._call.analysis)
        calls = {one.analysis: one for one in rows}
        row = calls.get(self._call.analysis)
        text = yield from self._new_output()
        if row is None:
            self.has_ended = True
            yield from _lines([f"analysis {self._call.analysis} is gone: its folder was removed"])
        elif row.state in _ENDED_CALLS:
            yield from self._last_output(row)
        elif text:
            self._pause = _MIN_PAUSE_SECONDS
        elif time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _NOTE_SECONDS
            yield from self._waiting_note(row, calls.values())
        else:
            time.sleep(self._pause)
            self._pause = min(self._pause * _PAUSE_FACTOR, _MAX_PAUSE_SECONDS)

    def _new_output(self) -> Generator[str, None, str]:
        page = self._connection.analyzer_output(self._call.task, self._offset)
        self._offset = page.next
        text = self._own_part(self._decode(page.text.encode()))
        if text:
            self._tail = (self._tail + click.unstyle(text))[-_TAIL_CHARACTERS:]
            yield text
        return text

    def _own_part(self, text: str) -> str:
        """Returns a piece of the analyzer's output without that of other calls."""
        if self._has_begun:
            return text
        self._tail += text
        begin = self._begin_line.search(self._tail)
        if begin is None:
            self._tail = self._tail[-_TAIL_CHARACTERS:]
            return ""
        self._has_begun, text, self._tail = True, self._tail[begin.start() :], ""
        return text

    def _last_output(self, row: CallRow) -> Iterator[str]:
        """Yields the rest of the output. Its last line comes a little after the end of the script; one that
        was killed has none."""
        deadline = time.monotonic() + _LAST_LINE_SECONDS
        while self._end_line.search(self._tail) is None:
            if (yield from self._new_output()):
                deadline = time.monotonic() + _LAST_LINE_SECONDS
            elif time.monotonic() > deadline:
                error = f": {in_shell_words(row.error)}" if row.error else ""
                yield from _lines([f"analysis {row.analysis}: {row.state}{error}"])
                break
            else:
                time.sleep(_MIN_PAUSE_SECONDS)
        yield self._decode(b"", final=True)
        self.has_ended = True

    def _waiting_note(self, row: CallRow, calls: Iterable[CallRow]) -> Iterator[str]:
        """Yields why the analyzer does not run the script, if that is new."""
        task = self._connection.find_task(self._call.task)
        running = next((one for one in calls if one.state == "running"), None)
        note = ""
        if task.state in ENDED:
            note, self.has_ended = f"{task.label} has {task.state}", True
        elif task.state == PENDING:
            note = f"{task.label} has not started yet: {in_shell_words(task.reason) or 'it waits'}"
        elif row.state == "pending" and running is not None:
            script = Path(running.script).stem
            note = f"waiting for analysis {running.analysis} ({script}) in {task.label} to end ..."
        elif row.state == "pending":
            note = f"waiting for {task.label} to load {Path(task.package).name} ..."
        is_new, self._note = note != self._note, note
        if note and is_new:
            yield from _lines([note])


_ANALYZE = "analyze"
_VERBS: dict[str, Callable[[VerbRunner, ParsedVerb], Iterator[str]]] = {
    "new": VerbRunner._new,
    "run": VerbRunner._run,
    "continue": VerbRunner._continue,
    "analyze": VerbRunner._analyze,
    "runExp": VerbRunner._run_script,
    "del": VerbRunner._stop,
    "showTask": VerbRunner._show_tasks,
    "showDevices": VerbRunner._show_devices,
    "showDL": VerbRunner._show_journal,
    "showAN": VerbRunner._show_output,
    "changeDevices": VerbRunner._change_devices,
    "clear": VerbRunner._clear,
    "watch": VerbRunner._watch,
    "withdraw": VerbRunner._withdraw,
    "interrupt": VerbRunner._interrupt,
    "checkpoint": VerbRunner._checkpoint,
    "kill": VerbRunner._kill,
    "hold": VerbRunner._hold,
    "release": VerbRunner._release,
    "priority": VerbRunner._priority,
    "why": VerbRunner._why,
    "logs": VerbRunner._logs,
    "tag": VerbRunner._tag,
    "note": VerbRunner._note,
    "help": VerbRunner._help,
    "exit": VerbRunner._exit,
}
"""What carries out each verb of the table."""


def _lines(lines: Iterable[str]) -> Iterator[str]:
    """Yields lines that may quote names of others, with line ends."""
    for line in lines:
        yield f"{terminal.escape_line(line)}\n"


def _cards(found: ParsedVerb) -> CardRequest:
    return CardRequest(
        memory_mb=found["memory_mb"], multi_card=found["multi_card"], ddp=found["ddp"], cpu=found["cpu"]
    )


def _short_path(connection: LabConnection, path: str) -> str:
    return terminal.format_path(Path(path)) if connection.has_own_files else path


def _group_sweeps(rows: Sequence[TaskRow]) -> list[TaskRow | Sweep]:
    """Returns the tasks with those of a sweep as one entry at the place of the first."""
    from roost.operations.task_results import Sweep

    tasks: dict[str, list[TaskRow]] = {}
    for row in rows:
        tasks.setdefault(row.sweep or row.id, []).append(row)
    return [
        found[0]
        if len(found) == 1
        else Sweep(id=id, short=id[:_SWEEP_CHARACTERS], tasks=tuple(found), total=len(found))
        for id, found in tasks.items()
    ]


def _style_journal(line: str) -> str:
    """Returns a line of the journal with a failure in red."""
    before, failed, why = line.partition(" failed: ")
    return f"{before} {click.style(f'failed: {why}', fg='red')}" if failed else line


def _tail(read: Callable[[int], LogPage], num_lines: int | None = None) -> Generator[str, None, int]:
    """Yields the last part of an output, at most `_TAIL_BYTES`; returns the offset of its end.

    Args:
        read: Returns a page from an offset on.
        num_lines: The number of lines; None: all of that part.
    """
    page = read(0)
    if page.size > _TAIL_BYTES:
        page = read(page.size - _TAIL_BYTES)
    decode, start = terminal.OutputDecoder(), page.offset
    text = decode(page.text.encode())
    while page.text and page.next < page.size:
        page = read(page.next)
        text += decode(page.text.encode())
    text += decode(b"", final=True)
    lines = text.splitlines(keepends=True)
    if start:
        lines[:1] = [f"… {format_bytes(start)} before this are not shown\n"]
    if num_lines is not None:
        lines = lines[max(0, len(lines) - num_lines) :]
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    if lines:
        yield "".join(lines)
    return page.next


def _until_interrupted(pieces: Iterator[str]) -> Iterator[str]:
    """Yields the pieces of an output; an interrupt ends that, and not the task."""
    decode = terminal.OutputDecoder()
    try:
        for piece in pieces:
            yield decode(piece.encode())
        yield decode(b"", final=True)
    except KeyboardInterrupt:
        yield "\nthe task continues\n"
