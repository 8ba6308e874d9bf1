"""docs/server.md: its examples are requests that the routes take, and its tables are whole."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import click
import pytest

from roost.cli.__main__ import roost as program
from roost.serve.app import PREFIX, ROUTES
from roost.serve.http import error_response, request_body
from roost.serve.http.route import Route

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "server.md").read_text()
CURLS = re.findall(r"(?m)^curl .*$", PAGE)
BY_PLACE = {f"{one.method} {one.path.replace(':path}', '}')}": one for one in ROUTES}


def _route(method: str, path: str) -> tuple[Route, dict[str, str]]:
    for place, route in BY_PLACE.items():
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", place)
        if found := re.fullmatch(pattern, f"{method} {path.removeprefix(PREFIX)}"):
            return route, found.groupdict()
    raise AssertionError(f"no route takes {method} {path}")


@pytest.mark.parametrize("line", CURLS)
def test_every_example_is_a_request_that_is_taken(line: str) -> None:
    words = shlex.split(line)
    url = urlsplit(words[-1])
    method = "POST" if {"-d", "-X"} & {*words} else "GET"
    route, in_path = _route(method, url.path)
    if method == "POST":
        data = words[words.index("-d") + 1] if "-d" in words else "{}"
        asked = request_body.convert_parameters(
            route.parameters, {**json.loads(data), **in_path}, strict=True
        )
        assert ("Content-Type: application/json" in words) == ("-d" in words)
    else:
        given = request_body.query_parameters(parse_qsl(url.query), route.list_parameters)
        asked = request_body.convert_parameters(route.parameters, {**given, **in_path}, strict=False)
    assert isinstance(asked, route.parameters)
    assert "--unix-socket" in words or "$auth" in words


def test_the_table_of_routes_is_that_of_the_application() -> None:
    (section,) = re.findall(r"(?s)\n## Routes\n(.*?)\n## ", PAGE)
    rows = re.findall(r"(?m)^\| (GET|POST|DELETE) \| `(.*?)` \| (.*) \|$", section)
    assert rows == [(one.method, one.path.replace(":path}", "}"), one.summary) for one in ROUTES]


def test_the_table_of_codes_has_every_code_of_a_refusal() -> None:
    rows = re.findall(r"(?m)^\| ([\d, ]+) \| (`.*?`) \| ", PAGE)
    shown = {(int(status), code) for statuses, codes in rows for status in statuses.split(", ")
            for code in re.findall(r"`(\w+)`", codes)}  # fmt: skip
    assert {*error_response._ROOST_ERRORS.values(), *error_response._SYSTEM_ERRORS.values()} <= shown
    source = "".join(
        (ROOT / "src" / "roost" / "serve" / f"{name}.py").read_text()
        for name in ("http/request_middleware", "http/request_body", "routes/run_files", "http/route")
    )
    made = {(int(status), code) for status, code in re.findall(r"HttpError\(\s*(\d+), \"(\w+)\"", source)}
    assert len(made) > 10 and made <= shown


def test_every_operation_can_be_reached_or_it_is_said_why_not() -> None:
    """Of the commands, each one has its routes or a reason; of the routes, each one belongs to a command."""
    rows = dict(re.findall(r"(?m)^\| `roost (\w+)` \| (.*) \|$", PAGE))
    assert set(rows) == set(program.list_commands(click.Context(program)))
    named = {place for cell in rows.values() for place in re.findall(r"`((?:GET|POST) /\S*?)`", cell)}
    assert named - {"GET /api/v1"} <= BY_PLACE.keys() and BY_PLACE.keys() - named == {"GET "}
    assert all(cell.startswith(("`GET", "`POST")) or len(cell) > 8 for cell in rows.values())


def test_its_contents_name_every_section() -> None:
    sections = [
        re.sub(r"[^a-z0-9 -]", "", one.lower()).replace(" ", "-")
        for one in re.findall(r"(?m)^## (.*)$", PAGE)
    ]
    assert set(re.findall(r"\]\(#(.*?)\)", PAGE)) == set(sections)
