"""``tensorboard``: serves packages in TensorBoard, with or without a mirror."""

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
from roost.base.system import prctl
from roost.operations.reading import package_schema
from roost.operations.sessions.scratch_folder import remove_abandoned, scratch_folder
from roost.package.package import PackageFolder
from roost.train.mirrors.mirror_kinds import require_library
from roost.train.mirrors.record_feed import RecordFeed

_POLL_SECONDS = 1.0
"""The interval at which packages are polled, and the longest at which TensorBoard polls the files."""
_STOP_SECONDS = 5.0
_URL_PATTERN = re.compile(rb"TensorBoard \S+ at (http\S+)")
_MAX_BYTES = 4000


@dataclass(frozen=True)
class TensorBoardAddress:
    """The address of a running TensorBoard."""

    url: str
    runs: dict[str, str]
    """The path of each package by its name in TensorBoard."""


def tensorboard(
    packages: Sequence[Path | str], *, host: str = "127.0.0.1", port: int | None = None
) -> Iterator[TensorBoardAddress]:
    """Writes event files of some packages into a temporary folder, serves it, and appends new rows. The
    packages are only read.

    Args:
        packages: Each is one run, named after its folder.
        host: The address to listen at. There is no access control.
        port: 0: any free port; None: 6006, or the next free one.

    Yields:
        One address, when TensorBoard answers. Resuming the generator serves until it is closed, which ends
        the server.

    Raises:
        NotFound: A package does not exist.
        ConfigError: TensorBoard is not installed.
        DamagedPackage: A file of a package is not as roost writes it.
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
    """Returns the packages by unique names, in their order."""
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
    """Starts TensorBoard's server; it ends with this process, even if that is killed."""
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
        start_new_session=True,  # Ctrl-C must reach this process only
        env={**os.environ, "TMPDIR": str(folder)},  # where it registers itself
        preexec_fn=functools.partial(prctl.set_parent_death_signal, signal.SIGTERM),
    )


def _wait_for_url(process: subprocess.Popen[bytes]) -> str:
    """Waits until the server prints its URL.

    Raises:
        RoostError: It has ended, for example because the port is taken.
    """
    output = b""
    while (found := _URL_PATTERN.search(output)) is None:
        output = (output + _read_output(process, _POLL_SECONDS))[-_MAX_BYTES:]
        if process.poll() is not None:
            output = (output + _read_output(process, 0.0))[-_MAX_BYTES:]
            lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
            why = " ".join(lines[-1].split()) if lines else f"it ended with {process.returncode}"
            raise RoostError(f"TensorBoard did not start: {why}", fix="give another --port or --host")
    return found[1].decode()


def _read_output(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Returns output that arrives within a time. After the output was closed, only waits."""
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
