"""A real server of Azure's blobs (Azurite), which may be killed and started again."""

from __future__ import annotations

import contextlib
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

PROGRAM = "azurite-blob"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of the account that every Azurite has."""


class AzureServer:
    """Azurite in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port = folder, free_port()
        self._process: subprocess.Popen[bytes] | None = None
        account = f"AccountName=devstoreaccount1;AccountKey={KEY}"
        place = f"BlobEndpoint=http://127.0.0.1:{self._port}/devstoreaccount1"
        self.connection = f"DefaultEndpointsProtocol=http;{account};{place};"

    def start(self) -> None:
        """Starts the server; it has what it had before."""
        log = self._folder / "azurite.log"
        log.unlink(missing_ok=True)
        command = [PROGRAM, "--blobPort", str(self._port), "--location", str(self._folder)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, "--skipApiVersionCheck", "--disableTelemetry"],
                stdout=output,
                stderr=output,
                start_new_session=True,
                cwd=self._folder,
            )
        wait_for(lambda: b"successfully listens" in log.read_bytes())

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def azure(folder: Path, container: str | None = "container") -> Iterator[AzureServer]:
    """A server, and the variable by which clients of this process and of programs that it starts reach it."""
    if shutil.which(PROGRAM) is None:
        pytest.skip(f"{PROGRAM} is not installed (npm install azurite)")
    if find_spec("adlfs") is None:
        pytest.skip("adlfs is not installed (pip install 'roost[azure]')")
    import adlfs

    server = AzureServer(folder)
    try:
        server.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AZURE_STORAGE_CONNECTION_STRING", server.connection)
            if container is not None:
                from azure.storage.blob import BlobServiceClient

                with BlobServiceClient.from_connection_string(server.connection) as client:
                    client.create_container(container)
            yield server
    finally:
        server.kill()
        adlfs.AzureBlobFileSystem.clear_instance_cache()  # its connections are to this server
