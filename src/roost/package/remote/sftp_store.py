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
_SSH_PORT = 22
_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
_KEY_KINDS = {
    **{f"ecdsa-sha2-nistp{bits}": f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521)},
    **dict.fromkeys(("rsa-sha2-512", "rsa-sha2-256", "ssh-rsa"), "ssh-rsa"),
    "ssh-ed25519": "ssh-ed25519",
}
"""The algorithms of host keys, each with the kind of key in the list of known hosts."""


class SftpStore(FsspecStore):
    """A store by SFTP.

    Objects are written and read by paramiko, which sends the next packets before the first one is answered;
    fsspec waits for the answer to each.
    """

    def _open(self, *, skip_instance_cache: bool) -> tuple[Any, str]:
        """See `FsspecStore`. A host that has accepted a login may never start SFTP, and paramiko waits for
        that without an end: then the thread is left behind."""
        place = self._fsspec.utils.infer_storage_options(self.url.text)
        options = {**_host_options(place["host"], place.get("port")), "skip_instance_cache": True}
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
        self._finish = weakref.finalize(self, fs.client.close)
        return fs, root

    def _close(self, fs: Any) -> None:
        with contextlib.suppress(Exception):
            self._finish()

    def _write(self, fs: Any, path: str, data: bytes | memoryview) -> None:
        fs.ftp.putfo(io.BytesIO(data), path)

    def _read(self, fs: Any, path: str) -> bytes:
        found = io.BytesIO()
        fs.ftp.getfo(path, found)
        return found.getvalue()


def _host_options(host: str, port: int | None) -> dict[str, Any]:
    """Returns the options by which only a host of the lists of ssh is accepted, by a key that is in them: a
    host has keys of several kinds, of which the lists may have one."""
    import paramiko

    known = paramiko.HostKeys()
    for path in map(os.path.expanduser, _KNOWN_HOSTS):
        if os.path.isfile(path):  # noqa: PTH113  - for paramiko
            known.load(path)

    class KnownHosts(paramiko.MissingHostKeyPolicy):  # type: ignore[misc, unused-ignore]
        """Accepts the hosts of the lists, as ssh does."""

        def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
            if not known.check(hostname, key):
                raise paramiko.SSHException(
                    f"the host key of {hostname} is not in ~/.ssh/known_hosts: log in once with ssh"
                )

    kinds = set(known.lookup(host if port in (None, _SSH_PORT) else f"[{host}]:{port}") or ())
    unknown = [name for name, kind in _KEY_KINDS.items() if kinds and kind not in kinds]
    return {"host_key_policy": KnownHosts(), "disabled_algorithms": {"keys": unknown}}
