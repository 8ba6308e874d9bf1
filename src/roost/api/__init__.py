"""The client of the server in Python: `Client`, and `AsyncClient` for asyncio.

client: the two clients
client_methods: their methods, one for each operation of the server
api_call: how a method becomes a request
server_address: where the server is, and its token
resumed_stream: streams that survive lost connections
error_mapping: from errors of the server to exceptions
"""

from __future__ import annotations

from roost.api.client import AsyncClient as AsyncClient
from roost.api.client import Client as Client
