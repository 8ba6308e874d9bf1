from __future__ import annotations

import contextlib
import errno
import sqlite3
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import ConfigError, NotFound, Refused, RoostError, UsageError
from roost.operations.reading.package_schema import DamagedPackage
from roost.operations.responses import ErrorResponse, ProblemDetails
from roost.serve.http import error_response
from roost.serve.http.error_response import HttpError


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("x"), 404, "not_found"),
        (UsageError("x"), 400, "usage"),
        (ConfigError("x"), 422, "config"),
        (Refused("x"), 409, "refused"),
        (DamagedPackage(Path("/x"), "args.json", "gone"), 409, "damaged"),
        (RoostError("x"), 500, "failed"),
        (OSError(errno.ENOSPC, "full", "/x"), 507, "disk_full"),
        (OSError(errno.EDQUOT, "full"), 507, "disk_full"),
        (PermissionError(errno.EACCES, "no", "/x"), 403, "no_rights"),
        (OSError(errno.EMFILE, "many"), 503, "busy"),
        (HttpError(418, "tea", "x"), 418, "tea"),
    ],
)
def test_every_error_has_a_status_and_a_code(error: Exception, status: int, code: str) -> None:
    found = error_response.to_http_error(error)
    assert (found.status, found.problem.code) == (status, code)


@pytest.mark.parametrize("cause", [OSError(errno.ENOSPC, "full"), OSError(errno.EDQUOT, "full"), "queue"])
@pytest.mark.parametrize("kind", [RoostError, Refused])
def test_an_error_caused_by_a_full_disk_has_its_status(
    kind: type[RoostError], cause: Exception | str
) -> None:
    if cause == "queue":
        with sqlite3.connect(":memory:") as connection:
            connection.execute("PRAGMA max_page_count = 1")
            with pytest.raises(sqlite3.Error) as raised:
                connection.execute("CREATE TABLE a (b)")
        cause = raised.value
    error = kind("it could not be written", fix="make room")
    error.__cause__ = cause  # type: ignore[assignment]
    found = error_response.to_http_error(error)
    assert (found.status, found.problem.code, found.problem.fix) == (507, "disk_full", "make room")


def test_a_log_that_cannot_be_written_does_not_prevent_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr("sys.stderr", full)
        error_response.log_exception(ValueError("x"))
        monkeypatch.undo()
        with contextlib.suppress(OSError):
            full.close()


class Late(Refused):
    """One that was made after the table."""


def test_a_subclass_has_the_code_of_its_base() -> None:
    assert error_response.to_http_error(Late("x")).status == 409


def test_setting_place_and_fix_are_in_the_answer() -> None:
    found = error_response.to_http_error(
        ConfigError("wrong", setting="lr", where="c.yaml:3", fix="a number")
    ).problem
    assert (found.field, found.where, found.fix) == ("lr", "c.yaml:3", "a number")
    assert found.message == "lr: wrong", "each is said once"


@pytest.mark.parametrize(
    ("error", "field", "message", "fix"),
    [
        (Refused("is taken", setting="--name", received="a"), "name", "name: is taken; received 'a'", None),
        (UsageError("--max-parallel, --after-any"), None, "max_parallel, after_any", None),
        (UsageError("-m and --whole is about cards", fix="--gpus 1"), None,
         "memory_mb and whole is about cards", "gpus 1"),
        (NotFound("no program", setting="--"), "command", "command: no program", None),
        (NotFound("x", setting="--after", received="a--name"), "after", "after: x; received 'a--name'", None),
        (UsageError("x", fix="`roost x --name-of`"), None, "x", "`roost x --name-of`"),
        (UsageError("is no card", setting="CARD"), "cards", "cards: is no card", None),
        (UsageError("x --off", fix="`roost drain 0 --off`"), None, "x off", "`roost drain 0 --off`"),
        (UsageError("x", setting="--keep-free"), "keep_free_mb", "keep_free_mb: x", None),
        (NotFound("x", setting="-s"), "scripts", "scripts: x", None),
    ],
)  # fmt: skip
def test_options_are_replaced_by_the_names_of_parameters(
    error: RoostError, field: str | None, message: str, fix: str | None
) -> None:
    found = error_response.to_http_error(error).problem
    assert (found.field, found.message, found.fix) == (field, message, fix)


@pytest.mark.parametrize("error", [ValueError("secret"), OSError(errno.EIO, "secret"), KeyError("secret")])
def test_an_unforeseen_error_is_reported_only_in_the_log(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    found = error_response.to_http_error(error)
    assert (found.status, found.problem.code) == (500, "internal")
    assert "secret" not in found.problem.message
    error_response.log_exception(error)
    assert "secret" in capsys.readouterr().err


def test_messages_are_cut_to_a_maximum_length() -> None:
    assert len(error_response.to_http_error(NotFound("x", received="y" * 2**20)).problem.message) < 5000


def test_empty_parts_of_an_error_are_left_out() -> None:
    assert (
        msgspec.json.encode(ErrorResponse(ProblemDetails(code="a", message="b")))
        == b'{"error":{"code":"a","message":"b"}}'
    )
