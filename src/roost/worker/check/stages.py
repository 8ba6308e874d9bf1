"""The stages of a check, each told in a line when it is done."""

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
    """For a task that has a package made for it: what was asked, and a reporter whose stage "imports" is
    begun. From now on the process ends with whoever waits for it.

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
    """Prints each stage with the time it took, and writes it down for the operation.

    A stage that comes several times is printed the first time only.

    Args:
        package: The folder of the package that is checked.

    Raises:
        OSError: The file for the operation cannot be made, or later written.
    """

    def __init__(self, package: Path) -> None:
        self._writer = FindingsWriter(package)
        self._name, self._start = "", 0.0
        self._reported: set[str] = set()
        self.seconds: dict[str, float] = {}
        """What each stage took, all its times together."""

    def begin(self, name: str) -> None:
        """Begins a stage; one that was not ended is dropped."""
        self.drop()
        self._name, self._start = name, perf_counter()
        self._writer.write(FindingLine(stage=CheckStage(name=name, state="begun")))

    def drop(self) -> None:
        """Ends the stage without a word: there was nothing to do, or it goes on later."""
        if self._name:
            self.seconds[self._name] = self._elapsed() + self.seconds.get(self._name, 0.0)
        self._name = ""

    def done(self, summary: str = "") -> None:
        """Ends the stage and prints it; ``seen`` says in a few words what came of it."""
        name = self._name
        self.drop()
        self.report(name, summary)

    def report(self, name: str, summary: str = "", *, seconds: float | None = None) -> None:
        """Prints a stage that is over; what it took is known if it was begun here."""
        if name not in self._reported:
            self._reported.add(name)
            took = self.seconds.get(name, 0.0) if seconds is None else seconds
            self._print(CheckStage(name=name, state="done", seconds=round(took, 6), seen=summary))

    def fail(self) -> None:
        """Ends the stage as failed; the error is told by whoever catches it."""
        if self._name:
            self._print(CheckStage(name=self._name, state="failed", seconds=round(self._elapsed(), 6)))
        self._name = ""

    def warn(self, text: str, *, is_printed: bool = False) -> None:
        """Something that the run would get wrong without ending.

        Args:
            text: In one line.
            is_printed: Whether it was printed already.
        """
        if not is_printed:
            print(f"{WARNING}{text}", flush=True)
        self._writer.write(FindingLine(warning=text))

    @contextlib.contextmanager
    def recording_warnings(self) -> Iterator[None]:
        """Counts among the warnings what is printed as one inside."""
        with self.recording_output() as recorded:
            yield
        for line in recorded.text.splitlines():
            if line.startswith(WARNING):
                self.warn(line.removeprefix(WARNING), is_printed=True)

    @contextlib.contextmanager
    def recording_output(self) -> Iterator[OutputRecorder]:
        """Keeps what is printed inside, which is printed all the same."""
        recorded = OutputRecorder(sys.stdout)
        with contextlib.redirect_stdout(recorded):
            yield recorded

    def record_measurements(self, **values: Any) -> None:
        """Writes down numbers for the operation."""
        self._writer.write(FindingLine(measured=values))

    def _elapsed(self) -> float:
        return perf_counter() - self._start

    def _print(self, stage: CheckStage) -> None:
        seen = "failed" if stage.state == "failed" else stage.seen
        print(f"{stage.name:<11}{stage.seconds:8.2f} s  {seen}".rstrip(), flush=True)
        self._writer.write(FindingLine(stage=stage))


class OutputRecorder(io.TextIOBase):
    """Prints, and keeps what was printed as ``said``."""

    def __init__(self, out: TextIO) -> None:
        self._out, self.text = out, ""

    def write(self, text: str) -> int:
        self.text += text
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()


@contextlib.contextmanager
def output_suppressed() -> Iterator[None]:
    """Keeps back what is printed inside, because it was printed before; after an error it is printed."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    except BaseException:
        print(said.getvalue(), end="", flush=True)
        raise
