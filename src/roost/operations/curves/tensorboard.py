"""``tensorboard``: any packages in TensorBoard, whether they were mirrored or not."""

from __future__ import annotations

import functools
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import RoostError
from roost.operations.reading import package_schema
from roost.operations.sessions.scratch_folder import remove_abandoned, scratch_folder
from roost.package.package import PackageFolder
from roost.supervisor.processes import session_processes
from roost.train.mirrors.mirror_kinds import require_library
from roost.train.mirrors.record_feed import RecordFeed

_POLL_SECONDS = 1.0
"""Between two looks at the packages, and at most between those of TensorBoard at the files."""
_STOP_SECONDS = 5.0
_URL_PATTERN = re.compile(rb"TensorBoard \S+ at (http\S+)")
_MAX_BYTES = 4000


@dataclass(frozen=True)
class TensorBoardAddress:
    """TensorBoard answers."""

    url: str
    runs: dict[str, str]
    """What each package is called there."""


def tensorboard(
    packages: Sequence[Path | str], *, host: str = "127.0.0.1", port: int | None = None
) -> Iterator[TensorBoardAddress]:
    """Writes event files of some packages into a folder for a while, serves it, and follows what is recorded
    meanwhile. The packages are only read.

    Args:
        packages: One run each, named after its folder.
        host: Where to listen; whoever reaches it sees everything.
        port: 0: any that is free; None: 6006, or one of those after it.

    Yields:
        Once, when TensorBoard answers. It goes on until the generator is closed; that ends the server.

    Raises:
        NotFound: One is no package.
        ConfigError: TensorBoard is not installed.
        DamagedPackage: A file of one is not as roost writes it.
        RoostError: TensorBoard has ended.
        OSError: The folder cannot be written.
    """
    opened = [package_schema.open_checked(path) for path in packages]
    require_library("tensorboard", "roost tensorboard")
    remove_abandoned()
    with scratch_folder() as (folder, _):
        runs = _unique_names(opened)
        feeds = [_make_feed(package, folder / "runs" / name) for name, package in runs.items()]
        for feed in feeds:
            feed.open()
        process = _start_server(folder, host, port)
        try:
            url = _wait_for_url(process)
            yield TensorBoardAddress(url, {name: str(package.path) for name, package in runs.items()})
            while process.poll() is None:
                for feed in feeds:
                    feed.send_new()
                _read_output(process, _POLL_SECONDS)
            raise RoostError(f"TensorBoard has ended with {process.returncode}")
        finally:
            _stop_server(process)
            for feed in feeds:
                feed.discard()


def _unique_names(packages: Sequence[PackageFolder]) -> dict[str, PackageFolder]:
    """Each by a name of its own, in their order."""
    named: dict[str, PackageFolder] = {}
    for package in packages:
        name, number = package.path.name, 1
        while name in named:
            number += 1
            name = f"{package.path.name} ({number})"
        named[name] = package
    return named


def _make_feed(package: PackageFolder, folder: Path) -> RecordFeed:
    from roost.train.mirrors.tensorboard_sink import TensorBoardSink

    return RecordFeed(package.path, TensorBoardSink(folder))


def _start_server(folder: Path, host: str, port: int | None) -> subprocess.Popen[bytes]:
    """TensorBoard's own server; it ends with us, whatever ends us."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder / "runs"),
        "--host",
        host,
    ]
    command += ["--reload_interval", str(_POLL_SECONDS)]
    command += ["--port", str(port)] if port is not None else []
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C is for us
        env={**os.environ, "TMPDIR": str(folder)},  # it notes there that it runs
        preexec_fn=functools.partial(session_processes.set_parent_death_signal, signal.SIGTERM),
    )


def _wait_for_url(process: subprocess.Popen[bytes]) -> str:
    """Waits until it says where it listens.

    Raises:
        RoostError: It has ended instead, for example because the port is taken.
    """
    said = b""
    while (found := _URL_PATTERN.search(said)) is None:
        said = (said + _read_output(process, _POLL_SECONDS))[-_MAX_BYTES:]
        if process.poll() is not None:
            said = (said + _read_output(process, 0.0))[-_MAX_BYTES:]
            lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
            why = " ".join(lines[-1].split()) if lines else f"it ended with {process.returncode}"
            raise RoostError(f"TensorBoard did not start: {why}", fix="give another --port or --host")
    return found[1].decode()


def _read_output(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """What it prints within that time; once it has closed its output, only the time."""
    assert process.stdout is not None
    if select.select([process.stdout], [], [], seconds)[0]:
        if piece := process.stdout.read1(_MAX_BYTES):  # type: ignore[attr-defined]
            return bytes(piece)
        time.sleep(min(seconds, 0.1))
    return b""


def _stop_server(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
