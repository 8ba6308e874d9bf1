"""A connection to the lab behind a server: of this user on this machine, or at a URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from roost.api.client import Client
from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.base.system.loopback import is_loopback
from roost.serve import server_presence
from roost.shell.lab_connection import LabConnection


def connect(*, port: int | None = None, url: str | None = None) -> LabConnection:
    """Returns a connection to a server that answers.

    Args:
        port: A port of this machine. That of this user's own server needs no token; at another one a tunnel
            of ssh may end, and a token must be given by ``ROOST_SERVER_TOKEN``.
        url: The URL of a server. Without port and URL: this user's own server.

    Raises:
        UsageError: The URL is malformed.
        Refused: The host is another machine, or the token is wrong.
        NotFound: No server answers, or there is no token.
    """
    if url is not None:
        _require_reachable(url)
    elif port is not None:
        own = server_presence.find_running(state_folder.lab_folder())
        url = None if own is not None and own.port == port else f"http://localhost:{port}"
    client = Client(url)
    try:
        client.about()
    except BaseException:
        client.close()
        raise
    place = url or "the server of this machine"
    return LabConnection(client, place=place, has_own_files=url is None)


def _require_reachable(url: str) -> None:
    """Refuses the name of a host in place of a URL, as DLNest's client takes it.

    Raises:
        Refused: It is another machine.
    """
    host = url if "://" not in url else ""
    name = host.partition(":")[0].partition("/")[0]
    if not host:
        return
    port = urlsplit(f"//{host}").netloc.partition(":")[2] or "9999"
    if is_loopback(name):
        raise Refused("a URL is needed", setting="-u", received=url, fix=f"write http://{name}:{port}")
    fix = f"`ssh -L {port}:localhost:{port} {name}` in another terminal, then -p {port}, with "
    fix += f"ROOST_SERVER_TOKEN set to what `ssh {name} roost server token` prints"
    raise Refused("a server is reached only from its own machine", setting="-u", received=url, fix=fix)
