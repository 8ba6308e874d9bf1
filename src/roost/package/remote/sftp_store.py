"""A store on a host that is reached by SSH (SFTP). Keys come from ``~/.ssh`` or the agent of SSH."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import weakref
from concurrent.futures import Future
from typing import Any

from roost.package.remote.fsspec_store import CONNECT_SECONDS, READ_SECONDS, FsspecStore

_LOGIN_SECONDS = 60.0


class SftpStore(FsspecStore):
    """A store by SFTP.

    Objects are written and read by paramiko, which sends the next packets before the first one is answered;
    fsspec waits for the answer to each.
    """

    def _open(self, *, skip_instance_cache: bool) -> tuple[Any, str]:
        """See `FsspecStore`. A host that has accepted a login may never start SFTP, and paramiko waits for
        that without an end: then the thread is left behind."""
        options = {"host_key_policy": _known_hosts(), "skip_instance_cache": True}
        times = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), CONNECT_SECONDS)
        result: Future[tuple[Any, str]] = Future()

        def connect() -> None:
            try:
                fs, root = self._fsspec.core.url_to_fs(self.url.text, **times, **options)
                fs.ftp.get_channel().settimeout(READ_SECONDS)
                result.set_result((fs, str(root)))
            except BaseException as error:  # noqa: BLE001  - raised in the thread that waits
                result.set_exception(error)

        thread = threading.Thread(target=connect, name="sftp", daemon=True)
        thread.start()
        thread.join(_LOGIN_SECONDS)
        if thread.is_alive():
            raise TimeoutError("the host starts no SFTP")
        fs, root = result.result()
        weakref.finalize(self, fs.client.close)
        return fs, root

    def _close(self, fs: Any) -> None:
        with contextlib.suppress(Exception):
            fs.client.close()

    def _write(self, fs: Any, path: str, data: bytes | memoryview) -> None:
        fs.ftp.putfo(io.BytesIO(data), path)

    def _read(self, fs: Any, path: str) -> bytes:
        found = io.BytesIO()
        fs.ftp.getfo(path, found)
        return found.getvalue()


def _known_hosts() -> Any:
    import paramiko

    class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc, unused-ignore]
        """Accepts the hosts of the user's own list, as ssh does."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            known = paramiko.HostKeys()
            path = os.path.expanduser("~/.ssh/known_hosts")  # noqa: PTH111  - for paramiko
            if os.path.isfile(path):  # noqa: PTH113
                known.load(path)
            if not known.check(hostname, key):
                raise paramiko.SSHException(
                    f"the host key of {hostname} is not in ~/.ssh/known_hosts: log in once with ssh"
                )

    return KnownHosts()
