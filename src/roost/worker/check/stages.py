"""The stages of a check or data report, each printed as a line when it is done."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, TextIO

from roost.base.errors import NotFound
from roost.package.package import PackageFolder
from roost.package.results.check_findings import CheckStage, FindingLine, FindingsWriter
from roost.worker.caller_watch import end_with_caller

WARNING = "warning: "


def begin_stages(package: PackageFolder) -> tuple[Mapping[str, Any], StageReporter]:
    """Begins a check or data report, in a package made for it: returns the request, and a reporter whose
    stage "imports" has begun. From now on the process ends with its caller.

    Raises:
        NotFound: The package has no session.
    """
    sessions = package.sessions()
    if not sessions:
        raise NotFound("there is no session", where=package.path)
    request = sessions[-1].request
    end_with_caller(request)
    reporter, copied = StageReporter(package.path), request["copied"]
    reporter.report("copy", f"{copied['files']} files", seconds=copied["seconds"])
    reporter.begin("imports")
    return request, reporter


class StageReporter:
    """Prints each stage with its duration, and writes it into the file that the operation reads.

    A stage that occurs several times is printed only the first time.

    Args:
        package: Folder of the package made for the check.

    Raises:
        OSError: The file for the operation cannot be created, or later written.
    """

    def __init__(self, package: Path) -> None:
        self._writer = FindingsWriter(package)
        self._name, self._start = "", 0.0
        self._reported: set[str] = set()
        self.seconds: dict[str, float] = {}
        """Duration of each stage, summed over its occurrences."""

    def begin(self, name: str) -> None:
        """Begins a stage; a stage that has not ended is dropped."""
        self.drop()
        self._name, self._start = name, perf_counter()
        self._writer.write(FindingLine(stage=CheckStage(name=name, state="begun")))

    def drop(self) -> None:
        """Ends the stage without printing it: there was nothing to do, or it continues later."""
        if self._name:
            self.seconds[self._name] = self._elapsed() + self.seconds.get(self._name, 0.0)
        self._name = ""

    def done(self, summary: str = "") -> None:
        """Ends the stage and prints it, with its result in a few words."""
        name = self._name
        self.drop()
        self.report(name, summary)

    def report(self, name: str, summary: str = "", *, seconds: float | None = None) -> None:
        """Prints a stage that is over. Without ``seconds`` its duration is that since `begin`."""
        if name not in self._reported:
            self._reported.add(name)
            took = self.seconds.get(name, 0.0) if seconds is None else seconds
            self._print(CheckStage(name=name, state="done", seconds=round(took, 6), seen=summary))

    def fail(self) -> None:
        """Ends the stage as failed; the caller reports the error."""
        if self._name:
            self._print(CheckStage(name=self._name, state="failed", seconds=round(self._elapsed(), 6)))
        self._name = ""

    def warn(self, text: str, *, is_printed: bool = False) -> None:
        """Reports a problem that does not end the run.

        Args:
            text: One line.
            is_printed: Whether it was printed already.
        """
        if not is_printed:
            print(f"{WARNING}{text}", flush=True)
        self._writer.write(FindingLine(warning=text))

    @contextlib.contextmanager
    def recording_warnings(self) -> Iterator[None]:
        """Records the lines that are printed as warnings inside."""
        with self.recording_output() as recorded:
            yield
        for line in recorded.text.splitlines():
            if line.startswith(WARNING):
                self.warn(line.removeprefix(WARNING), is_printed=True)

    @contextlib.contextmanager
    def recording_output(self) -> Iterator[OutputRecorder]:
        """Records what is printed inside; it is printed as well."""
        recorded = OutputRecorder(sys.stdout)
        with contextlib.redirect_stdout(recorded):
            yield recorded

    def record_measurements(self, **values: Any) -> None:
        """Writes measurements into the file that the operation reads."""
        self._writer.write(FindingLine(measured=values))

    def _elapsed(self) -> float:
        return perf_counter() - self._start

    def _print(self, stage: CheckStage) -> None:
        summary = "failed" if stage.state == "failed" else stage.seen
        print(f"{stage.name:<11}{stage.seconds:8.2f} s  {summary}".rstrip(), flush=True)
        self._writer.write(FindingLine(stage=stage))


class OutputRecorder(io.TextIOBase):
    """Prints, and keeps the printed text in ``text``."""

    def __init__(self, out: TextIO) -> None:
        self._out, self.text = out, ""

    def write(self, text: str) -> int:
        self.text += text
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()


@contextlib.contextmanager
def output_suppressed() -> Iterator[None]:
    """Suppresses the output inside, which would repeat earlier output; after an error it is printed."""
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output):
            yield
    except BaseException:
        print(output.getvalue(), end="", flush=True)
        raise
