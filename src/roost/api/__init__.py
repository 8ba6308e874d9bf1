"""The server from Python: `Client`, and `AsyncClient` for programs that wait for several things at once."""

from __future__ import annotations

from roost.api.client import AsyncClient as AsyncClient
from roost.api.client import Client as Client
