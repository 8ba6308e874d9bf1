"""What is said of a path, or a method, that no route has."""

from __future__ import annotations

import pytest

from tests.messages import Messages
from tests.serve.servers import RUN, Server


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/api/v1/run", "/api/v1/runs"),
        ("/api/v1/runs/", "/api/v1/runs"),
        ("/api/v2/runs", None),
        (f"/api/v1/runs/{RUN}/logs", f"/api/v1/runs/{RUN}/log"),
        ("/api/v1/tasks/some/wy", "/api/v1/tasks/some/why"),
        ("/api/v1/tasks/a/b/wy", None),
        ("/runtrain", "/run_train"),
        ("/api/v1/get_task_info", "/get_task_info"),
        ("/devices", "/api/v1/devices"),
        ("/nothing", None),
        ("/", None),
    ],
)
def test_the_route_that_was_probably_meant(
    server: Server, path: str, near: str | None, messages: Messages
) -> None:
    found = server.ask("GET", path, prefix="")
    assert (found.status, found.code) == (404, "not_found")
    fix = found.json["error"]["fix"]
    assert "GET /api/v1/openapi.json" in fix
    assert (repr(near) in fix) if near else ("'/" not in fix)
    messages.check(found.json["error"])


def test_an_unknown_method_is_answered_with_the_allowed_ones(server: Server, messages: Messages) -> None:
    for path, allowed in (
        ("/devices", "GET, POST"),
        ("/tasks/a/b/stop", "POST"),
        ("/openapi.json", "GET, HEAD"),
    ):
        found = server.ask("DELETE", path)
        assert (found.status, found.code, found.headers["allow"]) == (405, "method", allowed)
        assert "DELETE" in found.json["error"]["message"] and allowed in found.json["error"]["fix"]
        messages.check(found.json["error"])
