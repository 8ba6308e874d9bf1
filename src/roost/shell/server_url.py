"""Which server an option means: that of this user, a port, a URL; a host is explained."""

from __future__ import annotations

from urllib.parse import urlsplit

from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.base.system.loopback import is_loopback
from roost.serve import server_presence


def find(*, port: int | None, url: str | None) -> str | None:
    """Returns the URL of a server for `roost.api.client.Client`; None: this user's own, by its socket.

    Args:
        port: A port of this machine. At that of this user's own server it is reached by its socket.
        url: A URL.

    Raises:
        Refused: The host is another machine, or is no URL.
    """
    if url is not None:
        _require_reachable(url)
        return url
    if port is None:
        return None
    own = server_presence.find_running(state_folder.lab_folder())
    return None if own is not None and own.port == port else f"http://localhost:{port}"


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
