from __future__ import annotations

import time

from roost.serve import app
from roost.serve.app import PREFIX, ROUTES
from roost.serve.http import route
from tests.serve.servers import Server, everything


def test_names_and_places_are_each_routes_own() -> None:
    assert len({one.name for one in ROUTES}) == len(ROUTES)
    assert len({(one.method, one.path) for one in ROUTES}) == len(ROUTES)
    assert all(one.summary.endswith(".") for one in ROUTES)


def test_all_that_is_in_the_table_is_there(server: Server) -> None:
    for method, path in everything():
        if path.endswith("/follow"):
            continue
        found = server.ask(method, path, {} if method == "POST" else None, prefix="")
        assert found.status not in (405, 500, 501), (method, path, found.body)
        assert found.status != 404 or found.code == "not_found", (method, path)


def test_what_is_not_there_is_said_in_json(server: Server) -> None:
    for path in (
        "/",
        "/api",
        "/api/v1/",
        "/api/v1/nothing",
        "/api/v2",
        "/api/v1/runs/",
        "/openapi.json",
        "//",
    ):
        found = server.ask("GET", path, prefix="")
        assert (found.status, found.code) == (404, "not_found"), path
        assert found.headers["content-type"] == "application/json" and found.headers["location"] is None
        assert "did you mean ''" not in str(found.json)
    for method in ("PUT", "PATCH", "DELETE", "HEAD"):
        found = server.ask(method, "/runs", {} if method != "HEAD" else None)
        assert found.status == 405 and found.headers["allow"]


def test_the_owner_needs_no_token_and_a_client_of_the_port_does(server: Server) -> None:
    mine = {"name": "roost", "version": server.about.version}
    assert server.get("") == mine
    found = server.ask("GET", "", local=False)
    assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
    for kind in ("Bearer", "bearer"):
        assert server.ask("GET", "", local=False, authorization=f"{kind} {server.token}").json == mine


def test_a_bug_is_an_answer_and_not_its_text(monkeypatch: object) -> None:
    """Wherever it is raised, the handlers of the application make JSON of it."""
    made = app.create_app(token=lambda: "", port=None, log_request=lambda *_: None)
    handlers = made._app.exception_handlers  # type: ignore[attr-defined]
    assert Exception in handlers and PREFIX == "/api/v1"
    assert route.failure_response(KeyError("x")).media_type == "application/json"


def test_slow_operations_do_not_hold_up_others(server: Server) -> None:
    """As many streams as there are threads, and more: a question is answered at once nevertheless."""
    streams = [server.follow("/events/follow") for _ in range(app._NUM_THREADS + 4)]
    began = time.monotonic()
    assert server.get("/lab")["tasks"] == {}
    assert time.monotonic() - began < 20, "the time-out of a stuck request"
    for one in streams:
        one.close()
