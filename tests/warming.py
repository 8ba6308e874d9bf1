"""A template for warm starts, as the lab's daemon keeps them, for runs that this process starts."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest import mock

from roost.operations.sessions import session_request
from roost.supervisor.forkserver import template_client
from roost.supervisor.forkserver.template_pool import TemplatePool
from roost.supervisor.session_spec import SessionSpec
from tests.waiting import wait_for


def spec(**env: str) -> SessionSpec:
    """What a worker of this process's runs on the CPU would be started with."""
    argv = [*session_request.WORKER, "/package", "1"]
    made = session_request.worker_environment(cpu=True) | env
    return SessionSpec(argv, cwd="/", env=made, package="", session=1, output="", session_file="", token="")


def prepare(kept: TemplatePool) -> None:
    """Starts the template again if it has ended: it does after some minutes without a run."""
    kept.prepare(spec())


@contextlib.contextmanager
def templates(folder: Path, *, waits: bool = True) -> Iterator[TemplatePool]:
    """As long as this lasts, runs of this environment start warm.

    Args:
        folder: For the sockets.
        waits: Whether to begin only once they can.
    """
    with (
        mock.patch.dict(os.environ, {template_client.FOLDER_VARIABLE: str(folder)}),
        closing(TemplatePool()) as kept,
    ):
        prepare(kept)
        prepare(kept)  # the second of a kind starts one
        if waits:
            wait_until_ready(folder)
        yield kept


@contextlib.contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    """A new folder for temporary files, as TMPDIR; runs start warm with it."""
    made = folder / "tmp"
    made.mkdir()
    own = {"TMPDIR": str(made), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    with mock.patch.dict(os.environ, own), templates(folder / "warm"):
        for left in made.iterdir():  # by the template: torch makes it when it imports its compiler
            shutil.rmtree(left)
        yield made


def wait_until_ready(folder: Path) -> None:
    """Waits until the template whose socket is in the folder takes requests."""
    wait_for(lambda: any(not file.suffix for file in folder.glob("*")))


def forks(spec: SessionSpec) -> bool:
    """Whether the guard of such a session is a template's."""
    found = template_client.fork_guard(spec, [])
    if found is None:
        return False
    found.stdin.close()
    found.stderr.close()
    assert found.wait(timeout=100) == 1  # it has received no spec
    return True
