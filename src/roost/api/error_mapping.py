"""From errors of the server to the exceptions of roost."""

from __future__ import annotations

import msgspec

from roost.base.errors import ConfigError, ContractError, NotFound, Refused, RoostError, UsageError
from roost.operations.responses import ErrorResponse

BUSY = 503
_ERROR_CLASSES: dict[str, type[RoostError]] = {
    "usage": UsageError,
    "invalid": UsageError,
    "malformed": UsageError,
    "method": UsageError,
    "too_large": UsageError,
    "not_found": NotFound,
    "config": ConfigError,
    "contract": ContractError,
    "refused": Refused,
    "token": Refused,
    "too_many": Refused,
    "host": Refused,
    "origin": Refused,
    "no_rights": Refused,
}
"""The exception of each error code; others become a plain `RoostError`."""
_FIXES = {"token": "give token=…, or set ROOST_SERVER_TOKEN, with what `roost server token` prints"}
"""Fixes by code that differ for a client from those for handwritten requests."""


def response_error(status: int, body: bytes) -> RoostError:
    """Returns the exception for an error response.

    Args:
        status: The HTTP status.
        body: The body of the response.
    """
    try:
        problem = msgspec.json.decode(body, type=ErrorResponse).error
    except ValueError:
        if status == BUSY:
            return RoostError("the server has too many connections", fix="try again")
        fix = "check that a roost server listens there"
        return RoostError(f"the answer {status} is not from a roost server", fix=fix)
    text = problem.message
    is_named = problem.field is None or text.startswith(f"{problem.field}: ")
    named = None if is_named else problem.field
    advice = _FIXES.get(problem.code) or problem.fix
    error = _ERROR_CLASSES.get(problem.code, RoostError)(text, setting=named, where=problem.where, fix=advice)
    error.setting = problem.field
    return error


def timeout_error(seconds: float, *, is_read: bool) -> RoostError:
    """Returns the error about a request without an answer in time."""
    what = f"the server did not answer within {seconds:g} s"
    if is_read:
        return RoostError(what, fix="try again, or give the client more timeout_seconds")
    return RoostError(
        f"{what}, but may still carry out the request", fix="check its effect before trying again"
    )


def unreachable_error(where: str, why: str) -> RoostError:
    """Returns the error about an address without a server."""
    return NotFound(f"no server answers at {where} ({why})", fix="`roost server --detach` starts one")
