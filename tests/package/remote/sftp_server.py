"""A real sshd for the user who runs the tests, which may be killed and started again."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.train.mirrors.servers import free_port
from tests.waiting import wait_for

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
_OF_ROOT = Path("/run/sshd")
"""Where the sshd of root has its unprivileged processes; a package of Debian makes it at boot."""
_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_ed25519
HostKey {folder}/host_ecdsa
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
Subsystem sftp internal-sftp
"""


class SftpServer:
    """An sshd, and a home whose key it accepts and whose list of hosts knows it."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self._folder, self.home = folder, folder / "home"
        self._process: subprocess.Popen[bytes] | None = None
        keys = self.home / ".ssh"
        keys.mkdir(parents=True)
        for path in (folder / "host_ed25519", folder / "host_ecdsa", keys / "id_ed25519"):
            kind = path.name.partition("_")[2]
            subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
        shutil.copy(keys / "id_ed25519.pub", folder / "authorized_keys")
        # Of two keys of the host, the list has the one that paramiko would not ask for.
        kind, key, *_ = (folder / "host_ecdsa.pub").read_text().split()
        (keys / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
        (folder / "sshd_config").write_text(_CONFIG.format(port=port, folder=folder))
        self.url = f"sftp://{getpass.getuser()}@127.0.0.1:{port}"

    def start(self) -> None:
        """Starts the server."""
        log = self._folder / "sshd.log"
        program = shutil.which("sshd", path=_PATH)
        assert program is not None
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [program, "-D", "-e", "-f", str(self._folder / "sshd_config")], stdout=output, stderr=output
            )
        wait_for(lambda: b"Server listening" in log.read_bytes())

    def pids(self) -> list[int]:
        """The server and all processes that serve a client."""
        found = [] if self._process is None else [self._process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                found.extend(map(int, children.split()))
        return found

    def kill(self) -> None:
        """SIGKILL to the server and to all that serve a client."""
        if self._process is not None:
            for pid in self.pids():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def sftp(folder: Path, *, has_agent: bool = False) -> Iterator[SftpServer]:
    """A server; its home is that of this process and of programs that it starts.

    Args:
        folder: An empty folder.
        has_agent: Whether the key is in an agent of SSH instead of in a file.
    """
    for program in ("sshd", "ssh-keygen", "ssh-agent", "ssh-add"):
        if shutil.which(program, path=_PATH) is None:
            pytest.skip(f"{program} is not installed (apt-get install openssh-server)")
    if find_spec("paramiko") is None:
        pytest.skip("paramiko is not installed (pip install 'roost[sftp]')")
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0 and not _OF_ROOT.exists():
            _OF_ROOT.mkdir()
            stack.callback(_OF_ROOT.rmdir)
        server = SftpServer(folder)
        server.start()
        stack.callback(server.kill)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("HOME", str(server.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        if has_agent:
            stack.enter_context(_agent(folder / "agent", server.home / ".ssh" / "id_ed25519", patch))
        yield server


@contextlib.contextmanager
def _agent(socket: Path, key: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_for(socket.exists)
        patch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", key], check=True, stderr=subprocess.DEVNULL)
        key.unlink()
        yield
    finally:
        agent.kill()
        agent.wait()
