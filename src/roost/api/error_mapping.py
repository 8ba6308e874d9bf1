"""What the server does not do, as roost's own exceptions."""

from __future__ import annotations

import msgspec

from roost.base.errors import ConfigError, ContractError, NotFound, Refused, RoostError, UsageError
from roost.operations.responses import Failed

BUSY = 503
_KINDS: dict[str, type[RoostError]] = {
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
"""By code; all others are a plain `RoostError`."""
_TO_MEND = {"token": "give token=…, or set ROOST_SERVER_TOKEN, with what `roost server token` prints"}
"""By code, where it is another thing for a client than for who writes requests by hand."""


def of(status: int, body: bytes) -> RoostError:
    """The exception that an answer stands for.

    Args:
        status: Of HTTP.
        body: As it came.
    """
    try:
        problem = msgspec.json.decode(body, type=Failed).error
    except msgspec.MsgspecError:
        if status == BUSY:
            return RoostError("the server has too many connections", fix="try again")
        fix = "make sure that a roost server listens there"
        return RoostError(f"something answered {status}, and it is no roost server", fix=fix)
    text = problem.message
    is_named = problem.field is None or text.startswith(f"{problem.field}: ")
    named = None if is_named else problem.field
    mend = _TO_MEND.get(problem.code) or problem.fix
    error = _KINDS.get(problem.code, RoostError)(text, setting=named, where=problem.where, fix=mend)
    error.setting = problem.field
    return error


def silent(seconds: float, *, is_question: bool) -> RoostError:
    """Nothing was answered in time."""
    what = f"the server did not answer within {seconds:g} s"
    if is_question:
        return RoostError(what, fix="try again, or give the client more timeout_seconds")
    return RoostError(f"{what}, and may do what was asked all the same", fix="look before it is asked again")


def gone(where: str, why: str) -> RoostError:
    """Nobody answers."""
    return NotFound(f"no server answers at {where} ({why})", fix="`roost server --detach` starts one")
