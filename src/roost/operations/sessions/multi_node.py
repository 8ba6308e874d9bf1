"""Sessions on several machines: each machine has a supervisor of its own, whose worker is torchrun."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from roost.base.errors import Refused

_JOIN_SECONDS = 600
"""How long a machine waits for the others."""
_LOOPBACK = ("localhost", "127.0.0.1")
_ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",  # because torchrun starts the ranks in the package without -P
    # With the store shared between agents and ranks a failure on two machines may hang (pytorch#135712).
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def require_rendezvous(request: Mapping[str, Any]) -> None:
    """Checks that this machine can host the rendezvous.

    Raises:
        Refused: The port is in use, or the address is not of this machine.
    """
    host, port = _rendezvous(request)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen()  # with SO_REUSEADDR a port in use can be bound, but listen fails
    except OSError as error:
        is_in_use = error.errno in (errno.EADDRINUSE, errno.EACCES)
        raise Refused(
            f"the machines cannot meet here: {error.strerror or error}",
            setting="--rendezvous",
            received=request["rendezvous"],
            fix="choose another port"
            if is_in_use
            else "give a name of this machine that the others can resolve",
        ) from error


class TorchrunLaunch(NamedTuple):
    """The command that starts the ranks of one machine."""

    argv: list[str]
    """The worker's arguments are appended."""
    environment: dict[str, str]
    """Added to the environment of the session."""


def torchrun_launch(
    request: Mapping[str, Any], own: Mapping[str, str], *, token: str, is_host: bool
) -> TorchrunLaunch:
    """Returns the command that starts the ranks of this machine.

    Args:
        request: The request of the session.
        own: The environment of each rank.
        token: The token of the session, so that machines of two sessions never meet.
        is_host: Whether this machine hosts the rendezvous.
    """
    host, _ = _rendezvous(request)
    timeouts = f"join_timeout={_JOIN_SECONDS},last_call_timeout=1,is_host={int(is_host)}"
    argv = [
        *(sys.executable, "-P", "-m", "roost.worker.ranks.torchrun_launch"),
        f"--nnodes={request['num_nodes']}",
        f"--nproc-per-node={request['ranks']}",
        "--max-restarts=0",
        "--monitor-interval=0.1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={request['rendezvous']}",
        f"--rdzv-id={token}",
        f"--rdzv-conf={timeouts}",
        *(["--local-addr=127.0.0.1"] if host in _LOOPBACK else []),
        *("-m", "roost.worker"),
    ]
    return TorchrunLaunch(argv, {**own, **_ENVIRONMENT})


def _rendezvous(request: Mapping[str, Any]) -> tuple[str, int]:
    host, _, port = str(request["rendezvous"]).rpartition(":")
    return host, int(port)
