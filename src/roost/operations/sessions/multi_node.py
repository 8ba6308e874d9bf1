"""Several machines that train together: on each a supervisor of its own, whose worker is torchrun."""

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
    "PYTHONSAFEPATH": "1",  # torchrun starts the ranks in the package, without -P
    # With the store shared between agents and ranks a failure on two machines may hang (pytorch#135712).
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
}


def require_rendezvous(request: Mapping[str, Any]) -> None:
    """Makes sure that this machine can be the one where the others meet.

    Raises:
        Refused: The port is taken, or the address is not of this machine.
    """
    host, port = _rendezvous(request)
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen()  # a port in use may be bound, but not listened at
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        raise Refused(
            f"the machines cannot meet here: {error.strerror or error}",
            setting="--rendezvous",
            received=request["rendezvous"],
            fix="choose another port" if taken else "name this machine, by a name that the others know",
        ) from error


class TorchrunLaunch(NamedTuple):
    """What is run on one machine."""

    argv: list[str]
    """To which the worker's arguments are added."""
    environment: dict[str, str]
    """Beside that of the session."""


def torchrun_launch(
    request: Mapping[str, Any], own: Mapping[str, str], *, token: str, is_host: bool
) -> TorchrunLaunch:
    """What starts the ranks of this machine.

    Args:
        request: That of the session.
        own: What each rank has in its environment.
        token: That of the session: machines of two sessions never meet.
        is_host: Whether the others come to this machine.
    """
    host, _ = _rendezvous(request)
    waits = f"join_timeout={_JOIN_SECONDS},last_call_timeout=1,is_host={int(is_host)}"
    argv = [
        *(sys.executable, "-P", "-m", "roost.worker.ranks.torchrun_launch"),
        f"--nnodes={request['num_nodes']}",
        f"--nproc-per-node={request['ranks']}",
        "--max-restarts=0",
        "--monitor-interval=0.1",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={request['rendezvous']}",
        f"--rdzv-id={token}",
        f"--rdzv-conf={waits}",
        *(["--local-addr=127.0.0.1"] if host in _LOOPBACK else []),
        *("-m", "roost.worker"),
    ]
    return TorchrunLaunch(argv, {**own, **_ENVIRONMENT})


def _rendezvous(request: Mapping[str, Any]) -> tuple[str, int]:
    host, _, port = str(request["rendezvous"]).rpartition(":")
    return host, int(port)
