"""The answers to failed requests: a status, a stable code, a message and a fix, for every kind of error."""

from __future__ import annotations

import contextlib
import errno
import re
import sys
import traceback

from roost.base.errors import ConfigError, ContractError, NotFound, Refused, RoostError, UsageError
from roost.devices.resource_request import OPTIONS_OF_OTHER_NAMES
from roost.operations.reading.package_schema import DamagedPackage
from roost.operations.responses import ProblemDetails

_MAX_MESSAGE_CHARACTERS = 4000
"""The length of a message: a client that sends megabytes does not get them back."""
_ROOST_ERRORS: dict[type[RoostError], tuple[int, str]] = {
    DamagedPackage: (409, "damaged"),
    UsageError: (400, "usage"),
    NotFound: (404, "not_found"),
    ConfigError: (422, "config"),
    ContractError: (422, "contract"),
    Refused: (409, "refused"),
    RoostError: (500, "failed"),
}
_SYSTEM_ERRORS = {
    errno.ENOENT: (404, "not_found"),
    errno.ENOTDIR: (404, "not_found"),
    errno.ELOOP: (403, "no_rights"),
    errno.ENAMETOOLONG: (422, "invalid"),
    errno.ENOSPC: (507, "disk_full"),
    errno.EDQUOT: (507, "disk_full"),
    errno.EACCES: (403, "no_rights"),
    errno.EPERM: (403, "no_rights"),
    errno.EROFS: (403, "no_rights"),
    errno.EMFILE: (503, "busy"),
    errno.ENFILE: (503, "busy"),
    errno.ENOMEM: (503, "busy"),
}


_FIELD_OF_OPTION = {
    **{option: field for field, option in OPTIONS_OF_OTHER_NAMES.items()},
    "--": "command",
    "-d": "allowed",
    "-s": "scripts",
    "CARD": "cards",
    "--keep-free": "keep_free_mb",
    "--from": "begin",
}
"""The parameters whose names differ from those of the command-line options."""
_OPTION = re.compile(
    r"`roost [^`]*`|(?<![\w-])(?:-m|--(?:after|after-any|begin|cpus|from|gpus|max-parallel|memory|name|"
    r"no-restart|off|opportunistic|priority|retry|strategy|time-limit|until|whole))(?![\w-])"
)


class HttpError(Exception):
    """A failed request, with the answer to it.

    Args:
        status: The HTTP status.
        code: The code for programs, as in `ProblemDetails`.
        message: What is wrong, without the field.
        names_field: Whether the message in the answer begins with the field.
        **more: The other fields of `ProblemDetails`.
    """

    def __init__(
        self, status: int, code: str, message: str, *, names_field: bool = False, **more: str | None
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message[:_MAX_MESSAGE_CHARACTERS]
        whole = f"{more['field']}: {message}" if names_field and more.get("field") is not None else message
        self.problem = ProblemDetails(code=code, message=whole[:_MAX_MESSAGE_CHARACTERS], **more)


def to_http_error(error: BaseException) -> HttpError:
    """Returns the answer for an error. The text of an unforeseen error is left out, as it may contain
    secrets."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, RoostError) and _is_disk_full(error.__cause__):
        return _from_roost_error(507, "disk_full", error)
    if isinstance(error, RoostError):
        kind = next(one for one in type(error).__mro__ if one in _ROOST_ERRORS)
        status, code = _ROOST_ERRORS[kind]
        return _from_roost_error(status, code, error)
    if isinstance(error, OSError) and error.errno in _SYSTEM_ERRORS:
        status, code = _SYSTEM_ERRORS[error.errno]
        return HttpError(
            status, code, f"{error.strerror}: {error.filename}" if error.filename else str(error)
        )
    return HttpError(500, "internal", "internal error; the server's log has the details")


def log_exception(error: Exception) -> None:
    """Writes the traceback of an error to the server's log, unless its disk is full."""
    with contextlib.suppress(OSError):
        traceback.print_exception(error, file=sys.stderr)


def _is_disk_full(cause: BaseException | None) -> bool:
    """Whether the cause of a RoostError is a full disk, reported by the system or by SQLite."""
    by_number = isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return by_number or getattr(cause, "sqlite_errorname", "") == "SQLITE_FULL"


def _from_roost_error(status: int, code: str, error: RoostError) -> HttpError:
    where = str(error.where) if error.where is not None else None
    fix = _options_to_fields(error.fix) if error.fix is not None else None
    field = _to_field(error.setting) if error.setting is not None else None
    message = _options_to_fields(error.detail)
    return HttpError(status, code, message, names_field=True, fix=fix, field=field, where=where)


def _options_to_fields(text: str) -> str:
    """Returns the text with command-line options replaced by the names of the parameters, as operations
    name the options. Commands in backticks remain."""
    return _OPTION.sub(lambda found: found[0] if found[0].startswith("`") else _to_field(found[0]), text)


def _to_field(setting: str) -> str:
    if not setting.startswith("-") and setting not in _FIELD_OF_OPTION:
        return setting
    return _FIELD_OF_OPTION.get(setting, setting.lstrip("-").replace("-", "_"))
