"""The process that uploads a package to its remote copy, concurrently with a session of any kind:
``python -P -m roost.worker.remote_upload PACKAGE SESSION``, started by the guard
(`roost.supervisor.processes.upload_process`).

It is a process of its own because the libraries of stores take seconds to import and may hang; training never
waits for it. A thread uploads; the main thread reads from stdin when the session has ended, and then ends in
time whatever the store does. It imports no torch.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from roost.base import safe_read
from roost.base.errors import NotFound, Refused, RoostError
from roost.base.interval import parse_duration
from roost.base.system import process_identity, process_title
from roost.base.text.terminal_text import escape_control
from roost.config.sections.remote import RemoteSettings, parse_wait
from roost.config.values.store_url import parse_url
from roost.package import sessions
from roost.package.package import PackageFolder
from roost.package.remote import local_files, ownership, remote_status
from roost.package.remote.ownership import OwnedElsewhere
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.remote_status import RemoteStatus
from roost.package.remote.store import clean_reason
from roost.package.remote.upload import Uploader, UploadOptions, UploadResult, UploadStopped
from roost.package.session_schema import SessionRequest

_NICENESS = 10
"""The increment of the niceness, so that training has priority."""
_FIRST_SECONDS = 3.0
"""The first upload begins so much later than the session, whose start it would delay."""
_FIRST_DELAY, _LONGEST_DELAY, _LONGEST_LAST_DELAY = 2.0, 120.0, 5.0
_TICK_SECONDS = 0.5
_SEAL_SECONDS = 15.0
"""How long the guard may take to write the seal, and then the upload of it."""
_MIN_RATE_BYTES = 100_000
"""Of smaller uploads the rate says nothing."""


class UploadLoop:
    """Uploads in a thread, again and again, until all is uploaded that an ended session has left.

    Args:
        package: The package.
        settings: The section ``remote``.
        steal: As for `Uploader`.
    """

    def __init__(self, package: PackageFolder, settings: RemoteSettings, *, steal: bool = False) -> None:
        self._package, self._settings, self._steal = package, settings, steal
        self._every = parse_duration(settings.every, setting="remote.every")
        self._stop = threading.Event()
        self._has_ended = threading.Event()
        """Whether no session writes any more: what is uploaded from then on is the last state."""
        self._wake = threading.Event()
        self.is_done = threading.Event()
        self._has_given_up = threading.Event()
        """Whether the thread has ended, because a further upload would fail in the same way."""
        self._uploader: Uploader | None = None
        self._status = self._first_status()

    def _first_status(self) -> RemoteStatus:
        before, pid = remote_status.read(self._package.path), os.getpid()
        fresh = RemoteStatus(
            url=parse_url(self._settings.url).text,
            state="uploading",
            time=time.time(),
            pid=pid,
            start_ticks=process_identity.start_ticks(pid),
            boot_id=process_identity.boot_id(),
        )
        if before is None or before.url != fresh.url:
            return fresh
        far = {
            name: getattr(before, name) for name in ("store_id", "step", "taken", "is_proven", "checkpoints")
        }
        return msgspec.structs.replace(fresh, **far)

    # ---- the main thread ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread."""
        threading.Thread(target=self._run, name="upload", daemon=True).start()

    def end_session(self) -> None:
        """Makes the upload that follows the last one."""
        self.is_done.clear()
        if self._has_given_up.is_set():  # no upload follows: nothing is waited for
            self.is_done.set()
        self._has_ended.set()
        self._wake.set()

    def verdict(self, why_not: str) -> str:
        """Returns how far the run is durable.

        Args:
            why_not: Why an upload that has not ended did not.
        """
        if not self.is_done.is_set() and self._status.error is None:
            self._update(error=why_not, error_since=time.time())
        status = self._status
        if status.error is None:
            return remote_status.describe(status)
        return f"{remote_status.describe(status)}; `roost push {self._package.path.name}` continues it"

    def close(self) -> None:
        """Stops the uploads."""
        self._stop.set()
        self._wake.set()
        if self._status.state != "refused":
            self._update(state="ended")

    # ---- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._wake.wait(min(_FIRST_SECONDS, self._every))
        try:
            with self._locked():
                self._upload_again_and_again()
        except OSError as error:  # of request.json: the package was removed, or cannot be read
            self._give_up(error)

    def _upload_again_and_again(self) -> None:
        delay = _FIRST_DELAY
        while not self._stop.is_set():
            self._wake.clear()
            is_last = self._has_ended.is_set()
            try:
                result = self._upload(is_live=not is_last)
                self._note_success(result)
                delay, pause = _FIRST_DELAY, self._every if result.is_complete else 0.0
                if is_last and result.is_complete:
                    self.is_done.set()
            except UploadStopped:
                return
            except NotFound as error:
                self._give_up(error)
                return
            except Exception as error:  # noqa: BLE001  - printed; it must not end the uploads
                if isinstance(error, Refused) and not isinstance(error, OwnedElsewhere):
                    self._give_up(error)
                    return
                self._note_failure(error)
                pause = min(delay, _LONGEST_LAST_DELAY) if self._has_ended.is_set() else delay
                delay = min(2 * delay, _LONGEST_DELAY)
            if not (self._has_ended.is_set() and not is_last):
                self._wake.wait(pause)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Waits until no other process uploads this package: that of the session before may still do."""
        while (fd := ownership.lock_uploads(self._package.path)) is None:
            self._update(error="another process uploads this package", error_since=time.time())
            if self._stop.wait(1.0):
                break
        try:
            self._update(error=None, error_since=None)
            yield
        finally:
            if fd is not None:
                os.close(fd)

    def _upload(self, *, is_live: bool) -> UploadResult:
        if self._uploader is None:
            settings = self._settings
            options = UploadOptions.from_settings(settings)
            copy = RemoteCopy.at(parse_url(settings.url), self._package.path.name)
            self._uploader = Uploader(
                self._package,
                copy,
                options,
                store_id=self._status.store_id,
                steal=self._steal,
                stop=self._stop,
            )
        uploader, noted = self._uploader, 0.0

        def note(_: object) -> None:
            nonlocal noted
            if time.monotonic() > noted + _TICK_SECONDS:
                noted = time.monotonic()
                pending = uploader.pending_bytes
                state = "failing" if self._status.state == "failing" else "uploading"
                self._update(state=state, pending_bytes=pending)

        return uploader.upload(is_live=is_live, newest_first=True, note=note)

    def _note_success(self, result: UploadResult) -> None:
        index = result.index
        has_failed = self._status.state == "failing"
        rate = self._status.mb_per_second
        if result.put_bytes > _MIN_RATE_BYTES:
            rate = round(result.put_bytes / max(result.seconds, 1e-3) / 1e6, 3)
        self._update(
            state="idle" if result.is_complete else "uploading",
            store_id=result.store_id,
            step=index.step,
            taken=index.taken,
            is_proven=result.is_proven,
            checkpoints=[one.id for one in index.checkpoints],
            pending_bytes=0,
            mb_per_second=rate,
            error=None,
            error_since=None,
        )
        if has_failed:
            self._print(f"remote copy: the store answers again; {remote_status.describe(self._status)}")

    def _note_failure(self, error: Exception) -> None:
        text = _one_line(error)
        if self._status.state != "failing":
            self._print(f"remote copy: {text}; the run continues, and the upload is tried again")
        since = self._status.error_since or time.time()
        self._update(state="failing", error=text, error_since=since)

    def _give_up(self, error: Exception) -> None:
        if self._package.path.is_dir():  # else it was removed: so it was wanted
            text = _one_line(error)
            self._print(f"remote copy: {text}")
            self._update(state="refused", error=text, error_since=time.time())
        self._has_given_up.set()
        self.is_done.set()

    def _update(self, **fields: object) -> None:
        self._write(msgspec.structs.replace(self._status, time=time.time(), **fields))

    def _write(self, status: RemoteStatus) -> None:
        self._status = status
        with contextlib.suppress(OSError):  # a full disk, or the package was removed
            if self._package.path.is_dir():
                remote_status.write(self._package.path, status)

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):
            print(escape_control(text), file=sys.stderr, flush=True)


def _one_line(error: Exception) -> str:
    if isinstance(error, RoostError):
        return " ".join(str(error).split())
    return f"{type(error).__name__}: {clean_reason(error)}"


def main(arguments: list[str]) -> NoReturn:
    """Uploads until the session has ended, and its seal was written."""
    # Ctrl-C goes to the whole process group of a terminal; the guard decides when this process ends.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    local_files.ignore_broken_leases()
    stop_fd = _wake_on(signal.SIGTERM)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    warnings.simplefilter("ignore")  # of libraries; stderr is the output of the run
    logging.disable(logging.CRITICAL)
    package, session = PackageFolder(Path(arguments[0])), int(arguments[1])
    process_title.set_title("upload", str(package.path))
    request = SessionRequest.load(str(package.path / "sessions" / f"{session}.request.json"))
    assert request is not None
    settings = msgspec.convert(request.remote, RemoteSettings)
    # A session that has taken the package over takes its copy over, too.
    loop = UploadLoop(package, settings, steal=request.taken_over is not None)
    loop.start()
    deadline = _read_deadline(package.path, stop_fd, parse_wait(settings.wait))
    _upload_rest(loop, stop_fd, deadline)
    why_not = "the upload was stopped" if time.time() < deadline else "the last upload did not end in time"
    with contextlib.suppress(OSError):
        print(f"remote copy: {loop.verdict(why_not)}", file=sys.stderr, flush=True)
    if loop.is_done.is_set():
        with contextlib.suppress(OSError):
            os.write(1, b".")
        if _is_sealed(stop_fd):
            _upload_rest(loop, stop_fd, time.time() + _SEAL_SECONDS)
    loop.close()
    _exit_now()


def _upload_rest(loop: UploadLoop, stop_fd: int, deadline: float) -> None:
    """Waits until all is uploaded that is there now, or the deadline has come."""
    loop.end_session()
    while not loop.is_done.wait(_TICK_SECONDS / 5) and time.time() < deadline:
        if select.select([stop_fd], [], [], 0)[0]:
            break


def _is_sealed(stop_fd: int) -> bool:
    """Waits until the guard has written the seal; returns whether it has said so."""
    ready = select.select([0, stop_fd], [], [], _SEAL_SECONDS)[0]
    return 0 in ready and bool(os.read(0, 4096))


def _read_deadline(package: Path, stop_fd: int, wait: float) -> float:
    """Waits for the end of the session; returns when the last upload must have ended, in unix seconds."""
    line = b""
    while not line.endswith(b"\n"):
        ready = select.select([0, stop_fd], [], [])[0]
        if stop_fd in ready:
            return time.time()
        if not (piece := os.read(0, 4096)):
            return _wait_for_unlock(package, stop_fd) + wait
        line += piece
    return float(line.split()[1])


def _wait_for_unlock(package: Path, stop_fd: int) -> float:
    """Waits until no process of the session lives, whose guard was killed; returns the time."""
    while safe_read.is_locked(package / sessions.LOCK_NAME):
        if select.select([stop_fd], [], [], 2 * _TICK_SECONDS)[0]:
            break
    return time.time()


def _wake_on(number: signal.Signals) -> int:
    """Returns a descriptor that becomes readable at a signal."""
    wakeup, write_fd = os.pipe()
    for fd in (wakeup, write_fd):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)
    return wakeup


def _exit_now() -> NoReturn:
    """Exits without the exit handlers of the libraries, which may wait for a server."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
