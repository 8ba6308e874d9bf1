"""An analyzer as a supervisor starts it, with a session folder made by hand."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from roost.analysis import analysis_folder
from roost.analysis.analyzers import analyzer_folder
from roost.base import durable
from roost.package import sessions
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from tests.waiting import wait_for


class Analyzer:
    """The process of one attempt, and its inbox."""

    def __init__(self, package: PackageFolder, folder: Path, max_files: int | None = None) -> None:
        self.package, self.folder = package, folder
        self.inbox = analyzer_folder.inbox(folder)
        self.output = folder / analyzer_folder.OUTPUT
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "roost.worker", str(package.path), str(folder), "1"],
                cwd=package.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=max_files
                and (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))),
            )

    def ask(self, source: str, name: str = "look", folder: Path | None = None) -> Path:
        """Requests a script as the operation does; returns the folder of its analysis."""
        place = analysis_folder.create(self.package.path / analysis_folder.NAME)
        (place / analysis_folder.SCRIPT).write_text(source)
        path = (folder or self.package.path / "AnalyzeScripts") / f"{name}.py"
        entry = {"path": str(path), "sha256": "0"}
        analysis_folder.write_request(place, {"script": entry, "analyzer": int(self.folder.name)})
        self.inbox.add_analysis(int(place.name))
        return place

    def ended(self, place: Path) -> Session:
        """Waits for the end of a call."""
        wait_for(lambda: self.is_gone() or not analysis_folder.read(place).is_live)
        found = analysis_folder.read(place)
        assert not found.is_live, self.text()
        return found

    def run(self, source: str, **named: Any) -> tuple[Session, Any]:
        """Runs a script; returns its session and its value."""
        place = self.ask(source, **named)
        found = self.ended(place)
        return found, analysis_folder.read_result(place).get("value")

    def begun(self, place: Path) -> Session:
        """Waits until a call runs."""
        wait_for(lambda: self.is_gone() or analysis_folder.read(place).state == "running")
        return analysis_folder.read(place)

    def printed(self, text: str) -> str:
        """Waits for a text in the output."""
        wait_for(lambda: self.is_gone() or text in self.text())
        assert text in self.text(), self.text()
        return self.text()

    def is_gone(self) -> bool:
        return self.process.poll() is not None

    def text(self) -> str:
        return self.output.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()


def session_folder(package: PackageFolder, **request: Any) -> Path:
    """A session folder, as the operation makes it."""
    folder = package.path / analyzer_folder.NAME
    durable.make_folders(folder)
    folder = folder / str(len(list(folder.iterdir())) + 1)
    folder.mkdir()
    body = {"kind": "analyze", "device": "cpu", "created": time.time(), **request}
    (folder / analyzer_folder.REQUEST).write_bytes(sessions.to_json(body))
    return folder


def started(package: PackageFolder, *, max_files: int | None = None, **request: Any) -> Analyzer:
    """An analyzer on a package, which may open so many files."""
    return Analyzer(package, session_folder(package, **request), max_files)
