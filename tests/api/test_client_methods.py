"""Every route has its method, which asks for what it takes and understands what it gives."""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from roost.api import AsyncClient, Client
from roost.api.api_call import ApiRequest, StreamRequest, operation, stream
from roost.api.client_methods import ClientMethods, ResourceArguments
from roost.operations import lab, notices
from roost.operations.comparing import comparison
from roost.operations.devices import device_history
from roost.operations.reading import show
from roost.package import labels
from roost.serve.app import ROUTES
from roost.serve.http.route import EventStream, FileContent, Route

LATE_TYPES = {
    name: found
    for module in (comparison, device_history, lab, labels, notices, show)
    for name, found in vars(module).items()
    if isinstance(found, type)
}
"""The types of answers that the methods import when they are called."""
SAMPLES = {"run": "r/1", "task": "a/b c", "path": "c d/e?", "priority": 3, "command": ["true"]}


def name_of(route: Route) -> str:
    return f"{route.name}_" if keyword.iskeyword(route.name) else route.name


def asks(name: str) -> Any:
    return vars(ClientMethods)[name].build_request


def plain(hint: Any) -> Any:
    """A type as it is said on both sides."""
    if get_origin(hint) is tuple:
        return Sequence[plain(get_args(hint)[0])]  # type: ignore[misc]
    if Path in get_args(hint):
        left = [one for one in get_args(hint) if one is not Path]
        return left[0] if len(left) == 1 else left[0] | left[1]
    return Sequence[plain(get_args(hint)[0])] if get_origin(hint) is Sequence else hint  # type: ignore[misc]


def test_there_is_a_method_for_every_route_and_no_other() -> None:
    methods = {name for name, one in vars(ClientMethods).items() if isinstance(one, operation | stream)}
    assert methods == {name_of(route) for route in ROUTES}
    assert {
        name_of(route) for route in ROUTES if isinstance(vars(ClientMethods)[name_of(route)], stream)
    } == {name_of(route) for route in ROUTES if route.answer is EventStream}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_method_takes_what_its_route_takes(route: Route) -> None:
    function = asks(name_of(route))
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("self")
    hints = get_type_hints(function, localns=LATE_TYPES)
    resources = hints.pop(next(iter([n for n, p in parameters.items() if p.kind is p.VAR_KEYWORD]), ""), None)
    fields = {one.name: one for one in msgspec.structs.fields(route.parameters)}
    theirs = get_type_hints(route.parameters)
    if resources is not None:
        parameters.pop("resources")
        theirs_of_resources = {name: plain(hint) for name, hint in get_type_hints(ResourceArguments).items()}
        assert {name: plain(theirs[name]) for name in theirs_of_resources} == theirs_of_resources
        fields = {name: one for name, one in fields.items() if name not in theirs_of_resources}
    assert parameters.keys() == fields.keys()
    for name, one in fields.items():
        default = parameters[name].default
        assert (default is inspect.Parameter.empty) == one.required, name
        assert one.required or default == one.default, name
        assert plain(hints[name]) == plain(theirs[name]), name


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_a_method_asks_its_route_and_understands_the_answer(route: Route) -> None:
    fields = msgspec.structs.fields(route.parameters)
    given = {one.name: SAMPLES.get(one.name, "x") for one in fields if one.required}
    with Client("http://localhost:9", token="t") as away:
        call = asks(name_of(route))(away, **given)
    quoted = {"{run}": "r%2F1", "{task:path}": "a%2Fb%20c", "{path:path}": "c%20d/e%3F"}
    assert call.path == re.sub(r"{[^}]*}", lambda found: quoted[found[0]], route.path)
    assert call.given.keys() <= {one.name for one in fields} - set(route.path_parameters)
    assert {key: call.given[key] for key in given if key not in route.path_parameters} == {
        key: value for key, value in given.items() if key not in route.path_parameters
    }
    if isinstance(call, StreamRequest):
        return
    assert isinstance(call, ApiRequest) and call.method == route.method
    assert call.answer == (bytes if route.answer is FileContent else route.answer)


def test_methods_tell_what_they_do() -> None:
    for route in ROUTES:
        for kind in (Client, AsyncClient):
            assert getattr(kind, name_of(route)).__doc__
    parameters = inspect.signature(Client.read_log.build_request).parameters
    assert parameters.keys() >= {"run", "offset", "limit", "rank"}
