"""What is said of a path, or a method, that no route has."""

from __future__ import annotations

import pytest

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
def test_the_route_that_was_probably_meant(server: Server, path: str, near: str | None) -> None:
    found = server.ask("GET", path, prefix="")
    assert (found.status, found.code) == (404, "not_found")
    fix = found.json["error"]["fix"]
    assert fix.endswith("GET /api/v1/openapi.json describes what there is")
    assert (f"did you mean {near!r}?" in fix) if near else ("did you mean" not in fix)


def test_a_method_that_is_not_there_is_told_those_that_are(server: Server) -> None:
    for path, allowed in (
        ("/devices", "GET, POST"),
        ("/tasks/a/b/stop", "POST"),
        ("/openapi.json", "GET, HEAD"),
    ):
        found = server.ask("DELETE", path)
        assert (found.status, found.code, found.headers["allow"]) == (405, "method", allowed)
        assert found.json["error"]["message"] == "this route does not take DELETE"
        assert found.json["error"]["fix"].startswith(f"it takes {allowed}; ")
