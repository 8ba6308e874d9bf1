"""The analyzer: a package, loaded once, and the scripts that run on it one after another."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from roost.analysis import analysis_folder, result_text, script
from roost.analysis.analysis_run import AnalysisFunction, AnalysisRequest, load_package, run_loaded
from roost.analysis.analysis_session import AnalyzedPackage
from roost.analysis.analyzers import analyzer_folder, call_output, call_record
from roost.analysis.analyzers.analyzer_folder import AnalyzerSessionRequest
from roost.analysis.analyzers.call_inbox import LAST, UNTRAINED, CallRequest
from roost.analysis.analyzers.call_record import ANALYZER_ENDED, INTERRUPTED, CallEnd
from roost.analysis.analyzers.script_folders import ScriptFolders
from roost.base import durable
from roost.base.errors import INTERRUPTED_EXIT_CODE, NotFound
from roost.base.text.durations import format_short_duration
from roost.base.text.terminal_text import escape_control
from roost.base.traceback_frames import single_line
from roost.package import sessions
from roost.package.dlnest.original_checkpoint import known_step
from roost.package.package import PackageFolder
from roost.package.project_preflight import parse_package_settings
from roost.package.setting_locations import setting_locations
from roost.project.device_choice import choose_device
from roost.worker import failure_report, torch_settings
from roost.worker.analyze_task import initial_environment
from roost.worker.analyzer.process_state import ProcessState
from roost.worker.analyzer.script_interrupts import AnalyzerStopped, ScriptInterrupts
from roost.worker.worker_output import BurstBuffer

_BOLD, _RED, _GREEN, _YELLOW = "1", "31", "32", "33"
_STOPPED = "stopped on request"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SPACE_SECONDS = 0.5
"""Between two looks whether a full disk has space again."""
T = TypeVar("T")


def run_analyzer(package: PackageFolder, folder: Path) -> str:
    """Loads a package and runs the scripts of its inbox until the analyzer is asked to stop; returns the
    reason of the stop.

    Args:
        package: The package, which is the working folder.
        folder: The session folder of the analyzer.

    Raises:
        RoostError: The package cannot be loaded.
        BaseException: An error of the project's code while the package is loaded.
    """
    request = analyzer_folder.read_request(folder)
    if request is None:
        raise NotFound("there is no request", where=folder)
    inbox = analyzer_folder.inbox(folder)
    durable.make_folder(inbox.folder, exist_ok=True)
    interrupts = ScriptInterrupts(inbox)
    analyzer = Analyzer(package, folder, request, interrupts)
    analyzer.record_lost_calls()
    try:
        interrupts.run(None, analyzer.load)
        while not interrupts.is_stopping:
            if not analyzer.carry_out_next_call():
                interrupts.wait()
    except AnalyzerStopped:
        pass
    analyzer.end()
    return _STOPPED


class Analyzer:
    """The loop's parts.

    ::

        record the calls that a killed attempt had begun as crashed
        load the package
        until a stop signal comes:
            take the first call that waits
                a script:      run it, store result, output and record in its analysis folder
                a checkpoint:  load it in place of the former one
        record the calls that still wait as stopped

    Args:
        package: The package.
        folder: The session folder.
        request: What to load.
        interrupts: Ends a script, or everything, on a signal.
    """

    def __init__(
        self,
        package: PackageFolder,
        folder: Path,
        request: AnalyzerSessionRequest,
        interrupts: ScriptInterrupts,
    ) -> None:
        self._package, self._interrupts = package, interrupts
        self._inbox = analyzer_folder.inbox(folder)
        project = Path(request.project or package.project)
        self._folders = ScriptFolders(
            package.path, project, Path(request.scripts) if request.scripts else None
        )
        self._request = AnalysisRequest(
            checkpoint=request.checkpoint,
            untrained=request.untrained,
            device=request.device,
            project=request.project,
            trust=request.trust,
        )
        self._loaded: AnalyzedPackage | None = None
        self._state: ProcessState
        self._buffer = BurstBuffer()

    def load(self) -> None:
        """Loads the package.

        Raises:
            RoostError: The package cannot be loaded.
            BaseException: An error of the project's code.
        """
        package = self._package
        settings = parse_package_settings(
            package,
            package.settings,
            project=Path(self._request.project or package.project),
            folder=str(package.path),
            where=setting_locations(package),
        )
        device = choose_device(self._request.device)
        torch_settings.apply(settings, device=device, first=initial_environment(package))
        self._loaded = load_package(package, self._request)
        sys.dont_write_bytecode = True  # see `_forget_script_modules`
        self._state = ProcessState(self._loaded.device)
        self._print(f"ready: {self._describe_loaded()}", _BOLD)

    def _describe_loaded(self) -> str:
        loaded = self._loaded
        assert loaded is not None
        at = loaded.checkpoint
        if at is None:
            return f"untrained, {loaded.device}"
        step = known_step(at)
        return f"checkpoint {at.id}{'' if step is None else f', step {step}'}, {loaded.device}"

    def end(self) -> None:
        """Ends the work with the package, and records the calls that wait as stopped."""
        if self._loaded is not None:
            with contextlib.suppress(BaseException):  # the analyzer ends, whatever the project's hook does
                self._loaded._end()
        for call in self._inbox.waiting():
            self._record_unrun(call, CallEnd("stopped", INTERRUPTED_EXIT_CODE, ANALYZER_ENDED))

    def record_lost_calls(self) -> None:
        """Records the calls that an attempt had begun when it was killed as crashed."""
        for call in self._inbox.begun():
            if call.analysis is not None:
                self._record_lost(self._package.path / analysis_folder.NAME / str(call.analysis))
            self._inbox.end(call)

    def _record_lost(self, place: Path) -> None:
        session = sessions.read(
            place / analysis_folder.REQUEST, place / analysis_folder.RECORD, number=int(place.name)
        )
        if not session.request or (session.record is not None and session.recorded.state != "running"):
            return  # the folder was removed, or only the inbox was not up to date
        begin = functools.partial(call_record.begin, place, output_begin=None)
        record = session.record or self._store(place, begin)
        if record is None:
            return
        end = self._output_size()
        self._store(place, lambda: self._copy_output(place, record.output_begin, end))
        error = "the analyzer ended while the script ran, and has started again"
        crashed = CallEnd("crashed", 1, ANALYZER_ENDED, error)
        self._store(place, lambda: call_record.end(place, record, crashed, output_end=end))
        self._print(f"analysis {place.name}: {error}", _RED)

    # --- one call

    def carry_out_next_call(self) -> bool:
        """Carries out the first call that waits; False if none does."""
        calls = self._inbox.waiting()
        interrupted = self._inbox.interrupted()
        for number in interrupted:
            self._inbox.remove_interrupt(number)
        for call in calls:
            if call.number in interrupted:
                self._record_unrun(call, CallEnd("stopped", INTERRUPTED_EXIT_CODE, INTERRUPTED))
                return True
        if not calls:
            return False
        call = calls[0]
        if self._inbox.begin(call):
            try:
                if call.analysis is not None:
                    self._run_script(call.analysis)
                elif call.checkpoint is not None:
                    self._switch(call.checkpoint, call.switch)
            finally:
                self._inbox.end(call)
        return True

    def _record_unrun(self, call: CallRequest, end: CallEnd) -> None:
        if call.analysis is not None:
            place = self._package.path / analysis_folder.NAME / str(call.analysis)
            if analysis_folder.read(place).request:
                self._store(place, functools.partial(call_record.record_unrun, place, end))
        self._inbox.withdraw(call)

    def _run_script(self, number: int) -> None:
        place = self._package.path / analysis_folder.NAME / str(number)
        request = analysis_folder.read(place).request
        try:
            path = Path(request["script"]["path"])
        except (KeyError, TypeError):  # the folder was removed
            self._print(f"analysis {number} is gone", _RED)
            return
        name = escape_control(path.stem).replace("\n", "\\n")
        self._print(f"analysis {number}: {name}", _BOLD)
        assert self._loaded is not None
        self._restore_process(number)  # a thread that an earlier script has left may have changed it
        record = self._store(place, lambda: call_record.begin(place, output_begin=self._output_size()))
        if record is None:
            return
        found, is_stopped = CallEnd("succeeded", 0, "finished"), False
        run = functools.partial(
            run_loaded,
            self._loaded,
            place,
            self._request,
            script=request["script"],
            function=lambda: self._load_script(place / analysis_folder.SCRIPT, path),
        )
        with self._buffer:
            try:
                self._interrupts.run(number, run)
            except AnalyzerStopped:
                found, is_stopped = CallEnd("stopped", INTERRUPTED_EXIT_CODE, ANALYZER_ENDED), True
            except BaseException as error:  # noqa: BLE001  - a script may raise any
                self._state.restore()  # also if an interrupt has come in the middle of it
                self._buffer.claim()
                found = self._report(error, place, path)
        self._restore_process(number)
        self._finish_call(place, record, found)
        self._forget_script_modules()
        if is_stopped:
            raise AnalyzerStopped

    def _finish_call(self, place: Path, record: Any, found: CallEnd) -> None:
        """Records the end of a call, then prints its value and its end."""
        end = self._output_size()

        def write() -> None:
            self._copy_output(place, record.output_begin, end)
            call_record.end(place, record, found, output_end=end)

        self._store(place, write)
        result = analysis_folder.read_result(place)
        if found.state == "succeeded":
            if result.get("value") is not None:
                for line in result_text.format_value(result["value"]):
                    print(line)
            for saved in result.get("saved", []):
                print(f"saved {place.relative_to(self._package.path) / saved}")
        took = format_short_duration(result.get("seconds", record.seconds or 0.0))
        styles = {"succeeded": _GREEN, "stopped": _YELLOW}
        how = INTERRUPTED if found.reason == INTERRUPTED else found.state
        link = "in" if found.state == "succeeded" else "after"
        self._print(f"analysis {place.name}: {how} {link} {took}", styles.get(found.state, _RED))

    def _store(self, place: Path, write: Callable[[], T]) -> T | None:
        """Writes files of an analysis, and waits while the disk is full: a call that has ended must not stay
        "running". Returns None, after a line, if they cannot be written."""
        is_reported = False
        while True:
            try:
                return write()
            except OSError as error:
                why = f"analysis {place.name} cannot be stored: {single_line(str(error))}"
                if error.errno not in _FULL or self._interrupts.is_stopping:
                    self._print(why, _RED)
                    return None
                if not is_reported:
                    self._print(f"{why}; waiting for space", _YELLOW)
                    is_reported = True
            time.sleep(_SPACE_SECONDS)

    def _report(self, error: BaseException, place: Path, path: Path) -> CallEnd:
        """Prints the error of a script and returns the end that it means."""
        if isinstance(error, KeyboardInterrupt):
            return CallEnd("stopped", INTERRUPTED_EXIT_CODE, INTERRUPTED)
        with contextlib.redirect_stderr(io.StringIO()) as lines:
            failure = failure_report.report(
                error,
                own=[self._package.path, path.parent],
                package=self._package.path,
                file=place / analysis_folder.TRACEBACK,
            )
        for line in lines.getvalue().splitlines():
            self._print(line, _RED)
        return CallEnd("failed", failure.exit_code, failure.reason, failure.error)

    def _load_script(self, source: Path, path: Path) -> AnalysisFunction:
        """Imports a script. What it does to the process is undone as soon as it ends: a whole interpreter
        writes its result."""
        self._state.limit_script()
        try:
            experience = script.load(source, path, self._package.path)
        except BaseException:
            self._state.restore()
            raise

        def run(session: object) -> object:
            try:
                return experience(session)
            finally:
                self._state.restore()

        return run

    def _restore_process(self, number: int) -> None:
        """Undoes what a script may have done to the process."""
        self._state.restore()
        self._interrupts.restore()
        self._buffer.claim()
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            pyplot.close("all")
        if closed := self._state.num_closed:
            self._state.num_closed = 0
            self._print(f"analysis {number}: {closed} files that scripts have left open were closed", _YELLOW)

    def _forget_script_modules(self) -> None:
        """Removes the modules that a script has imported from beside itself, so that the next one imports
        them as they then are. Their bytecode would be taken for that of an edit within the same second, so
        none is written (`Analyzer.load`)."""
        sys.modules.pop(script.MODULE, None)
        folders = self._folders.code_folders()
        for name, module in list(sys.modules.items()):
            file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
            if isinstance(file, str) and file.startswith(folders):
                del sys.modules[name]

    # --- another checkpoint

    def _switch(self, checkpoint: int | str, number: int | None) -> None:
        request = self._request._replace(
            checkpoint=checkpoint if isinstance(checkpoint, int) else None,
            untrained=checkpoint == UNTRAINED,
        )
        assert self._loaded is not None and (isinstance(checkpoint, int) or checkpoint in (LAST, UNTRAINED))
        self._state.restore()
        former = self._loaded
        load = functools.partial(load_package, self._package, request, before=former)
        try:
            loaded = self._interrupts.run(number, load)
        except AnalyzerStopped:
            raise
        except BaseException as error:  # noqa: BLE001  - the project's code may raise any
            self._state.restore()
            self._buffer.claim()
            self._print(f"not switched: {_describe(error)}; still {self._describe_loaded()}", _RED)
            return
        self._loaded, self._request, self._state = loaded, request, ProcessState(loaded.device)
        self._buffer.claim()
        self._print(f"switched: {self._describe_loaded()}", _BOLD)
        try:
            self._interrupts.run(number, former._end)  # not before the other is whole
        except AnalyzerStopped:
            raise
        except BaseException as error:  # noqa: BLE001
            self._buffer.claim()
            self._print(f"the end of the former checkpoint's work: {_describe(error)}", _RED)

    # --- output

    def _print(self, text: str, style: str) -> None:
        self._buffer.claim()  # a thread that a script has left may close it at any time
        stream = self._buffer.stream
        stream.write(f"\x1b[{style}m{text}\x1b[0m\n")
        stream.flush()

    def _output_size(self) -> int | None:
        """Returns the size of the output, which is stdout; None if that is no file."""
        self._buffer.stream.flush()
        found = os.fstat(1)
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def _copy_output(self, place: Path, begin: int | None, end: int | None) -> None:
        if begin is None or end is None:
            return
        with _open_to_read(1) as source:
            call_output.copy(source, begin, end, place / analysis_folder.OUTPUT)


def _describe(error: BaseException) -> str:
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else single_line(str(error))


@contextlib.contextmanager
def _open_to_read(fd: int) -> Iterator[int]:
    """Opens the file of a descriptor, which can only write, for reading."""
    found = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield found
    finally:
        os.close(found)
